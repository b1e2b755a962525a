"""The simulation rules, one event per call: a completion, an arrival, a time step, a start.

The compiled counterpart of ``ClusterKernel``. At each time, events are processed in the same order
as in the kernel: first completions by (time, number of the run), then arrivals, then decisions
until the policy makes no more. The loops of the policies decide which task starts. They find tasks
that have become ready in ``State.fresh``, and runs that have ended since their last decision in
``State.ended``.

Binary heaps (``push``, ``pop``) contain ``ENTRY`` records, ordered by key and then by ``what``,
smaller first. A heap is a range of an array, starting at ``at``, so that many heaps share one
array.
"""

from __future__ import annotations

import numpy as np

from dagsim.families.compiled.jit import inner, int64
from dagsim.families.compiled.memory import NONE, SLOTS, State
from dagsim.families.compiled.node_trees import SPREAD, give_back, pouring, room, sync, take, top, tree_of


@inner
def push(heap: np.recarray, at: int, held: int, key: float, what: int) -> None:
    """Add an entry to a heap of ``held`` entries."""
    place = held
    while place:
        above = (place - 1) >> 1
        other = heap[at + above].key
        if other < key or (other == key and heap[at + above].what < what):
            break
        heap[at + place].key = other
        heap[at + place].what = heap[at + above].what
        place = above
    heap[at + place].key = key
    heap[at + place].what = what


@inner
def pop(heap: np.recarray, at: int, held: int) -> None:
    """Remove the first entry of a heap of ``held`` entries."""
    last = held - 1
    key, what = heap[at + last].key, heap[at + last].what
    place, below = 0, 1
    while below < last:
        other = heap[at + below].key
        if below + 1 < last:
            twin = heap[at + below + 1].key
            if twin < other or (twin == other and heap[at + below + 1].what < heap[at + below].what):
                below, other = below + 1, twin
        if key < other or (key == other and what < heap[at + below].what):
            break
        heap[at + place].key = other
        heap[at + place].what = heap[at + below].what
        place, below = below, 2 * below + 1
    heap[at + place].key = key
    heap[at + place].what = what


ARRIVED, REJECTED, STARTED_ROW, FINISHED, PREEMPTED, COMPLETED = 0, 2, 3, 5, 6, 8
"""Kinds of rows, the numbers of ``dagsim.model.Kind``."""
MOVE, SETTLE, DECIDE, RECALL, BEGIN, ENDLESS = 0, 1, 2, 3, 4, 5
"""Phases of the loop. At each time: let time pass, process the events that are due, make decisions.
At the start of a simulation with a past: process past events, and process the events that are due
at the beginning. The last phase ends the simulation if the policy would have to decide too
often."""


@inner
def steps(s: State, log: np.recarray) -> int:
    """Return for how many turns of the loop (at most 64) the arrays have enough space, whatever
    happens in these turns. One check for all of these turns saves time.
    """
    nodes = len(s.nodes)
    runs = len(s.runs) - max(s.count.ends, s.count.ended, s.count.starts)
    holds = len(s.holds) - s.count.holds
    return min((len(log) - s.count.rows) // (nodes + 2), runs // nodes, holds // (nodes * s.left.shape[1]), 64)


@inner
def move_on(s: State, log: np.recarray) -> bool:
    """Process the next completion or arrival. If all decisions at the current time have been made,
    time passes first. Return False at the end of the simulation."""
    ends, coming = s.count.ends > 0, s.count.jobs < len(s.jobs) - 1
    if s.clock.phase == RECALL:
        if not _recall(s, log):
            s.clock.phase = BEGIN
        return True
    if s.clock.phase == MOVE:
        if not (ends or coming):
            return False
        if ends:
            s.clock.now_s = s.ends[0].key
        if coming and (not ends or s.jobs[s.count.jobs].arrival_s < s.clock.now_s):
            s.clock.now_s = s.jobs[s.count.jobs].arrival_s
        s.clock.phase = SETTLE
    if ends and s.ends[0].key == s.clock.now_s:
        _finish(s, log)
    elif coming and s.jobs[s.count.jobs].arrival_s <= s.clock.now_s:
        _arrive(s, log)
    else:
        if s.clock.phase == BEGIN and not s.rule.told:
            _forget_ended(s)
        s.clock.phase = DECIDE
    return True


@inner
def ready_at_s(s: State, index: int) -> float:
    """Return the time at which the task ``State.fresh[index]`` became ready. This is the
    current time or, for jobs that arrived before the simulation began, the arrival of the job."""
    return s.jobs[s.tasks[s.fresh[index]].job].arrival_s if index < s.count.early else s.clock.now_s


@inner
def _recall(s: State, log: np.recarray) -> bool:
    """Replay the next arrival or start that happened before the simulation began. Return False if
    none is left."""
    arrives_s, since_s = np.inf, np.inf
    if s.count.jobs < len(s.jobs) - 1:
        arrives_s = s.jobs[s.count.jobs].arrival_s
    if s.count.past < len(s.past):
        since_s = s.past[s.count.past].since_s
    if min(arrives_s, since_s) >= s.clock.begins_s:
        s.clock.now_s = s.clock.begins_s
        s.count.early = s.count.fresh
        return False
    s.clock.now_s = min(arrives_s, since_s)
    if arrives_s <= since_s:
        _arrive(s, log)
    else:
        _resume(s, log)
    return True


@inner
def _forget_ended(s: State) -> None:
    """Drop the runs that ended at the beginning of the simulation, because no policy has seen
    them."""
    kept = int64(0)
    for index in range(s.count.starts):
        if alive(s, s.starts[index]):
            s.starts[kept] = s.starts[index]
            kept += 1
    s.count.starts = kept
    s.count.ended = 0


@inner
def _resume(s: State, log: np.recarray) -> None:
    """Start the next run that was in progress when the simulation began, on the nodes that it
    occupies."""
    task = int64(s.past[s.count.past].task)
    kind = int64(s.tasks[task].kind)
    run = _open(s, task, s.nodes[s.past[s.count.past].node].type)
    last = False
    while not last:
        node, count = s.past[s.count.past].node, s.past[s.count.past].count
        last = s.past[s.count.past].last != 0
        s.count.past += 1
        held = take(s, kind, node, count, run, s.past[s.count.past - 1].gpus)
        _row(s, log, STARTED_ROW, task, s.runs[run].number, node, count, held)
        s.runs[run].count += count
    _close(s, run)


@inner
def run_entry(number: int, slot: int) -> int:
    """Return the entry of a run: its number and the slot that it uses."""
    return number << SLOTS | slot


@inner
def slot_of(entry: int) -> int:
    """Return the slot of an entry's run."""
    return entry & ((1 << SLOTS) - 1)


@inner
def alive(s: State, entry: int) -> bool:
    """Return True if the run of an entry has not ended."""
    return s.runs[slot_of(entry)].number == entry >> SLOTS


@inner
def expected_end_s(s: State, run: int) -> float:
    """Return the end of a run according to its estimate, or the current time if the run is overdue."""
    return max(s.runs[run].start_s + s.seconds[s.runs[run].task, s.runs[run].type], s.clock.now_s)


@inner
def drop_over(s: State, heap: np.recarray, at: int, held: int) -> int:
    """Drop the entries of ended runs from a heap of ``held`` entries. Return how many entries
    remain."""
    kept = int64(0)
    for place in range(held):
        key, entry = heap[at + place].key, heap[at + place].what
        if alive(s, entry):
            push(heap, at, kept, key, entry)
            kept += 1
    return kept


@inner
def origin_of(s: State, task: int) -> int:
    """Return the task to which a piece belongs. For a task, return the task itself."""
    first = len(s.fresh) - len(s.origin)
    return task if task < first else s.origin[task - first]


@inner
def start(s: State, log: np.recarray, task: int, type_: int, node: int) -> None:
    """Start the task's waiting instances on one node. If they do not all fit there, start them on
    several nodes in turn, with as many instances as fit on each.

    A gang is one run. Independent instances on one node are also one run.
    """
    kind = int64(s.tasks[task].kind)
    tree = tree_of(s, kind, type_)
    needed = int64(s.todo[task].waiting)
    run, on = -1, node
    while needed:
        if node == SPREAD:
            sync(s, kind, type_)
            at = pouring(s, tree)
            if s.leaves[at + 1] == NONE:
                break
            on = s.by_type[type_, top(s, at, s.trees[tree].width, False)]
        if run < 0:
            run = _open(s, task, type_)
        count = 1 if needed == 1 else min(needed, room(s, kind, on))
        held = take(s, kind, on, count, run, int64(0))
        _row(s, log, STARTED_ROW, task, s.runs[run].number, on, count, held)
        s.runs[run].count += count
        needed -= count
        if not s.classes[kind].gang:
            _close(s, run)
            run = -1
            if node != SPREAD:
                break
    if run >= 0:
        _close(s, run)
    s.todo[task].waiting = needed


@inner
def stop(s: State, log: np.recarray, run: int, what: int) -> None:
    """Release all resources that a run holds, write a log row per node, and free the run's slot."""
    task = s.runs[run].task
    kind = int64(s.tasks[task].kind)
    hold = s.runs[run].first
    while hold >= 0:
        node, count, held = s.holds[hold].node, int64(0), int64(0)
        while hold >= 0 and s.holds[hold].node == node:
            after = s.holds[hold].next
            count += s.holds[hold].count
            held |= s.holds[hold].mask
            give_back(s, kind, hold)
            hold = after
        _row(s, log, what, task, s.runs[run].number, node, count, held)
    s.ended[s.count.ended] = run
    s.count.ended += 1
    s.runs[run].number = -1
    s.runs[run].first = s.count.runs_free
    s.count.runs_free = run
    s.count.runs -= 1


@inner
def _arrive(s: State, log: np.recarray) -> None:
    """Process the arrival of the next job. Unless the job can never run, its tasks without parents
    become ready."""
    job = s.count.jobs
    s.count.jobs += 1
    _job_row(s, log, ARRIVED, job, 0.0)
    if s.jobs[job].rejected:
        _job_row(s, log, REJECTED, job, s.jobs[job].rejected)
        return
    for task in range(s.jobs[job].first, s.jobs[job + 1].first):
        if not s.todo[task].missing and s.todo[task].waiting:
            s.fresh[s.count.fresh] = task
            s.count.fresh += 1


@inner
def _finish(s: State, log: np.recarray) -> None:
    """End the next run. This may complete the run's task and then its job, and it may make children
    of the task ready."""
    run = slot_of(s.ends[0].what)
    pop(s.ends, 0, s.count.ends)
    s.count.ends -= 1
    task = origin_of(s, s.runs[run].task)
    s.todo[task].unfinished -= s.runs[run].count
    stop(s, log, run, FINISHED)
    if s.todo[task].unfinished:
        return
    for edge in range(s.tasks[task].children, s.tasks[task + 1].children):
        child = s.child[edge]
        s.todo[child].missing -= 1
        if not s.todo[child].missing:
            s.fresh[s.count.fresh] = child
            s.count.fresh += 1
    job = s.tasks[task].job
    s.jobs[job].left -= 1
    if not s.jobs[job].left:
        _job_row(s, log, COMPLETED, job, 0.0)


@inner
def _open(s: State, task: int, type_: int) -> int:
    """Create a run that does not hold resources yet. Return its slot."""
    run = s.count.runs_free
    if run < 0:
        run = s.count.runs_top
        s.count.runs_top += 1
    else:
        s.count.runs_free = s.runs[run].first
    s.runs[run].number = s.count.started
    s.count.started += 1
    s.runs[run].task = task
    s.runs[run].type = type_
    s.runs[run].count = 0
    s.runs[run].first = -1
    s.runs[run].start_s = s.clock.now_s
    s.runs[run].seconds = s.truth[task, type_]
    return run


@inner
def _close(s: State, run: int) -> None:
    """Set the end time of a run that has all its resources."""
    entry = run_entry(s.runs[run].number, run)
    push(s.ends, 0, s.count.ends, max(s.clock.now_s + s.runs[run].seconds, s.clock.begins_s), entry)
    s.count.ends += 1
    s.count.runs += 1
    s.starts[s.count.starts] = entry
    s.count.starts += 1


@inner
def _row(s: State, log: np.recarray, what: int, task: int, number: int, node: int, count: int, held: int) -> None:
    """Write a log row for an event of a run on a node."""
    job = s.tasks[task].job
    row = log[s.count.rows]
    row.kind = what
    row.time_s = s.clock.now_s
    row.job = job
    row.task = origin_of(s, task) - s.jobs[job].first
    row.run = number
    row.node = node
    row.instances = count
    row.gpus = held
    row.value = s.classes[s.tasks[task].kind].gpus * count
    s.count.rows += 1


@inner
def _job_row(s: State, log: np.recarray, what: int, job: int, value: float) -> None:
    """Write a log row for an event of a job."""
    row = log[s.count.rows]
    row.kind = what
    row.time_s = s.clock.now_s
    row.job = job
    row.task = -1
    row.run = -1
    row.node = -1
    row.instances = 0
    row.gpus = 0
    row.value = value
    s.count.rows += 1

"""Convert schedules to Chrome trace events, for ui.perfetto.dev and chrome://tracing.

Each node is shown as a process and each GPU as a thread. Slices in one thread must not overlap, so
runs that share a GPU, and runs without a GPU, get separate threads. Counters show the queue, the
GPUs and the power in watts, and flow events draw the edges of jobs as arrows.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import InputError
from dagsim.files import writing
from dagsim.metrics.columns import Floats, Ints, ScheduleColumns, columns
from dagsim.metrics.lanes import FreeSlots, TaskColumns, bars_of, lanes_of, task_columns
from dagsim.metrics.utilization import Steps, gpus_held, gpus_up, jobs_running, jobs_waiting, watts
from dagsim.model import JobFacts, Kind
from dagsim.model.log import Schedule

PerfettoEvent = dict[str, Any]

_CLUSTER = 1
"""The process that shows the counters. Perfetto reserves process 0 for the kernel."""
_OUTAGES = 0
"""The thread that shows a node's outages."""
_CPU = -1
"""The slot for runs without a GPU."""
_ENDINGS = (".json", ".json.gz")
_OUTCOMES = {int(Kind.FINISHED): "finished", int(Kind.PREEMPTED): "preempted", int(Kind.FAILED): "failed"}


class _Thread(NamedTuple):
    """A thread of a node. ``slot`` is a GPU or ``_CPU``. ``share`` is 0 for whole GPUs, and threads
    for shares of a GPU are numbered from 1.
    """

    node: int
    slot: int
    share: int


def write_perfetto(schedule: Schedule, path: Path, title: str) -> Path:
    """Write the events to ``path`` (.json or .json.gz). Equal schedules produce identical files.

    Raises:
        InputError: The file name has another ending, or the file cannot be written.
    """
    if not path.name.endswith(_ENDINGS):
        raise InputError(f"{path}: the name of a Perfetto trace must end in {' or '.join(_ENDINGS)}")
    whole = {
        "traceEvents": list(trace_events(schedule)),
        "displayTimeUnit": "ms",
        "otherData": {"made by": "dagsim", "run": title},
    }
    data = json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()
    with writing(path) as temporary:
        temporary.write_bytes(gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
    return path


def trace_events(schedule: Schedule) -> Iterator[PerfettoEvent]:
    """Yield the events, beginning with the names of processes and threads. Times are whole
    microseconds."""
    cols = columns(schedule)
    entries, threads = _placed(cols)
    numbers = _numbered(threads)
    placed = [numbers[thread] for thread in threads]
    yield from _names(cols, numbers)
    yield from _slices(schedule, cols, entries, placed)
    yield from flows(schedule.jobs, cols, _places(cols, entries, placed))
    yield from _outages(cols)
    yield from _counter("jobs", waiting=jobs_waiting(cols), running=jobs_running(cols))
    if cols.cluster.gpus:
        yield from _counter("GPUs", held=gpus_held(cols), up=gpus_up(cols))
        yield from _counter("watts", GPUs=watts(cols))


def _placed(cols: ScheduleColumns) -> tuple[list[int], list[_Thread]]:
    """Return the entry in ``RunColumns`` and the thread of each slice, in order of start."""
    runs, lanes = cols.runs, lanes_of(cols)
    bars = bars_of(cols, lanes)
    top = bars.top - lanes.first[runs.node[bars.run]]
    first = np.floor(top + 1e-9).astype(np.int64)
    count = np.maximum(np.rint(bars.bottom - bars.top).astype(np.int64), 1)
    without = np.setdiff1d(np.flatnonzero(runs.end_s > runs.start_s), bars.run)
    entry = np.concatenate((np.repeat(bars.run, count), without))
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    slot = np.concatenate((np.repeat(first, count) + offset, np.full(len(without), _CPU)))
    if not cols.cluster.gpus:
        slot[:] = _CPU
    order = np.lexsort((slot, entry, runs.start_s[entry]))
    entry, slot = entry[order], slot[order]
    shared = (runs.held[entry] < np.bitwise_count(runs.gpus[entry])) | (slot == _CPU)
    return entry.tolist(), _apart(cols, entry, slot, shared)


def _apart(cols: ScheduleColumns, entry: Ints, slot: Ints, shared: np.ndarray) -> list[_Thread]:
    """Assign each slice to the lowest free thread of its slot, so that no two slices in a thread
    overlap.

    Slices on shared GPUs are assigned to threads for shares, which are numbered from 1.
    """
    runs = cols.runs
    start, end = _microseconds(runs.start_s[entry]), _microseconds(runs.end_s[entry])
    node, lowest = runs.node[entry].tolist(), shared.astype(np.int64).tolist()
    slots, threads = FreeSlots(), []
    for place, (where, gpu, low) in enumerate(zip(node, slot.tolist(), lowest, strict=True)):
        (share,) = slots.take((where, gpu, low), start[place], end[place])
        threads.append(_Thread(where, gpu, low + share))
    return threads


def _numbered(threads: list[_Thread]) -> dict[_Thread, int]:
    """Number the threads of each node from 1. The GPUs come first, in order, each followed by the
    threads for its shares. Runs without a GPU come last.
    """
    numbers: dict[_Thread, int] = {}
    last: dict[int, int] = {}
    for thread in sorted(set(threads), key=lambda at: (at.node, at.slot == _CPU, at.slot, at.share)):
        last[thread.node] = numbers[thread] = last.get(thread.node, _OUTAGES) + 1
    return numbers


def _names(cols: ScheduleColumns, numbers: dict[_Thread, int]) -> Iterator[PerfettoEvent]:
    yield _name("process_name", _CLUSTER, 0, f"{cols.cluster.name} (all nodes)")
    for place, node in enumerate(cols.cluster.nodes):
        kind = f"{node.gpus} x {node.gpu.name}" if node.gpu else "CPUs"
        yield _name("process_name", _process(place), 0, f"{node.name} ({kind})")
    for node_down in np.unique(cols.outages.node).tolist():
        yield _name("thread_name", _process(node_down), _OUTAGES, "outages")
    for thread, number in numbers.items():
        yield _name("thread_name", _process(thread.node), number, _title(thread))


def _title(thread: _Thread) -> str:
    if thread.slot == _CPU:
        return f"no GPU, run {thread.share}"
    return f"GPU {thread.slot}" + (f", share {thread.share}" if thread.share else "")


def _name(kind: str, process: int, thread: int, name: str) -> PerfettoEvent:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _places(cols: ScheduleColumns, entries: list[int], threads: list[int]) -> dict[int, Place]:
    """Return the position of the first slice of each entry in ``RunColumns``."""
    starts, ends = _microseconds(cols.runs.start_s), _microseconds(cols.runs.end_s)
    node = cols.runs.node.tolist()
    places: dict[int, Place] = {}
    for entry, thread in zip(entries, threads, strict=True):
        if entry not in places:
            places[entry] = Place(_process(node[entry]), thread, starts[entry], ends[entry])
    return places


def _slices(
    schedule: Schedule, cols: ScheduleColumns, entries: list[int], threads: list[int]
) -> Iterator[PerfettoEvent]:
    runs, jobs = cols.runs, cols.jobs
    starts, ends = _microseconds(runs.start_s), _microseconds(runs.end_s)
    job, node, outcome = runs.job.tolist(), runs.node.tolist(), runs.outcome.tolist()
    task, held, number = runs.task.tolist(), runs.held.tolist(), runs.run.tolist()
    set_up_s = np.nan_to_num(runs.computing_s - runs.start_s).tolist()
    for entry, thread in zip(entries, threads, strict=True):
        whose, where = job[entry], {"pid": _process(node[entry]), "tid": thread}
        names, place = schedule.jobs[whose].tasks, task[entry]
        named = names[place] if 0 <= place < len(names) else str(place)
        details = {"job": jobs.ids[whose], "task": named, "run": number[entry], "GPUs": held[entry]}
        details |= {"tenant": jobs.tenant[whose], "outcome": _OUTCOMES.get(outcome[entry], "still running")}
        if set_up_s[entry] > 0:
            details["set-up, s"] = set_up_s[entry]
        span = {"ts": starts[entry], "dur": ends[entry] - starts[entry]}
        yield {"ph": "X", "name": jobs.ids[whose], "cat": "run", **span, **where, "args": details}
        if outcome[entry] in (Kind.PREEMPTED, Kind.FAILED):
            name = _OUTCOMES[outcome[entry]]
            yield {"ph": "i", "s": "t", "name": name, "cat": name, "ts": ends[entry], **where}


def _outages(cols: ScheduleColumns) -> Iterator[PerfettoEvent]:
    """Yield the outages on one thread per node. An outage that starts during another outage extends
    it.
    """
    outages = cols.outages
    order = np.lexsort((outages.start_s, outages.node))
    reached: dict[int, int] = {}
    starts, ends = _microseconds(outages.start_s[order]), _microseconds(outages.end_s[order])
    names = np.where(outages.failed[order], "node down", "node off").tolist()
    for node, start, end, name in zip(outages.node[order].tolist(), starts, ends, names, strict=True):
        start = max(start, reached.get(node, start))
        if end >= start:
            reached[node] = end
            span = {"ts": start, "dur": end - start, "pid": _process(node), "tid": _OUTAGES}
            yield {"ph": "X", "name": name, "cat": "outage", **span, "args": {}}


def _counter(name: str, **values: Steps) -> Iterator[PerfettoEvent]:
    """Yield an event with all values at each moment when one of the values changes."""
    times = np.unique(np.concatenate([steps.time_s for steps in values.values()]))
    values_at = {key: steps.at(times) for key, steps in values.items()}
    rows = zip(*(value.tolist() for value in values_at.values()), strict=True)
    for at, row in zip(_microseconds(times), rows, strict=True):
        yield {"ph": "C", "name": name, "pid": _CLUSTER, "ts": at, "args": dict(zip(values_at, row, strict=True))}


def _process(node: int) -> int:
    return _CLUSTER + 1 + node


def _microseconds(time_s: Floats) -> list[int]:
    """Round a time to whole microseconds. Rounding preserves the order, so adjacent slices stay
    adjacent and do not overlap.
    """
    rounded: list[int] = np.rint(time_s * 1e6).astype(np.int64).tolist()
    return rounded


class Place(NamedTuple):
    """The position of a slice: its process, its thread and its times in microseconds."""

    process: int
    thread: int
    start: int
    end: int


def flows(facts: Sequence[JobFacts], cols: ScheduleColumns, places: dict[int, Place]) -> Iterator[dict[str, Any]]:
    """Yield two events per edge, from the last run of the parent to the first run of the child.

    Both runs must have a slice. ``places`` contains the slice of each entry in ``RunColumns``. An
    arrow starts within the parent's slice, at least a microsecond before the slice ends.
    """
    tasks = task_columns(facts, cols)
    if not len(tasks):
        return
    firsts, lasts = _outer_runs(tasks, cols)
    for number, (parent, child) in enumerate(tasks.edges.tolist()):
        source, target = places.get(lasts[parent]), places.get(firsts[child])
        if source is None or target is None:
            continue
        shared = {"name": "waits for", "cat": "edge", "id": number}
        at = max(source.start, min(source.end - 1, target.start))
        yield {"ph": "s", **shared, "ts": at, "pid": source.process, "tid": source.thread}
        yield {"ph": "f", "bp": "e", **shared, "ts": target.start, "pid": target.process, "tid": target.thread}


def _outer_runs(tasks: TaskColumns, cols: ScheduleColumns) -> tuple[list[int], list[int]]:
    """Return the first and the last entry in ``RunColumns`` for each task, or -1 if the task never
    ran.
    """
    runs = cols.runs
    entries = np.flatnonzero(tasks.first[runs.job] >= 0)
    task = tasks.first[runs.job[entries]] + runs.task[entries]
    return _last(task, entries, -runs.start_s[entries], len(tasks)), _last(
        task, entries, runs.end_s[entries], len(tasks)
    )


def _last(task: Ints, entries: Ints, by: np.ndarray, count: int) -> list[int]:
    """Return, for each task, the entry with the largest value of ``by``. If several entries have
    this value, return the first.
    """
    order = np.lexsort((-entries, by, task))
    entry_of = np.full(count, -1, np.int64)
    entry_of[task[order]] = entries[order]
    chosen: list[int] = entry_of.tolist()
    return chosen

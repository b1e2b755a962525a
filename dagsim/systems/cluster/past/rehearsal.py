"""Functions that turn the past of a schedule into runs in flight, and that restore the memory of
the policy that made the decisions in this past.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Literal

from dagsim.errors import Stalled
from dagsim.model import Edge, InFlight, Job, Kind, Record, RejectReason, Share, TaskGraph
from dagsim.model.log import RUN_ENDS, Schedule
from dagsim.systems.cluster.frontier import Past
from dagsim.systems.cluster.past.recall import attributes_of, forgotten, parts_of
from dagsim.systems.cluster.state import Run
from dagsim.systems.seam import Conversation, stated

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel


def rehearse(kernel: ClusterKernel, past: Past, policy: object) -> bool:
    """Give a new policy the memory that it would have if its own decisions had led to the past, and
    continue its random streams and its request to be called. Return False and change nothing if a
    part of the past is unknown, or if the policy would have decided differently.
    """
    again = _repeated(kernel, past, policy)
    if again is None:
        return False
    kernel.streams = again.streams
    if kernel.now < again.wake_s < inf:
        kernel.wait(again.wake_s)
    return True


def _repeated(kernel: ClusterKernel, past: Past, policy: Any) -> ClusterKernel | None:
    """Return the simulation of the past under the policy, or None if the past is unknown or the
    policy would not repeat it.

    A copy of the policy schedules the jobs from 0 s to the beginning. If all runs are the same as
    in the past, the policy takes over the memory of the copy. If they differ, the simulation ends
    at the first start that differs from the past.
    """
    if not past.is_whole or not forgotten(policy):
        return None
    if not all(stated(part, "rehearses") for part in parts_of(policy)):
        return None
    count, site = len(past.jobs), kernel.machines.site
    jobs = [replace(job, in_flight=()) for job in past.jobs]
    later = kernel.upcoming.peek()
    again = type(kernel)(
        kernel.schedule.cluster,
        # without ``later``, the policy could see that no more jobs will arrive
        jobs if later is None else [*jobs, later],
        replace(kernel.models, failures=()),
        seed=kernel.schedule.seed,
        origin_s=0.0 if site is None else site.origin_s,
    )
    starts = {(number, run.task, run.since_s) for number, job in enumerate(past.jobs) for run in job.in_flight}

    def started(run: Run, now: float) -> None:
        if (run.job.number, run.task.index, now) not in starts:
            raise _OtherStart

    again.frontier.started.append(started)
    twin = deepcopy(policy)
    try:
        Conversation(again, nextafter(past.at_s, -inf)).follow(twin)
    except (_OtherStart, Stalled):
        return None
    played = with_past(again.schedule, jobs, past.at_s, defaultdict(int))
    if len(played) < count or any(map(_differ, played, past.jobs)) or _runs_of(again) != _runs_of(kernel):
        return None
    # The caller keeps ``policy``, so it must remain the same object: it takes over the attributes of
    # its copy, and below replaces the copy among the listeners.
    for name, value in attributes_of(twin).items():
        object.__setattr__(policy, name, value)  # also if it is frozen
    listeners = [key for key, index in again.frontier.indexes.items() if key is index]
    past.reminded += [policy if listener is twin else listener for listener in listeners]
    return again


class _OtherStart(Exception):
    """The exception for a start that differs from the past."""


def _runs_of(kernel: ClusterKernel) -> dict[int, tuple[int, int, float]]:
    """Return the job, the task and the start of each current run, by the number under which
    policies remember the run.
    """
    return {run.id: (run.job.number, run.task.index, run.started_s) for run in kernel.running.values()}


def _differ(job: Job, other: Job) -> bool:
    """Return True if the runs in flight of two jobs differ. Their row numbers in a log are not
    compared.
    """
    return sorted(map(_without_rows, job.in_flight)) != sorted(map(_without_rows, other.in_flight))


def _without_rows(run: InFlight) -> tuple[Any, ...]:
    ended = (inf, "") if run.until_s is None else (run.until_s, run.stopped)
    return run.task, run.since_s, *ended, sorted([(share.node, share.instances) for share in run.placement])


def with_past(schedule: Schedule, jobs: Sequence[Job], at_s: float, pieces: Mapping[int, int]) -> list[Job]:
    """Return the jobs with their runs that started before ``at_s`` in a schedule, so that a
    simulation can begin at that time. ``jobs`` are the jobs in the schedule, in order of arrival. A
    job that a policy killed before that time counts as done with the instances that ran. If none
    ran, the job is left out.

    A log does not state which stopped run is resumed by which later run. ``pieces`` therefore maps
    each run to the number of its piece (``TaskState.piece``): 0, or a number that counts the
    stopped runs in the log.
    """
    runs, killed = _runs_before(schedule, jobs, at_s, pieces)
    kept = [
        _as_ended(job, runs.get(number, []), killed[number])
        if number in killed
        else replace(job, in_flight=tuple(runs.get(number, ())))
        if job.arrival_s < at_s
        else job
        for number, job in enumerate(jobs)
    ]
    return [job for job in kept if job is not None]


def _as_ended(job: Job, runs: Sequence[InFlight], killed_s: float) -> Job | None:
    """Turn a job that the policy killed into a job that was done at that time, with only the
    instances that ran. Return None if no instance ran, or if stopped instances were still waiting.
    """
    runs = [run._replace(stopped="") if run.until_s == killed_s and run.stopped == "preempted" else run for run in runs]
    counts = Counter[int]()
    for run in runs:
        counts[run.task] += 0 if run.stopped else sum(share.instances for share in run.placement)
    place = {index: number for number, index in enumerate(sorted(+counts))}
    resumed = {run.resumes for run in runs}
    if not place or any(run.stopped and run.rows[0] not in resumed for run in runs):
        return None
    graph = job.graph
    tasks = [replace(graph.tasks[index], instances=counts[index]) for index in place]
    edges = [
        Edge(place[one], place[other], size) for one, other, size in graph.edges if one in place and other in place
    ]
    past = [run._replace(task=place[run.task]) for run in runs if run.task in place]
    return replace(job, graph=TaskGraph(tuple(tasks), tuple(edges)), in_flight=tuple(past))


def _runs_before(
    schedule: Schedule, jobs: Sequence[Job], at_s: float, pieces: Mapping[int, int]
) -> tuple[dict[int, list[InFlight]], dict[int, float]]:
    """Return, for each job, its runs that started before ``at_s``. Also return the jobs that the
    policy ended, with the time of each.
    """
    rows = list(schedule.log)
    ended = {row.run: (place, row) for place, row in enumerate(rows) if row.kind in RUN_ENDS}
    stopped = [row.run for row in rows if row.kind in (Kind.PREEMPTED, Kind.FAILED)]
    stopped = [-1, *dict.fromkeys(stopped)]
    ended_by_policy = {
        row.job: row.time_s
        for row in rows
        if row.kind == Kind.REJECTED and row.time_s < at_s and row.reason not in _IMPOSSIBLE
    }
    shares: dict[int, list[Share]] = {}
    first: dict[int, tuple[int, Record]] = {}
    for place, row in enumerate(rows):
        if row.kind == Kind.STARTED and row.time_s < at_s:
            first.setdefault(row.run, (place, row))
            demand = jobs[row.job].graph.tasks[row.task].gpus
            gpu = row.gpus.bit_length() - 1 if 0 < demand < 1 and row.gpus.bit_count() == 1 else None
            shares.setdefault(row.run, []).append(Share(row.node, row.instances, gpu))
    runs: dict[int, list[InFlight]] = {}
    for number, (place, row) in first.items():
        last, end = ended.get(number, (-1, None))
        over = end is not None and end.time_s < at_s
        stop: Literal["", "preempted", "failed"] = ""
        if end is not None and over and end.kind != Kind.FINISHED:
            stop = "preempted" if end.kind == Kind.PREEMPTED else "failed"
        until_s = end.time_s if end is not None and over else None
        resumed = stopped[pieces[number]]
        resumes = first[resumed][0] if resumed >= 0 else -1
        marks = (place, last if over else -1)
        flight = InFlight(row.time_s, tuple(shares[number]), row.task, until_s, stop, marks, resumes)
        runs.setdefault(row.job, []).append(flight)
    return runs, ended_by_policy


_IMPOSSIBLE = (RejectReason.TOO_LARGE, RejectReason.NO_SUCH_GPU)

"""The past of a schedule as runs in flight, and the memory of a policy that made such a past."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Literal

from dagsim.errors import Stalled
from dagsim.model import InFlight, Job, Kind, Record, RejectReason, Share
from dagsim.model.log import Schedule
from dagsim.systems.cluster.past import forgotten, parts_of
from dagsim.systems.cluster.state import Past, Run
from dagsim.systems.seam import Conversation, stated

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel


def rehearse(kernel: ClusterKernel, past: Past, policy: Any) -> ClusterKernel | None:
    """Give a policy that has not decided anything yet the memory of a policy whose decisions led to
    the past, and return the simulation of this past. Return None and change nothing if a part of
    the past is unknown, or if the policy would have decided differently.

    A copy of the policy schedules the jobs from 0 s to the beginning. If all runs are the same as
    in the past, the policy takes over the memory of the copy. This takes as long as a simulation up
    to the first start that differs.
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
        jobs if later is None else [*jobs, later],  # otherwise, the policy would see that no job follows
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
    if len(played) < count or any(map(_differ, played, past.jobs)):
        return None
    vars(policy).update(vars(twin))
    listeners = [key for key, index in again.frontier.indexes.items() if key is index]
    past.reminded += [policy if listener is twin else listener for listener in listeners]
    return again


class _OtherStart(Exception):
    """A start that is not in the past."""


def _differ(job: Job, other: Job) -> bool:
    """Return True if the runs of a job differ in anything except their rows in a log."""
    return sorted(map(_without_rows, job.in_flight)) != sorted(map(_without_rows, other.in_flight))


def _without_rows(run: InFlight) -> tuple[Any, ...]:
    ended = (inf, "") if run.until_s is None else (run.until_s, run.stopped)
    return run.task, run.since_s, *ended, sorted([(share.node, share.instances) for share in run.placement])


def with_past(schedule: Schedule, jobs: Sequence[Job], at_s: float, pieces: Mapping[int, int]) -> list[Job]:
    """Return the jobs with their runs that started before ``at_s`` in a schedule, so that a
    simulation can begin at that time. ``jobs`` are the jobs in the schedule, in order of arrival.
    Jobs that a policy ended before that time are left out.

    A log does not state which stopped run a run resumes. This is given by ``pieces``, which maps
    each run to the number of its piece (``TaskState.piece``): 0, or a number that counts the
    stopped runs in the log.
    """
    rows = list(schedule.log)
    ended = {row.run: (place, row) for place, row in enumerate(rows) if row.kind in _STOPS}
    stopped = [row.run for row in rows if row.kind in (Kind.PREEMPTED, Kind.FAILED)]
    stopped = [-1, *dict.fromkeys(stopped)]
    ended_by_policy = {
        row.job for row in rows if row.kind == Kind.REJECTED and row.time_s < at_s and row.value not in _IMPOSSIBLE
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
    return [
        replace(job, in_flight=tuple(runs.get(number, ()))) if job.arrival_s < at_s else job
        for number, job in enumerate(jobs)
        if number not in ended_by_policy
    ]


_IMPOSSIBLE = (RejectReason.TOO_LARGE, RejectReason.NO_SUCH_GPU)
_STOPS = (Kind.FINISHED, Kind.PREEMPTED, Kind.FAILED)

"""Functions that derive, from the times in a log, which jobs were in the system at a given moment
and which of their runs were in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isnan, nan, nextafter

import numpy as np

from dagsim.errors import ModelError
from dagsim.model import Attempt, Cluster, InFlight, Job, Placement, Share
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.resources.nodes import DemandClass, NodeState, demand_words, may_mix_types
from dagsim.workload.arrays import JobArrays, Labels
from dagsim.workload.load import seconds_of


def jobs_at(
    jobs: JobArrays,
    begins_s: float,
    until_s: float,
    cluster: Cluster,
    runtime: Runtime,
    *,
    stated: bool = False,
    exact: bool = False,
    suspended: Collection[str] = (),
) -> JobArrays:
    """Return the jobs in a log that are in the system at ``begins_s``, with their instances in
    flight, and the jobs that arrive between then and ``until_s``.

    A single-task job that started earlier is in flight if its work is not done by then. A job that
    was requeued or suspended has several attempts. It is in flight during each attempt, and waits
    between attempts. Other jobs that started earlier are left out, because the log does not record
    what remains of them. A job in flight runs on the nodes that the log names. If these nodes are
    unknown or full, the job is placed by best fit after all other jobs. The largest such jobs are
    placed first. A job that fits nowhere waits. A job without a start keeps the runs in flight that
    it states itself, if there are any. Other jobs without a start are waiting if the input is a
    snapshot (``stated``). In a log, it is unknown when such jobs ran, so they are left out. If a
    job was suspended, its run is moved later by the length of the suspension. This does not apply
    to the ids in ``suspended``, because the simulation itself suspends these jobs. Other jobs may
    have started on their CPUs in the meantime.

    Raises:
        ModelError: With ``exact``, a node that the log names does not exist or is too full. The
            message names the job and the node.
    """
    first, last = np.searchsorted(jobs.arrival_s, [begins_s, until_s]).tolist()
    jobs = _in_attempt_at(jobs, begins_s)
    earlier = jobs.between(0, first)
    own = _own_runs(earlier)
    start_s = _observed_start_s(earlier)
    machines = ClusterState(cluster)
    for number, runs in own.items():
        _take_all(machines, earlier, number, runs)
    started = np.flatnonzero((start_s < begins_s) & _may_run_at(earlier, begins_s, runtime, machines))
    started = started[~np.isin(started, list(own))]
    flights = _flights(earlier.chosen(started), begins_s, machines, runtime, exact=exact, suspended=suspended)
    runs_of = own | {int(started[place]): runs for place, runs in flights.items()}
    waiting = ~(start_s < begins_s) if stated else start_s >= begins_s
    waiting[list(runs_of)] = True
    kept = np.concatenate([np.flatnonzero(waiting), np.arange(first, last)]).astype(np.int64)
    in_flight = Labels.of([runs_of.get(number, ()) for number in kept.tolist()])
    return replace(jobs.chosen(kept), begins_s=begins_s, in_flight=in_flight)


class JobsLeft:
    """The single-task jobs that ran in a log and had ended by ``begins_s``, each with its run. The
    earlier attempts of requeued jobs are also included. The job objects are created on demand.
    """

    def __init__(self, jobs: JobArrays, begins_s: float, cluster: Cluster, runtime: Runtime) -> None:
        self._jobs, self._begins_s = jobs, begins_s
        self._cluster, self._runtime = cluster, runtime

    def __iter__(self) -> Iterator[Job]:
        jobs = self._jobs.between(0, int(np.searchsorted(self._jobs.arrival_s, self._begins_s)))
        ran = np.flatnonzero((_observed_start_s(jobs) < self._begins_s) & (np.diff(jobs.first) == 1))
        jobs, machines = jobs.chosen(ran), ClusterState(self._cluster)
        seconds = seconds_of(jobs, self._runtime, machines.types)
        by_name = nodes_by_name(machine.node.name for machine in machines.list)
        starts_s = _observed_start_s(jobs).tolist()
        for job, start_s, lasts_s in zip(jobs.jobs(), starts_s, seconds.tolist(), strict=True):
            type_, runs = min(range(len(lasts_s)), key=lasts_s.__getitem__), list[InFlight]()
            for attempt in job.observed_attempts or [Attempt(start_s, start_s, nan, job.observed_nodes)]:
                named = [number for name in attempt.nodes for number in by_name.get(name, ())]
                nodes = [number for number in named if lasts_s[machines.list[number].type] < inf]
                nodes = nodes or [machine.index for machine in machines.list if machine.type == type_][:1]
                work_s = lasts_s[machines.list[nodes[0]].type]
                end_s = attempt.start_s + work_s if isnan(attempt.end_s) else attempt.end_s
                if end_s > self._begins_s:
                    break
                instances = job.graph.tasks[0].instances
                nodes, (each, more) = nodes[:instances], divmod(instances, min(len(nodes), instances))
                placement = tuple([Share(node, each + (place < more)) for place, node in enumerate(nodes)])
                # a job that was suspended lasted longer than its work, so its run is shortened to the
                # time in which it worked
                since_s = attempt.start_s if len(job.observed_attempts) > 1 else max(attempt.start_s, end_s - work_s)
                runs.append(InFlight(since_s, placement, 0, max(end_s, since_s), "preempted"))
            if runs:
                if len(runs) == max(len(job.observed_attempts), 1):
                    runs[-1] = runs[-1]._replace(stopped="")
                yield replace(job, in_flight=tuple(runs))


def first_full_s(jobs: JobArrays, cluster: Cluster, runtime: Runtime) -> float | None:
    """For a log that begins with a full cluster, return the first time at which the log contains
    all running jobs. This is the time at which the first job in the log ends.

    A log of all jobs that ran in some period (``sacct -S``) lists the jobs that were running at the
    beginning of the period, but not those that had ended before. Such a log is complete from the
    time at which its first job ends. Return None if the log does not begin in this way. This is the
    case if starts are unknown, if the jobs hold fewer than half of the average number of busy GPUs
    at that time, or if more than a quarter of the jobs arrived before that time.
    """
    start_s = _observed_start_s(jobs)
    if not np.isfinite(start_s).any() or (np.diff(jobs.first) != 1).any():
        return None
    seconds = seconds_of(jobs, runtime, ClusterState(cluster).types).min(axis=1)
    end_s = start_s + seconds
    ran = np.isfinite(end_s)
    if not ran.any():
        return None
    begins_s, last_s = float(end_s[ran].min()), float(jobs.arrival_s[-1])
    before = int(np.searchsorted(jobs.arrival_s, begins_s))
    if not begins_s < last_s or before > _MOST_BEFORE * len(jobs):
        return None
    gpus = np.where(ran, jobs.asked("gpus") * jobs.instances, 0.0)
    inside_s = np.clip(end_s, begins_s, last_s) - np.clip(start_s, begins_s, last_s)
    mean = float((gpus[ran] * inside_s[ran]).sum()) / (last_s - begins_s)
    held = float(gpus[ran & (start_s < begins_s) & (end_s > begins_s)].sum())
    return begins_s if held >= mean / 2 > 0 else None


def why_no_state(jobs: JobArrays, cluster: Cluster, runtime: Runtime) -> str:
    """Return the reason why the state of this cluster at a given time cannot be derived from a log.
    The reason is empty if it can be derived: the jobs have starts, and they never hold more GPUs
    simultaneously than the cluster has.
    """
    start_s = _observed_start_s(jobs)
    if not np.isfinite(start_s).any():
        return "the log contains no start times"
    if (np.diff(jobs.first) != 1).any():
        return "the log does not say which tasks of a job have ended"
    end_s = start_s + seconds_of(jobs, runtime, ClusterState(cluster).types).min(axis=1)
    ran = np.isfinite(end_s)
    gpus = (jobs.asked("gpus") * jobs.instances)[ran]
    times, changes = np.concatenate([end_s[ran], start_s[ran]]), np.concatenate([-gpus, gpus])
    # the sort is stable, so at equal times ends come before starts
    held = np.cumsum(changes[np.argsort(times, kind="stable")])
    if held.max(initial=0.0) > cluster.gpus * (1 + _ROUNDING):
        return f"its jobs hold up to {held.max():,.10g} GPUs at once, more than the cluster's {cluster.gpus:,}"
    return ""


_ROUNDING = 1e-9


_MOST_BEFORE = 0.25
"""Largest share of the jobs that may arrive before a simulation of the whole log begins."""


def _observed_start_s(jobs: JobArrays) -> np.ndarray:
    return np.full(len(jobs), np.nan) if jobs.observed_start_s is None else jobs.observed_start_s


def _in_attempt_at(jobs: JobArrays, begins_s: float) -> JobArrays:
    """Return the jobs, each with the observations of a single attempt: the first attempt that had
    not ended by ``begins_s`` or, if all had ended, the last one.
    """
    if jobs.observed_attempts is None or jobs.observed_start_s is None:
        return jobs
    start_s = jobs.observed_start_s.copy()
    eligible_s = (jobs.arrival_s if jobs.eligible_s is None else jobs.eligible_s).copy()
    nodes: list[tuple[str, ...]] = [()] * len(jobs) if jobs.observed_nodes is None else jobs.observed_nodes.tolist()
    for number, attempts in enumerate(jobs.observed_attempts.tolist()):
        if attempts and jobs.arrival_s[number] < begins_s:
            attempt = _attempt_at(attempts, begins_s)
            eligible_s[number], start_s[number], _, nodes[number] = attempt
    return replace(jobs, observed_start_s=start_s, eligible_s=eligible_s, observed_nodes=Labels.of(nodes))


def _attempt_at(attempts: Sequence[Attempt], at_s: float) -> Attempt:
    return next((attempt for attempt in attempts if attempt.end_s > at_s), attempts[-1])


def _end_s_at(jobs: JobArrays, at_s: float) -> np.ndarray:
    """Return the recorded end of each job's attempt at that time, with shape (J,). The value is NaN
    for a job whose only attempt lasted exactly as long as its work.
    """
    if jobs.observed_attempts is None:
        return np.full(len(jobs), np.nan)
    labels = jobs.observed_attempts
    ends_s = [_attempt_at(attempts, at_s).end_s if attempts else np.nan for attempts in labels.words]
    by_job: np.ndarray = np.array(ends_s, float)[labels.place]
    return by_job


def _own_runs(jobs: JobArrays) -> dict[int, tuple[InFlight, ...]]:
    """For jobs without a start in the log, return the runs in flight that the jobs themselves state, by job number."""
    if jobs.in_flight is None:
        return {}
    unknown = np.isnan(_observed_start_s(jobs)).tolist()
    return {number: runs for number, runs in enumerate(jobs.in_flight.tolist()) if runs and unknown[number]}


def _take_all(machines: ClusterState, jobs: JobArrays, number: int, runs: Sequence[InFlight]) -> None:
    """Occupy resources for the runs on those of their nodes that exist in the cluster. The kernel
    reports nodes that do not exist.
    """
    (job,) = jobs.between(number, number + 1).jobs()
    for run in runs:
        task = job.graph.tasks[run.task]
        demand = machines.demand_of(task)
        for node, instances, gpu in run.placement:
            if node < len(machines.list) and machines.list[node].room(demand) >= instances:
                machines.take(machines.list[node], demand, instances, gpu)


def _may_run_at(jobs: JobArrays, begins_s: float, runtime: Runtime, machines: ClusterState) -> np.ndarray:
    """Return, for each job, whether it is a single-task job that may still be running at
    ``begins_s``. This is assumed if its work would last until then on its slowest type. Shape (J,),
    bool.
    """
    if not len(jobs):
        return np.zeros(0, bool)
    single = np.diff(jobs.first) == 1
    seconds = seconds_of(jobs, runtime, machines.types)
    slowest_s = np.where(np.isfinite(seconds), seconds, 0.0).max(axis=1)[jobs.first[:-1]]
    end_s = np.fmax(_observed_start_s(jobs) + slowest_s, _end_s_at(jobs, begins_s))
    may_run: np.ndarray = single & (end_s > begins_s)
    return may_run


def _flights(
    jobs: JobArrays,
    begins_s: float,
    machines: ClusterState,
    runtime: Runtime,
    *,
    exact: bool,
    suspended: Collection[str],
) -> dict[int, tuple[InFlight, ...]]:
    """Return the runs in flight of single-task jobs that have started, by job number. The entry of
    a job that does not fit is empty. A job that is done has no entry.
    """
    seconds = seconds_of(jobs, runtime, machines.types)
    by_name = nodes_by_name(machine.node.name for machine in machines.list)
    listed_s: list[float] = [] if jobs.observed_start_s is None else jobs.observed_start_s.tolist()
    ends_s = _end_s_at(jobs, begins_s).tolist()
    flights: dict[int, tuple[InFlight, ...]] = {}
    unplaced: list[tuple[float, int, Job, DemandClass]] = []
    lent: list[tuple[NodeState, int]] = []
    listed = list(jobs.jobs())
    for number in np.argsort(listed_s, kind="stable").tolist():
        job, lasts_s = listed[number], seconds[number].tolist()
        task = job.graph.tasks[0]
        demand = machines.demand_of(task)
        demand = machines.narrowed(demand, lasts_s)
        placement = placement_on(job, by_name, machines, demand, task.instances)
        type_ = machines.list[placement[0].node].type if placement else int(np.argmin(lasts_s))
        is_suspended = job.id in suspended
        since_s = _since_s(listed_s[number], ends_s[number], lasts_s[type_], begins_s, is_suspended=is_suspended)
        if since_s is None or demand.rejected is not None:
            continue
        if placement is None or sum(share.instances for share in placement) < task.instances:
            if exact and job.observed_nodes:
                raise ModelError(
                    f"job {job.id!r} runs on node {', '.join(map(repr, job.observed_nodes))}, but the cluster "
                    f"does not have this node, or {task.instances} x {demand_words(task.demand)} do not fit there"
                )
            unplaced.append((-task.gpus * task.instances, number, job, demand))
            continue
        flights[number] = _taken(machines, demand, placement, since_s)
        if is_suspended:
            lent += _lend_cpus(machines, demand, placement)
    for machine, cpus in lent:  # take the CPUs back, because it is unknown whether other jobs ran on them
        machines.lend_cpus(machine, -min(cpus, machine.cpus))
    for _, number, job, demand in sorted(unplaced, key=lambda entry: entry[:2]):
        placement = _by_best_fit(machines, demand, job.graph.tasks[0].instances, seconds[number].tolist())
        flights[number] = () if placement is None else _taken(machines, demand, placement, listed_s[number])
    return flights


def _since_s(listed_s: float, end_s: float, lasts_s: float, begins_s: float, *, is_suspended: bool) -> float | None:
    """Return the start of a run that is in flight, moved later by the length of its suspensions.
    Return None if the run had ended by ``begins_s``. ``end_s`` is NaN if it lasted as long as its
    work.
    """
    if end_s > begins_s:
        # the end of a job that is suspended also depends on how long it will be suspended
        return listed_s if is_suspended else max(listed_s, min(end_s - lasts_s, nextafter(begins_s, -inf)))
    return None if end_s <= begins_s or listed_s + lasts_s <= begins_s else listed_s


def _lend_cpus(machines: ClusterState, demand: DemandClass, placement: Placement) -> list[tuple[NodeState, int]]:
    """Free the CPUs of a suspended run for other jobs. Return the number on each node."""
    lent = [(machines.list[share.node], demand.cpus * share.instances) for share in placement]
    for machine, cpus in lent:
        machines.lend_cpus(machine, cpus)
    return lent


def _by_best_fit(
    machines: ClusterState, demand: DemandClass, instances: int, lasts_s: Sequence[float]
) -> Placement | None:
    """Return a placement of all instances on the fastest type on which they fit, or ``None``."""
    for type_ in sorted(demand.types, key=lasts_s.__getitem__):
        if demand.gang or instances == 1:
            if (placement := machines.fit(demand, type_, instances)) is not None:
                return placement
            continue
        room = [(machine.index, machine.room(demand)) for machine in machines.with_room(demand, type_)]
        if whole_sum(count for _, count in room) >= instances:
            shares: list[Share] = []
            for node, count in room:
                shares.append(Share(node, min(count, instances - sum(share.instances for share in shares))))
            return tuple([share for share in shares if share.instances])
    return None


def _taken(machines: ClusterState, demand: DemandClass, placement: Placement, since_s: float) -> tuple[InFlight, ...]:
    for share in placement:
        machines.take(machines.list[share.node], demand, share.instances, share.gpu)
    return (InFlight(since_s, placement),)


def nodes_by_name(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of the nodes by the names that a log uses for them. A node with GPUs of
    two types is modelled as two nodes, ``name:A100`` and ``name:T4``.
    """
    by_name: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        by_name.setdefault(name.partition(":")[0], []).append(number)
    return by_name


def placement_on(
    job: Job, by_name: Mapping[str, Sequence[int]], machines: ClusterState, demand: DemandClass, waiting: int
) -> Placement | None:
    """Place the waiting instances of a job's task on the nodes that the log names. A gang is placed
    as a whole. Of independent instances, as many as possible are placed. The nodes must be of a
    single type, unless the job may mix types. If a batch job has enough instances, at least one is
    placed on each node. Return ``None`` if the nodes do not exist or are full.
    """
    held = Counter(job.observed_nodes)
    if len(held) < len(job.observed_nodes) == waiting and (stated := _as_stated(job, held, by_name, machines, demand)):
        return stated
    listed = [machines.list[number] for name in held for number in by_name.get(name, ())]
    types = dict.fromkeys([machine.type for machine in listed if machine.type in demand.types])
    mixes = not demand.demand.gpus and may_mix_types(job, demand.demand)
    for chosen in [tuple(types)] if mixes else [(type_,) for type_ in types]:
        room = [(node.index, node.room(demand)) for node in listed if node.type in chosen]
        room = [(node, instances) for node, instances in room if instances]
        if whole_sum(count for _, count in room) >= (waiting if demand.gang else 1):
            return _spread(room, waiting, 0 if job.request is None else 1)
    return None


def _as_stated(
    job: Job, held: Mapping[str, int], by_name: Mapping[str, Sequence[int]], machines: ClusterState, demand: DemandClass
) -> Placement | None:
    """Place as many instances on each node as the log states, or return ``None`` if that is
    impossible.
    """
    shares: list[Share] = []
    for name, instances in held.items():
        nodes = [machines.list[number] for number in by_name.get(name, ())]
        fits = [node.index for node in nodes if node.type in demand.types and node.room(demand) >= instances]
        if not fits:
            return None
        shares.append(Share(fits[0], instances))
    types = {machines.list[share.node].type for share in shares}
    return tuple(shares) if len(types) == 1 or may_mix_types(job, demand.demand) else None


def _spread(room: list[tuple[int, int]], waiting: int, least: int) -> Placement:
    """Distribute the waiting instances over the nodes: evenly if the instances then fit, as in a
    batch system. Otherwise, each node first gets ``least`` instances, and then the nodes are filled
    in turn.
    """
    per_node, rest = divmod(waiting, len(room))
    counts = [per_node + (place < rest) for place in range(len(room))]
    if any(count > free for count, (_, free) in zip(counts, room, strict=True)):
        counts = [least if place < waiting else 0 for place in range(len(room))]
        left = waiting - whole_sum(counts)
        for place, (_, free) in enumerate(room):
            more = min(free - counts[place], left)
            counts[place] += more
            left -= more
    return tuple([Share(index, count) for count, (index, _) in zip(counts, room, strict=True) if count])

"""Conversion of jobs, a cluster and models to the columns of the engine. Only this file uses the
nodes, the demand classes and the past of the SimPy kernel. Other files share formulas and constants
with its policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf, nan

import numpy as np

from dagsim.errors import ModelError
from dagsim.families.compiled.list_scheduling import ideal_s, job_gpu_seconds, upward_rank, widths
from dagsim.families.compiled.memory import (
    CLASS,
    NAMED_GPUS,
    NODE,
    PAST,
    TASK,
    Classes,
    EmptyNodes,
    Jobs,
    Work,
    records,
)
from dagsim.model import Cluster, InFlight, JobFacts, QueueTree, TimeLimits
from dagsim.model.log import FactColumns
from dagsim.model.streams import stream
from dagsim.systems.cluster.knowledge import known
from dagsim.systems.cluster.models.estimates import Estimates, as_claimed
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.past.recall import check_in_flight, past_of
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.resources.nodes import DemandClass
from dagsim.workload.array_tools import combinations, distinct_rows, renumbered
from dagsim.workload.arrays import JobArrays, Labels
from dagsim.workload.load import seconds_of

_MOST = 1 << 62
"""An amount larger than any node in the engine has. A demand class that requests more is rejected
in any case."""


@dataclass(frozen=True)
class EngineScenario:
    """A scenario as columns, without its policy."""

    work: Work
    classes: Classes
    nodes: EmptyNodes
    describe: Callable[[], Sequence[JobFacts]] = tuple

    @cached_property
    def facts(self) -> Sequence[JobFacts]:
        """The data about jobs that only the schedule needs, not the engine."""
        return self.describe()

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return len(self.work.jobs.arrival_s)


def read_scenario(
    cluster: Cluster,
    jobs: JobArrays,
    runtime: Runtime,
    estimates: Estimates,
    seed: int,
    queues: QueueTree | None = None,
) -> EngineScenario:
    """Convert a scenario to the engine's columns. ``queues`` provides the time limits for jobs that
    do not state one.

    Raises:
        ModelError: The jobs are not in order of arrival, or an estimate is invalid.
    """
    estimates = known(estimates, jobs)
    _check_order(jobs)
    machines = ClusterState(cluster)
    truth = seconds_of(jobs, runtime, machines.types)
    tasks, sizes = jobs.tasks, np.diff(jobs.first)
    kind, demands = _demands_of(jobs, machines, truth)
    base = np.repeat(jobs.first[:-1], sizes)
    child = np.repeat(np.arange(tasks), np.diff(jobs.waits))
    parent = base[child] + jobs.parent
    rows = records(
        TASK,
        tasks + 1,
        children=np.searchsorted(np.sort(parent), np.arange(tasks + 1)),
        job=np.repeat(np.arange(len(jobs)), sizes),
        kind=kind,
        instances=jobs.instances,
    )
    order = np.zeros(0, np.int32) if (parent < child).all() else _parents_first(base, parent, jobs.waits)
    columns = _columns_of(jobs, kind, demands)
    classes, nodes = demand_classes(machines), empty_nodes(machines)
    past = _past(jobs, columns, [demands[number] for number in kind.tolist()] if jobs.in_flight else [], machines)
    child_of = child[np.argsort(parent, kind="stable")].astype(np.int32)
    work = Work(columns, rows, child_of, truth, truth, order, past, jobs.begins_s)
    describe = partial(_facts_of, jobs, work, classes)
    if estimates.kind == "predicted":
        stated = seconds_of(replace(jobs, work=_claims(jobs, work)), runtime, machines.types)
        work = work._replace(seconds=_limits(jobs, stated, queues), has_limits=True)
    return EngineScenario(_estimated(work, estimates, seed), classes, nodes, describe)


def _past(jobs: JobArrays, columns: Jobs, demands: Sequence[DemandClass], machines: ClusterState) -> np.recarray:
    """Return the instances that run when the simulation begins. They are placed on ``machines`` to
    check that they fit. ``demands`` contains the demand class of each task.

    Raises:
        ModelError: An instance in flight does not fit into the cluster.
    """
    shares: list[tuple[float, int, int, int, int, int]] = []
    if not jobs.begins_s:
        return np.array(shares, PAST).view(np.recarray)
    early = list(jobs.between(0, int(np.searchsorted(jobs.arrival_s, jobs.begins_s))).jobs())
    for since_s, number, run in past_of(early, jobs.begins_s):
        if not isinstance(run, InFlight):
            continue
        task = int(jobs.first[number]) + run.task
        demand = demands[task]
        check_in_flight(early[number], run, None if columns.rejected[number] else demand, machines)
        for place, (node, count, _) in enumerate(run.placement, 1):
            machines.take(machines.list[node], demand, count, None)
            shares.append((since_s, task, node, count, 0, not demand.gang or place == len(run.placement)))
    return np.array(shares, PAST).view(np.recarray)


def _demands_of(jobs: JobArrays, machines: ClusterState, seconds: np.ndarray) -> tuple[np.ndarray, list[DemandClass]]:
    """Return (n,) int32: the demand class of each task. Also return the classes, by number.
    ``seconds`` (n, types) contains the run times of the tasks.
    """
    together = np.array([kind.gang for kind in jobs.kinds])[jobs.kind]
    gang = np.where(together, jobs.instances, 0)
    keys = jobs.kind * (gang.max(initial=0) + 1) + gang
    endless = np.isinf(seconds)
    # Dividing the work by a low rate can overflow to inf, so tasks of one kind may differ in the
    # types on which they can run.
    if endless.any():
        keys = distinct_rows(np.column_stack([keys, endless]))[1]
    _, first, alike = np.unique(keys, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), np.int32)
    for place in np.argsort(first).tolist():  # number the classes in the order of their first tasks
        task = first[place]
        demand = machines.compile(jobs.kinds[jobs.kind[task]].demand, int(gang[task]))
        numbers[place] = machines.narrowed(demand, seconds[task].tolist()).number
    return numbers[alike.reshape(-1)], list(machines.classes.values())


def _columns_of(jobs: JobArrays, kind: np.ndarray, demands: list[DemandClass]) -> Jobs:
    reason = np.array([0.0 if demand.rejected is None else float(demand.rejected) for demand in demands])[kind]
    reasons = np.zeros(len(jobs))
    wrong = np.flatnonzero(reason)
    # if several tasks of a job are rejected, NumPy keeps the reason for the last one
    reasons[np.repeat(np.arange(len(jobs)), np.diff(jobs.first))[wrong]] = reason[wrong]
    priority = np.zeros(len(jobs)) if jobs.priority is None else jobs.priority
    deadline_s = np.full(len(jobs), inf) if jobs.deadline_s is None else jobs.deadline_s
    weight = np.ones(len(jobs)) if jobs.weight is None else jobs.weight
    return Jobs(jobs.arrival_s, reasons, jobs.first, priority, deadline_s, weight)


def _all(value: float, jobs: JobArrays) -> np.ndarray:
    """Return a column that has the same value for all jobs and takes no memory."""
    return np.broadcast_to(np.array(value), len(jobs))


def _facts_of(jobs: JobArrays, work: Work, classes: Classes) -> FactColumns:
    best_s = work.best_s
    name, names = renumbered(jobs.name, jobs.names.tolist())
    graph, graphs = jobs.graphs()
    return FactColumns(
        ids=tuple(jobs.ids.tolist()),
        arrival_s=jobs.arrival_s,
        priority=_all(0.0, jobs) if jobs.priority is None else jobs.priority,
        deadline_s=_all(nan, jobs)
        if jobs.deadline_s is None
        else np.where(jobs.deadline_s < inf, jobs.deadline_s, nan),
        weight=_all(1.0, jobs) if jobs.weight is None else jobs.weight,
        ideal_s=ideal_s(work, upward_rank(work, best_s)),
        ideal_gpu_s=job_gpu_seconds(work, classes, best_s),
        gpus=widths(work, classes),
        tenant=("",) * len(jobs) if jobs.tenant is None else tuple(jobs.tenant.tolist()),
        first=jobs.first,
        name=name,
        names=names,
        graph=graph,
        graphs=graphs,
    )


def _claims(jobs: JobArrays, work: Work) -> np.ndarray:
    """Return (n,) float64: the work that users claim. For tasks without a claim, and for rejected
    jobs, this is the true work.

    Raises:
        ModelError: A claim is not a valid amount of work, and the job is not rejected.
    """
    claims = np.full(jobs.tasks, nan) if jobs.estimate is None else jobs.estimate
    unstated = (work.jobs.rejected[work.rows.job] != 0) | np.isnan(claims)
    if (wrong := np.flatnonzero(~(unstated | (claims >= 0) & (claims < inf)))).size:
        as_claimed(*jobs.task(int(wrong[0])))  # raises an error that states what is wrong with this estimate
    return np.where(unstated, jobs.work, claims)


def _limits(jobs: JobArrays, seconds: np.ndarray, queues: QueueTree | None) -> np.ndarray:
    """Return (n, types) float64: the time limits. They are computed as in ``limit_seconds`` from
    ``seconds``, the run times of the work that users requested.
    """
    none = np.zeros(len(jobs), np.int32)
    columns = [jobs.partition or Labels(none, ("",)), jobs.qos or Labels(none, ("",))]
    columns.append(jobs.request or Labels(none, (None,)))
    code, firsts = combinations([column.place for column in columns])
    first_jobs = [next(jobs.between(number, number + 1).jobs()) for number in firsts.tolist()]
    limits = [TimeLimits() if queues is None else queues.time_limits(job) for job in first_jobs]
    of_task = np.repeat(code, np.diff(jobs.first))
    unstated = np.ones(jobs.tasks, bool) if jobs.estimate is None else np.isnan(jobs.estimate)
    asked = np.where(unstated, np.array([of.unstated_s for of in limits])[of_task], inf)
    most = np.minimum(np.array([of.most_s for of in limits])[of_task], asked)[:, None]
    within = np.where(unstated[:, None], most, np.minimum(seconds, most))
    return np.where(np.isinf(seconds), inf, within)


def _parents_first(base: np.ndarray, parent: np.ndarray, waits: np.ndarray) -> np.ndarray:
    """Return (n,) int32: the tasks, grouped by job. Within a job, tasks are sorted by the length of
    the longest chain of tasks before them, so parents come first."""
    depth, waiting = np.zeros(len(base), np.int64), np.flatnonzero(np.diff(waits))
    while True:
        below = np.maximum.reduceat(depth[parent] + 1, waits[:-1][waiting])
        if (below == depth[waiting]).all():
            return np.lexsort((depth, base)).astype(np.int32)
        depth[waiting] = below


def _check_order(jobs: JobArrays) -> None:
    if (early := np.flatnonzero(np.diff(jobs.arrival_s) < 0)).size:
        number = int(early[0]) + 1
        before_s, now = jobs.arrival_s[number - 1 : number + 1].tolist()
        raise ModelError(
            f"jobs must be sorted by arrival: {jobs.ids[number]!r} ({now!r} s) follows a job that arrives "
            f"at {before_s!r} s"
        )


def demand_classes(machines: ClusterState) -> Classes:
    """Return all demand classes that have occurred among the tasks so far."""
    demands = list(machines.classes.values())
    rows = records(
        CLASS,
        len(demands),
        gpus=[demand.demand.gpus for demand in demands],
        whole=[demand.whole for demand in demands],
        share=[demand.share for demand in demands],
        cpus=[min(demand.cpus, _MOST) for demand in demands],
        memory=[min(demand.memory, _MOST) for demand in demands],
        gang=[demand.gang for demand in demands],
    )
    may = [[type_ in demand.types for type_ in range(len(machines.types))] for demand in demands]
    return Classes(rows, np.array(may, np.uint8).reshape(len(demands), len(machines.types)))


def empty_nodes(machines: ClusterState) -> EmptyNodes:
    """Return the nodes, all of them empty and up."""
    listed, types = machines.list, range(len(machines.types))
    type_ = np.array([machine.type for machine in listed])
    count = np.bincount(type_, minlength=len(machines.types)).astype(np.int64)
    by_type = np.full((len(types), int(count.max())), -1, np.int64)
    place = np.empty(len(listed), np.int64)
    for number in types:
        here = np.flatnonzero(type_ == number)
        by_type[number, : len(here)] = here
        place[here] = np.arange(len(here))
    gpus = np.array([machine.gpus for machine in listed], np.int64)
    rows = records(
        NODE,
        len(listed),
        type=type_,
        place=place,
        gpus=gpus,
        idle=gpus,
        free=np.where(gpus <= NAMED_GPUS, (np.int64(1) << np.minimum(gpus, NAMED_GPUS)) - 1, 0),
        cpus=[machine.cpus for machine in listed],
        memory=[machine.memory for machine in listed],
    )
    return EmptyNodes(rows, by_type, count)


def _estimated(work: Work, estimates: Estimates, seed: int) -> Work:
    """Return the work with the run times that policies use as estimates. Rejected jobs have no
    estimates.
    """
    if estimates.kind == "hidden":
        return work._replace(seconds=np.where(np.isinf(work.truth), work.truth, 1.0))
    if estimates.kind != "noisy":
        return work
    factors = np.ones(len(work.truth))
    first = work.jobs.first.tolist()
    for number in np.flatnonzero(work.jobs.rejected == 0).tolist():
        begin, end = first[number], first[number + 1]
        factors[begin:end] = stream(seed, "estimates", number).lognormal(0.0, estimates.sigma, end - begin)
    return work._replace(seconds=work.truth * factors[:, None])

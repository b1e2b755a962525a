"""Columns from ``Job`` objects, a cluster and the models: the one file that knows the SimPy kernel's parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from math import inf, nan
from typing import NamedTuple

import numpy as np

from dagsim.errors import ModelError
from dagsim.model import Cluster, Job, JobFacts
from dagsim.model.facts import FactColumns
from dagsim.model.streams import stream
from dagsim.systems.cluster.lane.orders import ideal_s, job_gpu_seconds, upward_rank, widths
from dagsim.systems.cluster.lane.state import CLASS, NAMED_GPUS, NODE, TASK, Classes, EmptyNodes, Jobs, Work, records
from dagsim.systems.cluster.models.estimates import Estimates, as_claimed
from dagsim.systems.cluster.models.runtime import Gpus, HasRates, Runtime
from dagsim.systems.cluster.nodes import ClusterState, DemandClass
from dagsim.workload.arrays import JobArrays, renumbered
from dagsim.workload.load import seconds_of

__all__ = ["LaneScenario", "read_arrays", "read_scenario"]

_MOST = 1 << 62
"""More than any node of the lane has; a class that asks for more is rejected anyway."""


class LaneScenario(NamedTuple):
    """Everything about a scenario but its policy."""

    work: Work
    classes: Classes
    nodes: EmptyNodes
    facts: Sequence[JobFacts]


def read_scenario(
    cluster: Cluster, jobs: Iterable[Job], runtime: Runtime, estimates: Estimates, seed: int
) -> LaneScenario:
    """The scenario as columns.

    Raises:
        ModelError: Jobs that do not come in order of arrival, or a task without the estimate that is asked for.
    """
    machines = ClusterState(cluster)
    listed = list(jobs)
    _check_order(listed)
    work = _work(listed, machines, runtime)
    classes = _classes(machines)
    facts = _facts(listed, work, classes)
    if estimates.kind == "predicted":
        work = work._replace(seconds=_claimed(listed, work, runtime, machines))
    return LaneScenario(_estimated(work, estimates, seed), classes, _nodes(machines), facts)


def read_arrays(cluster: Cluster, jobs: JobArrays, runtime: HasRates, estimates: Estimates, seed: int) -> LaneScenario:
    """The same from jobs that are columns already.

    Raises:
        ModelError: A task without the estimate that is asked for.
    """
    machines = ClusterState(cluster)
    truth = seconds_of(jobs, runtime, machines.types)
    tasks, sizes = jobs.tasks, np.diff(jobs.first)
    of_task, demands = _demands_of(jobs, machines, truth)
    base = np.repeat(jobs.first[:-1], sizes)
    child = np.repeat(np.arange(tasks), np.diff(jobs.waits))
    parent = base[child] + jobs.parent
    rows = records(
        TASK,
        tasks + 1,
        children=np.searchsorted(np.sort(parent), np.arange(tasks + 1)),
        job=np.repeat(np.arange(len(jobs)), sizes),
        kind=of_task,
        instances=jobs.instances,
    )
    order = np.zeros(0, np.int32) if (parent < child).all() else _parents_first(base, parent, child, jobs.waits)
    columns = _columns_of(jobs, of_task, demands)
    work = Work(columns, rows, child[np.argsort(parent, kind="stable")].astype(np.int32), truth, truth, order)
    classes = _classes(machines)
    facts = _facts_of(jobs, work, classes)
    if estimates.kind == "predicted":
        work = work._replace(seconds=_claims(jobs, work, runtime, machines.types))
    return LaneScenario(_estimated(work, estimates, seed), classes, _nodes(machines), facts)


def _demands_of(jobs: JobArrays, machines: ClusterState, seconds: np.ndarray) -> tuple[np.ndarray, list[DemandClass]]:
    """(n,) int32: the demand class of each task, which takes (n, types) ``seconds``, and the classes by number."""
    together = np.array([kind.gang for kind in jobs.kinds])[jobs.kind]
    gang = np.where(together, jobs.instances, 0)
    keys = jobs.kind * (gang.max(initial=0) + 1) + gang
    endless = np.isinf(seconds)
    if endless.any():  # tasks of one kind differ in where they can run if their work over a low rate overflows
        keys = np.unique(keys, return_inverse=True)[1].reshape(-1)
        keys = np.unique(np.column_stack([keys, endless]), axis=0, return_inverse=True)[1].reshape(-1)
    _, first, alike = np.unique(keys, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), np.int32)
    for place in np.argsort(first).tolist():  # in the order of the tasks
        task = first[place]
        demand = machines.compile(jobs.kinds[jobs.kind[task]].demand, int(gang[task]))
        numbers[place] = machines.narrowed(demand, seconds[task].tolist()).number
    return numbers[alike.reshape(-1)], list(machines.classes.values())


def _columns_of(jobs: JobArrays, of_task: np.ndarray, demands: list[DemandClass]) -> Jobs:
    reason = np.array([0.0 if demand.rejected is None else float(demand.rejected) for demand in demands])[of_task]
    reasons = np.zeros(len(jobs))
    wrong = np.flatnonzero(reason)
    reasons[np.repeat(np.arange(len(jobs)), np.diff(jobs.first))[wrong]] = reason[wrong]  # the last one stays
    priority = np.zeros(len(jobs)) if jobs.priority is None else jobs.priority
    deadline_s = np.full(len(jobs), inf) if jobs.deadline_s is None else jobs.deadline_s
    weight = np.ones(len(jobs)) if jobs.weight is None else jobs.weight
    return Jobs(jobs.arrival_s, reasons, jobs.first, priority, deadline_s, weight)


def _facts_of(jobs: JobArrays, work: Work, classes: Classes) -> FactColumns:
    best_s = work.best_s
    numbers = {
        "arrival_s": jobs.arrival_s,
        "priority": work.jobs.priority,
        "deadline_s": np.where(work.jobs.deadline_s < inf, work.jobs.deadline_s, nan),
        "weight": work.jobs.weight,
        "ideal_s": ideal_s(work, upward_rank(work, best_s)),
        "ideal_gpu_s": job_gpu_seconds(work, classes, best_s),
        "gpus": widths(work, classes),
    }
    nobody = np.zeros(len(jobs), np.int32), ("",)
    tenant, tenants = renumbered(*nobody if jobs.tenant is None else jobs.tenant)
    name, names = renumbered(jobs.name, jobs.names.tolist())
    return FactColumns(jobs.ids, numbers, tenant, tenants, jobs.first, name, names, *jobs.graphs())


def _claims(jobs: JobArrays, work: Work, runtime: HasRates, types: Gpus) -> np.ndarray:
    """(n, types) float64: the seconds of the work that users claim."""
    rejected = work.jobs.rejected[work.rows.job] != 0
    fine = rejected.copy()
    if jobs.estimate is not None:
        fine |= (jobs.estimate >= 0) & (jobs.estimate < inf)
    if (wrong := np.flatnonzero(~fine)).size:
        as_claimed(*jobs.task(int(wrong[0])))  # says what is wrong
    if jobs.estimate is None:
        return work.truth
    return np.where(rejected[:, None], work.truth, seconds_of(replace(jobs, work=jobs.estimate), runtime, types))


def _parents_first(base: np.ndarray, parent: np.ndarray, child: np.ndarray, waits: np.ndarray) -> np.ndarray:
    """(n,) int32: tasks job by job, each behind its parents: by the length of the longest chain before it."""
    depth, waiting = np.zeros(len(base), np.int64), np.flatnonzero(np.diff(waits))
    while True:
        below = np.maximum.reduceat(depth[parent] + 1, waits[:-1][waiting])
        if (below == depth[waiting]).all():
            return np.lexsort((depth, base)).astype(np.int32)
        depth[waiting] = below


def _check_order(jobs: list[Job]) -> None:
    before_s = 0.0
    for job in jobs:
        if job.arrival_s < before_s:
            raise ModelError(f"job {job.id!r} arrives at {job.arrival_s!r} s, after one that arrived at {before_s!r} s")
        before_s = job.arrival_s


def _work(jobs: list[Job], machines: ClusterState, runtime: Runtime) -> Work:
    types, seconds = machines.types, runtime.seconds
    tasks = [task for job in jobs for task in job.graph.tasks]
    rows_s = [seconds(task, types) for task in tasks]
    demands = [
        machines.narrowed(machines.compile(task.demand, task.instances if task.gang else 0), row)
        for task, row in zip(tasks, rows_s, strict=True)
    ]
    sizes = np.array([len(job.graph.tasks) for job in jobs], np.int64)
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    bases = first[:-1].tolist()
    graphs = [job.graph for job in jobs]
    children = [len(each) for graph in graphs for each in graph.children]
    child = [base + each for base, graph in zip(bases, graphs, strict=True) for of in graph.children for each in of]
    order = np.array([base + each for base, graph in zip(bases, graphs, strict=True) for each in graph.order], np.int32)
    if (order[1:] > order[:-1]).all():
        order = order[:0].copy()
    truth = np.array([*chain.from_iterable(rows_s)]).reshape(len(tasks), len(types))
    rows = records(
        TASK,
        len(tasks) + 1,
        children=np.concatenate([np.zeros(1, np.int64), np.cumsum(children, dtype=np.int64)]),
        job=np.repeat(np.arange(len(jobs)), sizes),
        kind=[demand.number for demand in demands],
        instances=[task.instances for task in tasks],
    )
    return Work(_jobs(jobs, first, demands), rows, np.array(child, np.int32), truth, truth, order)


def _jobs(jobs: list[Job], first: np.ndarray, demands: list[DemandClass]) -> Jobs:
    reasons = np.zeros(len(jobs))
    if any(demand.rejected is not None for demand in set(demands)):
        for number in range(len(jobs)):
            for demand in demands[first[number] : first[number + 1]]:
                if demand.rejected is not None:
                    reasons[number] = float(demand.rejected)
    return Jobs(
        np.array([job.arrival_s for job in jobs], np.float64),
        reasons,
        first,
        np.array([job.priority for job in jobs], np.float64),
        np.array([inf if job.deadline_s is None else job.deadline_s for job in jobs], np.float64),
        np.array([job.weight for job in jobs], np.float64),
    )


def _classes(machines: ClusterState) -> Classes:
    known = list(machines.classes.values())
    rows = records(
        CLASS,
        len(known),
        gpus=[each.demand.gpus for each in known],
        whole=[each.whole for each in known],
        share=[each.share for each in known],
        cpus=[min(each.cpus, _MOST) for each in known],
        memory=[min(each.memory, _MOST) for each in known],
        gang=[each.gang for each in known],
    )
    may = [[type_ in each.types for type_ in range(len(machines.types))] for each in known]
    return Classes(rows, np.array(may, np.uint8).reshape(len(known), len(machines.types)))


def _nodes(machines: ClusterState) -> EmptyNodes:
    listed, types = machines.list, range(len(machines.types))
    type_ = np.array([machine.type for machine in listed])
    count = np.bincount(type_, minlength=len(machines.types)).astype(np.int64)
    by_type = np.full((len(types), int(count.max())), -1, np.int64)
    place = np.empty(len(listed), np.int64)
    for each in types:
        here = np.flatnonzero(type_ == each)
        by_type[each, : len(here)] = here
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


def _facts(jobs: list[Job], work: Work, classes: Classes) -> list[JobFacts]:
    best_s = work.best_s
    columns = (ideal_s(work, upward_rank(work, best_s)), job_gpu_seconds(work, classes, best_s), widths(work, classes))
    return [
        JobFacts(
            job.id,
            job.arrival_s,
            job.priority,
            job.tenant,
            job.deadline_s,
            job.weight,
            ideal,
            gpu_s,
            gpus,
            job.graph.names,
            job.graph.parents,
        )
        for job, ideal, gpu_s, gpus in zip(jobs, *[column.tolist() for column in columns], strict=True)
    ]


def _estimated(work: Work, estimates: Estimates, seed: int) -> Work:
    """The work with the seconds that policies see; nobody estimates jobs that are turned away."""
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


def _claimed(jobs: list[Job], work: Work, runtime: Runtime, machines: ClusterState) -> np.ndarray:
    """(n, types) float64: the seconds of the work that users claim."""
    seconds = work.truth.copy()
    for number, job in enumerate(jobs):
        if not work.jobs.rejected[number]:
            for place, task in enumerate(job.graph.tasks, work.jobs.first[number]):
                seconds[place] = runtime.seconds(as_claimed(task, job.id), machines.types)
    return seconds

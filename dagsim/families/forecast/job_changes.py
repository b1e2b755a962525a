"""Find changes to a waiting job, one at a time, that could let it start sooner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dagsim.families.forecast.job_log import JobLog
from dagsim.families.forecast.texts import span
from dagsim.model import Demand, Request
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.workload.arrays import Labels


@dataclass(frozen=True, slots=True)
class JobChange:
    """One change to a job: to its size (as a share of what it requests), its number of nodes at the
    same size, its time limit, its partition, its GPU type, or its terms."""

    words: str
    size: float = 1.0
    nodes: int = 0
    limit_s: float | None = None
    partition: str = ""
    any_type: bool = False
    any_node: bool = False
    shared: bool = False

    def __str__(self) -> str:
        return self.words


def changes_of(log: JobLog, job: int, scenario: ClusterScenario) -> Iterator[JobChange]:
    """Yield the changes that would make a job smaller or less restrictive."""
    jobs = log.jobs
    kind, count = jobs.kinds[int(jobs.kind[job])], int(jobs.instances[job])
    request = _request(log, job)
    for size in (0.5, 0.25):
        gpus, cpus = kind.demand.gpus, kind.demand.cpus
        unit, amount = ("GPUs", gpus * count) if gpus else ("CPUs", cpus * count)
        if _scaled(count, gpus if gpus else cpus, size) is not None:
            yield JobChange(f"{amount * size:g} instead of {amount:g} {unit}", size=size)
    if count > 1 and kind.gang:
        for nodes in dict.fromkeys((count // 2, 1)):
            if float(kind.demand.gpus * count / nodes).is_integer():
                yield JobChange(f"{nodes} instead of {count} nodes", nodes=nodes)
    limit_s = float(log.limit_s[job])
    for share in (2, 4):
        if limit_s / share >= 60:
            yield JobChange(
                f"a time limit of {span(limit_s / share)} instead of {span(limit_s)}", limit_s=limit_s / share
            )
    own = request.partitions or (log.partition[job],)
    for part in scenario.queues.partitions if scenario.queues is not None else ():
        if part.name not in own:
            yield JobChange(f"the partition {part.name} instead of {', '.join(own)}", partition=part.name)
    if kind.demand.gpu_types:
        yield JobChange(f"any GPU type instead of {' or '.join(kind.demand.gpu_types)}", any_type=True)
    if request.constraint:
        yield JobChange(f"no constraint instead of {request.constraint}", any_node=True)
    if request.exclusive:
        yield JobChange("shared nodes instead of --exclusive", shared=True)


def changed(log: JobLog, places: Sequence[int], change: JobChange) -> JobLog:
    """Return the log with the same change made to each of the jobs at ``places``."""
    jobs = log.jobs
    kinds, kind, instances = list(jobs.kinds), jobs.kind.copy(), jobs.instances.copy()
    limit_s, columns = log.limit_s.copy(), dict[str, Any]()
    partition = list(log.partition)
    requests = [None] * len(log) if jobs.request is None else jobs.request.tolist()
    for place in places:
        own, demand = kinds[int(kind[place])], kinds[int(kind[place])].demand
        if change.size != 1:
            scaled = _scaled(int(instances[place]), demand.gpus or demand.cpus, change.size)
            if scaled is not None:
                instances[place], share = scaled
                demand = _times(demand, share)
        if change.nodes:
            demand = _times(demand, int(instances[place]) / change.nodes)
            instances[place] = change.nodes
        if change.any_type:
            demand = demand._replace(gpu_types=None)
        if demand != own.demand:
            kind[place] = len(kinds)
            kinds.append(own._replace(demand=demand))
        if change.limit_s is not None:
            limit_s[place] = change.limit_s
        terms: Request = requests[place] or Request()
        if change.partition:
            partition[place], terms = change.partition, replace(terms, partitions=())
        terms = replace(terms, constraint="") if change.any_node else terms
        requests[place] = replace(terms, exclusive=False) if change.shared else terms
    if change.partition:
        columns["partition"] = Labels.of(partition)
    known = limit_s if jobs.estimate is None else jobs.estimate
    stated = np.where(np.isin(np.arange(len(log)), places), limit_s, known)
    # keep only the kinds that occur among these jobs
    used = Labels.numbered([kinds[place] for place in kind.tolist()])
    asked = replace(
        jobs, kinds=used.words, kind=used.place, instances=instances, work=limit_s, estimate=stated,
        request=Labels.numbered(requests), **columns,
    )  # fmt: skip
    return replace(log, jobs=asked, limit_s=limit_s, partition=partition)


def _times(demand: Demand, share: float) -> Demand:
    """Multiply the GPUs, cores and memory of a demand by a share."""
    return demand._replace(gpus=demand.gpus * share, cpus=demand.cpus * share, memory_gb=demand.memory_gb * share)


def _scaled(count: int, amount: float, size: float) -> tuple[int, float] | None:
    """Return the number of instances of a smaller job, and the share of its resources that each
    instance keeps, or None if the job cannot be divided.
    """
    if count * size == int(count * size) and count > 1:
        return int(count * size), 1.0
    return (count, size) if amount * size == int(amount * size) and amount * size >= 1 else None


def _request(log: JobLog, job: int) -> Request:
    labels = log.jobs.request
    return (None if labels is None else labels.words[labels.place[job]]) or Request()

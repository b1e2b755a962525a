"""A proven lower bound of the sum of completion times of one workload on its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.experiment.scenario import cluster_scenario_of
from dagsim.systems.cluster.bounds.lagrangian import lagrangian
from dagsim.systems.cluster.bounds.relaxation import relaxation_of, spans_nodes
from dagsim.systems.cluster.bounds.time_indexed import MOST_COPIES, time_indexed
from dagsim.systems.cluster.scenario import ClusterScenario

__all__ = ["Bound", "bound_of", "scenario_bound"]


_NODES = 8
"""Maximum number of nodes whose borders are kept in small cases."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound that holds for every schedule that completes all jobs the cluster can run."""

    bound_s: float
    """Seconds from arrival to completion, summed over the jobs that count."""
    kind: str
    """``lagrangian``; ``time-indexed``, from the integer program; or ``exact``, the optimum of that program without
    any rounding.
    """
    preemptive: bool
    """True if it also holds for schedules that stop runs and resume them."""
    jobs: int
    """Number of jobs that count."""
    rejected: int
    """Number of jobs left out because not even the empty cluster can run them."""

    @property
    def mean_s(self) -> float:
        """Bound of the mean completion time."""
        return self.bound_s / self.jobs

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "mean_s": self.mean_s}


def bound_of(
    config: Config,
    seed: int,
    *,
    preemptive: bool = False,
    watch: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Bound:
    """Bound the sum over all jobs of ``seed`` (completion minus arrival) from below; see ``scenario_bound``.

    Raises:
        InputError: The system has no bound, or as ``scenario_bound``.
    """
    if config.system.kind != "cluster":
        raise InputError(
            f"bound: the system {config.system.kind!r} has no bound; only the GPU cluster (system: cluster) has one"
        )
    return scenario_bound(cluster_scenario_of(config), seed, preemptive=preemptive, watch=watch)


def scenario_bound(
    scenario: ClusterScenario,
    seed: int,
    *,
    preemptive: bool = False,
    measured: tuple[int, int | None] | None = None,
    watch: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Bound:
    """Bound the sum over jobs of completion minus arrival from below.

    ``preemptive`` includes schedules that stop runs and resume them. They are also included if a failure keeps the work
    of the runs that it stops. ``measured`` counts only a range of jobs by arrival, as in ``summarize``; all others run
    but do not count. ``watch`` passes on the steps of the search.

    Raises:
        InputError: There is no job that the cluster can run, or jobs may be turned away.
    """
    if scenario.admission:
        raise InputError("bound: with admission, a policy may turn jobs away, so that no bound above 0 holds")
    jobs = scenario.jobs(seed).arrays()
    weight = np.ones(len(jobs))
    if measured is not None:
        weight[:] = 0.0
        weight[slice(*measured)] = 1.0
    problem = relaxation_of(jobs, scenario.cluster, scenario.runtime, weight)
    counted = int(problem.weight.sum())
    if not counted:
        reason = f"none of its {len(jobs):,} jobs can run on {scenario.cluster}" if len(jobs) else "it has no jobs"
        raise InputError(f"bound: the workload has no completion times: {reason}")
    fails = bool(scenario.disturbances) or scenario.outages
    resumes = scenario.preemption
    with_breaks = (preemptive and resumes.on_resume == "resume") or (fails and resumes.on_failure == "resume")
    dual = lagrangian(problem, preemptive=with_breaks, watch=watch)
    bound_s, kind = dual.bound_s, "lagrangian"
    optimum = None
    if not with_breaks and problem.copies.sum() <= MOST_COPIES:
        if 1 < len(scenario.cluster.nodes) <= _NODES and not spans_nodes(jobs):
            problem = relaxation_of(jobs, scenario.cluster, scenario.runtime, weight, by_node=True)
            dual = lagrangian(problem)
            bound_s = max(bound_s, dual.bound_s)
        optimum = time_indexed(problem, dual)
    if optimum is not None and optimum.bound_s >= bound_s:
        bound_s, kind = optimum.bound_s, "exact" if optimum.exact else "time-indexed"
    return Bound(bound_s, kind, preemptive or with_breaks, counted, problem.rejected)

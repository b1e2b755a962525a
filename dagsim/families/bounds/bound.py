"""A proven lower bound on the sum of completion times of one workload on its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from typing import Any

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.families.bounds.lagrangian import lagrangian
from dagsim.families.bounds.relaxation import areas_gpu_s, relaxation_of, spans_nodes
from dagsim.families.bounds.time_indexed import MOST_COPIES, time_indexed
from dagsim.metrics.standings import RunMetrics
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of
from dagsim.workload.arrays import JobArrays

_NODES = 8
"""Maximum number of nodes for which node boundaries are kept in small cases."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound. It is valid for every schedule that completes all jobs that the cluster can
    run.
    """

    bound_s: float
    """Seconds from arrival to completion, summed over the jobs that count."""
    kind: str
    """``lagrangian``; ``time-indexed``, from the integer program; or ``exact``, the optimum of that
    program without any rounding."""
    preemptive: bool
    """True if it also holds for schedules that stop runs and resume them."""
    jobs: int
    """Number of jobs that count."""
    rejected: int
    """Number of jobs left out because not even the empty cluster can run them."""
    area_gpu_s: float | None = None
    """GPU-seconds of the jobs that count, if each completion time is multiplied by its job's area
    (``area_weighted_jct_s``)."""

    @property
    def mean_s(self) -> float:
        """The bound on the mean completion time, which is weighted by area if ``area_gpu_s`` is
        given."""
        return self.bound_s / (self.jobs if self.area_gpu_s is None else self.area_gpu_s)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which include ``area_gpu_s`` only if it is given."""
        facts = {name: value for name, value in asdict(self).items() if value is not None}
        return {**facts, "mean_s": self.mean_s}


def bound_of(
    config: Config,
    seed: int,
    *,
    preemptive: bool = False,
    by_area: bool = False,
    watch: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Bound:
    """Compute a lower bound on the sum of completion time minus arrival time over all jobs of
    ``seed`` (see ``scenario_bound``).

    Raises:
        InputError: The system has no bound, or ``scenario_bound`` raises the error.
    """
    return scenario_bound(bounded(config), seed, preemptive=preemptive, by_area=by_area, watch=watch)


def bounded(config: Config) -> ClusterScenario:
    """Return the scenario of a configuration, if it can have a bound.

    Raises:
        InputError: The system has no bounds.
    """
    if not config.whole_system.has_top_keys:
        raise InputError(
            f"bound: dagsim has bounds only for the GPU cluster (system: cluster), but the system is {config.kind!r}"
        )
    return cluster_scenario_of(config)


def scenario_bound(
    scenario: ClusterScenario,
    seed: int,
    *,
    preemptive: bool = False,
    measured: tuple[int, int | None] | None = None,
    by_area: bool = False,
    program: bool = True,
    watch: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Bound:
    """Compute a lower bound on the sum of completion time minus arrival time over all jobs.

    If ``preemptive`` is True, the bound is also valid for schedules that stop and resume runs. The
    same holds if runs may be stopped by failures and then keep their work. ``measured`` restricts
    the sum to a range of jobs by arrival, as in ``summarize``. All other jobs run but do not count.
    If ``by_area`` is True, the time of each job is multiplied by its GPU-seconds on its fastest
    allowed types, as in ``area_weighted_jct_s``. If ``program`` is False, small cases are not
    solved exactly. ``watch`` wraps the iterator over the steps of the search, for example to show
    progress.

    Raises:
        InputError: The cluster can run none of the jobs, or jobs may be rejected.
    """
    jobs, weight, earlier = _counted_jobs(scenario, seed, measured, by_area)
    problem = relaxation_of(jobs, scenario.cluster, scenario.runtime, weight)
    counted = int(np.count_nonzero(problem.weight))
    if not counted:
        reason = f"none of its jobs ({len(jobs):,}) can run on {scenario.cluster}" if len(jobs) else "it has no jobs"
        raise InputError(f"bound: the workload has no completion times: {reason}")
    fails = bool(scenario.failures) or scenario.outages
    resumes = scenario.preemption
    with_breaks = (preemptive and resumes.on_resume == "resume") or (fails and resumes.on_failure == "resume")
    dual = lagrangian(problem, preemptive=with_breaks, watch=watch)
    bound_s, kind = dual.bound_s, "lagrangian"
    optimum = None
    if program and not with_breaks and problem.copies.sum() <= MOST_COPIES:
        if 1 < len(scenario.cluster.nodes) <= _NODES and not spans_nodes(jobs):
            problem = relaxation_of(jobs, scenario.cluster, scenario.runtime, weight, by_node=True)
            dual = lagrangian(problem)
            bound_s = max(bound_s, dual.bound_s)
        optimum = time_indexed(problem, dual)
    if optimum is not None and optimum.bound_s >= bound_s:
        bound_s, kind = optimum.bound_s, "exact" if optimum.exact else "time-indexed"
    area_gpu_s = ordered_sum(problem.weight.tolist()) if by_area else None
    return Bound(bound_s, kind, preemptive or with_breaks, counted + earlier, problem.rejected, area_gpu_s)


def _counted_jobs(
    scenario: ClusterScenario, seed: int, measured: tuple[int, int | None] | None, by_area: bool
) -> tuple[JobArrays, np.ndarray, int]:
    """Return the jobs that arrive after the beginning, the weight of each, and the number of
    earlier jobs that count.

    Raises:
        InputError: dagsim has no bound for this kind of scenario.
    """
    if scenario.admission:
        raise InputError(
            "bound: with admission control, a policy may reject all jobs, so there is no lower bound above 0"
        )
    stream = scenario.jobs(seed)
    if stream.elastic:
        raise InputError(
            "bound: elastic tasks are not supported, because they may run on more GPUs than they requested"
        )
    jobs = stream.arrays()
    weight = np.ones(len(jobs))
    if measured is not None:
        weight[:] = 0.0
        weight[slice(*measured)] = 1.0
    # Leave out jobs that are already in the system at the beginning, because they may have run
    # before it, under the rules of their log.
    later = np.flatnonzero(jobs.arrival_s >= stream.begins_s)
    earlier = int(weight.sum() - weight[later].sum())
    jobs, weight = jobs.chosen(later), weight[later]
    if by_area:
        if earlier:
            raise InputError("bound: weights by area are not supported for a run that begins with jobs in the system")
        weight *= areas_gpu_s(jobs, scenario.cluster, scenario.runtime)
    return jobs, weight, earlier


def bounds_of_runs(
    config: Config, lines: Sequence[RunMetrics], watch: Callable[[Iterable[int]], Iterable[int]] = iter
) -> dict[int, Bound]:
    """Compute a lower bound on the sum over the measured jobs of each seed in ``lines``, for
    schedules that do not stop runs. ``watch`` wraps the iterator over the seeds, for example to
    show progress.

    Raises:
        InputError: See ``bound_of``.
    """
    scenario, measured = bounded(config), config.workload.measure
    seeds = list(dict.fromkeys(line.seed for line in lines))
    return {seed: scenario_bound(scenario, seed, measured=measured, program=False) for seed in watch(seeds)}


def shares_of_the_way(
    lines: Sequence[RunMetrics], bounds: Mapping[int, Bound], reference: str | None = None
) -> dict[str, float]:
    """Return, for each policy, the fraction of the gap between the reference (default: the first
    policy) and the bound that it closes."""
    by_policy: dict[str, list[RunMetrics]] = {}
    for line in lines:
        by_policy.setdefault(line.policy, []).append(line)
    means = {policy: _comparable_sum(runs, bounds) for policy, runs in by_policy.items()}
    start = means[reference or next(iter(means))]
    whole = start - ordered_sum(bound.mean_s for bound in bounds.values())
    return {policy: (start - mean) / whole if whole > 0 else nan for policy, mean in means.items()}


def _comparable_sum(runs: Sequence[RunMetrics], bounds: Mapping[int, Bound]) -> float:
    """Return the sum of the mean completion times, or NaN if a bound is not valid for its run."""
    for run in runs:
        bound = bounds[run.seed]
        stopped = run.metrics["preemptions"] and not bound.preemptive
        if stopped or run.metrics["jobs_completed"] != bound.jobs:
            return nan
    return ordered_sum(run.metrics["jct_s.mean"] for run in runs)

"""Estimate, from the first part of its log, the settings of a Slurm site that no file states.

The parameters of ``slurm-multifactor`` that ``queues.scheduler`` does not set are tried in turn.
Then a GPU limit is tried for each account that waits longer in the log than in the simulation. The
limit is the largest number of GPUs that the account held at the same time. A value is kept if it
brings the simulated waits of the first jobs closer to their recorded waits. The error is measured
on the other jobs, which are not used in the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import log
from typing import Any

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.metrics.columns import columns
from dagsim.metrics.why import ObservedWaits, WaitPair, observed_against_simulated
from dagsim.model import Caps, QueueNode, QueueTree
from dagsim.systems.cluster import services
from dagsim.systems.cluster.arrivals.job_stream import JobStream
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import cluster_scenario_of

_FEW = 20
"""Minimum number of jobs on either side of the split."""
_LEAST_GAIN = 0.02
"""A value is kept if it reduces the distance by at least this much, because two real runs of the
same submissions differ by up to this much."""
_LONGER = 1.25
"""Accounts that wait longer in the log than in the simulation by this factor may have a hidden
limit."""
_WEIGHTS = {"fair_share": (0.0,), "age": (0.0, 100_000.0), "job_size": (0.0, 100_000.0)}
_LAGS = {"bf_interval_s": (60.0, 120.0), "sched_min_interval_s": (2.0, 15.0), "requeue_delay_s": (0.0,)}
_RULES: Mapping[str, tuple[str, ...]] = {
    "order": ("basic",),
    "gangs": ("distinct",),
    "place": ("best",),
    "bf_ties": ("fit",),
    "kill": ("limit",),
}


@dataclass(frozen=True, slots=True)
class TriedValue:
    """A value that was tried, and the distance between the simulation with this value and the first
    part of the log.
    """

    name: str
    value: bool | float | str
    distance: float
    kept: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted configuration, and its errors. ``distance`` is the median over the jobs of the
    absolute log ratio of waits, plus the absolute log ratio of the mean waits."""

    config: Config
    jobs: int
    fitted: int
    """Number of jobs in the first part."""
    distance: float
    """Distance in the first part, before the fit."""
    trials: tuple[TriedValue, ...]
    before: ObservedWaits
    """Waits of the other jobs, without the fit."""
    after: ObservedWaits
    """Waits of the other jobs, with the fit."""
    knowledge: str
    """What the policies know about run times, as one line."""

    @property
    def kept(self) -> dict[str, bool | float | str]:
        """The values that were kept and differ from the values before the fit."""
        return {trial.name: trial.value for trial in self.trials if trial.kept}

    @property
    def carries_over(self) -> bool:
        """True if the other jobs are closer to the log with the fit than without it."""
        return _distance(self.after) <= _distance(self.before)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "knowledge": self.knowledge,
            "jobs": self.jobs,
            "fitted": self.fitted,
            "distance": self.distance,
            "trials": [asdict(trial) for trial in self.trials],
            "kept": self.kept,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "carries_over": self.carries_over,
        }


def calibrate(
    config: Config, share: float = 0.5, watch: Callable[[Iterable[TriedValue]], Iterable[TriedValue]] = iter
) -> Calibration:
    """Fit ``config`` on the first ``share`` of the jobs in its log.

    ``watch`` wraps the iterator of trials, each of which is a replay of the first part.

    Raises:
        InputError: The configuration has no log, the log has no starts, or it is too short.
    """
    trace = config.trace_file
    if trace is None:
        raise InputError("calibrate: the workload is not a log; give --trace FILE")
    if trace.window is not None or trace.has_period:
        raise InputError("calibrate: needs the whole log, so leave out windows and periods")
    whole = _Replay(config)
    jobs = len(whole.started_s)
    fitted = round(share * jobs)
    if min(fitted, jobs - fitted) < _FEW:
        raise InputError(f"calibrate: each part of the log needs at least {_FEW} jobs, got {jobs} in all")
    first = config.changed("calibrate", {"workload": replace(trace, options=replace(trace.options, limit=fitted))})
    search = _Search(first)
    trials = tuple(watch(search.trials()))
    before = whole.waits(since=fitted)
    chosen = config.changed("calibrate", {"queues": search.queues})
    after = _Replay(chosen).waits(since=fitted) if any(trial.kept for trial in trials) else before
    return Calibration(chosen, jobs, fitted, search.first_distance, trials, before, after, whole.knowledge)


class _Replay:
    """A log, replayed under ``slurm-multifactor`` with the site's parameters."""

    def __init__(self, config: Config) -> None:
        kernel = (scenario := cluster_scenario_of(config)).kernel(0)
        self.schedule = kernel.run(POLICIES.create("slurm-multifactor"))
        jobs = kernel.jobs
        observed = jobs.observed() if isinstance(jobs, JobStream) else None
        if observed is None:
            raise InputError("calibrate: the log does not contain start times")
        self.started_s, self._eligible_s, self._partitions = observed
        self.knowledge = str(jobs.knowledge(scenario.estimates)) if isinstance(jobs, JobStream) else ""
        self._became_eligible_s = kernel.became_eligible_s

    def waits(self, since: int = 0) -> ObservedWaits:
        """Compare the simulated and the recorded waits of the jobs from number ``since`` onwards."""
        started_s = self.started_s.copy()
        started_s[:since] = np.nan
        observed = started_s, self._eligible_s, self._partitions
        waits = observed_against_simulated(self.schedule, *observed, self._became_eligible_s)
        if waits is None:
            raise InputError("calibrate: no job in this part of the log has both an observed and a simulated start")
        return waits

    def most_gpus(self) -> dict[str, float]:
        """Return the largest number of GPUs that each tenant held at the same time in the log."""
        cols = columns(self.schedule)
        length_s = np.zeros(len(cols.jobs))
        np.add.at(length_s, cols.runs.job, cols.runs.end_s - cols.runs.start_s)
        most: dict[str, float] = {}
        for tenant in dict.fromkeys(cols.jobs.tenant):
            mine = [at for at, name in enumerate(cols.jobs.tenant) if name == tenant]
            mine = [at for at in mine if np.isfinite(self.started_s[at])]
            begins_s, gpus = self.started_s[mine], cols.jobs.gpus[mine]
            times_s = np.concatenate((begins_s + length_s[mine], begins_s))
            changes = np.concatenate((-gpus, gpus))
            order = np.lexsort((changes > 0, times_s))  # at equal times, count ends before starts
            most[tenant] = float(np.cumsum(changes[order]).max(initial=0.0))
        return most


class _Search:
    """One pass over the values to try. ``queues`` contains the values kept so far."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.queues = config.queues or QueueTree()
        self._replay = _Replay(config)
        self._best = self.first_distance = _distance(self._replay.waits())

    def trials(self) -> Iterator[TriedValue]:
        """Try every value, and yield each trial."""
        stated = dict(self.queues.scheduler)
        tried: dict[str, tuple[float | str, ...]] = {**_RULES, **_LAGS, **_WEIGHTS}
        for name, values in tried.items():
            for value in values if name not in stated else ():
                yield self._trial(name, value, self._with({name: value}))
        settings = services.scheduler_settings(self.queues)
        for name, period_s in (("bf_phase_s", settings.bf_interval_s), ("calc_phase_s", settings.calc_period_s)):
            for value in (period_s / 4, period_s / 2, 3 * period_s / 4) if name not in stated else ():
                yield self._trial(name, value, self._with({name: value}))
        most = self._replay.most_gpus()
        for tenant, pair in self._replay.waits().by_tenant.items():
            if tenant and pair.jobs >= _FEW and _is_longer(pair) and most.get(tenant) and not self._is_limited(tenant):
                caps = Caps(gpus=most[tenant])
                yield self._trial(f"limits[{tenant}].gpus", most[tenant], _limited(self.queues, tenant, caps))

    def _trial(self, name: str, value: bool | float | str, queues: QueueTree) -> TriedValue:
        replay = _Replay(self._config.changed("calibrate", {"queues": queues}))
        distance = _distance(replay.waits())
        kept = distance <= self._best - _LEAST_GAIN
        if kept:
            self.queues, self._best, self._replay = queues, distance, replay
        return TriedValue(name, value, distance, kept)

    def _with(self, more: Mapping[str, bool | float | str]) -> QueueTree:
        return replace(self.queues, scheduler={**self.queues.scheduler, **more})

    def _is_limited(self, tenant: str) -> bool:
        return any(node.name == tenant and node.limits for node, _ in self.queues.walk())


def _distance(waits: ObservedWaits) -> float:
    pair = waits.total
    ratio = (pair.simulated_s.mean + 10) / (pair.observed_s.mean + 10)
    return waits.median_abs_log_ratio + abs(log(ratio))


def _is_longer(pair: WaitPair) -> bool:
    return pair.observed_s.mean > _LONGER * pair.simulated_s.mean


def _limited(queues: QueueTree, account: str, caps: Caps) -> QueueTree:
    """Return the queues with limits for one account. Add the account if it does not exist."""

    def changed(node: QueueNode) -> QueueNode:
        children = tuple([changed(child) for child in node.children])
        return replace(node, children=children, limits=caps if node.name == account else node.limits)

    if any(node.name == account for node, _ in queues.walk()):
        return replace(queues, tree=tuple([changed(node) for node in queues.tree]))
    return replace(queues, tree=(*queues.tree, QueueNode(account, limits=caps)))

"""Comparison of clusters and policies on a log. Each combination is one continuous run of all jobs,
and all runs are kept in one folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dagsim.config.dumping import plain
from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.families.capacity import services
from dagsim.families.capacity.log_demand import LogDemand, on_whole_log
from dagsim.families.capacity.machines import (
    Prices,
    always_on,
    read_accept,
    read_gpus,
    read_on_demand,
    resized,
    with_on_demand,
)
from dagsim.families.capacity.trials import TODAY, OnDemandMonth, Trial, question
from dagsim.metrics.own import value_name
from dagsim.metrics.paired import holm
from dagsim.metrics.series import Change, Period, change_of
from dagsim.metrics.standings import lower_is_better
from dagsim.systems.cluster.section import ClusterSection

METRICS = ("jct_s.mean", "wait_s.mean", "wait_s.p95", "energy_kwh")
_PART = re.compile(r"^([^/]+/[^/]+)/\d+$")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One cluster under one policy, compared with the first cluster under the first policy."""

    cluster: str
    policy: str
    trial: Trial
    cost: float | None
    """Price per month in US dollars, or in the currency of the user's prices, including energy if
    it has a price; None without prices."""
    value: Period
    change: Change
    verdict: str
    on_demand: OnDemandMonth | None = None
    """Use of nodes that are powered on demand, or None if there are none."""

    def to_dict(self) -> dict[str, Any]:
        """Return flat values that are safe for JSON."""
        change, value, of = self.change, self.value, self.trial.value
        numbers = {"wait_s": of("wait_s.mean"), "wait_p95_s": of("wait_s.p95"), "energy_kwh": of("energy_kwh")}
        numbers |= self.trial.energy
        numbers |= {"mean": value.value, "mean_low": value.low, "mean_high": value.high}
        numbers |= {"ratio": change.ratio, "ratio_low": change.low, "ratio_high": change.high, "p": change.p}
        return {
            "cluster": self.cluster,
            "policy": self.policy,
            "cost_a_month": self.cost,
            **{name: number if number == number else None for name, number in numbers.items()},
            "n": change.blocks,
            "verdict": self.verdict,
            "jobs_not_done": self.trial.lost,
            "load": self.trial.load,
        } | ({} if self.on_demand is None else {"on_demand_a_month": asdict(self.on_demand)})


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The clusters and policies to simulate on a log."""

    config: Config
    """Today's cluster, with the whole log as one run."""
    demand: LogDemand
    clusters: Mapping[str, ClusterSection]
    """Clusters by label, today's first."""
    policies: Sequence[str]
    prices: Prices
    queues: Mapping[str, Any]
    """Queues by label, today's first; empty without alternatives."""
    notes: tuple[str, ...] = ()
    """Remarks on the files with alternatives."""

    @classmethod
    def of(
        cls,
        config: Config,
        policies: Sequence[str],
        add: Sequence[str],
        remove: Sequence[str],
        accept: Sequence[str],
        price: Sequence[str],
        price_file: Path | None,
        alternatives: Sequence[Path] = (),
    ) -> WhatIf:
        """Read the texts of ``--add``, ``--remove``, ``--accept`` and ``--price``, and the files of
        ``--alternative``. The first policy (default: the one in ``config``) is today's.

        Raises:
            InputError: A text or the log cannot be read, there is nothing to compare, or jobs that
                are running at the beginning no longer fit.
        """
        policies = policies or [config.policy]
        own = [gpu.name for gpu in config.gpu_types]
        added = [read_gpus(text, "--add", own) for text in add if "," not in text]
        removed = [read_gpus(text, "--remove", own) for text in remove]
        accepted, on_demand = read_accept(accept), [read_on_demand(text, own) for text in add if "," in text]
        if not (added or removed or accepted or on_demand or alternatives) and len(policies) < 2:
            raise InputError(
                "whatif: there is nothing to compare; give --add 16xH200, --add 16xH200,boot=300, --remove 8xT4, "
                "two or more policies (--policy a,b), or --alternative queue.yaml"
            )
        queues, notes = _changed_queues(config, alternatives)
        config, demand = on_whole_log(config)
        clusters = {TODAY: config.cluster}
        if added or removed or accepted:
            label = " ".join([*(f"-{gpus}" for gpus in removed), *(f"+{gpus}" for gpus in added), *accept])
            changed = resized(config.cluster, added, removed, demand.arrival_s)
            clusters[label] = changed.model_copy(update={"accept": accepted})
            if demand.is_snapshot and (displaced := demand.displaced(changed)):
                raise InputError(f"{label}: {displaced:,} of the jobs running now do not fit on this cluster")
        for group in on_demand:
            label = " ".join([f"+{group}", *accept])
            clusters[label] = with_on_demand(config.cluster, group).model_copy(update={"accept": accepted})
        prices = Prices.read(price, config.prices, price_file).of(clusters.values())
        if on_demand:
            clusters = {label: prices.stated(section) for label, section in clusters.items()}
        return cls(config, demand, clusters, policies, prices, queues, notes)

    def grid(self, log: Path, name: str | None) -> SweepGrid:
        """Return the grid of clusters and policies, in a folder of that name (default: named after
        the log and the question)."""
        sections = tuple(plain(section) for section in self.clusters.values())
        axes = (
            Axis("cluster", tuple(self.clusters), sections),
            Axis("policy", tuple(self.policies), tuple(self.policies)),
            *([Axis("queues", tuple(self.queues), tuple(map(plain, self.queues.values())))] if self.queues else []),
        )
        dropped = ("policy", "cluster", "prices")
        settings = {key: value for key, value in plain(self.config).items() if key not in dropped}
        asked = [list(sections), list(self.policies), *([list(axes[2].values)] if self.queues else [])]
        name = name or question(log, self.config, *asked)
        own = map(value_name, self.config.metrics)
        return SweepGrid(
            name, None, axes, {**settings, "cluster": sections[0]}, keep="series", metrics=(*METRICS, *own)
        )


def _changed_queues(config: Config, files: Sequence[Path]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return today's queues and those with the changes in each file, by label, and remarks on the
    files."""
    queues: dict[str, Any] = {TODAY: config.queues} if files else {}
    notes: list[str] = []
    for file in files:
        label = file.name if file.name not in queues else str(file)
        queues[label], told = services.changed_queues(config.queues, file)
        notes += [f"{label}: {note}" for note in told]
    return queues, tuple(notes)


def alternatives_of(
    trials: Sequence[Trial], clusters: Mapping[str, ClusterSection], prices: Prices, metric: str = "jct_s.mean"
) -> list[Alternative]:
    """Compare all trials with the first by ``metric``, job by job.

    Raises:
        InputError: The metric does not exist.
    """
    today = trials[0]
    values = [trial.value(metric) for trial in trials]
    changes = [
        change_of(trial.series, value, today.series, values[0], metric)
        for trial, value in zip(trials, values, strict=True)
    ]
    p = [nan, *holm([change.p for change in changes[1:]])]
    return [
        Alternative(
            _label(trial.run.at),
            trial.run.at["policy"],
            trial,
            _cost(trial, clusters[trial.run.at["cluster"]], use, prices),
            trial.period(metric),
            change,
            "reference" if trial is today else _verdict(trial, today, change, adjusted, metric),
            use,
        )
        for trial, change, adjusted in zip(trials, changes, p, strict=True)
        for use in [OnDemandMonth.of(trial, clusters[trial.run.at["cluster"]])]
    ]


def _label(at: Mapping[str, str]) -> str:
    """Return the name of an alternative: its cluster, its queues, or both, without those that are
    today's."""
    cluster, queues = at["cluster"], at.get("queues", TODAY)
    return cluster if queues == TODAY else queues if cluster == TODAY else f"{cluster}, {queues}"


class Shift(NamedTuple):
    """The waits of a job today and in an alternative, or infinity if it does not start."""

    job: str
    queue: str
    today_s: float
    wait_s: float

    @property
    def sooner_s(self) -> float:
        """The number of seconds by which the job starts sooner in the alternative, or 0 if it starts in neither
        case.
        """
        return 0.0 if self.today_s == self.wait_s else self.today_s - self.wait_s


def shifts_of(choice: Alternative, today: Alternative, demand: LogDemand) -> list[Shift]:
    """Return the waits of every counted job, largest gain first."""
    series = [one.trial.series.values["wait_s"] for one in (today, choice)]
    waits = [np.where(np.isnan(one), inf, one).tolist() for one in series]
    shifts: dict[str, Shift] = {}
    for id, queue, today_s, wait_s in zip(*demand.names(), *waits, strict=True):
        job = _PART.sub(r"\1", id)  # all pod sets of a workload count as one job
        other = shifts.get(job, Shift(job, queue, 0.0, 0.0))
        shifts[job] = Shift(job, queue, max(today_s, other.today_s), max(wait_s, other.wait_s))
    return sorted(shifts.values(), key=lambda shift: (-shift.sooner_s, shift.job))


def _cost(trial: Trial, section: ClusterSection, use: OnDemandMonth | None, prices: Prices) -> float | None:
    """Return the monthly cost of a cluster, or None if there are no prices. The cost covers all
    GPUs that are always on, the hours of the other GPUs, and the energy.
    """
    if not prices:
        return None
    rented = 0.0 if use is None or use.cost is None else use.cost
    return prices.a_month(always_on(section)) + rented + prices.power_a_month(trial.mean_kw)


def _verdict(trial: Trial, today: Trial, change: Change, p: float, metric: str) -> str:
    """Return the verdict in words. It is never "better" if the cluster cannot keep up or rejects
    more jobs."""
    if not trial.keeps_up:
        return "cannot keep up"
    if trial.lost > today.lost:
        return f"loses {trial.lost - today.lost:,} jobs more"
    if isnan(change.ratio):
        return "no ratio"
    if change.ratio == 1 and isnan(change.p):
        return "identical"
    if isnan(change.low):
        return "log too short" if change.longer > 1 else "no interval"
    if not p < 0.05:
        return "log too short" if change.longer > 1 else "not told apart"
    return "better" if (change.ratio < 1) == lower_is_better(metric) else "worse"

"""Find the smallest cluster, or the cheapest mix of GPU types, that meets a target such as
``wait_s.p95<600``, by bisection on the same windows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from pathlib import Path
from typing import NamedTuple

from dagsim.config.schema import ClusterSection, Config
from dagsim.errors import ConfigError, InputError
from dagsim.experiment.capacity.machines import GpuCount, Prices, proportional, with_added, with_nodes
from dagsim.experiment.capacity.whatif import Trials
from dagsim.experiment.carry_out import Watch
from dagsim.experiment.executors import executor_for
from dagsim.metrics import glossary
from dagsim.metrics.standings import Mean, RunMetrics, lower_is_better, mean, not_done
from dagsim.model.gpu import canonical, gpu_type
from dagsim.registry import nearest

__all__ = ["Met", "Size", "SizePlan", "SizeSearch", "Target", "gpus_of", "least_size", "plan_size"]


_FORM = re.compile(r"\s*([A-Za-z_][\w.\[\]-]*)\s*(<=?|>=?)\s*([0-9.eE+-]+)\s*")


@dataclass(frozen=True, slots=True)
class Met:
    """The value of the target's metric on one cluster."""

    value: Mean
    """The mean over the windows, with its interval."""
    lost: int
    """Number of jobs in all windows that were turned away or not finished."""
    meets: bool


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the mean of a metric over the windows."""

    metric: str
    above: bool
    """True if the metric must be above the bound, false if it must be below."""
    bound: float

    @classmethod
    def read(cls, text: str) -> Target:
        """Read ``wait_s.p95<600``, or a bound with ``>`` for metrics that should be high.

        Raises:
            ConfigError: The text has another form, the metric does not exist, or more machines would make it worse.
        """
        match = _FORM.fullmatch(text)
        try:
            bound = float(match[3]) if match else nan
        except ValueError:
            bound = nan
        if match is None or not isfinite(bound):
            raise ConfigError(f"--target {text!r}: expected a metric, < or >, and a number, such as wait_s.p95<600")
        metric, above = match[1], match[2].startswith(">")
        names = [term.name for term in glossary()]
        if metric not in names and "[" not in metric:
            raise ConfigError(f"--target {text!r}: there is no metric {metric!r}{nearest(metric, names)}")
        if above == lower_is_better(metric):
            raise ConfigError(f"--target {text!r}: {metric} is better when it is {'lower' if above else 'higher'}")
        return cls(metric, above, bound)

    def __str__(self) -> str:
        return f"{self.metric} {'>' if self.above else '<'} {self.bound:g}"

    def of(self, lines: Sequence[RunMetrics], lost_today: int = 0) -> Met:
        """Return the value for these runs and whether it meets the target: never if more than
        ``lost_today`` jobs are lost.

        Raises:
            InputError: The runs have no such metric.
        """
        if not any(self.metric in line.metrics for line in lines):
            raise InputError(f"--target {self}: the runs have no metric {self.metric!r}")
        value = mean(lines, self.metric)
        lost = sum(map(not_done, lines))
        within = value.value > self.bound if self.above else value.value < self.bound
        return Met(value, lost, within and lost <= lost_today)

    def is_sure(self, met: Met) -> bool:
        """True if the whole interval lies on the right side of the bound."""
        far = met.value.low if self.above else met.value.high
        return met.meets and isfinite(far) and (far > self.bound if self.above else far < self.bound)


_MOST_TRIED = 100
"""Maximum number of clusters that the search for a cheaper mix simulates."""
_FLAT = 4
"""Number of nodes from which the search ends if doubling them changes nothing."""

_Trial = Callable[[str, ClusterSection], Met]
"""Simulates a cluster under a label, and measures it against the target."""


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster that was tried."""

    nodes: tuple[int, ...]
    """Number of nodes of each requested type, or of the whole cluster."""
    cluster: ClusterSection
    gpus: int
    cost: float
    """The quantity that the search minimises: the price per month, or the number of GPUs if there
    are no prices.
    """
    met: Met


@dataclass(slots=True)
class SizeSearch:
    """All clusters that were tried, and the best that meets the target."""

    types: tuple[str, ...]
    """Empty if the search resizes the whole cluster in its present proportions."""
    tried: dict[tuple[int, ...], Size] = field(default_factory=dict)
    exhausted: bool = False
    """True if the search ended early, so that a cheaper mix may exist."""

    @property
    def best(self) -> Size | None:
        """The cheapest cluster that meets the target; of equally cheap ones, the one with the
        fewest GPUs.
        """
        meeting = [size for size in self.tried.values() if size.met.meets]
        return min(meeting, key=lambda size: (size.cost, size.gpus, size.nodes), default=None)


class SizePlan(NamedTuple):
    """The smallest cluster that meets a target on a log, with all trials."""

    config: Config
    """The configuration: the log cut into windows, its cluster and the policy."""
    target: Target
    prices: Prices
    today: Size
    search: SizeSearch
    path: Path
    """The run folder of all trials."""


def plan_size(
    config: Config,
    target: str,
    types: Sequence[str] = (),
    most_gpus: int | None = None,
    prices: Sequence[str] = (),
    *,
    name: str,
    out: Path = Path("results"),
    on: str = "local",
    watch: Watch | None = None,
    argv: Sequence[str] = (),
) -> SizePlan:
    """Find the smallest cluster, or the cheapest mix of ``types``, that meets ``target`` on the
    windows of ``config``.

    Arguments are those of ``dagsim plan``. Trials are kept in the folder ``plan-NAME`` below
    ``out``.

    Raises:
        InputError: One of the arguments is wrong.
        SimulationError: A policy failed.
    """
    bound = Target.read(target)
    names = _known_types(config, types)
    wider = config.cluster
    for type_ in names:  # prices are needed for every type that is asked about
        wider = with_added(wider, GpuCount(8, type_))
    priced = Prices.read(prices, config.prices).of([config.cluster, wider])
    trials = Trials(config, name, out, executor_for(on), watch, argv=argv)
    today, search = least_size(config.cluster, names, most_gpus, priced, trials.run, bound)
    assert trials.path is not None
    return SizePlan(config, bound, priced, today, search, trials.path)


def _known_types(config: Config, types: Sequence[str]) -> list[str]:
    """Return the GPU types to search for, each once.

    Raises:
        ConfigError: A type is unknown, or there are more than three.
    """
    own = {gpu.name for gpu in config.gpu_types}
    names = list(dict.fromkeys(canonical(name.strip()) for name in types if name.strip()))
    for name in names:
        if name not in own:
            gpu_type(name)
    if len(names) > 3:
        raise ConfigError(f"--types: at most three types can be mixed, got {', '.join(names)}")
    return names


def gpus_of(cluster: ClusterSection) -> int:
    """Number of GPUs of the cluster."""
    return sum(group.count * group.gpus for group in cluster.groups)


def least_size(
    cluster: ClusterSection,
    types: Sequence[str],
    most_gpus: int | None,
    prices: Prices,
    run: Callable[[str, ClusterSection], Sequence[RunMetrics]],
    target: Target,
) -> tuple[Size, SizeSearch]:
    """Try today's cluster, then search for the fewest nodes in today's proportions, or for the
    cheapest numbers of nodes of ``types`` with all other nodes as today.

    Clusters of more than ``most_gpus`` GPUs (default: four times today's number) are not tried.
    ``run`` simulates a cluster on the same windows. The search assumes that more machines do no
    harm, and that there are enough once doubling them changes nothing. With several types it walks
    through the numbers of all but the last, and skips combinations that cannot be cheaper.

    Raises:
        ConfigError: Not even one node fits below ``most_gpus``.
        InputError: The metric does not exist.
    """
    lines = run("today", cluster)
    lost = sum(map(not_done, lines))
    now = Size(
        (sum(group.count for group in cluster.groups),),
        cluster,
        gpus_of(cluster),
        _price(cluster, prices),
        target.of(lines, lost),
    )
    most = 4 * max(now.gpus, 1) if most_gpus is None else most_gpus
    search = _Search(cluster, tuple(types), most, prices, lambda label, resized: target.of(run(label, resized), lost))
    if not types:
        search.least((), now.nodes[0])
    else:
        for place in range(len(types)):
            search.alone(place)
        if len(types) > 1:
            search.probed()
            search.mixed(())
    return now, search.progress


def _price(cluster: ClusterSection, prices: Prices) -> float:
    return prices.a_month(cluster) if prices else float(gpus_of(cluster))


class _Search:
    def __init__(
        self, cluster: ClusterSection, types: tuple[str, ...], most_gpus: int, prices: Prices, trial: _Trial
    ) -> None:
        self.cluster, self.types, self.most_gpus, self.prices, self.trial = cluster, types, most_gpus, prices, trial
        self.progress = SizeSearch(types)
        if not self._allowed((1,) if not types else (1, *[0] * (len(types) - 1))):
            raise ConfigError(f"--most {most_gpus}: no node of these types fits within that number of GPUs")

    def alone(self, place: int) -> None:
        """The fewest nodes of one type, without nodes of the other types in the search."""
        self._least(lambda nodes: self._only(place, nodes), 1)

    def least(self, fixed: tuple[int, ...], start: int) -> None:
        """The fewest nodes of the last type, given the numbers of the others."""
        self._least(lambda nodes: (*fixed, nodes), start)

    def probed(self) -> None:
        """Try 1, 2, 4, 8 ... nodes of each other type if no type alone is enough, with as many of the
        last as fit.
        """
        for place in range(len(self.types) - 1):
            nodes = 1
            while self.progress.best is None and self._allowed(counts := self._only(place, nodes)):
                self._cheaper(counts[:-1])
                nodes *= 2

    def _only(self, place: int, nodes: int) -> tuple[int, ...]:
        return tuple(nodes if at == place else 0 for at in range(len(self.types)))

    def mixed(self, fixed: tuple[int, ...]) -> None:
        """Yield numbers of nodes of all types but the last, each with the smallest number of the
        last type that is cheaper than the best so far.
        """
        if self.progress.best is None:
            return
        if len(fixed) == len(self.types) - 1:
            self._cheaper(fixed)
            return
        nodes = 0
        while not self.progress.exhausted:
            counts = (*fixed, nodes, *[0] * (len(self.types) - len(fixed) - 1))
            if not self._allowed(counts) or self._cost(counts) >= self._best_cost():
                return
            self.mixed((*fixed, nodes))
            nodes += 1

    def _cheaper(self, fixed: tuple[int, ...]) -> None:
        high = 0
        while self._allowed((*fixed, high + 1)) and self._cost((*fixed, high + 1)) < self._best_cost():
            high += 1
        if (
            self._allowed((*fixed, high))
            and self._cost((*fixed, high)) < self._best_cost()
            and self._meets((*fixed, high))
        ):
            self._bisect(lambda nodes: (*fixed, nodes), -1, high)

    def _least(self, at: Callable[[int], tuple[int, ...]], start: int) -> None:
        """Double the number from ``start`` until the target is met, then bisect."""
        low, high = -1, max(start, 1)
        while not self._allowed(at(high)):
            high = high // 2
        while not self._meets(at(high)):
            if low >= _FLAT and self._value(at(low)) == self._value(at(high)):
                return
            low, wider = high, 2 * high
            while wider > high and not self._allowed(at(wider)):
                wider -= 1
            if wider == high:
                return
            high = wider
        self._bisect(at, low, high)

    def _bisect(self, at: Callable[[int], tuple[int, ...]], low: int, high: int) -> None:
        """The least number that is enough, given that ``low`` is too few and ``high`` is enough."""
        while high - low > 1 and not self.progress.exhausted:
            middle = (low + high) // 2
            if self._meets(at(middle)):
                high = middle
            else:
                low = middle

    def _value(self, nodes: tuple[int, ...]) -> tuple[float, int] | None:
        """The metric, and the number of jobs turned away."""
        size = self.progress.tried.get(nodes)
        return None if size is None else (size.met.value.value, size.met.lost)

    def _meets(self, nodes: tuple[int, ...]) -> bool:
        if nodes not in self.progress.tried:
            cluster = self._cluster(nodes)
            if cluster is None:
                return False
            if len(self.progress.tried) >= _MOST_TRIED:
                self.progress.exhausted = True
                return False
            self.progress.tried[nodes] = Size(
                nodes, cluster, gpus_of(cluster), self._cost(nodes), self.trial(self._label(nodes), cluster)
            )
        return self.progress.tried[nodes].met.meets

    def _cluster(self, nodes: tuple[int, ...]) -> ClusterSection | None:
        if not self.types:
            return proportional(self.cluster, nodes[0]) if nodes[0] else None
        return with_nodes(self.cluster, dict(zip(self.types, nodes, strict=True)))

    def _label(self, nodes: tuple[int, ...]) -> str:
        if not self.types:
            return f"{nodes[0]} nodes"
        return " ".join(f"{count} {type_} nodes" for count, type_ in zip(nodes, self.types, strict=True))

    def _allowed(self, nodes: tuple[int, ...]) -> bool:
        cluster = self._cluster(nodes)
        return cluster is None or gpus_of(cluster) <= self.most_gpus

    def _cost(self, nodes: tuple[int, ...]) -> float:
        cluster = self._cluster(nodes)
        return 0.0 if cluster is None else _price(cluster, self.prices)

    def _best_cost(self) -> float:
        best = self.progress.best
        return inf if best is None else best.cost

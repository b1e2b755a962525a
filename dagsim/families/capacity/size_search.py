"""Find the smallest cluster, or the cheapest mix of GPU types, that meets a target such as
``wait_s.p95<600``, by bisection on the same jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from pathlib import Path
from typing import NamedTuple

from dagsim.config.schema import Config
from dagsim.errors import ConfigError, InputError, ModelError
from dagsim.experiment.carry_out import Watch
from dagsim.experiment.executors import executor_for
from dagsim.families.capacity.log_demand import SECONDS, Beginning, on_whole_log
from dagsim.families.capacity.machines import GpuCount, Prices, always_on, proportional, with_added, with_nodes
from dagsim.families.capacity.trials import TODAY, Fit, OnDemandMonth, Trial, Trials, question
from dagsim.metrics import glossary
from dagsim.metrics.series import Period
from dagsim.metrics.standings import lower_is_better
from dagsim.model.arithmetic import rounded, whole_sum
from dagsim.model.gpu import GPU_TYPES, canonical, gpu_type
from dagsim.spelling import nearest
from dagsim.systems.cluster.section import ClusterSection
from dagsim.text import count_of
from dagsim.workload.accept import Accept
from dagsim.workload.load import Load

_FORM = re.compile(r"\s*((?:[a-z]+\[[^\]]*\]\.)?[A-Za-z_][\w.-]*)\s*(?:(<=?|>=?)\s*([0-9.eE+-]+)\s*(s|m|min|h|d)?\s*)?")


@dataclass(frozen=True, slots=True)
class Met:
    """The value of the target's metric on one cluster, and whether it meets the target."""

    value: Period
    """The value over all jobs in the log, with the interval for the next period, as long as the
    log."""
    lost: int
    """Number of jobs that were rejected or not finished."""
    meets: bool
    load: float = 0.0
    """Offered load of the jobs."""
    keeps_up: bool = True
    """False if the jobs demand more than the cluster has, in which case it is not simulated."""
    power: float = 0.0
    """Price per month of the energy, if it has one, and of the nodes that were up on demand."""
    further: tuple[Period, ...] = ()
    """The values of the other targets' metrics."""
    energy: Mapping[str, float] = field(default_factory=dict)
    """The metrics in ``ENERGY`` that the configuration has, over the whole log."""


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a metric over all jobs in the log."""

    metric: str
    above: bool
    """True if the metric must be above the bound, false if it must be below."""
    bound: float

    @classmethod
    def read(cls, text: str, *, bounded: bool = True) -> Target:
        """Read ``wait_s.p95<600``, ``wait_s.p95<4h`` (s, min, h or d; m also means minutes),
        ``partition[gpu].wait_s.p95<1h``, or a bound with ``>`` for metrics that should be high.
        If ``bounded`` is False, a metric without a bound is enough, and every value meets it.

        Raises:
            ConfigError: The text has a different form, the metric does not exist, or more machines
                would make it worse.
        """
        match = _FORM.fullmatch(text)
        try:
            bound = float(match[3]) * SECONDS[match[4] or "s"] if match and match[2] else nan
        except ValueError:
            bound = nan
        free = match is not None and match[2] is None and not bounded
        if match is None or not (isfinite(bound) or free):
            raise ConfigError(
                f"--target {text!r}: expected a metric, < or >, and a number, such as wait_s.p95<600 or wait_s.p95<4h "
                f"(units: {', '.join(SECONDS)})"
            )
        metric, names = match[1], [term.name for term in glossary()]
        above = not lower_is_better(metric) if free else match[2].startswith(">")
        bound = (-inf if above else inf) if free else bound
        group, _, of_group = metric.rpartition("].")
        if of_group not in names and not group.startswith(_LISTED):
            raise ConfigError(
                f"--target {text!r}: there is no metric {of_group!r}{nearest(of_group, names)} (bounds are usually on "
                "wait_s.mean, wait_s.p95, jct_s.mean or bounded_slowdown.mean)"
            )
        if match[4] and not of_group.partition(".")[0].endswith("_s"):
            raise ConfigError(
                f"--target {text!r}: {metric} is not a time, so its bound cannot have the unit {match[4]!r}"
            )
        if above == lower_is_better(metric):
            raise ConfigError(
                f"--target {text!r}: {'lower' if above else 'higher'} values of {metric} are better, so use "
                f"{'<' if above else '>'}"
            )
        return cls(metric, above, bound)

    def __str__(self) -> str:
        if not isfinite(self.bound):
            return f"{self.metric}, the {'highest' if self.above else 'lowest'}"
        return f"{self.metric} {'>' if self.above else '<'} {self.bound:g}"

    def of(self, trial: Trial, lost_today: int = 0) -> Met:
        """Return the value for this run and whether it meets the target. The target is never met if
        the cluster cannot keep up, or if more than ``lost_today`` jobs are lost.

        Raises:
            InputError: The run has no such metric.
        """
        try:
            value = trial.period(self.metric)
        except InputError as error:
            raise InputError(f"--target {self}: {error}") from None
        meets = self.holds(value.value) and trial.keeps_up and trial.lost <= lost_today
        return Met(value, trial.lost, meets, trial.load, trial.keeps_up)

    def holds(self, value: float) -> bool:
        """Return True if the value meets the bound."""
        value, bound = rounded(value), rounded(self.bound)
        return value > bound if self.above else value < bound

    def is_sure_of(self, value: Period) -> bool:
        """Return True if every value in the interval meets the bound."""
        far = value.low if self.above else value.high
        return isfinite(far) and self.holds(far)


@dataclass(frozen=True, slots=True)
class Targets:
    """One or several conditions, all of which must be met. Tables and curves show the first one."""

    conditions: tuple[Target, ...]

    @classmethod
    def read(cls, texts: Sequence[str], *, bounded: bool = True) -> Targets:
        """Read the texts as ``Target.read`` does.

        Raises:
            ConfigError: No target is given, or one is invalid.
        """
        if not texts:
            raise ConfigError("--target: give at least one target, such as wait_s.p95<600")
        return cls(tuple([Target.read(text, bounded=bounded) for text in dict.fromkeys(texts)]))

    @property
    def first(self) -> Target:
        """The first target."""
        return self.conditions[0]

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))

    def of(self, trial: Trial, lost_today: int = 0) -> Met:
        """Return the values for this run and whether it meets all targets.

        Raises:
            InputError: The run has no such metric.
        """
        first, *others = [target.of(trial, lost_today) for target in self.conditions]
        meets = first.meets and all(other.meets for other in others)
        return replace(first, meets=meets, further=tuple([other.value for other in others]))

    def is_sure(self, met: Met) -> bool:
        """Return True if, for each target, every value in the interval meets the bound."""
        values = (met.value, *met.further)
        return met.meets and all(one.is_sure_of(value) for one, value in zip(self.conditions, values, strict=True))


_LISTED = ("tenant[", "account[", "user[", "partition[", "qos[", "priority[", "gpu[")
"""Groups of jobs or GPUs that a metric may name."""
_MOST_MIXES = 40
"""Maximum number of mixes within a budget that are simulated."""
_MOST_TRIED = 100
"""Maximum number of clusters that the search for a cheaper mix simulates."""
_FLAT = 4
"""Number of nodes from which the search ends if doubling it changes nothing."""

RunOn = Callable[[str, ClusterSection], Trial]
"""Simulates all jobs on a cluster, under a label."""
LoadOn = Callable[[ClusterSection], Load]
"""Returns the load of the jobs on a cluster."""


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster that was tried."""

    nodes: tuple[int, ...]
    """Number of nodes of each requested type, or of the whole cluster."""
    cluster: ClusterSection
    gpus: int
    cost: float
    """The quantity that the search minimises: the price per month, or the number of GPUs if there
    are no prices. It is ``rounded``, because equal costs must be equal."""
    met: Met


@dataclass(slots=True)
class SizeSearch:
    """All clusters that were tried, and the best one that meets the target."""

    types: tuple[str, ...]
    """Empty if the search resizes the whole cluster with its current proportions."""
    tried: dict[tuple[int, ...], Size] = field(default_factory=dict)
    exhausted: bool = False
    """True if the search ended early, so that a cheaper or better mix may exist."""
    budget: float = inf
    """The most that a cluster may cost. If it is finite, the search looks for the best value within
    it."""
    above: bool = False
    """True if the highest value is the best."""

    @property
    def best(self) -> Size | None:
        """The cheapest cluster that meets the target. If several are equally cheap, it is the one
        with the fewest GPUs. If there is a budget, it is the cluster with the best value within the
        budget.
        """
        meeting = [size for size in self.tried.values() if size.met.meets and size.cost <= self.budget]
        if isfinite(self.budget):
            sign = -1 if self.above else 1
            values = {size.nodes: rounded(sign * size.met.value.value) for size in meeting}
            return min(meeting, key=lambda size: (values[size.nodes], size.cost, size.gpus, size.nodes), default=None)
        return min(meeting, key=lambda size: (size.cost, size.gpus, size.nodes), default=None)


class SizePlan(NamedTuple):
    """The smallest cluster that meets a target on a log, with all trials."""

    config: Config
    """The configuration: the log, its cluster and the policy."""
    target: Targets
    prices: Prices
    today: Size
    search: SizeSearch
    path: Path
    """The run folder of all trials."""
    demand: Load
    """Load of the jobs on today's cluster."""
    fit: Fit | None
    """Today's simulated waits compared with the recorded ones, or None if the log has no starts."""
    beginning: Beginning


def plan_size(
    config: Config,
    target: str | Sequence[str],
    types: Sequence[str] = (),
    most_gpus: int | None = None,
    prices: Sequence[str] = (),
    *,
    price_file: Path | None = None,
    budget: float | None = None,
    accept: Accept | None = None,
    name: str | None = None,
    out: Path = Path("results"),
    on: str = "local",
    watching: AbstractContextManager[Watch | None] | None = None,
    argv: Sequence[str] = (),
) -> SizePlan:
    """Find the smallest cluster, or the cheapest mix of ``types``, that meets ``target`` on the log
    of ``config``. Every trial replays the whole log.

    The arguments are the same as for ``dagsim plan``. ``target`` may be one target or several.
    Trials are kept in the folder ``plan-NAME`` below ``out``. By default, each question has its own
    folder. ``watching`` shows the progress of the trials.

    Raises:
        InputError: One of the arguments is wrong.
        SimulationError: A policy failed.
    """
    bound = Targets.read([target] if isinstance(target, str) else target, bounded=budget is None)
    config, demand = on_whole_log(config)
    for condition in bound.conditions:
        demand.check(condition.metric)
    names = _known_types(config, types)
    wider = config.cluster
    for type_ in names:  # ``wider`` contains every requested type, because each needs a price
        wider = with_added(wider, GpuCount(8, type_))
    priced = Prices.read(prices, config.prices, price_file).of([config.cluster, wider])
    if budget is not None and not priced:
        raise ConfigError("--budget: a budget requires prices; leave out --price none, or give the missing prices")
    config = config.model_copy(update={"cluster": priced.stated(config.cluster)})
    load = demand.on(config.cluster)
    name = name or question(Path(config.trace().path), config, str(bound), names, most_gpus, budget, accept)
    trials = Trials(config, name, out, executor_for(on), demand, argv=argv)
    with trials.noting(), watching or nullcontext() as trials.watch:
        today, search = least_size(
            config.cluster, names, most_gpus, priced, trials.run, bound, demand.on, budget=budget, accept=accept
        )
        assert trials.store is not None
        first = trials.run(TODAY, config.cluster)
        fit = Fit.of(first, bound.first.metric)
    path, beginning = trials.store.path, demand.beginning
    return SizePlan(config, bound, priced, today, search, path, demand=load, fit=fit, beginning=beginning)


def _known_types(config: Config, types: Sequence[str]) -> list[str]:
    """Return the GPU types to search for, each once.

    Raises:
        ConfigError: A type is unknown, or there are more than three.
    """
    own = {gpu.name for gpu in config.gpu_types}
    names = list(dict.fromkeys(canonical(name.strip()) for name in types if name.strip()))
    for name in names:
        if name not in own:
            try:
                gpu_type(name)
            except ModelError as error:
                near = nearest(name, (*own, *GPU_TYPES))
                raise ConfigError(
                    f"--types: unknown GPU type {name!r}{near}" if near else f"--types: {error}"
                ) from None
    if len(names) > 3:
        raise ConfigError(f"--types: at most three types can be mixed, got {', '.join(names)}")
    return names


def gpus_of(cluster: ClusterSection) -> int:
    """Return the number of GPUs in the cluster."""
    return whole_sum(group.count * group.gpus for group in cluster.groups)


def least_size(
    cluster: ClusterSection,
    types: Sequence[str],
    most_gpus: int | None,
    prices: Prices,
    run: RunOn,
    target: Targets,
    load_on: LoadOn,
    *,
    budget: float | None = None,
    accept: Accept | None = None,
) -> tuple[Size, SizeSearch]:
    """Try today's cluster, and then search. The search is for the fewest nodes in today's
    proportions or, if ``types`` are given, for the cheapest numbers of nodes of these types, with
    all other nodes as today.

    Clusters with more than ``most_gpus`` GPUs (default: four times today's number) are not tried.
    ``run`` simulates all jobs on a cluster if ``load_on`` shows that the cluster can keep up. The
    search assumes that more machines do no harm, and that there are enough machines if doubling
    them changes nothing. With several types, it enumerates the numbers of all types but the last,
    and skips combinations that cannot be cheaper. With a ``budget``, it instead tries the largest
    clusters that the budget allows, and looks for the best value. On all clusters except today's,
    jobs may also use the GPU types that ``accept`` adds to those that they name.

    Raises:
        ConfigError: Not even one node fits below ``most_gpus``.
        InputError: The metric does not exist.
    """
    first = run(TODAY, cluster)

    def met_by(trial: Trial, section: ClusterSection) -> Met:
        rented = OnDemandMonth.of(trial, section) if prices else None
        power = prices.power_a_month(trial.mean_kw) + (rented.cost if rented is not None and rented.cost else 0.0)
        return replace(target.of(trial, first.lost), power=power, energy=trial.energy)

    now_met, nodes = met_by(first, cluster), sum(group.count for group in cluster.groups)
    now = Size((nodes,), cluster, gpus_of(cluster), rounded(_price(cluster, prices) + now_met.power), now_met)
    most = 4 * max(now.gpus, 1) if most_gpus is None else most_gpus

    def tried(label: str, other: ClusterSection) -> Met:
        other = other.model_copy(update={"accept": dict(accept or {})})
        load = load_on(other)
        # Do not simulate this cluster: its queue would grow without limit, so the simulation would
        # take very long.
        if not load.keeps_up:
            return Met(Period(nan, nan, nan, 0, 1.0), 0, False, load.offered, False)
        return met_by(run(label, other), other)

    search = _Search(cluster, tuple(types), most, prices, tried)
    if budget is not None:
        budget = rounded(budget)
        search.progress.budget, search.progress.above = budget, target.first.above
        search.within(budget)
    elif not types:
        search.least((), now.nodes[0])
    else:
        for place in range(len(types)):
            search.alone(place)
        if len(types) > 1:
            search.probed()
            search.mixed(())
    return now, search.progress


def _price(cluster: ClusterSection, prices: Prices) -> float:
    return prices.a_month(always_on(cluster)) if prices else float(gpus_of(cluster))


class _Search:
    def __init__(
        self,
        cluster: ClusterSection,
        types: tuple[str, ...],
        most_gpus: int,
        prices: Prices,
        trial: Callable[[str, ClusterSection], Met],
    ) -> None:
        self.cluster, self.types, self.most_gpus, self.prices, self.trial = cluster, types, most_gpus, prices, trial
        self.progress = SizeSearch(types)
        if not self._allowed((1,) if not types else (1, *[0] * (len(types) - 1))):
            raise ConfigError(f"--max-gpus {most_gpus}: too low, because every node of these types has more GPUs")

    def alone(self, place: int) -> None:
        """Find the fewest nodes of one type, without nodes of the other types in the search."""
        self._least(lambda nodes: self._only(place, nodes), 1)

    def least(self, fixed: tuple[int, ...], start: int) -> None:
        """Find the fewest nodes of the last type, given the numbers of the others."""
        self._least(lambda nodes: (*fixed, nodes), start)

    def within(self, budget: float) -> None:
        """Try the largest clusters within the budget, those to which no other node can be added.
        If there are many, try an even selection of them."""
        largest = list(self._largest((), budget))
        if not largest:
            raise ConfigError(
                f"--budget {budget:g}: too low, because the nodes that cannot be removed cost more; today's cluster "
                "may also be over the budget"
            )
        step = -(-len(largest) // _MOST_MIXES)
        self.progress.exhausted = step > 1
        for counts in largest[::step]:
            # The cost of energy is known only after the simulation, so remove nodes until the total
            # is within the budget.
            while self._try(counts) > budget and counts[-1]:
                counts = (*counts[:-1], counts[-1] - 1)

    def _largest(self, fixed: tuple[int, ...], budget: float) -> Iterator[tuple[int, ...]]:
        """Yield combinations of numbers of nodes. In each, the number of the last type is the
        largest that the budget allows."""
        rest = max(len(self.types), 1) - len(fixed) - 1

        def fits(nodes: int) -> bool:
            counts = (*fixed, nodes, *[0] * rest)
            return self._allowed(counts) and self._cost(counts) <= budget

        nodes = 0
        while fits(nodes + 1):
            if rest:
                yield from self._largest((*fixed, nodes), budget)
            nodes += 1
        if fits(nodes):
            if rest:
                yield from self._largest((*fixed, nodes), budget)
            elif any((*fixed, nodes)):
                yield (*fixed, nodes)

    def probed(self) -> None:
        """If no type alone is enough, try 1, 2, 4, 8 ... nodes of each type but the last, together
        with as many nodes of the last type as the maximum size allows."""
        for place in range(len(self.types) - 1):
            nodes = 1
            while self.progress.best is None and self._allowed(counts := self._only(place, nodes)):
                self._cheaper(counts[:-1])
                nodes *= 2

    def _only(self, place: int, nodes: int) -> tuple[int, ...]:
        return tuple(nodes if at == place else 0 for at in range(len(self.types)))

    def mixed(self, fixed: tuple[int, ...]) -> None:
        """Try numbers of nodes of all types but the last, each with the smallest sufficient number
        of the last type. Skip combinations that cannot be cheaper than the best one so far.
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
        """Starting from ``start``, double the number until the target is met, and then bisect."""
        low, high = -1, max(start, 1)
        while not self._allowed(at(high)):
            high = high // 2
        while not self._meets(at(high)):
            if low >= _FLAT and self._value(at(low)) == self._value(at(high)) is not None:
                return
            low, wider = high, 2 * high
            while wider > high and not self._allowed(at(wider)):
                wider -= 1
            if wider == high:
                return
            high = wider
        self._bisect(at, low, high)

    def _bisect(self, at: Callable[[int], tuple[int, ...]], low: int, high: int) -> None:
        """Find the smallest sufficient number, given that ``low`` is too few and ``high`` is
        enough."""
        while high - low > 1 and not self.progress.exhausted:
            middle = (low + high) // 2
            if self._meets(at(middle)):
                high = middle
            else:
                low = middle

    def _value(self, nodes: tuple[int, ...]) -> tuple[float, int] | None:
        """Return the value of the metric and the number of rejected jobs, or None if the cluster
        cannot keep up or was not tried."""
        size = self.progress.tried.get(nodes)
        return None if size is None or not size.met.keeps_up else (size.met.value.value, size.met.lost)

    def _meets(self, nodes: tuple[int, ...]) -> bool:
        if nodes not in self.progress.tried:
            if len(self.progress.tried) >= _MOST_TRIED:
                self.progress.exhausted |= self._cluster(nodes) is not None
                return False
            self._try(nodes)
        return nodes in self.progress.tried and self.progress.tried[nodes].met.meets

    def _try(self, nodes: tuple[int, ...]) -> float:
        """Simulate a cluster and return its cost. If a partition would have no node, do nothing and
        return 0."""
        cluster = self._cluster(nodes)
        if cluster is None:
            return 0.0
        met = self.trial(self._label(nodes), cluster)
        cost = rounded(self._cost(nodes) + met.power)
        self.progress.tried[nodes] = Size(nodes, cluster, gpus_of(cluster), cost, met)
        return cost

    def _cluster(self, nodes: tuple[int, ...]) -> ClusterSection | None:
        if not self.types:
            return proportional(self.cluster, nodes[0]) if nodes[0] else None
        return with_nodes(self.cluster, dict(zip(self.types, nodes, strict=True)))

    def _label(self, nodes: tuple[int, ...]) -> str:
        if not self.types:
            return f"{nodes[0]} nodes"
        return " ".join(count_of(count, f"{type_} node") for count, type_ in zip(nodes, self.types, strict=True))

    def _allowed(self, nodes: tuple[int, ...]) -> bool:
        cluster = self._cluster(nodes)
        return (whole_sum(nodes) if cluster is None else gpus_of(cluster)) <= self.most_gpus

    def _cost(self, nodes: tuple[int, ...]) -> float:
        cluster = self._cluster(nodes)
        return 0.0 if cluster is None else rounded(_price(cluster, self.prices))

    def _best_cost(self) -> float:
        best = self.progress.best
        return inf if best is None else best.cost

"""Add machines to a cluster, remove or resize them, and compute what a cluster costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dagsim.config.prices import PriceFile, read_prices
from dagsim.config.schema import Config
from dagsim.errors import ConfigError
from dagsim.model import OnDemand
from dagsim.model.arithmetic import DAY_S, ordered_sum, whole_sum
from dagsim.model.gpu import GPU_TYPES, LIST_PRICES, canonical, gpu_type
from dagsim.spelling import choices, nearest
from dagsim.systems.cluster.section import ClusterSection, NodeGroup
from dagsim.text import count_of

_ASKED = re.compile(r"([1-9][0-9]{0,6})x([A-Za-z0-9][A-Za-z0-9._-]*)(?::([^:@\s]+))?(?:@(\S+))?")
_ACCEPTED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=([A-Za-z0-9][A-Za-z0-9._-]*)(?::([0-9.]+))?")
_PER_NODE = 8
_PARTIAL = "-part"
"""Ending of the name of a new group whose node has fewer GPUs than the others."""
"""GPUs per node for a type that the cluster does not have."""


class GpuCount(NamedTuple):
    """A number of GPUs of one type."""

    number: int
    type: str
    partition: str = ""
    """Partition of the nodes to add or remove; empty for the partitions of similar nodes, or for
    any."""
    when: str = ""
    """Date or time at which the GPUs arrive. It is empty if they are there from the beginning."""

    def __str__(self) -> str:
        return f"{self.number}x{self.type}{self.partition and ':'}{self.partition}{self.when and '@'}{self.when}"


def read_gpus(text: str, option: str = "", own: Collection[str] = ()) -> GpuCount:
    """Read a text such as ``16xH200``, ``16xH200:gpu`` with a partition, or ``16xH200@2027-03-01``
    with a date. ``own`` lists the GPU types of the configuration.

    Raises:
        ConfigError: The text has a different form, or there is no such GPU type.
    """
    match = _ASKED.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{option} {text!r}: expected a number and a GPU type, such as 16xH200".strip())
    name = canonical(match[2])
    if name not in GPU_TYPES and name not in own:
        names = [*own, *GPU_TYPES]
        raise ConfigError(
            f"{option} {text!r}: unknown GPU type {name!r}{nearest(name, names)} (dagsim list gpus)".strip()
        )
    return GpuCount(int(match[1]), name, match[3] or "", match[4] or "")


class OnDemandGpus(NamedTuple):
    """GPUs on nodes that are powered on demand: the maximum number that can be up, and the rule by
    which the nodes are powered."""

    gpus: GpuCount
    rule: OnDemand
    price: float | None = None
    """Price of a GPU hour, or None to use ``--price``."""

    def __str__(self) -> str:
        stated = {"boot": self.rule.mean_boot_s, "idle": self.rule.idle_s, "shutdown": self.rule.shutdown_s or None}
        stated |= {"price": self.price}
        words = [f"{name}={value:g}" for name, value in stated.items() if value is not None]
        return ",".join([str(self.gpus), *words, *["trigger=pending"] * (self.rule.trigger == "pending")])


_POWERED = ("boot", "idle", "shutdown", "price")


def read_on_demand(text: str, own: Collection[str] = ()) -> OnDemandGpus:
    """Read a text such as ``16xH100,boot=300,idle=600`` or
    ``16xH100:gpu,boot=300,price=4.5,trigger=pending``.

    Raises:
        ConfigError: The text has a different form, a value is out of range, or there is no such GPU
            type.
    """
    gpus, *parts = text.split(",")
    counted = read_gpus(gpus, "--add", own)
    if counted.when:
        raise ConfigError(
            f"--add {text!r}: nodes on demand are available from the beginning, so leave out {counted.when!r}"
        )
    trigger: Literal["placed", "pending"] = "placed"
    stated: dict[str, float] = {}
    for part in parts:
        name, _, value = part.strip().partition("=")
        if name == "trigger" and value in ("placed", "pending"):
            trigger = "pending" if value == "pending" else "placed"
            continue
        try:
            stated[name] = float(value) if name in _POWERED and name not in stated else -1.0
        except ValueError:
            stated[name] = -1.0
        if not (stated[name] >= 0 and isfinite(stated[name])):
            raise ConfigError(
                f"--add {text!r}: expected {'=NUMBER, '.join(_POWERED)}=NUMBER (seconds, or a price per GPU "
                f"hour) or trigger=placed|pending, each at most once, got {part.strip()!r}; example: "
                "16xH100,boot=300,idle=600"
            )
    times: dict[str, Any] = {f"{name}_s": stated[name] for name in ("boot", "idle", "shutdown") if name in stated}
    return OnDemandGpus(counted, OnDemand(**times, trigger=trigger), stated.get("price"))


def with_on_demand(cluster: ClusterSection, added: OnDemandGpus) -> ClusterSection:
    """Return the cluster with more GPUs on nodes that are powered on demand. In other respects, the
    new nodes are like the existing ones with the same GPU type.

    Raises:
        ConfigError: The partition does not exist, or no partition is named and no node has that
            type.
    """
    there = {group.name for group in cluster.groups}
    groups = [
        group
        if group.name in there
        else group.model_copy(
            update={"on_demand": replace(added.rule, price_per_h=added.price and added.price * group.gpus)}
        )
        for group in with_added(cluster, added.gpus).groups
    ]
    return _of(cluster, groups)


def always_on(cluster: ClusterSection) -> ClusterSection:
    """Return the cluster without the nodes that are powered on demand."""
    return _of(cluster, [group for group in cluster.groups if group.on_demand is None])


def read_accept(texts: Iterable[str]) -> dict[str, dict[str, float | None]]:
    """Read texts such as ``A100=H200`` or ``A100=H200:1.8,V100=H200``: GPU types that jobs of
    another type may also use, with their relative speeds.

    Raises:
        ConfigError: A text has a different form, or a type is unknown.
    """
    accept: dict[str, dict[str, float | None]] = {}
    for part in [part.strip() for text in texts for part in text.split(",")]:
        match = _ACCEPTED.fullmatch(part)
        try:
            speed = float(match[3]) if match and match[3] else None
        except ValueError:
            speed = 0.0
        if match is None or speed == 0:
            raise ConfigError(
                f"--accept {part!r}: expected two GPU types and optionally a relative speed, for example A100=H200:1.8"
            )
        accept.setdefault(gpu_type(match[1]).name, {})[gpu_type(match[2]).name] = speed
    return accept


def with_memberships(config: Config) -> Config:
    """Return the configuration in which each group of nodes states its partitions, as given in
    ``queues``, so that they also apply to a changed cluster. Split a group whose nodes are in
    different partitions."""
    if config.queues is None or config.cluster.from_trace:
        return config
    groups: list[NodeGroup] = []
    for group in config.cluster.groups:
        member_of = [
            tuple(
                part.name
                for part in config.queues.partitions
                if not part.nodes or group.name in part.nodes or node in part.nodes
            )
            for node in group.nodes
        ]
        for number, partitions in enumerate(dict.fromkeys(member_of)):
            nodes = [node for node, of in zip(group.nodes, member_of, strict=True) if of == partitions]
            update: dict[str, Any] = {"partitions": partitions}
            if len(nodes) < group.count:
                name = group.name if number == 0 else f"{group.name}-of-{'-'.join(partitions) or 'none'}"
                update |= {"name": name, "count": len(nodes), "hosts": ",".join(nodes)}
            groups.append(group.model_copy(update=update))
    return config.model_copy(update={"cluster": _of(config.cluster, groups)})


def joined(cluster: ClusterSection, changed: ClusterSection) -> list[str]:
    """Describe the new nodes in a changed cluster: whether the last one has fewer GPUs, which
    partitions they join, and when they arrive.
    """
    names = {group.name for group in cluster.groups}
    partial = [
        f"warning: the added {group.gpu} GPUs do not fill whole nodes: the last new node has only "
        f"{count_of(group.gpus, 'GPU')}, and only these are paid for"
        for group in changed.groups
        if group.name not in names and group.name.endswith(_PARTIAL)
    ]
    return partial + [
        f"New nodes ({group.count} of {group.gpus} {group.gpu or 'GPUs'}) "
        + " and ".join(
            [f"are in {'partition ' + ', '.join(group.partitions) if group.partitions else 'no partition'}"]
            * any(other.partitions for other in cluster.groups)
            + [f"arrive {group.from_s / DAY_S:,.1f} days after the beginning of the run"] * (group.from_s > 0)
        )
        + "."
        for group in changed.groups
        if group.name not in names and (group.from_s or any(other.partitions for other in cluster.groups))
    ]


def resized(
    cluster: ClusterSection,
    add: Iterable[GpuCount] = (),
    remove: Iterable[GpuCount] = (),
    arrival_s: Callable[[str], float] = lambda when: 0.0,
) -> ClusterSection:
    """Return the cluster after first removing and then adding GPUs, in whole nodes. ``arrival_s``
    turns the date of GPUs that arrive later into seconds from the beginning of the run.

    Raises:
        ConfigError: The GPUs to remove do not exist, or do not add up to whole nodes.
    """
    for gpus in remove:
        cluster = with_removed(cluster, gpus)
    for gpus in add:
        cluster = with_added(cluster, gpus, arrival_s(gpus.when) if gpus.when else 0.0)
    return cluster


def with_added(cluster: ClusterSection, gpus: GpuCount, from_s: float = 0.0) -> ClusterSection:
    """Return the cluster with more GPUs. Their nodes are like the existing nodes of that type, and
    arrive ``from_s`` seconds after the beginning.

    If there are no such nodes, the new nodes have eight GPUs, and as many cores and as much memory
    per GPU as the best node. The last node may have fewer GPUs. New nodes are in the partitions of
    similar nodes, or in the partition that ``gpus`` names.

    Raises:
        ConfigError: The partition does not exist, or no partition is named and no node has that
            type.
    """
    _check(cluster)
    like = _like(cluster, gpus.type, gpus.partition).model_copy(update={"from_s": from_s, "on_demand": None})
    whole, rest = divmod(gpus.number, like.gpus)
    name = _free_name(cluster, f"added-{gpus.type.lower()}")
    more = [] if not whole else [like.model_copy(update={"name": name, "count": whole, "hosts": None})]
    if rest:
        part = {"cpus": like.cpus * rest / like.gpus, "memory_gb": like.memory_gb * rest / like.gpus}
        more.append(like.model_copy(update={"name": name + _PARTIAL, "count": 1, "hosts": None, "gpus": rest, **part}))
    return _of(cluster, [*cluster.groups, *more])


def with_removed(cluster: ClusterSection, gpus: GpuCount) -> ClusterSection:
    """Return the cluster without some GPUs, by removing the last nodes of that type.

    Raises:
        ConfigError: The cluster has fewer GPUs of that type, or they do not make whole nodes.
    """
    _check(cluster)
    left, groups = gpus.number, list(cluster.groups)
    chosen = [group for group in groups if not gpus.partition or gpus.partition in group.partitions]
    there = whole_sum(_gpus(group, gpus.type) for group in chosen)
    if there < left:
        types = ", ".join(sorted({group.gpu for group in chosen if group.gpu}))
        has = f"only {count_of(there, 'GPU')} of this type" if there else f"no GPU of this type (it has {types})"
        raise ConfigError(f"--remove {gpus}: the cluster has {has}")
    for place in range(len(groups) - 1, -1, -1):
        group = groups[place]
        if group in chosen and _gpus(group, gpus.type):
            nodes = min(group.count, left // group.gpus)
            left -= nodes * group.gpus
            groups[place : place + 1] = _first(group, group.count - nodes)
    if left:
        sizes = sorted({group.gpus for group in cluster.groups if _gpus(group, gpus.type)})
        raise ConfigError(
            f"--remove {gpus}: only whole nodes can be removed, and they have {', '.join(map(str, sizes))} GPUs"
        )
    if not groups:
        raise ConfigError(f"--remove {gpus}: this would remove the whole cluster")
    return _of(cluster, groups)


def with_nodes(cluster: ClusterSection, counts: Mapping[str, int]) -> ClusterSection | None:
    """Return the cluster with the given numbers of nodes of some types, and with all other nodes
    unchanged. Return ``None`` if the cluster or one of its partitions would have no node.

    Remaining nodes keep their places, so today's numbers give today's cluster.
    """
    _check(cluster)
    left, groups = dict(counts), []
    for group in cluster.groups:
        type_ = next((type_ for type_ in counts if _gpus(group, type_)), None)
        kept = group.count if type_ is None else min(group.count, left[type_])
        groups += _first(group, kept)
        if type_ is not None:
            left[type_] -= kept
    for type_, more in left.items():
        if more:
            name = _free_name(cluster, f"added-{type_.lower()}")
            groups.append(_like(cluster, type_).model_copy(update={"name": name, "hosts": None, "count": more}))
    changed = _of(cluster, groups)
    return changed if groups and _memberships(changed) == _memberships(cluster) else None


def proportional(cluster: ClusterSection, nodes: int) -> ClusterSection | None:
    """Return the cluster with a given total number of nodes, divided among its groups in the
    current proportions. Return ``None`` if a partition would have no node.

    Each additional node goes to the group with the highest count / (2 granted + 1) (Webster's
    method), so a larger total never takes a node from a group.
    """
    _check(cluster)
    granted = [0] * len(cluster.groups)
    for _ in range(nodes):
        scores = [group.count / (2 * count + 1) for group, count in zip(cluster.groups, granted, strict=True)]
        granted[scores.index(max(scores))] += 1
    groups: list[NodeGroup] = []
    for group, count in zip(cluster.groups, granted, strict=True):
        groups += _first(group, min(count, group.count))
        if count > group.count:
            name = _free_name(cluster, f"more-{group.name}")
            groups.append(group.model_copy(update={"name": name, "hosts": None, "count": count - group.count}))
    changed = _of(cluster, groups)
    return changed if _memberships(changed) == _memberships(cluster) else None


def _memberships(cluster: ClusterSection) -> set[str]:
    """Return all partitions that contain a node."""
    return {name for group in cluster.groups for name in group.partitions}


def _like(cluster: ClusterSection, type_: str, partition: str = "") -> NodeGroup:
    """Return the shape and the partitions of a node of that type.

    Raises:
        ConfigError: The partition does not exist, or no partition is named and no node has that
            type.
    """
    partitions = _memberships(cluster)
    if partition and partition not in partitions:
        hint = choices(partition, sorted(partitions)) if partitions else "; the cluster has none, so leave it out"
        raise ConfigError(f"--add {type_}:{partition}: there is no partition {partition!r}{hint}")
    same = [group for group in cluster.groups if _gpus(group, type_)]
    if same:
        inside = [group for group in same if partition in group.partitions]
        return (
            inside[0]
            if inside
            else same[0].model_copy(update={"partitions": (partition,) if partition else same[0].partitions})
        )
    if partitions and not partition:
        raise ConfigError(
            f"no node has {type_} GPUs yet, so name the partition for the new nodes, as in 16x{type_}:{min(partitions)}"
        )
    with_gpus = [group for group in cluster.groups if group.gpus]
    cpus = max((group.cpus / group.gpus for group in with_gpus), default=12.0)
    memory_gb = max((group.memory_gb / group.gpus for group in with_gpus), default=128.0)
    new = NodeGroup(name="new", gpu=type_, gpus=_PER_NODE, cpus=cpus * _PER_NODE, memory_gb=memory_gb * _PER_NODE)
    return new.model_copy(update={"partitions": (partition,)}) if partition else new


def _first(group: NodeGroup, count: int) -> list[NodeGroup]:
    """Return a list with the group, reduced to its first ``count`` nodes. The list is empty if
    ``count`` is 0."""
    if count == 0:
        return []
    if count == group.count:
        return [group]
    hosts = None if group.hosts is None else ",".join(group.nodes[:count])
    return [group.model_copy(update={"count": count, "hosts": hosts})]


def _gpus(group: NodeGroup, type_: str) -> int:
    return group.count * group.gpus if group.gpu is not None and canonical(group.gpu) == type_ else 0


def _of(cluster: ClusterSection, groups: Sequence[NodeGroup]) -> ClusterSection:
    return cluster.model_copy(update={"groups": tuple(groups)})


def _free_name(cluster: ClusterSection, wanted: str) -> str:
    taken, number, name = {group.name for group in cluster.groups}, 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def _check(cluster: ClusterSection) -> None:
    if cluster.from_trace:
        raise ConfigError("the machines listed in a trace cannot be changed; give your own cluster with --cluster YAML")


HOURS_A_MONTH = 730.0
"""One twelfth of 8,760 hours."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The price per hour of one GPU with its share of the node, by type.

    The user's own prices can be in any currency. A type without such a price has a list price in US
    dollars.
    """

    per_gpu_h: Mapping[str, float] = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)
    """The source of each price."""
    given: bool = False
    """True if the user gave prices."""
    per_kwh: float = 0.0
    """Price per kWh drawn by the GPUs, including cooling."""
    missing: tuple[str, ...] = ()
    """The types without a list price. If there are any, only nodes on demand have prices."""

    @classmethod
    def read(
        cls, texts: Iterable[str], configured: Mapping[str, float] | None = None, file: Path | None = None
    ) -> Prices:
        """Read prices from texts such as ``H200=3.5,A100=1.9``. The text ``none`` means no prices
        at all. The price of a type that the texts omit comes from ``file``, from ``configured``, or
        from the list prices, in this order.

        ``file`` is YAML: ``rent`` (price per GPU hour by type), ``buy`` (price of a GPU with its
        share of the node), ``years`` (over which purchases are written off), ``power`` (price per
        kWh) and ``pue`` (factor for cooling).

        Raises:
            ConfigError: A text or the file has a different form, a price is negative, or a type has
                two prices.
        """
        filed = PriceFile() if file is None else read_prices(file)
        parts = [part.strip() for text in texts for part in text.split(",")]
        if parts == ["none"]:
            return cls()
        asked: dict[str, float] = {}
        for part in parts:
            name, equals, number = part.partition("=")
            try:
                price = float(number)
            except ValueError:
                price = -1.0
            if not equals or not name.strip() or not isfinite(price) or price < 0:
                raise ConfigError(
                    f"--price {part!r}: expected a GPU type and an hourly price such as H200=3.5, or none"
                )
            type_ = canonical(name.strip())
            if asked.setdefault(type_, price) != price:
                raise ConfigError(f"--price: there are two prices for {type_}")
        own = {canonical(name): price for name, price in (configured or {}).items()}
        bought = {canonical(name): price / (filed.years * 8760) for name, price in filed.buy.items()}
        from_file = bought | {canonical(name): price for name, price in filed.rent.items()}
        prices = {name: price.usd_per_h for name, price in LIST_PRICES.items()} | own | from_file | asked
        source = {name: f"list price, {price.source}" for name, price in LIST_PRICES.items()}
        source |= dict.fromkeys(own, "configuration") | dict.fromkeys(from_file, f"rented, {file}")
        source |= dict.fromkeys(bought, f"bought, over {filed.years:g} years, {file}") | dict.fromkeys(asked, "--price")
        return cls(prices, source, bool(own or asked or from_file), filed.power * filed.pue)

    def __bool__(self) -> bool:
        return bool(self.per_gpu_h) and not self.missing

    def of(self, clusters: Iterable[ClusterSection]) -> Prices:
        """Return the prices for the GPU types in these clusters. If a price is missing and the user
        gave none, return only those for nodes on demand.

        Raises:
            ConfigError: A type has no price although the user gave others.
        """
        if not self:
            return self
        groups = [group for cluster in clusters for group in cluster.groups]
        types = dict.fromkeys(
            canonical(group.gpu)
            for group in groups
            if group.gpu and (group.on_demand is None or group.on_demand.price_per_h is None)
        )
        missing = [name for name in types if name not in self.per_gpu_h]
        if missing and self.given:
            raise ConfigError(
                f"--price: there is no price for {', '.join(missing)}; give one, or 0 for machines that you own"
            )
        if missing:
            rented = {canonical(group.gpu) for group in groups if group.gpu and group.on_demand is not None}
            types = dict.fromkeys(name for name in types if name in rented and name not in missing)
        return replace(
            self,
            per_gpu_h={name: self.per_gpu_h[name] for name in types},
            source={name: self.source[name] for name in types},
            missing=tuple(missing),
        )

    def stated(self, cluster: ClusterSection) -> ClusterSection:
        """Return the cluster with a price for every node that is powered on demand, if there are
        prices at all.
        """
        groups = []
        for group in cluster.groups:
            rule = group.on_demand
            price = self.per_gpu_h.get(canonical(group.gpu or ""))
            if price is not None and rule is not None and rule.price_per_h is None:
                rule = replace(rule, price_per_h=group.gpus * price)
            groups.append(group.model_copy(update={"on_demand": rule}))
        return _of(cluster, groups)

    def power_a_month(self, mean_kw: float) -> float:
        """Return the monthly price of the energy at a mean power."""
        return mean_kw * HOURS_A_MONTH * self.per_kwh

    def a_month(self, cluster: ClusterSection) -> float:
        """Return the monthly price of all GPUs in the cluster, whether or not they are used. Every
        type must have a price."""
        groups = [group for group in cluster.groups if group.gpu is not None]
        an_hour = ordered_sum(group.count * group.gpus * self.per_gpu_h[canonical(group.gpu or "")] for group in groups)
        return an_hour * HOURS_A_MONTH

    def sentence(self) -> str:
        """Write all prices with their sources as a sentence, grouped by source, or why there are none."""
        by_source: dict[str, list[str]] = {}
        for name, price in self.per_gpu_h.items():
            by_source.setdefault(self.source[name], []).append(f"{name} {price:.4g}")
        parts = [f"{', '.join(names)} ({source})" for source, names in by_source.items()]
        unit = " in US dollars" if any(source.startswith("list price") for source in by_source) else ""
        power = f" and of the energy that they draw ({self.per_kwh:.4g} per kWh, cooling included)" * (self.per_kwh > 0)
        cost = f"Cost: the price of all GPUs for {HOURS_A_MONTH:g} hours, used or not{power}."
        if self.missing:
            cost = (
                f"No cost of a whole cluster: there is no list price for {', '.join(self.missing)}; give one "
                f"(--price {self.missing[0]}=PRICE), or 0 for machines that you own."
            )
        return f"{cost} A GPU hour{unit}: {'; '.join(parts)}." if parts else cost

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that are safe for JSON."""
        power = {"power": {"per_kwh": self.per_kwh}} if self.per_kwh else {}
        return {
            name: {"per_gpu_h": price, "source": self.source[name]} for name, price in self.per_gpu_h.items()
        } | power

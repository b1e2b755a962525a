"""The folder of a real run of Slurm: its configuration in the form that dagsim's policies use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagsim.errors import TraceError
from dagsim.model import NodePartition, Qos, QueueNode, QueueTree
from dagsim.systems.cluster.policies.shares import Weights
from dagsim.systems.cluster.policies.slurm_priority import Capacity, PrioritySettings
from dagsim.traces.nodes import FoundNode, read_nodes
from dagsim.traces.sites import hosts
from dagsim.traces.slurm import duration_s, memory_gb
from dagsim.traces.source import Source

_WORDS = re.compile(r'(?:[^\s"]|"[^"]*")+')


@dataclass(frozen=True, slots=True)
class Site:
    """The configuration of the run: ``slurm.conf`` and the accounting data base."""

    conf: Mapping[str, str]
    queues: QueueTree
    capacity: Capacity
    nodes: Sequence[FoundNode]
    users: Mapping[str, str]
    """The association of each user."""

    @property
    def settings(self) -> PrioritySettings:
        """Keys that begin with Priority."""
        conf, flags = self.conf, self.conf.get("PriorityFlags", "").split(",")
        names = {"age": "Age", "assoc": "Assoc", "fair_share": "Fairshare", "job_size": "JobSize"}
        names |= {"partition": "Partition", "qos": "QOS"}
        tres = [pair.partition("=") for pair in conf.get("PriorityWeightTRES", "").split(",") if pair]
        weights = {ours: float(conf.get(f"PriorityWeight{name}", 0)) for ours, name in names.items()}
        return PrioritySettings(
            Weights(**weights, tres={_resource(name): float(weight) for name, _, weight in tres}),
            max_age_s=_seconds(conf.get("PriorityMaxAge", "7-0"), "PriorityMaxAge"),
            half_life_s=_seconds(conf.get("PriorityDecayHalfLife", "7-0"), "PriorityDecayHalfLife"),
            calc_period_s=60.0 * float(conf.get("PriorityCalcPeriod", 5)),
            fair_share="classic" if "NO_FAIR_TREE" in flags else "tree",
            damping=float(conf.get("FairShareDampeningFactor", 1)),
            favor_small=conf.get("PriorityFavorSmall", "NO").upper() == "YES",
            relative_size="SMALL_RELATIVE_TO_TIME" in flags,
            max_tres="MAX_TRES" in flags,
            accrue_always="ACCRUE_ALWAYS" in flags,
        )


def _seconds(text: str, name: str) -> float:
    return duration_s(f"{text}:00:00" if re.fullmatch(r"\d+-\d+", text) else text, name) or 0.0


def _resource(name: str) -> str:
    """Return dagsim's name of a Slurm resource."""
    names = {"cpu": "cpus", "mem": "memory_gb", "gres/gpu": "gpus"}
    if name.lower() not in names:
        raise TraceError(f"slurm.conf weighs {name!r}; expected {', '.join(names)}")
    return names[name.lower()]


def _billed(weights: str) -> dict[str, float]:
    """Parse TRESBillingWeights. Memory has a unit and is counted in GB."""
    billing = {}
    for name, _, weight in [pair.partition("=") for pair in weights.strip('"').split(",") if pair]:
        number = float(weight.rstrip("KMGTPkmgtp"))
        unit = name.lower() == "mem" and weight[-1].isalpha()
        billing[_resource(name)] = number / memory_gb(f"1{weight[-1]}") if unit else number
    return billing


def read_site(folder: Path) -> Site:
    conf: dict[str, str] = {}
    partitions = []
    for line in (folder / "slurm.conf").read_text(encoding="utf-8").splitlines():
        if line.startswith("PartitionName="):
            partitions.append(_partition(dict(word.split("=", 1) for word in _WORDS.findall(line) if "=" in word)))
        elif "=" in line and not line.startswith(("#", "NodeName=")):
            key, _, value = line.partition("=")
            conf[key.strip()] = value.strip()
    partitions.sort(key=lambda pair: not pair[0])
    qos = [Qos(row["Name"], float(row["Priority"] or 0)) for row in table(folder / "sacctmgr-qos.txt")]
    nodes = read_nodes(Source(folder / "scontrol-show-nodes.txt"))
    amounts = [sum(node.cpus for node in nodes), sum(node.memory_gb for node in nodes)]
    rows = [row for row in table(folder / "sacctmgr-assoc.txt") if row.get("Priority") and row.get("User")]
    own = {row["User"]: float(row["Priority"]) for row in rows}
    tree, users = _accounts(folder, own)
    return Site(
        conf,
        QueueTree(tree, tuple([partition for _, partition in partitions]), tuple(qos)),
        Capacity(len(nodes), *amounts, sum(count for node in nodes for _, count in node.gpus)),
        nodes,
        users,
    )


def _partition(conf: Mapping[str, str]) -> tuple[bool, NodePartition]:
    """Return a partition, and True if it is the default."""
    return conf.get("Default", "NO").upper() == "YES", NodePartition(
        conf["PartitionName"],
        hosts(conf["Nodes"]) if conf.get("Nodes", "ALL").upper() != "ALL" else (),
        float(conf.get("PriorityJobFactor", 1)),
        int(conf.get("PriorityTier", 1)),
        _minutes_s(conf.get("MaxTime")),
        _minutes_s(conf.get("DefaultTime")),
        conf.get("OverSubscribe", "").upper() == "EXCLUSIVE",
        _billed(conf.get("TRESBillingWeights", "")),
    )


def _minutes_s(text: str | None) -> float | None:
    if text is None or text.upper() in ("UNLIMITED", "INFINITE"):
        return None
    return 60.0 * float(text) if text.isdigit() else _seconds(text, "MaxTime")


def _accounts(folder: Path, own: Mapping[str, float]) -> tuple[tuple[QueueNode, ...], dict[str, str]]:
    """Return the tree of ``sshare`` with priorities of users' ``own``, and the association of each
    user.

    The indentation of names gives the tree.
    """
    below: dict[str, list[str]] = {}
    shares: dict[str, float] = {}
    members: dict[str, dict[str, float]] = {}
    users: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for row in table(folder / "sshare.txt"):
        name, user = row["Account"].strip(), row["User"]
        depth = len(row["Account"]) - len(row["Account"].lstrip())
        if name == "root" and not user:
            above = [(-1, "root")]
            continue
        if user:
            users[user] = f"{name}/{user}"
            members.setdefault(name, {})[user] = float(row["RawShares"])
            continue
        while above[-1][0] >= depth:
            above.pop()
        below.setdefault(above[-1][1], []).append(name)
        shares[name] = float(row["RawShares"])
        above.append((depth, name))

    def node(name: str) -> QueueNode:
        children = tuple([node(child) for child in below.get(name, ())])
        there = members.get(name, {})
        worth = {user: own[user] for user in there if user in own}
        return QueueNode(name, shares[name], users=there, user_priorities=worth, children=children)

    return tuple([node(name) for name in below.get("root", ())]), users


def table(path: Path) -> list[dict[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[0].split("|")
    return [dict(zip(header, line.split("|"), strict=False)) for line in lines[1:] if line.strip()]

"""The configuration of a Slurm site, as a configuration of dagsim."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from dagsim.errors import InputError, TraceError
from dagsim.families.site.node_lists import FoundNode, ImportedSite
from dagsim.families.slurm.site.controller_log import ControllerLog, OutageKind, SingleOutage
from dagsim.families.slurm.site.scheduler_parameters import scheduler_of
from dagsim.families.slurm.site.slurm_power import power_rules
from dagsim.families.slurm.site.slurm_site_values import (
    OF_USERS,
    as_gres,
    caps_of,
    caps_of_user,
    drop_unused,
    gres_gpus,
    job_caps_of,
    naming,
    partition_of,
    qos_of,
    reservation_of,
    shares_of,
)
from dagsim.model import NodeOutage, QueueNode, QueueTree
from dagsim.model.arithmetic import whole_sum
from dagsim.sections import Registered
from dagsim.systems.cluster.network import NETWORKS
from dagsim.text import count_of
from dagsim.traces.fields import count, finite_number
from dagsim.traces.sites import folded

_ENDLESS_GB = 1e6
"""Memory of a node on which memory is not limited."""


class TopologySwitch(NamedTuple):
    """A switch or a block in topology.conf, and the nodes or switches below it."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


@dataclass(slots=True)
class SlurmSite(ImportedSite):
    """The contents of a site's files. ``conf`` contains the keys of slurm.conf in lower case."""

    policy = "slurm-multifactor"
    conf: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    partitions: dict[str, dict[str, str]] = field(default_factory=dict)
    listed: dict[str, FoundNode] = field(default_factory=dict)
    """Nodes from scontrol or sinfo, which take precedence over slurm.conf."""
    gres: dict[str, list[tuple[str, int | None]]] = field(default_factory=dict)
    """Types and numbers of GPUs by node, from gres.conf; lines for all nodes have an empty name."""
    reservations: dict[str, dict[str, str]] = field(default_factory=dict)
    licences: dict[str, float] = field(default_factory=dict)
    qos: dict[str, dict[str, str]] = field(default_factory=dict)
    accounts: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    """For each account, its parent and its settings."""
    users: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """Settings of each user, by account and user."""
    outages: list[SingleOutage] = field(default_factory=list)
    log: ControllerLog = field(default_factory=ControllerLog)
    """The facts in slurmctld's log."""
    bf_cycle_s: float | None = None
    """Mean time that a backfill cycle takes, from sdiag."""
    switches: dict[str, TopologySwitch] = field(default_factory=dict)
    blocks: list[str] = field(default_factory=list)
    """Names of those switches that are blocks."""
    block_sizes: list[int] = field(default_factory=list)
    """Numbers of nodes in blocks and in groups of blocks."""
    disagreements: dict[str, dict[str, None]] = field(default_factory=dict)
    """Nodes for which slurm.conf and gres.conf differ, by the difference."""
    zone: ZoneInfo | None = None
    """Time zone of dates without an offset; UTC if None."""
    named: dict[str, str] = field(default_factory=dict)

    @property
    def has_queues(self) -> bool:
        return bool(self.conf or self.partitions)

    @property
    def cluster_name(self) -> str:
        return self.conf.get("clustername", "")

    def found_nodes(self) -> list[FoundNode]:
        """Return all nodes, in the order of slurm.conf.

        Raises:
            TraceError: No file lists nodes, or two files describe different clusters.
        """
        nodes = {name: self._configured(name, fields) for name, fields in self.nodes.items()}
        for says, names in self.disagreements.items():
            self.drop(f"{'node' if len(names) == 1 else 'nodes'} {folded(names)}: {says}")
        if self.nodes and self.listed:
            strangers = [name for name in self.listed if name not in self.nodes]
            if len(strangers) * 2 > len(self.listed):
                raise TraceError(
                    f"the list of nodes belongs to another cluster: {strangers[0]!r} and "
                    f"{len(strangers) - 1} others are "
                    "not in slurm.conf; keep only the files of one cluster in the folder"
                )
            for name in strangers:
                self.drop(f"node {name}: listed, but not in slurm.conf; kept")
        nodes |= self.listed
        if not nodes:
            raise TraceError("no file lists nodes; add slurm.conf or the output of `scontrol show nodes`")
        states = {name: f"{self.nodes.get(name, {}).get('state', '')}+{node.state}" for name, node in nodes.items()}
        powered = power_rules(self.conf, self.partitions, states, self.log.boot_s, self.drop)
        nodes = {name: replace(node, on_demand=powered.get(name)) for name, node in nodes.items()}
        if not self.counts_memory():
            self.drop("memory is not a consumable resource (SelectTypeParameters), so it limits nothing")
            return [replace(node, memory_gb=_ENDLESS_GB) for node in nodes.values()]
        return list(nodes.values())

    def counts_memory(self) -> bool:
        """Return True if memory is a consumable resource."""
        kinds = self.conf.get("selecttypeparameters", "CR_Core_Memory")
        return "memory" in kinds.lower()

    def enforces(self) -> bool:
        """Return True if slurmctld enforces the limits of associations and QOS.
        AccountingStorageEnforce decides this. If it is not set, assume that the limits are
        enforced.
        """
        stated = self.conf.get("accountingstorageenforce", "")
        return not stated or bool(set(stated.lower().split(",")) & {"limits", "safe", "all"})

    def queues(self, named: Mapping[str, str] | None = None) -> QueueTree:
        """Return the accounts, partitions, QOS, reservations, licences and scheduler parameters.
        ``named`` maps the names that the site uses for GPU types to those that dagsim uses.

        Raises:
            TraceError: A value cannot be read.
        """
        self.named = dict(named or {})
        whole = "linear" in self.conf.get("selecttype", "")
        names = {node.name for node in self.found_nodes()}
        if not self.enforces():
            self.drop(
                f"AccountingStorageEnforce={self.conf['accountingstorageenforce']}: slurmctld does not enforce the "
                "limits of accounts and QOS, so they are left out"
            )
        elif (self.accounts or self.qos) and not self.conf.get("accountingstorageenforce"):
            self.drop("AccountingStorageEnforce is not stated; the limits of accounts and QOS are taken as enforced")
        qos = {name: qos_of(self, name, row) for name, row in self.qos.items()}
        partitions = sorted(
            [
                (row.get("default", "").upper() != "YES", place, name)
                for place, (name, row) in enumerate(self.partitions.items())
            ]
        )
        return QueueTree(
            tuple([self._account(name) for name, (parent, _) in self.accounts.items() if parent == "root"]),
            tuple([partition_of(self, name, self.partitions[name], qos, names, whole) for _, _, name in partitions]),
            tuple(qos.values()),
            tuple(filter(None, [reservation_of(self, name, row) for name, row in self.reservations.items()])),
            self._outages(names),
            tuple(self.log.suspensions),
            dict(self.licences),
            scheduler_of(self),
        )

    def restarts(self, queues: QueueTree) -> bool:
        """Return True if a preempted job is requeued (PreemptMode), so that it starts again from
        the beginning. If jobs may also be suspended, and would then continue, report that this is
        not modelled.
        """
        modes = {owner.preempt for owner in queues.partitions}
        if queues.scheduler.get("preempt", "off") == "qos":
            modes = {owner.preempt for owner in queues.qos}
        if "requeue" in modes and "suspend" in modes:
            self.drop("PreemptMode: suspended jobs start again from the beginning here, as requeued jobs do")
        return "requeue" in modes and queues.scheduler.get("preempt", "off") != "off"

    def network(self, names: Sequence[str]) -> dict[str, Any] | None:
        """Return the switches in topology.conf as a shared network between the cluster's nodes
        ``names``. Return None if the switches are not a single tree that contains all nodes.
        """
        if not self.switches:
            return None
        parts: dict[str, list[str]] = {}
        for name in names:
            # A node with several GPU types becomes several nodes in the model, called
            # ``name:type``.
            parts.setdefault(name.partition(":")[0], []).append(name)
        strangers = sorted({node for switch in self.switches.values() for node in switch.nodes if node not in parts})
        if strangers:
            self.drop(
                f"topology.conf: {count_of(len(strangers), 'node that is', 'nodes that are')} not in the cluster, "
                f"such as {strangers[0]}"
            )
        switches = [
            switch._replace(nodes=tuple([part for node in switch.nodes for part in parts.get(node, ())]))
            for switch in self.switches.values()
        ]
        levels = self._join_blocks(switches)
        lean = [
            {"name": switch.name}
            | ({"nodes": list(switch.nodes)} if switch.nodes else {})
            | ({"switches": list(switch.switches)} if switch.switches else {})
            for switch in switches
        ]
        topology = {"kind": "tree", "switches": lean} | ({"levels_up": levels} if levels else {})
        network = {"kind": "shared", "topology": topology}
        try:
            Registered(NETWORKS).read(network).topology.routing(names)
        except InputError as error:
            self.drop(f"topology.conf: not modelled as a network: {error}")
            return None
        self.drop("topology.conf: jobs are not placed by switches, and the bandwidths of the network are defaults")
        return network

    def _join_blocks(self, switches: list[TopologySwitch]) -> list[str]:
        """Put neighbouring blocks below a common switch. BlockSizes lists the sizes of these groups
        after its first number. Return the names of the levels: ``block``, ``block2`` for pairs of
        blocks, and so on.
        """
        if not self.blocks:
            return []
        base, *larger = self.block_sizes or [1]
        levels, names, joined = ["block"], self.blocks, 1
        for size in larger:
            factor = size // base
            if size % base or factor % joined or factor == joined:
                self.drop(f"topology.conf: BlockSizes {size}: not a multiple of the previous sizes")
                continue
            parts = [names[first : first + factor // joined] for first in range(0, len(names), factor // joined)]
            names = [f"blocks{factor}-{number}" for number in range(1, len(parts) + 1)]
            switches += [TopologySwitch(name, switches=tuple(part)) for name, part in zip(names, parts, strict=True)]
            levels.append(f"block{factor}")
            joined = factor
        if len(names) > 1:
            switches.append(TopologySwitch("blocks", switches=tuple(names)))
        return levels

    def _outages(self, names: Collection[str]) -> tuple[NodeOutage, ...]:
        """Return the outages of the cluster's nodes. Nodes with the same times are grouped."""
        alike: dict[tuple[float, float | None, OutageKind], list[str]] = {}
        for outage in self.outages:
            if outage.node in names:
                alike.setdefault(outage[1:], []).append(outage.node)
        if strangers := {outage.node for outage in self.outages if outage.node not in names}:
            self.drop(
                f"sacctmgr show event: {count_of(len(strangers), 'node that is', 'nodes that are')} not in the "
                f"cluster, such as {min(strangers)}"
            )
        times = sorted(alike, key=lambda key: (key[0], key[2], key[1] or 0.0))
        return tuple([NodeOutage(tuple(alike[key]), *key) for key in times])

    def _configured(self, name: str, fields: Mapping[str, str]) -> FoundNode:
        with naming(f"node {name}"):
            boards, sockets, cores, threads, cpus = (
                count(fields.get(key) or "1", key, 0)
                for key in ("boards", "sockets", "corespersocket", "threadspercore", "cpus")
            )
            memory_mb, reserved_mb = (
                finite_number(fields.get(key, least), key)
                for key, least in (("realmemory", "1"), ("memspeclimit", "0"))
            )
            gpus = self._gpus_of(name, gres_gpus(fields.get("gres", "")))
            weight = finite_number(fields.get("weight", "1"), "weight")
        return FoundNode(
            name,
            gpus,
            cpus if fields.get("cpus") else boards * sockets * cores * threads,
            max(0.0, memory_mb - reserved_mb) / 1024,
            fields.get("state", "UNKNOWN"),
            True,
            features=tuple(filter(None, re.split("[,&]", fields.get("features") or fields.get("feature", "")))),
            weight=weight,
        )

    def _gpus_of(self, name: str, stated: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        """Return the GPUs of a node. Their number is ``stated`` in slurm.conf, and gres.conf adds
        their types.
        """
        lines = self.gres.get(name) or (self.gres.get("", []) if stated else [])
        if not lines:
            return stated
        total, listed = whole_sum(size for _, size in stated), dict[str, int]()
        alone = len(lines) == 1 and lines[0][1] is None
        for kind, size in lines:
            listed[kind] = listed.get(kind, 0) + ((total or 1) if alone else 1 if size is None else size)
        found = tuple([pair for pair in listed.items() if pair[1]])
        number = whole_sum(listed.values())
        if not stated:
            says = f"gres.conf has {as_gres(found)} but slurm.conf no Gres=gpu, which Slurm needs; gres.conf is used"
        elif any(kind for kind, _ in stated):
            differ = number != total or (all(kind for kind, _ in found) and {*listed} != {kind for kind, _ in stated})
            says = f"slurm.conf has {as_gres(stated)} and gres.conf {as_gres(found)}; slurm.conf is used"
            if not differ:
                return stated
            found = stated
        elif number == total:
            return found
        else:
            says = f"slurm.conf has {as_gres(stated)} and gres.conf {as_gres(found)}; the number in slurm.conf is used"
            found = ((next(iter(listed)), total),) if len(listed) == 1 else stated
        self.disagreements.setdefault(says, {})[name] = None
        return found

    def _account(self, name: str) -> QueueNode:
        row = self.accounts[name][1]
        drop_unused(self, f"account {name}", row, OF_USERS)
        users = {user: fields for (account, user), fields in self.users.items() if account == name}
        for user, fields in users.items():
            drop_unused(self, f"account {name}, user {user}", fields, OF_USERS)
        with naming(f"account {name}"):
            own = {user: caps for user, fields in users.items() if (caps := caps_of_user(self, fields))}
            priority = finite_number(row.get("priority") or "0", "priority")
            priorities = {
                user: finite_number(fields["priority"], "priority")
                for user, fields in users.items()
                if fields.get("priority")
            }
            limits = caps_of(self, row.get("grptres", ""), row.get("grpjobs", ""), row.get("grptresmins", ""))
            user_limits = caps_of(self, "", row.get("maxjobs", ""))
            job_limits = job_caps_of(self, row)
            of_users = {user: job_caps_of(self, fields) for user, fields in users.items()}
        return QueueNode(
            name=name,
            weight=shares_of(row),
            priority=priority,
            users={user: shares_of(fields) for user, fields in users.items()},
            user_priorities=priorities,
            limits=limits,
            user_limits=user_limits,
            limits_of=own,
            job_limits=job_limits,
            job_limits_of={user: caps for user, caps in of_users.items() if caps and caps != job_limits},
            children=tuple([self._account(child) for child, (parent, _) in self.accounts.items() if parent == name]),
        )

"""The configuration of a Slurm site, read from its files and listings.

Each file is recognised by its content: ``slurm.conf`` with its includes, ``gres.conf``,
``topology.conf``, listings of ``scontrol show`` (config, partition, node, reservation, license) and
of ``sacctmgr`` (``dump``, ``show assoc``, ``show qos``, ``show event``), and slurmctld's log. A
listing of ``scontrol`` shows the settings that the controller uses, so it takes precedence over
``slurm.conf``. Settings are interpreted according to slurm.conf(5) and sacctmgr(1), version 24.11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from dagsim.errors import InputError, TraceError
from dagsim.families.site.node_lists import MOST_NODES, FoundNode, ImportedSite, read_nodes
from dagsim.families.slurm.accounting import delimiter_of
from dagsim.families.slurm.controller_log import ControllerLog, is_controller_log, read_controller_log
from dagsim.families.slurm.slurm_nodes import is_scontrol, is_scontrol_json, is_sinfo
from dagsim.families.slurm.slurm_power import power_rules
from dagsim.families.slurm.slurm_site_values import (
    OF_USERS,
    TOPMOST,
    as_gres,
    caps_of,
    caps_of_user,
    drop_unused,
    gres_gpus,
    hosts_of,
    job_caps_of,
    licences_of,
    naming,
    partition_of,
    qos_of,
    reservation_of,
    scheduler_of,
    shares_of,
)
from dagsim.model import (
    JobSuspension,
    NodeOutage,
    QueueNode,
    QueueTree,
)
from dagsim.model.arithmetic import whole_sum
from dagsim.registry import nearest
from dagsim.sections import Registered
from dagsim.systems.cluster.network import NETWORKS
from dagsim.text import count_of
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.sites import folded
from dagsim.traces.source import Source
from dagsim.traces.times import is_unset, moment_s, span_s

_ENDLESS_GB = 1e6
"""Memory of a node on which memory is not limited."""
_WORD = re.compile(r'(\w[\w/.-]*)\s*=\s*("[^"]*"|\S*)')
_ENTRY = re.compile(r"^\s*(NodeName|PartitionName|NodeSet|DownNodes|FrontendName|SwitchName)\s*=", re.IGNORECASE)


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
    outages: list[tuple[str, float, float | None, str]] = field(default_factory=list)
    """Node, start, end and ``down`` or ``drain``, of each event."""
    log: ControllerLog = field(default_factory=ControllerLog)
    """The facts in slurmctld's log."""
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
            tuple([JobSuspension(*one) for one in (self.log.suspensions if self.log is not None else ())]),
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
        alike: dict[tuple[float, float | None, str], list[str]] = {}
        for node, start_s, end_s, kind in self.outages:
            if node in names:
                alike.setdefault((start_s, end_s, kind), []).append(node)
        if strangers := {node for node, *_ in self.outages if node not in names}:
            self.drop(
                f"sacctmgr show event: {count_of(len(strangers), 'node that is', 'nodes that are')} not in the "
                f"cluster, such as {min(strangers)}"
            )
        times = sorted(alike, key=lambda key: (key[0], key[2], key[1] or 0.0))
        return tuple([NodeOutage(tuple(alike[key]), key[0], key[1], key[2]) for key in times])  # type: ignore[arg-type]

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
            name,
            shares_of(row),
            priority,
            {user: shares_of(fields) for user, fields in users.items()},
            priorities,
            limits,
            user_limits,
            own,
            job_limits,
            {user: caps for user, caps in of_users.items() if caps and caps != job_limits},
            children=tuple([self._account(child) for child, (parent, _) in self.accounts.items() if parent == name]),
        )


def read_slurm_site(files: Sequence[Path], zone: ZoneInfo | None = None) -> SlurmSite:
    """Read the files of a site, ignoring files of other kinds. ``zone`` is the time zone of dates
    that have no offset (default UTC).

    Raises:
        TraceError: A file cannot be read.
    """
    site = SlurmSite(zone=zone)
    kinds = [(file, _kind_of(file)) for file in files]
    copies = {file: other for file, kind in kinds if (other := _copied(file, kind, kinds))}
    kinds = [(file, kind) for file, kind in kinds if file not in copies]
    included = {
        Path(name).name
        for file, kind in kinds
        if copies and kind in _CONFIGURATION
        for name in re.findall(r"^\s*include\s+(\S+)", Source(file).read_bytes().decode(errors="replace"), _LINES)
    }
    for file, other in copies.items():
        if file.name in included:
            site.read.append((file.name, f"a part of {other}"))
        else:
            site.drop(f"{file.name}: not read, because Slurm reads {other} and the files that it includes")
    order = list(_READERS)
    for file, kind in sorted(kinds, key=lambda pair: order.index(pair[1]) if pair[1] in order else len(order)):
        if kind in _READERS:
            site.read.append((file.name, kind))
            with naming(str(file)):
                _READERS[kind](site, file)
    site.unread += [(file.name, "not recognised, or cut off") for file, kind in kinds if not (kind or _is_log(file))]
    return site


_CONFIGURATION = ("slurm.conf", "gres.conf", "topology.conf")
_BACKUP = re.compile(r"[~#.,_ -](?!conf$|txt$|json$|gz$).*|\d+")
_LINES = re.IGNORECASE | re.MULTILINE


def _copied(file: Path, kind: str, kinds: Sequence[tuple[Path, str]]) -> str:
    """Return the name of the file that Slurm reads instead of this one, if this one is only a copy.
    Otherwise, return an empty text. Slurm reads ``slurm.conf`` and similar files by name, and the
    name of a copy usually has a further ending (``slurm.conf.bak``).
    """
    names = {other.name: other_kind for other, other_kind in kinds}
    if kind in _CONFIGURATION and file.name != kind and kind in names:
        return kind
    if kind in _CONFIGURATION and "slurm.conf" in names and _is_copy(file.name, kind):
        return kind
    alike = [name for name, other_kind in names.items() if kind == other_kind]
    return next((name for name in alike if _is_copy(file.name, name)), "")


def _is_copy(name: str, of: str) -> bool:
    """Return True if a file's name is that of another file plus an ending."""
    return name.startswith(of) and _BACKUP.fullmatch(name[len(of) :]) is not None


_WRITTEN = "Configuration data as of"
"""The text that precedes the date in the output of `scontrol show config`."""


def _kind_of(file: Path) -> str:
    """Determine the kind of a file from its first lines. The result is empty if the file is not
    part of Slurm's configuration.
    """
    source = Source(file)
    try:
        head = [line for line in source.head(60) if line.strip()]
    except TraceError:
        return ""
    if not head:
        return ""
    if is_scontrol_json(source):
        return "scontrol show nodes"
    first, text = head[0], "\n".join(head)
    if first.startswith(_WRITTEN):
        return "scontrol show config"
    for word, kind in (("ReservationName=", "reservation"), ("LicenseName=", "license")):
        if first.lstrip().startswith(word):
            return f"scontrol show {kind}"
    if first.startswith("PartitionName=") and re.search(r"^\s+AllowGroups=|\bTotalNodes=", text, re.MULTILINE):
        return "scontrol show partition"
    if re.search(r"^(Cluster|Parent|Account|User) - '", text, re.MULTILINE):
        return "sacctmgr dump"
    names = {name.strip().lower() for name in first.split("|")}
    if {"account", "user", "rawshares"} <= names:
        return "sshare"
    if {"account", "user"} <= names and names & {"share", "fairshare"} and "jobid" not in names:
        return "sacctmgr show assoc"
    if {"name", "priority"} <= names and names & {"maxtrespu", "usagefactor", "preempt", "grptres"}:
        return "sacctmgr show qos"
    if {"nodename", "timestart", "timeend"} <= names:
        return "sacctmgr show event"
    if is_controller_log(head):
        return "slurmctld.log"
    if delimiter_of(source) is not None:
        return ""
    if re.search(r"^\s*(Switch|Block)Name\s*=", text, re.MULTILINE | re.IGNORECASE):
        return "topology.conf"
    if is_sinfo(source) or (is_scontrol(source) and re.search(r"\bCPUTot=|\bCPUAlloc=", text)):
        return "sinfo" if is_sinfo(source) else "scontrol show nodes"
    if re.search(r"^\s*(?:NodeName=\S+\s+)?Name\s*=\s*\w+", text, re.MULTILINE) and "PartitionName" not in text:
        return "gres.conf"
    if "CPUAlloc=" in text:
        return ""  # a node description without State= is incomplete, so the file was cut off
    if re.search(r"^\s*(SlurmctldHost|ControlMachine|ClusterName|PartitionName|NodeName)\s*=", text, re.MULTILINE):
        return "slurm.conf"
    return ""


def _is_log(file: Path) -> bool:
    """Return True if the first line names columns of jobs, or if the file is empty or was cut off."""
    try:
        first = Source(file).head(1)[0].lower()
    except (TraceError, IndexError):
        return True
    return "jobid" in first


def _lines(file: Path, seen: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yield the lines of slurm.conf and of the files that it includes. Continued lines are joined,
    and comments are removed.
    """
    if file in seen or len(seen) > 16:
        raise TraceError(f"{file}: slurm.conf includes itself")
    parts: list[str] = []
    for _, raw in Source(file).lines():
        parts.append(re.sub(r"(?<!\\)#.*", "", raw).rstrip())
        if parts[-1].endswith("\\"):
            parts[-1] = parts[-1][:-1]
            continue
        line = "".join(parts)
        parts.clear()
        included = re.match(r"\s*include\s+(\S+)", line, re.IGNORECASE)
        if included:
            path = file.parent / Path(included[1]).name
            if not path.exists():
                raise TraceError(
                    f"{file}: the file includes {included[1]}, which is not in the folder; add {path.name}"
                )
            yield from _lines(path, (*seen, file))
        elif line.strip():
            yield line.strip()


_KEY_NAMES = """
accountingstoragebackuphost accountingstoragebackupport accountingstorageenforce accountingstorageexternalhost
accountingstoragehost accountingstorageparameters accountingstoragepass accountingstorageport
accountingstoragetres accountingstoragetype accountingstorageuser accountingstoreflags accountingstorejobcomment
acctgatherenergytype acctgatherfilesystemtype acctgatherinfinibandtype acctgatherinterconnecttype
acctgathernodefreq acctgatherprofile acctgatherprofiletype allowspecresourcesusage authaltparameters
authalttypes authinfo authtype backupaddr backupcontroller batchstarttimeout bcastexclude bcastparameters
burstbuffertype certmgrparameters certmgrtype checkpointtype clifilterplugins clustername
communicationparameters completewait controladdr controlmachine corespecplugin cpufreqdef cpufreqgovernors
credtype cryptotype dataparserparameters debugflags defcpupergpu defmempercpu defmempergpu defmempernode
dependencyparameters disablerootjobs eiotimeout enforcepartlimits epilog epilogmsgtime epilogslurmctld
epilogtimeout extsensorsfreq extsensorstype fairsharedampeningfactor fastschedule federationparameters
firstjobid getenvtimeout gpufreqdef gputype grestypes groupupdateforce groupupdatetime hashplugin
healthcheckinterval healthchecknodestate healthcheckprogram httpparsertype inactivelimit interactivestepoptions
jobacctgatherfrequency jobacctgatherparams jobacctgathertype jobcheckpointdir jobcomphost jobcomploc
jobcompparams jobcomppass jobcompport jobcomptype jobcompuser jobcontainertype jobcredentialprivatekey
jobcredentialpubliccertificate jobdefaults jobfileappend jobrequeue jobsubmitplugins keepalivetime killonbadexit
killwait launchparameters launchtype licenses logtimeformat maildomain mailprog mailtype maxarraysize
maxbatchrequeue maxdbdmsgs maxjobcount maxjobid maxmempercpu maxmempernode maxnodecount maxpurgejobs
maxstepcount maxtaskspernode mcsparameters mcsplugin memlimitenforce messagetimeout minjobage mpidefault
mpiparams namespacetype nodefeaturesplugins overtimelimit plugindir plugstackconfig pmixclitmpdirbase
pmixcollfence pmixdebug pmixdirectconn pmixdirectconnearly pmixdirectconnucx pmixdirectsamearch pmixenv
pmixfencebarrier pmixnetdevicesucx pmixtimeout pmixtlsucx powerparameters powerplugin preemptexempttime
preemptmode preemptparameters preempttype prepparameters prepplugins prioritycalcperiod prioritydecayhalflife
priorityfavorsmall priorityflags prioritymaxage priorityparameters prioritysitefactorparameters
prioritysitefactorplugin prioritytype priorityusageresetperiod priorityweightage priorityweightassoc
priorityweightfairshare priorityweightjobsize priorityweightpartition priorityweightqos priorityweighttres
privatedata proctracktype prolog prologepilogtimeout prologflags prologslurmctld prologtimeout
propagateprioprocess propagateresourcelimits propagateresourcelimitsexcept rebootprogram reconfigflags
requeueexit requeueexithold resumefailprogram resumeprogram resumerate resumetimeout resvepilog resvoverrun
resvprolog returntoservice routeplugin sackdparameters sallocdefaultcommand schedulerparameters schedulerport
schedulerrootfilter schedulertimeslice schedulertype scronparameters selecttype selecttypeparameters
slurmctldaddr slurmctlddebug slurmctldhost slurmctldlogfile slurmctldparameters slurmctldpidfile
slurmctldplugstack slurmctldport slurmctldprimaryoffprog slurmctldprimaryonprog slurmctldsyslogdebug
slurmctldtimeout slurmddebug slurmdlogfile slurmdnodename slurmdparameters slurmdpidfile slurmdport
slurmdspooldir slurmdsyslogdebug slurmdtimeout slurmduser slurmschedlogfile slurmschedloglevel slurmuser
srunepilog srunportrange srunprolog statesavelocation stepmgr suspendexcnodes suspendexcparts suspendexcstates
suspendprogram suspendrate suspendtime suspendtimeout switchparameters switchtype taskepilog taskplugin
taskpluginparam taskprolog tcptimeout tlsparameters tlstype tmpfs topologyparam topologyplugin tracewckey
trackwckey treewidth unkillablestepprogram unkillablesteptimeout urlencodedjobcomp usepam vsizefactor waittime
x11parameters
"""
_KEYS = frozenset(_KEY_NAMES.split())
"""The parameters in slurm.conf(5), from versions 17.11 to 24.11, in lower case."""


_NODE_KEYS = """
bcastaddr boards corespeccount corespersocket cpubind cpus cpuspeclist feature features gres
memspeclimit nodeaddr nodehostname parameters port procs realmemory reason restrictedcorespergpu sockets
socketsperboard state threadspercore tmpdisk topology weight
"""
_PARTITION_KEYS = """
allocnodes allowaccounts allowgroups allowqos alternate cpubind default defaulttime defcpupergpu
defmempercpu defmempergpu defmempernode denyaccounts denyqos disablerootjobs exclusivetopo exclusiveuser
gracetime hidden jobdefaults lln maxcpuspernode maxcpuspersocket maxmempercpu maxmempernode maxnodes maxtime
minnodes nodes oversubscribe overtimelimit powerdownonidle preemptmode priority priorityjobfactor
prioritytier qos reqresv resumetimeout rootonly selecttypeparameters shared state suspendtime suspendtimeout
topology tresbillingweights
"""
_ENTRY_KEYS = {"nodename": frozenset(_NODE_KEYS.split()), "partitionname": frozenset(_PARTITION_KEYS.split())}
"""The keys in the lines of nodes and partitions, from the same versions."""


def _read_conf(site: SlurmSite, file: Path) -> None:
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in _lines(file):
        pairs = {key.lower(): value.strip('"') for key, value in _WORD.findall(line)}
        entry = _ENTRY.match(line)
        if entry is None:
            key, _, value = line.partition("=")
            key, value = key.strip().lower(), value.strip().strip('"')
            if key in site.conf and site.conf[key] != value and key != "slurmctldhost":
                site.drop(f"{key}: given twice in slurm.conf; the last value is used")
            if key not in _KEYS:
                site.drop(
                    f"{line.partition('=')[0].strip()[:60]!r} in slurm.conf: there is no such key{nearest(key, _KEYS)}"
                )
            site.conf[key] = value
            continue
        kind = entry[1].lower()
        if kind not in defaults:
            site.drop(f"{entry[1]} in slurm.conf")
            continue
        name = pairs.pop(kind)
        for key in sorted(pairs.keys() - _ENTRY_KEYS[kind]):
            near = nearest(key, _ENTRY_KEYS[kind])
            site.drop(f"{key[:60]!r} of {entry[1]}={name[:60]} in slurm.conf: there is no such key{near}")
        if name.upper() == "DEFAULT":
            defaults[kind] |= pairs
        elif kind == "partitionname":
            site.partitions[name] = defaults[kind] | pairs
        else:
            for host in hosts_of(name, str(file)):
                site.nodes[host] = defaults[kind] | pairs
    for name, total in licences_of(site.conf.get("licenses", "")):
        site.licences[name] = total


def _read_config(site: SlurmSite, file: Path) -> None:
    for number, line in Source(file).lines():
        if line.startswith(_WRITTEN):
            try:
                site.written_s = moment_s(line.removeprefix(_WRITTEN).strip(), "date", site.zone)
            except Dirty as error:
                raise TraceError(f"{file}:{number}: a configuration {error}") from None
        key, equals, value = line.partition("=")
        if equals and key.strip().isidentifier():
            site.conf[key.strip().lower()] = "" if is_unset(value) else value.strip()
    for name, total in licences_of(site.conf.get("licenses", "")):
        site.licences[name] = total


def _read_gres(site: SlurmSite, file: Path) -> None:
    for line in _lines(file):
        pairs = {key.lower(): value.strip('"') for key, value in _WORD.findall(line)}
        if pairs.get("name", "").lower() != "gpu":
            continue
        with naming(str(file)):
            stated = len(hosts_of(pairs.get("file") or pairs.get("multiplefiles", ""), str(file))) or None
            size = count(pairs["count"], "Count", 0) if pairs.get("count") else stated
        for host in hosts_of(pairs["nodename"], str(file)) if "nodename" in pairs else ("",):
            site.gres.setdefault(host, []).append((pairs.get("type", ""), size))


def _read_listed(site: SlurmSite, file: Path) -> None:
    for node in read_nodes(Source(file)):
        stated = site.nodes.get(node.name, {}).get("weight")
        weight = node.weight if stated is None else finite_number(stated, f"weight of {node.name}")
        site.listed.setdefault(node.name, replace(node, weight=weight))


def _read_partitions(site: SlurmSite, file: Path) -> None:
    for block in _blocks(file, "PartitionName"):
        name = block.pop("partitionname")
        site.partitions[name] = site.partitions.get(name, {}) | {
            key: value for key, value in block.items() if not is_unset(value)
        }


def _read_reservations(site: SlurmSite, file: Path) -> None:
    for block in _blocks(file, "ReservationName"):
        name = block["reservationname"]
        first = site.reservations.setdefault(name, block)
        # The file lists each repetition of a recurring reservation. Keep the earliest.
        if (_start_s(site, block) or inf) < (_start_s(site, first) or inf):
            site.reservations[name] = block


def _start_s(site: SlurmSite, block: Mapping[str, str]) -> float | None:
    with suppress(Dirty):
        return moment_s(block.get("starttime", ""), "start", site.zone)
    return None


def _read_log(site: SlurmSite, file: Path) -> None:
    """Read outages of nodes, creation times of reservations, and reservations that no listing
    contains.
    """
    site.log = read_controller_log(file, site.zone)
    known = set(site.outages)
    site.outages += [outage for outage in site.log.outages if outage not in known]
    for name, block in site.log.reservations.items():
        site.reservations.setdefault(name, block)


def _read_licences(site: SlurmSite, file: Path) -> None:
    for block in _blocks(file, "LicenseName"):
        site.licences[block["licensename"]] = finite_number(block.get("total", "0"), "total")


def _blocks(file: Path, first: str) -> Iterator[dict[str, str]]:
    """Yield the blocks that ``scontrol show`` prints. Each block lasts from its first key to the
    next block, and its keys are in lower case."""
    block: dict[str, str] = {}
    for _, line in Source(file).lines():
        if line.lstrip().startswith(f"{first}="):
            if block:
                yield block
            block = {}
        for key, value in _WORD.findall(line):
            block.setdefault(key.lower(), value.strip('"'))
    if block:
        yield block


def _table(file: Path) -> list[dict[str, str]]:
    """Return the rows of ``sacctmgr -P``, with column names in lower case and without spaces."""
    lines = [line for _, line in Source(file).lines() if line.strip()]
    names = [name.strip().lower().replace(" ", "") for name in lines[0].split("|")]
    return [dict(zip(names, map(str.strip, line.split("|")), strict=False)) for line in lines[1:]]


def _of_cluster(site: SlurmSite, rows: list[dict[str, str]], file: Path) -> list[dict[str, str]]:
    """Return the rows in a sacctmgr listing that belong to the site's cluster, which slurm.conf
    names.

    Raises:
        TraceError: All rows belong to other clusters, or the rows belong to several clusters and no
            file names the site's cluster.
    """
    names = dict.fromkeys(row["cluster"].lower() for row in rows if row.get("cluster"))
    ours = site.cluster_name.lower()
    if not names or (not ours and len(names) == 1):
        return rows
    listed = ", ".join(list(names)[:5])
    if not ours:
        raise TraceError(
            f"{file}: the file lists several clusters ({listed}); add slurm.conf, which names the site's cluster"
        )
    if ours not in names:
        raise TraceError(
            f"{file}: the file belongs to a different cluster ({listed}) than slurm.conf ({ours}); keep one of them"
        )
    if len(names) > 1:
        site.drop(f"{file.name}: rows from clusters other than {ours}")
    return [row for row in rows if row.get("cluster", "").lower() in ("", ours)]


def _read_qos(site: SlurmSite, file: Path) -> None:
    for row in _table(file):
        if row.get("name"):
            site.qos[row["name"]] = row


_DUMPED = re.compile(r"^(Cluster|Parent|Account|User) - '([^']*)'(.*)$")
# Values may contain ``=`` and ``:``, such as gres/gpu:a100=1.
_OPTION = re.compile(r":([A-Z]\w+)=('[^']*'|.*?)(?=:(?:[A-Z][a-z]|QOS)\w*=|$)")


def _read_dump(site: SlurmSite, file: Path) -> None:
    parent = "root"
    for _, line in Source(file).lines():
        match = _DUMPED.match(line)
        if match is None:
            continue
        kind, name, rest = match.groups()
        if kind == "Cluster":
            _of_cluster(site, [{"cluster": name}], file)
        row = {key.lower(): value.strip("'") for key, value in _OPTION.findall(rest)}
        if kind == "Parent":
            parent = name
        if kind == "Cluster" or (kind == "Account" and name == "root"):
            drop_unused(site, f"{kind.lower()} {name}", row, TOPMOST)
        elif kind == "Account":
            site.accounts[name] = (parent, row)
        elif kind == "User" and parent != "root":
            site.users.setdefault((parent, name), row)


def _read_sshare(site: SlurmSite, file: Path) -> None:
    """Read shares. The indentation of the accounts gives the tree."""
    lines = [line for _, line in Source(file).lines() if line.strip()]
    above: list[tuple[int, str]] = [(-1, "root")]
    fresh = not site.accounts
    for row, line in zip(_table(file), lines[1:], strict=False):
        account, user, depth = row["account"], row["user"], len(line) - len(line.lstrip())
        shares = {"fairshare": row["rawshares"]}
        if account == "root" or not account:
            continue
        if user:
            site.users.setdefault((account, user), shares)
            continue
        while above[-1][0] >= depth:
            above.pop()
        if fresh:
            site.accounts[account] = (above[-1][1], shares)
        above.append((depth, account))


def _read_assoc(site: SlurmSite, file: Path) -> None:
    """Read associations. The trees in a dump and in the output of sshare take precedence, because
    this listing contains parents only if the command requested them.
    """
    rows = _of_cluster(site, _table(file), file)
    stated = bool(rows) and "parentname" in rows[0]
    fresh, before = not site.accounts, set(site.accounts)
    for row in rows:
        row["fairshare"] = row.get("share") or row.get("fairshare") or "1"
        account, user = row.get("account", ""), row.get("user", "")
        if not account or account == "root":
            continue
        if user and row.get("partition"):
            site.drop(f"account {account}: an association of {user} with the partition {row['partition']}")
        elif user:
            site.users[account, user] = row | site.users.get((account, user), {})
        else:
            parent, columns = site.accounts.get(account, (row.get("parentname") or "root", {}))
            for key in ("fairshare", "grptres", "grpjobs", "maxjobs"):
                if row.get(key) and columns.get(key) and row[key] != columns[key]:
                    site.drop(
                        f"account {account}: {key} is {row[key]} in {file.name}, {columns[key]} "
                        "in a dump or sshare, which is used; one of the files is older"
                    )
            site.accounts[account] = (parent, row | columns)
    listed = {row.get("account", "") for row in rows} - {"", "root"}
    for names, here, there in (
        (before - listed, "a dump or sshare", file.name),
        (listed - before, file.name, "a dump"),
    ):
        if before and names:
            shown = ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
            site.drop(f"accounts in {here}, but not in {there}: {shown}; one of the files is older")
    if fresh and not stated and len(site.accounts) > 1:
        site.drop("sacctmgr show assoc without ParentName: all accounts are taken as children of root (add a dump)")


_MARKS = "*~#!%$@^-"
_DOWN = frozenset({"DOWN", "FAIL", "FAILED", "ERROR", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN", "POWER_DOWN",
                   "REBOOT", "REBOOT_ISSUED"})  # fmt: skip
_DRAIN = frozenset({"DRAIN", "DRAINED", "DRAINING", "DRNG", "FAILING", "MAINT", "INVAL", "INVALID_REG"})


def _read_events(site: SlurmSite, file: Path) -> None:
    """Read events of nodes. An event without a node concerns the whole cluster. An event without an
    end is assumed to continue.
    """
    rows = _table(file)
    ours = {id(row) for row in _of_cluster(site, rows, file)}
    for number, row in enumerate(rows, 2):
        if id(row) not in ours:
            continue
        node, words = row.get("nodename", ""), {word.strip(_MARKS).upper() for word in row.get("state", "").split("+")}
        if is_unset(node):
            continue
        kind = "down" if words & _DOWN else "drain" if words & _DRAIN else ""
        if not kind:
            site.drop(f"sacctmgr show event: state {row.get('state', '')!r}")
            continue
        try:
            start_s, end_s = span_s(
                row.get("timestart", ""), row.get("timeend", ""), row.get("duration", ""), site.zone
            )
        except Dirty as error:
            raise TraceError(f"{file}:{number}: an event {error}") from None
        if start_s is None or (end_s is not None and end_s <= start_s):
            site.drop("sacctmgr show event: events without a start, or with an end at their start")
        else:
            site.outages.append((node, start_s, end_s, kind))


def _read_topology(site: SlurmSite, file: Path) -> None:
    for line in _lines(file):
        pairs = {key.lower(): value.strip('"') for key, value in _WORD.findall(line)}
        if "blocksizes" in pairs:
            try:
                site.block_sizes = [int(text) for text in pairs["blocksizes"].split(",")]
            except ValueError:
                site.block_sizes = [0]
            if min(site.block_sizes) < 1 or max(site.block_sizes) > MOST_NODES:
                raise TraceError(f"{file}: BlockSizes must be numbers of nodes, got {pairs['blocksizes'][:80]!r}")
            continue
        name = pairs.get("switchname") or pairs.get("blockname")
        if name is None:
            raise TraceError(f"{file}: a line names neither a switch nor a block: {line[:80]!r}")
        nodes, switches = (
            tuple(dict.fromkeys(hosts_of(pairs.get(key, ""), f"{file}: {name}"))) for key in ("nodes", "switches")
        )
        site.switches[name] = TopologySwitch(name, nodes, switches)
        site.blocks += [name] if "blockname" in pairs else []


_READERS: dict[str, Callable[[SlurmSite, Path], None]] = {
    "slurm.conf": _read_conf,
    "gres.conf": _read_gres,
    "scontrol show config": _read_config,
    "scontrol show nodes": _read_listed,
    "sinfo": _read_listed,
    "scontrol show partition": _read_partitions,
    "scontrol show reservation": _read_reservations,
    "scontrol show license": _read_licences,
    "sacctmgr show qos": _read_qos,
    "sacctmgr dump": _read_dump,
    "sshare": _read_sshare,
    "sacctmgr show assoc": _read_assoc,
    "sacctmgr show event": _read_events,
    "slurmctld.log": _read_log,
    "topology.conf": _read_topology,
}
"""Readers by kind of file, in the order in which they must run."""

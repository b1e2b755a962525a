"""Readers for the files and listings of a Slurm site.

Each file is recognised by its content: ``slurm.conf`` with its includes, ``gres.conf``,
``topology.conf``, listings of ``scontrol show`` (config, partition, node, reservation, license), of
``sacctmgr`` (``dump``, ``show assoc``, ``show qos``, ``show event``) and of ``sdiag``, and
slurmctld's log. A listing of ``scontrol`` shows the settings that the controller uses, so it takes
precedence over ``slurm.conf``. Settings are interpreted according to slurm.conf(5) and sacctmgr(1),
version 24.11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dagsim.errors import TraceError
from dagsim.families.site.node_lists import MOST_NODES, read_nodes
from dagsim.families.slurm.accounting.accounting_rows import delimiter_of
from dagsim.families.slurm.site.controller_log import OutageKind, SingleOutage, is_controller_log, read_controller_log
from dagsim.families.slurm.site.slurm_nodes import is_scontrol, is_scontrol_json, is_sinfo
from dagsim.families.slurm.site.slurm_site import SlurmSite, TopologySwitch
from dagsim.families.slurm.site.slurm_site_values import TOPMOST, drop_unused, hosts_of, licences_of, naming
from dagsim.spelling import nearest
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.source import Source
from dagsim.traces.times import is_unset, moment_s, span_s

_WORD = re.compile(r'(\w[\w/.-]*)\s*=\s*("[^"]*"|\S*)')
_ENTRY = re.compile(r"^\s*(NodeName|PartitionName|NodeSet|DownNodes|FrontendName|SwitchName)\s*=", re.IGNORECASE)


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
    name of a copy usually has an additional suffix (``slurm.conf.bak``)."""
    names = {other.name: other_kind for other, other_kind in kinds}
    if kind in _CONFIGURATION and file.name != kind and kind in names:
        return kind
    if kind in _CONFIGURATION and "slurm.conf" in names and _is_copy(file.name, kind):
        return kind
    alike = [name for name, other_kind in names.items() if kind == other_kind]
    return next((name for name in alike if _is_copy(file.name, name)), "")


def _is_copy(name: str, of: str) -> bool:
    """Return True if a file's name is that of another file plus a suffix."""
    return name.startswith(of) and _BACKUP.fullmatch(name[len(of) :]) is not None


_WRITTEN = "Configuration data as of"
"""The text that precedes the date in the output of `scontrol show config`."""


class _Head(NamedTuple):
    """The first lines of a file."""

    source: Source
    lines: list[str]

    @property
    def first(self) -> str:
        return self.lines[0]

    @property
    def columns(self) -> set[str]:
        """The names in the first line, if it is the header of a table."""
        return {name.strip().lower() for name in self.first.split("|")}

    def has(self, pattern: str, flags: int = 0) -> bool:
        """Return True if the lines contain the pattern."""
        return re.search(pattern, "\n".join(self.lines), re.MULTILINE | flags) is not None


_KINDS: tuple[tuple[str, Callable[[_Head], object]], ...] = (
    ("scontrol show nodes", lambda head: is_scontrol_json(head.source)),
    ("scontrol show config", lambda head: head.first.startswith(_WRITTEN)),
    ("scontrol show reservation", lambda head: head.first.lstrip().startswith("ReservationName=")),
    ("scontrol show license", lambda head: head.first.lstrip().startswith("LicenseName=")),
    (
        "scontrol show partition",
        lambda head: head.first.startswith("PartitionName=") and head.has(r"^\s+AllowGroups=|\bTotalNodes="),
    ),
    ("sacctmgr dump", lambda head: head.has(r"^(Cluster|Parent|Account|User) - '")),
    ("sshare", lambda head: {"account", "user", "rawshares"} <= head.columns),
    (
        "sacctmgr show assoc",
        lambda head: (
            {"account", "user"} <= head.columns
            and head.columns & {"share", "fairshare"}
            and "jobid" not in head.columns
        ),
    ),
    (
        "sacctmgr show qos",
        lambda head: (
            {"name", "priority"} <= head.columns and head.columns & {"maxtrespu", "usagefactor", "preempt", "grptres"}
        ),
    ),
    ("sacctmgr show event", lambda head: {"nodename", "timestart", "timeend"} <= head.columns),
    ("slurmctld.log", lambda head: is_controller_log(head.lines)),
    ("sdiag", lambda head: any(line.startswith("sdiag output at") for line in head.lines[:2])),
    ("", lambda head: delimiter_of(head.source) is not None),
    ("topology.conf", lambda head: head.has(r"^\s*(Switch|Block)Name\s*=", re.IGNORECASE)),
    ("sinfo", lambda head: is_sinfo(head.source)),
    ("scontrol show nodes", lambda head: is_scontrol(head.source) and head.has(r"\bCPUTot=|\bCPUAlloc=")),
    (
        "gres.conf",
        lambda head: head.has(r"^\s*(?:NodeName=\S+\s+)?Name\s*=\s*\w+") and not head.has("PartitionName"),
    ),
    ("", lambda head: head.has("CPUAlloc=")),  # a node description without State= was cut off
    (
        "slurm.conf",
        lambda head: head.has(r"^\s*(SlurmctldHost|ControlMachine|ClusterName|PartitionName|NodeName)\s*="),
    ),
)
"""The kinds of files with their marks, in the order in which these are tried. Files without a kind
are not part of Slurm's configuration."""


def _kind_of(file: Path) -> str:
    """Determine the kind of a file from its first lines (``_KINDS``)."""
    source = Source(file)
    try:
        head = _Head(source, [line for line in source.head(60) if line.strip()])
    except TraceError:
        return ""
    return next((kind for kind, holds in _KINDS if holds(head)), "") if head.lines else ""


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
        # The file lists each occurrence of a recurring reservation. Keep the earliest.
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
    """Yield the blocks that ``scontrol show`` prints. Each block begins with the key ``first``, and
    keys are converted to lower case."""
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
        kind: OutageKind | None = "down" if words & _DOWN else "drain" if words & _DRAIN else None
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
            site.outages.append(SingleOutage(node, start_s, end_s, kind))


def _read_topology(site: SlurmSite, file: Path) -> None:
    for line in _lines(file):
        pairs = {key.lower(): value.strip('"') for key, value in _WORD.findall(line)}
        if "blocksizes" in pairs:
            try:
                site.block_sizes = [int(text) for text in pairs["blocksizes"].split(",")]
            except ValueError:
                site.block_sizes = [0]
            if min(site.block_sizes) < 1 or max(site.block_sizes) > MOST_NODES:
                raise TraceError(
                    f"{file}: BlockSizes must be a list of node counts, such as 4,16, got {pairs['blocksizes'][:80]!r}"
                )
            continue
        name = pairs.get("switchname") or pairs.get("blockname")
        if name is None:
            raise TraceError(f"{file}: a line names neither a switch nor a block: {line[:80]!r}")
        nodes, switches = (
            tuple(dict.fromkeys(hosts_of(pairs.get(key, ""), f"{file}: {name}"))) for key in ("nodes", "switches")
        )
        site.switches[name] = TopologySwitch(name, nodes, switches)
        site.blocks += [name] if "blockname" in pairs else []


def _read_sdiag(site: SlurmSite, file: Path) -> None:
    """Read how long a backfill cycle takes on average (in microseconds in the file)."""
    backfilling = Source(file).read_bytes().decode(errors="replace").partition("Backfilling stats")[2]
    if cycle := re.search(r"^\s*Mean cycle:\s*(\d+)\s*$", backfilling.partition("Latency")[0], re.MULTILINE):
        site.bf_cycle_s = int(cycle[1]) / 1e6


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
    "sdiag": _read_sdiag,
    "slurmctld.log": _read_log,
    "topology.conf": _read_topology,
}
"""Readers by kind of file, in the order in which they must run."""

"""Readers for Slurm's configuration files: ``slurm.conf`` with its includes, ``gres.conf`` and
``topology.conf``. The keys are those in slurm.conf(5), version 24.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dagsim.errors import TraceError
from dagsim.families.site.node_lists import MOST_NODES
from dagsim.families.slurm.site.slurm_site import SlurmSite, TopologySwitch
from dagsim.families.slurm.site.slurm_site_values import hosts_of, licences_of, naming
from dagsim.spelling import nearest
from dagsim.traces.fields import count
from dagsim.traces.source import Source

SETTING = re.compile(r'(\w[\w/.-]*)\s*=\s*("[^"]*"|\S*)')
"""A setting in a file or listing: its key, and its value with any quotes."""
_ENTRY = re.compile(r"^\s*(NodeName|PartitionName|NodeSet|DownNodes|FrontendName|SwitchName)\s*=", re.IGNORECASE)


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


def read_slurm_conf(site: SlurmSite, file: Path) -> None:
    """Read parameters, nodes, partitions and licences."""
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in _lines(file):
        pairs = {key.lower(): value.strip('"') for key, value in SETTING.findall(line)}
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


def read_gres_conf(site: SlurmSite, file: Path) -> None:
    """Read the types and numbers of GPUs by node."""
    for line in _lines(file):
        pairs = {key.lower(): value.strip('"') for key, value in SETTING.findall(line)}
        if pairs.get("name", "").lower() != "gpu":
            continue
        with naming(str(file)):
            stated = len(hosts_of(pairs.get("file") or pairs.get("multiplefiles", ""), str(file))) or None
            size = count(pairs["count"], "Count", 0) if pairs.get("count") else stated
        for host in hosts_of(pairs["nodename"], str(file)) if "nodename" in pairs else ("",):
            site.gres.setdefault(host, []).append((pairs.get("type", ""), size))


def read_topology_conf(site: SlurmSite, file: Path) -> None:
    """Read switches, blocks and the sizes of blocks."""
    for line in _lines(file):
        pairs = {key.lower(): value.strip('"') for key, value in SETTING.findall(line)}
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

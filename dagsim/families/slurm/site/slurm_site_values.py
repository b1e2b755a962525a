"""The conversion of Slurm's settings to dagsim's: limits, partitions, QOS and reservations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dagsim.errors import ModelError, TraceError
from dagsim.model import Caps, JobCaps, NodePartition, NodeReservation, Qos
from dagsim.traces.fields import MOST_GPUS, Dirty, count, finite_number, memory_gb
from dagsim.traces.sites import hosts, site_gpu
from dagsim.traces.times import duration_s, is_unset, span_s

if TYPE_CHECKING:
    from dagsim.families.slurm.site.slurm_site import SlurmSite


MOST = 2**32
"""The largest value of Slurm's limits, which have 32 bits."""
_TRES = {"cpu": "cpus", "mem": "memory_gb", "gres/gpu": "gpus"}
"""The fields of ``Caps`` and ``JobCaps`` by the names of resources in Slurm."""
_PER_JOB = ("maxtresperjob", "maxtrespj", "maxtres")
_NODES_PER_JOB = ("maxnodesperjob", "maxnodes")
_MINUTES_PER_JOB = ("maxtresminsperjob", "maxtresminspj", "maxtresmins", "maxcpumins")
"""Names of the limits of single jobs, in all versions. The first that is set counts."""
OF_USERS = frozenset({"rawshares", "priority", "grptres", "grpjobs", "maxjobs", "grptresmins", *_PER_JOB,
                       *_NODES_PER_JOB, *_MINUTES_PER_JOB})  # fmt: skip
"""Settings of accounts and users that are used."""
TOPMOST: frozenset[str] = frozenset()
"""Settings of the cluster and of the root account that are used: none."""
_OF_QOS = frozenset({"priority", "preempt", "preemptmode", "usagefactor", "grptres", "grpjobs", "maxwall",
                     "maxwalldurationperjob", "maxtrespu", "maxtresperuser", "maxjobspu", "maxjobsperuser", "maxtrespa",
                     "maxtresperaccount", "maxjobspa", "maxjobsperaccount", "grptresmins", *_PER_JOB,
                     *_NODES_PER_JOB, *_MINUTES_PER_JOB})  # fmt: skip
"""Settings of a QOS that are used."""
_IDLE = frozenset({"cluster", "parent", "parentname", "description", "organization", "coordinator", "coordinators",
                   "adminlevel", "defaultaccount", "defaultwckey", "wckeys", "qos", "qoslevel", "defqos", "defaultqos",
                   "id", "user", "account", "partition", "name", "classification", "grpsubmit", "grpsubmitjobs",
                   "maxsubmit", "maxsubmitjobs", "maxsubmitpu", "maxsubmitjobsperuser", "maxsubmitpa",
                   "maxsubmitjobsperaccount", "gracetime", "usagethres", "usage", "comment", "lineage",
                   "flags", "preemptexempttime", "norm_shares", "normshares", "rawusage", "normusage", "effectvusage",
                   "fairshare", "share", "levelfs", "grptresraw", "tresrunmins", "effectvusg", "normusg"})  # fmt: skip
"""Settings of associations and QOS that have no effect on when the jobs in a log start."""
_PLAIN_PARTITION = {"minnodes": "1", "maxcpuspernode": "UNLIMITED",
                    "maxcpuspersocket": "UNLIMITED", "maxmempernode": "UNLIMITED", "maxmempercpu": "UNLIMITED",
                    "exclusiveuser": "NO", "exclusivetopo": "NO", "reqresv": "NO",
                    "state": "UP"}  # fmt: skip
"""Partition keys that have no effect here, with the values for which they have none in Slurm."""
_Mode: TypeAlias = Literal["off", "requeue", "cancel", "suspend"]
_MODES: dict[str, _Mode] = {"requeue": "requeue", "cancel": "cancel", "suspend": "suspend"}
"""How jobs are preempted, by the words of PreemptMode. ``off`` stands for all others."""
_REPEATED_S = {"HOURLY": 3600.0, "DAILY": 86400.0, "WEEKLY": 7 * 86400.0}
"""Periods of reservations that repeat, by their flags."""


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn an error about an unreadable value into a TraceError whose message starts with
    ``what``."""
    try:
        yield
    except Dirty as error:
        raise TraceError(f"{what}: {str(error).removeprefix('with ')}") from None


def gres_gpus(text: str) -> tuple[tuple[str, int], ...]:
    """Parse the types and numbers of GPUs in ``gpu:a100:8(S:0-1),shard:a100:8``. Without a number,
    it is 1. Brackets are removed first, because they may contain commas.

    Raises:
        Dirty: A number cannot be read or is too large.
    """
    gpus: dict[str, int] = {}
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        kind, *rest = [word for word in part.strip().split(":") if word != "no_consume"]
        if kind == "gpu":
            model = rest[0] if rest and not rest[0].isdecimal() else ""
            size = rest[-1] if len(rest) > bool(model) else "1"
            gpus[model] = gpus.get(model, 0) + count(size, "number of GPUs", 0, MOST_GPUS)
    return tuple([pair for pair in gpus.items() if pair[1]])


def as_gres(gpus: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"gpu:{kind}:{size}" if kind else f"gpu:{size}" for kind, size in gpus)


def hosts_of(text: str, where: str) -> tuple[str, ...]:
    try:
        return hosts(text)
    except ValueError as error:
        raise TraceError(f"{where}: {error}") from None


def licences_of(text: str) -> Iterator[tuple[str, float]]:
    for part in text.split(",") if not is_unset(text) else ():
        name, _, number = part.strip().replace("=", ":").partition(":")
        yield name, finite_number(number or "1", "licences")


def shares_of(row: Mapping[str, str]) -> float:
    """Return the fair-share of an association, or 1 if it is not a number (such as ``parent``)."""
    text = row.get("fairshare", "1")
    return float(text) if re.fullmatch(r"\d+", text) else 1.0


def _minutes_s(text: str | None) -> float | None:
    """Convert a time limit, given in minutes or as ``[DD-]HH:MM:SS``, to seconds. Return None if
    there is no limit.
    """
    if text is None or _is_unlimited(text):
        return None
    return 60.0 * float(text) if text.isdecimal() else slurm_seconds(text)


def slurm_seconds(text: str) -> float:
    """Convert a duration to seconds, such as ``7-0``, ``7-00:00``, ``1-02:03:04``, ``08:00`` or
    minutes.
    """
    if text.isdecimal():
        return 60.0 * float(text)
    days, dash, rest = text.partition("-")
    parts = [finite_number(part or "0", "duration") for part in (rest if dash else text).split(":")]
    if dash:  # DD-HH, DD-HH:MM, DD-HH:MM:SS
        hours, minutes, seconds = (*parts, 0.0, 0.0)[:3]
        return finite_number(days, "duration") * 86400 + hours * 3600 + minutes * 60 + seconds
    return duration_s(text, "duration") or 0.0


def caps_of(site: SlurmSite, tres: str, jobs: str = "", minutes: str = "") -> Caps:
    """Return the limits on what the jobs of an account, user or QOS may hold together, unless the
    site does not enforce limits. ``tres`` and ``minutes`` are lists such as ``cpu=96,node=2``.
    """
    if not site.enforces():
        return Caps()
    amounts: dict[str, Any] = {}
    by_type: dict[str, float] = {}
    for name, value in _stated_tres(tres):
        if name.startswith("gres/gpu:"):
            by_type[site_gpu(name.partition(":")[2], site.named)] = finite_number(value, name)
        elif name == "node":
            amounts["nodes"] = count(value, name, 0, MOST)
        elif name not in _TRES:
            site.drop(f"a limit on {name}")
        else:
            amounts[_TRES[name]] = memory_gb(value) if name == "mem" else finite_number(value, name)
    most = count(jobs, "limit of jobs", 0, MOST) if jobs and jobs != "-1" else None
    return Caps(**amounts, jobs=most, gpus_of=by_type, minutes=_minutes_of(site, minutes))


def _stated_tres(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names (in lower case) and values in a list such as ``cpu=96,node=2``, except unset
    values.
    """
    for part in text.split(",") if text else ():
        name, _, value = part.partition("=")
        if value not in ("", "-1"):
            yield name.strip().lower(), value


def _first(row: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the value of the first of these keys that has a value."""
    return next((row[key] for key in keys if row.get(key)), "")


def job_caps_of(site: SlurmSite, row: Mapping[str, str]) -> JobCaps:
    """Return the limits for single jobs: MaxTRESPerJob, MaxNodes, MaxTRESMinsPerJob."""
    if not site.enforces():
        return JobCaps()
    amounts: dict[str, float] = {}
    for name, value in _stated_tres(_first(row, _PER_JOB)):
        of = "nodes" if name == "node" else _TRES.get(name)
        if of is None:
            site.drop(f"a limit of one job on {name}")
        else:
            amounts[of] = memory_gb(value) if of == "memory_gb" else finite_number(value, name)
    nodes = _first(row, _NODES_PER_JOB)
    if nodes and nodes != "-1":
        amounts["nodes"] = min(finite_number(nodes, "maxnodes"), amounts.get("nodes", inf))
    return JobCaps(**amounts, minutes=_minutes_of(site, _first(row, _MINUTES_PER_JOB)))


def _minutes_of(site: SlurmSite, text: str) -> dict[str, float]:
    """Return the limits in a list of resource-minutes such as ``cpu=6000,mem=1024``, where ``mem`` is
    in megabytes.
    """
    minutes: dict[str, float] = {}
    for name, value in _stated_tres(text):
        if name not in _TRES and name != "node":
            site.drop(f"a limit on minutes of {name}")
        else:
            per = 1 / 1024 if name == "mem" else 1.0
            minutes["nodes" if name == "node" else _TRES[name]] = finite_number(value, name) * per
    return minutes


def caps_of_user(site: SlurmSite, row: Mapping[str, str]) -> Caps:
    """Return the limits of a user's association, with the smaller one of ``MaxJobs`` and ``GrpJobs``."""
    jobs = [
        count(text, "limit of jobs", 0, MOST)
        for text in (row.get("maxjobs"), row.get("grpjobs"))
        if text and text != "-1"
    ]
    return caps_of(site, row.get("grptres", ""), str(min(jobs)) if jobs else "", row.get("grptresmins", ""))


def drop_unused(site: SlurmSite, owner: str, row: Mapping[str, str], used: Collection[str]) -> None:
    """Report settings of an association or QOS that are set but have no effect in dagsim."""
    for key, value in row.items():
        if value not in ("", "-1", "0", "00:00:00", "1.000000") and key not in used and key not in _IDLE:
            site.drop(f"{owner}: {key}={value}")


def partition_of(
    site: SlurmSite, name: str, row: Mapping[str, str], qos: Mapping[str, Qos], names: set[str], whole: bool
) -> NodePartition:
    """Return a partition. ``row`` contains its settings in slurm.conf, ``names`` all nodes of the
    site, and ``whole`` is True if all partitions give whole nodes to jobs.

    Raises:
        TraceError: A node of the partition is in no list of nodes, or a value cannot be read.
    """
    owner, listed = f"partition {name}", row.get("nodes", "ALL")
    nodes = () if listed.upper() == "ALL" else hosts_of("" if is_unset(listed) else listed, owner)
    if strangers := [node for node in nodes if node not in names]:
        raise TraceError(f"{owner}: no list of nodes contains {strangers[0]!r}; add slurm.conf")
    for key, plain in _PLAIN_PARTITION.items():
        if row.get(key, plain).upper() not in (plain, "NONE", "0"):
            site.drop(f"{owner}: {key}={row[key]}")
    own = row.get("qos", "")
    if own and own not in qos:
        site.drop(f"{owner}: qos={own}, which no file describes (add `sacctmgr -P show qos`)")
    shared = (row.get("oversubscribe") or row.get("shared") or "NO").lower()
    if shared.startswith(("force", "yes")) and not shared.endswith(":1"):
        site.drop(f"{owner}: oversubscribe={row.get('oversubscribe') or row['shared']}: jobs do not share CPUs here")
    grace, most_nodes = row.get("gracetime", "0").removesuffix(" sec"), row.get("maxnodes", "")
    mode = _mode(site, owner, row.get("preemptmode") or site.conf.get("preemptmode", "off"))
    with naming(owner):
        return NodePartition(
            name=name,
            nodes=nodes,
            priority=finite_number(row.get("priorityjobfactor") or row.get("priority") or "1", "priorityjobfactor"),
            tier=count(row.get("prioritytier") or row.get("priority") or "1", "prioritytier", 0, MOST),
            max_time_s=_minutes_s(row.get("maxtime")),
            default_time_s=_minutes_s(row.get("defaulttime")),
            exclusive=whole or "exclusive" in shared,
            billing=_billed(site, row.get("tresbillingweights", "")),
            preempt=mode,
            qos=own if own in qos else "",
            job_limits=JobCaps(nodes=None if _is_unlimited(most_nodes) else finite_number(most_nodes, "maxnodes")),
            accounts=_names(row.get("allowaccounts", "")),
            denied_accounts=_names(row.get("denyaccounts", "")),
            allowed_qos=_names(row.get("allowqos", "")),
            denied_qos=_names(row.get("denyqos", "")),
            grace_s=finite_number(grace, "gracetime") if grace.isdecimal() else slurm_seconds(grace),
            spreads=row.get("lln", "no").upper() == "YES",
        )


def _is_unlimited(text: str) -> bool:
    return is_unset(text) or text.upper() in ("UNLIMITED", "INFINITE")


def _names(text: str) -> tuple[str, ...]:
    """Return the names of accounts or QOS. The values ``ALL`` and ``NONE`` and an unset value mean
    that there is no rule.
    """
    return (
        () if is_unset(text) or text.upper() in ("ALL", "NONE") else tuple([name.strip() for name in text.split(",")])
    )


def _mode(site: SlurmSite, owner: str, stated: str) -> _Mode:
    """Return how jobs are preempted. For ``GANG,SUSPEND``, this is the second word."""
    mode: _Mode = "off"
    for word in stated.lower().split(","):
        if word in _MODES:
            mode = _MODES[word]
        elif word not in ("off", "", "cluster"):
            site.drop(f"{owner}: preemptmode={word}")
    return mode


def _billed(site: SlurmSite, weights: str) -> dict[str, float]:
    """Parse TRESBillingWeights (by default 1 per CPU). The weight of memory may have a unit, and is
    converted to a weight per GB.
    """
    billing: dict[str, float] = {"cpus": 1.0} if is_unset(weights) else {}
    for part in weights.strip('"').split(",") if not is_unset(weights) else ():
        name, _, weight = part.partition("=")
        if name.lower() not in _TRES:
            site.drop(f"TRESBillingWeights of {name}")
            continue
        number = finite_number(weight.rstrip("KMGTPkmgtp") or "0", "tresbillingweights")
        per = memory_gb(f"1{weight[-1]}" if weight[-1:].isalpha() else "1M") if name.lower() == "mem" else 1.0
        billing[_TRES[name.lower()]] = number / per
    return billing


def qos_of(site: SlurmSite, name: str, row: Mapping[str, str]) -> Qos:
    """Return a QOS. ``row`` contains its columns of ``sacctmgr show qos``."""
    drop_unused(site, f"QOS {name}", row, _OF_QOS)
    flags = [flag for flag in row.get("flags", "").split(",") if flag and flag not in ("DenyOnLimit", "NoDecay")]
    if flags:
        site.drop(f"QOS {name}: flags {','.join(flags)}")
    preempts = tuple([other for other in row.get("preempt", "").split(",") if other in site.qos])
    stated = row.get("preemptmode", "")
    mode = _mode(
        site, f"QOS {name}", site.conf.get("preemptmode", "off") if stated.lower() in ("", "cluster") else stated
    )
    with naming(f"QOS {name}"):
        return Qos(
            name=name,
            priority=finite_number(row.get("priority") or "0", "priority"),
            max_time_s=_minutes_s(_first(row, ("maxwall", "maxwalldurationperjob")) or None),
            usage_factor=finite_number(row.get("usagefactor") or "1", "usagefactor"),
            limits=caps_of(site, row.get("grptres", ""), row.get("grpjobs", ""), row.get("grptresmins", "")),
            user_limits=caps_of(
                site, _first(row, ("maxtrespu", "maxtresperuser")), _first(row, ("maxjobspu", "maxjobsperuser"))
            ),
            account_limits=caps_of(
                site, _first(row, ("maxtrespa", "maxtresperaccount")), _first(row, ("maxjobspa", "maxjobsperaccount"))
            ),
            preempts=preempts,
            preempt=mode,
            job_limits=job_caps_of(site, row),
            grace_s=slurm_seconds(row.get("gracetime") or "0"),
            keeps_usage="NoDecay" in row.get("flags", "").split(","),
        )


def reservation_of(site: SlurmSite, name: str, row: Mapping[str, str]) -> NodeReservation | None:
    """Return a reservation, or None if it is left out because it has no nodes or no duration. ``row``
    contains its settings, named as ``scontrol show reservation`` names them.

    Raises:
        TraceError: A value cannot be read.
    """
    flags = row.get("flags", "").split(",")
    for flag in ("WEEKDAY", "WEEKEND", "FLEX", "REPLACE"):
        if flag in flags:
            site.drop(f"reservation {name}: flag {flag}")
    every_s = next((seconds for flag, seconds in _REPEATED_S.items() if flag in flags), None)
    if is_unset(row.get("nodes", "")):
        site.drop(f"reservation {name}: it has no nodes")
        return None
    if any(not is_unset(row.get(key, "")) for key in ("licenses", "features")):
        site.drop(f"reservation {name}: its licences or features")
    try:
        start_s, end_s = span_s(row.get("starttime", ""), row.get("endtime", ""), row.get("duration", ""), site.zone)
        if start_s is None or end_s is None:
            raise Dirty("without a start or an end")
        if end_s <= start_s:
            site.drop(f"reservation {name}: it ends ({row['endtime']}) before it starts ({row['starttime']}); left out")
            return None
        accounts, users = (
            tuple([one for one in row.get(key, "").split(",") if not is_unset(one)]) for key in ("accounts", "users")
        )
        return NodeReservation(
            name=name,
            nodes=hosts_of(row["nodes"], f"reservation {name}"),
            start_s=start_s,
            end_s=end_s,
            every_s=every_s,
            known_s=site.log.made_s.get(name),
            magnetic="MAGNETIC" in flags,
            accounts=accounts,
            users=users,
        )
    except (Dirty, ModelError) as error:
        raise TraceError(f"reservation {name}: {error}") from None

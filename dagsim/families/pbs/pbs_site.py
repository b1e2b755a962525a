"""The configuration of a PBS site, from ``qmgr -c 'print server'`` and ``pbsnodes -a``.

The attributes of OpenPBS and PBS Pro (pbs_queue_attributes(7B), pbs_server_attributes(7B)) and of
Torque are supported. Queues become partitions, whose tiers are the queues' priorities. The limits
of each queue become a separate QOS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

from dagsim.errors import TraceError
from dagsim.families.pbs.pbs_nodes import is_pbs, pbs_memory_gb
from dagsim.families.site.node_lists import FoundNode, ImportedSite, read_nodes
from dagsim.model import Caps, NodePartition, Qos, QueueTree
from dagsim.traces.fields import count
from dagsim.traces.source import Source
from dagsim.traces.times import duration_s

_Read = TypeVar("_Read")
_SET = re.compile(r"\s*set\s+(server|queue)\s+(?:(\S+)\s+)?([\w.]+)\s*(\+?=)\s*(.*)", re.IGNORECASE)
_CREATE = re.compile(r"\s*create\s+queue\s+(\S+)", re.IGNORECASE)
_LIMIT = re.compile(r"\[?\s*([ugpo]):([^=\]]+)=([^\],]+)\]?")
_RESOURCES = {"ncpus": "cpus", "ngpus": "gpus", "mem": "memory_gb"}
_OLD_LIMITS = {"max_running": "limits", "max_user_run": "user_limits", "max_group_run": "account_limits"}
_PLAIN = re.compile(
    r"(queue_type|enabled|started|from_route_only|kill_delay|hasnodes|total_jobs|state_count|resources_(available"
    r"|assigned)\..*|default_queue|default_chunk\..*|log_events|mail_.*|query_other_jobs|scheduling|scheduler_iteration"
    r"|resv_enable|node_fail_requeue|max_array_size|pbs_license_.*|license_.*|eligible_time_enable|flatuid|managers"
    r"|operators|acl_roots|acl_host_enable|acl_hosts|comment|server_state|resources_default\.(?!walltime).*"
    r"|max_concurrent_provision|power_provisioning|max_job_sequence_id|job_requeue_timeout|webapi_.*|python_.*"
    r"|tcp_timeout|node_check_rate|next_job_id|mom_job_sync|keep_completed|submit_hosts|allow_node_submit|poll_jobs"
    r"|node_ping_rate|node_pack|mail_from|default_node|resources_default|rpp_.*|max_group_run_soft|job_history_.*)"
)
"""Attributes that have no effect on the starts of jobs here."""


@dataclass(slots=True)
class PbsSite(ImportedSite):
    """The contents of a site's files: the attributes of the server and of each queue."""

    policy = "slurm-multifactor"
    server: dict[str, str] = field(default_factory=dict)
    queues_of: dict[str, dict[str, str]] = field(default_factory=dict)
    nodes: list[FoundNode] = field(default_factory=list)

    @property
    def has_queues(self) -> bool:
        return bool(self.server or self.queues_of)

    def found_nodes(self) -> list[FoundNode]:
        """Return all nodes.

        Raises:
            TraceError: No file lists nodes.
        """
        if not self.nodes:
            raise TraceError("no file lists nodes; add the output of `pbsnodes -a`")
        return self.nodes

    def queues(self, named: Mapping[str, str] | None = None) -> QueueTree:
        """Return the execution queues as partitions, with the default queue first. Jobs are
        scheduled by the priority of their queue and then by arrival, with backfill.

        Raises:
            TraceError: A value cannot be read.
        """
        for key, value in self.server.items():
            if not _PLAIN.fullmatch(key):
                self.drop(f"server: {key} = {value}")
        runs = {name: row for name, row in self.queues_of.items() if row.get("queue_type", "e").lower()[:1] != "r"}
        for name in self.queues_of.keys() - runs.keys():
            self.drop(f"routing queue {name}: jobs are in the queues where they ran")
        if not runs:
            raise TraceError("qmgr: there is no execution queue")
        first = self.server.get("default_queue", "")
        order = sorted(runs, key=lambda name: (name != first, list(runs).index(name)))
        ranks = {name: _value(name, "Priority", runs[name].get("priority", "0"), int) for name in order}
        bound = {name: tuple([node.name for node in self.nodes if name in node.partitions]) for name in order}
        free = tuple([node.name for node in self.nodes if not node.partitions])
        limits = {name: self._limits(name, runs[name]) for name in order}
        partitions = []
        for name in order:
            row = runs[name]
            for key, value in row.items():
                if not (_PLAIN.fullmatch(key) or key in _OLD_LIMITS or key.startswith("max_run") or key in _READ):
                    self.drop(f"queue {name}: {key} = {value}")
            if "false" in (row.get("started", "true").lower(), row.get("enabled", "true").lower()):
                self.drop(f"queue {name}: it currently accepts or starts no jobs")
            nodes = bound[name] or (free if len(free) < len(self.nodes) else ())
            longest = _value(name, "resources_max.walltime", row.get("resources_max.walltime", ""), _seconds)
            default = _value(name, "resources_default.walltime", row.get("resources_default.walltime", ""), _seconds)
            partitions.append(
                NodePartition(
                    name,
                    nodes,
                    tier=ranks[name] - min(ranks.values()) + 1,
                    max_time_s=longest,
                    default_time_s=default,
                    qos=f"queue-{name}" if limits[name] is not None else "",
                )
            )
        qos = [limit for limit in limits.values() if limit is not None]
        scheduler: dict[str, bool | float | str] = {"order": "basic", "backfill": True}
        return QueueTree(partitions=tuple(partitions), qos=(Qos("normal"), *qos) if qos else (), scheduler=scheduler)

    def _limits(self, name: str, row: Mapping[str, str]) -> Qos | None:
        """Return the limits on running jobs and on their resources: overall, per user, and per
        group.
        """
        caps: dict[str, dict[str, float]] = {"limits": {}, "user_limits": {}, "account_limits": {}}
        for key, owner in _OLD_LIMITS.items():
            if key in row:
                caps[owner]["jobs"] = _value(name, key, row[key], lambda text: count(text, "limit", 0))
        for key, text in row.items():
            resource = key.partition(".")[2]
            if not (key == "max_run" or (key.startswith("max_run_res.") and resource in _RESOURCES)):
                if key.startswith("max_run"):
                    self.drop(f"queue {name}: {key} = {text}")
                continue
            if not _LIMIT.search(text):
                raise TraceError(
                    f"queue {name}: {key} must be a list of limits such as [u:PBS_GENERIC=5], got {text[:80]!r}"
                )
            for letter, who, amount in _LIMIT.findall(text):
                whose = {"uPBS_GENERIC": "user_limits", "gPBS_GENERIC": "account_limits", "oPBS_ALL": "limits"}.get(
                    letter + who.strip().strip('"')
                )
                if whose is None:
                    self.drop(f"queue {name}: {key} of {letter}:{who}")
                elif resource == "mem":
                    caps[whose]["memory_gb"] = _value(name, key, amount, pbs_memory_gb)
                else:
                    number = _value(name, key, amount, lambda text: count(text, "limit", 0))
                    caps[whose][_RESOURCES.get(resource, "jobs")] = number
        if not any(caps.values()):
            return None
        return Qos(f"queue-{name}", **{owner: Caps(**amounts) for owner, amounts in caps.items()})  # type: ignore[arg-type]


_READ = ("priority", "resources_max.walltime", "resources_default.walltime")


def is_qmgr(source: Source) -> bool:
    """Return True if the source is output of ``qmgr -c 'print server'``."""
    return any(_SET.match(line) or _CREATE.match(line) for line in source.head(200))


def read_pbs_site(files: Sequence[Path], zone: ZoneInfo | None = None) -> PbsSite:
    """Read the files of a site, ignoring files of other kinds.

    Raises:
        TraceError: A file cannot be read.
    """
    site = PbsSite()
    for file in files:
        source = Source(file)
        if is_pbs(source):
            site.nodes += read_nodes(source)
            site.read.append((file.name, "pbsnodes"))
        elif is_qmgr(source):
            site.read.append((file.name, "qmgr"))
            for number, line in source.lines():
                created, change = _CREATE.match(line), _SET.match(line)
                if created:
                    site.queues_of.setdefault(created[1], {})
                elif change:
                    what, name, key, sign, value = change.groups()
                    if what.lower() == "queue" and not name:
                        raise TraceError(
                            f"{source.where(number)}: the line does not name a queue: {line.strip()[:80]!r}"
                        )
                    row = site.server if what.lower() == "server" else site.queues_of.setdefault(name, {})
                    value = value.strip().strip('"')
                    key = key.lower()
                    row[key] = f"{row[key]},{value}" if sign == "+=" and key in row else value
    return site


def _seconds(text: str) -> float | None:
    return duration_s(text, "walltime")


def _value(queue: str, key: str, text: str, read: Callable[[str], _Read]) -> _Read:
    try:
        return read(text)
    except ValueError as error:  # this includes Dirty, a subclass of ValueError
        raise TraceError(f"queue {queue}: {key} = {text[:80]!r} cannot be read ({error})") from None

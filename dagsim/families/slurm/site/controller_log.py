"""Events in the log of slurmctld: nodes that were down or drained, reservations that were made, and
how long nodes took to boot. The parser expects the messages of versions 20.11 to 24.11.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from dagsim.model import JobSuspension
from dagsim.traces.sites import hosts
from dagsim.traces.source import Source
from dagsim.traces.times import moment_s

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?\] (.*)")
_SAYS = re.compile(r"slurmctld version |Running as primary controller|sched: |_slurm_rpc_submit_batch_job: ")
_STATE = re.compile(r"update_node: node (\S+) state set to (\w+)")
_LOST = re.compile(r"(?:error: )?Nodes? (\S+) not responding, setting DOWN")
_BACK = re.compile(r"[Nn]ode (\S+) returned to service|node_did_resp: node (\S+) returned to service")
_RESERVED = re.compile(r"sched: (Created|Updated|Deleted) reservation[= ](\S+)(.*)")
_STARTED = re.compile(r"(?:Allocate JobId=(\S+) NodeList=\S+|_start_job: Started JobId=(\S+) in )")
_BOOTED = re.compile(r"Resetting JobId=(\S+) start time for node power up")
_SUSPENDED = re.compile(r"_slurm_rpc_suspend\((suspend|resume)\) for (?:JobId=)?(\S+)")
_CALCULATES = "_read_last_decay_ran"
"""Message that slurmctld writes when it first calculates priorities, which it then repeats
periodically."""
_DOWN = frozenset({"DOWN", "FAIL", "POWER_DOWN", "POWERED_DOWN", "REBOOT"})
_DRAIN = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAILING"})


OutageKind: TypeAlias = Literal["down", "drain"]


class SingleOutage(NamedTuple):
    """An outage of one node. It has not ended if ``end_s`` is None."""

    node: str
    start_s: float
    end_s: float | None
    kind: OutageKind


@dataclass(slots=True)
class ControllerLog:
    """The outages of nodes, reservations and boots that the log reports. All times are in seconds
    since 1970."""

    outages: list[SingleOutage] = field(default_factory=list)
    made_s: dict[str, float] = field(default_factory=dict)
    """The time at which each reservation was made."""
    reservations: dict[str, dict[str, str]] = field(default_factory=dict)
    """The settings of each reservation as it was made, named as ``scontrol show reservation`` names them."""
    boots_s: list[float] = field(default_factory=list)
    """For each job that had to wait for nodes to boot, the time from its allocation to its start."""

    suspensions: list[JobSuspension] = field(default_factory=list)
    calculated_s: float | None = None
    """A time at which priorities were calculated."""

    @property
    def boot_s(self) -> float | None:
        """The median time that jobs waited for nodes to boot, or None if no job had to wait."""
        return round(median(self.boots_s), 1) if self.boots_s else None


def is_controller_log(head: list[str]) -> bool:
    """Return True if ``head`` contains the first lines of a slurmctld log."""
    texts = [match[3] for line in head if (match := _LINE.match(line))]
    return len(texts) * 2 > len(head) and any(_SAYS.match(text) for text in texts)


def read_controller_log(file: Path, zone: ZoneInfo | None = None) -> ControllerLog:
    """Read a slurmctld log. ``zone`` is the time zone of dates in the log (default UTC).

    Raises:
        TraceError: The file cannot be read.
    """
    reading = _Reading()
    for _, line in Source(file).lines():
        if match := _LINE.match(line):
            reading.event(match[3], (moment_s(match[1], "date", zone) or 0.0) + float(match[2] or 0.0))
    reading.log.outages += [SingleOutage(node, since_s, None, kind) for node, (since_s, kind) in reading.away.items()]
    return reading.log


@dataclass(slots=True)
class _Reading:
    """A log that is being read, with what has begun but not ended."""

    log: ControllerLog = field(default_factory=ControllerLog)
    away: dict[str, tuple[float, OutageKind]] = field(default_factory=dict)
    """Since when each node is out of service, and how."""
    allocated_s: dict[str, float] = field(default_factory=dict)
    suspended_s: dict[str, float] = field(default_factory=dict)

    def event(self, text: str, now: float) -> None:
        """Record what the text of a line reports."""
        log = self.log
        if _CALCULATES in text:
            log.calculated_s = now
        elif found := _SUSPENDED.search(text):
            if found[1] == "suspend":
                self.suspended_s.setdefault(found[2], now)
            elif (from_s := self.suspended_s.pop(found[2], now)) < now:
                log.suspensions.append(JobSuspension(found[2], from_s, now))
        elif found := _STATE.search(text):
            word = found[2].upper()
            self.change(found[1], now, "down" if word in _DOWN else "drain" if word in _DRAIN else None)
        elif found := _LOST.search(text):
            for node in _named(found[1]):
                self.change(node, now, "down")
        elif found := _BACK.search(text):
            self.change(found[1] or found[2], now, None)
        elif found := _RESERVED.search(text):
            _reserve(log, found[1], found[2], found[3], now)
        elif found := _BOOTED.search(text):
            if (since_s := self.allocated_s.pop(found[1], None)) is not None:
                log.boots_s.append(now - since_s)
        elif found := _STARTED.search(text):
            self.allocated_s[found[1] or found[2]] = now

    def change(self, node: str, now: float, kind: OutageKind | None) -> None:
        """Record that a node goes ``down``, is set to ``drain``, or returns to service (None)."""
        if node in self.away and self.away[node][1] != kind:
            since_s, was = self.away.pop(node)
            if now > since_s:
                self.log.outages.append(SingleOutage(node, since_s, now, was))
        if kind:
            self.away.setdefault(node, (now, kind))


def _reserve(log: ControllerLog, verb: str, name: str, settings: str, now: float) -> None:
    """Record that a reservation is made, changed or deleted."""
    fields: dict[str, str] = dict(re.findall(r"(\w+)=(\S+)", settings))
    if verb == "Created" and "start" in fields and "end" in fields:
        log.made_s.setdefault(name, now)
        names = {"start": "starttime", "end": "endtime"}
        row = {names.get(key, key): value for key, value in fields.items()}
        log.reservations.setdefault(name, {"reservationname": name} | row)


def _named(text: str) -> tuple[str, ...]:
    try:
        return hosts(text)
    except ValueError:
        return ()

"""PBS's accounting (OpenPBS, PBS Pro, Torque): files ``server_priv/accounting/YYYYMMDD``.

A line is ``MM/DD/YYYY HH:MM:SS;TYPE;ID;key=value ...``. Only records of ended (``E``) and of rerun
(``R``) attempts are read. ``ctime qtime etime start end`` are epoch seconds. Records are grouped by
job, sorted externally beyond 262,144 (see ``gather``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from sys import intern
from typing import NamedTuple

from dagsim.errors import ConfigError, TraceError
from dagsim.model import Job, Task, TaskGraph
from dagsim.model.arithmetic import ordered_sum
from dagsim.traces.fields import Dirty, count, finite_number, pbs_memory_gb
from dagsim.traces.gather import Gathered, gather, pack, unpack
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.sites import site_gpu
from dagsim.traces.slurm import duration_s
from dagsim.traces.source import Source

_LINE = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z]+;[^;]*;")
_PAIR = re.compile(r"""(?<!\S)([^\s=]+)=("[^"]*"|'[^']*'|\S*)""")
_LONGEST = 1 << 20  # lines of big jobs list every core: 100 KB is normal
_TYPE_KEYS = ("accelerator_model", "gpu_model", "gpu_type", "gputype")
_HOST = re.compile(r"(?:^|\+)([^+/]{1,255})")
_MOST_NODES = 1 << 14  # per job
_PROTOCOLS = ("last-attempt", "all-attempts")
_FAR_S = 60  # walltime is updated only when the server receives a report


class Pbs(Reader):
    """One gang per job, with one instance per chunk; chunks of several kinds become one task each.

    Every attempt that ran is kept, whatever its exit status. Work is the wall time of the last
    attempt (``protocol="last-attempt"``) or of all attempts (``all-attempts``).
    """

    name = "pbs"
    summary = "PBS accounting (OpenPBS, PBS Pro, Torque): server_priv/accounting/YYYYMMDD"
    uses = frozenset(
        {"protocol", "keep_partial", "gpus_per_task", "reference_gpu", "floor_s", "tenant", "arrival", "gpu_names"}
    )

    def recognises(self, source: Source) -> bool:
        return bool(_LINE.match(source.head(1)[0]))

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        if options.protocol not in (None, *_PROTOCOLS):
            raise ConfigError(f"pbs has no protocol {options.protocol!r}; choose from {', '.join(_PROTOCOLS)}")
        reading = _Reading(source, options, report, options.named_gpus())
        for group in gather(reading.by_job()):
            job = reading.job(group)
            if job is not None:
                yield job

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        which = "all attempts together" if options.protocol == "all-attempts" else "its last attempt"
        return {
            "work": f"the wall time of {which}",
            "arrival": f"{options.arrival or 'ctime'} (arrival); it could start from etime on",
            "tenant": f"the {options.tenant or 'account, else the user'} (tenant)",
            "demand": "the chunks that were asked for, each on one node",
        }


class _Chunk(NamedTuple):
    """A number of equal pieces, each on one node."""

    pieces: int
    gpus: int
    cpus: float
    memory_gb: float
    kind: str


@dataclass(frozen=True, slots=True)
class _Attempt:
    place: int
    rerun: bool
    start_s: float
    eligible_s: float
    ran_s: float
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Reading:
    source: Source
    options: TraceOptions
    report: ReadReport
    named: dict[str, str]

    def by_job(self) -> Iterator[tuple[str, float, str]]:
        """Records of finished attempts, with their job and its arrival; other records are skipped."""
        for place, line in self.source.lines():
            if not line.strip():
                continue
            self.report.rows += 1
            if len(line) > _LONGEST:
                raise TraceError(f"{self.source.where(place)}: a line of {len(line):,} characters")
            if not _LINE.match(line):
                self.report.drop("that are not records", self.source.where(place))
                continue
            _, kind, id, message = line.rstrip("\r").split(";", 3)
            if kind not in ("E", "R"):
                self.report.skip("of jobs deleted while they waited" if kind == "D" else "of other records")
                continue
            if "[]" in id:
                self.report.skip("of arrays as a whole")
                continue
            with self.report.dropping(partial(self.source.where, place)):
                fields = dict(_PAIR.findall(message))
                arrival_s = finite_number(
                    fields.get(self.options.arrival or "ctime", ""), self.options.arrival or "ctime"
                )
                if not id or arrival_s < 0:
                    raise Dirty("without an id" if not id else "whose ctime is negative")
                yield id.partition(".")[0], arrival_s, pack(place, [kind, message])

    def job(self, group: Gathered) -> Job | None:
        """Job of its records, or ``None`` if it cannot be kept."""
        attempts = []
        for place, (kind, message) in map(unpack, group.rows):
            with self.report.dropping(partial(self.source.where, place)):
                fields = {key: text.strip("\"'") for key, text in _PAIR.findall(message)}
                attempts.append(self._attempt(place, kind == "R", fields))
        attempts.sort(key=lambda attempt: (attempt.start_s, attempt.place))
        if not attempts:
            return None
        if all(attempt.rerun for attempt in attempts) and not self.options.keep_partial:
            for attempt in attempts:
                self.report.drop("of jobs that outlive the trace", self.source.where(attempt.place))
            return None
        with self.report.dropping(*[partial(self.source.where, attempt.place) for attempt in attempts]):
            job = self._made(group, attempts)
            self.report.kept += len(attempts)
            return job
        return None

    def _attempt(self, place: int, rerun: bool, fields: Mapping[str, str]) -> _Attempt:
        start_s, end_s, etime_s = (finite_number(fields.get(name) or "0", name) for name in ("start", "end", "etime"))
        walltime_s = duration_s(fields.get("resources_used.walltime", ""), "walltime")
        if walltime_s is None:
            if not start_s or not end_s:
                raise Dirty("that never ran")
            walltime_s = end_s - start_s
        elif start_s and end_s and abs(end_s - start_s - walltime_s) > _FAR_S:
            self.report.note("whose wall time is not end - start (suspended?)", self.source.where(place))
        if not start_s:
            start_s = end_s - walltime_s
        if walltime_s < 0 or start_s < 0:
            raise Dirty("with an end before the start")
        return _Attempt(place, rerun, start_s, etime_s, walltime_s, fields)

    def _made(self, group: Gathered, attempts: Sequence[_Attempt]) -> Job:
        every = self.options.protocol == "all-attempts"
        seconds = ordered_sum(attempt.ran_s for attempt in attempts) if every else attempts[-1].ran_s
        shown = attempts[0 if every else -1]
        fields = shown.fields
        chunks = _chunks(fields)
        if len(chunks) > 1:
            self.report.note("of several kinds of chunks, which need not start together here",
                             self.source.where(shown.place))  # fmt: skip
        limit_s = duration_s(fields.get("Resource_List.walltime", ""), "walltime")
        tasks = [
            self._task("job" if len(chunks) == 1 else f"chunk-{place}", chunk, seconds, limit_s)
            for place, chunk in enumerate(chunks)
        ]
        return Job(
            group.job,
            TaskGraph(tuple(tasks)),
            group.time,
            tenant=self._tenant(fields),
            observed_start_s=max(group.time, shown.start_s),
            eligible_s=max(group.time, shown.eligible_s),
            observed_nodes=tuple(dict.fromkeys(map(intern, _HOST.findall(fields.get("exec_host", "")))))[:_MOST_NODES],
            user=intern(fields.get("user", "")),
            account=intern(fields.get("account", "")),
            partition=intern(fields.get("queue", "")),
        )

    def _task(self, name: str, chunk: _Chunk, seconds: float, limit_s: float | None) -> Task:
        kind = site_gpu(chunk.kind, self.named) if chunk.kind else None
        return Task(
            name,
            max(self.options.on_reference(seconds, kind), self.options.floor_s),
            chunk.pieces,
            chunk.pieces > 1,
            chunk.gpus or self.options.gpus_per_task or 0,
            chunk.cpus,
            chunk.memory_gb,
            (kind,) if kind and chunk.gpus else None,
            estimate=None if limit_s is None else self.options.on_reference(limit_s, kind),
        )

    def _tenant(self, fields: Mapping[str, str]) -> str:
        match self.options.tenant:
            case "user":
                return fields.get("user", "")
            case "partition":
                return fields.get("queue", "")
            case "account":
                return fields.get("account", "")
            case _:
                return fields.get("account") or fields.get("user", "")


def _chunks(fields: Mapping[str, str]) -> list[_Chunk]:
    """Demand of a job, with equal chunks merged.

    Raises:
        Dirty: A number is impossible.
    """
    select, nodes = fields.get("Resource_List.select"), fields.get("Resource_List.nodes")
    if select or nodes:
        parsed = [_chunk(part) for part in (select or nodes or "").split("+")]
        pieces = sum(chunk.pieces for chunk in parsed)
    else:
        pieces = count(fields.get("Resource_List.nodect") or "1", "nodect")
        gpus, cpus = (count(fields.get(f"Resource_List.{name}") or "0", name, 0) for name in ("ngpus", "ncpus"))
        if gpus % pieces:
            raise Dirty("whose GPUs are not even over their nodes")
        parsed = [_Chunk(pieces, gpus // pieces, cpus / pieces, 0.0, "")]
    if not any(chunk.memory_gb for chunk in parsed):
        share = pbs_memory_gb(fields.get("Resource_List.mem", "0")) / pieces
        parsed = [chunk._replace(memory_gb=share) for chunk in parsed]
    merged: dict[_Chunk, int] = {}
    for chunk in parsed:
        merged[chunk._replace(pieces=0)] = merged.get(chunk._replace(pieces=0), 0) + chunk.pieces
    return [chunk._replace(pieces=pieces) for chunk, pieces in merged.items()]


def _chunk(text: str) -> _Chunk:
    """Parse ``2:ncpus=8:ngpus=2:mem=4gb`` of PBS, or ``2:ppn=8:gpus=4`` of Torque, where a node's
    name counts as one.
    """
    first, *rest = text.split(":")
    if "=" in first:
        rest, first = [first, *rest], "1"
    pieces = count(first, "chunks") if first.isdecimal() else 1
    fields = {key: value for key, _, value in (part.partition("=") for part in rest)}
    return _Chunk(
        pieces,
        count(fields.get("ngpus") or fields.get("gpus") or "0", "ngpus", 0),
        count(fields.get("ncpus") or fields.get("ppn") or "1", "ncpus", 0),
        pbs_memory_gb(fields.get("mem") or "0"),
        next((fields[key] for key in _TYPE_KEYS if fields.get(key)), ""),
    )

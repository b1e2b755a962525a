"""PBS (OpenPBS, PBS Pro, Torque): accounting in ``server_priv/accounting/YYYYMMDD``, and jobs from
``qstat -f``.

A line of accounting is ``MM/DD/YYYY HH:MM:SS;TYPE;ID;key=value key=value ...``. Only records of
attempts that have ended (``E``) or were rerun (``R``) are read. ``ctime qtime etime start end`` are
in seconds since 1970. In ``qstat``, they are local dates, some of them under other names.

There are several ways to state a request: ``select``, Torque's ``nodes`` or ``neednodes``,
``procs``, or ``ncpus`` and ``ngpus``. If a job states none of these, the slots in ``exec_host`` are
used. If GPUs are stated separately (``gpus``, ``gpu``, ``naccelerators``, ``exec_gpus``), their
number is a total.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from itertools import chain
from math import nan
from sys import intern
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.errors import ConfigError, TraceError
from dagsim.families.pbs.pbs_nodes import pbs_memory_gb
from dagsim.model import Demand
from dagsim.model.arithmetic import numbered, whole_sum
from dagsim.traces.chunks import Table, tables_of
from dagsim.traces.documents import object_in
from dagsim.traces.fields import Dirty, InvalidValue, count, finite_number
from dagsim.traces.reader import Block, Reader, WaitingJob
from dagsim.traces.report import Disagreement, ImpossibleTimes, OnlyInText, ReadReport, RepeatedId
from dagsim.traces.rows import Checks, JobBatch, JobTimes, in_parts, job_blocks, rows_by_job
from dagsim.traces.sites import site_gpu
from dagsim.traces.source import Row, Source
from dagsim.traces.times import duration_s, reading_of
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.workflow import read_json
from dagsim.workload.arrays import JobArrays, Labels, TaskKind, bounds, combinations, objects, optional, ranges

_FIELDS = (
    *("start", "end", "etime", "resources_used.walltime"),
    *[f"Resource_List.{name}" for name in ("select", "nodes", "neednodes", "procs", "nodect")],
    *("gpus", "Resource_List.ncpus", "Resource_List.mem", "exec_host", "Resource_List.walltime"),
    *("user", "account", "queue"),
)
_COLUMNS = ("id", "arrival", "kind", *_FIELDS)
_ID, _ARRIVAL, _KIND, _START, _END, _ETIME, _WALLTIME, *_DEMAND = range(len(_COLUMNS))
_DEMAND, _LIMIT, _SHOWN = _DEMAND[:9], _DEMAND[9], [*_DEMAND[10:], _DEMAND[8]]
_GPUS = ("ngpus", "gpus", "gpu", "naccelerators", "accelerators", "ngpu")
_CORES = ("ncpus", "ppn", "mpiprocs")
_SLOTS = re.compile(r"(?:^|\+)([^+/]{1,255})(?:/([^+*]*))?(?:\*(\d{1,9}))?")
_LINE = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z]+;[^;]*;")
_PAIR = re.compile(r"""(?<!\S)([^\s=]+)=("[^"]*"|'[^']*'|\S*)""")
_CONTINUES = re.compile(r"\t| {6}")
"""Begins a line of ``qstat -f`` with the rest of a long value: a tab, or the spaces that copies make of
it. Lines with names have four spaces."""
# Maximum length of a line in bytes; 100 KB is normal, because the line of a large job lists every
# core.
_LONGEST = 1 << 20
_TYPE_KEYS = ("accelerator_model", "gpu_model", "gpu_type", "gputype")
_ASKED = ("select", "nodes", "neednodes", "procs", "ncpus", "nodect")
_HOST = re.compile(r"(?:^|\+)([^+/]{1,255})")
_MOST_NODES = 1 << 14  # maximum number of nodes per job
_PROTOCOLS = ("last-attempt", "all-attempts")
_FAR_S = 60  # tolerance in seconds, because the server updates a job's walltime only when it receives a report


class Pbs(Reader):
    """Builds one gang per job, with one instance per chunk; each kind of chunk becomes a task.

    Every attempt that ran is kept, whatever its exit status. The work is the wall time of the last
    attempt (``protocol="last-attempt"``) or of all attempts (``all-attempts``).
    """

    name = "pbs"
    summary = "PBS (OpenPBS, PBS Pro, Torque): server_priv/accounting/YYYYMMDD, or finished jobs from qstat -x -f"
    uses = frozenset(
        {"protocol", "keep_partial", "gpus_per_task", "reference_gpu", "floor_s", "tenant", "arrival", "gpu_names"}
        | {"timezone"}
    )
    records = staticmethod(lambda *reading: _records(*reading))
    """Reads the records of finished attempts."""

    def recognises(self, source: Source) -> bool:
        return bool(_LINE.match(source.head(1)[0])) or (is_qstat(source) and not _is_queue(source))

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        if options.protocol not in (None, *_PROTOCOLS):
            raise ConfigError(f"pbs has no protocol {options.protocol!r}; choose from {', '.join(_PROTOCOLS)}")

        def read(report: ReadReport) -> Iterator[Table]:
            records = self.records(source, options, report)
            return tables_of(source, len(_COLUMNS), records, (_ARRIVAL, _START, _END, _ETIME))

        keys = _keys if options.arrival == "qtime" else _keys_apart
        return job_blocks((_batch(table, options, keys) for table in in_parts(read, keys, report)), report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        which = "all attempts together" if options.protocol == "all-attempts" else "its last attempt"
        return {
            "work": f"the wall time of {which}",
            "arrival": f"{options.arrival or 'ctime'} (arrival); it could start from etime on",
            "tenant": f"the {options.tenant or 'account, or else the user'} (--read tenant=)",
            "demand": "the requested chunks, each on one node",
        }


class _Chunk(NamedTuple):
    """A number of equal chunks (``pieces``), each on one node."""

    pieces: int = 1
    gpus: int = 0
    cpus: float = 0.0
    memory_gb: float = 0.0
    kind: str = ""


def _records(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Row]:
    """Yield the fields ``_COLUMNS`` of each finished attempt of a job with an id and an arrival.
    Skip other records."""
    arrival = options.arrival or "ctime"
    if is_qstat(source):
        yield from _finished(source, options, report)
        return
    for place, line in source.lines():
        if not line.strip():
            continue
        report.rows += 1
        if len(line) > _LONGEST:
            raise TraceError(
                f"{source.where(place)}: the line has {len(line):,} characters, but at most {_LONGEST:,} are allowed"
            )
        if not _LINE.match(line):
            report.drop("that are not records", source.where(place))
            continue
        _, kind, id, message = line.rstrip("\r").split(";", 3)
        if kind not in ("E", "R"):
            report.skip("of jobs deleted while they waited" if kind == "D" else "of other records")
            continue
        if "[]" in id:
            report.skip("of arrays as a whole")
            continue
        with report.dropping(partial(source.where, place)):
            fields = with_gpus({"Resource_List.mem": "0"} | dict(_PAIR.findall(message)))
            arrival_s = finite_number(fields.get(arrival, ""), arrival)
            if not id or arrival_s < 0:
                raise Dirty("without an id" if not id else ImpossibleTimes("with a negative ctime"))
            yield place, _row(id, arrival_s, kind, fields)


def _row(id: str, arrival_s: float, kind: str, fields: Mapping[str, str]) -> tuple[Any, ...]:
    """Arrange the fields of a record as a row of ``_COLUMNS``."""
    values = [intern(fields.get(name, "").strip("\"'")) for name in _FIELDS]
    return (id.partition(".")[0], arrival_s, kind, *values)


_SUSPENDED = "SU"
_QUEUED, _RUNS, _OVER = f"QWT{_SUSPENDED}", "RE", "FCX"
"""States in ``qstat``: waiting jobs (among them suspended ones), running jobs, and finished jobs
(``H`` and ``B`` are held jobs and arrays)."""
_TIMES = {
    "ctime": ("ctime",), "qtime": ("qtime",), "etime": ("etime",), "start": ("stime", "start_time"),
    "end": ("comp_time", "obittime", "history_timestamp"),
}  # fmt: skip


def is_qstat(source: Source) -> bool:
    """Return True if the source is output of ``qstat -f``, as text or JSON."""
    head = "\n".join(source.head(40)).lstrip()
    return head.startswith("Job Id: ") or (head.startswith("{") and '"pbs_version"' in head[:2000])


def _is_queue(source: Source) -> bool:
    """Return True if the first jobs in ``qstat -f`` are still in the system."""
    text = "\n".join(source.head(1 << 16))
    return re.search(rf'job_state"?\s*[:=]\s*"?[{_QUEUED}{_RUNS}H]\b', text) is not None


def qstat_jobs(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Yield the place, the id and the fields of each job in ``qstat -f``. Names and times are
    converted to those of accounting."""
    zone = options.zone()
    for place, id, job in _listed_jobs(source):
        report.rows += 1
        moments, is_doubtful = _moments(job, zone)
        if is_doubtful:
            report.note(
                ImpossibleTimes("in an hour that occurs twice in their time zone (taken as the first)"),
                source.where(place),
            )
        fields = {"Resource_List.mem": "0"} | job | moments
        owner = job.get("euser") or job.get("Job_Owner", "").partition("@")[0]
        fields |= {"user": owner, "account": job.get("Account_Name", ""), "queue": job.get("queue", "")}
        fields = with_gpus(fields)
        if not _states_gpus(fields) and (gpus := _gpus_submitted(fields)):
            fields["gpus"] = str(gpus)
            report.note(
                OnlyInText("with GPUs taken from the submit arguments, because no resource states any"),
                source.where(place),
            )
        yield place, id, fields


def _moments(job: Mapping[str, str], zone: ZoneInfo | None) -> tuple[dict[str, str], bool]:
    """Return the times of a job in seconds since 1970 (empty if they are unknown). Also return True
    if one of them is ambiguous. If the time zone repeats an hour, a local time in this hour has two
    meanings. The one that agrees with the order of the times and with the wall time is used.
    """
    texts = {name: next((job[other] for other in others if job.get(other)), "") for name, others in _TIMES.items()}
    isos, is_sure = {name: text if text.isdecimal() else _iso(text) for name, text in texts.items()}, True
    if zone is not None and any(_is_repeated(text, zone) for text in isos.values()):
        walltime = job.get("resources_used.walltime", "")
        lasts_s = _seconds(walltime)[0] if walltime else nan
        for first in ("qtime", "ctime"):
            names = [first, "etime", "start", "end"]
            dated, is_only = reading_of([isos[name] for name in names], lasts_s, zone)
            isos, is_sure = isos | dict(zip(names, dated, strict=True)), is_sure and is_only
    return {name: text if text.isdecimal() else _epoch(text, zone) for name, text in isos.items()}, not is_sure


def _is_repeated(text: str, zone: ZoneInfo) -> bool:
    """Return True if a local date is in an hour that the time zone repeats."""
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=zone)
    except ValueError:
        return False
    first, second = moment.utcoffset(), moment.replace(fold=1).utcoffset()
    return first is not None and second is not None and first > second


def _states_gpus(fields: Mapping[str, str]) -> bool:
    """Return True if one of the resource fields mentions GPUs."""
    texts = (fields.get(f"Resource_List.{name}", "") for name in ("select", "nodes", "neednodes"))
    return bool(fields["gpus"]) or any("gpu" in text or "accelerator" in text for text in texts)


def _gpus_submitted(fields: Mapping[str, str]) -> int:
    """Return the total number of GPUs that the arguments of qsub request, as in ``-l
    select=2:ngpus=4``, ``-l nodes=1:ppn=8:gpus=2`` or ``-l ngpus=2``. Return 0 if they request
    none. PBS Pro puts each argument into a tag.
    """
    text = re.sub(r"<[^>]*>", " ", fields.get("submit_args") or fields.get("Submit_arguments") or "")
    for chunks in re.findall(r"\b(?:select|nodes)=([^\s,]+)", text):
        try:
            asked = whole_sum(chunk.pieces * chunk.gpus for chunk in map(_chunk, chunks.split("+")))
        except Dirty:
            continue
        if asked:
            return asked
    found = re.search(rf"(?:^|[\s,])(?:-l\s*)?(?:{'|'.join(_GPUS)})=(\d{{1,6}})\b", text)
    return int(found[1]) if found else 0


def _listed_jobs(source: Source) -> Iterator[tuple[int, str, dict[str, str]]]:
    if source.head(1)[0].lstrip().startswith("{"):
        for file in source.files:
            document = read_json(file)
            for id, job in object_in(document, "Jobs").items():
                flat: dict[str, str] = {}
                for key, value in job.items() if isinstance(job, dict) else ():
                    if isinstance(value, dict):
                        flat |= {f"{key}.{name}": str(inner) for name, inner in value.items()}
                    else:
                        flat[key] = str(value)
                yield 1, id, flat
        return
    id, place, job, last = "", 0, dict[str, str](), ""
    for number, line in source.lines():
        if line.startswith("Job Id:"):
            if id:
                yield place, id, job
            # The command qstat -F dsv prints all fields of a job on one line.
            id, *pairs = re.split(r"(?<!\\)\|", line.partition(":")[2])
            id, place, last = id.strip(), number, ""
            job = {key.strip(): value.replace("\\|", "|") for key, _, value in (pair.partition("=") for pair in pairs)}
        elif _CONTINUES.match(line) and last:
            job[last] += line.strip()  # this line continues a long value
        elif " = " in line:
            last, _, value = line.strip().partition(" = ")
            job[last] = value
    if id:
        yield place, id, job


def _iso(text: str) -> str:
    """Convert a date such as ``Thu Feb 22 14:27:48 2018`` to ISO form. Return other texts
    unchanged."""
    try:
        return datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y").isoformat()
    except ValueError:
        return text


def _epoch(text: str, zone: tzinfo | None) -> str:
    """Convert a date from qstat, or in ISO form, to seconds since 1970. Return an empty string for
    other texts.
    """
    try:
        moment = datetime.fromisoformat(_iso(text))
    except ValueError:
        return ""
    return str(int((moment if moment.tzinfo else moment.replace(tzinfo=zone or UTC)).timestamp()))


def _finished(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Row]:
    """Yield the rows of the finished jobs in ``qstat -x -f``."""
    arrival = options.arrival or "ctime"
    for place, id, fields in qstat_jobs(source, options, report):
        state = fields.get("job_state", "")
        if state not in _OVER:
            report.skip("of running jobs" if state in _RUNS else "of waiting jobs")
            continue
        if "[]" in id:
            report.skip("of arrays as a whole")
            continue
        with report.dropping(partial(source.where, place)):
            yield place, _row(id, finite_number(fields.get(arrival, ""), arrival), "E", fields)


class Qstat(Pbs):
    """The running and waiting jobs in PBS. The simulation begins when the queue was printed: running
    jobs have been on their nodes since they started, and end at their time limits; waiting jobs
    take as long as their limits.
    """

    name = "qstat"
    summary = "PBS's queue at one moment: qstat -f, or qstat -f -F json"
    uses = frozenset({"gpus_per_task", "reference_gpu", "floor_s", "tenant", "gpu_names", "timezone"})
    records = staticmethod(lambda *reading: _queued(*reading))

    def recognises(self, source: Source) -> bool:
        return is_qstat(source) and _is_queue(source)

    def waiting(self, source: Source, zone: ZoneInfo | None = None) -> Iterable[WaitingJob]:
        for _, id, job in _listed_jobs(source):
            if job.get("job_state", "") in f"{_QUEUED}H" and "[]" not in id:
                name, own = id.partition(".")[0], (job.get("euser") or job.get("Job_Owner", "").partition("@")[0])
                after = _parents(job)
                reason = "Dependency" if after else _hold_of(job) or job.get("comment", "")
                yield WaitingJob(name, reason, None, own, job.get("queue", ""), after)

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        for block in super().blocks(source, options, report, most):
            jobs, nodes = block.jobs, block.jobs.observed_nodes
            assert nodes is not None
            assert jobs.observed_start_s is not None
            waits = np.array([not names for names in nodes.words])[nodes.place]
            yield block._replace(jobs=replace(jobs, observed_start_s=np.where(waits, np.nan, jobs.observed_start_s)))

    def begins_s(self, source: Source, options: TraceOptions) -> float | None:
        return _printed_s(source, options)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "every job runs to its time limit, or for a year without one; real jobs often end earlier",
            "tenant": f"the {options.tenant or 'account, or else the user'} (--read tenant=)",
            "dates": f"dates of qstat are in {options.timezone or 'UTC'} (--read timezone=)",
        }


def _parents(job: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ids of the jobs that a held job waits for (``depend =
    afterok:12.server@server``)."""
    holds = job.get("job_state") == "H" and "u" not in job.get("Hold_Types", "")
    return tuple(re.findall(r"(?<=:)\d+", job.get("depend", "").partition("before")[0])) if holds else ()


def _hold_of(job: Mapping[str, str]) -> str:
    """Return Slurm's name for the reason why a job is held. The result is empty if the job is not held."""
    if job.get("job_state") != "H":
        return ""
    return "JobHeldUser" if "u" in job.get("Hold_Types", "u") else "JobHeldAdmin"


def _printed_s(source: Source, options: TraceOptions) -> float:
    """Return the time at which the queue was printed. This is its time stamp, or the time of the
    last change of a job."""
    if source.head(1)[0].lstrip().startswith("{"):
        stamps = [object_in(read_json(file)).get("timestamp") for file in source.files]
        return max([float(stamp) for stamp in stamps if isinstance(stamp, int | float)], default=0.0)
    zone, latest_s = options.zone(), 0.0
    for _, _, job in _listed_jobs(source):
        for name in ("mtime", "stime", "start_time", "qtime"):
            latest_s = max(latest_s, float(_epoch(job.get(name, ""), zone) or 0.0))
        start_s = float(_epoch(job.get("stime") or job.get("start_time", ""), zone) or nan)
        ran_s = _seconds(job.get("resources_used.walltime", ""))[0]
        if job.get("job_state", "") in _RUNS and start_s + ran_s > 0:
            latest_s = max(latest_s, start_s + ran_s)
    return latest_s


_YEAR_S, _LEAST_S = 365 * 86_400, 60.0


def _queued(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Row]:
    """Yield the rows of the running and waiting jobs, as if each job took as long as its time
    limit."""
    now_s, zone = _printed_s(source, options), options.zone()
    queued_s = [float(_epoch(job.get("qtime", ""), zone) or now_s) for _, _, job in _listed_jobs(source)]
    first_s = max(min(queued_s, default=now_s) - 1, 0.0)
    for place, id, fields in qstat_jobs(source, options, report):
        state = fields.get("job_state", "")
        if state not in _RUNS + _QUEUED or "[]" in id:
            reasons = {"H": "that are held", "B": "of arrays as a whole"} | dict.fromkeys(_OVER, "of finished jobs")
            report.skip("of arrays as a whole" if "[]" in id else reasons.get(state, "in other states"))
            continue
        with report.dropping(partial(source.where, place)):
            limit_s = duration_s(fields.get("Resource_List.walltime", ""), "walltime") or _YEAR_S
            arrival_s = finite_number(fields.get("qtime") or fields["ctime"], "qtime")
            start_s = now_s
            if state in _RUNS:
                start_s = finite_number(fields["start"], "stime")
            elif state in _SUSPENDED:  # resumes before any waiting job starts, with the rest of its limit
                ran_s = duration_s(fields.get("resources_used.walltime", ""), "walltime") or 0.0
                limit_s, arrival_s = max(limit_s - ran_s, _LEAST_S), first_s
            elif begin := _epoch(fields.get("Execution_Time", ""), zone):  # qsub -a
                start_s = max(now_s, float(begin))
                fields["etime"] = begin
            fields |= {"start": str(start_s), "end": str(start_s + limit_s), "resources_used.walltime": ""}
            if state in _QUEUED:
                fields["exec_host"] = fields["exec_gpus"] = ""
            yield place, _row(id, arrival_s, "E", fields)


def _keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the job of each record, and the arrival of the job."""
    return table.texts(_ID), table.numbers(_ARRIVAL)


def _keys_apart(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the same as ``_keys``, except that jobs with the same id that were created at
    different times are distinguished.
    """
    ids, created_s = _keys(table)
    return objects([f"{id} {time!r}" for id, time in zip(ids.tolist(), created_s.tolist(), strict=True)]), created_s


def _own_ids(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of jobs in order of arrival. If an id is used again, a number is added to it.
    Also return (J,) bool: True for the ids with such a number.
    """
    seen: Counter[str] = Counter()
    ids = []
    for key in keys.tolist():
        id = key.partition(" ")[0]
        seen[id] += 1
        ids.append(id if seen[id] == 1 else f"{id}#{seen[id]}")
    return objects(ids), np.array(["#" in id for id in ids], bool)


def _batch(table: Table, options: TraceOptions, keys: Callable[[Table], tuple[np.ndarray, np.ndarray]]) -> JobBatch:
    """Convert a table to jobs. Each is built from the first or from the last of its usable
    attempts."""
    checks, groups = Checks(table), rows_by_job(*keys(table))
    ids, again = _own_ids(groups.ids)
    start_s, ran_s = _ran(checks)
    of_row = groups.job_of_row()
    every = options.protocol == "all-attempts"
    attempts = _Attempts.of(checks, of_row, start_s, len(groups.ids), shows_first=every)
    shown, kept = attempts.shown, attempts.counts > 0

    def drop(jobs: np.ndarray, reason: str, details: Mapping[int, str] | None = None) -> None:
        """Drop all attempts of the jobs in a mask."""
        of = np.flatnonzero((jobs & kept)[attempts.job])
        rows = attempts.rows[of]
        texts = {int(row): details[int(of_row[row])] for row in rows} if details else None
        checks.findings.drop(rows, reason, stage=2, order=of, details=texts)
        kept[jobs] = False

    if not options.keep_partial:
        drop(attempts.reruns(table) == attempts.counts, "of jobs that outlive the trace")
    asked, demands, disagree = _demands(table, shown)
    for reason in dict.fromkeys(demand for demand in demands if isinstance(demand, str)):
        drop(np.array([demand == reason for demand in demands])[asked], reason)
    parts = _Parts.of([[_Chunk()] if isinstance(demand, str) else demand for demand in demands], asked)
    for jobs, note in (
        (parts.sizes > 1, "with several kinds of chunks, which need not start together in the simulation"),
        (again, RepeatedId("with the id of an earlier job (treated as separate jobs)")),
        (
            np.array(disagree, bool)[asked],
            Disagreement("whose request and nodes (exec_host, nodect) disagree; taken as requested"),
        ),
    ):
        checks.findings.note(shown[kept & jobs], note, stage=1)
    limit = table.words(_LIMIT).chosen(shown)
    limits, reasons = zip(*map(_seconds, limit.words), strict=True)
    drop(
        np.array([bool(reason) for reason in reasons])[limit.place],
        InvalidValue("with an invalid duration in walltime"),
    )
    seconds = np.bincount(attempts.job, ran_s[attempts.rows], len(shown)) if every else ran_s[shown]
    durations_s = seconds, np.array(limits)[limit.place]
    every_job = _jobs(table, options, ids, groups.time, parts, shown, start_s[shown], durations_s)
    errors = {job: str(error) for job, error in every_job.faults(kept)}
    drop(np.isin(np.arange(len(shown)), list(errors)), "that describe an impossible job", errors)
    return JobBatch(table, every_job, kept, attempts.counts, of_row, checks.findings)


class _Attempts(NamedTuple):
    """The usable attempts of jobs, sorted by job, and those of each job by start."""

    rows: np.ndarray  # (n,): rows of the table
    job: np.ndarray  # (n,): the job of each of these rows
    counts: np.ndarray  # (J,) int64: number of attempts of each job
    shown: np.ndarray  # (J,): the row from which each job is built; 0 if it has no attempt

    @classmethod
    def of(
        cls, checks: Checks, job_of_row: np.ndarray, start_s: np.ndarray, jobs: int, *, shows_first: bool
    ) -> _Attempts:
        """Sort the usable rows. Each job is built from its first or from its last attempt."""
        usable = np.flatnonzero(checks.usable)
        rows = usable[np.lexsort((usable, start_s[usable], job_of_row[usable]))]
        job, shown = job_of_row[rows], np.zeros(jobs, np.int64)
        turns = rows[::-1] if shows_first else rows
        shown[job_of_row[turns]] = turns  # NumPy keeps the last of several rows for a job
        return cls(rows, job, np.bincount(job, minlength=jobs).astype(np.int64), shown)

    def reruns(self, table: Table) -> np.ndarray:
        """Return (J,): how many attempts of each job were rerun."""
        return np.bincount(self.job, table.texts(_KIND)[self.rows] == "R", len(self.shown))


class _Parts(NamedTuple):
    """The tasks of J jobs: one for each chunk in the job's demand."""

    listed: list[_Chunk]
    """The chunks of all distinct demands, one demand after another."""
    sizes: np.ndarray  # (J,): number of tasks of each job
    job: np.ndarray  # (T,): the job of each task
    chunk: np.ndarray  # (T,): the index of its chunk in ``listed``
    place: np.ndarray  # (T,): its position among the tasks of its job

    @classmethod
    def of(cls, demands: Sequence[list[_Chunk]], asked: np.ndarray) -> _Parts:
        """Make the tasks of jobs. ``asked`` is the index of the demand of each job."""
        lengths = [len(demand) for demand in demands]
        sizes, begins = np.array(lengths)[asked], bounds(lengths)[asked]
        job, chunk = np.repeat(np.arange(len(asked)), sizes), ranges(begins, sizes)
        return cls(list(chain.from_iterable(demands)), sizes, job, chunk, chunk - begins[job])


def _jobs(
    table: Table,
    options: TraceOptions,
    ids: np.ndarray,
    arrival_s: np.ndarray,
    parts: _Parts,
    shown: np.ndarray,
    start_s: np.ndarray,
    durations_s: tuple[np.ndarray, np.ndarray],
) -> JobArrays:
    """Create all jobs, including those that were dropped. ``shown`` is the row of each job, ``start_s``
    its start, and ``durations_s`` its run time and its limit."""
    job, chunk, named = parts.job, parts.chunk, options.named_gpus()
    measured_on = [site_gpu(chunk.kind, named) if chunk.kind else None for chunk in parts.listed]
    kind, kinds = numbered([_task_kind(*pair, options) for pair in zip(parts.listed, measured_on, strict=True)])
    work, estimate = (options.all_on_reference(column[job], measured_on, chunk) for column in durations_s)
    user, account, queue, hosts = (table.words(column).chosen(shown) for column in _SHOWN)
    return JobArrays(
        ids=ids,
        arrival_s=arrival_s,
        first=bounds(parts.sizes),
        name=np.where(parts.sizes[job] > 1, parts.place + 1, 0).astype(np.int32),
        names=objects(["job", *[f"chunk-{place}" for place in range(int(parts.sizes.max()))]]),
        work=np.where(work < options.floor_s, options.floor_s, work),
        instances=np.array([chunk.pieces for chunk in parts.listed], np.int64)[chunk],
        kind=kind[chunk],
        kinds=kinds,
        waits=np.zeros(len(chunk) + 1, np.int64),
        parent=np.zeros(0, np.int32),
        estimate=optional(estimate),
        tenant=options.tenants(user, account, queue),
        observed_start_s=np.maximum(arrival_s, start_s),
        eligible_s=np.maximum(arrival_s, table.numbers(_ETIME, 0.0)[shown]),
        observed_nodes=hosts.mapped(_nodes),
        user=user,
        account=account,
        partition=queue,
    )


def _ran(checks: Checks) -> tuple[np.ndarray, np.ndarray]:
    """Return two (n,) float64 arrays: when each attempt started, and how long it ran."""
    table = checks.table
    start_s, end_s, _ = (
        checks.number(column, name, 0.0) for column, name in ((_START, "start"), (_END, "end"), (_ETIME, "etime"))
    )
    stated = table.words(_WALLTIME)
    values, reasons = zip(*map(_seconds, stated.words), strict=True)
    checks.drop_for(Labels(stated.place, reasons))
    ran_s = np.array(values)[stated.place]
    is_timed = (start_s != 0) & (end_s != 0)
    checks.drop(np.isnan(ran_s) & ~is_timed, "that never ran")
    with np.errstate(invalid="ignore", over="ignore"):
        between_s = end_s - start_s
        checks.note(
            is_timed & (np.abs(between_s - ran_s) > _FAR_S),
            ImpossibleTimes("whose wall time is not end - start (suspended?)"),
        )
        ran_s = np.where(np.isnan(ran_s), between_s, ran_s)
        start_s = np.where(start_s == 0, end_s - ran_s, start_s)
    checks.drop((ran_s < 0) | (start_s < 0), ImpossibleTimes("with an end before the start"))
    JobTimes(table.numbers(_ARRIVAL), start_s, eligible_s=table.numbers(_ETIME)).checked(checks)
    return start_s, ran_s


def _seconds(text: str) -> tuple[float, str]:
    """Parse a wall time. Return its seconds, or NaN if it is not set or invalid. Also return why it
    is invalid."""
    try:
        seconds = duration_s(text, "walltime")
    except Dirty as reason:
        return nan, str(reason)
    return nan if seconds is None else seconds, ""


def _task_kind(chunk: _Chunk, kind: str | None, options: TraceOptions) -> TaskKind:
    """Return the kind of task that a chunk becomes, on GPUs of type ``kind`` if it has any."""
    types = (kind,) if kind and chunk.gpus else None
    return TaskKind(
        Demand(chunk.gpus or options.gpus_per_task or 0, chunk.cpus, chunk.memory_gb, types), chunk.pieces > 1
    )


def _nodes(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(intern, _HOST.findall(text))))[:_MOST_NODES]


def _demands(table: Table, shown: np.ndarray) -> tuple[np.ndarray, list[list[_Chunk] | str], list[bool]]:
    """Return (J,) int32, the index of the demand of each job, and the distinct demands. A demand is
    a list of chunks, or the reason why it is impossible. Also return whether each demand
    contradicts the stated number of nodes.
    """
    columns = [table.words(column).chosen(shown) for column in _DEMAND]
    asked, firsts = combinations([column.place for column in columns])
    demands: list[list[_Chunk] | str] = []
    disagree: list[bool] = []
    for texts in zip(*[column.chosen(firsts).tolist() for column in columns], strict=True):
        try:
            chunks = _chunks(*texts)
        except Dirty as reason:
            demands.append(str(reason))
            disagree.append(False)
            continue
        demands.append(chunks)
        select, nodes, _, _, nodect, gpus, *_, hosts = texts
        pieces = whole_sum(chunk.pieces for chunk in chunks)
        other = bool(select or nodes) and nodect.isdecimal() and int(nodect) != pieces
        disagree.append(not gpus and (other or len(_nodes(hosts)) > pieces))
    return asked, demands, disagree


def with_gpus(fields: dict[str, str]) -> dict[str, str]:
    """Return the fields of a record. ``gpus`` is set to the total of the GPUs that the record
    states."""
    stated = [fields.get(f"Resource_List.{name}", "") for name in _GPUS]
    held = fields.get("exec_gpus", "")  # the value has the form node-gpu/0+node-gpu/1 (Torque)
    total = next(filter(None, stated), "") or (str(held.count("+") + 1) if held else "")
    asked, needed = fields.get("Resource_List.nodes", ""), fields.get("Resource_List.neednodes", "")
    # In Torque, a prologue or a filter may have added GPUs, which only neednodes states.
    if "gpus=" in needed and "gpu" not in asked:
        fields = fields | {"Resource_List.nodes": needed}
    # The log lacks the request, so use the allocation.
    if not any(fields.get(f"Resource_List.{name}") for name in _ASKED):
        chunks = re.sub(r"\)\+\(", "+", fields.get("exec_vnode", "")).strip("()")
        fields = fields | {"Resource_List.select": chunks}
    return fields | {"gpus": total}


def _chunks(
    select: str, nodes: str, neednodes: str, procs: str, nodect: str, ngpus: str, ncpus: str, memory: str, hosts: str
) -> list[_Chunk]:
    """Return the demand of a job. Equal chunks are merged.

    Raises:
        Dirty: A number is invalid.
    """
    total = count(ngpus or "0", "ngpus", 0)
    if select or nodes or (neednodes and not procs):
        parsed = [_chunk(part) for part in (select or nodes or neednodes).split("+")]
        pieces = whole_sum(chunk.pieces for chunk in parsed)
    elif procs:
        parsed = [_Chunk(count(procs, "procs"), 0, 1.0)]
        pieces = parsed[0].pieces
    elif ncpus or total:
        pieces = count(nodect or "1", "nodect")
        parsed = [_Chunk(pieces, 0, count(ncpus or "0", "ncpus", 0) / pieces)]
    else:
        parsed = _held(hosts) or [_Chunk(count(nodect or "1", "nodect"), 0, 1.0)]
        pieces = whole_sum(chunk.pieces for chunk in parsed)
    if total and not any(chunk.gpus for chunk in parsed):
        if total % pieces and total < pieces and pieces % total == 0 and len(parsed) == 1:
            # Several cores share a GPU, so make one part per GPU with all of its cores.
            parsed = [parsed[0]._replace(pieces=total, cpus=parsed[0].cpus * pieces / total)]
            pieces = total
        if total % pieces:
            raise Dirty("with GPUs that are not spread evenly over their nodes")
        parsed = [chunk._replace(gpus=total // pieces) for chunk in parsed]
    if not any(chunk.memory_gb for chunk in parsed):
        share = pbs_memory_gb(memory) / pieces
        parsed = [chunk._replace(memory_gb=share) for chunk in parsed]
    merged: dict[_Chunk, int] = {}
    for chunk in parsed:
        merged[chunk._replace(pieces=0)] = merged.get(chunk._replace(pieces=0), 0) + chunk.pieces
    return [chunk._replace(pieces=pieces) for chunk, pieces in merged.items()]


def _held(hosts: str) -> list[_Chunk]:
    """Parse the slots in ``exec_host`` into chunks: ``n1/0*8+n2/0*8``, ``n1/0+n1/1`` or ``n1/0-7``."""
    slots: dict[str, int] = {}
    for host, listed, times in _SLOTS.findall(hosts):
        number = int(times or 1)
        if not times and listed:
            ranges_ = [part.partition("-") for part in listed.split(",")]
            number = sum(
                int(last) - int(first) + 1 for first, dash, last in ranges_ if dash and (first + last).isdecimal()
            )
            number += sum(not dash for _, dash, _ in ranges_)
        slots[host] = slots.get(host, 0) + max(number, 1)
    return [_Chunk(1, 0, float(cores)) for cores in slots.values()]


def _chunk(text: str) -> _Chunk:
    """Parse PBS's ``2:ncpus=8:ngpus=2:mem=4gb``, or Torque's ``2:ppn=8:gpus=4``. In the latter, the
    name of a node counts as one node.
    """
    first, *rest = text.split(":")
    if "=" in first:
        rest, first = [first, *rest], "1"
    pieces = count(first, "chunks") if first.isdecimal() else 1
    fields = {key: value for key, _, value in (part.partition("=") for part in rest)}
    return _Chunk(
        pieces,
        count(next((fields[key] for key in _GPUS if fields.get(key)), "0"), "ngpus", 0),
        count(next((fields[key] for key in _CORES if fields.get(key)), "1"), "ncpus", 0),
        pbs_memory_gb(fields.get("mem") or "0"),
        next((fields[key] for key in _TYPE_KEYS if fields.get(key)), ""),
    )

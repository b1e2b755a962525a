"""Slurm's accounting: the output of ``sacct -P`` or ``sacct --json``.

``docs/reference/traces.md`` has the command. All rows with the same ``JobID`` are attempts of one
job, in order of submission. (``JobIDRaw`` cannot be the key, because the last task of an array has
the number of the array.) This was tested with Slurm 22.05.8 and 24.11.5.

Most jobs have one row, about which there is nothing to report. These jobs are converted column by
column. Few jobs have several rows (because they were requeued or are heterogeneous) or something to
report. All rows of such a job are needed together, so these jobs are built one at a time
(``_Reading.job``). Both ways call the same function to compute demands, once for each distinct
combination of fields (``_Kinds``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isnan, nan
from sys import intern
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.errors import ConfigError, ModelError, TraceError
from dagsim.families.slurm.accounting import (
    COLUMNS,
    COMMAND,
    Resources,
    array_tasks,
    delimiter_of,
    folder_parts,
    is_json,
    lacks_header,
    licences_or_none,
    limit_s,
    resources,
    sacct_tables,
    state,
    with_older_columns,
)
from dagsim.families.slurm.submission import Submission, begin_after_s, submission
from dagsim.model import Attempt, Job, Request, Task, TaskGraph
from dagsim.model.arithmetic import numbered, ordered_sum, whole_sum
from dagsim.text import count_of
from dagsim.traces.batch import NOT_OVER
from dagsim.traces.chunks import Table, local_seconds
from dagsim.traces.fields import Dirty, InvalidValue, count, finite_number
from dagsim.traces.reader import Block, Reader, Submissions, Unstarted
from dagsim.traces.report import Disagreement, ImpossibleTimes, OnlyInText, ReadReport, RepeatedId
from dagsim.traces.rows import (
    Findings,
    Grouped,
    JobBatch,
    in_parts,
    job_blocks,
    repeated,
    rows_by_job,
    with_others,
)
from dagsim.traces.sites import listed_hosts, readable_hosts, site_gpu
from dagsim.traces.source import Source
from dagsim.traces.times import (
    DAY_NUMBERS,
    UNSET_MOMENTS,
    are_day_numbers,
    duration_s,
    in_seconds,
    is_unset,
    moment_s,
    with_offsets,
)
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload.arrays import JobArrays, Labels, TaskKind, combinations, objects, optional

_Tables = Callable[[Source, ReadReport, TraceOptions], Iterator[Table]]
_PROTOCOLS = ("last-attempt", "all-attempts")
_NEVER_KEPT = {"BOOT_FAIL": "whose nodes did not boot", "REVOKED": "revoked by another cluster"}
_HOUR_S = 3600.0
_MOMENTS = ("Submit", "Eligible", "Start", "End")
_FAULTS = (
    "",
    InvalidValue("with an invalid duration in Suspended"),
    InvalidValue("with an invalid duration in ElapsedRaw"),
    InvalidValue("with an invalid duration in Elapsed"),
    "without End and Elapsed",
    ImpossibleTimes("with an end before the start"),
)
"""Reasons why a run time is unusable; the first is no reason."""
_NOTES = (
    "",
    ImpossibleTimes(
        "whose elapsed time differs by an hour from Start to End, as at a change of summer time; it counts"
    ),
    ImpossibleTimes("whose elapsed time is not that from Start to End without suspensions; it counts"),
    ImpossibleTimes("that start before their submission, taken as started then"),
    ImpossibleTimes("that start before they are eligible, taken as eligible then"),
)
"""Flaws in a run time that is used all the same; the first is no flaw."""
_IN_LINE = OnlyInText("with the GPUs of SubmitLine, since no list of resources has any (AccountingStorageTRES)")
_AGAIN = RepeatedId("with the id of an earlier job of another time, user or cluster; jobs of their own")
_NO_LIST = "whose list of nodes cannot be read, so their nodes are unknown"
_UNFINISHED = "of requeued jobs that are not over at the end, taken to run for as long as their longest attempt"
_OTHER_CPUS = Disagreement("whose NCPUS and AllocTRES disagree; taken as AllocTRES")
_OTHER_LENGTH = Disagreement("whose list of nodes and NNodes disagree")
_OTHER_COUNT = Disagreement("whose NNodes and AllocTRES (node) disagree; taken as NNodes")
_NODES_OF_TRES = re.compile(r"(?:^|,)node=(\d{1,8})(?:,|$)")
_DAY_S, _REQUEUE_S = 86400.0, 300.0
_SHORT_TIME = 8  # maximum length, in characters, of a time that is a number of seconds and not a date
_MIXED = Disagreement("that mix GPU types on a node, which all run on one type here")
_CLOCK_S = 1.0
"""Slurm's clock counts whole seconds, and each column is rounded separately."""
_AT = {name: place for place, name in enumerate(COLUMNS)}
_SHAPE = ("State", "TimelimitRaw", "Timelimit", "NNodes", "NCPUS", "ReqTRES", "AllocTRES", "Restarts",
          "SubmitLine", "Constraints", "Reservation", "ReqCPUS", "ReqMem", "ReqNodes", "ReqGRES",
          "AllocGRES")  # fmt: skip
"""Columns that determine, together with whether nodes were assigned, a job's demand and whether the
job is kept."""


class Sacct(Reader):
    """Builds one gang per job, with one instance per node. Each component of a heterogeneous job
    becomes a job, and these jobs start together (``Request.together``).

    Every job that held nodes is kept, however it ended. An attempt that was requeued, preempted or
    lost its node is followed by another attempt. The job's work is that of the last attempt
    (``protocol="last-attempt"``) or of all attempts (``all-attempts``); the observed start and wait
    are those of the first attempt.
    """

    name = "sacct"
    whole_folders = True
    summary = "Slurm's accounting: sacct -P or sacct --json"
    uses = frozenset(
        {
            "protocol",
            "keep_partial",
            "gpus_per_task",
            "reference_gpu",
            "floor_s",
            "timezone",
            "tenant",
            "demand",
            "mig",
            "shards",
            "gpu_names",
            "delimiter",
            "columns",
        }
    )

    def tables(self, source: Source, report: ReadReport, options: TraceOptions) -> Iterator[Table]:
        """Yield the rows of a source, with the columns ``COLUMNS``."""
        return sacct_tables(source, report, options.delimiter, options.named_columns())

    def recognises(self, source: Source) -> bool:
        if folder_parts(source) is not None:
            return True
        try:
            return is_json(source) or delimiter_of(source) is not None
        except TraceError:
            if source.path.is_dir():
                return False
            raise

    def nearly(self, source: Source) -> str | None:
        if lacks_header(source):
            return (
                "it looks like sacct without its header (-n): name its columns in the order of -o, such as "
                "--read columns=JobIDRaw,JobID,User,Account,Partition,State,Submit,Start,End,NNodes,AllocTRES"
            )
        names = re.split(r"[\s|,;]+", source.head(1)[0].lower())
        if not {"jobid", "jobidraw"} & set(names) or "state" not in names:
            return None
        return (
            "almost a log in the format 'sacct', but it was printed without -P or without all columns needed; this "
            f"command prints them: {COMMAND}"
        )

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        reading = _Reading.of(options, self.tables)
        parts = in_parts(partial(reading.rows, source), reading.keys, report, reading.learn)
        return job_blocks(map(reading.batch, parts), report, most)

    def unstarted(self, source: Source, options: TraceOptions) -> Iterator[Unstarted]:
        reading, report = _Reading.of(options, self.tables), ReadReport()
        tables = list(reading.rows(source, report))
        ran = {
            _job_id(id)
            for table in tables
            for id, start in zip(_ids(table).tolist(), reading._moments(table, "Start"), strict=True)
            if start >= 0
        }
        for table in tables:
            idle = [id not in ran for id in map(_job_id, _ids(table).tolist())]
            yield from reading.unstarted(table.chosen(np.flatnonzero(idle)))

    def submissions(self, source: Source, options: TraceOptions) -> Submissions:
        from dagsim.families.slurm.submissions import read_submissions

        return read_submissions(source, options)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        which = "all attempts of a job together" if options.protocol == "all-attempts" else "the last attempt of a job"
        answers = {
            "work": f"the seconds that {which} ran, without suspensions; a job arrives when it was first submitted",
            "tenant": f"the {options.tenant or 'account, or else the user'} (--read tenant=)",
            "demand": f"what was {options.demand or 'allocated'}, in equal parts on each node; any GPU type, unless "
            "the job requested one",
            "not listed": "sacct leaves out jobs that never became eligible",
        }
        if not is_json(source):
            answers["dates"] = f"times without an offset are in {options.timezone or 'UTC'} (--read timezone=)"
            names = set(map(str.lower, options.named_columns())) or _column_names(source)
            if "submitline" not in names:
                stated = [name for name in ("Constraints", "Reservation") if name.lower() in names]
                answers["terms"] = (
                    f"{' and '.join(stated) or 'none'}, because the log has no column SubmitLine, which holds "
                    "constraints, licences, dependencies, array limits and further partitions of a job"
                )
        return answers


def _column_names(source: Source) -> set[str]:
    """Return the names of the columns in all files of a log, in lower case."""
    names: set[str] = set()
    for file in source.files:
        try:
            names.update(re.split(r"[|,;\t]", file.head(1)[0].lower()))
        except TraceError:  # skip this file of the folder, because it is not accounting
            continue
    return {name.strip() for name in names}


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A valid row."""

    place: int
    id: str
    submitted: tuple[str, str, str, str]
    """User, account, partition and QOS."""
    state: str
    submit_s: float
    eligible_s: float
    start_s: float | None
    end_s: float | None
    ran_s: float
    limit_s: float | None
    nodes: int
    asked: Resources
    allocated: Resources
    ran: bool
    restarts: bool
    node_list: str
    terms: Submission

    @property
    def base(self) -> str:
        """The id of the attempt's job. The first component of a heterogeneous job has the id of the
        whole job."""
        return _job_id(self.id)

    @property
    def is_over(self) -> bool:
        return self.state not in NOT_OVER


class _Times(NamedTuple):
    """The times in n rows of accounting."""

    # For each column (n,) float64: seconds since 1970, NaN if not set, -inf if invalid.
    moments: Mapping[str, np.ndarray]
    ran_s: np.ndarray  # (n,) float64: seconds for which the job ran, without suspensions
    fault: np.ndarray  # (n,) int64: index in _FAULTS of what is wrong with the row
    note: np.ndarray  # (n,) int64: index in _NOTES of what is reported about the row

    @classmethod
    def of(cls, table: Table, *moments: np.ndarray) -> _Times:
        """Read the times in a table. ``moments`` contains one column for each name in
        ``_MOMENTS``."""

        def lasted(name: str) -> np.ndarray:
            labels = table.words(_AT[name])
            label_s = [_or_nan(lambda text: duration_s(text, name), text) for text in labels.words]
            values: np.ndarray = np.array(label_s, np.float64)[labels.place]
            return values

        *_, start, end = moments
        suspended, raw, elapsed = lasted("Suspended"), lasted("ElapsedRaw"), lasted("Elapsed")
        is_raw = ~np.isnan(raw)
        stated = np.where(is_raw, raw, elapsed)
        with np.errstate(invalid="ignore"):
            between = end - start - np.where(np.isnan(suspended), 0.0, suspended)
            apart = np.abs(between - stated)
            ran_s = np.where(np.isnan(stated), between, stated)
            wrong = (suspended == -inf, raw == -inf, ~is_raw & (elapsed == -inf), np.isnan(ran_s), ran_s < 0)
            submit, eligible = moments[:2]
            early = (start + _CLOCK_S < submit, start + _CLOCK_S < eligible)
            noted = (np.abs(apart - _HOUR_S) < 1, apart > _CLOCK_S, *early)
        fault, note = (np.select(masks, range(1, len(masks) + 1), 0) for masks in (wrong, noted))
        return cls(dict(zip(_MOMENTS, moments, strict=True)), ran_s, fault, note)

    def are_plain(self) -> np.ndarray:
        """Return (n,) bool: True for rows that have a start and whose times need no report."""
        times = self.moments
        plain: np.ndarray = (self.fault == 0) & (self.note == 0) & (self.ran_s < inf) & (times["Start"] >= 0)
        return plain & ~np.isneginf(times["End"]) & ~np.isneginf(times["Eligible"])

    def moment(self, name: str, row: int) -> float | None:
        """Return one of a row's times, or None if it is not set.

        Raises:
            Dirty: The text is not a time.
        """
        moment = float(self.moments[name][row])
        if moment == -inf:
            raise Dirty(InvalidValue(f"with an invalid time in {name}"))
        return None if isnan(moment) else moment


_EXAMPLE = _Times(dict(zip(_MOMENTS, np.array([[1.0], [1.0], [2.0], [12.0]]), strict=True)), np.array([10.0]),
                  np.zeros(1, np.int64), np.zeros(1, np.int64))  # fmt: skip
"""The row of an attempt that ran for 10 s."""


def _nodes_of_tres(text: str) -> int:
    """Return the number of nodes in a list of resources, or 0 if it is not stated."""
    stated = _NODES_OF_TRES.search(text)
    return int(stated[1]) if stated else 0


class _Reuse:
    """Finds job ids that Slurm has used for more than one job.

    Rows with the same id, user and cluster are attempts of one job if each attempt was submitted
    soon after the end of the previous one. Soon means within a day, because Slurm submits a
    requeued job again, or within five minutes (MinJobAge) if the previous attempt completed.
    If an attempt was submitted later, Slurm has used the id again for another job.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[np.ndarray, ...]] = []
        self._numbers: dict[tuple[int, int, float], int] | None = None

    def add(self, *columns: np.ndarray) -> None:
        """Add rows. The arguments are columns: hashes of the ids without components, of the full
        ids and of the owners, times of submission and end, and whether the row's job completed.
        """
        self._rows.append(columns)

    @property
    def numbers(self) -> dict[tuple[int, int, float], int]:
        """Numbers that distinguish jobs with the same id. The first job with an id has no entry. A
        key consists of the hash of the id, the hash of the owner and the submission time.
        """
        if self._numbers is None:
            self._numbers = {}
            if self._rows:
                ids, *others = (np.concatenate(column) for column in zip(*self._rows, strict=True))
                self._rows.clear()
                places = np.flatnonzero(repeated(ids) | repeated(ids[::-1])[::-1])
                order = np.lexsort((others[3][places], others[2][places], ids[places]))
                self._number(*(column[places[order]].tolist() for column in (ids, *others)))
        return self._numbers

    def _number(
        self,
        ids: list[int],
        full: list[int],
        owners: list[int],
        submit_s: list[float],
        end_s: list[float],
        completed: list[bool],
    ) -> None:
        """Number the jobs in rows that are sorted by id and submission."""
        assert self._numbers is not None
        # One entry per job with this id: a map from full ids to the last row with that full id.
        jobs: list[dict[int, int]] = []

        def continues(row: int, last: dict[int, int]) -> bool:
            before = last.get(full[row], next(iter(last.values())))
            if owners[row] != owners[before]:
                return False
            if full[row] not in last or submit_s[row] - submit_s[before] <= _CLOCK_S:
                return True
            longest_s = _REQUEUE_S if completed[before] else _DAY_S
            return isnan(end_s[before]) or -_CLOCK_S <= submit_s[row] - end_s[before] <= longest_s

        for row, id in enumerate(ids):
            if row and id != ids[row - 1]:
                jobs.clear()
            number = next((number for number, last in enumerate(jobs) if continues(row, last)), len(jobs))
            if number == len(jobs):
                jobs.append({})
            jobs[number][full[row]] = row
            if number:
                self._numbers[id, owners[row], submit_s[row]] = number


def unfolded(table: Table, zone: ZoneInfo | None, report: ReadReport) -> Table:
    """Add the UTC offset to dates that are ambiguous or impossible because of a clock change. If
    there are several ways to read a row, choose the one in which its times are in order and agree
    with the stated duration.
    """
    if zone is None:
        return table

    def lasts_s(row: int) -> float:
        elapsed, suspended = (
            _or_nan(lambda text: duration_s(text, ""), table.texts(_AT[name])[row])
            for name in ("ElapsedRaw" if table.texts(_AT["ElapsedRaw"])[row] else "Elapsed", "Suspended")
        )
        return elapsed + (suspended if suspended > 0 else 0.0)

    return with_offsets(table, [_AT[name] for name in _MOMENTS], lasts_s, zone, report)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The state of one pass over a log."""

    options: TraceOptions
    findings: Findings
    zone: ZoneInfo | None
    named: dict[str, str]
    times: _Times
    """Times of the table's rows."""
    tables: _Tables
    """Reads the rows of a source."""
    reuse: _Reuse = field(default_factory=lambda: _Reuse())
    """Ids that were used again."""
    dated: list[bool] = field(default_factory=list)
    """True if the log's clock counts from 1970; None until that is known."""
    alike: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """By user and name: the ids of jobs since the last one that waited for all earlier ones
    (singleton), beginning with that one."""

    @classmethod
    def of(cls, options: TraceOptions, tables: _Tables) -> _Reading:
        """Prepare to read a log with these options.

        Raises:
            ConfigError: ``options.protocol`` does not exist.
        """
        if options.protocol not in (None, *_PROTOCOLS):
            raise ConfigError(f"sacct has no protocol {options.protocol!r}; choose from {', '.join(_PROTOCOLS)}")
        return cls(options, Findings(), options.zone(), options.named_gpus(), _EXAMPLE, tables)

    def rows(self, source: Source, report: ReadReport) -> Iterator[Table]:
        """Yield the rows of jobs with an id and a submission time, and skip steps."""
        for table in self.tables(source, report, self.options):
            ids = _ids(table).tolist()
            # a step's id contains a dot, but so does an array's list that was cut off
            # (``[3-90,...``)
            steps = np.array(["." in id and "." in id.partition("[")[0] for id in ids], bool)
            if steps.any():
                report.skip("of steps", int(steps.sum()))
            table = unfolded(table, self.zone, report)
            scaled: list[np.ndarray] = []
            submit = self._moments(table, "Submit", scaled)
            for row in np.flatnonzero(scaled[0] & ~steps).tolist() if scaled else ():
                report.note("whose Submit is in milliseconds", table.where(row))
            fine = (submit >= 0) & np.array(list(map(bool, ids)))
            for row in np.flatnonzero(~fine & ~steps).tolist():
                reason = InvalidValue("with an invalid time in Submit") if submit[row] == -inf else "without Submit"
                report.drop(reason if ids[row] else "without an id", table.where(row))
            if are_day_numbers(submit):
                report.note(ImpossibleTimes(DAY_NUMBERS), table.where(0), int(np.count_nonzero(fine & ~steps)))
            yield table.chosen(np.flatnonzero(fine & ~steps))

    def keys(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """Return the job id of each row, and its submission time."""
        ids, submit = objects([_job_id(id) for id in _ids(table).tolist()]), self._moments(table, "Submit")
        if self.reuse.numbers:
            owners = zip(*[table.texts(_AT[name]).tolist() for name in ("User", "Cluster")], strict=True)
            for row, key in enumerate(zip(map(hash, ids.tolist()), map(hash, owners), submit.tolist(), strict=True)):
                if number := self.reuse.numbers.get(key):
                    ids[row] = f"{ids[row]}:{number + 1}"
        return ids, submit

    def batch(self, table: Table) -> JobBatch:
        """Convert the jobs in a table. Jobs with one row and nothing to report are converted
        together. Other jobs are built from their attempts.
        """
        reading = replace(self, findings=Findings())
        ids, submit = self.keys(table)
        others = []
        for name in _MOMENTS[1:]:
            scaled: list[np.ndarray] = []
            others.append(self._moments(table, name, scaled))
            for mask in scaled:
                reading.findings.note(np.flatnonzero(mask), f"whose {name} is in milliseconds")
        times = _Times.of(table, submit, *others)
        groups = _in_order(rows_by_job(ids, submit))
        again = {job: name for job, name in enumerate(groups.ids.tolist()) if self.reuse.numbers and ":" in name}
        for job in again:
            reading.findings.note(groups.row[groups.first[job] : groups.first[job] + 1], _AGAIN)
        kinds = _Kinds(table, reading.template)
        plain = times.are_plain() & kinds.known
        first, start = groups.row[groups.first[:-1]], times.moments["Start"]
        work = self.options.all_on_reference(times.ran_s, kinds.measured_on, kinds.place)
        eligible = times.moments["Eligible"]
        arrival, eligible_s = submit[first], np.where(np.isnan(eligible), submit, eligible)[first]
        labels = ("User", "Account", "Partition", "QOS", "NodeList")
        words = {name: table.words(_AT[name]).chosen(first) for name in labels}
        priority, request = self._submitted_terms(table, groups.ids, first, words["Partition"], words["User"])
        words["Partition"] = words["Partition"].mapped(lambda text: text.partition(",")[0])
        hosts, end = words["NodeList"].mapped(readable_hosts), times.moments["End"][first]
        with np.errstate(invalid="ignore"):  # impossible times give NaN here, and their rows are dropped later
            suspended = (end - start[first] - times.ran_s[first] > _CLOCK_S) & np.isfinite(end)
        attempts: list[tuple[Attempt, ...]] = [()] * len(first)
        for job in np.flatnonzero(suspended).tolist():
            moments = float(eligible_s[job]), float(start[first[job]]), float(end[job])
            attempts[job] = (Attempt(*moments, hosts.words[hosts.place[job]]),)
        every = JobArrays.of_single_tasks(
            groups.ids,
            arrival,
            "job",
            work=np.where(work < self.options.floor_s, self.options.floor_s, work)[first],
            instances=kinds.instances[kinds.place][first],
            kind=kinds.kind[kinds.place][first],
            kinds=kinds.kinds,
            estimate=kinds.estimate[kinds.place][first],
            tenant=self.options.tenants(words["User"], words["Account"], words["Partition"]),
            user=words["User"],
            account=words["Account"],
            partition=words["Partition"],
            qos=words["QOS"],
            priority=priority,
            request=request,
            observed_start_s=np.maximum(arrival, start[first]),
            eligible_s=np.maximum(arrival, np.fmin(eligible_s, start[first])),
            observed_nodes=hosts,
            observed_attempts=Labels.of(attempts),
            observed_gpu=Labels(kinds.place, tuple([kind or "" for kind in kinds.measured_on])).chosen(first),
        )
        kept = plain[first] & (np.diff(groups.first) == 1)
        ones = np.ones(len(kept), np.int64)
        batch = JobBatch(table, every, kept, ones, groups.job_of_row(), reading.findings)
        timed = replace(reading, times=times)

        def make(job: int, rows: list[int]) -> tuple[Job, int] | None:
            made = timed.job(float(groups.time[job]), {row: table.fields(row) for row in rows})
            if made is None or not (name := again.get(job)):
                return made
            return replace(made[0], id=name), made[1]

        reading.note_nodes(table, np.flatnonzero(kept[groups.job_of_row()]))
        return with_others(batch, make, groups.first, groups.row)

    def learn(self, table: Table, whole: bool) -> None:
        """Record the ids, owners and times in a table, so that ``keys`` can later distinguish jobs
        with the same id. ``whole`` is True if the table contains all rows.
        """
        bases = [_job_id(id) for id in _ids(table).tolist()]
        if whole and len(set(bases)) == len(bases):  # a shortcut: in most logs, each job has a single row
            return
        owners = map(hash, zip(*[table.texts(_AT[name]).tolist() for name in ("User", "Cluster")], strict=True))
        ids = [map(hash, column) for column in (bases, _ids(table).tolist())]
        columns = [np.fromiter(column, np.int64, len(table)) for column in (*ids, owners)]
        states = table.words(_AT["State"])
        completed = np.array([word.upper().startswith("COMPLETED") for word in states.words], bool)[states.place]
        self.reuse.add(*columns, self._moments(table, "Submit"), self._moments(table, "End"), completed)

    def unstarted(self, table: Table) -> Iterator[Unstarted]:
        """Yield the jobs in a table of rows that never ran. Jobs that were never eligible are left
        out, because they did not wait.
        """
        times = _Times.of(table, *[self._moments(table, name) for name in _MOMENTS])
        reading = replace(self, findings=Findings(), times=times)
        for row in range(len(table)):
            try:
                attempt = reading._attempt(row, dict(zip(COLUMNS, table.fields(row), strict=True)))
                job = reading._made(attempt.submit_s, [replace(attempt, allocated=attempt.asked)])
                if reading.times.moment("Eligible", row) is not None:
                    yield Unstarted(job, inf if attempt.end_s is None else attempt.end_s)
            except (Dirty, ModelError):  # this fault was already reported when the same log was read for its jobs
                continue

    def note_nodes(self, table: Table, rows: np.ndarray) -> None:
        """Report each row whose list of nodes cannot be read, or whose list has another number of
        nodes than the row states.
        """
        listed, count = table.words(_AT["NodeList"]), table.words(_AT["NNodes"])
        given = table.words(_AT["AllocTRES"])
        stated = np.array([int(text) if text.isdecimal() and len(text) < 9 else 0 for text in count.words])[count.place]
        found = np.array([_listed_nodes(text) for text in listed.words])[listed.place]
        self.findings.note(rows[found[rows] < 0], _NO_LIST)
        self.findings.note(rows[(found[rows] > 0) & (stated[rows] > 0) & (found != stated)[rows]], _OTHER_LENGTH)
        of_tres = np.array([_nodes_of_tres(text) for text in given.words])[given.place]
        self.findings.note(rows[(of_tres[rows] > 0) & (stated[rows] > 0) & (of_tres != stated)[rows]], _OTHER_COUNT)

    def _submitted_terms(
        self, table: Table, ids: np.ndarray, first: np.ndarray, partition: Labels, user: Labels
    ) -> tuple[np.ndarray | None, Labels | None]:
        """Return each job's priority and request, from the columns of its first row."""
        columns = [table.words(_AT[name]).chosen(first) for name in ("SubmitLine", "Constraints", "Reservation")]
        nodes = table.words(_AT["NNodes"]).chosen(first).mapped(lambda text: int(text) if text.isdecimal() else 0)
        asked = table.words(_AT["ReqTRES"]).chosen(first)
        counts_licences = any("license/" in word.lower() for word in asked.words)
        several = any("," in word for word in partition.words)
        if not (several or counts_licences or any(any(column.words) for column in columns)):
            return None, None
        licences = asked.mapped(licences_or_none) if counts_licences else Labels(np.zeros(len(first), np.int32), ((),))
        components = map(_component, ids.tolist())
        rows = zip(*[column.tolist() for column in (*columns, partition, licences, nodes)], components, strict=True)
        terms = [submission(*row) for row in rows]
        nice = np.array([-term.nice or 0.0 for term in terms])
        submit_s = self._moments(table, "Submit")[first].tolist()
        requests = [self._request(*job) for job in zip(terms, ids.tolist(), submit_s, strict=True)]
        for place, (term, owner, id) in enumerate(zip(terms, user.tolist(), ids.tolist(), strict=True)):
            if term.name:
                alike = self.alike.setdefault((owner, term.name), [])
                if term.singleton:
                    request = requests[place] or Request()
                    requests[place] = replace(request, after=(*request.after, *alike))
                    alike.clear()
                alike.append(id)
        return optional(nice, 0.0), Labels.of([request or None for request in requests])

    def _moments(self, table: Table, name: str, scaled: list[np.ndarray] | None = None) -> np.ndarray:
        """Return (n,) float64: seconds since 1970, NaN if not set, ``-inf`` if not a time.
        Times in milliseconds are converted, and ``scaled`` then receives their mask.
        """
        texts = table.texts(_AT[name])
        blank = texts == ""
        try:
            seconds = np.where(blank, "nan", texts).astype(np.float64)
            seconds = np.where(blank | ((seconds >= 0) & (seconds < inf)), seconds, -inf)
        except ValueError:
            seconds = local_seconds(texts, self.zone)
            seconds[seconds < 0] = -inf
            for row in np.flatnonzero(np.isnan(seconds)).tolist():
                seconds[row] = _or_nan(lambda text: moment_s(text, "", self.zone), texts[row])
        seconds, long = in_seconds(seconds)
        if scaled is not None and long.any():
            scaled.append(long)
        odd = (seconds <= 0) | (seconds >= UNSET_MOMENTS[1])
        if odd.any():
            seconds[odd & np.isin(seconds, UNSET_MOMENTS[not self._is_dated(table) :])] = nan
        return seconds

    def _is_dated(self, table: Table) -> bool:
        """Return True if the log's clock counts from 1970. The clock of a synthetic log may begin
        at 0.
        """
        if not self.dated:
            submit = table.texts(_AT["Submit"]).tolist()
            self.dated.append(any(len(text) > _SHORT_TIME and not text.startswith("1970-") for text in submit))
        return self.dated[0]

    def job(self, time: float, rows: dict[int, list[str]]) -> tuple[Job, int] | None:
        """Build a job from its rows. Return the job and the number of its attempts, or ``None`` if
        the job has to be dropped.
        """
        attempts: list[_Attempt] = []
        seen: list[list[str]] = []
        for place, row in rows.items():
            try:
                attempt = self._attempt(place, dict(zip(COLUMNS, row, strict=True)))
                if row in seen:
                    raise Dirty("given twice")
                seen.append(row)
                _refuse_again(attempt, attempts)
            except Dirty as reason:
                self._drop_row(str(reason), place)
            else:
                attempts.append(attempt)
        if not (kept := self._lasting(attempts) if attempts else []):
            return None
        try:
            return self._made(time, kept), len(kept)
        except Dirty as reason:
            self._drop(str(reason), kept)
        except ModelError as error:
            self._drop("that describe an impossible job", kept, str(error))
        return None

    def template(self, row: list[str]) -> tuple[Task, str | None] | None:
        """Build the task of a job that has only this row, as if the job had run for 10 s. Return
        the task and the GPU type on which it was measured. Return ``None`` if there is anything to
        report about the row.
        """
        scratch = replace(self, findings=Findings(), times=_EXAMPLE)
        try:
            ran = scratch._lasting([scratch._attempt(0, dict(zip(COLUMNS, row, strict=True)) | {"JobID": "1"})])
            parts = scratch._by_type(ran) if ran else []
            task = scratch._task(parts[0], "job") if len(parts) == 1 else None
        except (Dirty, ModelError):
            return None
        # Leave out components of heterogeneous jobs: they share a submit line, but each uses its
        # own part of it.
        if task is None or scratch.findings or ran[0].terms.several:
            return None
        return task, self._measured_on(parts[0][-1])

    def _measured_on(self, attempt: _Attempt) -> str | None:
        kinds = [site_gpu(kind, self.named) for kind, _ in attempt.allocated.types]
        return kinds[0] if len(kinds) == 1 else None

    def _drop(self, reason: str, rows: list[_Attempt], detail: str = "") -> None:
        for attempt in rows:
            self._drop_row(reason, attempt.place, detail)

    def _drop_row(self, reason: str, place: int, detail: str = "") -> None:
        self.findings.one(place, reason, True, detail=detail)

    def _note(self, text: str, place: int, times: int = 1) -> None:
        self.findings.one(place, text, False, times)

    def _attempt(self, place: int, row: dict[str, str]) -> _Attempt:
        """Build the attempt that a row describes.

        Raises:
            Dirty: The row is unusable.
        """
        word = state(row["State"])
        allocated = resources(row["AllocTRES"])
        start_s, end_s, submit_s = (self.times.moment(name, place) for name in ("Start", "End", "Submit"))
        nowhere = row["NodeList"].lower() == "none assigned"
        ran = word != "PENDING" and start_s is not None and not nowhere
        if row["ReqTRES"] or row["AllocTRES"]:  # if the file lacks these columns, both are empty
            ran = ran and allocated.is_stated
        if ran and allocated.cpus and row["NCPUS"].isdecimal() and int(row["NCPUS"]) != allocated.cpus:
            self._note(_OTHER_CPUS, place)
        if (
            ran
            and (of_tres := _nodes_of_tres(row["AllocTRES"]))
            and row["NNodes"].isdecimal()
            and int(row["NNodes"]) != of_tres
        ):
            self._note(_OTHER_COUNT, place)
        nodes = count(row["NNodes"] or row["ReqNodes"] or "1", "NNodes", 0) or 1
        states_request = any(row[name] for name in ("ReqTRES", "ReqCPUS", "ReqMem", "ReqGRES"))
        cpus = row["ReqCPUS"] or (row["NCPUS"] if states_request and not row["ReqTRES"] else "")
        terms = self._terms(place, row, nodes)
        asked = with_older_columns(resources(row["ReqTRES"]), row["ReqGRES"], row["ReqMem"], cpus, nodes, False)
        has_total = not is_unset(row["AllocGRES"])
        allocated = with_older_columns(
            allocated, row["AllocGRES"] if has_total else row["ReqGRES"], row["ReqMem"], row["NCPUS"], nodes, has_total
        )
        if not allocated.has_gpus and asked.has_gpus and ran:
            self._note(
                Disagreement(
                    "whose ReqTRES and AllocTRES disagree: GPUs were requested but none allocated; taken as allocated"
                ),
                place,
            )
            allocated = allocated.with_gpus_of(asked)
        elif not (allocated.has_gpus or asked.has_gpus) and (lines := resources(terms.gpu_tres(nodes))).has_gpus:
            if ran:
                self._note(_IN_LINE, place)
            asked, allocated = asked.with_gpus_of(lines), allocated.with_gpus_of(lines)
        # The log does not state how many GPUs were requested, so use the number of allocated GPUs,
        # of any type.
        elif asked.is_stated and not row["ReqTRES"] and is_unset(row["ReqGRES"]):
            asked = asked.with_gpus_of(allocated)._replace(types=())
        if asked.gpus and nodes > 1 and not is_unset(row["ReqGRES"]) and not has_total:
            self._note("whose GPUs are those of ReqGRES, taken as a number per node", place)
        return _Attempt(
            place,
            row["JobID"] or row["JobIDRaw"],
            _submitted(row),
            word,
            submit_s or 0.0,
            self.times.moment("Eligible", place) or submit_s or 0.0,
            start_s,
            end_s,
            self._ran_s(place) if ran else 0.0,
            limit_s(row["TimelimitRaw"], row["Timelimit"]),
            nodes,
            asked,
            allocated,
            ran,
            not is_unset(row["Restarts"]) and finite_number(row["Restarts"], "Restarts") > 0,
            row["NodeList"],
            terms,
        )

    def _ran_s(self, place: int) -> float:
        """Return the run time of an attempt that ran.

        Raises:
            Dirty: The run time is missing or invalid.
        """
        if fault := _FAULTS[self.times.fault[place]]:
            raise Dirty(fault)
        if note := _NOTES[self.times.note[place]]:
            self._note(note, place)
        return float(self.times.ran_s[place])

    def _terms(self, place: int, row: dict[str, str], nodes: int) -> Submission:
        licences = resources(row["ReqTRES"]).licences
        columns = (row["SubmitLine"], row["Constraints"], row["Reservation"], row["Partition"])
        terms = submission(*columns, licences, nodes, _component(row["JobID"]))
        if terms.fault:
            raise Dirty(terms.fault)
        if terms.note:
            self._note(terms.note, place)
        return terms

    def _request(self, terms: Submission, id: str, submit_s: float) -> Request | None:
        """Build a job's request. If the array limits how many of its tasks run at the same time,
        the request names the array. In a condition on the same task of another array
        (``aftercorr``), ``_*`` is replaced by the number of the task. A begin time is counted from
        the submission. If the terms of the submission cannot be read, the request has no
        conditions, and the job becomes eligible at the time that the log states.
        """
        request = terms.request
        array, _, task = id.partition("_")
        if terms.several:
            request = replace(request or Request(), together=id.partition("+")[0])
        if request is not None and request.array_limit is not None:
            request = replace(request, array=array)
        if request is not None and any(entry.endswith("_*") for entry in request.after):
            own = f"_{task}" if task else ""
            request = replace(request, after=tuple([entry.replace("_*", own) for entry in request.after]))
        if terms.begin:
            begin_s = begin_after_s(terms.begin, submit_s, self._moment_or_none)
            request = request or Request()
            request = replace(request, after=()) if begin_s is None else replace(request, begin_s=begin_s)
        return request

    def _moment_or_none(self, text: str) -> float | None:
        try:
            return moment_s(text, "SubmitLine", self.zone)
        except Dirty:
            return None

    def _lasting(self, attempts: list[_Attempt]) -> list[_Attempt]:
        """Return the attempts that ran, in order. Return none if the job is dropped. A requeued job
        that is still waiting when the log ends is kept, because its earlier attempts held nodes.
        """
        attempts.sort(key=lambda row: (row.submit_s, inf if row.start_s is None else row.start_s, row.place))
        ran: list[_Attempt] = []
        for attempt in attempts:
            reason = None if ran and attempt.ran and attempt.state == "RUNNING" else self._unusable(attempt)
            if reason is None:
                ran.append(attempt)
                continue
            detail = ""
            if (tasks := _array_tasks(attempt.id)) is not None:
                reason, detail = "of array tasks that never ran", f"{count_of(tasks, 'task')}"
                self._note("array tasks never ran, at least", attempt.place, tasks)
            self._drop_row(reason, attempt.place, detail)
        if ran and not attempts[-1].is_over and not self.options.keep_partial:
            self._note(_UNFINISHED, attempts[-1].place)
        if ran and ran[0].restarts:
            self._note(
                "of requeued jobs without their first attempts, which only sacct --duplicates lists", ran[0].place
            )
        return ran

    def _unusable(self, attempt: _Attempt) -> str | None:
        if attempt.state in _NEVER_KEPT:
            return _NEVER_KEPT[attempt.state]
        if not attempt.ran:
            if attempt.state == "CANCELLED":
                return "cancelled before they started"
            return "that never ran" if attempt.state in NOT_OVER else "that ended before they started"
        if not attempt.is_over and not self.options.keep_partial:
            return "that outlive the trace"
        return None

    def _made(self, time: float, attempts: list[_Attempt]) -> Job:
        """Build the job from its attempts.

        Raises:
            Dirty, ModelError: Its demand is unclear or invalid.
        """
        # Use the wait of the first attempt, because later attempts follow from preemptions and
        # failures, which the simulation produces itself.
        first = attempts[0]
        pieces = self._by_type(attempts)
        names = [f"part-{place}" for place in range(len(pieces))] if len(pieces) > 1 else ["job"]
        tasks = [self._task(piece, name) for piece, name in zip(pieces, names, strict=True)]
        request = self._request(first.terms, first.base, time)
        return Job(
            first.base,
            TaskGraph(tuple(tasks)),
            time,
            tenant=self._tenant(*first.submitted[:3]),
            user=first.submitted[0],
            account=first.submitted[1],
            # a job that requested several partitions gets the one in which it ran
            partition=first.submitted[2],
            qos=first.submitted[3],
            priority=-first.terms.nice or 0.0,
            request=request,
            observed_start_s=None if first.start_s is None else max(time, first.start_s),
            eligible_s=max(time, first.eligible_s if first.start_s is None else min(first.eligible_s, first.start_s)),
            observed_nodes=self._nodes(first),
            observed_gpu=self._measured_on(first) or "",
            observed_attempts=self._attempts(attempts),
        )

    def _attempts(self, attempts: list[_Attempt]) -> tuple[Attempt, ...]:
        """Return the attempts of a job that was requeued or suspended. Return none if the job had
        one attempt that is fully described by its start and its work.
        """
        runs: list[Attempt] = []
        for attempt in attempts:
            if attempt.start_s is None:
                continue
            since_s = max(attempt.start_s, attempt.submit_s)
            end_s = since_s + attempt.ran_s if attempt.end_s is None else max(since_s, attempt.end_s)
            eligible_s = max(attempt.submit_s, min(attempt.eligible_s, since_s))
            runs.append(Attempt(eligible_s, since_s, end_s, readable_hosts(attempt.node_list)))
        if len(runs) == 1 and runs[0].end_s - runs[0].start_s - attempts[0].ran_s <= _CLOCK_S:
            return ()
        return tuple(runs)

    def _tenant(self, user: str, account: str, partition: str) -> str:
        owners = {"user": user, "account": account, "partition": partition}
        return (account or user) if self.options.tenant is None else owners[self.options.tenant]

    def _nodes(self, attempt: _Attempt) -> tuple[str, ...]:
        """Return the nodes that the log lists for an attempt, or none if the list cannot be read."""
        if (found := _listed_nodes(attempt.node_list)) < 0:
            self._note(_NO_LIST, attempt.place)
        elif found and attempt.nodes != found:
            self._note(_OTHER_LENGTH, attempt.place)
        return readable_hosts(attempt.node_list)

    def _by_type(self, attempts: list[_Attempt]) -> list[list[_Attempt]]:
        """Group a job's attempts by GPU type, because a gang runs on a single type. Only a job that
        holds whole nodes with several types is split.
        """
        last = attempts[-1]
        allocated, nodes = last.allocated, last.nodes
        if allocated.gpus > last.asked.gpus and last.asked.is_stated:
            self._note(Disagreement("that hold GPUs that they did not request"), last.place)
        requested = self.options.demand == "requested" and last.asked.is_stated
        if requested or allocated.slices or len(allocated.types) < 2:
            return [attempts]
        if nodes < 2 or allocated.gpus % nodes:
            self._note(_MIXED, last.place)
            return [attempts]
        per_node = allocated.gpus // nodes
        if whole_sum(size for _, size in allocated.types) != allocated.gpus or any(
            size % per_node for _, size in allocated.types
        ):
            self._note(_MIXED, last.place)
            return [attempts]
        self._note("on nodes with several GPU types, whose parts need not start together in the simulation", last.place)
        parts = []
        for kind, size in sorted(allocated.types, key=lambda pair: -pair[1]):
            share = size / allocated.gpus
            part = Resources(size, ((kind, size),), (), 0, allocated.cpus * share, allocated.memory_gb * share)
            parts.append([*attempts[:-1], replace(last, nodes=size // per_node, allocated=part)])
        return parts

    def _task(self, attempts: list[_Attempt], name: str) -> Task:
        last = attempts[-1]
        if self.options.protocol == "all-attempts":
            seconds = ordered_sum(attempt.ran_s for attempt in attempts)
        else:  # the last attempt may still be running, so an earlier one may have run for longer
            begun = attempts[-1:] if last.is_over else attempts
            seconds = max(attempt.ran_s for attempt in begun)
        alone = last.terms.request is not None and last.terms.request.exclusive and last.asked.is_stated
        requested = alone or (self.options.demand == "requested" and last.asked.is_stated)
        taken = last.asked if requested else last.allocated
        instances, gpus = self._shape(taken, last)
        measured_on = self._measured_on(last)
        asked = tuple(dict.fromkeys([site_gpu(kind, self.named) for kind, _ in last.asked.types]))
        limit = last.limit_s
        return Task(
            name,
            max(self.options.on_reference(seconds, measured_on), self.options.floor_s),
            instances,
            instances > 1,
            gpus,
            taken.cpus / instances,
            taken.memory_gb / instances,
            asked or None if gpus else None,
            estimate=None if limit is None else self.options.on_reference(limit, measured_on),
        )

    def _shape(self, taken: Resources, attempt: _Attempt) -> tuple[int, float]:
        """Return the number of instances, and the GPUs per instance."""
        nodes = attempt.nodes
        if attempt.terms.tasks is not None and not (taken.gpus or taken.slices or taken.shards):
            return attempt.terms.tasks, 0
        if taken.slices:
            if not self.options.mig:
                raise Dirty("on MIG slices (--read mig=true keeps them)")
            if len(taken.slices) > 1:
                self._note("on MIG slices of several sizes (each taken as the largest)", attempt.place)
            return whole_sum(count for _, count in taken.slices), max(share for share, _ in taken.slices)
        if taken.gpus:
            if taken.gpus % nodes == 0:
                return nodes, taken.gpus // nodes
            self._note("with GPUs spread unevenly over their nodes (treated as single GPUs)", attempt.place)
            return taken.gpus, 1
        if taken.shards:
            if self.options.shards is None:
                raise Dirty("on shards of a GPU (--read shards=N keeps them)")
            whole, rest = divmod(taken.shards, self.options.shards)
            return 1, whole + (rest > 0) if whole else rest / self.options.shards
        return nodes, self.options.gpus_per_task or 0


def _refuse_again(attempt: _Attempt, earlier: list[_Attempt]) -> None:
    """Check that each attempt has a single row, because two listings may contain the same attempt,
    once as running and once as finished.

    Raises:
        Dirty: The attempt is already listed, and this row adds nothing.
    """
    for place, other in enumerate(earlier):
        if (other.submit_s, other.start_s) == (attempt.submit_s, attempt.start_s) and attempt.start_s is not None:
            if other.is_over or not attempt.is_over:
                raise Dirty("of an attempt that another row describes")
            earlier[place] = attempt
            raise Dirty("of an attempt that another row describes")


def _submitted(row: dict[str, str]) -> tuple[str, str, str, str]:
    """Return the user, account, partition and QOS. Jobs with equal values share one tuple, which
    saves memory."""
    partition = row["Partition"].partition(",")[0]
    return intern(row["User"]), intern(row["Account"]), intern(partition), intern(row["QOS"])


def _job_id(id: str) -> str:
    """Return a job's id. The first component of a heterogeneous job has the id of the whole job."""
    return id.removesuffix("+0")


def _component(id: str) -> int:
    """Return the number of a component in a heterogeneous job, or 0 for other jobs."""
    number = id.partition("+")[2].partition(":")[0]
    return int(number) if number.isdecimal() and len(number) < 6 else 0


def _ids(table: Table) -> np.ndarray:
    """Return (n,) object: the id of each row."""
    ids, raw = table.texts(_AT["JobID"]), table.texts(_AT["JobIDRaw"])
    return np.where(ids == "", raw, ids)


class _Kinds:
    """The demands of all rows. Each distinct demand is stored once."""

    def __init__(self, table: Table, template: Callable[[list[str]], tuple[Task, str | None] | None]) -> None:
        nodes = table.words(_AT["NodeList"])
        nowhere = np.array([text.lower() == "none assigned" for text in nodes.words])[nodes.place]
        self.place, firsts = combinations([*[table.words(_AT[name]).place for name in _SHAPE], nowhere])
        """(n,) int64: index of each row's entry."""
        templates = [template(table.fields(at)) for at in firsts.tolist()]
        self.known = np.array([row_template is not None for row_template in templates])[self.place]
        """(n,) bool: True if there is nothing to report about the row's demand, state and limit."""
        tasks, self.measured_on = zip(
            *[row_template or (Task("job", 0.0), None) for row_template in templates], strict=True
        )
        self.instances = np.array([task.instances for task in tasks], np.int64)
        self.estimate = np.array([nan if task.estimate is None else task.estimate for task in tasks], np.float64)
        self.kind, self.kinds = numbered([TaskKind(task.demand, task.gang) for task in tasks])


def _or_nan(read: Callable[[str], float | None], text: str) -> float:
    """Apply ``read`` to a text. Return NaN if the text is not set, and ``-inf`` if it is
    invalid."""
    try:
        value = read(text)
    except Dirty:
        return -inf
    return nan if value is None else value


def _in_order(groups: Grouped) -> Grouped:
    """Sort jobs with equal submission times by number, because text and JSON list them in different
    orders.
    """
    ids = groups.ids.tolist()
    if all(id.isascii() and id.isdecimal() and len(id) < 19 and (id[0] != "0" or id == "0") for id in ids):
        return groups.ordered(np.lexsort((np.array(ids, object).astype(np.int64), groups.time)))
    jobs, tied = np.arange(len(ids)), np.flatnonzero(np.diff(groups.time) == 0)
    begins = tied[np.diff(tied, prepend=-2) > 1]
    ends = np.searchsorted(groups.time, groups.time[begins], "right")
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        jobs[begin:end] = sorted(range(begin, end), key=lambda job: _order(ids[job]))
    return groups.ordered(jobs)


def _order(job: str) -> tuple[tuple[int, ...], str]:
    """Return a sort key that gives the order of submission: the array number, then the job
    number."""
    return tuple([int(digits) for digits in re.findall(r"\d{1,18}", job)[:3]]), job


def _listed_nodes(text: str) -> int:
    """Return the number of nodes in a list. Return 0 if the list is not set, and -1 if it cannot be
    read."""
    try:
        return 0 if is_unset(text) or text.lower() == "none assigned" else len(listed_hosts(text))
    except ValueError:
        return -1


def _array_tasks(id: str) -> int | None:
    """Return the number of tasks in an array id, or ``None`` for a single job, or if the list cannot
    be read."""
    try:
        return array_tasks(id)
    except Dirty:
        return 1

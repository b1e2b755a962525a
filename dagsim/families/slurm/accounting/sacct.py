"""Slurm's accounting: the output of ``sacct -P`` or ``sacct --json``.

``docs/reference/traces.md`` contains the full command. All rows with the same ``JobID`` are
attempts of one job, in order of submission. (``JobIDRaw`` cannot be the key, because the last task
of an array has the number of the array.) This was tested with Slurm 22.05.8 and 24.11.5.

Most jobs have one row, without any problem. These jobs are converted column by column. A few jobs
have several rows (because they were requeued or are heterogeneous) or a problem to report. All rows
of such a job are needed together, so these jobs are built one at a time (``SacctJobs.job``). Both
ways call the same function to compute demands, once for each distinct combination of fields
(``_Kinds``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, nan
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.errors import ConfigError, TraceError
from dagsim.families.slurm.accounting.accounting_rows import (
    COMMAND,
    delimiter_of,
    folder_parts,
    is_json,
    lacks_header,
    sacct_tables,
)
from dagsim.families.slurm.accounting.accounting_values import licences_or_none
from dagsim.families.slurm.accounting.sacct_ids import ReusedIds, by_time_and_id, component, job_id, row_ids
from dagsim.families.slurm.accounting.sacct_jobs import SacctJobs, note_nodes, request_of
from dagsim.families.slurm.accounting.sacct_times import AT, CLOCK_S, MOMENTS, SacctTimes, seconds_or_nan, unfolded
from dagsim.families.slurm.accounting.submission import submission
from dagsim.model import Attempt, Job, Request, Task
from dagsim.model.arithmetic import numbered
from dagsim.traces.fields import InvalidValue
from dagsim.traces.grouping import in_parts, rows_by_job
from dagsim.traces.reader import JobBlock, Reader, Submissions, Unstarted
from dagsim.traces.report import ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.rows import Findings, JobBatch, job_blocks, with_others
from dagsim.traces.sites import readable_hosts
from dagsim.traces.source import Source
from dagsim.traces.times import DAY_NUMBERS, UNSET_MOMENTS, are_day_numbers, in_seconds, local_seconds, moment_s
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import combinations, objects, optional
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

_Tables = Callable[[Source, ReadReport, TraceOptions], Iterator[Table]]
_PROTOCOLS = ("last-attempt", "all-attempts")
_AGAIN = RepeatedId("with the id of an earlier job from another time, user or cluster (treated as separate jobs)")
_SHORT_TIME = 8  # maximum length, in characters, of a time that is a number of seconds and not a date
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
    uses = frozenset({
        "protocol", "keep_partial", "gpus_per_task", "reference_gpu", "floor_s", "timezone", "tenant", "demand", "mig",
        "shards", "gpu_names", "delimiter", "columns",
    })  # fmt: skip

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

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        reading = _Reading.of(options, self.tables)
        parts = in_parts(partial(reading.rows, source), reading.keys, report, reading.learn)
        return job_blocks(map(reading.batch, parts), report, most)

    def unstarted(self, source: Source, options: TraceOptions) -> Iterator[Unstarted]:
        reading, report = _Reading.of(options, self.tables), ReadReport()
        tables = list(reading.rows(source, report))
        ran = {
            job_id(id)
            for table in tables
            for id, start in zip(row_ids(table).tolist(), reading._moments(table, "Start"), strict=True)
            if start >= 0
        }
        for table in tables:
            idle = [id not in ran for id in map(job_id, row_ids(table).tolist())]
            yield from reading.unstarted(table.chosen(np.flatnonzero(idle)))

    def submissions(self, source: Source, options: TraceOptions) -> Submissions:
        from dagsim.families.slurm.accounting.submissions import read_submissions

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
                    f"{' and '.join(stated) or 'none'}, because the log has no column SubmitLine, which contains "
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
class _Reading:
    """The state of one pass over a log."""

    options: TraceOptions
    zone: ZoneInfo | None
    named: dict[str, str]
    tables: _Tables
    """Reads the rows of a source."""
    reuse: ReusedIds = field(default_factory=lambda: ReusedIds())
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
        return cls(options, options.zone(), options.named_gpus(), tables)

    def rows(self, source: Source, report: ReadReport) -> Iterator[Table]:
        """Yield the rows of jobs with an id and a submission time, and skip steps."""
        for table in self.tables(source, report, self.options):
            ids = row_ids(table).tolist()
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
        ids, submit = objects([job_id(id) for id in row_ids(table).tolist()]), self._moments(table, "Submit")
        if self.reuse.numbers:
            owners = zip(*[table.texts(AT[name]).tolist() for name in ("User", "Cluster")], strict=True)
            for row, key in enumerate(zip(map(hash, ids.tolist()), map(hash, owners), submit.tolist(), strict=True)):
                if number := self.reuse.numbers.get(key):
                    ids[row] = f"{ids[row]}:{number + 1}"
        return ids, submit

    def batch(self, table: Table) -> JobBatch:
        """Convert the jobs in a table. Jobs with one row and without problems are converted
        together. Other jobs are built from their attempts."""
        ids, submit = self.keys(table)
        findings = Findings()
        times = self._times(table, submit, findings)
        groups = by_time_and_id(rows_by_job(ids, submit))
        again = {job: name for job, name in enumerate(groups.ids.tolist()) if self.reuse.numbers and ":" in name}
        for job in again:
            findings.note(groups.row[groups.first[job] : groups.first[job] + 1], _AGAIN)
        jobs = SacctJobs(self.options, findings, self.zone, self.named, times)
        kinds = _Kinds(table, jobs.template)
        first = groups.row[groups.first[:-1]]
        every = self._jobs_of_rows(table, groups.ids, submit, first, times, kinds)
        kept = (times.are_plain() & kinds.known)[first] & (np.diff(groups.first) == 1)
        ones = np.ones(len(kept), np.int64)
        batch = JobBatch(table, every, kept, ones, groups.job_of_row(), findings)

        def make(job: int, rows: list[int]) -> tuple[Job, int] | None:
            result = jobs.job(float(groups.time[job]), {row: table.fields(row) for row in rows})
            if result is None or not (name := again.get(job)):
                return result
            return replace(result[0], id=name), result[1]

        note_nodes(table, np.flatnonzero(kept[groups.job_of_row()]), findings)
        return with_others(batch, make, groups.first, groups.row)

    def _times(self, table: Table, submit: np.ndarray, findings: Findings) -> SacctTimes:
        """Read the times in a table, and note the rows with times in milliseconds."""
        others = []
        for name in MOMENTS[1:]:
            scaled: list[np.ndarray] = []
            others.append(self._moments(table, name, scaled))
            for mask in scaled:
                findings.note(np.flatnonzero(mask), f"whose {name} is in milliseconds")
        return SacctTimes.of(table, submit, *others)

    def _jobs_of_rows(
        self,
        table: Table,
        ids: np.ndarray,
        submit: np.ndarray,
        first: np.ndarray,
        times: SacctTimes,
        kinds: _Kinds,
    ) -> JobArrays:
        """Build each job from its first row alone."""
        start = times.moments["Start"]
        work = self.options.all_on_reference(times.ran_s, kinds.measured_on, kinds.place)
        eligible = times.moments["Eligible"]
        arrival, eligible_s = submit[first], np.where(np.isnan(eligible), submit, eligible)[first]
        labels = ("User", "Account", "Partition", "QOS", "NodeList")
        words = {name: table.words(AT[name]).chosen(first) for name in labels}
        priority, request = self._submitted_terms(table, ids, first, words["Partition"], words["User"])
        words["Partition"] = words["Partition"].mapped(lambda text: text.partition(",")[0])
        hosts, end = words["NodeList"].mapped(readable_hosts), times.moments["End"][first]
        with np.errstate(invalid="ignore"):  # impossible times give NaN here, and their rows are dropped later
            suspended = (end - start[first] - times.ran_s[first] > CLOCK_S) & np.isfinite(end)
        attempts: list[tuple[Attempt, ...]] = [()] * len(first)
        for job in np.flatnonzero(suspended).tolist():
            moments = float(eligible_s[job]), float(start[first[job]]), float(end[job])
            attempts[job] = (Attempt(*moments, hosts.words[hosts.place[job]]),)
        return JobArrays.of_single_tasks(
            ids,
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

    def learn(self, table: Table, whole: bool) -> None:
        """Record the ids, owners and times in a table, so that ``keys`` can later distinguish jobs
        with the same id. ``whole`` is True if the table contains all rows of the log.
        """
        bases = [job_id(id) for id in row_ids(table).tolist()]
        if whole and len(set(bases)) == len(bases):  # a shortcut: in most logs, each job has a single row
            return
        owners = map(hash, zip(*[table.texts(AT[name]).tolist() for name in ("User", "Cluster")], strict=True))
        ids = [map(hash, column) for column in (bases, row_ids(table).tolist())]
        columns = [np.fromiter(column, np.int64, len(table)) for column in (*ids, owners)]
        states = table.words(AT["State"])
        completed = np.array([word.upper().startswith("COMPLETED") for word in states.words], bool)[states.place]
        self.reuse.add(*columns, self._moments(table, "Submit"), self._moments(table, "End"), completed)

    def unstarted(self, table: Table) -> Iterator[Unstarted]:
        """Yield the jobs in a table of rows that never ran. Jobs that were never eligible are left
        out, because they did not wait.
        """
        times = SacctTimes.of(table, *[self._moments(table, name) for name in MOMENTS])
        jobs = SacctJobs(self.options, Findings(), self.zone, self.named, times)
        for row in range(len(table)):
            if (made := jobs.unstarted(row, table.fields(row))) is not None:
                yield made

    def _submitted_terms(
        self, table: Table, ids: np.ndarray, first: np.ndarray, partition: Labels, user: Labels
    ) -> tuple[np.ndarray | None, Labels | None]:
        """Return each job's priority and request, from the columns of its first row."""
        columns = [table.words(AT[name]).chosen(first) for name in ("SubmitLine", "Constraints", "Reservation")]
        nodes = table.words(AT["NNodes"]).chosen(first).mapped(lambda text: int(text) if text.isdecimal() else 0)
        asked = table.words(AT["ReqTRES"]).chosen(first)
        counts_licences = any("license/" in word.lower() for word in asked.words)
        several = any("," in word for word in partition.words)
        if not (several or counts_licences or any(any(column.words) for column in columns)):
            return None, None
        licences = asked.mapped(licences_or_none) if counts_licences else Labels(np.zeros(len(first), np.int32), ((),))
        components = map(component, ids.tolist())
        rows = zip(*[column.tolist() for column in (*columns, partition, licences, nodes)], components, strict=True)
        terms = [submission(*row) for row in rows]
        nice = np.array([-term.nice or 0.0 for term in terms])
        submit_s = self._moments(table, "Submit")[first].tolist()
        requests = [request_of(*job, self.zone) for job in zip(terms, ids.tolist(), submit_s, strict=True)]
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
        texts = table.texts(AT[name])
        blank = texts == ""
        try:
            seconds = np.where(blank, "nan", texts).astype(np.float64)
            seconds = np.where(blank | ((seconds >= 0) & (seconds < inf)), seconds, -inf)
        except ValueError:
            seconds = local_seconds(texts, self.zone)
            seconds[seconds < 0] = -inf
            for row in np.flatnonzero(np.isnan(seconds)).tolist():
                seconds[row] = seconds_or_nan(lambda text: moment_s(text, "", self.zone), texts[row])
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
            submit = table.texts(AT["Submit"]).tolist()
            self.dated.append(any(len(text) > _SHORT_TIME and not text.startswith("1970-") for text in submit))
        return self.dated[0]


class _Kinds:
    """The demands of all rows. Each distinct demand is stored once."""

    def __init__(self, table: Table, template: Callable[[list[str]], tuple[Task, str | None] | None]) -> None:
        nodes = table.words(AT["NodeList"])
        nowhere = np.array([text.lower() == "none assigned" for text in nodes.words])[nodes.place]
        self.place, firsts = combinations([*[table.words(AT[name]).place for name in _SHAPE], nowhere])
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

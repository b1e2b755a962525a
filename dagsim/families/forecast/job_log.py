"""A log in the form that a forecast may use: what each job requested, and when its outcome became
known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.errors import TraceError
from dagsim.families.slurm.accounting import COLUMNS, array_ids, resources, sacct_tables, state
from dagsim.families.slurm.sacct import Sacct, unfolded
from dagsim.families.slurm.submission import begin_after_s, options_of
from dagsim.model import UNLIMITED_S
from dagsim.traces import TraceOptions
from dagsim.traces.chunks import Table, tables_of
from dagsim.traces.fields import Dirty
from dagsim.traces.report import ReadReport
from dagsim.traces.sites import readable_hosts
from dagsim.traces.source import Source
from dagsim.traces.times import moment_s
from dagsim.traces.trace import Trace
from dagsim.workload.arrays import JobArrays, Labels, objects

_PART = re.compile(r"^([^/]+/[^/]+)/\d+$")
"""The id of a part of a workload, ``namespace/name/0``."""
_BILLING = re.compile(r"(?:^|,)billing=(\d{1,15})(?:,|$)")


@dataclass(frozen=True, slots=True)
class JobLog:
    """n jobs in order of submission, with everything that ever became known about them.

    ``jobs`` holds only the requests: each job takes its time limit, and nothing tells when and
    where it ran. ``QueueState`` takes from the other columns only what was known at its time.
    """

    jobs: JobArrays
    """Arrivals are seconds on the log's own clock."""
    limit_s: np.ndarray
    """(n,) float64: time limit."""
    start_s: np.ndarray
    """(n,) float64, NaN for a job that never started."""
    end_s: np.ndarray
    """(n,) float64: end of the run, or of the wait of a job that never started, or NaN if unknown."""
    eligible_s: np.ndarray
    """(n,) float64: when the job could start, or NaN if it never could."""
    begin_s: np.ndarray
    """(n,) float64: earliest start that the user requested."""
    parents: Sequence[tuple[str, ...]]
    """Ids of the jobs or arrays that each job waits for."""
    nodes: Labels
    """Names of the nodes on which each job ran."""
    array: np.ndarray
    """(n,) object: the submission of each job: its array, else its own id."""
    ends_s: float
    """The end of the log."""
    limited: np.ndarray
    """(n,) bool: True if the log states a time limit below a year; else ``limit_s`` is an
    assumption."""
    billing: np.ndarray
    """(n,) float64: what the site charges per second of a run, known once the run starts, or NaN if
    the log does not state it."""
    requeued: np.ndarray
    """(n,) bool: True for a run after which its job waited again, which is a later entry with the
    same id."""
    user: Sequence[str] = field(default=())
    account: Sequence[str] = field(default=())
    partition: Sequence[str] = field(default=())

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def submit_s(self) -> np.ndarray:
        """(n,) float64: when each job was submitted."""
        return self.jobs.arrival_s

    @property
    def run_s(self) -> np.ndarray:
        """(n,) float64: how long each job ran, or NaN if it did not run or its end is unknown."""
        seconds: np.ndarray = self.end_s - self.start_s
        return seconds

    @classmethod
    def of(cls, jobs: JobArrays, origin_s: float = 0.0, start_s: np.ndarray | None = None) -> JobLog:
        """Build the log from jobs with observed starts, which run for as long as their work takes.
        Their estimates are their limits; a job without an estimate gets a week. The components of a
        heterogeneous job are separate jobs in one submission.

        Raises:
            TraceError: The jobs have no starts, or tasks that wait for each other.
        """
        seen_s = jobs.observed_start_s if start_s is None else start_s
        if seen_s is None or (np.isnan(seen_s).all() and start_s is None):
            raise TraceError("the log contains no start times, so there are no waits to forecast")
        submission = jobs.ids.tolist()
        if (np.diff(jobs.first) != 1).any():
            if len(jobs.parent):
                raise TraceError("forecasts need a log of jobs whose tasks do not wait for each other")
            components = np.diff(jobs.first)
            submission, seen_s = np.repeat(jobs.ids, components).tolist(), np.repeat(seen_s, components)
            jobs = jobs.apart()
        limit_s = np.full(len(jobs), nan) if jobs.estimate is None else jobs.estimate
        limited = limit_s < UNLIMITED_S
        limit_s = np.maximum(np.where(np.isfinite(limit_s), limit_s, 7 * 86400.0), 1.0)
        eligible_s = jobs.arrival_s if jobs.eligible_s is None else jobs.eligible_s
        asked = replace(
            jobs,
            arrival_s=jobs.arrival_s + origin_s,
            work=limit_s,
            estimate=limit_s,
            observed_start_s=None,
            eligible_s=None,
            observed_nodes=None,
        )
        begin_s = seen_s + origin_s
        end_s = begin_s + jobs.work
        return cls(
            asked,
            limit_s,
            begin_s,
            end_s,
            np.where(np.isnan(eligible_s), jobs.arrival_s, eligible_s) + origin_s,
            asked.arrival_s,
            [()] * len(jobs),
            jobs.observed_nodes or Labels(np.zeros(len(jobs), np.int32), ((),)),
            objects(submission),
            float(np.nanmax(np.concatenate([end_s, asked.arrival_s]))),
            limited,
            np.full(len(jobs), nan),
            np.zeros(len(jobs), bool),
            *_names(jobs),
        )

    def beside(self, history: JobLog, t: float) -> JobLog:
        """Return the jobs of this log together with those jobs of another log that had ended by
        time ``t`` and are not in this log."""
        own = set(self.jobs.ids.tolist())
        past = (history.end_s <= t) & np.array([id not in own for id in history.jobs.ids.tolist()], bool)
        return JobLog.joined([history.chosen(np.flatnonzero(past)), self], t)

    def chosen(self, jobs: np.ndarray) -> JobLog:
        """Return a log of the jobs at these indices, which must be in order of submission."""
        columns: dict[str, Any] = {name: getattr(self, name)[jobs] for name in _COLUMNS}
        columns |= {name: [getattr(self, name)[job] for job in jobs.tolist()] for name in _LISTS}
        return replace(self, jobs=self.jobs.chosen(jobs), nodes=self.nodes.chosen(jobs), **columns)

    @classmethod
    def joined(cls, several: Sequence[JobLog], ends_s: float) -> JobLog:
        """Return the jobs of several logs on one clock, in order of submission."""
        jobs = JobArrays.joined([log.jobs for log in several])
        order = np.argsort(jobs.arrival_s, kind="stable")
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(log, name) for log in several])[order] for name in _COLUMNS
        }
        for name in _LISTS:
            words = [word for log in several for word in getattr(log, name)]
            columns[name] = [words[job] for job in order.tolist()]
        nodes = [names for log in several for names in log.nodes.tolist()]
        labels = Labels.numbered([nodes[job] for job in order.tolist()])
        return cls(jobs.chosen(order), nodes=labels, ends_s=ends_s, **columns)


_COLUMNS = ("limit_s", "start_s", "end_s", "eligible_s", "begin_s", "array", "limited", "billing", "requeued")
_LISTS = ("parents", "user", "account", "partition")


def _names(jobs: JobArrays) -> tuple[list[str], list[str], list[str]]:
    """Return the user, the account (or else the tenant) and the partition of each job."""
    listed = {
        name: [""] * len(jobs) if (labels := getattr(jobs, name)) is None else labels.tolist()
        for name in ("user", "account", "partition", "tenant")
    }
    account = [own or tenant for own, tenant in zip(listed["account"], listed["tenant"], strict=True)]
    user = [own or tenant for own, tenant in zip(listed["user"], account, strict=True)]
    return user, account, listed["partition"]


def read_snapshot(trace: Trace) -> tuple[JobLog, float]:
    """Read the jobs in a listing of a queue, and the time of the listing. Jobs that become eligible
    later have a begin time.

    Raises:
        TraceError: The file cannot be read, or is not a listing of a queue.
    """
    jobs, t = trace.unscaled(), trace.begins_s
    if t is None:
        raise TraceError(
            f"{trace.source}: not a snapshot of a queue; give the output of squeue --json or kubectl get pods -o json"
        )
    start_s = np.full(len(jobs), nan) if jobs.observed_start_s is None else jobs.observed_start_s
    stated_s = np.full(len(jobs.work), nan) if jobs.estimate is None else jobs.estimate
    limited = stated_s < UNLIMITED_S
    # for jobs without a stated limit, use the true run time, as the reader does
    jobs = replace(jobs, estimate=np.where(np.isfinite(stated_s), stated_s, jobs.work))
    log = JobLog.of(jobs, trace.meta["origin_s"], start_s)
    begin_s = np.where(log.eligible_s > t, log.eligible_s, log.begin_s)
    array = objects([_PART.sub(r"\1", id.partition("_")[0]) for id in log.array.tolist()])
    return replace(log, array=array, begin_s=begin_s, limited=limited, ends_s=t), t


class _Row(NamedTuple):
    id: str
    submit_s: float
    eligible_s: float
    begin_s: float
    start_s: float
    end_s: float
    parents: tuple[str, ...]
    nodes: tuple[str, ...]
    billing: float
    line: int
    """Number of its line, as ``Source.where`` takes it."""
    known_s: float
    """When the job could start, as Slurm knew in the end; NaN if it never could."""
    asked: list[str]
    requeued: bool = False


class _Requests(Sacct):
    """Reads rows of accounting as if their jobs were still waiting."""

    name = "requests of sacct"

    def __init__(self, rows: Collection[_Row]) -> None:
        self._rows = rows

    def tables(self, source: Source, report: ReadReport, options: TraceOptions) -> Iterator[Table]:
        report.rows += len(self._rows)
        return tables_of(source, len(COLUMNS), ((row.line, row.asked) for row in self._rows))


def read_sacct_log(path: Path, options: TraceOptions) -> JobLog:
    """Read Slurm's accounting (a file, or a folder of files).

    Every submission is kept, including jobs cancelled while waiting. A job that was
    requeued is one submission per attempt, so its earlier waits and runs count, too. Requests are
    read as if the jobs were still waiting, so that the resources, nodes, partitions and priorities
    that they got later do not leak in. Limits are those in the accounting.

    Raises:
        TraceError: There is no accounting, or nothing in it can be used.
    """
    rows = _by_own_id(_rows(Source(path), options))
    if not rows:
        raise TraceError(f"{path}: no job has a submission time")
    trace = Trace(Source(path), _Requests(rows.values()), replace(options, demand="requested", limit=None))
    jobs = trace.unscaled()
    read_rows = [rows[id] for id in jobs.ids.tolist()]
    ids = objects([row.id for row in read_rows])
    if jobs.request is not None:
        requests = [
            request if request is None or not request.array else replace(request, array=id.partition("_")[0])
            for request, id in zip(jobs.request.tolist(), ids.tolist(), strict=True)
        ]
        jobs = replace(jobs, request=Labels.of(requests))
    jobs = replace(jobs, ids=ids)
    log = JobLog.of(replace(jobs, observed_start_s=np.zeros(len(jobs))), trace.meta["origin_s"])
    end_s = np.array([row.end_s for row in read_rows])
    start_s = np.array([row.start_s for row in read_rows])
    return replace(
        log,
        start_s=start_s,
        end_s=end_s,
        eligible_s=np.array([row.eligible_s for row in read_rows]),
        begin_s=np.array([row.begin_s for row in read_rows]),
        parents=[row.parents for row in read_rows],
        nodes=Labels.numbered([row.nodes for row in read_rows]),
        array=objects([row.id.partition("_")[0] for row in read_rows]),
        billing=np.array([row.billing for row in read_rows]),
        requeued=np.array([row.requeued for row in read_rows], bool),
        ends_s=float(np.nanmax(np.concatenate([end_s, start_s, log.submit_s]))),
    )


def _by_own_id(rows: Iterable[_Row]) -> dict[str, _Row]:
    """Return the rows by ids that no two of them share. The last row of a job keeps its id, and each
    earlier one takes a number that no job has. Of several rows for one submission, the last one counts.
    """
    by_id: dict[str, dict[float, _Row]] = {}
    for row in rows:
        by_id.setdefault(row.id, {})[row.submit_s] = row
    bases = [id.partition("_")[0] for id in by_id]
    free = max([int(base) for base in bases if base.isdecimal()], default=0)
    named: dict[str, _Row] = {}
    for (id, submitted), base in zip(by_id.items(), bases, strict=True):
        *earlier, last = _attempts([submitted[submit_s] for submit_s in sorted(submitted)])
        for row in earlier:
            free += 1
            own = f"{free}{id.removeprefix(base)}"
            row.asked[COLUMNS.index("JobID")] = own
            named[own] = row
        named[id] = last
    return named


def _attempts(rows: Sequence[_Row]) -> list[_Row]:
    """Return the rows of one id, in order of submission, with those marked that were requeued. A job
    that was requeued is eligible when Slurm says so, a few minutes later. An id that is used again much
    later, or by another user, belongs to another job.
    """
    marked = [rows[0]]
    for row in rows[1:]:
        before = marked[-1]
        again = row.asked[_USER] == before.asked[_USER] and row.submit_s <= before.end_s + _DAY_S
        if again:
            marked[-1] = before._replace(requeued=True)
            row = row._replace(eligible_s=max(row.submit_s, row.known_s), begin_s=max(row.submit_s, row.known_s))
        marked.append(row)
    return marked


_USER = COLUMNS.index("User")
_DAY_S = 86400.0


def _rows(source: Source, options: TraceOptions) -> Iterator[_Row]:
    zone = options.zone()
    report = ReadReport()
    for table in sacct_tables(source, report, options.delimiter, options.named_columns()):
        table = unfolded(table, zone, report)
        moments = {name: table.texts(COLUMNS.index(name)) for name in ("Submit", "Eligible", "Start", "End")}
        for place, line in enumerate(table.line.tolist()):
            fields = dict(zip(COLUMNS, table.fields(place), strict=True))
            fields |= {name: texts[place] for name, texts in moments.items()}
            id = fields["JobID"] or fields["JobIDRaw"]
            if "." in id.partition("[")[0] or "+" in id:
                continue
            try:
                yield from _read(id, fields, zone, line)
            except Dirty:
                continue


def _read(id: str, fields: dict[str, str], zone: ZoneInfo | None, number: int) -> Iterator[_Row]:
    """Yield the jobs of a row: one job, or the tasks of an array that never ran.

    Raises:
        Dirty: A time or a list of resources cannot be read.
    """
    times = {name: moment_s(fields[name], name, zone) for name in ("Submit", "Eligible", "Start", "End")}
    submit_s = times["Submit"]
    if submit_s is None:
        return
    word = state(fields["State"])
    nowhere = fields["NodeList"].lower() == "none assigned"
    ran = word != "PENDING" and times["Start"] is not None and not nowhere
    if fields["ReqTRES"] or fields["AllocTRES"]:
        ran = ran and resources(fields["AllocTRES"]).is_stated
    line = options_of(fields["SubmitLine"])
    later_s = begin_after_s(line.get("begin", ""), submit_s, lambda text: moment_s(text, "begin", zone))
    begin_s = submit_s + (later_s or 0.0)
    parents = tuple(re.findall(r"(?<=:)\d+", line.get("dependency", "")))
    eligible_s = begin_s
    # otherwise, accounting may rewrite the dependency later
    if parents or line.get("dependency") == "singleton" or not line:
        known_s = times["Eligible"]
        eligible_s = nan if known_s is None else max(submit_s, known_s)
    end_s, start_s = times["End"], times["Start"] if ran else None
    for own in array_ids(id):
        yield _Row(
            own,
            submit_s,
            eligible_s,
            begin_s,
            nan if start_s is None else max(start_s, submit_s),
            nan if end_s is None else end_s,
            parents,
            readable_hosts(fields["NodeList"]) if ran else (),
            float(charged[1]) if (charged := _BILLING.search(fields["AllocTRES"])) else nan,
            number,
            nan if times["Eligible"] is None else times["Eligible"],
            _asked(own, fields, line, submit_s),
        )


def _asked(id: str, fields: dict[str, str], line: dict[str, str], submit_s: float) -> list[str]:
    """Return the row of a job as if it were still waiting and would run to its limit."""
    moment = repr(submit_s)
    tres = fields["ReqTRES"] or fields["AllocTRES"]
    counts = dict(re.findall(r"(?:^|,)(node|cpu)=(\d+)", tres))
    row = fields | {
        "JobID": id,
        "State": "COMPLETED",
        "Submit": moment,
        "Eligible": moment,
        "Start": moment,
        "End": "",
        "ElapsedRaw": "1",
        "Elapsed": "",
        "Suspended": "0",
        "Restarts": "0",
        "NodeList": "",
        "AllocTRES": tres,
        "AllocGRES": "",
        "NNodes": counts.get("node", fields["ReqNodes"] or fields["NNodes"]),
        "NCPUS": counts.get("cpu", fields["ReqCPUS"] or fields["NCPUS"]),
        "Partition": line.get("partition") or fields["Partition"],
    }
    return [" ".join(row[name].split()) for name in COLUMNS]

"""Submissions in Slurm's accounting: what each of them requested, and what happened to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from math import nan
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.errors import TraceError
from dagsim.families.slurm.accounting.accounting_rows import COLUMNS, AccountingRow, sacct_tables
from dagsim.families.slurm.accounting.accounting_values import array_ids, resources, state
from dagsim.families.slurm.accounting.sacct import Sacct
from dagsim.families.slurm.accounting.sacct_times import unfolded
from dagsim.families.slurm.accounting.submission import begin_after_s, options_of
from dagsim.model.arithmetic import DAY_S
from dagsim.traces.fields import Dirty
from dagsim.traces.reader import Submissions
from dagsim.traces.report import ReadReport
from dagsim.traces.sites import readable_hosts
from dagsim.traces.source import Source
from dagsim.traces.times import moment_s
from dagsim.traces.trace import Trace
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.array_tools import objects
from dagsim.workload.arrays import Labels

_BILLING = re.compile(r"(?:^|,)billing=(\d{1,15})(?:,|$)")


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
    """Number of its line, in the form that ``Source.where`` expects."""
    known_s: float
    """When the job could start, as last recorded by Slurm; NaN if it never could."""
    asked: AccountingRow
    requeued: bool = False


class _Requests(Sacct):
    """Reads rows of accounting as if their jobs had not started yet."""

    name = "requests of sacct"

    def __init__(self, rows: Collection[_Row]) -> None:
        self._rows = rows

    def tables(self, source: Source, report: ReadReport, options: TraceOptions) -> Iterator[Table]:
        report.rows += len(self._rows)
        return tables_of(source, len(COLUMNS), ((row.line, row.asked) for row in self._rows))


def read_submissions(source: Source, options: TraceOptions) -> Submissions:
    """Read the submissions in Slurm's accounting (a file, or a folder of files).

    If a job was requeued, each attempt is a separate submission, so its earlier waits and runs also
    count. Each request is read as if the job were still waiting, so the resources, nodes, partition
    and priority that the job received later are ignored. Time limits come from the accounting.

    Raises:
        TraceError: There is no accounting, or nothing in it can be used.
    """
    rows = _by_own_id(_rows(source, options))
    if not rows:
        raise TraceError(f"{source.path}: no job has a submission time")
    trace = Trace(source, _Requests(rows.values()), replace(options, demand="requested", limit=None))
    jobs = trace.unscaled()
    read_rows = [rows[id] for id in jobs.ids.tolist()]
    ids = objects([row.id for row in read_rows])
    if jobs.request is not None:
        requests = [
            request if request is None or not request.array else replace(request, array=id.partition("_")[0])
            for request, id in zip(jobs.request.tolist(), ids.tolist(), strict=True)
        ]
        jobs = replace(jobs, request=Labels.of(requests))
    return Submissions(
        replace(jobs, ids=ids),
        trace.meta["origin_s"],
        start_s=np.array([row.start_s for row in read_rows]),
        end_s=np.array([row.end_s for row in read_rows]),
        eligible_s=np.array([row.eligible_s for row in read_rows]),
        begin_s=np.array([row.begin_s for row in read_rows]),
        parents=[row.parents for row in read_rows],
        nodes=Labels.numbered([row.nodes for row in read_rows]),
        array=objects([row.id.partition("_")[0] for row in read_rows]),
        billing=np.array([row.billing for row in read_rows]),
        requeued=np.array([row.requeued for row in read_rows], bool),
    )


def _by_own_id(rows: Iterable[_Row]) -> dict[str, _Row]:
    """Give each row a unique id, and return the rows by id. The last row of a job keeps the job's
    id. Each earlier row gets a number that no other job has. If several rows describe the same
    submission, the last of them is used.
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
            named[own] = row._replace(asked=row.asked._replace(JobID=own))
        named[id] = last
    return named


def _attempts(rows: Sequence[_Row]) -> list[_Row]:
    """Sort the rows with one id by submission, and mark those that were requeued. A requeued job
    becomes eligible at the time that Slurm states, which is a few minutes after it was requeued. An
    id that is used again much later, or by another user, belongs to another job.
    """
    marked = [rows[0]]
    for row in rows[1:]:
        before = marked[-1]
        again = row.asked.User == before.asked.User and row.submit_s <= before.end_s + DAY_S
        if again:
            marked[-1] = before._replace(requeued=True)
            row = row._replace(eligible_s=max(row.submit_s, row.known_s), begin_s=max(row.submit_s, row.known_s))
        marked.append(row)
    return marked


def _rows(source: Source, options: TraceOptions) -> Iterator[_Row]:
    zone = options.zone()
    report = ReadReport()
    for table in sacct_tables(source, report, options.delimiter, options.named_columns()):
        table = unfolded(table, zone, report)
        moments = {name: table.texts(COLUMNS.index(name)) for name in ("Submit", "Eligible", "Start", "End")}
        for place, line in enumerate(table.line.tolist()):
            fields = AccountingRow._make(table.fields(place))
            fields = fields._replace(**{name: texts[place] for name, texts in moments.items()})
            id = fields.JobID or fields.JobIDRaw
            if "." in id.partition("[")[0] or "+" in id:
                continue
            try:
                yield from _read(id, fields, zone, line)
            except Dirty:
                continue


def _read(id: str, fields: AccountingRow, zone: ZoneInfo | None, number: int) -> Iterator[_Row]:
    """Yield the jobs that a row describes: a single job, or the tasks of an array that never ran.

    Raises:
        Dirty: A time or a list of resources cannot be read.
    """
    submit_s, known_s = moment_s(fields.Submit, "Submit", zone), moment_s(fields.Eligible, "Eligible", zone)
    start_s, end_s = moment_s(fields.Start, "Start", zone), moment_s(fields.End, "End", zone)
    if submit_s is None:
        return
    word = state(fields.State)
    nowhere = fields.NodeList.lower() == "none assigned"
    ran = word != "PENDING" and start_s is not None and not nowhere
    if fields.ReqTRES or fields.AllocTRES:
        ran = ran and resources(fields.AllocTRES).is_stated
    line = options_of(fields.SubmitLine)
    later_s = begin_after_s(line.get("begin", ""), submit_s, lambda text: moment_s(text, "begin", zone))
    begin_s = submit_s + (later_s or 0.0)
    parents = tuple(re.findall(r"(?<=:)\d+", line.get("dependency", "")))
    eligible_s = begin_s
    # Use the recorded eligible time only if the submit line states a dependency or is unknown. For
    # other jobs, that time may result from a dependency that was added later.
    if parents or line.get("dependency") == "singleton" or not line:
        eligible_s = nan if known_s is None else max(submit_s, known_s)
    for own in array_ids(id):
        yield _Row(
            id=own,
            submit_s=submit_s,
            eligible_s=eligible_s,
            begin_s=begin_s,
            start_s=max(start_s, submit_s) if ran and start_s is not None else nan,
            end_s=nan if end_s is None else end_s,
            parents=parents,
            nodes=readable_hosts(fields.NodeList) if ran else (),
            billing=float(charged[1]) if (charged := _BILLING.search(fields.AllocTRES)) else nan,
            line=number,
            known_s=nan if known_s is None else known_s,
            asked=_asked(own, fields, line, submit_s),
        )


def _asked(id: str, fields: AccountingRow, line: dict[str, str], submit_s: float) -> AccountingRow:
    """Return a job's row as if the job were still waiting, and would run until its limit."""
    moment = repr(submit_s)
    tres = fields.ReqTRES or fields.AllocTRES
    counts = dict(re.findall(r"(?:^|,)(node|cpu)=(\d+)", tres))
    row = fields._replace(
        JobID=id,
        State="COMPLETED",
        Submit=moment,
        Eligible=moment,
        Start=moment,
        End="",
        ElapsedRaw="1",
        Elapsed="",
        Suspended="0",
        Restarts="0",
        NodeList="",
        AllocTRES=tres,
        AllocGRES="",
        NNodes=counts.get("node", fields.ReqNodes or fields.NNodes),
        NCPUS=counts.get("cpu", fields.ReqCPUS or fields.NCPUS),
        Partition=line.get("partition") or fields.Partition,
    )
    return AccountingRow._make([" ".join(text.split()) if isinstance(text, str) else text for text in row])

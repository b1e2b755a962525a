"""PBS (OpenPBS, PBS Pro, Torque): jobs from the records of their attempts.

There are several ways to state a request: ``select``, Torque's ``nodes`` or ``neednodes``,
``procs``, or ``ncpus`` and ``ngpus``. If a job states none of these, the slots in ``exec_host`` are
used. If GPUs are stated separately (``gpus``, ``gpu``, ``naccelerators``, ``exec_gpus``), their
number is a total.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from sys import intern
from typing import NamedTuple

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.pbs import pbs_records
from dagsim.families.pbs.pbs_records import finished_records, has_records
from dagsim.families.pbs.pbs_requests import PbsChunk, PbsRequest, chunks_of
from dagsim.families.pbs.qstat_listing import wall_time_s
from dagsim.model import Demand
from dagsim.model.arithmetic import numbered, whole_sum
from dagsim.traces.fields import Dirty, InvalidValue
from dagsim.traces.grouping import in_parts, rows_by_job
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import Disagreement, ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.rows import Checks, JobBatch, JobTimes, job_blocks
from dagsim.traces.sites import site_gpu
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.array_tools import bounds, combinations, objects, optional, ranges
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

_HOST = re.compile(r"(?:^|\+)([^+/]{1,255})")
_SHOWN = (pbs_records.USER, pbs_records.ACCOUNT, pbs_records.QUEUE, pbs_records.HOSTS)
_MOST_NODES = 1 << 14  # maximum number of nodes per job
_PROTOCOLS = ("last-attempt", "all-attempts")
_FAR_S = 60  # tolerance in seconds, because the server updates a job's walltime only when it receives a report


class Pbs(Reader):
    """Builds one gang per job, with one instance per chunk; each kind of chunk becomes a task.

    Every attempt that ran is kept, regardless of its exit status. The work is the wall time of the
    last attempt (``protocol="last-attempt"``) or of all attempts (``all-attempts``).
    """

    name = "pbs"
    summary = "PBS (OpenPBS, PBS Pro, Torque): server_priv/accounting/YYYYMMDD, or finished jobs from qstat -x -f"
    uses = frozenset(
        {"protocol", "keep_partial", "gpus_per_task", "reference_gpu", "floor_s", "tenant", "arrival", "gpu_names"}
        | {"timezone"}
    )

    def records(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[NumberedRow]:
        """Yield the records from which jobs are built, with the fields ``pbs_records.COLUMNS``."""
        return finished_records(source, options, report)

    def recognises(self, source: Source) -> bool:
        return has_records(source)

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        if options.protocol not in (None, *_PROTOCOLS):
            raise ConfigError(f"pbs has no protocol {options.protocol!r}; choose from {', '.join(_PROTOCOLS)}")

        def read(report: ReadReport) -> Iterator[Table]:
            records = self.records(source, options, report)
            return tables_of(
                source,
                len(pbs_records.COLUMNS),
                records,
                (pbs_records.ARRIVAL, pbs_records.START, pbs_records.END, pbs_records.ETIME),
            )

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


def _keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each record, the id of its job and the time at which the job arrived."""
    return table.texts(pbs_records.ID), table.numbers(pbs_records.ARRIVAL)


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
    parts = _Parts.of([[PbsChunk()] if isinstance(demand, str) else demand for demand in demands], asked)
    for jobs, note in (
        (parts.sizes > 1, "with several kinds of chunks, which need not start together in the simulation"),
        (again, RepeatedId("with the id of an earlier job (treated as separate jobs)")),
        (
            np.array(disagree, bool)[asked],
            Disagreement("whose request and nodes (exec_host, nodect) disagree; taken as requested"),
        ),
    ):
        checks.findings.note(shown[kept & jobs], note, stage=1)
    limit = table.words(pbs_records.LIMIT).chosen(shown)
    limits, reasons = zip(*map(wall_time_s, limit.words), strict=True)
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

    rows: np.ndarray  # shape (n,): rows of the table
    job: np.ndarray  # shape (n,): the job of each of these rows
    counts: np.ndarray  # shape (J,), int64: number of attempts of each job
    shown: np.ndarray  # shape (J,): the row from which each job is built; 0 if it has no attempt

    @classmethod
    def of(
        cls, checks: Checks, job_of_row: np.ndarray, start_s: np.ndarray, jobs: int, *, shows_first: bool
    ) -> _Attempts:
        """Sort the usable rows. Each job is built from its first or from its last attempt."""
        usable = np.flatnonzero(checks.usable)
        rows = usable[np.lexsort((usable, start_s[usable], job_of_row[usable]))]
        job, shown = job_of_row[rows], np.zeros(jobs, np.int64)
        turns = rows[::-1] if shows_first else rows
        shown[job_of_row[turns]] = turns  # NumPy keeps the last value that is assigned for a job
        return cls(rows, job, np.bincount(job, minlength=jobs).astype(np.int64), shown)

    def reruns(self, table: Table) -> np.ndarray:
        """Return how many attempts of each job were rerun. Shape (J,)."""
        return np.bincount(self.job, table.texts(pbs_records.KIND)[self.rows] == "R", len(self.shown))


class _Parts(NamedTuple):
    """The tasks of J jobs: one for each chunk in the job's demand."""

    listed: list[PbsChunk]
    """The chunks of all distinct demands, one demand after another."""
    sizes: np.ndarray  # shape (J,): number of tasks of each job
    job: np.ndarray  # shape (T,): the job of each task
    chunk: np.ndarray  # shape (T,): the index of its chunk in ``listed``
    place: np.ndarray  # shape (T,): its position among the tasks of its job

    @classmethod
    def of(cls, demands: Sequence[list[PbsChunk]], asked: np.ndarray) -> _Parts:
        """Create the tasks of all jobs. ``asked`` is the index of the demand of each job."""
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
    """Create all jobs, including dropped jobs. ``shown`` is the row of each job, ``start_s``
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
        eligible_s=np.maximum(arrival_s, table.numbers(pbs_records.ETIME, 0.0)[shown]),
        observed_nodes=hosts.mapped(_nodes),
        user=user,
        account=account,
        partition=queue,
    )


def _ran(checks: Checks) -> tuple[np.ndarray, np.ndarray]:
    """Return two (n,) float64 arrays: when each attempt started, and how long it ran."""
    table = checks.table
    start_s, end_s, _ = (
        checks.number(column, name, 0.0)
        for column, name in ((pbs_records.START, "start"), (pbs_records.END, "end"), (pbs_records.ETIME, "etime"))
    )
    stated = table.words(pbs_records.WALLTIME)
    values, reasons = zip(*map(wall_time_s, stated.words), strict=True)
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
    JobTimes(table.numbers(pbs_records.ARRIVAL), start_s, eligible_s=table.numbers(pbs_records.ETIME)).checked(checks)
    return start_s, ran_s


def _task_kind(chunk: PbsChunk, kind: str | None, options: TraceOptions) -> TaskKind:
    """Return the kind of task that a chunk becomes, on GPUs of type ``kind`` if it has any."""
    types = (kind,) if kind and chunk.gpus else None
    return TaskKind(
        Demand(chunk.gpus or options.gpus_per_task or 0, chunk.cpus, chunk.memory_gb, types), chunk.pieces > 1
    )


def _nodes(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(intern, _HOST.findall(text))))[:_MOST_NODES]


def _demands(table: Table, shown: np.ndarray) -> tuple[np.ndarray, list[list[PbsChunk] | str], list[bool]]:
    """Return the index of the demand of each job, (J,) int32, and the distinct demands. A demand is
    a list of chunks, or the reason why it is impossible. Also return whether each demand
    contradicts the stated number of nodes.
    """
    columns = [table.words(column).chosen(shown) for column in pbs_records.REQUEST]
    asked, firsts = combinations([column.place for column in columns])
    demands: list[list[PbsChunk] | str] = []
    disagree: list[bool] = []
    for texts in zip(*[column.chosen(firsts).tolist() for column in columns], strict=True):
        try:
            chunks = chunks_of(request := PbsRequest(*texts))
        except Dirty as reason:
            demands.append(str(reason))
            disagree.append(False)
            continue
        demands.append(chunks)
        pieces, nodes = whole_sum(chunk.pieces for chunk in chunks), request.nodect
        other = bool(request.select or request.nodes) and nodes.isdecimal() and int(nodes) != pieces
        disagree.append(not request.gpus and (other or len(_nodes(request.hosts)) > pieces))
    return asked, demands, disagree

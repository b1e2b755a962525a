"""The running and waiting jobs in Slurm's queue at one moment, as rows of accounting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dagsim.families.slurm.accounting.accounting_rows import COLUMNS, AccountingRow
from dagsim.families.slurm.accounting.accounting_values import gres_tres, unescaped_text
from dagsim.families.slurm.accounting.submission import ListedOptions
from dagsim.families.slurm.queue.queue_listings import queue_form, queued_jobs
from dagsim.families.slurm.queue.queued_job import NOT_QUEUED, ListedNumber, QueuedJob
from dagsim.model import UNLIMITED_S
from dagsim.traces.batch import ENDED
from dagsim.traces.fields import Dirty
from dagsim.traces.reader import WaitingJob
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.times import TWICE
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of

_LAST_UPDATE = re.compile(rb'"last_update"\s*:\s*(\{[^{}]*\}|\d+)')
_UPDATE_S = re.compile(rb'(?:"number"\s*:\s*|^)([1-9]\d*)')
_FIRST = 1_000_000_000
"""Priority of suspended jobs, so that they resume before any waiting job starts."""
_LEAST_LEFT_S = 60.0
"""Time left for a job beyond its limit (OverTimeLimit)."""
_NumberedJob = tuple[int, AccountingRow]
"""The number of a line, and the job in this line."""


def squeue_instant_s(source: Source, zone: ZoneInfo | None = None) -> float | None:
    """Return the time at which the queue was printed, or ``None`` if the file has no job.

    This is the controller's ``last_update`` if the file states it. Otherwise, it is the start of a
    running job plus its run time. In JSON before v0.0.40, it is a second after the last submission,
    start or evaluation of a job.
    """
    if queue_form(source) == "json":
        with source.files[0].open_binary() as stream:
            content = stream.read()
        updates = [_UPDATE_S.search(match[1]) for match in _LAST_UPDATE.finditer(content)]
        if moments := [float(update[1]) for update in updates if update is not None]:
            return max(moments)
    seen, exact = [], []
    for job in queued_jobs(source, zone):
        start, ran, submit = job.start_time, job.run_time, job.submit_time
        if job.runs and isinstance(start, int | float) and isinstance(ran, int | float):
            exact.append(start + ran + job.was_suspended_s())
        if job.runs and start is None and isinstance(ran, int | float) and isinstance(submit, int):
            seen.append(submit + ran - 1)
        times = (submit, job.last_sched_evaluation, *([start] if job.runs else []))
        seen += [time for time in times if isinstance(time, int | float)]
    return float(max(exact)) if exact else max(seen) + 1.0 if seen else None


def queue_tables(source: Source, report: ReadReport, options: TraceOptions) -> Iterator[Table]:
    """Yield the rows of a queue with the columns ``COLUMNS``, and count them."""
    return tables_of(source, len(COLUMNS), _squeue_rows(source, report, options.zone()))


def _squeue_rows(source: Source, report: ReadReport, zone: ZoneInfo | None) -> Iterator[_NumberedJob]:
    """Yield one accounting row per job, as if each job had run until its time limit. Waiting jobs
    have no nodes. They are treated as if they had started when they became eligible.
    """
    now_s = squeue_instant_s(source, zone) or 0.0
    unlisted: set[str] = set()
    """Ids of waiting jobs that are left out."""
    listed: set[str] = set()
    """Submissions in the file."""
    dependent: list[tuple[QueuedJob, list[_NumberedJob]]] = []
    suspended: list[_NumberedJob] = []
    first_s = inf
    for job in queued_jobs(source, zone):
        ids = job.ids
        listed.add(job.submission)
        report.rows += len(ids)
        if job.has_two_readings:
            report.note(TWICE, source.where(job.line), len(ids))
        depends = job.state == "PENDING" and job.state_reason == "Dependency" and bool(job.conditions)
        if why := "" if depends or job.state != "PENDING" else NOT_QUEUED.get(job.state_reason, ""):
            unlisted.update(ids)
            report.skip(why, len(ids))
        elif job.state not in ("PENDING", "RUNNING", "SUSPENDED"):
            is_ending = job.state in ENDED
            report.skip("of jobs that are ending" if is_ending else "of jobs that neither run nor wait", len(ids))
        else:
            row = _squeue_row(job, now_s)
            rows: list[_NumberedJob] = [(job.line, row._replace(JobID=id)) for id in ids]
            is_counted = job.sockets or _TRACKED.search(job.tres_req_str + job.tres_alloc_str)
            if "gpu" in job.gres["socket"] and not is_counted:
                report.note("with GPUs per socket, taken as one socket per node", source.where(job.line), len(ids))
            first_s = min(first_s, job.submit_time) if isinstance(job.submit_time, int | float) else first_s
            if job.state == "SUSPENDED":
                suspended += rows
            elif depends:
                dependent.append((job, rows))
            else:
                yield from rows
    # Suspended jobs resume before any waiting job starts, so set their times before those of all
    # other jobs.
    started = unescaped_text(min(first_s, now_s) - 1)
    for number, row in suspended:
        yield number, row._replace(Submit=started, Eligible=started, Start=started)
    for job, rows in sorted(dependent, key=lambda waiting: int(re.sub(r"\D.*", "", waiting[0].ids[0]) or 0)):
        if _can_follow(job, listed, unlisted):
            yield from rows
        else:
            unlisted.update(job.ids)
            report.skip(NOT_QUEUED["Dependency"], len(job.ids))


def _can_follow(job: QueuedJob, listed: set[str], unlisted: set[str]) -> bool:
    """Return False if a job depends on a held job or on a job that is missing from the file, so that
    it cannot start."""
    needed = re.findall(r"(?<=:)\d+(?:_\d+)?", job.conditions)
    missing = [id for id in needed if id.partition("_")[0] not in listed]
    is_enough = not missing or ("?" in job.conditions and len(missing) < len(needed))
    return is_enough and not unlisted.intersection(needed)


def waiting_jobs(source: Source, zone: ZoneInfo | None = None) -> Iterator[WaitingJob]:
    """Yield each waiting or suspended job in a listing."""
    for job in queued_jobs(source, zone):
        if job.state not in ("PENDING", "SUSPENDED"):
            continue
        pending, priority = job.state == "PENDING", job.priority
        yield WaitingJob(
            job.submission,
            job.state_reason if pending else "Suspended",
            float(job.start_time) if pending and isinstance(job.start_time, int) and job.start_time else None,
            job.user_name,
            job.partition,
            tuple(dict.fromkeys(re.findall(r"(?<=:)\d+", job.dependency))),
            "?" in job.dependency,
            float(priority) if isinstance(priority, int) and priority > 0 else None,
        )


def _gpus_of(job: QueuedJob) -> tuple[str, str]:
    """Return the resources that a job requests, and the resources that it holds. At sites whose
    AccountingStorageTRES lacks gres/gpu (the default), these lists do not contain GPUs. The GPUs
    are then taken from ``gres_detail`` and ``tres_per_*``.
    """
    asked, held = job.tres_req_str, job.tres_alloc_str
    nodes = job.node_count if isinstance(job.node_count, int) and job.node_count > 0 else 1
    tasks = job.tasks if isinstance(job.tasks, int) and job.tasks > 0 else 1
    try:
        listed = gres_tres(job.gres, nodes, tasks, nodes * (job.sockets or 1))
        detailed = gres_tres({"job": ",".join(job.gres_detail)}, 1)
    except Dirty:
        return f"{asked},gres/gpu=?", f"{held},gres/gpu=?"  # an invalid number, which makes the reader drop this row
    known = _TRACKED.search(asked) is not None
    if "gres/gpu:" not in asked:  # add the GPU types from the other fields: they restrict where the job may run
        parts = listed.split(",") if listed else []
        asked = ",".join(filter(None, [asked, *[part for part in parts if not known or part.startswith("gres/gpu:")]]))
    if held and _TRACKED.search(held) is None:
        parts = detailed.split(",") if detailed else [part for part in asked.split(",") if _TRACKED.match(part)]
        held = ",".join([held, *parts])
    return asked, held


_TRACKED = re.compile(r"gres/(?:gpu|shard)\b")


class _QueueTimes(NamedTuple):
    """The times of a job, as if it ran to its limit."""

    submit: ListedNumber
    eligible: ListedNumber
    start: ListedNumber
    lasts_s: float
    limit_min: ListedNumber


def _times_of(job: QueuedJob, now_s: float) -> _QueueTimes:
    submit, eligible, start = job.submit_time or None, job.eligible_time or None, job.start_time or None
    if eligible is None and (job.state, job.state_reason) == ("PENDING", "BeginTime"):
        eligible = start  # for a job without a planned start, slurmctld lists the begin time as the start
    limit = job.time_limit if isinstance(job.time_limit, int | float) else None
    lasts_s = 60.0 * limit if limit is not None and limit > 0 else UNLIMITED_S
    lasts_s += job.was_suspended_s()
    if (ran := job.ran_until_suspended_s()) is not None:  # a suspended job has the rest of its limit left
        lasts_s = max(lasts_s - ran, _LEAST_LEFT_S)
        limit = None if limit is None else lasts_s / 60
    if not job.runs:
        moments = [moment for moment in (submit, eligible) if isinstance(moment, int | float)]
        start = max(moments, default=None)
    # Text output may lack a column of start times, so compute the start from the run time.
    elif start is None and isinstance(job.run_time, int | float):
        start = int(now_s - job.run_time)
    if job.runs and isinstance(start, int | float):
        lasts_s = max(lasts_s, now_s - start + _LEAST_LEFT_S)
    return _QueueTimes(submit, eligible, start, lasts_s, limit)


def _squeue_row(job: QueuedJob, now_s: float) -> AccountingRow:
    """Return the row of a job or of a task of an array, without ``JobID``."""
    (asked, held), times = _gpus_of(job), _times_of(job, now_s)
    holds = job.runs or job.state == "SUSPENDED"
    return AccountingRow(
        JobIDRaw=unescaped_text(job.job_id),
        User=job.user_name,
        Account=job.account,
        Partition=job.partition,
        State="COMPLETED",
        Submit=unescaped_text(times.submit),
        Eligible=unescaped_text(times.eligible),
        Start=unescaped_text(times.start),
        ElapsedRaw=unescaped_text(int(times.lasts_s)),
        TimelimitRaw=unescaped_text(times.limit_min),
        NNodes=unescaped_text(job.node_count),
        NCPUS=unescaped_text(job.cpus),
        # an exclusive job requests all that it holds, because it gets whole nodes
        ReqTRES=(held if holds and job.exclusive == "" else "") or asked,
        AllocTRES=(held if holds else "") or asked,
        ReqMem=job.memory,
        NodeList=job.nodes if job.runs else "",
        QOS=job.qos,
        Constraints=job.features,
        Reservation=job.resv_name,
        SubmitLine=_options(job),
    )


def _options(job: QueuedJob) -> ListedOptions:
    """Return the options with which a job was submitted, as far as the listing states them."""
    limit = job.array_max_tasks or job.array_task_string.partition("%")[2]
    stated = {
        "dependency": job.conditions,
        "array": f"0%{limit}" if limit else "",
        "licenses": job.licenses,
        "nodelist": job.required_nodes,
        "exclude": job.excluded_nodes,
        "nice": f"-{_FIRST}" if job.state == "SUSPENDED" else "",
    }
    options = {name: value for name, value in stated.items() if value}
    if job.exclusive is not None:
        options["exclusive"] = job.exclusive
    if options or job.name:
        options["job-name"] = job.name or "wrap"
    return ListedOptions(options.items())

"""Slurm's queue at one instant: the jobs of ``squeue --json`` and ``scontrol show job --json`` as rows of ``sacct``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

from dagsim.traces.chunks import Table, tables_of
from dagsim.traces.documents import elements, text_in
from dagsim.traces.report import ReadReport
from dagsim.traces.slurm import COLUMNS, ENDED, array_ids, json_number, listed_tasks, plain_text
from dagsim.traces.source import Row, Source

_LAST_UPDATE = re.compile(rb'"last_update"\s*:\s*(\{[^{}]*\}|\d+)')
_UPDATE_S = re.compile(rb'(?:"number"\s*:\s*|^)([1-9]\d*)')
_PER_NODE = re.compile(r"gpu:([A-Za-z][\w.-]*)(?:[:=](\d{1,4}))?")
_UNLIMITED_S = 365 * 86400.0
"""Slurm plans with a year for jobs without a time limit."""
_FIRST = 1_000_000_000
"""Priority by which a suspended job comes back before waiting ones."""
_OVERDUE_S = 60.0
"""Time left to a job beyond its limit (OverTimeLimit)."""
_NOT_QUEUED = {
    "JobHeldUser": "that are held",
    "JobHeldAdmin": "that are held",
    "Dependency": "that wait for other jobs",
    "DependencyNeverSatisfied": "that wait for other jobs",
}
"""Reasons of waiting jobs that no scheduler would start."""


def is_squeue(source: Source) -> bool:
    """True if the source is output of ``squeue --json`` or ``scontrol show job --json``."""
    head = "\n".join(source.head(1 << 16))
    return head.lstrip().startswith("{") and all(f'"{key}"' in head for key in ("jobs", "job_state", "submit_time"))


def squeue_instant_s(source: Source) -> float | None:
    """When ``squeue`` was called: ``last_update`` of its controller, else (before v0.0.40) a second
    after the last submission or start of a job; ``None`` if the file has no job.
    """
    with source.files[0].open_binary() as stream:
        content = stream.read()
    updates = [_UPDATE_S.search(match[1]) for match in _LAST_UPDATE.finditer(content)]
    if moments := [float(update[1]) for update in updates if update is not None]:
        return max(moments)
    seen = []
    for _, job in elements(source, "jobs"):
        names = ("submit_time", "start_time") if _squeue_state(job)[0] == "RUNNING" else ("submit_time",)
        seen += [value for name in names if isinstance(value := json_number(job.get(name)), int | float)]
    return max(seen) + 1.0 if seen else None


def queue_tables(source: Source, report: ReadReport, delimiter: str | None = None) -> Iterator[Table]:
    """Yield the rows of a queue with the columns ``COLUMNS``; counts them."""
    return tables_of(source, len(COLUMNS), _squeue_rows(source, report))


def _squeue_rows(source: Source, report: ReadReport) -> Iterator[Row]:
    """Rows of jobs as they will be when all have run until their time limits: waiting jobs without
    nodes, as if they had started when they became eligible.
    """
    now_s = squeue_instant_s(source) or 0.0
    unlisted: set[str] = set()
    """Ids of jobs that wait and are left out."""
    listed: set[str] = set()
    """Submissions in the file."""
    dependent: list[tuple[list[str], str, list[Row]]] = []
    suspended: list[Row] = []
    first_s = inf
    for number, job in elements(source, "jobs"):
        ids = _squeue_ids(job)
        listed.add(re.split("[_+]", ids[0], maxsplit=1)[0])
        report.rows += len(ids)
        state, reason = _squeue_state(job)
        conditions = _conditions(job) if state == "PENDING" and reason == "Dependency" else ""
        why = "" if conditions or state != "PENDING" else _NOT_QUEUED.get(reason, "")
        if why:
            unlisted.update(ids)
            report.skip(why, len(ids))
        elif state not in ("PENDING", "RUNNING", "SUSPENDED"):
            report.skip("of jobs that are ending" if state in ENDED else "of jobs that neither run nor wait", len(ids))
        else:
            rows: list[Row] = [(number, _squeue_row(job, id, state == "RUNNING", now_s)) for id in ids]
            submit_s = json_number(job.get("submit_time"))
            first_s = min(first_s, submit_s) if isinstance(submit_s, int | float) else first_s
            if state == "SUSPENDED":
                suspended += rows
            elif conditions:
                dependent.append((ids, conditions, rows))
            else:
                yield from rows
    for number, fields in suspended:  # it has started before all that wait, and comes back before them
        times = dict.fromkeys(map(COLUMNS.index, ("Submit", "Eligible", "Start")), plain_text(min(first_s, now_s) - 1))
        yield number, [times.get(place, field) for place, field in enumerate(fields)]
    dependent.sort(key=lambda waiting: int(re.sub(r"\D.*", "", waiting[0][0]) or 0))
    for ids, conditions, rows in dependent:
        needed = re.findall(r"(?<=:)\d+(?:_\d+)?", conditions)
        missing = [id for id in needed if id.partition("_")[0] not in listed]
        if unlisted.intersection(needed) or (missing and not ("?" in conditions and len(missing) < len(needed))):
            unlisted.update(ids)  # they wait for a job that is held, or that the file lacks
            report.skip(_NOT_QUEUED["Dependency"], len(ids))
        else:
            yield from rows


class WaitingJob(NamedTuple):
    """A waiting job or array as a queue lists it."""

    name: str
    """The number of its submission: its array, else its own."""
    reason: str
    start_s: float | None = None
    """The scheduler's estimate of the start, if it has one."""
    user: str = ""
    partition: str = ""
    after: tuple[str, ...] = ()
    """The jobs and arrays that it still waits for."""
    one_of: bool = False
    """True if one of these is enough."""


def waiting_jobs(source: Source) -> Iterator[WaitingJob]:
    """Yield each waiting or suspended job of ``squeue --json``."""
    for _, job in elements(source, "jobs"):
        state, reason = _squeue_state(job)
        if state not in ("PENDING", "SUSPENDED"):
            continue
        start, conditions = json_number(job.get("start_time")), text_in(job.get("dependency"))
        yield WaitingJob(
            re.split("[_+]", _squeue_ids(job)[0], maxsplit=1)[0],
            reason if state == "PENDING" else "Suspended",
            float(start) if state == "PENDING" and isinstance(start, int) and start else None,
            text_in(job.get("user_name")),
            text_in(job.get("partition")),
            tuple(dict.fromkeys(re.findall(r"(?<=:)\d+", conditions))),
            "?" in conditions,
        )


def _squeue_row(job: Mapping[str, Any], id: str, runs: bool, now_s: float) -> list[str]:
    nodes, asked = plain_text(json_number(job.get("node_count"))), text_in(job.get("tres_req_str"))
    if "gres/gpu:" not in asked and (typed := _PER_NODE.search(text_in(job.get("tres_per_node")))):
        asked += f",gres/gpu:{typed[1]}={int(typed[2] or 1) * int(nodes if nodes.isdecimal() else 1)}"
    submit, eligible, start = (json_number(job.get(f"{name}_time")) or None for name in ("submit", "eligible", "start"))
    limit = json_number(job.get("time_limit"))
    lasts_s = 60.0 * limit if isinstance(limit, int | float) and limit > 0 else _UNLIMITED_S
    if (ran := _suspended_after_s(job)) is not None:  # it comes back, for the rest of its limit
        lasts_s = max(lasts_s - ran, _OVERDUE_S)
        limit = lasts_s / 60 if isinstance(limit, int | float) else limit
    if not runs:
        moments = [moment for moment in (submit, eligible) if isinstance(moment, int | float)]
        start = max(moments, default=None)
    elif isinstance(start, int | float):
        lasts_s = max(lasts_s, now_s - start + _OVERDUE_S)
    row = {
        "JobIDRaw": plain_text(json_number(job.get("job_id"))),
        "JobID": id,
        "User": text_in(job.get("user_name")),
        "Account": text_in(job.get("account")),
        "Partition": text_in(job.get("partition")),
        "State": "COMPLETED",
        "Submit": plain_text(submit),
        "Eligible": plain_text(eligible),
        "Start": plain_text(start),
        "ElapsedRaw": plain_text(int(lasts_s)),
        "TimelimitRaw": plain_text(limit),
        "NNodes": nodes,
        "NCPUS": plain_text(json_number(job.get("cpus"))),
        "ReqTRES": asked,
        "AllocTRES": (text_in(job.get("tres_alloc_str")) if runs else "") or asked,
        "NodeList": text_in(job.get("nodes")) if runs else "",
        "QOS": text_in(job.get("qos")),
        "Constraints": text_in(job.get("features")),
        "Reservation": text_in(job.get("resv_name")),
        "SubmitLine": _queue_line(job),
    }
    return [row.get(name, "") for name in COLUMNS]


def _conditions(job: Mapping[str, Any]) -> str:
    """The conditions that a job of ``squeue --json`` still waits for, as sbatch takes them."""
    return re.sub(r"_\*|\([a-z]*\)", "", text_in(job.get("dependency")))


def _queue_line(job: Mapping[str, Any]) -> str:
    """The terms of a job of ``squeue --json`` that a submission states, as ``submission`` reads them."""
    words = ["-d", _conditions(job)] if _conditions(job) else []
    limit = json_number(job.get("array_max_tasks")) or text_in(job.get("array_task_string")).partition("%")[2]
    words += [f"--array=0%{limit}"] if limit else []
    words += [f"--nice=-{_FIRST}"] if _suspended_after_s(job) is not None else []
    if not (words or text_in(job.get("name"))):
        return ""
    return shlex.join(["squeue", "-J", text_in(job.get("name")) or "wrap", *words])


def _suspended_after_s(job: Mapping[str, Any]) -> float | None:
    """Seconds that a suspended job has run; None for any other job."""
    if _squeue_state(job)[0] != "SUSPENDED":
        return None
    ran_s = json_number(job.get("pre_sus_time"))
    if isinstance(ran_s, int | float):
        return float(ran_s)
    start, stop = (json_number(job.get(f"{name}_time")) for name in ("start", "suspend"))
    return float(stop - start) if isinstance(start, int | float) and isinstance(stop, int | float) else 0.0


def _squeue_state(job: Mapping[str, Any]) -> tuple[str, str]:
    """State and reason of a job: ``RUNNING`` for one that holds its nodes."""
    current = job.get("job_state")
    words = current if isinstance(current, list) else [current]
    reason = text_in(job.get("state_reason"))
    if "COMPLETING" in words:
        return "COMPLETED", reason
    if "SUSPENDED" in words:
        return "SUSPENDED", reason
    if any(word in words for word in ("RUNNING", "CONFIGURING")):
        return "RUNNING", reason
    return next((word for word in words if isinstance(word, str)), ""), reason


def _squeue_ids(job: Mapping[str, Any]) -> list[str]:
    """The id of a job, or those of the tasks of an array that wait together."""
    task, parent = json_number(job.get("array_task_id")), json_number(job.get("array_job_id"))
    leader, offset = json_number(job.get("het_job_id")), json_number(job.get("het_job_offset"))
    own = plain_text(json_number(job.get("job_id")))
    if parent and task is not None:
        return [f"{plain_text(parent)}_{plain_text(task)}"]
    if listed := listed_tasks(text_in(job.get("array_task_string"))).partition("%")[0]:
        tasks = array_ids(f"{plain_text(parent) if parent else own}_[{listed}]")
        return [own] if "_[" in tasks[0] else tasks
    if leader and offset is not None:
        return [f"{plain_text(leader)}+{plain_text(offset)}"]
    return [own]

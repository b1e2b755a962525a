"""Slurm's queue at one moment, as rows of ``sacct``.

``squeue --json``, ``scontrol show job`` (JSON or text) and ``squeue -o`` or ``--Format`` (text)
list the same jobs. Jobs in text listings are converted to objects with the field names of JSON, so
all formats are then handled in the same way.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import Any
from zoneinfo import ZoneInfo

from dagsim.errors import TraceError
from dagsim.families.slurm.accounting import COLUMNS
from dagsim.families.slurm.accounting_values import array_ids, gres_tres, json_number, listed_tasks, unescaped_text
from dagsim.model import UNLIMITED_S
from dagsim.traces.batch import ENDED
from dagsim.traces.chunks import Table, tables_of
from dagsim.traces.documents import elements, list_in, text_in
from dagsim.traces.fields import Dirty
from dagsim.traces.reader import WaitingJob
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.sites import readable_hosts
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.times import UNSET_MOMENTS, duration_s, moment_s, reading_of
from dagsim.traces.trace_options import TraceOptions

_LAST_UPDATE = re.compile(rb'"last_update"\s*:\s*(\{[^{}]*\}|\d+)')
_UPDATE_S = re.compile(rb'(?:"number"\s*:\s*|^)([1-9]\d*)')
_FIRST = 1_000_000_000
"""Priority of suspended jobs, so that they resume before any waiting job starts."""
_OVERDUE_S = 60.0
"""Time left for a job beyond its limit (OverTimeLimit)."""
_NOT_QUEUED = {
    "JobHeldUser": "that are held",
    "JobHeldAdmin": "that are held",
    "Dependency": "that wait for other jobs",
    "DependencyNeverSatisfied": "that wait for other jobs",
}
"""Reasons for waiting that mean that no scheduler would start the job."""


def is_squeue(source: Source) -> bool:
    """Return True if the source is a listing of Slurm's queue."""
    return bool(_form_of(source)) and not lacking_columns(source)


def _form_of(source: Source) -> str:
    """Return the format of a queue listing: ``json``, ``scontrol`` or ``squeue``. The result is
    empty if the source is not a listing of a queue.
    """
    head = "\n".join(source.head(1 << 16))
    if head.lstrip().startswith("{"):
        listed = re.search(r'"jobs"\s*:\s*\[', head) and '"job_state"' in head and '"submit_time"' in head
        return "json" if listed else ""
    first = next((line for line in source.head(40) if line.strip()), "")
    if first.lstrip().startswith("JobId=") and "JobState=" in head:
        return "scontrol"
    names = _squeue_names(first)
    return "squeue" if "JOBID" in names and {"ST", "STATE"} & set(names) else ""


QUEUE_COMMAND = (
    "squeue --json, scontrol show job, or squeue -a -o '%i|%u|%a|%P|%q|%T|%r|%V|%S|%M|%l|%D|%C|%m|%b|%N|%f|%v|%E'"
)
"""Commands that print a queue with everything that is used."""
_QUEUE_NEEDS = (("SUBMIT_TIME",), ("TIME_LIMIT",), ("NODES",), ("CPUS", "TRES_ALLOC", "TRES-ALLOC"))


def lacking_columns(source: Source) -> str:
    """Return the required columns that a text listing of ``squeue`` lacks. The result is empty if
    it lacks none, or if the source is something else.
    """
    if _form_of(source) != "squeue":
        return ""
    names = set(_squeue_names(next(line for line in source.head(40) if line.strip())))
    return ", ".join([" or ".join(choices) for choices in _QUEUE_NEEDS if not names & set(choices)])


def queue_jobs(source: Source, zone: ZoneInfo | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the jobs in a listing as objects of ``squeue --json``, each with its line number.
    Dates in text are interpreted in the time zone ``zone`` (default UTC).

    Raises:
        TraceError: The text is not JSON, or a line of ``squeue`` does not have the columns of
            its header.
    """
    match _form_of(source):
        case "scontrol":
            yield from _scontrol_jobs(source, zone)
        case "squeue":
            yield from _squeue_jobs(source, zone)
        case _:
            yield from elements(source, "jobs")


_KEY = re.compile(r"(?<!\S)([A-Z][\w/:&*-]*)=")


def _scontrol_jobs(source: Source, zone: ZoneInfo | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the jobs in the text of ``scontrol show job``, which prints each job as a block or on
    one line."""
    began, fields = 0, dict[str, str]()
    for number, line in source.lines():
        if line.lstrip().startswith("JobId="):
            if fields:
                yield began, _as_json(fields, zone)
            began, fields = number, {}
        parts = _KEY.split(line)
        for key, value in zip(parts[1::2], parts[2::2], strict=True):
            text = "" if value.strip() in _NOTHING else value.strip()
            # The field occurs once for each set of nodes, and states how many GPUs the job holds on
            # each node of the set.
            if key in ("GRES", "GRES_IDX") and text:
                text = _INDICES.sub(lambda found: f"{found[1]}:{len(readable_hosts(f'x[{found[2]}]')) or 1}", text)
                nodes = fields.get("Nodes", "")
                size = len(readable_hosts(nodes)) or 1
                fields["GRES"] = ",".join(filter(None, [fields.get("GRES", ""), *[text] * size]))
            elif key == "Nodes":
                fields[key] = text
            elif key == "Reason":
                fields.setdefault(key, text.replace("_", " "))  # scontrol prints underscores instead of spaces
            else:
                fields.setdefault(key, text)
    if fields:
        yield began, _as_json(fields, zone)


_INDICES = re.compile(r"(gpu(?::\w+)?)\(IDX:([\d,-]+)\)")
"""GPUs by their indices on a node, without a number: ``gpu(IDX:0-1)``, before Slurm 19.05."""
_NOTHING = ("", "(null)", "N/A", "n/a", "None", "Unknown", "NONE", "*")
_OF_SQUEUE = {
    "JOBID": "JobId", "ARRAY_JOB_ID": "ArrayJobId", "ARRAY_TASK_ID": "ArrayTaskId", "NAME": "JobName", "USER": "UserId",
    "ACCOUNT": "Account", "QOS": "QOS", "PARTITION": "Partition", "ST": "JobState", "STATE": "JobState",
    "REASON": "Reason", "DEPENDENCY": "Dependency", "SUBMIT_TIME": "SubmitTime", "ELIGIBLE_TIME": "EligibleTime",
    "START_TIME": "StartTime", "END_TIME": "EndTime", "TIME": "RunTime", "TIME_LIMIT": "TimeLimit", "NODES": "NumNodes",
    "CPUS": "NumCPUs", "TASKS": "NumTasks", "NODELIST": "NodeList", "FEATURES": "Features",
    "RESERVATION": "Reservation", "PRIORITY": "Priority",
    "LICENSES": "Licenses", "TRES": "TRES", "TRES_ALLOC": "AllocTRES", "TRES-ALLOC": "AllocTRES",
    "TRES_PER_JOB": "TresPerJob",
    "TRES_PER_NODE": "TresPerNode", "TRES_PER_TASK": "TresPerTask", "TRES_PER_SOCKET": "TresPerSocket",
    "GRES": "TresPerNode", "MIN_MEMORY": "MinMemory", "NICE": "Nice", "HET_JOB_ID": "HetJobId",
    "HET_JOB_OFFSET": "HetJobOffset", "OVER_SUBSCRIBE": "OverSubscribe", "REQ_NODES": "ReqNodeList",
    "EXC_NODES": "ExcNodeList",
}  # fmt: skip
"""Headings of ``squeue``, by the names that scontrol uses for them."""
_ENDINGS = ("NAME", "REASON", "NODELIST(REASON)")
"""Columns whose values may contain blanks."""


def _squeue_names(line: str) -> list[str]:
    mark = next((mark for mark in "|,;\t^" if mark in line), None)
    return [name.strip().upper() for name in line.split(mark)]


def _squeue_jobs(source: Source, zone: ZoneInfo | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the jobs in the text of ``squeue``. Its columns are separated by a delimiter, or have
    fixed widths.
    """
    names: list[str] = []
    header = mark = ""
    for number, line in source.lines():
        if not line.strip():
            continue
        if not names:
            names, header = _squeue_names(line), line
            mark = next((mark for mark in "|,;\t^" if mark in line), "")
            if twice := next((name for name in names if name in _OF_SQUEUE and names.count(name) > 1), ""):
                raise TraceError(f"{source.where(number)}: there are two columns {twice}; print the column only once")
            continue
        values = _fields(line, header, names, mark)
        if values is None:
            raise TraceError(f"{source.where(number)}: the columns do not match the header; use {QUEUE_COMMAND}")
        fields = {
            _OF_SQUEUE[name]: value
            for name, value in zip(names, values, strict=True)
            if name in _OF_SQUEUE and value not in _NOTHING
        }
        if "NODELIST(REASON)" in names:
            listed = values[names.index("NODELIST(REASON)")]
            fields.setdefault("Reason" if listed.startswith("(") else "NodeList", listed.strip("()"))
        yield number, _as_json(fields, zone)


def _fields(line: str, header: str, names: list[str], mark: str) -> list[str] | None:
    """Return the fields of a row, or None if the columns cannot be distinguished."""
    if mark:
        parts = [part.strip() for part in line.split(mark)]
        if len(parts) != len(names):
            parts = _merged(parts, names, mark) or []
        return parts or None
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    widths = {after - before for before, after in pairwise(starts)}
    if len(widths) == 1 or not (parts := _merged(re.findall(r"\(.*\)$|\S+", line.strip()), names, " ") or []):
        # Columns of squeue --Format have fixed widths, and a column may be empty.
        ends = [*starts[1:], len(line)]
        parts = [line[begin:end].strip() for begin, end in zip(starts, ends, strict=True)]
    return parts


def _merged(parts: list[str], names: list[str], mark: str) -> list[str] | None:
    """Join the parts of the one column with free text. Return None if the number of fields is still
    wrong.
    """
    more = len(parts) - len(names)
    if more < 0:
        return None
    for name in _ENDINGS if more else ():
        if name in names:
            at = names.index(name)
            return [*parts[:at], mark.join(parts[at : at + more + 1]), *parts[at + more + 1 :]]
    return None if more else parts


_CODES = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "CONFIGURING", "CG": "COMPLETING", "DL": "DEADLINE",
    "EX": "EXPEDITING", "F": "FAILED", "LF": "LAUNCH_FAILED", "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PO": "POWER_UP_NODE", "PR": "PREEMPTED", "R": "RUNNING", "RD": "RESV_DEL_HOLD", "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED", "S": "SUSPENDED", "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING", "SO": "STAGE_OUT", "ST": "STOPPED", "TO": "TIMEOUT",
}  # fmt: skip
"""States by their short names (squeue(1), JOB STATE CODES)."""


def _as_json(fields: Mapping[str, str], zone: ZoneInfo | None) -> dict[str, Any]:
    """Convert a job from a text listing to an object as in ``squeue --json``."""
    whole = {key: _whole(fields.get(key, "")) for key in ("ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset")}
    names = ("SubmitTime", "EligibleTime", "StartTime", "EndTime")
    texts, only = [fields.get(name, "") for name in names], True
    if zone is not None:
        texts, only = reading_of(texts, -1.0, zone)
    times = {name: _moment(text, zone) for name, text in zip(names, texts, strict=True)}
    id, _, task = fields.get("JobId", "").partition("_")
    leader, _, offset = id.partition("+")
    tasks = fields.get("ArrayTaskId", "") if whole["ArrayTaskId"] is None else ""
    state = fields.get("JobState", "")
    limit_s = _span(limit := fields.get("TimeLimit", ""))
    endless = limit.upper() in ("UNLIMITED", "INFINITE")
    per_node = fields.get("MinMemoryNode") or fields.get("MinMemory", "")
    return {
        "job_id": _whole(leader),
        "array_job_id": whole["ArrayJobId"] or (_whole(id) if task else 0),
        "array_task_id": whole["ArrayTaskId"] if whole["ArrayTaskId"] is not None else _whole(task),
        "array_task_string": tasks or task.strip("[]") * (_whole(task) is None),
        "array_max_tasks": _whole(fields.get("ArrayTaskThrottle", "")) or 0,
        "het_job_id": whole["HetJobId"] or (_whole(leader) if offset else 0),
        "het_job_offset": whole["HetJobOffset"] if whole["HetJobOffset"] is not None else _whole(offset),
        "name": fields.get("JobName", ""),
        "user_name": fields.get("UserId", "").partition("(")[0],
        "account": fields.get("Account", ""),
        "qos": fields.get("QOS", ""),
        "priority": _whole(fields.get("Priority", "")),
        "partition": fields.get("Partition", ""),
        "job_state": [_CODES.get(state, state)],
        "state_reason": fields.get("Reason", ""),
        "dependency": fields.get("Dependency", ""),
        "submit_time": times["SubmitTime"],
        "eligible_time": times["EligibleTime"],
        "start_time": times["StartTime"],
        "suspend_time": _moment(fields.get("SuspendTime", ""), zone),
        "pre_sus_time": _whole(fields.get("SecsPreSuspend", "")) if fields.get("SuspendTime") else None,
        "two_readings": not only,
        "run_time": _span(fields.get("RunTime", "")),
        "last_sched_evaluation": _moment(fields.get("LastSchedEval", ""), zone),
        "time_limit": {"infinite": endless} if limit_s is None else limit_s / 60,
        "node_count": _whole(fields.get("NumNodes", "").partition("-")[0]),
        "cpus": _whole(fields.get("NumCPUs", "").partition("-")[0]),
        "tasks": _whole(fields.get("NumTasks", "")),
        "sockets_per_node": _whole(fields.get("Socks/Node", "")),
        "nodes": fields.get("NodeList", ""),
        "tres_req_str": fields.get("ReqTRES") or fields.get("TRES", "") or fields.get("AllocTRES", ""),
        "tres_alloc_str": fields.get("AllocTRES") or fields.get("TRES", ""),
        "gres_detail": [fields["GRES"]] if fields.get("GRES") else [],
        **{f"tres_per_{unit}": fields.get(f"TresPer{unit.title()}", "") for unit in _UNITS},
        # before Slurm 18.08, the field Gres lists the gres per node
        **({"tres_per_node": fields["Gres"]} if fields.get("Gres") else {}),
        "memory": f"{per_node}n" if per_node else "",
        "features": fields.get("Features", ""),
        "resv_name": fields.get("Reservation", ""),
        "licenses": fields.get("Licenses", ""),
        "required_nodes": fields.get("ReqNodeList", ""),
        "excluded_nodes": fields.get("ExcNodeList", ""),
        "shared": {"NO": "none", "USER": "user"}.get(fields.get("OverSubscribe", ""), ""),
    }


_UNITS = ("job", "node", "task", "socket")


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _moment(text: str, zone: ZoneInfo | None) -> int | None:
    """Convert a date in text to whole seconds, as in JSON. Return None if the date is not set or
    cannot be read."""
    try:
        moment = moment_s(text, "", zone)
    except Dirty:
        return None
    return None if moment is None or moment in UNSET_MOMENTS else int(moment)


def _span(text: str) -> float | None:
    try:
        return duration_s(text, "")
    except Dirty:
        return None


def squeue_instant_s(source: Source, zone: ZoneInfo | None = None) -> float | None:
    """Return the time at which the queue was printed, or ``None`` if the file has no job.

    This is the controller's ``last_update`` if the file states it. Otherwise, it is the start of a
    running job plus its run time. In JSON before v0.0.40, it is a second after the last submission,
    start or evaluation of a job.
    """
    if _form_of(source) == "json":
        with source.files[0].open_binary() as stream:
            content = stream.read()
        updates = [_UPDATE_S.search(match[1]) for match in _LAST_UPDATE.finditer(content)]
        if moments := [float(update[1]) for update in updates if update is not None]:
            return max(moments)
    seen, exact = [], []
    for _, job in queue_jobs(source, zone):
        runs = _squeue_state(job)[0] == "RUNNING"
        start, ran = json_number(job.get("start_time")), job.get("run_time")
        if runs and isinstance(start, int | float) and isinstance(ran, int | float):
            exact.append(start + ran + _suspended_s(job))
        names = ("submit_time", "last_sched_evaluation", *(["start_time"] if runs else []))
        if runs and start is None and isinstance(ran, int | float) and isinstance(job.get("submit_time"), int):
            seen.append(job["submit_time"] + ran - 1)
        seen += [value for name in names if isinstance(value := json_number(job.get(name)), int | float)]
    return float(max(exact)) if exact else max(seen) + 1.0 if seen else None


def queue_tables(source: Source, report: ReadReport, options: TraceOptions) -> Iterator[Table]:
    """Yield the rows of a queue with the columns ``COLUMNS``, and count them."""
    return tables_of(source, len(COLUMNS), _squeue_rows(source, report, options.zone()))


def _squeue_rows(source: Source, report: ReadReport, zone: ZoneInfo | None) -> Iterator[NumberedRow]:
    """Yield one accounting row per job, as if each job had run until its time limit. Waiting jobs
    have no nodes. They are treated as if they had started when they became eligible.
    """
    now_s = squeue_instant_s(source, zone) or 0.0
    unlisted: set[str] = set()
    """Ids of waiting jobs that are left out."""
    listed: set[str] = set()
    """Submissions in the file."""
    dependent: list[tuple[list[str], str, list[NumberedRow]]] = []
    suspended: list[NumberedRow] = []
    first_s = inf
    for number, job in queue_jobs(source, zone):
        ids = _squeue_ids(job)
        listed.add(re.split("[_+]", ids[0], maxsplit=1)[0])
        report.rows += len(ids)
        if job.get("two_readings"):
            report.note(
                ImpossibleTimes("in an hour that occurs twice in their time zone (taken as the first)"),
                source.where(number),
                len(ids),
            )
        state, reason = _squeue_state(job)
        conditions = _conditions(job) if state == "PENDING" and reason == "Dependency" else ""
        why = "" if conditions or state != "PENDING" else _NOT_QUEUED.get(reason, "")
        if why:
            unlisted.update(ids)
            report.skip(why, len(ids))
        elif state not in ("PENDING", "RUNNING", "SUSPENDED"):
            report.skip("of jobs that are ending" if state in ENDED else "of jobs that neither run nor wait", len(ids))
        else:
            rows: list[NumberedRow] = [(number, _squeue_row(job, id, state == "RUNNING", now_s)) for id in ids]
            if "gpu" in text_in(job.get("tres_per_socket")) and not (_sockets(job) or _TRACKED.search(_tracked(job))):
                report.note("with GPUs per socket, taken as one socket per node", source.where(number), len(ids))
            submit_s = json_number(job.get("submit_time"))
            first_s = min(first_s, submit_s) if isinstance(submit_s, int | float) else first_s
            if state == "SUSPENDED":
                suspended += rows
            elif conditions:
                dependent.append((ids, conditions, rows))
            else:
                yield from rows
    # Suspended jobs resume before any waiting job starts, so give them an earlier time than all
    # other jobs.
    for number, fields in suspended:
        started = unescaped_text(min(first_s, now_s) - 1)
        times = dict.fromkeys(map(COLUMNS.index, ("Submit", "Eligible", "Start")), started)
        yield number, [times.get(place, field) for place, field in enumerate(fields)]
    dependent.sort(key=lambda waiting: int(re.sub(r"\D.*", "", waiting[0][0]) or 0))
    for ids, conditions, rows in dependent:
        needed = re.findall(r"(?<=:)\d+(?:_\d+)?", conditions)
        missing = [id for id in needed if id.partition("_")[0] not in listed]
        if unlisted.intersection(needed) or (missing and not ("?" in conditions and len(missing) < len(needed))):
            # These jobs depend on a held job or on a job that is missing from the file, so they
            # cannot start.
            unlisted.update(ids)
            report.skip(_NOT_QUEUED["Dependency"], len(ids))
        else:
            yield from rows


def waiting_jobs(source: Source, zone: ZoneInfo | None = None) -> Iterator[WaitingJob]:
    """Yield each waiting or suspended job in a listing."""
    for _, job in queue_jobs(source, zone):
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
            float(priority) if isinstance(priority := json_number(job.get("priority")), int) and priority > 0 else None,
        )


def _gpus_of(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return the resources that a job requests, and the resources that it holds. At sites whose
    AccountingStorageTRES lacks gres/gpu (the default), these lists do not contain GPUs. The GPUs
    are then taken from ``gres_detail`` and ``tres_per_*``.
    """
    asked, held = text_in(job.get("tres_req_str")), text_in(job.get("tres_alloc_str"))
    nodes, tasks = (json_number(job.get(name)) for name in ("node_count", "tasks"))
    count = nodes if isinstance(nodes, int) and nodes > 0 else 1
    units = {unit: text_in(job.get(f"tres_per_{unit}")) for unit in _UNITS}
    try:
        listed = gres_tres(
            units,
            count,
            tasks if isinstance(tasks, int) and tasks > 0 else 1,
            count * (_sockets(job) or 1),
        )
        details = [text for text in list_in(job.get("gres_detail")) if isinstance(text, str)]
        detailed = gres_tres({"job": ",".join(details)}, 1)
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


def _tracked(job: Mapping[str, Any]) -> str:
    return text_in(job.get("tres_req_str")) + text_in(job.get("tres_alloc_str"))


def _sockets(job: Mapping[str, Any]) -> int:
    """Return the number of sockets that a job requests on each node, or 0 if it states none."""
    sockets = json_number(job.get("sockets_per_node"))
    return sockets if isinstance(sockets, int) and 0 < sockets < 1024 else 0


def _squeue_row(job: Mapping[str, Any], id: str, runs: bool, now_s: float) -> list[str]:
    asked, held = _gpus_of(job)
    submit, eligible, start = (json_number(job.get(f"{name}_time")) or None for name in ("submit", "eligible", "start"))
    if eligible is None and _squeue_state(job) == ("PENDING", "BeginTime"):
        eligible = start  # for a job without a planned start, slurmctld lists the begin time as the start
    limit = json_number(job.get("time_limit"))
    lasts_s = 60.0 * limit if isinstance(limit, int | float) and limit > 0 else UNLIMITED_S
    lasts_s += _suspended_s(job)
    if (ran := _suspended_after_s(job)) is not None:  # a suspended job has the rest of its limit left
        lasts_s = max(lasts_s - ran, _OVERDUE_S)
        limit = lasts_s / 60 if isinstance(limit, int | float) else limit
    if not runs:
        moments = [moment for moment in (submit, eligible) if isinstance(moment, int | float)]
        start = max(moments, default=None)
    # Text output may lack a column of start times, so compute the start from the run time.
    elif start is None and isinstance(job.get("run_time"), int | float):
        start = int(now_s - job["run_time"])
    if runs and isinstance(start, int | float):
        lasts_s = max(lasts_s, now_s - start + _OVERDUE_S)
    row = {
        "JobIDRaw": unescaped_text(json_number(job.get("job_id"))),
        "JobID": id,
        "User": text_in(job.get("user_name")),
        "Account": text_in(job.get("account")),
        "Partition": text_in(job.get("partition")),
        "State": "COMPLETED",
        "Submit": unescaped_text(submit),
        "Eligible": unescaped_text(eligible),
        "Start": unescaped_text(start),
        "ElapsedRaw": unescaped_text(int(lasts_s)),
        "TimelimitRaw": unescaped_text(limit if isinstance(limit, int | float) else None),
        "NNodes": unescaped_text(json_number(job.get("node_count"))),
        "NCPUS": unescaped_text(json_number(job.get("cpus"))),
        # an exclusive job requests all that it holds, because it gets whole nodes
        "ReqTRES": (held if (runs or ran is not None) and _exclusive(job) == ["--exclusive"] else "") or asked,
        "AllocTRES": (held if runs or ran is not None else "") or asked,
        "ReqMem": text_in(job.get("memory")),
        "NodeList": text_in(job.get("nodes")) if runs else "",
        "QOS": text_in(job.get("qos")),
        "Constraints": text_in(job.get("features")),
        "Reservation": text_in(job.get("resv_name")),
        "SubmitLine": _queue_line(job),
    }
    return [row.get(name, "") for name in COLUMNS]


def _conditions(job: Mapping[str, Any]) -> str:
    """Return the conditions that a job in ``squeue --json`` is still waiting for, in sbatch's
    syntax."""
    return re.sub(r"_\*|\([a-z]*\)", "", text_in(job.get("dependency")))


def _queue_line(job: Mapping[str, Any]) -> str:
    """Return the submission options of a job in ``squeue --json``, as a command line that
    ``submission`` can read.
    """
    words = ["-d", _conditions(job)] if _conditions(job) else []
    limit = json_number(job.get("array_max_tasks")) or text_in(job.get("array_task_string")).partition("%")[2]
    words += [f"--array=0%{limit}"] if limit else []
    words += [f"-L{text_in(job.get('licenses'))}"] if text_in(job.get("licenses")) else []
    words += [f"-w{text_in(job.get('required_nodes'))}"] if text_in(job.get("required_nodes")) else []
    words += [f"-x{text_in(job.get('excluded_nodes'))}"] if text_in(job.get("excluded_nodes")) else []
    words += _exclusive(job)
    words += [f"--nice=-{_FIRST}"] if _suspended_after_s(job) is not None else []
    if not (words or text_in(job.get("name"))):
        return ""
    return shlex.join(["squeue", "-J", text_in(job.get("name")) or "wrap", *words])


def _exclusive(job: Mapping[str, Any]) -> list[str]:
    """Return the option by which a job shares no node, or shares nodes only with other jobs of its
    user."""
    shares = text_in(job.get("exclusive")) or text_in(job.get("shared"))
    return {"none": ["--exclusive"], "true": ["--exclusive"], "user": ["--exclusive=user"]}.get(shares.lower(), [])


def _suspended_after_s(job: Mapping[str, Any]) -> float | None:
    """Return for how many seconds a suspended job has run, or None for any other job."""
    if _squeue_state(job)[0] != "SUSPENDED":
        return None
    ran_s = json_number(job.get("pre_sus_time"))
    if isinstance(ran_s, int | float):
        return float(ran_s)
    start, stop = (json_number(job.get(f"{name}_time")) for name in ("start", "suspend"))
    return float(stop - start) if isinstance(start, int | float) and isinstance(stop, int | float) else 0.0


def _suspended_s(job: Mapping[str, Any]) -> float:
    """Return for how many seconds a running job has been suspended since its start."""
    before, resumed, start = (json_number(job.get(name)) for name in ("pre_sus_time", "suspend_time", "start_time"))
    if not (isinstance(before, int | float) and isinstance(resumed, int | float) and isinstance(start, int | float)):
        return 0.0
    return max(float(resumed - start - before), 0.0) if before and _squeue_state(job)[0] == "RUNNING" else 0.0


_STATES = {
    # A completing job is about to free its nodes, so treat it as completed.
    "COMPLETING": "COMPLETED", "STAGE_OUT": "COMPLETED",
    # Another cluster in the federation runs these jobs.
    "REVOKED": "REVOKED", "REQUEUE_FED": "REVOKED",
    "REQUEUE_HOLD": "HELD", "SPECIAL_EXIT": "HELD", "RESV_DEL_HOLD": "HELD", "LAUNCH_FAILED": "HELD",
    "SUSPENDED": "SUSPENDED",
    # These jobs hold nodes: the nodes are booting, or the job is changing size, is being signalled,
    # or has been stopped (SIGSTOP).
    "CONFIGURING": "RUNNING", "POWER_UP_NODE": "RUNNING", "RESIZING": "RUNNING", "SIGNALING": "RUNNING",
    "STOPPED": "RUNNING", "RUNNING": "RUNNING",
    "REQUEUED": "PENDING", "EXPEDITING": "PENDING", "RECONFIG_FAIL": "PENDING", "PENDING": "PENDING",
}  # fmt: skip
"""The meaning of each state or flag of a job in the queue; if a job has several, the first in this
list counts."""


def _squeue_state(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return a job's state and reason. The state is ``RUNNING`` if the job holds its nodes."""
    current = job.get("job_state")
    words = [word for word in (current if isinstance(current, list) else [current]) if isinstance(word, str)]
    reason = text_in(job.get("state_reason"))
    meaning = next((meaning for word, meaning in _STATES.items() if word in words), words[0] if words else "")
    if meaning == "PENDING" and reason in ("", "None"):
        reason = _unstated_reason(job) or reason
    if meaning == "HELD":
        return "PENDING", reason if _NOT_QUEUED.get(reason) == "that are held" else "JobHeldAdmin"
    return meaning, reason


def _unstated_reason(job: Mapping[str, Any]) -> str:
    """Derive the reason why a job waits from its other fields, if the listing states no reason:
    slurmctld lists the conditions that are not met, and gives held jobs the priority 0. Return an
    empty text if the fields give no reason.
    """
    conditions = text_in(job.get("dependency"))
    if conditions:
        return "DependencyNeverSatisfied" if "(failed)" in conditions and "?" not in conditions else "Dependency"
    return "JobHeldUser" if json_number(job.get("priority")) == 0 else ""


def _squeue_ids(job: Mapping[str, Any]) -> list[str]:
    """Return the id of a job, or the ids of array tasks that are waiting together."""
    task, parent = json_number(job.get("array_task_id")), json_number(job.get("array_job_id"))
    leader, offset = json_number(job.get("het_job_id")), json_number(job.get("het_job_offset"))
    own = unescaped_text(json_number(job.get("job_id")))
    if parent and task is not None:
        return [f"{unescaped_text(parent)}_{unescaped_text(task)}"]
    if listed := listed_tasks(text_in(job.get("array_task_string"))).partition("%")[0]:
        tasks = array_ids(f"{unescaped_text(parent) if parent else own}_[{listed}]")
        return [own] if "_[" in tasks[0] else tasks
    if leader and offset is not None:
        return [f"{unescaped_text(leader)}+{unescaped_text(offset)}"]
    return [own]

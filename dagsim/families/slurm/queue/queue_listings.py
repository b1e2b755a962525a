"""The formats in which Slurm lists its queue: ``squeue --json``, ``scontrol show job`` (JSON or
text), and ``squeue -o`` or ``--Format`` (text).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from zoneinfo import ZoneInfo

from dagsim.errors import TraceError
from dagsim.families.slurm.accounting.accounting_values import json_number
from dagsim.families.slurm.queue.queued_job import GRES_UNITS, ListedNumber, QueuedJob, job_of_json
from dagsim.traces.documents import elements
from dagsim.traces.fields import Dirty
from dagsim.traces.sites import readable_hosts
from dagsim.traces.source import Source
from dagsim.traces.times import UNSET_MOMENTS, duration_s, moment_s, reading_of


def is_squeue(source: Source) -> bool:
    """Return True if the source is a listing of Slurm's queue."""
    return bool(queue_form(source)) and not lacking_columns(source)


def queue_form(source: Source) -> str:
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
    if queue_form(source) != "squeue":
        return ""
    names = set(_squeue_names(next(line for line in source.head(40) if line.strip())))
    return ", ".join([" or ".join(choices) for choices in _QUEUE_NEEDS if not names & set(choices)])


def queued_jobs(source: Source, zone: ZoneInfo | None = None) -> Iterator[QueuedJob]:
    """Yield the jobs in a listing. Dates in text are interpreted in the time zone ``zone`` (default
    UTC).

    Raises:
        TraceError: The text is not JSON, or a line of ``squeue`` does not have the columns of
            its header.
    """
    match queue_form(source):
        case "scontrol":
            yield from _scontrol_jobs(source, zone)
        case "squeue":
            yield from _squeue_jobs(source, zone)
        case _:
            for line, job in elements(source, "jobs"):
                yield job_of_json(line, job)


_KEY = re.compile(r"(?<!\S)([A-Z][\w/:&*-]*)=")


def _scontrol_jobs(source: Source, zone: ZoneInfo | None) -> Iterator[QueuedJob]:
    """Yield the jobs in the text of ``scontrol show job``, which prints each job as a block or on
    one line."""
    began, fields = 0, dict[str, str]()
    for number, line in source.lines():
        if line.lstrip().startswith("JobId="):
            if fields:
                yield _job_of_text(began, fields, zone)
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
        yield _job_of_text(began, fields, zone)


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


def _squeue_jobs(source: Source, zone: ZoneInfo | None) -> Iterator[QueuedJob]:
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
        yield _job_of_text(number, fields, zone)


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


def _job_of_text(line: int, fields: Mapping[str, str], zone: ZoneInfo | None) -> QueuedJob:
    """Return a job in a text listing, whose fields have the names that scontrol uses."""

    def text(name: str) -> str:
        return fields.get(name, "")

    def whole(name: str) -> ListedNumber:
        return _whole(text(name))

    names = ("SubmitTime", "EligibleTime", "StartTime", "EndTime")
    texts, only = [text(name) for name in names], True
    if zone is not None:
        texts, only = reading_of(texts, -1.0, zone)
    times_s = {name: _moment(moment, zone) for name, moment in zip(names, texts, strict=True)}
    id, _, task = text("JobId").partition("_")
    leader, _, offset = id.partition("+")
    tasks = text("ArrayTaskId") if whole("ArrayTaskId") is None else ""
    state, limit_s = text("JobState"), _span(text("TimeLimit"))
    endless = text("TimeLimit").upper() in ("UNLIMITED", "INFINITE")
    memory = text("MinMemoryNode") or text("MinMemory")
    # before Slurm 18.08, the field Gres lists the gres per node
    per_node = {"node": text("Gres")} if text("Gres") else {}
    return QueuedJob(
        line=line,
        job_id=_whole(leader),
        array_job_id=whole("ArrayJobId") or (_whole(id) if task else 0),
        array_task_id=whole("ArrayTaskId") if whole("ArrayTaskId") is not None else _whole(task),
        array_task_string=tasks or task.strip("[]") * (_whole(task) is None),
        array_max_tasks=whole("ArrayTaskThrottle"),
        het_job_id=whole("HetJobId") or (_whole(leader) if offset else 0),
        het_job_offset=whole("HetJobOffset") if whole("HetJobOffset") is not None else _whole(offset),
        name=text("JobName"),
        user_name=text("UserId").partition("(")[0],
        account=text("Account"),
        qos=text("QOS"),
        partition=text("Partition"),
        priority=whole("Priority"),
        states=(_CODES.get(state, state),),
        state_reason=text("Reason"),
        dependency=text("Dependency"),
        submit_time=times_s["SubmitTime"],
        eligible_time=times_s["EligibleTime"],
        start_time=times_s["StartTime"],
        suspend_time=_moment(text("SuspendTime"), zone),
        pre_sus_time=whole("SecsPreSuspend") if text("SuspendTime") else None,
        run_time=_span(text("RunTime")),
        last_sched_evaluation=_moment(text("LastSchedEval"), zone),
        has_two_readings=not only,
        time_limit=limit_s / 60 if limit_s is not None else "UNLIMITED" if endless else None,
        node_count=_whole(text("NumNodes").partition("-")[0]),
        cpus=_whole(text("NumCPUs").partition("-")[0]),
        tasks=whole("NumTasks"),
        sockets_per_node=whole("Socks/Node"),
        nodes=text("NodeList"),
        tres_req_str=text("ReqTRES") or text("TRES") or text("AllocTRES"),
        tres_alloc_str=text("AllocTRES") or text("TRES"),
        gres_detail=(text("GRES"),) if text("GRES") else (),
        gres={unit: text(f"TresPer{unit.title()}") for unit in GRES_UNITS} | per_node,
        memory=f"{memory}n" if memory else "",
        features=text("Features"),
        resv_name=text("Reservation"),
        licenses=text("Licenses"),
        required_nodes=text("ReqNodeList"),
        excluded_nodes=text("ExcNodeList"),
        shared={"NO": "none", "USER": "user"}.get(text("OverSubscribe"), ""),
    )


def _whole(text: str) -> ListedNumber:
    return json_number(int(text)) if text.isascii() and text.isdecimal() and len(text) < 16 else None


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

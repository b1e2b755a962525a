"""The jobs in the output of ``qstat -f``, as text or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from math import nan
from zoneinfo import ZoneInfo

from dagsim.families.pbs.pbs_requests import GPU_KEYS, parsed_chunk, with_gpus
from dagsim.model.arithmetic import whole_sum
from dagsim.traces.documents import object_in
from dagsim.traces.fields import Dirty
from dagsim.traces.report import OnlyInText, ReadReport
from dagsim.traces.source import Source
from dagsim.traces.times import TWICE, duration_s, reading_of
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.workflow import read_json

SUSPENDED_STATE = "SU"
QUEUED_STATES, RUNNING_STATES, ENDED_STATES = f"QWT{SUSPENDED_STATE}", "RE", "FCX"
"""States in ``qstat``: waiting jobs (among them suspended ones), running jobs, and finished jobs
(``H`` and ``B`` are held jobs and arrays)."""
_CONTINUES = re.compile(r"\t| {6}")
"""Begins a line of ``qstat -f`` with the rest of a long value: a tab, or the spaces that copies make of
it. Lines with names have four spaces."""
_TIMES = {
    "ctime": ("ctime",), "qtime": ("qtime",), "etime": ("etime",), "start": ("stime", "start_time"),
    "end": ("comp_time", "obittime", "history_timestamp"),
}  # fmt: skip


def is_qstat(source: Source) -> bool:
    """Return True if the source is output of ``qstat -f``, as text or JSON."""
    head = "\n".join(source.head(40)).lstrip()
    return head.startswith("Job Id: ") or (head.startswith("{") and '"pbs_version"' in head[:2000])


def is_queue(source: Source) -> bool:
    """Return True if the first jobs in the output of ``qstat -f`` have not finished."""
    text = "\n".join(source.head(1 << 16))
    return re.search(rf'job_state"?\s*[:=]\s*"?[{QUEUED_STATES}{RUNNING_STATES}H]\b', text) is not None


def qstat_jobs(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Yield the place, the id and the fields of each job in ``qstat -f``. Names and times are
    converted to those of accounting."""
    zone = options.zone()
    for place, id, job in listed_jobs(source):
        report.rows += 1
        moments, is_doubtful = _moments(job, zone)
        if is_doubtful:
            report.note(TWICE, source.where(place))
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
        lasts_s = wall_time_s(walltime)[0] if walltime else nan
        for first in ("qtime", "ctime"):
            names = [first, "etime", "start", "end"]
            dated, is_only = reading_of([isos[name] for name in names], lasts_s, zone)
            isos, is_sure = isos | dict(zip(names, dated, strict=True)), is_sure and is_only
    return {name: text if text.isdecimal() else epoch_text(text, zone) for name, text in isos.items()}, not is_sure


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
            asked = whole_sum(chunk.pieces * chunk.gpus for chunk in map(parsed_chunk, chunks.split("+")))
        except Dirty:
            continue
        if asked:
            return asked
    gpus = re.search(rf"(?:^|[\s,])(?:-l\s*)?(?:{'|'.join(GPU_KEYS)})=(\d{{1,6}})\b", text)
    return int(gpus[1]) if gpus else 0


def listed_jobs(source: Source) -> Iterator[tuple[int, str, dict[str, str]]]:
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


def epoch_text(text: str, zone: tzinfo | None) -> str:
    """Convert a date from qstat, or in ISO form, to seconds since 1970. Return an empty string for
    other texts.
    """
    try:
        moment = datetime.fromisoformat(_iso(text))
    except ValueError:
        return ""
    return str(int((moment if moment.tzinfo else moment.replace(tzinfo=zone or UTC)).timestamp()))


def printed_s(source: Source, options: TraceOptions) -> float:
    """Return the time at which the queue was printed. This is its time stamp, or the time of the
    last change of a job."""
    if source.head(1)[0].lstrip().startswith("{"):
        stamps = [object_in(read_json(file)).get("timestamp") for file in source.files]
        return max([float(stamp) for stamp in stamps if isinstance(stamp, int | float)], default=0.0)
    zone, latest_s = options.zone(), 0.0
    for _, _, job in listed_jobs(source):
        for name in ("mtime", "stime", "start_time", "qtime"):
            latest_s = max(latest_s, float(epoch_text(job.get(name, ""), zone) or 0.0))
        start_s = float(epoch_text(job.get("stime") or job.get("start_time", ""), zone) or nan)
        ran_s = wall_time_s(job.get("resources_used.walltime", ""))[0]
        if job.get("job_state", "") in RUNNING_STATES and start_s + ran_s > 0:
            latest_s = max(latest_s, start_s + ran_s)
    return latest_s


def wall_time_s(text: str) -> tuple[float, str]:
    """Parse a wall time. Return its seconds, or NaN if it is not set or invalid. Also return why it
    is invalid."""
    try:
        seconds = duration_s(text, "walltime")
    except Dirty as reason:
        return nan, str(reason)
    return nan if seconds is None else seconds, ""

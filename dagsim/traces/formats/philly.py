"""Microsoft Philly 2017: the official ``cluster_job_log`` (JSON), and lists derived from it (CSV).

The log is one array of ``{status, vc, jobid, submitted_time, user, attempts: [{start_time,
end_time, detail: [{ip, gpus}]}]}``; times are local, without a zone, or null or ``None``. It is
read object by object. The lists have ``timestamp, duration, num_gpus, gpu_time, cluster``. Both are
sorted by submission, externally beyond 262,144 jobs (see ``gather``).
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from dagsim.errors import ModelError, TraceError
from dagsim.model import Job, Task
from dagsim.traces.fields import Dirty, count, finite_number, seconds_since_1970
from dagsim.traces.gather import gather, pack, unpack
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Row, Source

__all__ = ["Philly"]

_LIST = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
_CHUNK = 1 << 16
_LONGEST = 1 << 24  # maximum characters of one job


class Philly(Reader):
    """One gang of single GPUs per job. Its work is the sum of its attempts, its tenant the virtual
    cluster.
    """

    name = "philly"
    summary = "Microsoft Philly 2017: cluster_job_log (JSON) and processed lists (CSV)"
    uses = frozenset({"floor_s"})

    def recognises(self, source: Source) -> bool:
        return _is_list(source) or any('"jobid"' in line or '"submitted_time"' in line for line in source.head(64))

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        return _listed(source, options, report) if _is_list(source) else _logged(source, options, report)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "seconds on undisclosed GPU types" + ("" if _is_list(source) else ", all attempts together"),
            "gpus": "those of the first attempt, one instance each: a gang that may span nodes",
            "clock": "local time without a zone: the hour of 2017-11-05 that came twice is not told apart",
        }


def _is_list(source: Source) -> bool:
    return set(_LIST) <= {name.strip().lower() for name in source.head(1)[0].split(",")}


def _listed(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
    """Jobs of a derived list. They have no ids, so they are named after their lines."""
    for group in gather(_arrivals(source.rows(report, _LIST, header=True), source, report)):
        for index, text in enumerate(group.rows):
            place, (_, duration, num_gpus, _, vc) = unpack(text)
            where = source.where(place)
            try:
                seconds = finite_number(duration, "duration")
                if seconds < 0:
                    raise Dirty("with a negative duration")
                task = _task(seconds, count(num_gpus, "num_gpus"), options)
            except (Dirty, ModelError) as reason:
                report.drop(str(reason), where)
                continue
            if index:
                report.note("rows that equal another (kept)", where)
            report.kept += 1
            yield Job.single(f"row {where.rpartition(':')[2]}", task, group.time, tenant=vc)


def _arrivals(rows: Iterator[Row], source: Source, report: ReadReport) -> Iterator[tuple[str, float, str]]:
    for place, row in rows:
        with report.dropping(partial(source.where, place)):
            yield ",".join(row), seconds_since_1970(row[0], "timestamp"), pack(place, row)


def _logged(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
    for group in gather(_entries(source, report)):
        first, *others = map(unpack, group.rows)
        for place, _ in others:
            report.drop("whose jobid another job has", source.where(place))
        place, (text,) = first
        where = source.where(place)
        with report.dropping(where):
            job = _job(json.loads(text), options, report, where)
            report.kept += 1
            yield job


def _entries(source: Source, report: ReadReport) -> Iterator[tuple[str, float, str]]:
    for line, entry in _objects(source):
        report.rows += 1
        with report.dropping(f"{source.files[0]}:{line}"):
            if not isinstance(entry, dict):
                raise Dirty("that are not objects")
            id = entry.get("jobid")
            if not isinstance(id, str) or not id:
                raise Dirty("without a jobid")
            time = seconds_since_1970(str(entry.get("submitted_time")), "submitted_time")
            yield id, time, pack(line, (json.dumps(entry),))


def _job(entry: dict[str, Any], options: TraceOptions, report: ReadReport, where: str) -> Job:
    """Job of one entry of the log.

    Raises:
        Dirty: The entry is unusable.
        ModelError: The job is invalid.
    """
    attempts = entry.get("attempts")
    if not isinstance(attempts, list) or not attempts:
        raise Dirty("without attempts")
    if not all(isinstance(attempt, dict) for attempt in attempts):
        raise Dirty("whose attempts are not objects")
    gpus = _gpus(attempts[0])
    if not gpus:
        raise Dirty("without GPUs")
    seconds, unfinished = 0.0, 0
    for attempt in attempts:
        start, end = attempt.get("start_time"), attempt.get("end_time")
        if start in (None, "None", "") or end in (None, "None", ""):
            unfinished += 1
            continue
        span = seconds_since_1970(str(end), "end_time") - seconds_since_1970(str(start), "start_time")
        if span < 0:
            raise Dirty("whose times are out of order")
        seconds += span
    if attempts[-1].get("end_time") in (None, "None", ""):
        raise Dirty("without end")
    if unfinished:
        report.note("with attempts that lack a time (not counted)", where)
    if len(attempts) > 1:
        report.note("of several attempts (work is their sum)", where)
    submitted = seconds_since_1970(str(entry["submitted_time"]), "submitted_time")
    return Job.single(entry["jobid"], _task(seconds, gpus, options), submitted, tenant=str(entry.get("vc") or ""))


def _gpus(attempt: dict[str, Any]) -> int:
    """GPUs of an attempt, summed over its machines."""
    detail = attempt.get("detail")
    if not isinstance(detail, list):
        return 0
    lists = [machine.get("gpus") for machine in detail if isinstance(machine, dict)]
    return sum(len(gpus) for gpus in lists if isinstance(gpus, list))


def _task(seconds: float, gpus: int, options: TraceOptions) -> Task:
    return Task("job", max(seconds, options.floor_s), gpus, gpus > 1)


def _objects(source: Source) -> Iterator[tuple[int, Any]]:
    """Elements of the array, each with the line it begins on. The file is streamed.

    Raises:
        TraceError: The text is not a JSON array.
    """
    file, decoder = source.files[0], json.JSONDecoder()
    line, buffer, begun, ended = 1, "", False, False
    chunks = _text(file)
    while True:
        stripped = buffer.lstrip(" \t\r\n," if begun else " \t\r\n")
        line += buffer.count("\n", 0, len(buffer) - len(stripped))
        buffer = stripped
        if not begun and buffer:
            if buffer[0] != "[":
                raise TraceError(f"{file}:{line}: not a cluster_job_log (it must be a JSON array)")
            begun, buffer = True, buffer[1:]
            continue
        if buffer.startswith("]"):
            return
        problem = "it ends before its last bracket"
        if buffer:
            try:
                element, used = decoder.raw_decode(buffer)
            except json.JSONDecodeError as error:
                problem = error.msg
            except (ValueError, RecursionError):
                raise TraceError(f"{file}:{line}: not JSON that can be read") from None
            else:
                if used < len(buffer) or ended:
                    yield line, element
                    line += buffer.count("\n", 0, used)
                    buffer = buffer[used:]
                    continue
        more = "" if ended or len(buffer) > _LONGEST else next(chunks, "")
        ended = not more
        if ended:
            raise TraceError(f"{file}:{line}: not JSON ({problem})")
        buffer += more


def _text(file: Source) -> Iterator[str]:
    decode = codecs.getincrementaldecoder("utf-8-sig")()
    with file.open_binary() as stream:
        try:
            while data := stream.read(_CHUNK):
                yield decode.decode(data)
        except UnicodeDecodeError:
            raise TraceError(f"{file}:1: not UTF-8 text") from None

"""Grid Engine's accounting (SGE, Son of Grid Engine, Open Cluster Scheduler, Univa): the file
``$SGE_ROOT/CELL/common/accounting``, accounting(5).

A line describes one job, or one task of an array, in at least 43 fields separated by colons. Times
are in epoch seconds, or milliseconds in Univa's later versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import nan

from dagsim.traces.batch import BatchJob, BatchReader
from dagsim.traces.fields import count, finite_number, is_number
from dagsim.traces.report import OnlyInText, ReadReport
from dagsim.traces.source import Source
from dagsim.traces.times import duration_s

_QUEUE, _HOST, _OWNER, _NUMBER, _ACCOUNT, _SUBMIT, _START, _END = 0, 1, 3, 5, 6, 8, 9, 10
_PROJECT, _ENVIRONMENT, _SLOTS, _TASK, _CATEGORY, _SLAVE = 31, 33, 34, 35, 39, 41
_LEAST = 42
_MILLISECONDS = 1e11
_RESOURCES = re.compile(r"-l\s+(\S+)")
_GPUS = re.compile(
    r"(?i).*gpu(?!.*(mem|ram|util|type|model|arch|cc)).*|cuda|nvidia|(tesla|nvidia|rtx|gtx)_?\w+|[avhpkltb]\d{2,3}s?"
)
"""Names that sites give to the complex for GPUs; each site chooses its own."""
_TASK_ID = re.compile(r"NONE|[0-9]+\.\S*|")
_ON_ONE_NODE = re.compile(r"smp|shm|thread|openmp|omp|serial|mt\b|onenode|single", re.IGNORECASE)


class GridEngine(BatchReader):
    """Builds one gang per job. A serial job, or a job in a parallel environment whose name implies
    a single node, has one instance with all slots. Any other job has one instance per slot, because
    accounting does not state the nodes.
    """

    name = "gridengine"
    summary = "Grid Engine's accounting (SGE, Univa): $SGE_ROOT/CELL/common/accounting"
    demand = "a core per slot, on one node if the name of its parallel environment says so (smp, thread, shm, omp); "
    demand += "GPUs of its category (-l gpu=N) in all"

    def recognises(self, source: Source) -> bool:
        lines = [line for line in source.head(24) if len(line) > 1 and not line.startswith("#")]
        return bool(lines) and all(_is_record(line) for line in lines[:3])

    def records(self, source: Source, report: ReadReport) -> Iterator[tuple[int, list[str]]]:
        for place, line in source.lines():
            if len(line) <= 1 or line.startswith("#"):
                continue
            fields = _fields(line)
            if len(fields) >= _LEAST and fields[_SLAVE] not in ("NONE", ""):
                report.rows += 1
                report.skip("of slave tasks")
                continue
            yield place, fields

    def job(self, record: list[str]) -> BatchJob:
        if len(record) < _LEAST:
            return BatchJob("?", 0.0, fault="with too few fields")
        submit_s, start_s, end_s = (_seconds(record[at]) for at in (_SUBMIT, _START, _END))
        slots = count(record[_SLOTS], "slots", 1 if start_s else 0)  # a job that never began has 0 slots
        category = record[_CATEGORY]
        asked = dict(pair.partition("=")[::2] for listed in _RESOURCES.findall(category) for pair in listed.split(","))
        stated = [number for name, number in asked.items() if _GPUS.fullmatch(name)]
        gpus = next((count(number, "gpus", 0) for number in stated if number.isdecimal()), 0)
        together = slots == 1 or record[_ENVIRONMENT] in ("", "NONE") or _ON_ONE_NODE.search(record[_ENVIRONMENT])
        pieces = 1 if together or not slots else gpus or slots
        limit = asked.get("h_rt") or asked.get("s_rt") or ""
        task = record[_TASK]
        return BatchJob(
            record[_NUMBER] + (f".{task}" if task not in ("0", "undefined", "NONE", "") else ""),
            submit_s,
            start_s or nan,
            end_s if start_s else nan,
            limit_s=(duration_s(limit, "h_rt") or nan) if ":" in limit else float(limit) if limit.isdecimal() else nan,
            pieces=pieces,
            gpus=gpus / pieces,
            cpus=slots / pieces,
            user=record[_OWNER],
            account=next(
                (name for name in (record[_PROJECT], record[_ACCOUNT]) if name not in ("NONE", "sge", "")), ""
            ),
            partition=record[_QUEUE],
            nodes=record[_HOST] if pieces == 1 else "",
            fault="" if submit_s else "without a submission time",
            remark=OnlyInText("whose GPUs are stated only in text, the category")
            if gpus
            else OnlyInText("whose category asks for a GPU without a number (none counted)")
            if any(number.upper() in ("", "TRUE", "1.0") for number in stated)
            else "",
        )


def _fields(line: str) -> list[str]:
    """Split a record at its colons. The category may contain colons itself (``-l h_rt=01:00:00``).
    The category ends before a number, the task id of a slave (or ``NONE``) and another number."""
    fields = line.split(":")
    for end in range(_CATEGORY + 1, len(fields) - 2):
        if is_number(fields[end]) and is_number(fields[end + 2]) and _TASK_ID.fullmatch(fields[end + 1]):
            return [*fields[:_CATEGORY], ":".join(fields[_CATEGORY:end]), *fields[end:]]
    return fields


def _is_record(line: str) -> bool:
    fields = _fields(line)
    numbers = (_NUMBER, _SUBMIT, _START, _END, _SLOTS)
    return len(fields) >= _LEAST and all(fields[at].strip().isdecimal() for at in numbers)


def _seconds(text: str) -> float:
    seconds = finite_number(text, "time")
    return seconds / 1000 if seconds >= _MILLISECONDS else seconds

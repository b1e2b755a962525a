"""Gavel (OSDI 2020) and Shockwave (NSDI 2023) ``.trace`` files: one job per line, tab-separated,
without a header.

- 7 fields: ``job_type, command, num_steps_arg, needs_data_dir, total_steps, arrival, scale_factor``
- 10 fields (physical clusters): ``job_type, command, working_directory, num_steps_arg,
  needs_data_dir, total_steps, scale_factor, priority_weight, SLO, arrival``
- 12 fields (Shockwave): ``mode`` after the scale factor, ``duration`` before the arrival

Rows are sorted by arrival, externally beyond 262,144 rows (see ``gather``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dagsim.model import Job, Task
from dagsim.model.gpu import canonical
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rowwise import RowReader
from dagsim.traces.source import Row, Source
from dagsim.traces.workflow import read_json, value

__all__ = ["GavelTrace"]

# Indices in a layout of steps, arrival, scale factor, weight, SLO and duration.
_LAYOUTS: dict[int, tuple[int, int, int, int | None, int | None, int | None]] = {
    7: (4, 5, 6, None, None, None),
    10: (5, 9, 6, 7, 8, None),
    12: (5, 11, 6, 8, 9, 10),
}
_TABLES = ("*throughputs.json", "*throughputs.json.gz")
_BATCH = re.compile(r"(.*?) ?\(batch size (\d{1,9})\)")
_GPUS = ("v100", "p100", "k80")
"""GPU types of Gavel's tables; the first is the reference."""

_Speeds = Mapping[tuple[str, int], Mapping[str, float]]
"""Steps per second by GPU type, for a job type at a scale factor."""


class GavelTrace(Reader):
    """One gang of ``scale_factor`` single GPUs per job.

    With a table ``*throughputs.json`` beside the trace, work is seconds on a V100, and ``speeds``
    are those of every type in the table. Without one, work is Shockwave's duration, or else the
    number of steps, at one step per second.
    """

    name = "gavel"
    summary = "Gavel and Shockwave .trace: training jobs as models, steps and GPUs"
    uses = frozenset({"floor_s"})

    def recognises(self, source: Source) -> bool:
        fields = source.head(1)[0].split("\t")
        if len(fields) not in _LAYOUTS:
            return False
        steps, arrival, scale, *_ = _LAYOUTS[len(fields)]
        return all(_is_number(fields[place]) for place in (steps, arrival, scale))

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        speeds = _speeds(source)
        reader = RowReader(source, report, 0, 1, lambda row, where: _job(row, speeds, options, report, where))
        return reader.jobs(_rows(source, report))

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        tables = _beside(source)
        if tables:
            work = f"steps / the V100's steps per second in {tables[0].name}, other types by the same table"
        else:
            work = "Shockwave's duration, else one step per second (no *throughputs.json beside the trace)"
        return {"work": work, "gang": "the GPUs of a job start together, on any nodes"}


def _rows(source: Source, report: ReadReport) -> Iterator[Row]:
    """Line, arrival, job type, steps, scale factor, weight, SLO and duration of every line."""
    for place, line in source.lines():
        fields = line.rstrip("\r").split("\t")
        if not line.strip():
            continue
        report.rows += 1
        if len(fields) not in _LAYOUTS:
            report.drop("with a wrong number of fields", source.where(place), detail=f"{len(fields)}")
            continue
        steps, arrival, scale, *others = _LAYOUTS[len(fields)]
        more = ["" if other is None else fields[other] for other in others]
        id = f"job {source.where(place).rpartition(':')[2]}"
        if len(source.files) > 1:
            id = f"{source.where(place)} {id}"
        yield place, [id, fields[arrival], fields[0], fields[steps], fields[scale], *more]


def _job(row: list[str], speeds: _Speeds, options: TraceOptions, report: ReadReport, where: str) -> Job:
    """Job of a line.

    Raises:
        Dirty: The line is unusable.
        ModelError: The job is invalid.
    """
    id, arrival, job_type, total_steps, scale_factor, weight, slo, duration = row
    arrived, steps, gpus = (
        finite_number(arrival, "arrival"),
        finite_number(total_steps, "total_steps"),
        count(scale_factor, "scale factor"),
    )
    if arrived < 0 or steps < 0:
        raise Dirty("with a negative arrival or number of steps")
    match = _BATCH.fullmatch(job_type)
    model, batch = (match[1], int(match[2])) if match else (job_type, None)
    rates = speeds.get((job_type, gpus), {})
    reference = next((rates[gpu] for gpu in map(canonical, map(str.upper, _GPUS)) if rates.get(gpu)), None)
    if reference:
        seconds = steps / reference
    else:
        seconds = finite_number(duration, "duration") if duration else steps
        if speeds:
            report.note("of a model or scale factor that the table lacks", where)
    relative = {gpu: rate / reference for gpu, rate in rates.items()} if reference else None
    task = Task("job", max(seconds, options.floor_s), gpus, gpus > 1, model=model, batch=batch, speeds=relative)
    limit = finite_number(slo, "SLO") if slo else -1.0
    return Job.single(
        id,
        task,
        arrived,
        weight=finite_number(weight, "priority_weight") if weight else 1.0,
        deadline_s=arrived + limit * seconds if limit > 0 else None,
    )


def _beside(source: Source) -> tuple[Source, ...]:
    return tuple([file for file in source.beside(*_TABLES).files if file.matches(*_TABLES)])


def _speeds(source: Source) -> _Speeds:
    """The first table beside the trace: ``{gpu: {"('model', scale)": {"null": steps per
    second}}}``.

    Raises:
        TraceError: The file is not JSON.
    """
    tables = _beside(source)
    document = read_json(tables[0]) if tables else {}
    speeds: dict[tuple[str, int], dict[str, float]] = {}
    for gpu in _GPUS:
        rows: Any = document.get(gpu) if isinstance(document, dict) else None
        for key, rates in rows.items() if isinstance(rows, dict) else ():
            match = re.fullmatch(r"\('(.*)', (\d{1,9})\)", key)
            if match is None or not isinstance(rates, dict):
                continue
            try:
                rate = value(rates.get("null"), "rate")
            except Dirty:
                continue
            if rate > 0:
                speeds.setdefault((match[1], int(match[2])), {})[canonical(gpu.upper())] = rate
    return speeds


def _is_number(text: str) -> bool:
    try:
        finite_number(text, "field")
    except Dirty:
        return False
    return True

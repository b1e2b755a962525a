"""Gavel (OSDI 2020) and Shockwave (NSDI 2023) ``.trace`` files: one job per line, tab-separated,
without a header.

- 7 fields: ``job_type, command, num_steps_arg, needs_data_dir, total_steps, arrival, scale_factor``
- 10 fields (physical clusters): ``job_type, command, working_directory, num_steps_arg,
  needs_data_dir, total_steps, scale_factor, priority_weight, SLO, arrival``
- 12 fields (Shockwave): ``mode`` after the scale factor, ``duration`` before the arrival

Jobs are sorted by arrival.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from math import nan
from typing import Any

import numpy as np

from dagsim.model import Demand
from dagsim.model.gpu import canonical
from dagsim.traces.fields import Dirty, finite_number
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, arrivals, row_blocks, single_tasks
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of
from dagsim.traces.workflow import read_json, value
from dagsim.workload.array_tools import combinations, optional
from dagsim.workload.arrays import JobArrays, TaskKind

# Column indices of steps, arrival, scale factor, weight, SLO and duration in each layout.
_LAYOUTS: dict[int, tuple[int, int, int, int | None, int | None, int | None]] = {
    7: (4, 5, 6, None, None, None),
    10: (5, 9, 6, 7, 8, None),
    12: (5, 11, 6, 8, 9, 10),
}
_COLUMNS = ("id", "arrival", "job_type", "total_steps", "scale_factor", "priority_weight", "SLO", "duration")
_JOB, _ARRIVAL, _TYPE, _STEPS, _SCALE, _WEIGHT, _SLO, _DURATION = range(len(_COLUMNS))
_NUMBERS = (_ARRIVAL, _STEPS, _SCALE, _WEIGHT, _SLO, _DURATION)
_TABLES = ("*throughputs.json", "*throughputs.json.gz")
_BATCH = re.compile(r"(.*?) ?\(batch size (\d{1,9})\)")
_GPUS = ("v100", "p100", "k80")
"""GPU types in Gavel's tables; the first is the reference."""

_Speeds = Mapping[tuple[str, float], Mapping[str, float]]
"""Steps per second by GPU type, for a job type at a scale factor."""


class GavelTrace(Reader):
    """Builds one gang per job, with ``scale_factor`` instances of one GPU each.

    With a table ``*throughputs.json`` next to the trace, work is in seconds on a V100, and
    ``speeds`` covers every type in the table. Without a table, work is the duration that Shockwave
    states. If there is none, every step takes one second.
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

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        jobs, times = partial(_jobs, _speeds(source), options), partial(arrivals, column=_ARRIVAL)
        return row_blocks(partial(_tables, source), times, jobs, report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        tables = _beside(source)
        if tables:
            work = f"steps / the V100's steps per second in {tables[0].name}, other types by the same table"
        else:
            work = "Shockwave's duration, else one step per second (no *throughputs.json beside the trace)"
        answers = {"work": work, "gang": "the GPUs of a job start together, on any nodes"}
        if len(source.head(1)[0].split("\t")) == max(_LAYOUTS):
            answers["batch"] = "the first one throughout, whatever the mode says (Shockwave's jobs may change it)"
        return answers


def _tables(source: Source, report: ReadReport) -> Iterator[Table]:
    return tables_of(source, len(_COLUMNS), _rows(source, report), _NUMBERS)


def _rows(source: Source, report: ReadReport) -> Iterator[NumberedRow]:
    """Yield the fields ``_COLUMNS`` of every line. A job's id is its line number."""
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


def _jobs(speeds: _Speeds, options: TraceOptions, checks: Checks) -> JobArrays:
    """Build one job per line of the trace."""
    table, types = checks.table, checks.table.words(_TYPE)
    arrived, steps = checks.number(_ARRIVAL, "arrival"), checks.number(_STEPS, "total_steps")
    gpus = checks.count(_SCALE, "scale factor")
    checks.drop((arrived < 0) | (steps < 0), ImpossibleTimes("with a negative arrival or number of steps"))
    pair, firsts = combinations((types.place, np.where(checks.usable, gpus, 0)))
    pairs = zip(types.place[firsts].tolist(), gpus[firsts].tolist(), strict=True)
    reference = np.array([_reference(speeds.get((types.words[place], width), {})) for place, width in pairs])[pair]
    unlisted = np.isnan(reference)
    claimed = checks.number(_DURATION, "duration", where=unlisted & ~table.blank(_DURATION))
    seconds = np.where(unlisted, np.where(table.blank(_DURATION), steps, claimed), steps / reference)
    if speeds:
        checks.note(unlisted, "with a model or scale factor that the table lacks")
    limit = checks.number(_SLO, "SLO", -1)
    return single_tasks(
        checks,
        arrived,
        np.where(seconds < options.floor_s, options.floor_s, seconds),
        gpus,
        (types.place, gpus),
        lambda place, width: _kind(types.words[place], width, speeds),
        weight=optional(checks.number(_WEIGHT, "priority_weight", 1), 1.0),
        deadline_s=optional(np.where(limit > 0, arrived + limit * seconds, np.inf), np.inf),
    )


def _kind(job_type: str, width: float, speeds: _Speeds) -> TaskKind:
    """Return the kind of task for a job type at a scale factor."""
    match, rates = _BATCH.fullmatch(job_type), speeds.get((job_type, width), {})
    model, batch = (match[1], int(match[2])) if match else (job_type, None)
    reference = _reference(rates)
    relative = tuple([(gpu, rate / reference) for gpu, rate in rates.items()]) if reference == reference else None
    return TaskKind(Demand(), width > 1, model, batch, relative)


def _reference(rates: Mapping[str, float]) -> float:
    """Return the steps per second on the reference type. If it has no rate, use the next type that
    has one. Return NaN if there are no rates."""
    return next((rates[gpu] for gpu in map(canonical, map(str.upper, _GPUS)) if gpu in rates), nan)


def _beside(source: Source) -> tuple[Source, ...]:
    return tuple([file for file in source.beside(*_TABLES).files if file.matches(*_TABLES)])


def _speeds(source: Source) -> _Speeds:
    """Read the first table next to the trace:
    ``{gpu: {"('model', scale)": {"null": steps per second}}}``.

    Raises:
        TraceError: The file is not JSON.
    """
    tables = _beside(source)
    document = read_json(tables[0]) if tables else {}
    speeds: dict[tuple[str, float], dict[str, float]] = {}
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

"""Job lists of Tiresias (NSDI 2019), Muri (SIGCOMM 2022), Chronus, Pollux (OSDI 2021) and Sia (SOSP 2023).

Tiresias, Chronus: ``job_id, num_gpu, submit_time, iterations, model_name, duration, interval`` in
seconds. Muri adds ``batch_size`` and ``iteration_time`` and counts in milliseconds. Pollux and Sia:
``name, time, application, num_replicas, batch_size``, without durations. The durations follow from
Pollux's measured applications (``elastic/profiles.py``) in a folder ``traces`` next to the list or
its folder. Jobs are sorted by submission.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import ModelError
from dagsim.families.formats import services
from dagsim.model import Demand
from dagsim.traces.chunks import read_tables
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, arrivals, row_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload.array_tools import combinations
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

_LIST = ("job_id", "num_gpu", "submit_time", "duration", "model_name")
_OF_SOME = ("batch_size", "user")
_SIA = ("name", "time", "application", "num_replicas", "batch_size")
_LIST_FORM = csv_form(_LIST, _OF_SOME, numbers=(1, 2, 3, 5), texts=(0, 4, 6), header=True)
_SIA_FORM = csv_form(_SIA, numbers=(1, 3, 4), texts=(0, 2), header=True)


class Tiresias(Reader):
    """Builds one gang per job, with ``num_gpu`` instances of one GPU each, which may be on several
    nodes.
    """

    name = "tiresias"
    summary = "job lists of Tiresias, Muri, Chronus, Pollux and Sia (CSV)"
    uses = frozenset({"floor_s"})

    def recognises(self, source: Source) -> bool:
        header = _header(source)
        return (set(_LIST) <= header and "interval" in header) or set(_SIA) <= header

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        if set(_SIA) <= _header(source):
            form, submitted, jobs = _SIA_FORM, 1, partial(_sia_jobs, options, _profiles(source))
        else:
            form, submitted, jobs = _LIST_FORM, 2, partial(_listed_jobs, options, 0.001 if _is_muri(source) else 1.0)
        return row_blocks(partial(read_tables, source, form), partial(arrivals, column=submitted), jobs, report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        answers = {"gang": "the GPUs of a job start together, on any nodes"}
        if set(_SIA) <= _header(source):
            folder = _profile_folder(source)
            if folder is None:
                answers["work"] = "the list has no durations: 0 s, or floor_s (--floor)"
            else:
                answers["work"] = f"seconds of the requested configuration, alone on 4-GPU nodes, according to {folder}"
        else:
            answers["work"] = "duration, on whichever GPU type ran it (the list does not say)"
            answers["unit"] = "milliseconds (Muri: it has iteration_time)" if _is_muri(source) else "seconds"
        return answers


def _header(source: Source) -> set[str]:
    return {name.strip().lower() for name in source.head(1)[0].split(",")}


def _is_muri(source: Source) -> bool:
    return "iteration_time" in _header(source)


def _listed_jobs(options: TraceOptions, unit: float, checks: Checks) -> JobArrays:
    """Build one job per row of a list from Tiresias, Muri or Chronus, whose times are in units of
    ``unit`` seconds.
    """
    seconds, submitted = checks.number(3, "duration") * unit, checks.number(2, "submit_time") * unit
    return _jobs(options, checks, submitted, seconds, gpus=1, model=4, batch=5, tenant=checks.table.words(6))


def _sia_jobs(options: TraceOptions, profiles: Mapping[str, Any], checks: Checks) -> JobArrays:
    """Build one job per row of Pollux's and Sia's lists."""
    submitted, seconds = checks.number(1, "time"), np.zeros(len(checks.table))
    return _jobs(options, checks, submitted, seconds, gpus=3, model=2, batch=4, profiles=profiles)


def _alone_s(
    checks: Checks, profiles: Mapping[str, Any], models: Labels, gpus: np.ndarray, batches: np.ndarray
) -> np.ndarray:
    """Return how many seconds each row's configuration takes alone. Drop the rows that the profiles
    do not cover.
    """
    alone_s, (combination, firsts) = services.seconds_alone.required(), combinations((models.place, gpus, batches))
    seconds = np.full(len(firsts), np.nan)
    for place, row in enumerate(firsts.tolist()):
        profile = profiles.get(models.words[models.place[row]])
        if profile is not None and gpus[row] >= 1 and batches[row] >= 1:
            with suppress(ModelError):
                seconds[place] = alone_s(profile, int(gpus[row]), int(batches[row]))
    per_row: np.ndarray = seconds[combination]
    checks.drop(np.isnan(per_row), "whose application, GPUs or batch the profiles do not cover")
    per_row[np.isnan(per_row)] = 0.0
    return per_row


def _profiles(source: Source) -> Mapping[str, Any]:
    folder = _profile_folder(source)
    applications: Mapping[str, Any] = {} if folder is None else services.measured_applications(folder)
    return applications


def _profile_folder(source: Source) -> Path | None:
    """Return the nearest folder ``traces`` with measured applications."""
    for folder in (source.path.parent / "traces", source.path.parent.parent / "traces"):
        if any(folder.glob("*placements.csv*")) or any(folder.glob("*/placements.csv*")):
            return folder
    return None


def _jobs(
    options: TraceOptions,
    checks: Checks,
    submitted: np.ndarray,
    seconds: np.ndarray,
    *,
    gpus: int,
    model: int,
    batch: int,
    tenant: Labels | None = None,
    profiles: Mapping[str, Any] | None = None,
) -> JobArrays:
    """Build jobs with these times, or with times from the profiles. ``gpus``, ``model`` and
    ``batch`` are column numbers."""
    checks.drop(submitted < 0, ImpossibleTimes("with a negative submit_time"))
    checks.drop(seconds < 0, ImpossibleTimes("with a negative duration"))
    pieces = checks.count(gpus, "num_gpu")
    there, models = ~checks.table.blank(batch), checks.table.words(model)
    sizes = np.where(there, checks.count(batch, "batch_size", where=there), 0)
    if profiles:
        seconds = _alone_s(checks, profiles, models, pieces, sizes)
    return single_tasks(
        checks,
        submitted,
        np.where(seconds < options.floor_s, options.floor_s, seconds),
        pieces,
        (pieces > 1, models.place, sizes),
        lambda gang, place, size: TaskKind(Demand(), gang, models.words[place] or None, int(size) or None),
        tenant=tenant,
    )

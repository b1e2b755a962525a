"""Job lists derived from the PAI trace: those for the publisher's simulator and for the Hydra
scheduler.

- Simulator (``pai_job_duration_estimate_100K.csv``): a header with at least ``job_id, num_gpu,
  submit_time, duration``, and ``num_inst, num_cpu, user, gpu_type`` if known. Demands are per
  instance, and the instances form a gang.
- Hydra: a header with ``job_name, norm_job_submit_time, ddl`` and a column of seconds per GPU type.
  Each job has one GPU.

Rows are sorted by submission, on disk if there are many.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dagsim.model import Demand
from dagsim.model.gpu import canonical
from dagsim.traces.chunks import read_tables
from dagsim.traces.reader import JobBlock
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, arrivals, row_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload.array_tools import optional
from dagsim.workload.arrays import JobArrays, TaskKind

_SIMULATOR = ("job_id", "num_gpu", "submit_time", "duration")
_SIMULATOR_MORE = ("num_inst", "num_cpu", "user", "gpu_type")
_HYDRA = ("job_name", "norm_job_submit_time", "ddl")
_HYDRA_TYPES = {"A100": "A100-40", "V100": "V100-16", "GTX2080Ti": "RTX-2080Ti"}
_UNEVEN = "jobs that request a fraction above one GPU (rounded up)"
_SIMULATOR_FORM = csv_form(_SIMULATOR, _SIMULATOR_MORE, numbers=(1, 2, 3, 4, 5), texts=(0, 6, 7), header=True)
_HYDRA_FORM = csv_form(
    _HYDRA, tuple(_HYDRA_TYPES), numbers=(1, 2, *range(3, 3 + len(_HYDRA_TYPES))), texts=(0,), header=True
)
_GPU_TYPES = {"V100M32": "V100-32", "MISC": "K80"}


def recognises_pai_list(source: Source) -> bool:
    """Return True if the source is one of these lists, judging by its header."""
    names = _header(source)
    return set(_HYDRA) <= names or (set(_SIMULATOR) <= names and bool(names & {"num_inst", "group_gpu_dur"}))


def pai_list_blocks(source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
    """Yield the jobs in a list in order of submission."""
    if set(_HYDRA) <= _header(source):
        form, time, jobs = _HYDRA_FORM, 1, _hydra_jobs
    else:
        form, time, jobs = _SIMULATOR_FORM, 2, _simulator_jobs
    read = partial(read_tables, source, form)
    return row_blocks(read, lambda table: arrivals(table, time), partial(jobs, options), report, most)


def assumptions(source: Source) -> dict[str, str]:
    """Return the assumptions made about what the lists do not contain."""
    if set(_HYDRA) <= _header(source):
        return {
            "work": "the seconds of the reference GPU (or A100) column, and speeds from the others; one GPU per job",
            "deadline": "ddl, on the clock of the submissions",
        }
    return {
        "work": "duration, in seconds on the GPU type of the row, if it has one",
        "gpu types": "the GPU type of the row, if it has one; MISC (K40m, K80, M60) is modelled as a K80",
    }


def _simulator_jobs(options: TraceOptions, checks: Checks) -> JobArrays:
    """Build one job per row of the simulator's list."""
    table = checks.table
    gpus = checks.number(1, "num_gpu", 0)
    uneven = (gpus > 1) & (gpus != np.floor(gpus))
    checks.note(uneven, _UNEVEN)
    gpus = np.where(uneven, np.ceil(gpus), gpus)
    seconds = checks.number(3, "duration")
    checks.drop(seconds < 0, ImpossibleTimes("with a negative duration"))
    instances = checks.count(4, "num_inst", blank=1)
    cpus = checks.number(5, "num_cpu", 0)
    submitted = checks.number(2, "submit_time")
    types = table.words(7)
    measured = [*("" if kind == "CPU" else _GPU_TYPES.get(kind, kind) for kind in types.words), ""]
    measured_on = np.where(gpus != 0, types.place, len(types.words))
    work = options.all_on_reference(seconds, measured, measured_on)
    return single_tasks(
        checks,
        submitted,
        np.where(work < options.floor_s, options.floor_s, work),
        instances,
        (gpus, cpus, instances > 1, measured_on),
        lambda gpus, cpus, gang, place: TaskKind(
            Demand(gpus, cpus, 0.0, (canonical(measured[place]),) if measured[place] else None), gang
        ),
        tenant=table.words(6),
    )


def _hydra_jobs(options: TraceOptions, checks: Checks) -> JobArrays:
    """Build one job per row of a Hydra list."""
    table, types = checks.table, list(_HYDRA_TYPES.values())
    columns = range(len(_HYDRA), len(_HYDRA) + len(types))
    there = np.array([~table.blank(column) for column in columns]).T
    seconds = np.array(
        [checks.number(column, kind, where=~table.blank(column)) for column, kind in zip(columns, types, strict=True)]
    ).T
    checks.drop(~there.any(axis=1) | ((seconds <= 0) & there).any(axis=1), "without a positive duration")
    deadline = table.numbers(2, np.inf)
    checks.finite(deadline, 2, "ddl", where=deadline != np.inf)
    submitted = checks.number(1, "norm_job_submit_time")
    reference = canonical(options.reference_gpu or "A100")
    measured_on = np.argmax(there, axis=1)
    if reference in types:
        measured_on = np.where(there[:, types.index(reference)], types.index(reference), measured_on)
    work = seconds[np.arange(len(table)), measured_on]
    return single_tasks(
        checks,
        submitted,
        np.where(work < options.floor_s, options.floor_s, work),
        np.ones(len(table)),
        [work, *seconds.T],
        partial(_hydra_kind, types),
        deadline_s=optional(deadline, np.inf),
    )


def _hydra_kind(types: list[str], work: float, *seconds: float) -> TaskKind:
    speeds = {kind: work / duration for kind, duration in zip(types, seconds, strict=True) if duration == duration}
    return TaskKind(Demand(gpu_types=tuple(speeds)), speeds=tuple(speeds.items()))


def _header(source: Source) -> set[str]:
    return {name.strip().strip('"') for name in source.head(1)[0].split(",")}

"""Job lists derived from the PAI trace: the publisher's simulator's, and those of the Hydra scheduler.

Simulator (``pai_job_duration_estimate_100K.csv``): a header with at least ``job_id, num_gpu, submit_time, duration``,
and ``num_inst, num_cpu, user, gpu_type`` if they are known; demands are per instance, instances are a gang. Hydra: a
header with ``job_name, norm_job_submit_time, ddl`` and a column of seconds per GPU type; one GPU per job. Rows are
sorted by submission, externally where they are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, inf

import numpy as np

from dagsim.model import Job, Task
from dagsim.model.gpu import canonical
from dagsim.traces.columnar import kinds_of_rows
from dagsim.traces.fields import Dirty, are_counts, count, finite_number
from dagsim.traces.options import TraceOptions
from dagsim.traces.report import ReadReport
from dagsim.traces.rowwise import PlainRows, RowReader
from dagsim.traces.source import Source
from dagsim.traces.text_columns import TextTable, csv_table
from dagsim.workload.arrays import JobArrays, TaskKind

__all__ = ["assumptions", "pai_list_arrays", "read_pai_list", "recognises_pai_list"]

_SIMULATOR = ("job_id", "num_gpu", "submit_time", "duration")
_SIMULATOR_MORE = ("num_inst", "num_cpu", "user", "gpu_type")
_HYDRA = ("job_name", "norm_job_submit_time", "ddl")
_HYDRA_TYPES = {"A100": "A100-40", "V100": "V100-16", "GTX2080Ti": "RTX-2080Ti"}
_UNEVEN = "jobs that ask for a fraction above one GPU (rounded up)"
_GPU_TYPES = {"V100M32": "V100-32", "MISC": "K80"}


def recognises_pai_list(source: Source) -> bool:
    """True if the source is one of these lists, by its header."""
    names = _header(source)
    return set(_HYDRA) <= names or (set(_SIMULATOR) <= names and bool(names & {"num_inst", "group_gpu_dur"}))


def read_pai_list(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
    """The jobs of a list in order of submission."""
    if set(_HYDRA) <= _header(source):
        rows = source.rows(report, _HYDRA, tuple(_HYDRA_TYPES), header=True)
        return RowReader(source, report, 0, 1, lambda row, where: _hydra_job(row, options)).jobs(rows)
    return _simulated(source, options, report).jobs(source.rows(report, _SIMULATOR, _SIMULATOR_MORE, header=True))


def pai_list_arrays(source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> JobArrays | None:
    """The first ``most`` jobs in columns; nothing for lists of Hydra, whose jobs each have speeds of their own."""
    if set(_HYDRA) <= _header(source):
        return None
    table = csv_table(source, _SIMULATOR, _SIMULATOR_MORE, (1, 2, 3, 4, 5), (0, 6, 7))
    return None if table is None else _simulated(source, options, report).arrays(table, _plain(table, options), most)


def _simulated(source: Source, options: TraceOptions, report: ReadReport) -> RowReader:
    return RowReader(source, report, 0, 2, lambda row, where: _simulator_job(row, options, report, where))


def assumptions(source: Source) -> dict[str, str]:
    """Assumptions about what the lists leave open."""
    if set(_HYDRA) <= _header(source):
        return {
            "work": "the seconds of the reference GPU (or A100) column, and speeds from the others; one GPU per job",
            "deadline": "ddl, on the clock of the submissions",
        }
    return {
        "work": "duration, in seconds on the GPU type of the row, if it has one",
        "gpu types": "the GPU type of the row, if it has one; MISC (K40m, K80, M60) is taken for a K80",
    }


def _simulator_job(row: Sequence[str], options: TraceOptions, report: ReadReport, where: str) -> Job:
    name, num_gpu, submit_time, duration, num_inst, num_cpu, user, kind = row
    gpus = finite_number(num_gpu or "0", "num_gpu")
    if 1 < gpus < inf and gpus != int(gpus):
        report.note(_UNEVEN, where)
        gpus = float(ceil(gpus))
    seconds = finite_number(duration, "duration")
    if seconds < 0:
        raise Dirty("with a negative duration")
    measured_on = _GPU_TYPES.get(kind, kind) if gpus and kind != "CPU" else ""
    instances = count(num_inst or "1", "num_inst")
    task = Task(
        "job",
        max(options.on_reference(seconds, measured_on), options.floor_s),
        instances,
        instances > 1,
        gpus,
        finite_number(num_cpu or "0", "num_cpu"),
        gpu_types=(canonical(measured_on),) if measured_on else None,
    )
    return Job.single(name, task, finite_number(submit_time, "submit_time"), tenant=user)


def _plain(table: TextTable, options: TraceOptions) -> PlainRows:
    """The jobs that ``_simulator_job`` makes, of all rows at once."""
    gpus, instances, cpus = (table.numbers(place, blank) for place, blank in ((1, 0), (4, 1), (5, 0)))
    submitted, duration = table.numbers(2), table.numbers(3)
    plain = np.isfinite(gpus) & (gpus >= 0) & (cpus >= 0) & (cpus < inf) & are_counts(instances)
    plain &= (duration >= 0) & (duration < inf) & (submitted >= 0) & (submitted < inf)
    uneven = (gpus > 1) & (gpus != np.floor(gpus))
    gpus = np.where(uneven, np.ceil(gpus), gpus)
    word, words = table.words(7)
    measured = ["" if kind == "CPU" else _GPU_TYPES.get(kind, kind) for kind in words]
    measured_on = np.where(gpus > 0, word, len(words) - 1)
    work = options.all_on_reference(duration, measured, measured_on)
    kind, kinds = kinds_of_rows(
        plain,
        (gpus, cpus, instances > 1, measured_on),
        lambda gpus, cpus, gang, place: TaskKind(
            Task(
                "job", 0.0, 1, gang, gpus, cpus, gpu_types=(canonical(measured[place]),) if measured[place] else None
            ).demand,
            gang,
        ),
    )
    jobs = JobArrays.of_single_tasks(
        table.texts(0),
        submitted,
        "job",
        work=np.where(work < options.floor_s, options.floor_s, work),
        instances=np.where(plain, instances, 1).astype(np.int64),
        kind=kind,
        kinds=kinds,
        tenant=table.words(6),
    )
    return PlainRows(jobs, plain, ((_UNEVEN, uneven),))


def _hydra_job(row: Sequence[str], options: TraceOptions) -> Job:
    name, submit_time, ddl, *texts = row
    seconds = {kind: finite_number(text, kind) for kind, text in zip(_HYDRA_TYPES.values(), texts, strict=True) if text}
    if not seconds or min(seconds.values()) <= 0:
        raise Dirty("without a positive duration")
    reference = canonical(options.reference_gpu or "A100")
    work = seconds.get(reference, next(iter(seconds.values())))
    speeds = {kind: work / duration for kind, duration in seconds.items()}
    task = Task("job", max(work, options.floor_s), gpu_types=tuple(seconds), speeds=speeds)
    deadline = None if ddl in ("", "inf") else finite_number(ddl, "ddl")
    return Job.single(name, task, finite_number(submit_time, "norm_job_submit_time"), deadline_s=deadline)


def _header(source: Source) -> set[str]:
    return {name.strip().strip('"') for name in source.head(1)[0].split(",")}

"""Job lists derived from the PAI trace: the publisher's simulator's, and those of the Hydra scheduler.

Simulator (``pai_job_duration_estimate_100K.csv``): a header with at least ``job_id, num_gpu, submit_time, duration``,
and ``num_inst, num_cpu, user, gpu_type`` if they are known; demands are per instance, instances are a gang. Hydra: a
header with ``job_name, norm_job_submit_time, ddl`` and a column of seconds per GPU type; one GPU per job. Rows are
sorted by submission, externally where they are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, inf

from dagsim.model import Job, Task
from dagsim.model.gpu import canonical
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.options import TraceOptions
from dagsim.traces.report import ReadReport
from dagsim.traces.rowwise import jobs_by_row
from dagsim.traces.source import Source

__all__ = ["assumptions", "read_pai_list", "recognises_pai_list"]

_SIMULATOR = ("job_id", "num_gpu", "submit_time", "duration")
_SIMULATOR_MORE = ("num_inst", "num_cpu", "user", "gpu_type")
_HYDRA = ("job_name", "norm_job_submit_time", "ddl")
_HYDRA_TYPES = {"A100": "A100-40", "V100": "V100-16", "GTX2080Ti": "RTX-2080Ti"}
_GPU_TYPES = {"V100M32": "V100-32", "MISC": "K80"}


def recognises_pai_list(source: Source) -> bool:
    """True if the source is one of these lists, by its header."""
    names = _header(source)
    return set(_HYDRA) <= names or (set(_SIMULATOR) <= names and bool(names & {"num_inst", "group_gpu_dur"}))


def read_pai_list(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
    """The jobs of a list in order of submission."""
    if set(_HYDRA) <= _header(source):
        rows = source.rows(report, _HYDRA, tuple(_HYDRA_TYPES), header=True)
        return jobs_by_row(rows, source, report, id=0, time=1, make=lambda row, where: _hydra_job(row, options))
    rows = source.rows(report, _SIMULATOR, _SIMULATOR_MORE, header=True)
    return jobs_by_row(
        rows, source, report, id=0, time=2, make=lambda row, where: _simulator_job(row, options, report, where)
    )


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
        report.note("jobs that ask for a fraction above one GPU (rounded up)", where)
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

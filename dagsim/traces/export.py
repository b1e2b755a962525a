"""Write jobs and machines in the formats of other simulators.

Each format can only represent certain jobs. A job is rejected if another simulator would treat it
differently. Examples are a DAG in a format without dependencies, and a job with a fraction of a
GPU. The error names the job. Attributes that only dagsim's own format has are left out, and the
summary counts them.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.errors import WorkloadError
from dagsim.family import added_names, required
from dagsim.files import replaced
from dagsim.model import Cluster, Job, Task
from dagsim.model.arithmetic import whole_sum
from dagsim.model.job_fields import JOB_FIELDS
from dagsim.text import count_of
from dagsim.traces.arrow import import_pyarrow


class Written(NamedTuple):
    """The files that an export wrote. It also counts, for each attribute that the format cannot
    represent, the jobs that have it.
    """

    files: tuple[Path, ...]
    left_out: dict[str, int]

    def __str__(self) -> str:
        text = f"wrote {', '.join(map(str, self.files))}"
        if self.left_out:
            parts = ", ".join(f"{name} of {count_of(count, 'job')}" for name, count in sorted(self.left_out.items()))
            text += f"; left out: {parts}"
        return text


class Writer(NamedTuple):
    """The writer for one format."""

    write: Callable[[Path, Iterable[Job], Cluster | None], tuple[Path, ...]]
    """A function that writes the jobs and returns the files."""
    holds: frozenset[str] = frozenset()
    """The attributes that the format supports besides work and demands."""


def formats() -> tuple[str, ...]:
    """Return the names of the formats that ``export`` writes: dagsim's own, and those from
    families."""
    return tuple(sorted({*_WRITERS, *added_names("writers")}))


def export(format: str, path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> Written:
    """Write ``jobs``, in order of arrival, to ``path`` in one of ``formats()``. ``cluster`` is the
    cluster on which the jobs ran. Without it, the exported platform is just large enough for the
    widest job.

    Raises:
        WorkloadError: The format cannot represent a job (the message names it), or a file cannot be
            written.
        UnknownName: There is no such format.
    """
    write, holds = _WRITERS.get(format) or required(format, "writers")
    left_out: Counter[str] = Counter()
    try:
        files = write(path, _noticed(jobs, holds, left_out), cluster)
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be written ({error})") from None
    return Written(files, dict(left_out))


def _noticed(jobs: Iterable[Job], holds: frozenset[str], left_out: Counter[str]) -> Iterator[Job]:
    """Yield the jobs. For each attribute that is not in ``holds``, count the jobs that have it."""
    for job in jobs:
        left_out.update(name for name, default in _ATTRIBUTES if name not in holds and getattr(job, name) != default)
        tasks = job.tasks
        lost = {
            "cpus": any(task.gpus and task.cpus for task in tasks),
            "estimate": any(task.estimate is not None for task in tasks),
            "gpu_types": any(task.gpu_types for task in tasks),
            "memory_gb": any(task.memory_gb for task in tasks),
        }
        left_out.update(name for name, is_lost in lost.items() if is_lost and name not in holds)
        if "bytes" not in holds and any(edge.bytes for edge in job.graph.edges):
            left_out["bytes"] += 1
        yield job


_ATTRIBUTES = tuple([(field.name, field.default) for field in fields(Job) if field.default is not MISSING])
"""The attributes of a job that have a default value, each with this value."""


def processors(job: Job, task: Task, format: str) -> int:
    """Return the number of GPUs that an instance needs, or the number of cores if it needs no
    GPUs.
    """
    if task.speeds or task.model:
        raise refused(job, format, f"the duration of task {task.name!r} depends on the GPU type")
    amount = task.gpus or task.cpus
    if amount < 1 or amount != int(amount):
        raise refused(
            job,
            format,
            f"task {task.name!r} needs {amount:g} processors, but the format supports only whole processors",
        )
    return int(amount)


def single_task(job: Job, format: str) -> tuple[Task, int]:
    """Return the only task of a job and the number of its processors."""
    if len(job.tasks) > 1:
        raise refused(job, format, f"the job has {len(job.tasks)} tasks, but the format does not support dependencies")
    task = job.tasks[0]
    if task.instances > 1 and not task.gang:
        raise refused(
            job,
            format,
            "the instances of the task start independently, but the format starts all processors of a job together",
        )
    return task, task.instances * processors(job, task, format)


def refused(job: Job, format: str, reason: str) -> WorkloadError:
    """Return the error for a job that the format cannot represent."""
    return WorkloadError(f"job {job.id!r} cannot be written as {format}: {reason}")


def machine_size(cluster: Cluster | None, widest: int) -> int:
    """Return the number of processors of the cluster: its GPUs, or its cores if it has no GPUs."""
    if cluster is None:
        return widest
    return int(whole_sum(node.gpus for node in cluster.nodes) or sum(int(node.cpus) for node in cluster.nodes))


def number_text(value: float) -> str:
    """Return a number as text that reads back exactly, without a decimal point if it is whole."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def write_table(
    head: Sequence[str],
    rows: Callable[[Iterable[Job]], Iterator[list[Any]]],
    delimiter: str,
    path: Path,
    jobs: Iterable[Job],
    cluster: Cluster | None,
) -> tuple[Path, ...]:
    """Write a table with the columns ``head``. ``rows`` yields the rows for the jobs."""
    with replaced(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        table.writerow(head)
        for values in rows(jobs):
            table.writerow([_cell(value) for value in values])
    return (path,)


_BATCH = 1 << 16
"""Maximum number of rows in an Arrow or Parquet batch."""

_PLAIN = ("id", "arrival_s", "gpus", "duration_s", "gpu_type", "instances", "gang", "cpus", "memory_gb", "estimate_s")
_PLAIN_JOB = tuple(field.name for field in JOB_FIELDS if field.in_tables)
_PLAIN_HEAD = (*_PLAIN, "model", "batch", *_PLAIN_JOB, "start_s", "task", "parents")
_PLAIN_TEXTS = {"id", "gpu_type", "gang", "model", "task", "parents"} | {
    field.name for field in JOB_FIELDS if field.is_text and field.in_tables
}


def _plain_rows(jobs: Iterable[Job]) -> Iterator[list[Any]]:
    """Yield a row for each task, in the order of ``_PLAIN_HEAD``."""
    for job in jobs:
        names = [task.name for task in job.tasks]
        if len(names) > 1 and any(set("|") & set(name) for name in names):
            raise refused(job, "plain", "the name of a task contains |, which separates parents")
        for task, parents in zip(job.tasks, job.graph.parents, strict=True):
            if task.speeds:
                raise refused(job, "plain", f"task {task.name!r} has different speeds on different GPU types")
            values = [job.id, job.arrival_s, task.gpus, task.work, "|".join(task.gpu_types or ()), task.instances]
            values += ["yes" if task.gang else "no", task.cpus, task.memory_gb, task.estimate]
            values += [task.model, task.batch, *(getattr(job, name) for name in _PLAIN_JOB), job.observed_start_s]
            values += [task.name, "|".join(names[parent] for parent in parents)] if len(names) > 1 else ["", ""]
            yield values


def _write_columns(
    kind: str, module: str, writer: str, path: Path, jobs: Iterable[Job], cluster: Cluster | None
) -> tuple[Path, ...]:
    """Write the plain table with ``writer`` from a pyarrow module."""
    purpose = f"{path}: writing {kind} files"
    arrow = import_pyarrow(purpose, error=WorkloadError)
    open_file = getattr(import_pyarrow(purpose, module, WorkloadError), writer)
    with replaced(path) as unfinished, open_file(str(unfinished), _arrow_schema(arrow)) as file:
        for batch in _arrow_batches(arrow, jobs):
            file.write_batch(batch)
    return (path,)


def _arrow_schema(arrow: Any) -> Any:
    return arrow.schema([(name, arrow.string() if name in _PLAIN_TEXTS else arrow.float64()) for name in _PLAIN_HEAD])


def _arrow_batches(arrow: Any, jobs: Iterable[Job]) -> Iterator[Any]:
    """Yield the rows of the plain table in batches, with null for empty fields."""
    rows = _plain_rows(jobs)
    while some := list(islice(rows, _BATCH)):
        columns = [
            [None if value == "" or value is None or (name not in _PLAIN_TEXTS and not isfinite(value)) else value
             for value in column]
            for name, column in zip(_PLAIN_HEAD, zip(*some, strict=True), strict=True)
        ]  # fmt: skip
        yield arrow.record_batch(columns, schema=_arrow_schema(arrow))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return number_text(value) if isfinite(value) else ""
    return "" if value is None else str(value)


_PLAIN_HOLDS = frozenset({"arrival_s", "estimate", "cpus", "memory_gb", "gpu_types", "observed_start_s", *_PLAIN_JOB})
_WRITERS = {
    "plain": Writer(partial(write_table, _PLAIN_HEAD, _plain_rows, ","), _PLAIN_HOLDS),
    "plain-arrow": Writer(partial(_write_columns, "Arrow", "pyarrow.ipc", "new_file"), _PLAIN_HOLDS),
    "plain-parquet": Writer(partial(_write_columns, "Parquet", "pyarrow.parquet", "ParquetWriter"), _PLAIN_HOLDS),
}

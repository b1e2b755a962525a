"""A trace of any format, rewritten as dagsim's own JSON Lines, or as a Parquet table for analysis.

The table has one row per task, with its job's columns repeated. The columns are the fields of
``dagsim.model.Job`` and ``Task`` under their own names, except for ``job_id``, ``task`` (the task's
place in its job), and ``parents``: the places of the tasks it waits for, with ``parent_bytes`` it
reads of each. Rows are in order of arrival; the rows of a job are together. The options that the
trace was read with are in the file's metadata, as JSON under ``dagsim``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from dagsim.errors import ConfigError, WorkloadError
from dagsim.files import replaced
from dagsim.model import Job
from dagsim.traces import ReadReport, open_trace
from dagsim.workload.jsonl import write_jobs

__all__ = ["ENDINGS", "convert", "write_parquet"]


ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
"""What a converted trace may be called."""


def convert(
    path: Path,
    to: Path,
    format: str | None = None,
    counted: Callable[[Iterable[Job]], Iterator[Job]] = iter,
) -> ReadReport:
    """Write the jobs of the trace at ``path`` to ``to``; what was read and dropped. ``to`` appears
    whole or not at all.

    The jobs are read, passed through ``counted`` and written one after the other.

    Raises:
        ConfigError: ``to`` is called otherwise than ``ENDINGS`` say, or Parquet is asked for without pyarrow.
        TraceError: The trace cannot be read.
        WorkloadError: ``to`` cannot be written.
    """
    if not to.name.endswith(ENDINGS):
        raise ConfigError(f"{to}: should end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    trace = open_trace(path, format)
    write = write_parquet if to.suffix == ".parquet" else write_jobs
    write(to, counted(trace.jobs()), {"format": trace.format, "assumptions": trace.assumptions})
    return trace.report


_GROUP = 1 << 16
"""Rows of a row group: what is held in memory at once."""


def write_parquet(path: Path, jobs: Iterable[Job], meta: Mapping[str, Any]) -> None:
    """Write ``jobs`` to ``path``, which appears whole or not at all. ``jobs`` is read once, as the
    groups are written.

    Raises:
        ConfigError: pyarrow is not installed.
        WorkloadError: The file cannot be written, or a number of the jobs is none of Parquet.
    """
    arrow, parquet = _pyarrow()
    schema = _schema(arrow)
    try:
        with replaced(path) as partial, parquet.ParquetWriter(partial, schema, compression="zstd") as file:
            rows = _rows(jobs)
            while group := list(islice(rows, _GROUP)):
                file.write_table(arrow.table([list(column) for column in zip(*group, strict=True)], schema=schema))
            file.add_key_value_metadata({"dagsim": json.dumps(dict(meta))})
    except (OSError, OverflowError, arrow.ArrowInvalid) as error:
        raise WorkloadError(f"{path}: cannot be written ({error})") from None


def _rows(jobs: Iterable[Job]) -> Iterator[tuple[Any, ...]]:
    for job in jobs:
        of_job = (job.id, job.arrival_s, job.priority, job.tenant, job.deadline_s, job.weight)
        size = {(edge.parent, edge.child): edge.bytes for edge in job.graph.edges}
        for place, (task, parents) in enumerate(zip(job.tasks, job.graph.parents, strict=True)):
            yield (
                *of_job,
                place,
                task.name,
                task.work,
                task.instances,
                task.gang,
                task.gpus,
                task.cpus,
                task.memory_gb,
                task.gpu_types,
                None if task.speeds is None else list(task.speeds.items()),
                task.model,
                task.batch,
                task.estimate,
                parents,
                [size[parent, place] for parent in parents],
            )


def _schema(arrow: Any) -> Any:
    number, whole, text = arrow.float64(), arrow.int64(), arrow.string()
    return arrow.schema(
        [
            ("job_id", text),
            ("arrival_s", number),
            ("priority", number),
            ("tenant", text),
            ("deadline_s", number),
            ("weight", number),
            ("task", arrow.int32()),
            ("name", text),
            ("work", number),
            ("instances", whole),
            ("gang", arrow.bool_()),
            ("gpus", number),
            ("cpus", number),
            ("memory_gb", number),
            ("gpu_types", arrow.list_(text)),
            ("speeds", arrow.map_(text, number)),
            ("model", text),
            ("batch", whole),
            ("estimate", number),
            ("parents", arrow.list_(arrow.int32())),
            ("parent_bytes", arrow.list_(number)),
        ]
    )


def _pyarrow() -> tuple[Any, Any]:
    """The package and its module for Parquet."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError("writing Parquet needs pyarrow: pip install -e '.[parquet]' in the checkout") from None

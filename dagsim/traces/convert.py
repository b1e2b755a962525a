"""Convert a trace in any format to dagsim's own JSON Lines, to a Parquet table for analysis, or to
one of the formats in ``dagsim.traces.export``.

The table has one row per task, with the columns of its job repeated. Rows are in order of arrival,
and the rows of a job are adjacent. The columns are the fields of ``dagsim.model.Job`` and ``Task``
under their own names, plus:

- ``job_id``
- ``task``: index of the task in its job
- ``parents``: indices of the tasks that it waits for
- ``parent_bytes``: bytes that it reads from each of them

The file's metadata has an entry ``dagsim``, which contains the options for reading the trace as
JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.errors import ConfigError, UnknownName, WorkloadError
from dagsim.family import refuse_missing
from dagsim.files import replaced
from dagsim.model import Job, Task
from dagsim.spelling import nearest
from dagsim.traces import ReadReport, Trace, open_trace
from dagsim.traces.arrow import import_pyarrow
from dagsim.traces.export import Written, export, formats
from dagsim.workload.records import read_meta, write_jobs

ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
"""The file name endings that determine the format of a converted trace."""


def targets() -> tuple[str, ...]:
    """Return the names of the formats to which a trace can be converted."""
    return "jsonl", "parquet", *formats()


def convert(
    path: Path,
    to: Path,
    format: str | None = None,
    counted: Callable[[Iterable[Job]], Iterator[Job]] = iter,
    to_format: str | None = None,
    check: Callable[[ReadReport], None] = lambda report: None,
) -> tuple[ReadReport, Written]:
    """Write the jobs in the trace at ``path`` to ``to``, in the format given by its ending or by
    ``to_format``. Return a report on the rows read and dropped, and a report on what was written.
    Files are created atomically.

    The jobs are read, passed through ``counted``, and written one at a time. After the last job,
    ``check`` is called with the report. If ``check`` raises an error, no file is created.

    Raises:
        ConfigError: The name ``to`` does not end in one of ``ENDINGS``, or it ends in ``.parquet``
            and pyarrow is not installed.
        UnknownName: There is no format ``to_format``.
        TraceError: The trace cannot be read.
        WorkloadError: ``to`` cannot be written, or the format cannot represent a job.
    """
    if to_format is not None and to_format not in targets():
        refuse_missing("writers", to_format)
        allowed = f"allowed: {', '.join(targets())}"
        raise UnknownName(
            f"--to-format {to_format!r}: there is no such format to write{nearest(to_format, targets(), allowed)}"
        )
    if to_format is None:
        if not to.name.endswith(ENDINGS):
            raise ConfigError(
                f"{to}: the name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} unless --to-format is given"
            )
        to_format = "parquet" if to.suffix == ".parquet" else "jsonl"
    trace = open_trace(path, format)
    jobs = _checked(trace, check)
    if to_format in formats():
        saved = read_meta(path).get("runtime") if trace.format == "jsonl" else None
        if saved is not None and (not isinstance(saved, dict) or saved.get("kind") != "recorded"):
            raise WorkloadError(
                f"{path}: cannot be written as {to_format}, because that format stores durations, which "
                f"depend on the GPU type here (the runtime model is {saved!r})"
            )
        written = export(to_format, to, counted(jobs), trace.cluster())
        return trace.report, written  # the report is filled while the export reads the jobs
    write = write_parquet if to_format == "parquet" else write_jobs
    meta = {"format": trace.format, "assumptions": trace.assumptions}
    if (begins_s := trace.begins_s) is not None:
        jobs = chain([next(jobs)], jobs)  # reads the first job, whose arrival sets the origin
        meta["begins_s"] = begins_s - trace.meta["origin_s"]
    write(to, counted(jobs), meta)
    return trace.report, Written((to,), {})


def _checked(trace: Trace, check: Callable[[ReadReport], None]) -> Iterator[Job]:
    yield from trace.jobs()
    check(trace.report)


_GROUP = 1 << 16
"""Number of rows in a row group, which are held in memory together."""


def write_parquet(path: Path, jobs: Iterable[Job], meta: Mapping[str, Any]) -> None:
    """Write ``jobs`` to ``path``, atomically. ``jobs`` is iterated once, while row groups are
    written.

    Raises:
        ConfigError: pyarrow is not installed.
        WorkloadError: The file cannot be written, or Parquet cannot represent a number in the jobs.
    """
    arrow, parquet = (import_pyarrow("writing Parquet", module) for module in ("pyarrow", "pyarrow.parquet"))
    schema = _schema(arrow)
    try:
        with replaced(path) as partial, parquet.ParquetWriter(partial, schema, compression="zstd") as file:
            rows = _rows(jobs)
            while group := list(islice(rows, _GROUP)):
                file.write_table(arrow.table([list(column) for column in zip(*group, strict=True)], schema=schema))
            file.add_key_value_metadata({"dagsim": json.dumps(dict(meta))})
    except (OSError, OverflowError, arrow.ArrowInvalid) as error:
        raise WorkloadError(f"{path}: cannot be written ({error})") from None


class _TaskRow(NamedTuple):
    """The objects from which one row of a Parquet table is made."""

    job: Job
    place: int
    task: Task
    speeds: list[tuple[str, float]] | None
    parents: tuple[int, ...]
    parent_bytes: list[float]


_COLUMNS = (
    ("job_id", "text", "job.id"),
    ("arrival_s", "number", "job.arrival_s"),
    ("priority", "number", "job.priority"),
    ("tenant", "text", "job.tenant"),
    ("deadline_s", "number", "job.deadline_s"),
    ("weight", "number", "job.weight"),
    ("task", "place", "place"),
    ("name", "text", "task.name"),
    ("work", "number", "task.work"),
    ("instances", "whole", "task.instances"),
    ("gang", "flag", "task.gang"),
    ("gpus", "number", "task.gpus"),
    ("cpus", "number", "task.cpus"),
    ("memory_gb", "number", "task.memory_gb"),
    ("gpu_types", "texts", "task.gpu_types"),
    ("speeds", "numbers by text", "speeds"),
    ("model", "text", "task.model"),
    ("batch", "whole", "task.batch"),
    ("estimate", "number", "task.estimate"),
    ("parents", "places", "parents"),
    ("parent_bytes", "numbers", "parent_bytes"),
)
"""The columns of a Parquet table: the name, the type (``_schema``), and the attribute of ``_TaskRow``."""
_values: Callable[[_TaskRow], tuple[Any, ...]] = attrgetter(*[attribute for *_, attribute in _COLUMNS])


def _rows(jobs: Iterable[Job]) -> Iterator[tuple[Any, ...]]:
    for job in jobs:
        size = {(edge.parent, edge.child): edge.bytes for edge in job.graph.edges}
        for place, (task, parents) in enumerate(zip(job.tasks, job.graph.parents, strict=True)):
            speeds = None if task.speeds is None else list(task.speeds.items())
            yield _values(_TaskRow(job, place, task, speeds, parents, [size[parent, place] for parent in parents]))


def _schema(arrow: Any) -> Any:
    number, place, text = arrow.float64(), arrow.int32(), arrow.string()
    types = {
        "flag": arrow.bool_(),
        "number": number,
        "numbers": arrow.list_(number),
        "numbers by text": arrow.map_(text, number),
        "place": place,
        "places": arrow.list_(place),
        "text": text,
        "texts": arrow.list_(text),
        "whole": arrow.int64(),
    }
    return arrow.schema([(name, types[type_]) for name, type_, _ in _COLUMNS])

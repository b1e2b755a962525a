"""A trace of any format, rewritten as dagsim's own JSON Lines, or as a Parquet table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from dagsim.errors import ConfigError
from dagsim.model import Job
from dagsim.traces import ReadReport, open_trace
from dagsim.traces.parquet import write_parquet
from dagsim.workload.jsonl import write_jobs

__all__ = ["ENDINGS", "convert"]

ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
"""What a converted trace may be called."""


def convert(
    path: Path,
    to: Path,
    format: str | None = None,
    counted: Callable[[Iterable[Job]], Iterator[Job]] = iter,
) -> ReadReport:
    """Write the jobs of the trace at ``path`` to ``to``; what was read and dropped. ``to`` appears whole or not at all.

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

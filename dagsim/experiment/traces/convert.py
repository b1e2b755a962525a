"""A trace of any format, rewritten as dagsim's own JSON Lines."""

from __future__ import annotations

from pathlib import Path

from dagsim.errors import ConfigError
from dagsim.workload.jsonl import write_jobs
from dagsim.workload.readers import ReadReport, open_trace

__all__ = ["convert"]


def convert(path: Path, to: Path, format: str | None = None) -> ReadReport:
    """Write the jobs of the trace at ``path`` to ``to``, which appears whole or not at all; what was read and dropped.

    Raises:
        ConfigError: ``to`` is not called ``.jsonl`` or ``.jsonl.gz``.
        TraceError: The trace cannot be read.
        WorkloadError: ``to`` cannot be written.
    """
    if not to.name.endswith((".jsonl", ".jsonl.gz")):
        raise ConfigError(f"{to}: should end in .jsonl or .jsonl.gz")
    trace = open_trace(path, format)
    write_jobs(to, trace.jobs(), {"format": trace.format, "assumptions": trace.assumptions})
    return trace.report

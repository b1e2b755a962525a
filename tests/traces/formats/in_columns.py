"""A trace read in several ways, for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dagsim.errors import TraceError
from dagsim.traces import TraceOptions, open_trace

__all__ = ["ways"]


def ways(path: Path, format_: str, options: TraceOptions) -> Iterator[Any]:
    """Jobs, report and origin, or the error: of rows split one by one, of blocks parsed at once, and of a table that
    does not fit into memory."""
    for small, most, columns in ((1 << 40, 1 << 40, False), (0, 1 << 40, True), (0, 12, False)):
        with patch("dagsim.traces.chunks._SMALL_BYTES", small), patch("dagsim.traces.grouping.ROWS_IN_MEMORY", most):
            trace = open_trace(path, format_, options)
            try:
                jobs = list(trace.arrays().jobs() if columns else trace.jobs())
                yield jobs, asdict(trace.report), str(trace.report), trace.meta
            except TraceError as error:
                yield str(error)

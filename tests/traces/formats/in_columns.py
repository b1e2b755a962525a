"""A trace read row by row and in columns, for comparison."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dagsim.errors import TraceError
from dagsim.traces import TraceOptions, open_trace

__all__ = ["both"]


def both(path: Path, format_: str, options: TraceOptions) -> tuple[Any, Any]:
    """What reading row by row, and in columns, comes to: jobs, report and origin, or the error; nothing in columns
    where the file is left to the reader of rows."""
    rows, columns = open_trace(path, format_, options), open_trace(path, format_, options)
    one: Any
    other: Any
    try:
        arrays = columns.arrays()
        other = arrays and (list(arrays.jobs()), asdict(columns.report), str(columns.report), columns.meta)
    except TraceError as error:
        other = str(error)
    if other is None:
        return None, None
    try:
        one = list(rows.jobs()), asdict(rows.report), str(rows.report), rows.meta
    except TraceError as error:
        one = str(error)
    return one, other

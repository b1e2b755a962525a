"""The rows of a trace that were dropped or tolerated, one per line of a file."""

from __future__ import annotations

from pathlib import Path

from dagsim.errors import InputError
from dagsim.workload.readers import ReadReport

__all__ = ["write_report"]


def write_report(report: ReadReport, path: Path) -> None:
    """Write the counts and then every row as ``file:line: dropped, reason``, whole or not at all.

    Raises:
        InputError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("\n".join([f"# {report}", *report.details]) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None

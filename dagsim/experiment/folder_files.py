"""The small files of a run folder: JSON, lines that are only appended, and summaries of all runs."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagsim.errors import RunFolderError
from dagsim.experiment.kept_files import CLOCKED, CellRun
from dagsim.files import parsed_json, replaced
from dagsim.metrics import to_csv
from dagsim.systems.cluster.choice import EngineUse

__all__ = [
    "cells_table",
    "engine_of",
    "json_line",
    "json_text",
    "overwrite",
    "read_json_file",
    "read_lines",
    "rename_free",
    "slug",
    "summary_of",
    "unwritable",
    "value_in",
    "whole_lines",
    "write_whole",
]


def engine_of(used: Mapping[str, EngineUse]) -> dict[str, str]:
    """The engines by policy as an entry of the manifest: the engine asked for, the engine used, and
    the reason.
    """
    asked = next(iter(used.values())).asked
    reasons: dict[tuple[str, str], list[str]] = {}
    for policy, use in used.items():
        reasons.setdefault((use.used, use.reason), []).append(policy)
    if len(reasons) == 1:
        ((engine, reason),) = reasons
        return {"asked": asked, "used": engine, "reason": reason}
    by_policy = [f"{engine} for {', '.join(policies)}: {reason}" for (engine, reason), policies in reasons.items()]
    engines = ", ".join(dict.fromkeys(use.used for use in used.values()))
    return {"asked": asked, "used": engines, "reason": "; ".join(by_policy)}


def summary_of(runs: Iterable[CellRun]) -> dict[str, dict[str, Any]]:
    """Number of seeds and mean of every number, per policy. The mean is None if any seed has no
    value.
    """
    by_policy: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run.metrics)
    return {policy: {"seeds": len(rows), **_means(rows)} for policy, rows in by_policy.items()}


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    names = dict.fromkeys(name for row in rows for name in row)
    means: dict[str, float | None] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name == CLOCKED or any(isinstance(value, str) for value in values):
            continue
        numbers = [value for value in values if isinstance(value, int | float)]
        means[name] = sum(numbers) / len(numbers) if len(numbers) == len(values) else None
    return means


def cells_table(runs: Sequence[CellRun]) -> str:
    """One row for each cell, sorted by id; a metric that a cell lacks is empty."""
    ordered = sorted(runs, key=lambda run: run.id)
    keys = list(dict.fromkeys(key for run in ordered for key in run.at))
    names = list(dict.fromkeys(name for run in ordered for name in run.metrics))
    table: dict[str, list[Any]] = {"id": [run.id for run in ordered]}
    table |= {key: [run.at.get(key) for run in ordered] for key in keys}
    table |= {"policy": [run.policy for run in ordered], "seed": [run.seed for run in ordered]}
    return to_csv(table | {name: [run.metrics.get(name) for run in ordered] for name in names})


def rename_free(folder: Path, wanted: Path, *, numbered: bool) -> Path | None:
    """Rename the folder to ``wanted`` and return its new path. If that name is taken, return None,
    or with ``numbered`` use the first free name ``wanted-N``.
    """
    number = 1
    while True:
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            if not path.exists() or not numbered:
                folder.rename(path)
                return path
        except OSError as error:  # made by another process meanwhile
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not numbered:
                return None
        number += 1


def slug(text: str, most: int = 40) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:most] or "run"


def value_in(line: Mapping[str, Any], key: str, file: str) -> Any:
    """The value in a line of a run folder's file.

    Raises:
        RunFolderError: The line lacks it.
    """
    if key not in line:
        raise RunFolderError(f"{file}: not of this version: a line has no {key!r}")
    return line[key]


def whole_lines(path: Path) -> list[bytes]:
    """The complete lines, with line ends. An unfinished last line of a stopped writer is left out."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror}") from None
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of JSON objects; an incomplete last line is ignored.

    Raises:
        RunFolderError: A line is not a JSON object; the message gives its number.
    """
    values = []
    for number, line in enumerate(whole_lines(path), 1):
        try:
            value = parsed_json(line)
            if not isinstance(value, dict):
                raise ValueError(f"expected an object, got {value!r:.60}")
        except ValueError as error:  # UnicodeDecodeError is one, too
            raise RunFolderError(
                f"{path}:{number}: damaged: not a line of JSON ({error}); restore the file, or run "
                "the command in command.txt again"
            ) from None
        values.append(value)
    return values


def json_line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def json_text(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def read_json_file(path: Path) -> Any:
    try:
        return parsed_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: not readable as JSON ({error})") from None


def write_whole(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace the file atomically: a reader sees the old text or the new."""
    with replaced(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def overwrite(path: Path, text: str) -> None:
    """Overwrite the old text in place, because a full disk has no room for a second file."""
    with path.open("r+b") as file:
        file.write(text.encode())
        file.truncate()


def unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"{error.filename or path}: cannot be written: {error.strerror or error}")

"""Tables from CSV or JSON Lines files. The columns have the names that dagsim uses, unless
``--map`` assigns other names to them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from dagsim.errors import TraceError
from dagsim.traces.chunks import read_tables
from dagsim.traces.documents import elements, values
from dagsim.traces.report import ReadReport
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.records import clipped, clipped_repr

_DELIMITERS = ",;\t|"
_MOST_COLUMNS = 1000
_LEAST_COLUMNS = 3
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NAME = re.compile(r"[^\W\d][\w .()/-]*")
_SYNONYMS = {
    "id": ("job_id", "jobid", "job", "job_name", "jobname", "name", "uuid", "run_id"),
    "arrival_s": (
        *("arrival", "arrival_time", "submit", "submitted", "submitted_at", "submit_time", "submission_time"),
        *("submit_s", "submission", "created", "created_at", "create_time", "queued_at", "timestamp"),
    ),
    "gpus": ("gpu", "n_gpu", "n_gpus", "num_gpu", "num_gpus", "ngpu", "ngpus", "numgpus", "gpu_num", "gpu_count"),
    "duration_s": ("duration", "runtime", "run_time", "runtime_s", "elapsed", "elapsed_s", "elapsedraw", "seconds"),
    "start_s": ("start", "started", "started_at", "start_time"),
    "end_s": ("end", "ended", "ended_at", "end_time", "finished_at", "finish_time", "completed_at"),
}


class NamedColumns:
    """The columns of a source by name, and its rows.

    ``mapping`` maps dagsim's column names to the file's. A column in ``constant`` may also be
    mapped to a number, which then applies to all rows.
    """

    def __init__(
        self,
        source: Source,
        mapping: Mapping[str, str],
        delimiter: str | None = None,
        constant: Collection[str] = (),
    ) -> None:
        self._source = source
        head, stored = next((line for line in source.head() if line.strip()), ""), source.columns
        self._json = head.lstrip()[:1] in ("{", "[")
        self._delimiter = delimiter or max(_DELIMITERS, key=head.count)
        self.names = (
            [name.strip().lower() for name in stored.names]
            if stored is not None
            else (_keys(source) if self._json else _split(head, self._delimiter))
        )
        """Column names in lower case; for JSON, the fields of the first record."""
        self.constants = {
            ours: float(theirs)
            for ours, theirs in mapping.items()
            if ours in constant and theirs.lower() not in self.names and _NUMBER.fullmatch(theirs)
        }
        """The numbers that apply to all rows, by dagsim's column names."""
        self._mapping = {ours: theirs for ours, theirs in mapping.items() if ours not in self.constants}

    def name(self, ours: str) -> str:
        """Return the file's name for the column ``ours``."""
        return self._mapping.get(ours, ours)

    def has(self, ours: str) -> bool:
        """Return True if the table has the column."""
        return self.name(ours).lower() in self.names

    def check(self, allowed: Sequence[str]) -> None:
        """Check that every name in the map or, without a map, in the file is known.

        Raises:
            TraceError: A name is unknown, or the first record cannot be read.
        """
        if self._json and not self.names:
            next(values(self._source, "jobs"), None)
        for ours, theirs in self._mapping.items():
            if ours not in allowed:
                near = get_close_matches(ours, allowed, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(allowed)}"
                raise TraceError(
                    f"--map {clipped(f'{ours}={theirs}')}: dagsim has no field {clipped_repr(ours)}; {hint}"
                )
            if theirs.lower() not in self.names:
                raise TraceError(
                    f"--map {ours}={theirs}: {self._source} has no column {clipped_repr(theirs)}; "
                    f"its columns are {clipped(', '.join(self.names))}"
                )
        twice = [name for name in dict.fromkeys(self.names) if self.names.count(name) > 1]
        if wrong := [name for name in twice if name in {self.name(ours).lower() for ours in allowed}]:
            raise TraceError(f"{self._source}:1: there are two columns {clipped_repr(wrong[0])}; rename or remove one")
        for name in () if self._mapping or self._json else self.names:
            if name not in allowed:
                near = get_close_matches(name, allowed, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise TraceError(
                    f"{self._source}:1: unknown column {clipped_repr(name)}; {hint}allowed: {', '.join(allowed)}"
                )

    def tables(
        self, needed: Sequence[str], optional: Sequence[str], numbers: Collection[int], report: ReadReport
    ) -> Iterator[Table]:
        """Return the rows with the columns ``needed`` and ``optional``. The columns at the indices
        ``numbers`` are read as numbers.

        Raises:
            TraceError: The source cannot be read.
        """
        ours = [self.name(name) for name in needed], [self.name(name) for name in optional]
        width = len(needed) + len(optional)
        texts = [place for place in range(width) if place not in numbers]
        if self._json:
            return tables_of(self._source, width, self._objects(report, [*ours[0], *ours[1]]), numbers)
        form = csv_form(*ours, numbers=numbers, texts=texts, separator=self._delimiter, header=True)
        return read_tables(self._source, form, report)

    def _objects(self, report: ReadReport, names: Sequence[str]) -> Iterator[NumberedRow]:
        for number, record in elements(self._source, "jobs"):
            report.rows += 1
            lower = {key.lower(): value for key, value in record.items()}
            yield number, [_text(_within(lower, name.lower())) for name in names]


def likely(names: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Map dagsim's columns ``wanted`` to those of ``names`` that probably mean the same: the same
    name, or a common synonym.
    """
    columns = {}
    for ours in wanted:
        same = next((name for name in (ours, *_SYNONYMS.get(ours, ())) if name in names), None)
        if same is not None:
            columns[ours] = same
    return columns


def map_command(source: Source, columns: Mapping[str, str], missing: Sequence[str]) -> str:
    """Return the command that reads the source with these columns. Columns that were not found are
    placeholders.
    """
    pairs = [f"{ours}={theirs}" for ours, theirs in columns.items() if ours != theirs]
    pairs += [f"{ours}=COLUMN" for ours in missing]
    return f"dagsim replay --trace {shlex.quote(str(source))} --map {shlex.quote(','.join(pairs))}"


def header_hint(source: Source) -> str | None:
    """Return a hint for a table without any known column name. It lists the columns and gives the
    command that maps them. Return None if the table has no header.
    """
    names = NamedColumns(source, {}).names
    if len(names) < _LEAST_COLUMNS or not all(_NAME.fullmatch(name) for name in names):
        return None
    command = map_command(source, {}, ("id", "arrival_s", "gpus", "duration_s"))
    return f"if it is a table, its columns are {clipped(', '.join(names))}; map them: {command}"


def _split(head: str, delimiter: str) -> list[str]:
    return [name.strip().strip('"').lower() for name in head.split(delimiter)[:_MOST_COLUMNS]]


def _keys(source: Source) -> list[str]:
    """Return the names of the fields in the first record. The name of a nested field is its path,
    with dots.
    """
    try:
        first = next(values(source, "jobs"), (0, None))[1]
    except TraceError:
        return []
    names: list[str] = []
    for key, value in list(first.items())[:_MOST_COLUMNS] if isinstance(first, dict) else ():
        names.append(key.lower())
        if isinstance(value, dict):
            names += [f"{key}.{inner}".lower() for inner in list(value)[:_MOST_COLUMNS]]
    return names


def _within(record: Mapping[str, Any], name: str) -> Any:
    """Return the field of a record by its name, or by a path of names."""
    if name in record:
        return record[name]
    outer, _, inner = name.partition(".")
    below = record.get(outer)
    return _within({key.lower(): value for key, value in below.items()}, inner) if isinstance(below, dict) else None


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return "|".join(text for text in value if isinstance(text, str))
        case int() if abs(value) >= 1 << 63:
            return "inf"  # a number with thousands of digits means that the file is damaged
        case dict():
            return "{}"
        case _:
            return str(value)

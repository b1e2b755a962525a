"""The schedule log: one ordered, append-only list of records, kept as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np

from dagsim.errors import RunFolderError
from dagsim.model.record import Kind, Record

__all__ = ["ROW", "Row", "ScheduleLog"]

ROW = np.dtype(
    [
        ("kind", "i1"),
        ("time_s", "f8"),
        ("job", "i4"),
        ("task", "i4"),
        ("run", "i8"),
        ("node", "i4"),
        ("instances", "i4"),
        ("gpus", "i8"),
        ("value", "f8"),
    ]
)
"""A row: 49 bytes. Its fields are those of ``Record``."""

Row: TypeAlias = tuple[int, float, int, int, int, int, int, int, float]
"""One row as the kernel writes it: the fields of ``Record``, plain."""

_CHUNK = 1 << 16


class ScheduleLog:
    """Rows in the order things happened. Appending costs a tuple; ``pack`` turns full chunks into ``ROW`` arrays."""

    __slots__ = ("_packed", "_packed_rows", "_tail", "append")

    append: Callable[[Row], None]
    """Add one row."""

    def __init__(self) -> None:
        self._packed: list[np.ndarray] = []
        self._packed_rows = 0
        self._tail: list[Row] = []
        self.append = self._tail.append

    def pack(self) -> None:
        """Make long tails compact (49 bytes a row); call it now and then while writing."""
        if len(self._tail) >= _CHUNK:
            self._pack()

    def rows(self) -> np.ndarray:
        """All rows as one structured array of dtype ``ROW``."""
        self._pack()
        if len(self._packed) > 1:
            self._packed = [np.concatenate(self._packed)]
        return self._packed[0] if self._packed else np.empty(0, ROW)

    def since(self, row: int) -> list[Row]:
        """The rows from number ``row`` on, as tuples: what a live fold (a reward) has not seen yet."""
        if row >= self._packed_rows:
            return self._tail[row - self._packed_rows :]
        return list(self.rows()[row:].tolist())

    def save(self, path: Path) -> None:
        """Write the rows to ``path`` (NumPy ``.npy``)."""
        with path.open("wb") as file:
            self.write(file)

    def write(self, file: IO[bytes]) -> None:
        """Write the rows to an open file, as ``save`` does."""
        np.save(file, self.rows(), allow_pickle=False)

    @classmethod
    def load(cls, path: Path) -> ScheduleLog:
        """Read what ``save`` wrote.

        Raises:
            RunFolderError: ``path`` is missing, damaged, or no schedule log.
        """
        try:
            rows = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise RunFolderError(f"{path}: not a readable schedule log ({error})") from None
        if rows.dtype != ROW:
            raise RunFolderError(f"{path}: not a schedule log of this version (its fields are {rows.dtype.names})")
        return cls.of(rows)

    @classmethod
    def of(cls, rows: np.ndarray) -> ScheduleLog:
        """A log of the given ``ROW`` array."""
        log = cls()
        log._packed = [rows]
        log._packed_rows = len(rows)
        return log

    def copy(self) -> ScheduleLog:
        """An equal log that grows on its own; shares the packed rows."""
        log = ScheduleLog()
        log._packed = list(self._packed)
        log._packed_rows = self._packed_rows
        log._tail.extend(self._tail)
        return log

    def __len__(self) -> int:
        return self._packed_rows + len(self._tail)

    def __iter__(self) -> Iterator[Record]:
        for row in self.rows().tolist():
            yield Record(Kind(row[0]), *row[1:])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScheduleLog):
            return NotImplemented
        return self.rows().tobytes() == other.rows().tobytes()

    __hash__ = None  # type: ignore[assignment]

    def _pack(self) -> None:
        if self._tail:
            self._packed.append(np.array(self._tail, ROW))
            self._packed_rows += len(self._tail)
            self._tail.clear()

"""Read Parquet and Arrow (Feather, IPC) files in batches whose columns are numbers or text."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import BufferedReader, RawIOBase, StringIO
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import ConfigError, DagsimError, TraceError
from dagsim.workload.array_tools import objects
from dagsim.workload.records import clipped_repr

MAGIC = (b"PAR1", b"ARROW1")
"""The first bytes of Parquet files and of Arrow IPC files."""
_ROWS = 1 << 16
"""Maximum number of rows in a batch."""
_ROWS_OF_TEXT = 1 << 12
"""Maximum number of rows that are converted to CSV text in one step."""
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def import_pyarrow(purpose: str, module: str = "pyarrow", error: type[DagsimError] = ConfigError) -> Any:
    """Import a module of pyarrow.

    Raises:
        DagsimError: pyarrow is not installed. The error is an instance of ``error``, and its
            message begins with ``purpose``.
    """
    try:
        return import_module(module)
    except ImportError:
        raise error(f"{purpose} needs pyarrow; run pip install -e '.[parquet]' in the checkout") from None


class ArrowFile:
    """The columns of one Parquet or Arrow IPC file.

    Each value is converted to the number or text that a CSV file with the same table would contain.
    Nulls and NaN become empty text. Timestamps and dates become ISO text, in UTC if they have a
    time zone. Durations become seconds, and the elements of a list are joined by ``|``. Row r,
    counted from 0, counts as line r + 2, because the column names count as line 1.

    Raises:
        TraceError: pyarrow is not installed, the file is damaged, or two columns share a name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrow = import_pyarrow(f"{path}: reading Parquet and Arrow files", error=TraceError)
        try:
            with path.open("rb") as file:
                self._is_parquet = file.read(4) == MAGIC[0]
            opened = self._open()
            schema = opened.schema_arrow if self._is_parquet else opened.schema
            self.names: tuple[str, ...] = tuple(schema.names)
        except (self._arrow.ArrowException, OSError) as error:
            raise self._damaged(error) from None
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise TraceError(f"{path}:1: two columns have the name {clipped_repr(twice)}; rename one of them")

    def batches(self, columns: Sequence[int], most: int = _ROWS) -> Iterator[tuple[int, list[Any]]]:
        """Yield the columns at these indices in batches of at most ``most`` rows. Each batch
        consists of the line number of its first row and an Arrow array for each column.

        Raises:
            TraceError: The data is damaged.
        """
        names, line = [self.names[column] for column in columns], 2
        try:
            for batch in self._batches(names, most):
                for start in range(0, batch.num_rows, most):
                    part = batch.slice(start, most)
                    yield line, [part.column(name) for name in names]
                    line += part.num_rows
        except (self._arrow.ArrowException, OSError) as error:
            raise self._damaged(error) from None

    def numbers(self, array: Any) -> np.ndarray | None:
        """Return the values of a numeric column as (n,) float64, with NaN for null, or ``None`` for
        a column of any other type."""
        types, array = self._arrow.types, _plain(self._arrow, array)
        kind = array.type
        if types.is_duration(kind):
            return self._floats(array.cast(self._arrow.int64())) / _PER_SECOND[kind.unit]
        if types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind):
            return self._floats(array)
        # This includes decimals, because Arrow does not round them in the same way as ``float``
        # rounds their text.
        return None

    def texts(self, array: Any, column: int) -> np.ndarray:
        """Return the values of a column as text, (n,) object, with empty text for null.

        Raises:
            TraceError: The type of the column at index ``column`` cannot be represented as CSV
                text.
        """
        arrow, array = self._arrow, _plain(self._arrow, array)
        types, kind = arrow.types, array.type
        if types.is_floating(kind) or types.is_duration(kind):
            numbers = self.numbers(array)
            assert numbers is not None
            return objects(["" if number != number else repr(number) for number in numbers.tolist()])
        if types.is_timestamp(kind) or types.is_date(kind):
            return self._dates(array)
        if types.is_list(kind) or types.is_large_list(kind):
            lists = array.to_pylist()
            return objects(["|".join(map(str, values)) if values else "" for values in lists])
        try:
            texts: np.ndarray = array.cast(arrow.string()).fill_null("").to_numpy(zero_copy_only=False)
        except arrow.ArrowException:
            raise TraceError(
                f"{self._path}:1: the column {clipped_repr(self.names[column])} has the type {kind}, "
                "which cannot be read; convert it to numbers, text or dates"
            ) from None
        return texts

    def as_csv(self) -> BufferedReader:
        """Return the whole table as CSV text in UTF-8, for readers that work on lines. The text is
        generated while it is read.

        Columns with unsupported types are empty.
        """
        return BufferedReader(_Chunks(self._csv()))

    def _open(self) -> Any:
        """Open the file with pyarrow."""
        if self._is_parquet:
            return import_module("pyarrow.parquet").ParquetFile(self._path, memory_map=True)
        return import_module("pyarrow.ipc").open_file(self._arrow.memory_map(str(self._path)))

    def _batches(self, names: list[str], most: int) -> Iterator[Any]:
        file = self._open()
        if self._is_parquet:
            yield from file.iter_batches(batch_size=most, columns=names)
        else:
            yield from map(file.get_batch, range(file.num_record_batches))

    def _floats(self, array: Any) -> np.ndarray:
        values: np.ndarray = array.cast(self._arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        return values

    def _dates(self, array: Any) -> np.ndarray:
        """Return timestamps and dates as ISO text, (n,) object, with at most six digits after the
        seconds.
        """
        zoned, is_day = getattr(array.type, "tz", None) is not None, self._arrow.types.is_date(array.type)
        missing = np.asarray(array.is_null())
        moments = np.asarray(array.to_numpy(zero_copy_only=False), "datetime64[us]")
        whole = bool((moments[~missing] == moments[~missing].astype("datetime64[s]")).all())
        texts = np.datetime_as_string(moments, unit="D" if is_day else "s" if whole else "us").tolist()
        ending = "+00:00" if zoned else ""
        return objects(
            [
                "" if null else text.replace("T", " ") + ending
                for text, null in zip(texts, missing.tolist(), strict=True)
            ]
        )

    def _csv(self) -> Iterator[bytes]:
        buffer, every = StringIO(newline=""), range(len(self.names))
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.names)
        for _, arrays in self.batches(every, _ROWS_OF_TEXT):
            writer.writerows(zip(*map(self._texts_if_any, arrays, every), strict=True))
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()
        yield buffer.getvalue().encode()

    def _texts_if_any(self, array: Any, column: int) -> np.ndarray:
        try:
            return self.texts(array, column)
        except TraceError:
            return np.full(len(array), "", object)

    def _damaged(self, error: Exception) -> TraceError:
        kind = "Parquet" if self._is_parquet else "Arrow"
        return TraceError(f"{self._path}:1: a damaged or unsupported {kind} file ({clipped_repr(str(error))})")


class _Chunks(RawIOBase):
    """A binary stream that reads from an iterator of chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _plain(arrow: Any, array: Any) -> Any:
    """Return the array without its dictionary encoding or extension type."""
    if isinstance(array, arrow.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if isinstance(array, arrow.DictionaryArray) else array

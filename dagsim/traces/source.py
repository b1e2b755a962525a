"""Sources of a trace's bytes: a file (compressed or not), a member of an archive, or a directory of
shards.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from functools import cached_property
from io import BufferedReader, TextIOWrapper
from itertools import count, repeat
from pathlib import Path
from typing import Any, BinaryIO, cast

from dagsim.errors import TraceError
from dagsim.files import LineLimit, is_there
from dagsim.model.arithmetic import whole_sum
from dagsim.spelling import nearest_file
from dagsim.traces.arrow import MAGIC, ArrowFile

NumberedRow = tuple[int, Sequence[Any]]
"""The number of a row (see ``Source.where``), and the fields of the row, which are texts unless a
reader has parsed them."""

_HEAD_BYTES = 1 << 16
_BLOCK, _OVERLAP = 1 << 20, 128
# A row number is a single int, which is cheap to pass on. It combines the index of the file among
# the shards with the line in the file.
LINE_BITS = 40
_ARCHIVES = (".tar", ".tar.gz", ".tgz")
_NO_DATA = (
    "*.md", "LICENSE*", "README*", "SHA256SUM*", "*.sha256", "*.html", ".*", "_SUCCESS", "_metadata",
    "_common_metadata",
)  # fmt: skip
_MOST_MEMBERS = 2_000
"""Maximum number of files in an archive. Finding more files one by one would take minutes."""
_FREE_BYTES, _RATIO = 1 << 26, 250
"""Limits of decompression: 64 MB plus 250 times the compressed size. A decompressed trace is about
30 times as large as the file, and a decompression bomb 1,000 times.
"""
_PACKED = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet; unpack it, or export the table as CSV",
    b"\xfd7zXZ": "a file packed by xz; unpack it (unxz)",
    b"BZh": "a file packed by bzip2; unpack it (bunzip2)",
    b"\x28\xb5\x2f\xfd": "a file packed by zstd; unpack it (unzstd)",
    b"SQLite format 3": "a database of SQLite; export the table of jobs as CSV",
}
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError)


class Source:
    """The file or files of a trace. They are only opened when they are read.

    ``path`` is a file (plain or gzip, recognised by its first bytes), a directory of shards, an
    archive (``.tar``, ``.tar.gz``, ``.tgz``, whose members are the shards), or
    ``archive.tar.gz:member``. Documents in the same folder (``README*``, ``*.md``) are not shards.
    A Parquet or Arrow file is read as CSV text with the same table and a header.

    All methods raise ``TraceError`` for a missing or empty file, a Git LFS pointer, an HTML page,
    damaged or truncated gzip data, other binary data, and text that is not UTF-8. Each of these
    cases has its own message.
    """

    def __init__(self, path: Path | str, member: str | None = None) -> None:
        text = str(path)
        if member is None and not is_there(path):
            for ending in _ARCHIVES:
                archive, separator, inner = text.partition(f"{ending}:")
                if separator:
                    text, member = archive + ending, inner
        self.path = Path(text)
        self.member = member

    @property
    def name(self) -> str:
        """The last part of the path of the file, directory or member."""
        return Path(self.member).name if self.member else self.path.name

    @cached_property
    def files(self) -> tuple[Source, ...]:
        """The shards, sorted by name, including shards in nested directories and archives. If the
        source is a plain file, this file is the only shard.
        """
        if self._is_single():
            return (self,)
        shards = tuple([shard for file in self._listed for shard in file.files])
        if not shards:
            raise TraceError(f"{self}: the folder contains no files")
        return shards

    def select(self, *patterns: str) -> Source:
        """Return the same source, restricted to the shards whose path or name matches one of
        ``patterns``. There may be no such shards.
        """
        chosen = Source(self.path, self.member)
        listed = (self,) if self._is_single() else self._listed
        chosen.files = tuple([shard for file in listed if file.matches(*patterns) for shard in file.files])
        return chosen

    def select_in_folder(self, *patterns: str) -> Source:
        """If the source is a folder with shards that match ``patterns``, return the source
        restricted to these shards. Otherwise, return the source itself.
        """
        inside = self.select(*patterns) if self.path.is_dir() else self
        return inside if inside.files else self

    def beside(self, *patterns: str) -> Source:
        """Return the shards that match one of ``patterns`` or, if there are none, matching files in
        the directory of the file or archive.
        """
        inside = self.select(*patterns)
        folder = self.path.parent
        if self.path.is_dir() or not folder.is_dir() or (inside.files and not self._is_single()):
            return inside
        around = Source(folder)
        around._listed = tuple([Source(file) for file in sorted(folder.iterdir()) if file.is_file()])
        return around.select(*patterns)

    def matches(self, *patterns: str) -> bool:
        """Return True if the name, or the end of the path, matches one of ``patterns`` (shell
        patterns, case-insensitive).
        """
        path = (self.member or self.path.as_posix()).lower()
        return any(fnmatch(path, text) or fnmatch(path, f"*/{text}") for text in map(str.lower, patterns))

    def head(self, lines: int = 32) -> list[str]:
        """Return the first lines of the first shard, by which formats are recognised. They are
        taken from its first 64 KB, and undecodable bytes are replaced.
        """
        return self._head[:lines]

    @cached_property
    def columns(self) -> ArrowFile | None:
        """The columns of the first shard if it is a Parquet or Arrow file, otherwise None.

        Raises:
            TraceError: The file cannot be read (see the class), or pyarrow is not installed.
        """
        file = self.files[0]
        if file is not self:
            return file.columns
        if self.member is not None:
            return None
        with self._raw() as raw:
            is_arrow = raw.peek(8).startswith(MAGIC)
        return ArrowFile(self.path) if is_arrow else None

    def mentions(self, pattern: re.Pattern[bytes]) -> bool:
        """Return True if the bytes of a shard match the pattern, which may span at most 128
        bytes.
        """
        for file in self.files:
            with file.open_binary() as stream:
                rest = b""
                while block := stream.read(_BLOCK):
                    if pattern.search(rest + block):
                        return True
                    rest = block[-_OVERLAP:]
        return False

    def size_bytes(self) -> int:
        """Return the size on disk in bytes, summed over a directory or archive, or 0 if the file does
        not exist."""
        try:
            files = [self.path] if not self.path.is_dir() else [file.path for file in self.files]
            return whole_sum(file.stat().st_size for file in files)
        except OSError:
            return 0

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield all lines of all shards, each with its number and without its line end (LF or
        CRLF).
        """
        for place, file in enumerate(self.files):
            yield from file._lines(place << LINE_BITS)

    def where(self, number: int) -> str:
        """Return ``file:line`` of the row or line with this number."""
        return f"{self.files[number >> LINE_BITS]}:{number & ((1 << LINE_BITS) - 1)}"

    @contextmanager
    def open_binary(self) -> Iterator[BinaryIO]:
        """Open a single file as a stream of decompressed bytes."""
        (file,) = self.files if len(self.files) == 1 else (self,)
        with file._opened() as stream:
            try:
                yield stream
            except _DAMAGED as error:
                raise TraceError(f"{file}:1: the compressed data is damaged or cut off ({error})") from None

    def read_bytes(self) -> bytes:
        """Return all decompressed bytes of a single file."""
        with self.open_binary() as stream:
            return BufferedReader(LineLimit(stream, str(self), TraceError)).read()

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def __repr__(self) -> str:
        return f"Source({str(self)!r})"

    @cached_property
    def _listed(self) -> tuple[Source, ...]:
        """The files in a directory, or the members of an archive. Archives in a directory are not
        opened.
        """
        if self.path.is_dir():
            files = sorted(file for file in self.path.rglob("*") if file.is_file())
            return tuple([Source(file) for file in files if _is_data(file.relative_to(self.path).as_posix())])
        below = (self.member or "").rstrip("/")
        names = self._members()
        if below in names:
            self.files = (self,)
            return (self,)
        inside = [name for name in sorted(names) if _is_data(name) and (not below or name.startswith(f"{below}/"))]
        if below and not inside:
            raise TraceError(f"{self}: the archive has no such member; it contains {', '.join(sorted(names)[:8])} ...")
        members = tuple([Source(self.path, name) for name in inside])
        for member in members:
            # The member is known to be a file, so the archive does not have to be searched for it
            # again.
            member.files = (member,)
        return members

    @cached_property
    def _head(self) -> list[str]:
        with self.files[0].open_binary() as stream:
            return stream.read(_HEAD_BYTES).decode("utf-8-sig", errors="replace").splitlines()

    def _lines(self, first: int) -> Iterator[tuple[int, str]]:
        with self._opened() as stream:
            limited = BufferedReader(LineLimit(stream, str(self), TraceError), _HEAD_BYTES)
            text = TextIOWrapper(limited, encoding="utf-8-sig")
            numbers = count(first + 1)
            try:
                yield from zip(numbers, map(str.removesuffix, text, repeat("\n")), strict=False)
            except UnicodeDecodeError:
                raise TraceError(f"{self}:{self._undecodable_line()}: not UTF-8 text") from None
            except _DAMAGED as error:
                # the failed read had already advanced the line counter
                line = next(numbers) - first - 1
                raise TraceError(f"{self}:{line}: the compressed data is damaged or cut off here ({error})") from None

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with self._raw() as raw:
            stream = cast(BinaryIO, raw)
            if raw.peek(2)[:2] == b"\x1f\x8b":
                stream = cast(BinaryIO, BufferedReader(_Gunzipped(raw, str(self))))
            try:
                start = cast(BufferedReader, stream).peek(1024)[:1024]
            except _DAMAGED as error:
                raise TraceError(f"{self}:1: the compressed data is damaged or cut off ({error})") from None
            if start.startswith(MAGIC) and self.columns is not None:
                stream = cast(BinaryIO, self.columns.as_csv())
            else:
                _check(start, f"{self}:1")
            yield stream

    @contextmanager
    def _raw(self) -> Iterator[BufferedReader]:
        try:
            if self.member is None:
                _refuse_unending(self.path)
                with self.path.open("rb") as file:
                    yield file
            else:
                with _archive(self.path) as archive:
                    # the search stops at the first match
                    info = next((info for info in archive if info.name == self.member), None)
                    inner = archive.extractfile(info) if info else None
                    if inner is None:
                        raise TraceError(f"{self}: there is no such file in the archive")
                    yield cast(BufferedReader, inner)
        except FileNotFoundError:
            raise TraceError(f"{self}: no such file{nearest_file(self.path)}") from None
        except OSError as error:
            if isinstance(error, gzip.BadGzipFile):
                raise
            raise TraceError(f"{self}: cannot be read ({error.strerror or error})") from None

    def _members(self) -> list[str]:
        try:
            with _archive(self.path) as archive:
                names = []
                for member in archive:
                    if member.isfile():
                        names.append(member.name)
                    if len(names) > _MOST_MEMBERS:
                        raise TraceError(
                            f"{self.path}: the archive has more than {_MOST_MEMBERS:,} files; unpack it first"
                        )
                return names
        except FileNotFoundError:
            raise TraceError(f"{self.path}: no such file{nearest_file(self.path)}") from None
        except (*_DAMAGED, OSError) as error:
            raise TraceError(f"{self.path}:1: the archive cannot be read ({error})") from None

    def _is_archive(self) -> bool:
        return self.path.name.endswith(_ARCHIVES)

    def _is_single(self) -> bool:
        return not self.path.is_dir() and not self._is_archive()

    def _undecodable_line(self) -> int:
        number = 0
        with self._opened() as stream, suppress(*_DAMAGED):
            for number, line in enumerate(stream, 1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError:
                    return number
        return number + 1


class _Gunzipped(gzip.GzipFile):
    """A stream of decompressed bytes that raises an error if the data expands far more than any
    trace would.
    """

    def __init__(self, packed: BufferedReader, where: str) -> None:
        super().__init__(fileobj=packed)
        self._packed, self._where = packed, where

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        data = super().read(size)
        if self.tell() > _FREE_BYTES and self.tell() > _RATIO * self._packed.tell():
            raise TraceError(
                f"{self._where}: {self._packed.tell():,} compressed bytes expand to more than {_RATIO} "
                "times as many, which is implausible for a trace; if the file is correct, decompress it first"
            )
        return data


@contextmanager
def _archive(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive, compressed or not.

    Raises:
        OSError, tarfile.TarError: The archive cannot be read.
    """
    _refuse_unending(path)
    with path.open("rb") as file:
        if file.peek(2)[:2] == b"\x1f\x8b":
            with tarfile.open(fileobj=_Gunzipped(file, str(path)), mode="r:") as archive:
                yield archive
        else:
            with tarfile.open(fileobj=file) as archive:
                yield archive


def _refuse_unending(path: Path) -> None:
    """Reject pipes and devices. A trace must have an end, and it is read more than once.

    Raises:
        TraceError: The path is a pipe or a device.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        what = "a named pipe" if path.is_fifo() else "a device or socket"
        raise TraceError(f"{path}: is {what}, but a trace has to be read more than once, so write it to a file first")


def _is_data(path: str) -> bool:
    return not any(fnmatch(part, pattern) for part in path.split("/") for pattern in _NO_DATA)


def _check(start: bytes, where: str) -> None:
    """Reject data that is clearly not a trace, with advice for each case."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not text:
        raise TraceError(f"{where}: the file is empty")
    if text.startswith(b"version https://git-lfs"):
        raise TraceError(
            f"{where}: this is a Git LFS pointer instead of the file itself; fetch the file with 'git lfs pull'"
        )
    if text.startswith((b"<!doctype html", b"<html")):
        raise TraceError(
            f"{where}: this is an HTML page instead of a trace, probably an error or login page from the download"
        )
    if start.startswith(MAGIC):
        raise TraceError(f"{where}: a Parquet or Arrow file within an archive or gzip file; unpack it first")
    for magic, kind in _PACKED.items():
        if start.startswith(magic):
            raise TraceError(f"{where}: {kind}")
    if b"\0" in start or whole_sum(byte < 9 or 13 < byte < 32 for byte in start) > len(start) // 20:
        raise TraceError(
            f"{where}: this is binary data instead of text (dagsim reads text, gzip, tar, Parquet and Arrow IPC files)"
        )

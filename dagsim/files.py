"""Safe access to files: writing a file completely or not at all, appending complete records, and
locks that allow only one writer.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO
from weakref import finalize

from dagsim.errors import InputError
from dagsim.spelling import nearest_file

try:
    import fcntl
except ImportError:  # Windows lacks this module, so files are not locked there
    fcntl = None  # type: ignore[assignment]


def parsed_json(text: str | bytes, *, unique: bool = False) -> Any:
    r"""Parse JSON text. If a name has two different values in the same object, the last one is
    used, or an error is raised with ``unique``.

    Raises:
        ValueError: The text is not JSON, is nested too deeply, contains a number with thousands of
            digits, or contains an unpaired surrogate (``\ud800``), which cannot be written to any
            output.
    """
    try:
        return whole_characters(json.loads(text, object_pairs_hook=unique_names if unique else None), text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object from its names and values.

    Raises:
        ValueError: A name has two different values.
    """
    built = dict(pairs)
    if len(built) < len(pairs):
        for name, value in pairs:
            if value != built[name]:
                raise ValueError(f"an object contains the key {name!r} twice, with different values")
    return built


_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def whole_characters(value: Any, written: str | bytes) -> Any:
    """Return a JSON value after checking that no string in it contains an unpaired surrogate.
    ``written`` is the JSON text of the value.

    Raises:
        ValueError: A string contains an unpaired surrogate.
    """
    written = written if isinstance(written, str) else written.decode("latin-1")
    if _HALF.search(written):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"the text contains an unpaired surrogate (\\u{ord(error.object[error.start]):x}), which UTF-8 "
                "cannot encode"
            ) from None
    return value


LONGEST_LINE_B = 1 << 26
"""Maximum number of bytes in a line. Readers keep a whole line in memory. No known trace has a line
as long as a megabyte."""


class LineLimit(RawIOBase):
    """A wrapper around a byte stream that limits the length of lines. If a line has more than
    ``LONGEST_LINE_B`` bytes, it raises an exception of type ``error`` that names the line.
    """

    def __init__(self, stream: BinaryIO, where: str, error: type[InputError] = InputError) -> None:
        self._stream, self._where, self._error = stream, where, error
        self._line, self._length = 1, 0

    def readable(self) -> bool:
        """Return True, because the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into ``buffer``, and return their number."""
        data = self._stream.read(len(buffer))
        self._length = len(data) - data.rfind(b"\n") - 1 if b"\n" in data else self._length + len(data)
        self._line += data.count(b"\n")
        if self._length > LONGEST_LINE_B:
            raise self._error(
                f"{self._where}:{self._line}: the line has more than {LONGEST_LINE_B:,} bytes, but no row "
                "is that long, so the file is damaged or has another format"
            )
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_lines(path: Path | str, error: type[InputError] = InputError) -> Iterator[TextIOWrapper]:
    """Open a UTF-8 file for reading line by line, decompressing it if its name ends in ``.gz``.

    Raises:
        OSError: The file cannot be opened.
        InputError: A line is too long (see ``LineLimit``). The exception has the type ``error``.
    """
    with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
        limited = BufferedReader(LineLimit(file, str(path), error), 1 << 16)  # type: ignore[arg-type]
        with TextIOWrapper(limited, encoding="utf-8") as text:
            yield text


def is_there(path: Path | str) -> bool:
    """Return True if the file or folder exists. The result is False for a text that cannot be a
    path, for example because it is too long.
    """
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


_WHY = {
    errno.ENOENT: "no such file",
    errno.EISDIR: "a folder, but a file was expected",
    errno.EACCES: "you are not allowed to read this file",
}


def why_unreadable(error: OSError) -> str:
    """Describe why a file cannot be opened, in the same words in every message."""
    near = nearest_file(Path(error.filename)) if error.errno == errno.ENOENT and error.filename else ""
    return _WHY.get(error.errno or 0, f"cannot be read: {error.strerror or error}") + near


def why_unwritable(error: OSError) -> str:
    """Describe why a file cannot be written, in the same words in every message."""
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "cannot be written, because a file has the name of a folder in this path; choose another folder"
    return f"cannot be written: {error.strerror or error}"


@contextmanager
def replaced(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path to which the ``with`` block writes. If the block succeeds, the file
    replaces ``path``. If the block fails, the file is removed.

    Readers see either the old file or the complete new one. With ``durable``, this is true even if
    the power fails. For a device or a pipe (``/dev/null``, ``/dev/stdout``), ``path`` itself is
    yielded, because replacing it with a file would remove it from the system.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        if durable:
            _sync(temporary)
        temporary.replace(path)
        if durable:
            _sync(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Error codes for data that did not reach the disk. A network file system may not report them until
a file is synchronised."""


def _sync(path: Path) -> None:
    """Wait until the file or folder is on disk.

    Raises:
        OSError: The data cannot be written to the disk.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in _LOST:  # ignore other errors, because some file systems cannot sync folders
            raise
    finally:
        os.close(handle)


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path for writing a file completely or not at all, as ``replaced`` does.
    Missing folders are created.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as temporary:
            yield temporary
    except OSError as error:
        raise InputError(f"{path}: {why_unwritable(error)}") from None


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, completely or not at all. Missing folders are created.

    Raises:
        InputError: The file cannot be written.
    """
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits. For a folder, hash all its files in the order of
    their names.
    """
    total = sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    total.update(chunk)
    return total.hexdigest()


def append(path: Path, data: bytes, at: int) -> int:
    """Write ``data`` to the file ``path`` after its first ``at`` bytes, and truncate the file after
    ``data``. Return the new size.

    If writing fails (for example, because the disk is full), the file keeps its first ``at`` bytes.
    If the process is killed while it is writing, the file contains at least these bytes.

    Raises:
        OSError: The file cannot be written, or is shorter than ``at``.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT if at == 0 else os.O_WRONLY, 0o666)
    try:
        if os.fstat(handle).st_size < at:
            raise OSError(None, f"is shorter than the {at} bytes that were written to it", str(path))
        os.ftruncate(handle, at)
        os.lseek(handle, at, os.SEEK_SET)
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(handle, left) :]
        except BaseException:
            os.ftruncate(handle, at)
            raise
    finally:
        os.close(handle)
    return at + len(data)


def cut(path: Path, size: int) -> None:
    """Truncate the file ``path`` to its first ``size`` bytes. With size 0, remove the file.

    Raises:
        OSError: The file cannot be truncated, or is shorter than ``size``.
    """
    there = path.stat().st_size if path.exists() else 0
    if there < size:
        raise OSError(None, f"is shorter than the {size} bytes that were written to it", str(path))
    if size == 0:
        path.unlink(missing_ok=True)
    elif there > size:
        os.truncate(path, size)


class Lock:
    """A lock that makes a process the only writer in a folder. It is released when the process
    ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._release: finalize[[int], Lock] | None = None

    @property
    def held(self) -> bool:
        """True if this object holds the lock."""
        return self._release is not None

    def claim(self) -> bool:
        """Take the lock. Return False if another process holds it.

        Raises:
            OSError: The lock file cannot be created.
        """
        if self._release is not None:
            return True
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _locked(handle):
            os.close(handle)
            return False
        self._release = finalize(self, os.close, handle)
        return True

    def is_free(self) -> bool:
        """Return True if it is certain that no process holds the lock. This call writes nothing."""
        if fcntl is None or self._release is not None:
            return False
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # another process holds the lock, or the file system does not support locks
            return False
        finally:
            os.close(handle)
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._release is not None:
            self._release()
            self._release = None


def _locked(handle: int) -> bool:
    """Lock an open file. Return False if another process holds the lock. Try three times, because
    ``is_free`` briefly takes the lock to test it.
    """
    for wait_s in (0.01, 0.05, None):
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if wait_s is None:
                return False
            time.sleep(wait_s)
        except OSError:
            # The file system does not support locks. Writing without a lock is better than not
            # writing at all.
            return True
    return False

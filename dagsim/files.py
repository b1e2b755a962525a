"""Files that appear whole or not at all, grow by whole pieces, and have one writer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from weakref import finalize

from dagsim.errors import InputError

try:
    import fcntl
except ImportError:  # not on Windows: nothing is locked there
    fcntl = None  # type: ignore[assignment]

__all__ = ["Lock", "append", "cut", "file_hash", "is_there", "replaced", "write_text"]


def is_there(path: Path | str) -> bool:
    """There is such a file or folder; there is none where the text cannot be a path at all (too long, say)."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


@contextmanager
def replaced(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path beside ``path`` to write to; it becomes ``path`` when the block is through, and is removed when
    the block fails: a reader finds what was there before, or all of what is new. ``durable``: also if the power
    fails."""
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


def _sync(path: Path) -> None:
    """Wait until the file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass  # some file systems cannot, for folders above all
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, whole or not at all; folders are made.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def file_hash(path: Path) -> str:
    """SHA-256 of a file, or of a folder's files by name, as hex digits."""
    total = sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    total.update(chunk)
    return total.hexdigest()


def append(path: Path, data: bytes, at: int) -> int:
    """Write ``data`` to ``path`` behind its first ``at`` bytes, and cut off what stood there; returns the new size.

    Where that fails (the disk is full), the file keeps its first ``at`` bytes. A process that is killed meanwhile may
    leave more than these, never fewer.

    Raises:
        OSError: It cannot be written, or is shorter than ``at``.
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
    """Cut ``path`` off behind its first ``size`` bytes; a file without any is removed.

    Raises:
        OSError: It cannot be, or it is shorter.
    """
    there = path.stat().st_size if path.exists() else 0
    if there < size:
        raise OSError(None, f"is shorter than the {size} bytes that were written to it", str(path))
    if size == 0:
        path.unlink(missing_ok=True)
    elif there > size:
        os.truncate(path, size)


class Lock:
    """The right to write to a folder: of one process at a time, and gone with it, however it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._release: finalize[[int], Lock] | None = None

    @property
    def held(self) -> bool:
        """It is ours."""
        return self._release is not None

    def claim(self) -> bool:
        """Take it, unless another has it; false then.

        Raises:
            OSError: The file cannot be made.
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
        """Nobody has it, so far as can be known; nothing is written, and a claim meanwhile waits a moment."""
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
        except OSError:  # somebody has it, or the file system knows no locks
            return False
        finally:
            os.close(handle)
        return True

    def release(self) -> None:
        """Give it back."""
        if self._release is not None:
            self._release()
            self._release = None


def _locked(handle: int) -> bool:
    """Lock an open file, also where ``is_free`` looks at it right now; false if another has it."""
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
            return True  # a file system without locks: better unguarded than not at all
    return False

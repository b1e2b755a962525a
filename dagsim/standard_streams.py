"""The standard streams of this process."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class OutputError(Exception):
    """Standard output cannot be written to. This class is not an ``OSError``, because code that
    prints while it writes a file would report an ``OSError`` as an error in that file.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror or error}")
        self.unread = error.errno == errno.EPIPE
        """True if the reader has closed the pipe."""


class _StandardStream(io.RawIOBase):
    """Standard output or standard error, with errors that name the stream. After the first error,
    all further output is dropped, because Python would otherwise fail on exit when it flushes the
    rest.
    """

    def __init__(self, number: int, *, raises: bool) -> None:
        super().__init__()
        self._number, self._raises, self._lost = number, raises, False

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left and not self._lost:
                left = left[os.write(self._number, left) :]
        except OSError as error:
            self._lost = True
            if self._raises:
                raise OutputError(error) from None
        return size


def steady_streams() -> None:
    """Make the standard streams of a command safe. Output to a closed stream (``>&-``) is
    discarded, and characters that the terminal's encoding lacks are written as escape sequences. An
    error on standard output is reported. An error on standard error is ignored, because a run must not
    fail when only a message is lost.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # open() uses the lowest free file descriptor, which is ``number``
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    output, errors = (getattr(stream, "encoding", None) or "utf-8" for stream in (sys.stdout, sys.stderr))
    buffered = io.BufferedWriter(_StandardStream(1, raises=True))
    sys.stdout = io.TextIOWrapper(buffered, output, "backslashreplace", line_buffering=os.isatty(1))
    quiet: Any = _StandardStream(2, raises=False)  # unbuffered, as Python's own stream is with -u
    sys.stderr = io.TextIOWrapper(quiet, errors, "backslashreplace", line_buffering=True, write_through=True)


@contextmanager
def without_output() -> Iterator[None]:
    """Discard everything that this process, including C libraries, writes to standard output.

    For some integer programs, HiGHS prints debugging output even if ``disp`` is off. This output
    would end up in the JSON output of a command.
    """
    library = ctypes.CDLL(None)
    sys.stdout.flush()
    library.fflush(None)
    stdout = os.dup(1)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        library.fflush(None)
        os.dup2(stdout, 1)
        os.close(stdout)

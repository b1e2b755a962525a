"""Worker processes, signals that stop a command, and the output streams of this process."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

SIGNALS = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
"""Signals that ask a run to stop."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def end_with_parent() -> None:
    """Make a worker process exit when its parent has ended for any reason."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    # imported here, because the import is slow and most commands start no workers
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def leave_to_workers(pool: ProcessPoolExecutor) -> None:
    """If all workers of a pool have been started, close this process's copy of the write end of the
    pipe through which they send results.

    A worker may be killed while it is sending a result. If this process still had the write end
    open, the pool's thread would wait forever for the rest of the result, and ``shutdown`` would
    wait for the thread.
    """
    if len(getattr(pool, "_processes", None) or ()) == getattr(pool, "_max_workers", None):
        _close_results(pool)


def _close_results(pool: ProcessPoolExecutor) -> None:
    writer = getattr(getattr(pool, "_result_queue", None), "_writer", None)
    if writer is not None:
        writer.close()


def kill_workers(pool: ProcessPoolExecutor) -> None:
    """End a pool and its processes immediately, regardless of what they are doing. Workers started
    in ``starting`` ignore SIGTERM, so they are killed.
    """
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.kill()
    _close_results(pool)
    pool.shutdown(cancel_futures=True)


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
    error on standard output is reported. An error on standard error is ignored, because a message
    that cannot be shown is no reason to lose a run.
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


def return_freed_memory() -> None:
    """Return freed memory to the operating system if the C library supports it (glibc does). After
    millions of jobs have been read, a third of the process's memory is free but too fragmented for
    the next large columns.
    """
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


@contextmanager
def starting(*, main: bool = False) -> Iterator[None]:
    """Start worker processes inside this block.

    The workers ignore stop signals, because their parent ends them. Numeric libraries use one
    thread in each worker. Workers import the main script only with ``main=True``, which is needed
    for objects that are defined in it.
    """
    with _signals_blocked(), _one_thread(), nullcontext() if main else _no_main():
        yield


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _no_main() -> Iterator[None]:
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class Stopped(KeyboardInterrupt):
    """The exception for a stop signal other than Ctrl-C. It is a ``KeyboardInterrupt``, so code
    that handles Ctrl-C handles it as well.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)  # NumPy re-creates exceptions from ``args``, which must therefore contain the number
        self.number = number


def exit_code(stop: KeyboardInterrupt) -> int:
    """Return the exit code for a stop: 128 plus the number of the signal, as in shells. It is 130
    for Ctrl-C, 143 for SIGTERM and 129 for SIGHUP.
    """
    return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)


_stopped = threading.Event()


def was_stopped() -> bool:
    """Return True if a signal has asked this process to stop."""
    return _stopped.is_set()


class Stops:
    """A context manager for stop signals. In its block, each signal is raised as a
    ``KeyboardInterrupt``. Signals can be held back for a time, and no signal is lost.

    NumPy drops any exception raised while it looks up attributes (of an enum, for example), even a
    KeyboardInterrupt. Each signal is therefore also recorded, and is raised by ``release`` at the
    latest. A signal that the caller has ignored (``nohup``) stays ignored. Outside the main thread
    this class does nothing.
    """

    def __init__(self) -> None:
        self._held = False
        self.received: int | None = None
        """The number of the last signal."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def hold(self) -> None:
        """Hold back signals: record them, but do not raise them."""
        self._held = True

    def release(self) -> None:
        """Raise signals again. If one was recorded in the meantime, raise it immediately."""
        self._held = False
        if self.received is not None:
            raise _stop(self.received)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self.received = number
        _stopped.set()
        if not self._held:
            raise _stop(number)


def _stop(number: int) -> KeyboardInterrupt:
    return KeyboardInterrupt() if number == signal.SIGINT else Stopped(number)

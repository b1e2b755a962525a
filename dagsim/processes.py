"""Worker processes: single-threaded, unaffected by Ctrl-C, and ended with their parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType

__all__ = ["SIGNALS", "end_with_parent", "starting"]

SIGNALS = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
"""Signals that ask a run to stop."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def end_with_parent() -> None:
    """In a worker: exit as soon as the parent is gone, however it ended."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    from multiprocessing import parent_process  # takes a while to import, and most commands start no worker

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def starting(*, main: bool = False) -> Iterator[None]:
    """Start worker processes inside this block.

    They ignore the signals that stop a run, since their parent ends them, and use one thread in
    numeric libraries. They import the main script only with ``main=True``, which objects defined
    there need.
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

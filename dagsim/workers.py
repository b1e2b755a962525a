"""Worker processes: how they start, and how they and their pools end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING

from dagsim.stops import SIGNALS

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

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
    if len(pool._processes or ()) == pool._max_workers:  # type: ignore[attr-defined]
        _close_results(pool)


def _close_results(pool: ProcessPoolExecutor) -> None:
    if pool._result_queue is not None:
        pool._result_queue._writer.close()  # type: ignore[attr-defined]


def kill_workers(pool: ProcessPoolExecutor) -> None:
    """End a pool and its processes immediately, regardless of what they are doing. Workers started
    in ``starting`` ignore SIGTERM, so they are killed.
    """
    for process in list((pool._processes or {}).values()):
        process.kill()
    _close_results(pool)
    pool.shutdown(cancel_futures=True)


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

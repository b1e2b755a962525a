"""Worker processes that are killed."""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from types import FrameType

import pytest

from dagsim.workers import kill_workers, leave_to_workers

WAIT_S = 120


def _dies_within_its_result() -> None:
    """Send the first bytes of a long result, and die as if killed by the system."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and "result_queue" not in frame.f_locals:
        frame = frame.f_back
    assert frame is not None
    os.write(frame.f_locals["result_queue"]._writer.fileno(), struct.pack("!i", 1_000_000) + b"x")
    os._exit(9)


def _ends(task: Callable[[], object]) -> bool:
    """Whether a call ends; if not, it waits for ever in its thread."""
    thread = threading.Thread(target=task, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    return not thread.is_alive()


def _submitted() -> tuple[ProcessPoolExecutor, Future[None]]:
    pool = ProcessPoolExecutor(1, get_context("spawn"))
    return pool, pool.submit(_dies_within_its_result)


def test_a_worker_that_is_killed_within_its_result_breaks_its_pool() -> None:
    pool, result = _submitted()
    leave_to_workers(pool)
    with pytest.raises(BrokenProcessPool):
        result.result(WAIT_S)
    assert _ends(pool.shutdown)


def test_a_pool_with_half_a_result_can_be_ended() -> None:
    pool, _ = _submitted()
    (worker,) = pool._processes.values()
    worker.join(WAIT_S)
    assert _ends(lambda: kill_workers(pool))

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from dagsim.errors import SimulationError
from dagsim.experiment import process_pool as workers
from dagsim.experiment.process_pool import in_order


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WORTH_S", -1.0)


def slow_first(item: int, tell: Callable[[int], None]) -> tuple[int, int, str | None]:
    """Its square, later the smaller the item: outcomes come in the wrong order."""
    tell(10 * item)
    time.sleep(0.3 / (1 + item))
    return item**2, os.getpid(), os.environ.get("OMP_NUM_THREADS")


def odd_fails(item: int, tell: Callable[[int], None]) -> int:
    if item == 7:
        raise SimulationError("seven")
    if item == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_outcomes_come_in_order_from_processes_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers._Pool, "is_ready", ready_at_last)
    heard: list[tuple[int, int, int]] = []
    items = list(range(20))
    outcomes = list(in_order(slow_first, items, 2, lambda *progress: heard.append(progress)))
    assert [square for square, _, _ in outcomes] == [item**2 for item in items]
    there = {(pid, threads) for _, pid, threads in outcomes if pid != os.getpid()}
    assert {threads for _, threads in there} == {"1"}
    assert 1 <= len(there) <= 2
    assert {(index, count) for index, _, count in heard} == {(item, 10 * item) for item in items}
    assert not [pid for pid, _ in there if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_error_comes_at_its_turn() -> None:
    outcomes: list[int] = []
    with pytest.raises(SimulationError, match="seven"):
        outcomes.extend(in_order(odd_fails, [*range(7), 7, 8], 2))
    outcomes.clear()
    with pytest.raises(SimulationError, match="seven"):  # noqa: PT012
        for outcome in in_order(odd_fails, list(range(9)), 2):
            outcomes.append(outcome)
    assert outcomes == list(range(7))


def test_a_worker_that_is_killed_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [0] * 3 + [9]
    monkeypatch.setattr(workers._Pool, "is_ready", ready_at_last)
    with pytest.raises(SimulationError, match=r"a worker process was killed \(signal 9"):
        list(in_order(odd_fails, items, 2))


def test_a_killed_worker_leaves_no_other_worker_behind() -> None:
    """From Python 3.12 on, the executor would wait for the other worker, which ignores SIGTERM."""
    pool = workers._Pool(odd_fails, 2, telling=False)
    try:
        wait(pool._first)
        with pytest.raises(BrokenProcessPool):
            list(pool.run([0, 9, 0, 0], 0, lambda *_: None, lambda _: True))
        assert "a worker process was killed (signal 9" in str(pool.killed())
        assert [process.is_alive() for process in pool._processes] == [False, False]
    finally:
        pool.end()


def test_a_worker_that_was_killed_before_it_is_given_anything_is_the_same_error() -> None:
    pool = workers._Pool(odd_fails, 1, telling=False)
    try:
        while not pool.is_ready():
            time.sleep(0.01)
        (process,) = pool._processes
        process.kill()
        process.join()
        with pytest.raises(BrokenProcessPool):
            list(pool.run([0, 2], 0, lambda *_: None, lambda _: True))
        assert "a worker process was killed (signal 9" in str(pool.killed())
    finally:
        pool.end()


def wait_for(item: tuple[int, int, Path], tell: Callable[[int], None]) -> list[int]:
    """The items that were done before it; it goes on once the one that it names is."""
    number, other, folder = item
    while other >= 0 and not (folder / str(other)).exists():
        time.sleep(0.01)
    done = sorted(int(path.name) for path in folder.iterdir())
    (folder / str(number)).touch()
    return done


@pytest.mark.parametrize(("held_bytes", "ahead"), [(1 << 28, 60), (1, 1)])
def test_workers_run_ahead_of_a_long_item_as_far_as_memory_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held_bytes: int, ahead: int
) -> None:
    monkeypatch.setattr(workers._Pool, "is_ready", ready_at_last)
    monkeypatch.setattr(workers, "_HELD_BYTES", held_bytes)
    items = [(0, ahead, tmp_path), *((number, -1, tmp_path) for number in range(1, 61))]
    first, *others = in_order(wait_for, items, 2)
    assert first == list(range(1, ahead + 1))
    assert len(others) == 60


READY = workers._Pool.is_ready


def ready_at_last(self: workers._Pool[int, int]) -> bool:
    """Wait for the workers, so that this process does none of the work that kills."""
    while not READY(self):
        time.sleep(0.01)
    return True


def test_what_is_no_longer_wanted_is_left_out_however_many_workers() -> None:
    for count in (1, 2):
        outcomes: list[int] = []
        unwanted: set[int] = set()
        for outcome in in_order(odd_fails, [0, 1, 2, 0, 1, 2], count, wanted=lambda item: item not in unwanted):  # noqa: B023
            outcomes.append(outcome)
            if outcome == 1:
                unwanted.add(1)
        assert outcomes == [0, 1, 2, 0, 2]


def test_little_work_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WORTH_S", 3.0)
    assert {pid for _, pid, _ in in_order(slow_first, [50, 60, 70], 2)} == {os.getpid()}

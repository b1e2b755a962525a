"""Sia's program on instances that can be solved by hand."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from dagsim.errors import ModelError
from dagsim.families.elastic.sia import Configuration, choose_configurations

OPTIONS = [Configuration("t4", 1, 1), Configuration("t4", 1, 2), Configuration("a100", 1, 1)]
GPUS = {"t4": 2, "a100": 1}
ROWS = np.array([[1.0, 1.8, 4.0], [1.0, 1.5, 3.0]])


def test_the_job_that_gains_most_gets_the_fast_gpu() -> None:
    # 4 ** -.5 = .5 and 1.5 ** -.5 = .82, against 1.8 ** -.5 = .75 and 3 ** -.5 = .58
    choice = choose_configurations(ROWS, OPTIONS, GPUS, present=[None, None], restart_factors=[1.0, 1.0])
    assert choice.chosen == [2, 1]
    assert choice.objective == pytest.approx(0.5 + 0.82)


def test_lines_of_the_solver_are_discarded(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    solve, library = optimize.milp, ctypes.CDLL(None)

    def noisy(*args: Any, **options: Any) -> Any:
        library.printf(b"lines for developers\n")
        return solve(*args, **options)

    monkeypatch.setattr(optimize, "milp", noisy)
    choose_configurations(ROWS, OPTIONS, GPUS, present=[None, None], restart_factors=[1.0, 1.0])
    print("the answer")
    library.fflush(None)
    assert capfd.readouterr().out == "the answer\n"


def test_a_restart_must_pay() -> None:
    # All others of the first job at a third: (4 / 3) ** -.5 = .87, against .75 where it is.
    choice = choose_configurations(ROWS, OPTIONS, GPUS, present=[1, None], restart_factors=[1 / 3, 1.0])
    assert choice.chosen == [1, 2]
    assert choice.objective == pytest.approx(0.75 + 0.58)


def test_a_locked_job_keeps_its_configuration() -> None:
    choice = choose_configurations(ROWS, OPTIONS, GPUS, present=[0, None], restart_factors=[1.0, 1.0], locked=[0])
    assert choice.chosen[0] == 0


def test_a_job_waits_where_nothing_is_left() -> None:
    choice = choose_configurations(ROWS, OPTIONS, {"t4": 0, "a100": 1}, present=[None] * 2, restart_factors=[1.0] * 2)
    assert choice.chosen == [2, None]
    assert choice.objective == pytest.approx(0.5 + 1.1)


def test_no_jobs_cost_nothing() -> None:
    empty = choose_configurations(np.empty((0, 3)), OPTIONS, GPUS, present=[], restart_factors=[])
    assert empty == ([], 0.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"present": [None]}, r"goodputs of shape \(2, 3\), 3 configurations, 1 present ones and 2 restart factors"),
        ({"locked": [1]}, "job 1 is locked, but has no configuration"),
        ({"power": 0.5}, "positive goodputs and a negative power"),
        ({"present": [1, 1], "locked": [0, 1]}, "check that the locked jobs fit"),
    ],
)
def test_an_impossible_program_is_refused(change: dict[str, object], words: str) -> None:
    arguments = {"present": [None, None], "restart_factors": [1.0, 1.0], **change}
    with pytest.raises(ModelError, match=words):
        choose_configurations(ROWS, OPTIONS, GPUS, **arguments)  # type: ignore[arg-type]

"""Progress on standard error."""

from __future__ import annotations

import pytest

from dagsim.families.learning.training.progress import training_progress
from dagsim.families.learning.training.trainer import Progress


def test_a_piped_training_prints_a_line_every_half_minute_with_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    with training_progress(wanted=True, clock=lambda: now) as watch:
        assert watch is not None
        for seconds, progress in (
            (10.0, Progress("best heuristic: fifo", 0, 30)),
            (31.0, Progress("best heuristic: sjf", 6, 30)),  # 21 s for 6, so 84 s for the other 24
            (40.0, Progress("training", 0, 100)),
            (60.0, Progress("training", 10, 100, 1.25)),  # too early for a line
            (80.0, Progress("training", 20, 100, 0.98)),  # 40 s for 20, so 160 s for the other 80
        ):
            now = seconds
            watch(progress)
    assert capsys.readouterr().err.splitlines() == [
        "best heuristic: sjf: 6 of 30, 0:01:24 left",
        "training: 20 of 100, 0.9800 of the reference, 0:02:40 left",
    ]


def test_a_quiet_training_prints_nothing() -> None:
    with training_progress(wanted=False) as watch:
        assert watch is None

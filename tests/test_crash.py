"""``scripts/crash.py`` in short: a few kills at random moments, and a few writes that fail."""

from __future__ import annotations

import random
from pathlib import Path

import crash
import pytest


@pytest.mark.parametrize(("command", "workers", "kills"), [("eval", 2, 2), ("baseline", 1, 1)])
def test_killed_at_random_moments_nothing_is_lost(command: str, workers: int, kills: int, tmp_path: Path) -> None:
    outcome = crash.crash(command, kills, tmp_path, random.Random(7), workers)
    assert outcome.faults == []
    assert outcome.kills == kills
    assert outcome.resumed == kills - outcome.before_its_folder


@pytest.mark.parametrize(("command", "step", "first"), [("eval", 14, 3), ("compare", 3, 1), ("list", 1, 0)])
def test_a_write_that_fails_loses_no_result_and_leaves_no_half_file(
    command: str, step: int, first: int, tmp_path: Path
) -> None:
    outcome = crash.inject(command, tmp_path, step, first)
    assert outcome.faults == []
    assert outcome.kills >= 3
    assert outcome.resumed >= (3 if command == "eval" else 0)

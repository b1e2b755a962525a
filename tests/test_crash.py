"""``scripts/crash.py`` in short: a few kills at random moments."""

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

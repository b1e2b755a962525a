"""Small schedules to draw."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.drawn_schedules import EIGHT, RUNS, schedule_of, shared_gpus  # noqa: F401  fixtures

from dagsim.model.log import Schedule


@pytest.fixture
def schedule(schedule_of: Callable[..., Schedule]) -> Schedule:  # noqa: F811  the fixture
    """Three runs on eight GPUs."""
    return schedule_of(EIGHT, RUNS)

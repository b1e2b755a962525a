"""Small schedules to draw."""

from __future__ import annotations

from support.drawn_schedules import schedule_of, shared_gpus  # noqa: F401  fixtures

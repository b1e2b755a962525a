"""Small schedules to draw."""

from __future__ import annotations

from drawn_schedules import schedule_of, shared_gpus  # noqa: F401  fixtures

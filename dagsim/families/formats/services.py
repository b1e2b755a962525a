"""Services that readers of published traces use (see ``dagsim.services``)."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dagsim.services import FamilyService


@FamilyService
def measured_applications(
    folders: Path | str | Sequence[Path | str], names: Sequence[str] | None = None, cluster: str | None = None
) -> dict[str, Any]:
    """Read the folders with Pollux's measurements of applications. Return the applications by name."""


@FamilyService
def seconds_alone(profile: Any, gpus: int, batch: int) -> float:
    """Return how many seconds an application takes on ``gpus`` GPUs if nothing else is running."""

"""Services that the web pages use (see ``dagsim.services``)."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from pathlib import Path
from typing import Any

from dagsim.services import FamilyService


@FamilyService
def queue_snapshots(
    root: Path,
    config: Path,
    history: Path | None,
    policy: str | None,
    futures: int,
    watch: tuple[str | None, float] | None,
) -> Any:
    """Return the snapshots of a queue in a folder, and the forecasts made from them on request. If
    ``watch`` is given, they are watched continuously. It contains a command that prints snapshots
    (or None), and the seconds between two snapshots.
    """

"""Services that capacity planning uses (see ``dagsim.services``)."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dagsim.services import FamilyService

if TYPE_CHECKING:
    from dagsim.experiment.store import Store
    from dagsim.model.queues import QueueTree


@FamilyService
def changed_queues(queues: QueueTree | None, file: Path) -> tuple[QueueTree, tuple[str, ...]]:
    """Return the queues after applying the changes in a file (``dagsim whatif --alternative``), and
    remarks on that file.
    """


@FamilyService
def write_page(folders: Sequence[Store], path: Path) -> Path:
    """Write the report of the runs to ``path`` as one HTML file and return ``path``."""

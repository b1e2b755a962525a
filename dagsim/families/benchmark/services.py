"""Services that the benchmark uses (see ``dagsim.services``)."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dagsim.services import FamilyService

if TYPE_CHECKING:
    from dagsim.report.grid import Grid


@FamilyService
def page_of_tables(title: str, grids: Sequence[Grid]) -> str:
    """Return tables as one HTML page that loads no other files."""

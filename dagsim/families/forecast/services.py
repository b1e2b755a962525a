"""Services that forecasts use (see ``dagsim.services``)."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dagsim.services import FamilyService

if TYPE_CHECKING:
    from dagsim.report.grid import Grid


@FamilyService
def page_of_parts(
    title: str, sentences: Sequence[str], parts: Mapping[str, Sequence[str | Grid]], live: Sequence[str] = ()
) -> str:
    """Return a page with its main result in sentences above its parts. A part has a heading, and
    contains drawings in HTML and tables. ``live`` are the ids of runs for which the page asks its
    server for changes.
    """

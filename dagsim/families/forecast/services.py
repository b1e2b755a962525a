"""Services that forecasts use (see ``dagsim.services``)."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagsim.services import FamilyService

if TYPE_CHECKING:
    from dagsim.model.cluster import Cluster
    from dagsim.model.queues import QueueTree
    from dagsim.report.grid import Grid


@FamilyService
def past_usage(log: Any, cluster: Cluster, queues: QueueTree) -> Any:
    """Return the usage in a log, for a policy whose priorities depend on past usage. The result's
    method ``beginning`` returns the policy for a simulation that begins after that usage."""


@FamilyService
def load_searches() -> None:
    """Load the compiled search functions of a policy in a process that will run many simulations."""


@FamilyService
def page_of_parts(
    title: str, sentences: Sequence[str], parts: Mapping[str, Sequence[str | Grid]], live: Sequence[str] = ()
) -> str:
    """Return a page with its main result in sentences above its parts. A part has a heading, and
    contains drawings in HTML and tables. ``live`` are the ids of runs for which the page asks its
    server for changes.
    """

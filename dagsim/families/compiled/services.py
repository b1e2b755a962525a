"""Services that the compiled engine uses (see ``dagsim.services``)."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from dagsim.services import FamilyService


@FamilyService
def compile_episodes(*, trials: bool = False) -> bool:
    """Compile the code of episodes and cache it for later processes. Return True if anything had to
    be compiled.
    """

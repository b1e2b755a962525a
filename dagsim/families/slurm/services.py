"""Services that Slurm's policies use (see ``dagsim.services``)."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dagsim.services import FamilyService

_F = TypeVar("_F", bound=Callable[..., Any])


@FamilyService
def compiled_function(function: _F, *called: Callable[..., Any]) -> _F:
    """Return the function, compiled if Numba is installed. ``called`` are the functions that it
    calls, directly or through others."""

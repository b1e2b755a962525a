"""The smallest degree that is in time by the look-ahead."""

from __future__ import annotations

from collections.abc import Iterable

from dagsim.errors import ConfigError
from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.view import RampView

__all__ = ["OnTime"]


class OnTime:
    """The smallest degree of at least ``least`` that is in time where it can be placed now. None: turned away.

    A larger ``least`` ends jobs sooner and keeps blocks of one size, which fragment the fabric less.

    Raises:
        ConfigError: ``least`` is below 1.
    """

    def __init__(self, least: int = 1, placer: str | None = None) -> None:
        if least < 1:
            raise ConfigError(f"least must be at least 1, got {least!r}")
        self.least = least
        self.placer = placer

    def decide(self, view: RampView) -> Iterable[Partition]:
        """The degree, by one look-ahead for each that is tried."""
        limit_s = view.job.acceptable_s * (1 + view.rules.tolerance)
        for degree in view.degrees:
            if degree >= self.least:
                outlook = view.outlook(degree, self.placer)
                if outlook is not None and outlook.jct_s <= limit_s:
                    return (Partition(view.number, degree, self.placer),)
        return (Partition(view.number, 0),)

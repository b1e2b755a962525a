"""Split as little as the acceptable completion time allows."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.view import RampView

__all__ = ["AcceptableJct"]


class AcceptableJct:
    """The smallest degree in time if splitting were free, else the largest. It is "Para_min" of PAC-ML."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """The smallest degree of at least sequential / acceptable time."""
        wanted = ceil(view.job.sequential_s / view.job.acceptable_s) if view.job.acceptable_s else 1
        degree = next((degree for degree in view.degrees if degree >= wanted), view.degrees[-1])
        return (Partition(view.number, degree),)

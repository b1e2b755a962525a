"""A degree drawn at random."""

from __future__ import annotations

from collections.abc import Iterable

from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.view import RampView

__all__ = ["RandomDegree"]


class RandomDegree:
    """A degree drawn among those offered, each as likely; 0 only where nothing else is."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Draw from the simulation's stream ``policy``."""
        choices = view.degrees[1:]
        if not choices:
            return (Partition(view.number, 0),)
        return (Partition(view.number, int(view.stream("policy").choice(choices))),)

"""Policies of one degree for all jobs, or the nearest that is offered."""

from __future__ import annotations

from collections.abc import Iterable

from dagsim.errors import ConfigError
from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.view import RampView

__all__ = ["ConstantDegree", "MaxParallelism", "MinParallelism", "NoParallelism", "SipMlDegree"]


class NoParallelism:
    """Every job on one GPU; turned away where none is free."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Degree 1, or 0."""
        return (Partition(view.number, min(1, view.degrees[-1])),)


class MinParallelism:
    """Every job split two ways where it can be, else on one GPU."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Degree 2, 1 or 0."""
        return (Partition(view.number, max(degree for degree in view.degrees if degree <= 2)),)


class MaxParallelism:
    """Every job split as far as it can be ("Para_max" of PAC-ML)."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """The largest degree."""
        return (Partition(view.number, view.degrees[-1]),)


class SipMlDegree:
    """Split up to ``degree`` ways: the largest degree offered that is not above it (Khani et al. 2021).

    Raises:
        ConfigError: ``degree`` is below 1.
    """

    def __init__(self, degree: int = 8) -> None:
        self.degree = _checked(degree)

    def decide(self, view: RampView) -> Iterable[Partition]:
        """``degree`` or the next below it."""
        return (Partition(view.number, max(degree for degree in view.degrees if degree <= self.degree)),)


class ConstantDegree:
    """Split exactly ``degree`` ways, or turn the job away. Blocks of one power of two tile the fabric without gaps.

    Raises:
        ConfigError: ``degree`` is below 1.
    """

    def __init__(self, degree: int = 4) -> None:
        self.degree = _checked(degree)

    def decide(self, view: RampView) -> Iterable[Partition]:
        """``degree`` or 0."""
        return (Partition(view.number, self.degree if self.degree in view.degrees else 0),)


def _checked(degree: int) -> int:
    if degree < 1:
        raise ConfigError(f"degree must be at least 1, got {degree!r}")
    return degree

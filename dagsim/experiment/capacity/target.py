"""The target that a cluster is to meet: ``wait_s.p95<600``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan

from dagsim.errors import ConfigError, InputError
from dagsim.metrics import glossary
from dagsim.metrics.standings import Mean, RunMetrics, lower_is_better, mean, not_done
from dagsim.registry import nearest

__all__ = ["Met", "Target"]

_FORM = re.compile(r"\s*([A-Za-z_][\w.\[\]-]*)\s*(<=?|>=?)\s*([0-9.eE+-]+)\s*")


@dataclass(frozen=True, slots=True)
class Met:
    """The value of the target's metric on one cluster."""

    value: Mean
    """The mean over the windows, with its interval."""
    lost: int
    """Jobs of all windows that were turned away or not finished."""
    meets: bool


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the mean of a metric over the windows."""

    metric: str
    above: bool
    """The metric must be above the bound, not below it."""
    bound: float

    @classmethod
    def read(cls, text: str) -> Target:
        """``wait_s.p95<600``, or with ``>`` where more is better.

        Raises:
            ConfigError: It is written otherwise, there is no such metric, or more machines lead away from it.
        """
        found = _FORM.fullmatch(text)
        try:
            bound = float(found[3]) if found else nan
        except ValueError:
            bound = nan
        if found is None or not isfinite(bound):
            raise ConfigError(f"--target {text!r}: expected a metric, < or >, and a number, as wait_s.p95<600")
        metric, above = found[1], found[2].startswith(">")
        names = [term.name for term in glossary()]
        if metric not in names and "[" not in metric:
            raise ConfigError(f"--target {text!r}: there is no metric {metric!r}{nearest(metric, names)}")
        if above == lower_is_better(metric):
            raise ConfigError(f"--target {text!r}: {metric} is better when it is {'lower' if above else 'higher'}")
        return cls(metric, above, bound)

    def __str__(self) -> str:
        return f"{self.metric} {'>' if self.above else '<'} {self.bound:g}"

    def of(self, lines: Sequence[RunMetrics], lost_today: int = 0) -> Met:
        """The value of the runs, and if it meets the target: never where more than ``lost_today`` jobs are lost.

        Raises:
            InputError: The runs have no such metric.
        """
        if not any(self.metric in line.metrics for line in lines):
            raise InputError(f"--target {self}: the runs have no metric {self.metric!r}")
        value = mean(lines, self.metric)
        lost = sum(map(not_done, lines))
        within = value.value > self.bound if self.above else value.value < self.bound
        return Met(value, lost, within and lost <= lost_today)

    def is_sure(self, met: Met) -> bool:
        """The whole interval lies on the right side of the bound."""
        far = met.value.low if self.above else met.value.high
        return met.meets and isfinite(far) and (far > self.bound if self.above else far < self.bound)

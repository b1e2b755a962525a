"""Energy drawn by the GPUs, from the log of the runs that hold them.

P(u) = idle + (busy - idle) x u for a GPU whose share u is held and working, where busy =
busy_fraction x TDP. Nodes that are down draw nothing. CPUs, memory and cooling are not included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dagsim.errors import ModelError
from dagsim.metrics.columns import Floats, Source, columns, total
from dagsim.metrics.steps import Steps
from dagsim.metrics.utilization import gpu_seconds, node_types
from dagsim.model import GpuType

__all__ = ["DEFAULT_POWER", "Energy", "PowerModel", "Watts", "energy", "job_energy_j", "watts"]

_J_PER_KWH = 3.6e6


class Watts(NamedTuple):
    """Watts of one GPU that no run holds, and of one that runs hold entirely."""

    idle: float
    busy: float


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Watts per GPU type: idle from the type, busy = idle + (``busy_fraction`` x TDP - idle) x
    ``activity``.

    ``busy_fraction`` is the fraction of the TDP that training draws while it computes (0.75 to 0.9
    for deep learning; an assumption, therefore a parameter). ``activity`` is the mean share of its
    time that a held GPU computes. ``watts`` overrides types by name: ``{"T4": (9.0, 60.0)}``.

    Raises:
        ModelError: A fraction is outside 0..1, or idle watts are negative or above the busy ones.
    """

    busy_fraction: float = 0.8
    activity: float = 1.0
    watts: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not 0 < self.busy_fraction <= 1:
            raise ModelError(f"power: busy_fraction must lie above 0 and up to 1, got {self.busy_fraction!r}")
        if not 0 <= self.activity <= 1:
            raise ModelError(f"power: activity must lie in 0..1, got {self.activity!r}")
        for name, (idle, busy) in self.watts.items():
            if not 0 <= idle <= busy:
                raise ModelError(
                    f"power: watts of {name!r} must be (idle, busy) with 0 <= idle <= busy, got {(idle, busy)!r}"
                )

    def of(self, gpu: GpuType) -> Watts:
        """Return the watts of one GPU type.

        Raises:
            ModelError: ``busy_fraction`` of the type's TDP is below its idle watts.
        """
        if gpu.name in self.watts:
            return Watts(*self.watts[gpu.name])
        working = self.busy_fraction * gpu.tdp_watts
        if working < gpu.idle_watts:
            raise ModelError(
                f"power: busy_fraction {self.busy_fraction!r} of {gpu.name}'s TDP ({gpu.tdp_watts:g} W) lies below its "
                f"idle {gpu.idle_watts:g} W"
            )
        return Watts(gpu.idle_watts, gpu.idle_watts + (working - gpu.idle_watts) * self.activity)


DEFAULT_POWER = PowerModel()


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy drawn in the window, in kWh."""

    allocated_kwh: float
    """Energy of GPUs while runs held them (of a shared GPU, the held share)."""
    idle_kwh: float
    """Energy of GPUs that were up and not held."""
    by_type_kwh: dict[str, float]
    """Sum of both per GPU type."""

    @property
    def total_kwh(self) -> float:
        """Sum of allocated and idle energy, in kWh."""
        return self.allocated_kwh + self.idle_kwh

    @property
    def total_j(self) -> float:
        """Sum of allocated and idle energy, in joules."""
        return self.total_kwh * _J_PER_KWH


def energy(source: Source, power: PowerModel = DEFAULT_POWER) -> Energy:
    """Return the energy of the window.

    It is the sum over GPU types of busy watts x GPU-seconds held + idle watts x GPU-seconds idle.
    """
    spent = gpu_seconds(source)
    idle_w, busy_w = _table(spent.types, power)
    allocated, idle = spent.held * busy_w / _J_PER_KWH, spent.idle * idle_w / _J_PER_KWH
    by_type = {gpu.name: float(kwh) for gpu, kwh in zip(spent.types, allocated + idle, strict=True)}
    return Energy(float(allocated.sum()), float(idle.sum()), by_type)


def job_energy_j(source: Source, power: PowerModel = DEFAULT_POWER) -> Floats:
    """Joules drawn by each job's runs: busy watts x GPU-seconds held. Their sum is the allocated
    energy.
    """
    cols = columns(source)
    types, type_of = node_types(cols.cluster)
    busy_w = np.append(_table(types, power)[1], 0.0)  # the last entry serves CPU machines, type -1
    drawn = cols.runs.gpu_s * busy_w[type_of[cols.runs.node]]
    return total(cols.runs.job, drawn, len(cols.jobs))


def watts(source: Source, power: PowerModel = DEFAULT_POWER) -> Steps:
    """Watts of all GPUs over the window. Their integral is the energy in joules. O(n log n) in the
    runs.
    """
    cols = columns(source)
    types, type_of = node_types(cols.cluster)
    idle_w, busy_w = (np.append(column, 0.0) for column in _table(types, power))  # the last entry serves CPU machines
    runs, outages = cols.runs, cols.outages
    idle = idle_w[type_of] * np.array([node.gpus for node in cols.cluster.nodes], float)
    held = runs.held * (busy_w - idle_w)[type_of[runs.node]]
    return Steps.of(
        np.concatenate(([cols.start_s], runs.start_s, outages.start_s)),
        np.concatenate(([cols.end_s], runs.end_s, outages.end_s)),
        np.concatenate(([idle.sum()], held, -idle[outages.node])),
        window=(cols.start_s, cols.end_s),
    )


def _table(types: tuple[GpuType, ...], power: PowerModel) -> tuple[Floats, Floats]:
    watts = [power.of(gpu) for gpu in types]
    return np.array([gpu_watts.idle for gpu_watts in watts], float), np.array(
        [gpu_watts.busy for gpu_watts in watts], float
    )

"""Quantities over time: the jobs in the system, the held, idle and unavailable GPUs of each type,
and the energy drawn by GPUs.

If a share u of a GPU is held and working, the GPU draws P(u) = idle + (busy - idle) x u, where busy
= busy_fraction x TDP. Nodes that are down draw no power. CPUs, memory and cooling are not included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Annotated, NamedTuple

import numpy as np

from dagsim.errors import ModelError, require
from dagsim.metrics.columns import AnySchedule, Floats, Ints, ScheduleColumns, columns, total
from dagsim.model import Cluster, GpuType, Kind
from dagsim.model.arithmetic import dot

_DECIMALS = 9
"""Number of decimals to which values are rounded, so that fractions of GPUs that are taken and
returned leave exactly 0.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A step function. Its value is ``value[i]`` from ``time_s[i]`` to ``time_s[i + 1]``, and the
    last value lasts until ``end_s``.
    """

    time_s: Floats
    value: Floats
    end_s: float

    @classmethod
    def of(
        cls,
        start_s: Floats,
        end_s: Floats,
        weight: Floats | None = None,
        *,
        window: tuple[float, float],
    ) -> Steps:
        """Return, for each moment of ``window``, the sum of the weights (default: 1 each) of the
        intervals that contain it. The intervals may be in any order. The cost is O(n log n).
        """
        first, last = window
        on, off = np.clip(start_s, first, last), np.clip(end_s, first, last)
        longer = off > on
        on, off = on[longer], off[longer]
        if weight is None:  # sorting starts and ends first is faster, and counts do not depend on the order
            on.sort()
            off.sort()
            change = np.ones(1 + 2 * len(on), np.int8)
            change[0], change[1 + len(on) :] = 0, -1
        else:
            weight = weight[longer]
            change = np.concatenate(([0.0], weight, -weight))
        time_s = np.concatenate(([first], on, off))
        del on, off, weight, longer  # frees memory, which is scarce at this point in large runs
        order = np.argsort(time_s, kind="stable")
        time_s, change = time_s[order], change[order]
        new = np.append(True, time_s[1:] != time_s[:-1])
        del order
        value = np.round(np.cumsum(np.add.reduceat(change, np.flatnonzero(new), dtype=float)), _DECIMALS)
        time_s = time_s[new]
        step = np.append(True, (value[1:] != value[:-1]) & (time_s[1:] < last))
        return cls(time_s[step], value[step], last)

    def integral(self) -> float:
        """Return the integral of the value over the whole period."""
        return dot(self.value, np.diff(self.time_s, append=self.end_s))

    def mean(self) -> float:
        """Return the time average, or NaN if the period is empty."""
        length = self.end_s - float(self.time_s[0])
        return self.integral() / length if length > 0 else float("nan")

    def max(self) -> float:
        """Return the highest value that lasted for more than 0 s."""
        return float(self.value.max())

    def at(self, time_s: Floats) -> Floats:
        """Return the value at each moment. No moment may be earlier than the first step."""
        values: Floats = self.value[np.searchsorted(self.time_s, time_s, "right") - 1]
        return values

    def until(self, time_s: Floats) -> Floats:
        """For each moment, return the integral of the value from the first step to that moment."""
        edges = np.append(self.time_s, self.end_s)
        so_far = np.append(0.0, np.cumsum(self.value * np.diff(edges)))
        reached: Floats = np.interp(time_s, edges, so_far)
        return reached

    def binned(self, edges_s: Floats) -> Floats:
        """Return the time average between each pair of consecutive edges."""
        averages: Floats = np.diff(self.until(edges_s)) / np.diff(edges_s)
        return averages


def jobs_in_system(source: AnySchedule) -> Steps:
    """Return the number of accepted jobs that have arrived but not completed, over the window."""
    cols = columns(source)
    return present(cols, cols.start_s, cols.end_s)


def jobs_waiting(source: AnySchedule) -> Steps:
    """Return the queue length over the window: the number of jobs in the system that have no run in
    progress.
    """
    return _in_phase(source, waiting=True)


def jobs_running(source: AnySchedule) -> Steps:
    """Return the number of jobs with at least one run in progress, over the window. The sum of running
    and waiting jobs is the number of jobs in the system.
    """
    return _in_phase(source, waiting=False)


def littles_law(source: AnySchedule) -> tuple[float, float]:
    """Return both sides of Little's law in job-seconds: the integral of the number of jobs in the
    system, and the sum of their JCTs.

    Over the whole log, both sides are equal up to rounding for every schedule (Little 1961). On
    both sides, an unfinished job counts until the end of the log.
    """
    cols = columns(source)
    jobs = cols.at_horizon().jobs
    sum_jct_s = float((jobs.completed_s - jobs.arrival_s)[jobs.accepted].sum())
    return present(cols, 0.0, cols.log_end_s).integral(), sum_jct_s


def present(cols: ScheduleColumns, start_s: float, end_s: float) -> Steps:
    """Return ``jobs_in_system`` over any interval of time."""
    jobs = cols.at_horizon().jobs
    accepted = jobs.accepted
    return Steps.of(jobs.arrival_s[accepted], jobs.completed_s[accepted], window=(start_s, end_s))


def _in_phase(source: AnySchedule, *, waiting: bool) -> Steps:
    cols = columns(source)
    phases = cols.phases
    chosen = (phases.running == 0) == waiting
    return Steps.of(phases.start_s[chosen], phases.end_s[chosen], window=(cols.start_s, cols.end_s))


@dataclass(frozen=True, slots=True, eq=False)
class GpuSeconds:
    """GPU-seconds in the window per GPU type, in node order. capacity = held + idle + down."""

    types: tuple[GpuType, ...]
    gpus: Floats
    capacity: Floats
    """GPUs x horizon."""
    held: Floats
    """The number of GPUs held by runs, integrated over time. A shared GPU counts as the fraction of
    it that is held.
    """
    down: Floats
    """GPU-seconds on nodes that were down."""

    @property
    def idle(self) -> Floats:
        """GPU-seconds during which GPUs were up but not held by any run."""
        return self.capacity - self.down - self.held


def gpu_seconds(source: AnySchedule) -> GpuSeconds:
    """Compute the GPU-seconds from which both utilisation and energy are derived. The cost is O(runs)."""
    cols = columns(source)
    types, type_of = node_types(cols.cluster)
    size = np.array([node.gpus for node in cols.cluster.nodes], float)
    gpus = _per_type(type_of, size, types)
    held = cols.runs.held * cols.within(cols.runs.start_s, cols.runs.end_s)
    down = size[cols.outages.node] * cols.within(cols.outages.start_s, cols.outages.end_s)
    return GpuSeconds(
        types=types,
        gpus=gpus,
        capacity=gpus * cols.horizon_s,
        held=_per_type(type_of[cols.runs.node], held, types),
        down=_per_type(type_of[cols.outages.node], down, types),
    )


def gpu_utilization(source: AnySchedule) -> float:
    """Return the GPU-hour utilisation: GPU-seconds held / (GPUs x horizon). The denominator
    includes GPUs that are down."""
    spent = gpu_seconds(source)
    return _share(spent.held.sum(), spent.capacity.sum())


def peak_weighted_utilization(source: AnySchedule, precision: str = "fp32") -> float:
    """Return ``gpu_utilization`` with each GPU weighted by its peak TFLOPS, so that an idle A100
    counts more than an idle T4.
    """
    spent = gpu_seconds(source)
    tflops = np.array([gpu.tflops(precision) for gpu in spent.types])
    return _share(dot(spent.held, tflops), dot(spent.capacity, tflops))


def utilization_by_type(source: AnySchedule) -> dict[str, float]:
    """Return the GPU-hour utilisation of each GPU type."""
    spent = gpu_seconds(source)
    return {gpu.name: _share(held, of) for gpu, held, of in zip(spent.types, spent.held, spent.capacity, strict=True)}


def availability(source: AnySchedule) -> float:
    """Return GPU-seconds up / (GPUs x horizon)."""
    spent = gpu_seconds(source)
    return _share(spent.capacity.sum() - spent.down.sum(), spent.capacity.sum())


def gpu_allocation_ratio(source: AnySchedule) -> float:
    """Return the GAR: the time average of GPUs held / GPUs up. Times at which all GPUs are down are
    ignored.

    The name comes from Kant (Zeng et al. 2025, arXiv:2510.01256), which defines the ratio for a
    single moment.
    """
    cols = columns(source)
    held, up = gpus_held(cols), gpus_up(cols)
    time_s = np.union1d(held.time_s, up.time_s)
    length_s = np.diff(time_s, append=cols.end_s)
    there = up.at(time_s)
    length_s = np.where(there > 0, length_s, 0.0)
    return _share(dot(held.at(time_s) / np.maximum(there, 1.0), length_s), length_s.sum())


def scheduling_occupancy_rate(source: AnySchedule) -> float:
    """Return the SOR: GPU-seconds held / GPU-seconds up (Kant: Zeng et al. 2025, arXiv:2510.01256,
    over a period). It differs from ``gpu_utilization`` if nodes go down. It differs from the GAR if
    the number of nodes that are up changes.
    """
    spent = gpu_seconds(source)
    return _share(spent.held.sum(), spent.capacity.sum() - spent.down.sum())


def gpu_node_fragmentation_ratio(source: AnySchedule) -> float:
    """Return the GFR: node-seconds with some but not all of the node's GPUs held / node-seconds up,
    over nodes with GPUs (Kant: Zeng et al. 2025, arXiv:2510.01256, over a period). The cost is O(n
    log n) for n runs.
    """
    cols = columns(source)
    size = np.array([node.gpus for node in cols.cluster.nodes], float)
    runs, outages = cols.runs, cols.outages
    chosen = (runs.held > 0) & (cols.within(runs.start_s, runs.end_s) > 0)
    node = np.tile(runs.node[chosen], 2)
    time_s = np.clip(np.concatenate((runs.start_s[chosen], runs.end_s[chosen])), cols.start_s, cols.end_s)
    change = np.concatenate((runs.held[chosen], -runs.held[chosen]))
    order = np.lexsort((time_s, node))
    node, time_s = node[order], time_s[order]
    # At the end, no GPU of a node is in use, so one running sum over all nodes starts at 0 for each
    # node.
    held = np.round(np.cumsum(change[order]), _DECIMALS)
    partly = (held[:-1] > 0) & (held[:-1] < size[node[:-1]])
    with_gpus = size > 0
    up_s = with_gpus.sum() * cols.horizon_s
    up_s -= cols.within(outages.start_s, outages.end_s)[with_gpus[outages.node]].sum()
    return _share(np.diff(time_s)[partly].sum(), up_s)


def goodput(source: AnySchedule) -> float:
    """Return a lower bound on useful GPU-seconds / GPU-seconds held.

    The useful time is the time during which a job computed in finished runs, without set-up and
    transfers. For a completed job, it is at least the time that the job needs on its fastest GPUs,
    because all of its work was eventually done. The bound is exact if all GPUs are equally fast.
    For other jobs, only finished runs count, and work that was kept in checkpoints does not.
    Goodput multiplied by ``scheduling_occupancy_rate`` is the useful share of the GPU-seconds that
    were up. The definition follows the scheduling and runtime goodput in Google's "ML Productivity
    Goodput" (2024) and the effective training time ratio of Kokolis et al. 2024 (arXiv:2410.21680).
    """
    cols = columns(source)
    runs, jobs = cols.runs, cols.jobs
    held = total(runs.job, runs.gpu_s, len(jobs))
    began_s = np.where(np.isnan(runs.computing_s), runs.start_s, runs.computing_s)
    finished = runs.held * (runs.end_s - began_s) * (runs.outcome == Kind.FINISHED)
    useful = total(runs.job, finished, len(jobs))
    useful = np.where(jobs.finished, np.maximum(useful, jobs.ideal_gpu_s), useful)
    share = np.minimum(useful, held) / np.where(held > 0, held, 1.0)
    spent = total(runs.job, runs.held * cols.within(runs.start_s, runs.end_s), len(jobs))
    return _share(dot(share, spent), spent.sum())


def gpus_held(source: AnySchedule, gpu_type: str | None = None) -> Steps:
    """Return the number of GPUs (of one type, or of all types) that runs hold, over the window."""
    cols = columns(source)
    chosen = _nodes_of(cols, gpu_type)[cols.runs.node]
    runs = cols.runs
    return Steps.of(runs.start_s[chosen], runs.end_s[chosen], runs.held[chosen], window=(cols.start_s, cols.end_s))


def gpus_up(source: AnySchedule, gpu_type: str | None = None) -> Steps:
    """Return the number of GPUs (of one type, or of all types) on nodes that are up, over the window."""
    cols = columns(source)
    chosen = _nodes_of(cols, gpu_type)
    size = np.array([node.gpus for node in cols.cluster.nodes], float) * chosen
    outages = cols.outages
    start_s = np.append(outages.start_s, cols.start_s)
    end_s = np.append(outages.end_s, cols.end_s)
    return Steps.of(start_s, end_s, np.append(-size[outages.node], size.sum()), window=(cols.start_s, cols.end_s))


def node_types(cluster: Cluster) -> tuple[tuple[GpuType, ...], Ints]:
    """Return the cluster's GPU types in node order, and the index of each node's type (-1 for a CPU
    machine).
    """
    types = tuple(gpu for gpu in cluster.gpu_types if gpu is not None)
    place = {gpu.name: index for index, gpu in enumerate(types)}
    return types, np.array([place[node.gpu.name] if node.gpu else -1 for node in cluster.nodes])


def off_watts(cluster: Cluster) -> Floats:
    """Return the watts that each node with GPUs draws while it is powered off."""
    watts = [node.on_demand.off_watts if node.on_demand and node.gpu else 0.0 for node in cluster.nodes]
    return np.array(watts, float)


@dataclass(frozen=True, slots=True)
class OnDemandUse:
    """The use of nodes that are powered on demand."""

    node_hours: Annotated[float, "h", "hours in which nodes that are powered on demand were not off, summed over nodes"]
    boots: Annotated[int, "boots", "boots of such nodes that began"]
    cost: Annotated[float, "", "node hours x hourly price (on_demand.price_per_h), for nodes with a price"]


def on_demand_use(source: AnySchedule) -> OnDemandUse | None:
    """Return how the nodes that are powered on demand were used in the window, or None if there are
    no such nodes. A node counts as used from the beginning of its boot until it is off again.
    """
    cols = columns(source)
    rules = [node.on_demand for node in cols.cluster.nodes]
    if not any(rules):
        return None
    powered = cols.powered
    hours = cols.within(powered.start_s, powered.end_s) / 3600
    price = np.array([nan if rule is None or rule.price_per_h is None else rule.price_per_h for rule in rules])
    priced = ~np.isnan(price[powered.node])
    cost = dot(hours[priced], price[powered.node][priced]) if not np.isnan(price).all() else nan
    began = powered.booted & (powered.start_s >= cols.start_s) & (powered.start_s <= cols.end_s)
    return OnDemandUse(float(hours.sum()), int(began.sum()), cost)


def _nodes_of(cols: ScheduleColumns, gpu_type: str | None) -> np.ndarray:
    """Return a mask of the nodes that have GPUs of ``gpu_type`` or, if ``gpu_type`` is None, any
    GPUs.
    """
    return np.array([node.gpu is not None and gpu_type in (None, node.gpu.name) for node in cols.cluster.nodes])


def _per_type(type_of: Ints, weight: Floats, types: tuple[GpuType, ...]) -> Floats:
    with_gpu = type_of >= 0
    return total(type_of[with_gpu], weight[with_gpu], len(types))


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")


_J_PER_KWH = 3.6e6


class Watts(NamedTuple):
    """The power, in watts, of a GPU that no run holds, and of a GPU that is completely held."""

    idle: float
    busy: float


@dataclass(frozen=True, slots=True)
class PowerModel:
    """The power of each GPU type in watts. The idle power is a property of the type, and busy =
    idle + (``busy_fraction`` x TDP - idle) x ``activity``.

    ``busy_fraction`` is the fraction of the TDP that a GPU draws while it computes. It is an
    assumption (0.75 to 0.9 for deep learning) and therefore a parameter. ``activity`` is the mean
    fraction of the time during which a held GPU computes. ``watts`` overrides types by name:
    ``{"T4": (9.0, 60.0)}``.

    Raises:
        ModelError: A fraction is outside 0..1, or idle watts are negative or exceed the busy watts.
    """

    busy_fraction: float = 0.8
    activity: float = 1.0
    watts: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not 0 < self.busy_fraction <= 1:
            raise ModelError(f"power: busy_fraction must be above 0 and at most 1, got {self.busy_fraction!r}")
        require(0 <= self.activity <= 1, "power: activity must be between 0 and 1", self.activity, ModelError)
        for name, (idle, busy) in self.watts.items():
            if not 0 <= idle <= busy:
                raise ModelError(
                    f"power: watts of {name!r} must be (idle, busy) with 0 <= idle <= busy, got {(idle, busy)!r}"
                )

    def of(self, gpu: GpuType) -> Watts:
        """Return the idle and busy watts of one GPU type.

        Raises:
            ModelError: ``busy_fraction`` times the type's TDP is below its idle watts.
        """
        if gpu.name in self.watts:
            return Watts(*self.watts[gpu.name])
        working = self.busy_fraction * gpu.tdp_watts
        if working < gpu.idle_watts:
            raise ModelError(
                f"power: busy_fraction {self.busy_fraction!r} of {gpu.name}'s TDP ({gpu.tdp_watts:g} W) is below its "
                f"idle power of {gpu.idle_watts:g} W"
            )
        return Watts(gpu.idle_watts, gpu.idle_watts + (working - gpu.idle_watts) * self.activity)


DEFAULT_POWER = PowerModel()


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy drawn in the window, in kWh."""

    allocated_kwh: float
    """Energy that GPUs drew while runs held them. For a shared GPU, this is the energy of the held
    share.
    """
    idle_kwh: float
    """Energy that GPUs drew while they were up but not held."""
    by_type_kwh: dict[str, float]
    """Sum of both for each GPU type."""

    @property
    def total_kwh(self) -> float:
        """Sum of allocated and idle energy, in kWh."""
        return self.allocated_kwh + self.idle_kwh

    @property
    def total_j(self) -> float:
        """Sum of allocated and idle energy, in joules."""
        return self.total_kwh * _J_PER_KWH


def energy(source: AnySchedule, power: PowerModel = DEFAULT_POWER) -> Energy:
    """Return the energy drawn in the window.

    It is the sum over GPU types of busy watts x GPU-seconds held + idle watts x GPU-seconds idle,
    plus the energy that nodes with GPUs draw while they are powered off.
    """
    spent = gpu_seconds(source)
    idle_w, busy_w = _table(spent.types, power)
    cols = columns(source)
    off = cols.outages.node[~cols.outages.failed]
    off_s = cols.within(cols.outages.start_s, cols.outages.end_s)[~cols.outages.failed]
    off_j = _per_type(node_types(cols.cluster)[1][off], off_watts(cols.cluster)[off] * off_s, spent.types)
    allocated, idle = spent.held * busy_w / _J_PER_KWH, (spent.idle * idle_w + off_j) / _J_PER_KWH
    by_type = {gpu.name: float(kwh) for gpu, kwh in zip(spent.types, allocated + idle, strict=True)}
    return Energy(float(allocated.sum()), float(idle.sum()), by_type)


def job_energy_j(source: AnySchedule, power: PowerModel = DEFAULT_POWER) -> Floats:
    """Return the joules drawn by each job's runs: busy watts x GPU-seconds held. Their sum is the
    allocated energy.
    """
    cols = columns(source)
    types, type_of = node_types(cols.cluster)
    # The last entry is for machines without GPUs, whose type is -1.
    busy_w = np.append(_table(types, power)[1], 0.0)
    drawn = cols.runs.gpu_s * busy_w[type_of[cols.runs.node]]
    return total(cols.runs.job, drawn, len(cols.jobs))


def watts(source: AnySchedule, power: PowerModel = DEFAULT_POWER) -> Steps:
    """Return the watts of all GPUs over the window. Their integral is the energy in joules. The
    cost is O(n log n) for n runs.
    """
    cols = columns(source)
    types, type_of = node_types(cols.cluster)
    # The last entry is for machines without GPUs (type -1).
    idle_w, busy_w = (np.append(column, 0.0) for column in _table(types, power))
    runs, outages = cols.runs, cols.outages
    idle = idle_w[type_of] * np.array([node.gpus for node in cols.cluster.nodes], float)
    held = runs.held * (busy_w - idle_w)[type_of[runs.node]]
    away = np.where(outages.failed, 0.0, off_watts(cols.cluster)[outages.node]) - idle[outages.node]
    return Steps.of(
        np.concatenate(([cols.start_s], runs.start_s, outages.start_s)),
        np.concatenate(([cols.end_s], runs.end_s, outages.end_s)),
        np.concatenate(([idle.sum()], held, away)),
        window=(cols.start_s, cols.end_s),
    )


def _table(types: tuple[GpuType, ...], power: PowerModel) -> tuple[Floats, Floats]:
    watts = [power.of(gpu) for gpu in types]
    return np.array([gpu_watts.idle for gpu_watts in watts], float), np.array(
        [gpu_watts.busy for gpu_watts in watts], float
    )

"""Rewards: what a schedule costs, as folds over its log that can be asked at any instant.

Each term is a running total that only grows by what has happened; the reward of a step is minus the growth of the
weighted sum since the last one, over ``scale``. So rewards add up to minus the cost of the whole schedule, whatever the
steps, and every term is logged by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dagsim.envs.potential import CriticalPaths
from dagsim.errors import ConfigError
from dagsim.metrics.energy import DEFAULT_POWER, Watts
from dagsim.model import Kind
from dagsim.model.log import Row
from dagsim.model.schedule import Schedule
from dagsim.registry import nearest
from dagsim.systems.cluster.kernel import ClusterKernel

__all__ = ["TERMS", "Reward", "RewardConfig", "Term"]

_ENDS = (Kind.FINISHED, Kind.PREEMPTED, Kind.FAILED)


class Term(Protocol):
    """A cost that accrues."""

    def take(self, row: Row) -> None:
        """Take in the next row of the log."""
        ...

    def total(self, now: float) -> float:
        """What it has come to by ``now``, not before the last row taken in."""
        ...


class _Accrual:
    """The integral of a rate that changes at rows."""

    def __init__(self) -> None:
        self.rate = self._integral = self._since = 0.0

    def change(self, now: float, by: float) -> None:
        self._integral += self.rate * (now - self._since)
        self._since = now
        self.rate += by

    def total(self, now: float) -> float:
        return self._integral + self.rate * (now - self._since)


class _PerJob(_Accrual):
    """Every job adds to the rate from its arrival until it has left."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule

    def weight(self, job: int) -> float:
        """What a second of the job counts."""
        return 1.0

    def take(self, row: Row) -> None:
        if row[0] == Kind.ARRIVED:
            self.change(row[1], self.weight(row[2]))
        elif row[0] in (Kind.COMPLETED, Kind.REJECTED):
            self.change(row[1], -self.weight(row[2]))


class JobSeconds(_PerJob):
    """Seconds in the system, over all jobs: in the end exactly the sum of completion times."""


class WeightedJobSeconds(_PerJob):
    """The same, each job counting as often as its weight says."""

    def weight(self, job: int) -> float:
        return self._schedule.jobs[job].weight


class BoundedSlowdown(_PerJob):
    """The sum over jobs of max(1, completion time / max(ideal time, 10 s)); what a job lacks to 1 comes as it ends."""

    def weight(self, job: int) -> float:
        return 1.0 / max(self._schedule.jobs[job].ideal_s, 10.0)

    def take(self, row: Row) -> None:
        super().take(row)
        if row[0] == Kind.COMPLETED:
            slowdown = (row[1] - self._schedule.jobs[row[2]].arrival_s) * self.weight(row[2])
            self._integral += max(0.0, 1.0 - slowdown)


class Makespan(_Accrual):
    """Seconds from the first arrival until the last job has left."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._first: float | None = None
        self._left_s = 0.0
        self._in_system = 0

    def take(self, row: Row) -> None:
        if row[0] == Kind.ARRIVED:
            self._first = row[1] if self._first is None else self._first
            self._in_system += 1
        elif row[0] in (Kind.COMPLETED, Kind.REJECTED):
            self._in_system -= 1
        self._left_s = row[1]

    def total(self, now: float) -> float:
        if self._first is None:
            return 0.0
        return (now if self._in_system else self._left_s) - self._first


class IdleGpuSeconds(_Accrual):
    """GPU-seconds that nobody held while jobs were in the system, as a share of the cluster's GPUs."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._gpus = sum(node.gpus for node in schedule.cluster.nodes) or 1
        self._in_system = 0
        self._held = 0.0

    def take(self, row: Row) -> None:
        if row[0] == Kind.ARRIVED:
            self._in_system += 1
        elif row[0] in (Kind.COMPLETED, Kind.REJECTED):
            self._in_system -= 1
        elif row[0] == Kind.STARTED:
            self._held += row[8]
        elif row[0] in _ENDS:
            self._held -= row[8]
        wanted = 1.0 - self._held / self._gpus if self._in_system else 0.0
        self.change(row[1], wanted - self.rate)


class Joules(_Accrual):
    """Energy drawn by all GPUs since the first arrival, held or idle (those of nodes that are down draw none)."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        nodes = schedule.cluster.nodes
        watts = [Watts(0.0, 0.0) if node.gpu is None else DEFAULT_POWER.of(node.gpu) for node in nodes]
        self._extra = [each.busy - each.idle for each in watts]
        self._idle = [each.idle * node.gpus for each, node in zip(watts, nodes, strict=True)]
        self._up_watts = sum(self._idle)
        self._begun = False

    def take(self, row: Row) -> None:
        kind, now, node = row[0], row[1], row[5]
        if not self._begun:
            if kind == Kind.ARRIVED:
                self._begun = True
                self.change(now, self._up_watts)
            elif kind in (Kind.DOWN, Kind.UP):
                self._up_watts += self._idle[node] * (1 if kind == Kind.UP else -1)
        elif kind == Kind.STARTED:
            self.change(now, row[8] * self._extra[node])
        elif kind in _ENDS:
            self.change(now, -row[8] * self._extra[node])
        elif kind == Kind.DOWN:
            self.change(now, -self._idle[node])
        elif kind == Kind.UP:
            self.change(now, self._idle[node])


class Unfairness(_Accrual):
    """Seconds times 1 - Jain's index of the GPUs that the tenants with jobs in the system hold at each instant."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._schedule = schedule
        self._jobs: dict[str, int] = {}
        self._held: dict[str, float] = {}

    def take(self, row: Row) -> None:
        kind, now, job = row[0], row[1], row[2]
        if job < 0:
            return
        tenant = self._schedule.jobs[job].tenant
        if kind == Kind.ARRIVED:
            self._jobs[tenant] = self._jobs.get(tenant, 0) + 1
        elif kind in (Kind.COMPLETED, Kind.REJECTED):
            self._jobs[tenant] -= 1
            if not self._jobs[tenant]:
                del self._jobs[tenant]
        elif kind == Kind.STARTED:
            self._held[tenant] = self._held.get(tenant, 0.0) + row[8]
        elif kind in _ENDS:
            self._held[tenant] -= row[8]
        held = [max(self._held.get(each, 0.0), 0.0) for each in self._jobs]
        squares = len(held) * sum(gpus * gpus for gpus in held)
        self.change(now, (1.0 - sum(held) ** 2 / squares if squares > 0 else 0.0) - self.rate)


TERMS: Mapping[str, Callable[[Schedule], Term]] = {
    "job_seconds": JobSeconds,
    "weighted_job_seconds": WeightedJobSeconds,
    "bounded_slowdown": BoundedSlowdown,
    "makespan": Makespan,
    "idle": IdleGpuSeconds,
    "energy": Joules,
    "unfairness": Unfairness,
}
"""Every term by name. ``shaped_job_seconds`` is the one more that needs the live simulation."""

_SHAPED = "shaped_job_seconds"


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """What to minimise: a weighted sum of terms, and what to divide it by.

    ``job_seconds`` is minus the sum of completion times; ``shaped_job_seconds`` the same less what no schedule avoids:
    at every instant the critical paths of the jobs in the system count as spent already, so that a start on a slow GPU
    is billed at once, every step is at most 0 and all of them add up to -(sum of completion times - sum of critical
    paths) (potential-based shaping, Ng, Harada and Russell 1999: with no discount it changes no ranking of policies).

    Raises:
        ConfigError: An unknown term, none at all, or a scale that is not positive.
    """

    terms: Mapping[str, float]
    scale: float = 1.0

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name in self.terms:
            if name not in TERMS and name != _SHAPED:
                known = (*TERMS, _SHAPED)
                raise ConfigError(f"reward: unknown term {name!r}{nearest(name, known)}; known: {', '.join(known)}")
        if not self.terms:
            raise ConfigError("reward: needs at least one term")
        if not self.scale > 0:
            raise ConfigError(f"reward: scale must be positive, got {self.scale!r}")


class Reward:
    """The reward of one simulation, step by step."""

    def __init__(self, config: RewardConfig, simulation: ClusterKernel) -> None:
        self.config = config
        self.last: dict[str, float] = dict.fromkeys(config.terms, 0.0)
        """What each term (times its weight, over the scale) took off the last reward."""
        self._simulation = simulation
        self._read = 0
        schedule = simulation.schedule
        self._terms: dict[str, Term] = {
            name: JobSeconds(schedule) if name == _SHAPED else TERMS[name](schedule) for name in config.terms
        }
        self._paths = CriticalPaths(simulation) if _SHAPED in config.terms else None
        self._totals: dict[str, float] = dict.fromkeys(config.terms, 0.0)

    def step(self) -> float:
        """The reward since the last call: minus what the terms have grown by until now."""
        simulation = self._simulation
        rows = simulation.schedule.log.since(self._read)
        self._read += len(rows)
        reward = 0.0
        for name, term in self._terms.items():
            for row in rows:
                term.take(row)
            total = term.total(simulation.now)
            if name == _SHAPED and self._paths is not None:
                total += self._paths.left_s() - self._paths.arrived_s
            cost = (total - self._totals[name]) * self.config.terms[name] / self.config.scale
            self._totals[name], self.last[name] = total, cost
            reward -= cost
        return reward

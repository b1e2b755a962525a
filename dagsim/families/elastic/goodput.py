"""Goodput as in Pollux (Qiao et al., OSDI 2021): samples per second times progress per sample.

Symbols are the same as in the paper: ``n`` nodes, ``k`` replicas (one GPU each), ``m`` samples per
replica and pass (the local batch), ``s`` accumulation steps, M = k m (s + 1) samples per iteration
(the batch), and the initial batch M0. Times are in seconds. All functions accept numbers or arrays,
which are broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import ModelError

_CANDIDATES = 50
"""Number of batch sizes that ``GoodputModel.best`` compares."""
_SLACK = 1e-8
"""Subtracted before rounding up, so that rounding errors do not add a sample."""


class BatchLimits(NamedTuple):
    """The limits on an application's batches, in samples. ``initial`` and ``largest`` are per
    iteration, ``local_min`` and ``local_max`` per replica and pass."""

    initial: int
    largest: int
    local_min: int
    local_max: int


class GradientNoise(NamedTuple):
    """The squared norm of the true gradient, and the variance of the estimated gradient, at the initial
    batch size."""

    square: float
    variance: float

    def gain(self, scale: Any) -> Any:
        """Return how many iterations with the initial batch make the same progress as one iteration
        with ``scale`` times that batch."""
        denominator = self.variance / np.asarray(scale) + self.square
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(denominator > 0, (self.variance + self.square) / denominator, 1.0)


class StepMeasurement(NamedTuple):
    """One measured iteration without accumulation. It took ``step_s`` seconds, of which ``sync_s``
    seconds were communication."""

    nodes: int
    replicas: int
    local_batch: int
    step_s: float
    sync_s: float


class ThroughputModel(NamedTuple):
    """A model of how long an iteration takes. The computing time is linear in the local batch, and
    the communication time is linear in the number of replicas.

    ``alpha_n, beta_n`` apply to replicas on several nodes, and ``alpha_r, beta_r`` apply to several
    replicas on one node. ``gamma`` states how much computing and communication overlap, from 1 (not
    at all) to 10 (almost fully).
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def slower(self, factor: float) -> ThroughputModel:
        """Return the model in which every iteration takes ``factor`` times as long."""
        return ThroughputModel(*[seconds * factor for seconds in self[:6]], self.gamma)  # type: ignore[call-arg]

    def pass_s(self, local_batch: Any) -> Any:
        """Return how many seconds a forward and backward pass takes."""
        return self.alpha_c + self.beta_c * local_batch

    def sync_s(self, nodes: Any, replicas: Any) -> Any:
        """Return how many seconds it takes to add up the gradients of all replicas."""
        several = [np.asarray(nodes) > 1, np.asarray(replicas) > 1]
        fixed = np.select(several, [self.alpha_n, self.alpha_r], 1e-8)
        per_replica = np.select(several, [self.beta_n, self.beta_r], 1e-8)
        return fixed + per_replica * np.maximum(np.asarray(replicas) - 2, 1e-8)

    def step_s(self, nodes: Any, replicas: Any, local_batch: Any) -> Any:
        """Return how many seconds the last pass of an iteration takes, including the
        synchronisation."""
        passed, synced = self.pass_s(local_batch), self.sync_s(nodes, replicas)
        return np.exp(np.log(passed**self.gamma + synced**self.gamma) / self.gamma)

    def samples_per_s(self, nodes: Any, replicas: Any, local_batch: Any, accumulation: Any) -> Any:
        """Return the throughput with ``accumulation`` passes before the last one."""
        seconds = accumulation * self.pass_s(local_batch) + self.step_s(nodes, replicas, local_batch)
        return replicas * local_batch * (accumulation + 1) / seconds


class BatchChoice(NamedTuple):
    """The best goodput for each number of nodes and replicas, and the batch that reaches it. The
    goodput is 0 if no batch is allowed. The arrays have the shape of the arguments.
    """

    goodput: np.ndarray
    local_batch: np.ndarray
    accumulation: np.ndarray


@dataclass(frozen=True)
class GoodputModel:
    """Goodput of a job: throughput times statistical efficiency."""

    throughput: ThroughputModel
    noise: GradientNoise
    limits: BatchLimits

    def efficiency(self, batch: Any) -> Any:
        """Return the progress per sample, relative to the initial batch."""
        scale = np.asarray(batch) / self.limits.initial
        return self.noise.gain(scale) / scale

    def goodput(self, nodes: Any, replicas: Any, local_batch: Any, accumulation: Any) -> Any:
        """Return throughput times efficiency, in samples per second at the efficiency of the
        initial batch.

        Raises:
            ModelError: A batch is smaller than the initial one, where the efficiency is unknown.
        """
        batch = np.asarray(replicas * local_batch * (accumulation + 1))
        if (batch < self.limits.initial).any():
            raise ModelError(
                f"a batch of {batch.min():g} samples is below the initial batch of {self.limits.initial}, "
                "which the goodput model does not cover"
            )
        return self.throughput.samples_per_s(nodes, replicas, local_batch, accumulation) * self.efficiency(batch)

    def best(self, nodes: Any, replicas: Any, *, accumulate: bool = True) -> BatchChoice:
        """Choose the batch with the highest goodput for each number of nodes and replicas. Among
        equally good batches, the first is chosen.

        Raises:
            ModelError: There are fewer replicas than nodes, no nodes, or too many replicas for the
                largest batch.
        """
        nodes, replicas = np.broadcast_arrays(nodes, replicas)
        if (nodes < 1).any() or (replicas < nodes).any():
            raise ModelError("a placement needs at least one node, and at least one replica on each node")
        if (replicas * self.limits.local_min > self.limits.largest).any():
            raise ModelError(
                f"{replicas.max()} replicas need {self.limits.local_min} samples each, which exceeds the "
                f"largest batch of {self.limits.largest}"
            )
        shape, nodes, replicas = nodes.shape, nodes.ravel(), replicas.ravel()
        least = np.maximum(self.limits.initial, self.limits.local_min * replicas)
        per_replica = np.geomspace(least, self.limits.largest, _CANDIDATES) / replicas
        steps = np.zeros(per_replica.shape, np.int64)
        if accumulate:
            steps = (np.ceil(per_replica / self.limits.local_max - _SLACK) - 1).astype(np.int64)
            # A single replica needs at least two passes, because it estimates the gradient noise
            # from their difference.
            alone = (replicas == 1) & (per_replica > self.limits.initial + _SLACK)
            steps = np.where(alone, np.maximum(steps, 1), steps)
        local = np.ceil(per_replica / (steps + 1) - _SLACK).astype(np.int64)
        allowed = (self.limits.local_min <= local) & (local <= self.limits.local_max)
        goodput = np.where(allowed, self.goodput(nodes, replicas, local, steps), 0.0)
        chosen = goodput.argmax(axis=0), np.arange(goodput.shape[1])
        return BatchChoice(*(values[chosen].reshape(shape) for values in (goodput, local, steps)))


def fit_throughput(measurements: Sequence[StepMeasurement]) -> ThroughputModel:
    """Fit the seven parameters to measured iterations (L-BFGS-B, exact gradient).

    Parameters that no measurement covers keep optimistic values. A job that never ran on two nodes
    is therefore expected to lose nothing there, so the scheduler tries it.

    Raises:
        ModelError: There is no measurement, or one has no computing time.
    """
    from scipy.optimize import Bounds, minimize

    columns = _columns(measurements)
    nodes, replicas, local, pass_s, _ = columns
    start = np.array([0.1, 0.01] * 3 + [1.001])
    lower, upper = np.array([1e-8] * 6 + [1.0]), np.array([inf] * 6 + [10.0])
    frozen: dict[int, float] = {}
    if len(np.unique(local)) == 1:
        frozen[0] = float(pass_s.mean() / 2)
    if not (nodes > 1).any():
        frozen |= {2: lower[2], 3: lower[3]}
    if not ((nodes == 1) & (replicas > 1)).any():
        frozen |= {4: lower[4], 5: lower[5]}
    if not (replicas > 2).any():
        frozen |= {3: lower[3], 5: lower[5]}
    for place, number in frozen.items():
        start[place] = lower[place] = upper[place] = number
    bounds = Bounds(lower, upper, keep_feasible=True)
    fitted = minimize(_objective, start, columns, jac=True, bounds=bounds).x
    if not (nodes > 1).any():
        fitted[2], fitted[3] = max(fitted[2], 1.1 * fitted[4]), max(fitted[3], 1.1 * fitted[5])
    return ThroughputModel(*map(float, fitted))


def fit_objective(model: ThroughputModel, measurements: Sequence[StepMeasurement]) -> float:
    """Return the value that ``fit_throughput`` minimises. It is the sum of the root mean square
    logarithmic errors of both times, and of penalties on ``gamma`` and on times that grow with the
    number of replicas."""
    return float(_objective(np.array(model), *_columns(measurements))[0])


def _columns(measurements: Sequence[StepMeasurement]) -> tuple[np.ndarray, ...]:
    """Return the measurements as columns: nodes, replicas, local batches, seconds per pass, and
    seconds per step.
    """
    if not measurements:
        raise ModelError("a throughput model needs at least one measured iteration")
    nodes, replicas, local, step_s, sync_s = map(np.array, zip(*measurements, strict=True))
    if (step_s <= sync_s).any():
        raise ModelError(
            "a measured iteration has no computing time, because the synchronisation takes all of its time"
        )
    return nodes, replicas, local, step_s - sync_s, step_s


def _objective(
    parameters: np.ndarray,
    nodes: np.ndarray,
    replicas: np.ndarray,
    local: np.ndarray,
    pass_s: np.ndarray,
    step_s: np.ndarray,
) -> tuple[float, np.ndarray]:
    """Return the objective and its gradient."""
    alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma = parameters
    across, within = nodes > 1, (nodes == 1) & (replicas > 1)
    more = np.maximum(replicas - 2, 1e-8)
    passed = alpha_c + beta_c * local
    synced = np.where(across, alpha_n + beta_n * more, np.where(within, alpha_r + beta_r * more, 1e-8 + 1e-8 * more))
    powers = passed**gamma, synced**gamma
    total = powers[0] + powers[1]
    # Partial derivatives of the logarithm of the step time with respect to ``passed``, ``synced`` and ``gamma``.
    by_pass, by_sync = powers[0] / passed / total, powers[1] / synced / total
    by_gamma = (powers[0] * np.log(passed) + powers[1] * np.log(synced)) / total / gamma - np.log(total) / gamma**2
    zero = np.zeros(len(local))
    ones = zero + 1.0
    pass_errors = np.log(passed) - np.log(pass_s)
    step_errors = np.log(total) / gamma - np.log(step_s)
    pass_slopes = np.array([ones, local, zero, zero, zero, zero, zero]) / passed
    sync_slopes = np.array([zero, zero, across, across * more, within, within * more, zero]) * by_sync
    step_slopes = np.array([by_pass, by_pass * local, zero, zero, zero, zero, by_gamma]) + sync_slopes
    value = 1e-3 * (gamma - 1) ** 2 + 1e-2 * ((beta_n / alpha_n) ** 2 + (beta_r / alpha_r) ** 2)
    slope = np.zeros(7)
    slope[6] = 2e-3 * (gamma - 1)
    for alpha, beta in ((2, 3), (4, 5)):
        ratio = parameters[beta] / parameters[alpha]
        slope[beta] += 2e-2 * ratio / parameters[alpha]
        slope[alpha] -= 2e-2 * ratio**2 / parameters[alpha]
    for errors, slopes in ((pass_errors, pass_slopes), (step_errors, step_slopes)):
        rmse = float(np.sqrt((errors**2).mean()))
        value += rmse
        if rmse > 0:
            slope += (slopes @ errors) / (len(errors) * rmse)
    return float(value), slope

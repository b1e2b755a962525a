"""The integer program of Sia (SOSP 2023), which gives each job one configuration of GPUs, or none.

A configuration is a GPU type with a number of nodes and GPUs. Each job's goodputs are divided by
its smallest goodput, so that jobs with different models are comparable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dagsim.errors import ModelError
from dagsim.standard_streams import without_output

_LARGEST_COST = 3_000.0


class Configuration(NamedTuple):
    """GPUs of one type that a job may use together."""

    type: str
    nodes: int
    gpus: int


class ConfigurationChoice(NamedTuple):
    """The optimal choice: the index of each job's configuration, or None if the job waits, and the
    cost."""

    chosen: list[int | None]
    objective: float


def choose_configurations(
    goodputs: np.ndarray,
    options: Sequence[Configuration],
    gpus: Mapping[str, int],
    *,
    present: Sequence[int | None],
    restart_factors: Sequence[float],
    locked: Iterable[int] = (),
    power: float = -0.5,
    waiting_cost: float = 1.1,
) -> ConfigurationChoice:
    """Solve the program to optimality with HiGHS.

    Args:
        goodputs: Shape (jobs, configurations), relative to the smallest goodput of each job.
        options: The configurations.
        gpus: Number of GPUs of each type.
        present: Index of the configuration that each job has now, or None if the job waits.
        restart_factors: For each running job, the factor by which its goodput is multiplied in all
            other configurations.
        locked: Indices of jobs that keep their configuration, because they are restarting.
        power: A negative exponent. Smaller values favour the jobs that are worst off.
        waiting_cost: Cost of a job without GPUs (lambda_n). A job with its smallest goodput costs
            at most 1.

    Raises:
        ModelError: Shapes do not match, a goodput is not positive, a locked job has no
            configuration, or the locked jobs do not fit.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    jobs, width = goodputs.shape
    _check_program(goodputs, len(options), len(present), len(restart_factors), power)
    if not jobs:
        return ConfigurationChoice([], 0.0)
    low = np.zeros((jobs, width))
    for job in locked:
        if (held := present[job]) is None:
            raise ModelError(f"job {job} is locked, but has no configuration to keep")
        low[job, held] = 1.0
    costs = _costs(goodputs, present, restart_factors, power)
    one_each = np.kron(np.eye(jobs), np.ones(width))
    used = np.array([[option.gpus if option.type == type else 0 for option in options] for type in gpus], float)
    rows = np.vstack([one_each, np.tile(used, jobs)])
    with without_output():
        solution = milp(
            (costs - waiting_cost).ravel(),
            constraints=LinearConstraint(rows, ub=[*[1.0] * jobs, *gpus.values()]),
            integrality=np.ones(jobs * width),
            bounds=Bounds(low.ravel(), 1.0),
            options={"mip_rel_gap": 0.0},
        )
    if solution.x is None:
        raise ModelError(
            f"Sia's program has no solution ({solution.message}); check that the locked jobs fit on the GPUs"
        )
    taken = solution.x.reshape(jobs, width) > 0.5
    chosen = [int(row.argmax()) if row.any() else None for row in taken]
    return ConfigurationChoice(chosen, float(costs[taken].sum() + waiting_cost * (jobs - taken.sum())))


def _check_program(goodputs: np.ndarray, options: int, present: int, restart_factors: int, power: float) -> None:
    jobs, width = goodputs.shape
    if width != options or present != jobs or restart_factors != jobs:
        raise ModelError(
            "Sia's integer program needs goodputs of shape (jobs, configurations), and a present configuration and a "
            f"restart factor for each job; got goodputs of shape ({jobs}, {width}), {options} configurations, "
            f"{present} present ones and {restart_factors} restart factors"
        )
    if not (goodputs > 0).all() or power >= 0:
        raise ModelError("Sia's program needs positive goodputs and a negative power")


def _costs(
    goodputs: np.ndarray, present: Sequence[int | None], restart_factors: Sequence[float], power: float
) -> np.ndarray:
    """Return the cost of each configuration for each job. All except the job's current
    configuration include the cost of a restart."""
    factors = np.ones(goodputs.shape)
    for job, place in enumerate(present):
        if place is not None:
            factors[job] = restart_factors[job]
            factors[job, place] = 1.0
    with np.errstate(divide="ignore"):
        costs: np.ndarray = np.minimum(((goodputs * factors) ** power).round(2), _LARGEST_COST)
    return costs

"""A teacher for agents that choose only the degree: every degree is tried on futures in which a constant follows.

    dagsim train --config results/ramp/degree.yaml --set 'train.warm_start.policy=teach_ramp:Futures[beta=A,constant=4]'

The futures are sequences of jobs drawn from the scenario of ``tables/ramp/degree.yaml``, never the jobs to come. They
are played on a model of ``first_fit`` that numba runs: a job takes the first free block of each size into which its
operations are split, for the time that it takes on an empty fabric. All that the teacher knows of the running jobs
follows from its own earlier decisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from sweeps import world_of

from dagsim.families.ramp.api import Partition, RampScenario, RampView

__all__ = ["Futures", "Model", "model_of"]

DEGREES = (1, 2, 4, 6, 8, 16)
"""Degrees for which the fabric has blocks of servers."""
SEEDS = range(20_000, 20_060)
"""Seeds of the futures. Training, validation and reports use others."""
_MOST_RUNNING = 64


class Model(NamedTuple):
    """Blocks of each degree, and what a model (of five) takes at each: B blocks, M models, D degrees."""

    blocks: NDArray[np.uint64]  # (D, B) servers as bit masks, in the order of first fit, then 0
    takes: NDArray[np.bool_]  # (M, D, D) sizes of the blocks
    jct_s: NDArray[np.float64]  # (M, D), infinite where it cannot run
    gap_s: float


def model_of(world: RampScenario) -> Model:
    """Return the model of a scenario."""
    planner = world.planner
    masks = [planner.fabric.masks(degree) for degree in DEGREES]
    blocks = np.zeros((len(DEGREES), max(map(len, masks)) + 1), np.uint64)
    for row, of_degree in zip(blocks, masks, strict=True):
        row[: len(of_degree)] = of_degree
    takes = np.zeros((len(world.pool), len(DEGREES), len(DEGREES)), np.bool_)
    jct_s = np.full(takes.shape[:2], np.inf)
    for model, graph in enumerate(world.pool):
        for place, degree in enumerate(DEGREES):
            parts = planner.parts(graph, degree)
            takes[model, place] = np.isin(DEGREES, parts.splits)
            placement = planner.place(parts, 0)
            if placement is not None:
                jct_s[model, place] = world.training_steps * planner.step(parts, placement).seconds
    return Model(blocks, takes, jct_s, world.gap_s)


@njit(cache=True)
def _servers(blocks, takes, occupied):  # type: ignore[no-untyped-def]
    """Servers that a job takes, or 0 if a block is missing."""
    servers = np.uint64(0)
    for of in range(len(takes)):
        if takes[of]:
            place = 0
            while blocks[of, place] & occupied:
                place += 1
            if not blocks[of, place]:
                return np.uint64(0)
            servers |= blocks[of, place]
    return servers


@njit(cache=True)
def _lost(  # type: ignore[no-untyped-def]
    blocks, takes, jct_s, gap_s, now_s, ends_s, holds, occupied, models, acceptable_s, degree
):
    """Number of later jobs that are lost if all of them take one degree; changes the running jobs."""
    lost = 0
    for job in range(len(models)):
        now_s += gap_s
        for place in range(len(ends_s)):
            if ends_s[place] <= now_s:
                occupied &= ~holds[place]
                ends_s[place], holds[place] = np.inf, 0
        servers = np.uint64(0)
        if jct_s[models[job], degree] <= acceptable_s[job]:
            servers = _servers(blocks, takes[models[job], degree], occupied)
        if servers:
            place = int(np.argmax(ends_s))
            ends_s[place], holds[place] = now_s + jct_s[models[job], degree], servers
            occupied |= servers
        else:
            lost += 1
    return lost


@njit(cache=True)
def _costs(  # type: ignore[no-untyped-def]
    blocks, takes, jct_s, gap_s, now_s, ends_s, holds, model, limit_s, models, acceptable_s, constant
):
    """Jobs lost in all futures (rows) by each degree, and by turning the job away (last)."""
    costs = np.full(len(takes[0]) + 1, np.inf)
    occupied = np.uint64(0)
    for place in range(len(holds)):
        occupied |= holds[place]
    for degree in range(len(costs)):
        servers = np.uint64(0)
        if degree < len(takes[0]):
            if jct_s[model, degree] <= limit_s:
                servers = _servers(blocks, takes[model, degree], occupied)
            if not servers:
                continue
        costs[degree] = 0 if servers else len(models)
        for future in range(len(models)):
            ends, held = ends_s.copy(), holds.copy()
            if servers:
                place = int(np.argmax(ends))
                ends[place], held[place] = now_s + jct_s[model, degree], servers
            costs[degree] += _lost(
                blocks, takes, jct_s, gap_s, now_s, ends, held, occupied | servers,
                models[future], acceptable_s[future], constant,
            )  # fmt: skip
    return costs


class Futures:
    """Choose the degree by which the fewest jobs are lost on average, in futures where a constant degree follows."""

    def __init__(self, beta: str = "A", constant: int = 4, futures: int = 32, arrivals: int = 24) -> None:
        world = world_of("ramp/degree", beta, "first_fit")
        self._model = model_of(world)
        self._constant = DEGREES.index(constant)
        self._place = {graph.digest: place for place, graph in enumerate(world.pool)}
        jobs = [job for seed in SEEDS for job in world.workload.draw(seed)]
        self._models = np.array([self._place[job.graph.digest] for job in jobs])
        self._acceptable_s = np.array([job.acceptable_s for job in jobs])
        self._starts = np.arange(futures)[:, None] * arrivals + np.arange(arrivals)

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return the degree, or 0."""
        ends_s, holds = np.full(_MOST_RUNNING, np.inf), np.zeros(_MOST_RUNNING, np.uint64)
        for place, (end_s, servers) in enumerate(view.ends):
            ends_s[place], holds[place] = end_s, servers
        at = (self._starts + view.number * self._starts.size) % len(self._models)
        job = view.job
        costs = _costs(
            *self._model, view.now, ends_s, holds, self._place[job.graph.digest], job.acceptable_s,
            self._models[at], self._acceptable_s[at], self._constant,
        )  # fmt: skip
        costs[self._constant] -= 1e-6  # of equals
        best = int(np.argmin(costs))
        return (Partition(view.number, (*DEGREES, 0)[best]),)

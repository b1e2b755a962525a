"""Tune the weights of ``roomy``: the cross-entropy method on a simulation of blocks alone.

    python scripts/tune_ramp.py [--setting ddls] [--beta A] [--generations 120] [--seed 0] [--out FILE]

Settings are the sweep files ``tables/ramp/SETTING.yaml``, with the profiles below ``$DAGSIM_DATA``. The planner gives
the time of each model on each block, once. An episode is then arrivals, ends and bit masks, which numba plays in some
milliseconds (a test compares one with the kernel's). The 81 numbers are the worth of 35 scarcities, of 35 kinds of
blocks, of 6 degrees, and of turning a job of each of the five models away. In the first half of the generations no job
is turned away that could run. The weights are added to FILE (JSON, by default the policy's own) as SETTING-BETA.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import command
import numpy as np
from numba import njit
from numpy.typing import NDArray
from sweeps import world_of

from dagsim.families.ramp import policies as roomy
from dagsim.families.ramp.api import RampScenario
from dagsim.families.ramp.view import ARRIVALS, SIZES

DEGREES = (1, 2, 4, 6, 8, 16)
SEEDS = range(1000, 1060)
"""Seeds for tuning weights. None of them is a report seed."""
_OUT = Path(roomy.__file__).with_suffix(".json")
_MODELS = 5
_KINDS = len(ARRIVALS) * len(SIZES)
_PLACES = np.cumsum([0, _KINDS, _KINDS, len(DEGREES), _MODELS])


class Tables(NamedTuple):
    """All inputs of an episode: C ways, W words of blocks, M models."""

    degree: NDArray[np.int64]  # (C,) place among ``DEGREES``
    servers: NDArray[np.uint64]  # (C,) bit masks
    touched: NDArray[np.uint64]  # (C, W) the blocks that have one of its servers
    full: NDArray[np.uint64]  # (W,) all blocks
    size: NDArray[np.int64]  # (W,) place among ``SIZES``
    jct_s: NDArray[np.float64]  # (M, C), infinite where a model cannot
    gap_s: float


def tables(world: RampScenario) -> Tables:
    """Return the tables of a scenario whose fabric has at most 64 servers."""
    planner, fabric = world.planner, world.planner.fabric
    words, sizes = [], []
    for place, size in enumerate(SIZES):
        masks = fabric.masks(size)
        for begin in range(0, len(masks), 64):
            words.append(masks[begin : begin + 64])
            sizes.append(place)
    ways = [(place, mask) for place, degree in enumerate(DEGREES) for mask in fabric.masks(degree)]
    touched = [[_bits(bool(block & mask) for block in word) for word in words] for _, mask in ways]
    jct_s = np.full((len(world.pool), len(ways)), np.inf)
    for model, graph in enumerate(world.pool):
        seen: set[tuple[int, ...]] = set()
        for place, degree in enumerate(DEGREES):
            parts = planner.parts(graph, degree)
            if parts.splits in seen or parts.degree != degree:
                continue
            seen.add(parts.splits)
            for way, (of, mask) in enumerate(ways):
                step_s = planner.step_s(graph, degree, mask) if of == place else None
                if step_s is not None:
                    jct_s[model, way] = world.training_steps * step_s
    full = np.array([(1 << len(word)) - 1 for word in words], np.uint64)
    return Tables(
        np.array([place for place, _ in ways]),
        np.array([mask for _, mask in ways], np.uint64),
        np.array(touched, np.uint64),
        full,
        np.array(sizes),
        jct_s,
        world.gap_s,
    )


def _bits(flags: Any) -> int:
    return sum(1 << place for place, flag in enumerate(flags) if flag)


@njit
def _count(word):  # type: ignore[no-untyped-def]
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    for shift in (8, 16, 32):
        word = word + (word >> np.uint64(shift))
    return np.int64(word & np.uint64(0x7F))


@njit
def _blocked(  # type: ignore[no-untyped-def]
    model, acceptable_s, degree, servers, touched, full, size, jct_s, gap_s, ahead, scarcity, blocks, worth, away
):
    """Number of rejected jobs."""
    sizes, horizons, words = scarcity.shape[1], len(ahead), len(full)
    ends, holds, running, blocked = np.zeros(64), np.zeros(64, np.int64), 0, 0
    free, left, lost = np.zeros((horizons, words), np.uint64), np.zeros((horizons, sizes)), np.zeros(sizes)
    for job in range(len(model)):
        now, place = job * gap_s, 0
        while place < running:
            if ends[place] <= now + 1e-7:
                running -= 1
                ends[place], holds[place] = ends[running], holds[running]
            else:
                place += 1
        taken = np.uint64(0)
        for place in range(running):
            taken |= servers[holds[place]]
        before = 0.0
        for at in range(horizons):
            free[at] = full
            for place in range(running):
                if ends[place] > now + ahead[at] * gap_s:
                    for word in range(words):
                        free[at, word] &= ~touched[holds[place], word]
            left[at] = 0
            for word in range(words):
                left[at, size[word]] += _count(free[at, word])
            for of in range(sizes):
                before += scarcity[at, of] / (1 + left[at, of])
        best, chosen = away[model[job]], -1
        for way in range(len(servers)):
            takes_s = jct_s[model[job], way]
            if servers[way] & taken or not takes_s <= acceptable_s[job] * (1 + 1e-9):
                continue
            value = before + worth[degree[way]]
            for at in range(horizons):
                lost[:] = 0
                if takes_s > ahead[at] * gap_s:
                    for word in range(words):
                        lost[size[word]] += _count(free[at, word] & touched[way, word])
                for of in range(sizes):
                    value -= scarcity[at, of] / (1 + left[at, of] - lost[of]) + blocks[at, of] * lost[of]
            if value > best:
                best, chosen = value, way
        if chosen < 0:
            blocked += 1
        else:
            ends[running], holds[running] = now + jct_s[model[job], chosen], chosen
            running += 1
    return blocked


class Blocking:
    """Share of the jobs of a scenario that is rejected, by the 81 numbers and the seeds."""

    def __init__(self, world: RampScenario) -> None:
        self.tables = tables(world)
        self._world = world
        place = {graph.digest: number for number, graph in enumerate(world.pool)}
        self._place = place
        self._jobs: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}

    def __call__(self, numbers: NDArray[np.float64], seeds: Iterable[int]) -> float:
        weights = weights_of(numbers, self.counts)
        ahead = np.array(ARRIVALS, float)
        rates = []
        for seed in seeds:
            model, acceptable_s = self._drawn(seed)
            rates.append(_blocked(model, acceptable_s, *self.tables, ahead, *weights) / len(model))
        return float(np.mean(rates))

    @property
    def counts(self) -> NDArray[np.float64]:
        """Number of blocks of each size, (sizes,)."""
        of_word = np.array([int(word).bit_count() for word in self.tables.full], float)
        return np.maximum(np.bincount(self.tables.size, of_word, len(SIZES)), 1.0)

    def _drawn(self, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        if seed not in self._jobs:
            jobs = self._world.workload.draw(seed)
            models = np.array([self._place[job.graph.digest] for job in jobs])
            self._jobs[seed] = models, np.array([job.acceptable_s for job in jobs])
        return self._jobs[seed]


def weights_of(numbers: NDArray[np.float64], counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Worth of scarcities and of blocks (arrivals, sizes), of degrees, and of rejecting each model."""
    scarcity, blocks, degrees, away = np.split(numbers, _PLACES[1:-1])
    shape = (len(ARRIVALS), len(SIZES))
    return np.exp(scarcity).reshape(shape) * 0.1, np.exp(blocks).reshape(shape) * 0.05 / counts, degrees, away


def tune(rate: Blocking, generations: int, seed: int, say: command.Say) -> NDArray[np.float64]:
    """Return the best numbers of the cross-entropy method."""
    rng = np.random.default_rng(seed)
    mean, spread = np.zeros(_PLACES[-1]), np.full(_PLACES[-1], 1.2)
    mean[_PLACES[1] : _PLACES[2]] = -1.0
    spread[_PLACES[2] : _PLACES[3]] = 0.4
    mean[_PLACES[3] :], spread[_PLACES[3] :] = -20.0, 0.0
    best, least = mean, 1.0
    for generation in range(generations):
        if generation == generations // 2:
            mean[_PLACES[3] :], spread = -0.6, np.maximum(spread, 0.3)
        tried = mean + spread * rng.standard_normal((48, len(mean)))
        tried[0] = mean
        seeds = rng.choice(np.array(SEEDS), 10, replace=False).tolist()
        order = np.argsort([rate(numbers, seeds) for numbers in tried])
        chosen = tried[order[:12]]
        mean = 0.6 * mean + 0.4 * chosen.mean(axis=0)
        spread = np.maximum(0.75 * spread + 0.25 * chosen.std(axis=0), 0.05 * (spread > 0))
        if generation % 10 == 9 or generation + 1 == generations:
            share = rate(mean, SEEDS)
            say(f"generation {generation + 1}: {share:.4f} of the jobs turned away")
            if share < least:
                best, least = mean.copy(), share
    return best


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    world = world_of(f"ramp/{options.setting}", options.beta, "packed")
    rate = Blocking(world)
    weights = weights_of(tune(rate, options.generations, options.seed, say), rate.counts)
    tuned = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    scarcity, blocks, degrees, away = ([round(float(weight), 5) for weight in part.ravel()] for part in weights)
    tuned[f"{options.setting}-{options.beta}"] = {
        "scarcity": scarcity,
        "blocks": blocks,
        "degrees": dict(zip(map(str, DEGREES), degrees, strict=True)),
        "away": dict(zip([graph.model for graph in world.pool], away, strict=True)),
    }
    return dict(sorted(tuned.items()))


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--setting", choices=("ddls", "plain", "mixed"), default="ddls")
    parser.add_argument("--beta", default="A", help="a letter of the paper")
    parser.add_argument("--generations", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=_OUT, help="a JSON file of weights")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

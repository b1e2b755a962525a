"""Tune the weights of ``roomy``: the cross-entropy method on a simulation of blocks alone.

    python scripts/tune_ramp.py --graphs DIR [--setting ddls] [--beta A] [--generations 120] [--seed 0] [--out FILE]

Settings are those of ``compare_ramp.py``. What a job takes on each block comes from the planner, once; an episode is
then arrivals, ends and bit masks, which numba plays in some milliseconds (``--check`` compares an episode with the
kernel's). The 81 numbers are the worth of 35 scarcities, 35 kinds of blocks, 6 degrees, and of turning a job of each of
the five models away. In the first half of the generations no job is turned away that could run. FILE (JSON, by default
the policy's own) gets the weights under the name SETTING-BETA.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from compare_ramp import made
from numba import njit
from numpy.typing import NDArray

from dagsim.errors import DagsimError
from dagsim.files import write_text
from dagsim.systems.ramp import RampScenario, read_graphs
from dagsim.systems.ramp.policies import roomy
from dagsim.systems.ramp.room import ARRIVALS, SIZES

__all__ = ["Tables", "tables", "tune"]

MODELS = ("alexnet", "gnmt", "resnet18", "squeezenet1_0", "vgg16")
DEGREES = (1, 2, 4, 6, 8, 16)
SEEDS = range(1000, 1060)
"""Seeds that weights are tuned on; none of them is a report seed."""
_OUT = Path(roomy.__file__).with_suffix(".json")
_KINDS = len(ARRIVALS) * len(SIZES)
_PLACES = np.cumsum([0, _KINDS, _KINDS, len(DEGREES), len(MODELS)])


class Tables(NamedTuple):
    """Everything that an episode needs to know: C ways, W words of blocks, M models."""

    degree: NDArray[np.int64]  # (C,) place among ``DEGREES``
    servers: NDArray[np.uint64]  # (C,) bit masks
    touched: NDArray[np.uint64]  # (C, W) the blocks that have one of its servers
    full: NDArray[np.uint64]  # (W,) all blocks
    size: NDArray[np.int64]  # (W,) place among ``SIZES``
    jct_s: NDArray[np.float64]  # (M, C), infinite where a model cannot
    gap_s: float


def tables(world: RampScenario) -> Tables:
    """The tables of a scenario whose fabric has at most 64 servers."""
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


@njit  # type: ignore[untyped-decorator]
def _count(word):  # type: ignore[no-untyped-def]
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit  # type: ignore[untyped-decorator]
def _blocked(  # type: ignore[no-untyped-def]
    model, acceptable_s, degree, servers, touched, full, size, jct_s, gap_s, ahead, scarcity, blocks, worth, away
):
    """How many of the jobs are turned away."""
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


def blocking(world: RampScenario, known: Tables, numbers: NDArray[np.float64], seeds: Any) -> float:
    """The mean share of jobs that is turned away, by the 81 numbers."""
    place = {graph.digest: number for number, graph in enumerate(world.pool)}
    shape, counts = (len(ARRIVALS), len(SIZES)), np.array([1, 1, 1, 1, 1]) @ np.eye(5)
    scarcity, blocks, worth, away = np.split(numbers, _PLACES[1:-1])
    per_size = np.array([sum(_popcounts(known, of)) for of in range(len(SIZES))]) * counts
    rates = []
    for seed in seeds:
        jobs = _drawn(world, seed)
        model = np.array([place[job.graph.digest] for job in jobs])
        due = np.array([job.acceptable_s for job in jobs])
        ahead = np.array(ARRIVALS, float)
        many = _blocked(
            model,
            due,
            *known,
            ahead,
            np.exp(scarcity).reshape(shape) * 0.1,
            np.exp(blocks).reshape(shape) * 0.05 / per_size,
            worth,
            away,
        )
        rates.append(many / len(jobs))
    return float(np.mean(rates))

"""Nodes: how much room one has, and what taking and giving back does to it."""

from __future__ import annotations

import numpy as np

from dagsim.systems.cluster.lane.columns import MICRO
from dagsim.systems.cluster.lane.jit import inner, int64
from dagsim.systems.cluster.lane.state import CHANGES, HOLDS, HOLDS_FREE, HOLDS_TOP, NAMED_GPUS, RING, State

__all__ = ["free_cores", "give_back", "room", "room_among", "take", "tightest"]

_ENOUGH = 1 << 40
"""Room for what asks for nothing."""


@inner
def room(s: State, kind: int, node: int) -> int:
    """Count the instances of a demand class that could start on a node now."""
    return room_among(s, s.nodes, s.left, kind, node)


@inner
def room_among(s: State, nodes: np.recarray, left: np.ndarray, kind: int, node: int) -> int:
    """Count the instances that could start with nodes and shared GPUs in a given state."""
    whole, share = s.classes[kind].whole, s.classes[kind].share
    if whole:
        count = nodes[node].idle if whole == 1 else nodes[node].idle // whole
    elif share:
        count = nodes[node].idle * (MICRO // share)
        if nodes[node].partly:
            for gpu in range(nodes[node].gpus):
                if left[node, gpu] > 0:
                    count += left[node, gpu] // share
    else:
        count = _ENOUGH
    if s.classes[kind].cpus:
        count = min(count, nodes[node].cpus // s.classes[kind].cpus)
    if s.classes[kind].memory:
        count = min(count, nodes[node].memory // s.classes[kind].memory)
    return count


@inner
def free_cores(s: State, node: int) -> int:
    """Whole free cores; those above 4,095 count as one level."""
    return min(s.nodes[node].cpus // MICRO, 4095)


@inner
def tightest(s: State, node: int, share: int) -> int:
    """Find the partly used GPU with the least free that has room for ``share``, or -1."""
    found, least = -1, MICRO + 1
    if s.nodes[node].partly:
        for gpu in range(s.nodes[node].gpus):
            if share <= s.left[node, gpu] < least:
                found, least = gpu, s.left[node, gpu]
    return found


@inner
def take(s: State, kind: int, node: int, count: int, run: int) -> int:
    """Occupy a node with ``count`` instances, noted as held by ``run``; returns the bit mask of their GPUs."""
    held = int64(0)
    if s.classes[kind].share:
        last = -1
        for _ in range(count):
            gpu = _take_share(s, node, s.classes[kind].share)
            if gpu == last:
                s.holds[s.runs[run].last].count += 1
            else:
                bit = int64(1) << gpu
                _note(s, run, node, 1, bit, gpu)
                held |= bit
                last = gpu
    else:
        held = _take_whole(s, node, s.classes[kind].whole * count)
        _note(s, run, node, count, held, -1)
    s.nodes[node].cpus -= s.classes[kind].cpus * count
    s.nodes[node].memory -= s.classes[kind].memory * count
    s.types[s.nodes[node].type].cpus -= s.classes[kind].cpus * count
    _changed(s, node)
    return held


@inner
def give_back(s: State, kind: int, hold: int) -> None:
    """Give back what a hold holds, and let its record be used again."""
    node, count, held, gpu = s.holds[hold].node, s.holds[hold].count, s.holds[hold].mask, s.holds[hold].gpu
    whole, share = s.classes[kind].whole * count, s.classes[kind].share * count
    if whole:
        s.nodes[node].free |= held
        s.nodes[node].idle += whole
        s.types[s.nodes[node].type].idle += whole
    elif share:
        s.left[node, gpu] += share
        if s.left[node, gpu] == MICRO:
            s.left[node, gpu] = -1
            s.nodes[node].free |= held
            s.nodes[node].partly -= 1
            s.nodes[node].idle += 1
            s.types[s.nodes[node].type].idle += 1
    s.nodes[node].cpus += s.classes[kind].cpus * count
    s.nodes[node].memory += s.classes[kind].memory * count
    s.types[s.nodes[node].type].cpus += s.classes[kind].cpus * count
    s.holds[hold].next = s.n[HOLDS_FREE]
    s.n[HOLDS_FREE] = hold
    s.n[HOLDS] -= 1
    _changed(s, node)


@inner
def _take_whole(s: State, node: int, needed: int) -> int:
    """Take so many idle GPUs, the lowest first; returns their bit mask."""
    free = s.nodes[node].free
    held = int64(0)
    if needed == s.nodes[node].idle:
        held = free
    elif s.nodes[node].gpus <= NAMED_GPUS:
        for _ in range(needed):
            held |= (free ^ held) & -(free ^ held)
    s.nodes[node].free = free ^ held
    s.nodes[node].idle -= needed
    s.types[s.nodes[node].type].idle -= needed
    return held


@inner
def _take_share(s: State, node: int, share: int) -> int:
    """Take a share of the tightest GPU, else of the first idle one; returns its number."""
    gpu = tightest(s, node, share)
    if gpu < 0:
        gpu = 0
        while not s.nodes[node].free >> gpu & 1:
            gpu += 1
        s.nodes[node].free ^= int64(1) << gpu
        s.left[node, gpu] = MICRO
        s.nodes[node].partly += 1
        s.nodes[node].idle -= 1
        s.types[s.nodes[node].type].idle -= 1
    s.left[node, gpu] -= share
    return gpu


@inner
def _note(s: State, run: int, node: int, count: int, held: int, gpu: int) -> None:
    """Append a hold to those of a run."""
    hold = s.n[HOLDS_FREE]
    if hold < 0:
        hold = s.n[HOLDS_TOP]
        s.n[HOLDS_TOP] += 1
    else:
        s.n[HOLDS_FREE] = s.holds[hold].next
    s.n[HOLDS] += 1
    s.holds[hold].node = node
    s.holds[hold].count = count
    s.holds[hold].mask = held
    s.holds[hold].gpu = gpu
    s.holds[hold].next = -1
    if s.runs[run].first < 0:
        s.runs[run].first = hold
    else:
        s.holds[s.runs[run].last].next = hold
    s.runs[run].last = hold


@inner
def _changed(s: State, node: int) -> None:
    """Note for the trees that a node has changed."""
    s.ring[s.n[CHANGES] & (RING - 1)] = node
    s.n[CHANGES] += 1

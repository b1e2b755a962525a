"""Times at which GPUs are expected to be free: the runs of each type by their expected ends, and the reservation made
of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.columns import MICRO, Classes, records
from dagsim.systems.cluster.lane.heap import pop, push
from dagsim.systems.cluster.lane.jit import by_pointer, inner, int64
from dagsim.systems.cluster.lane.kernel import alive
from dagsim.systems.cluster.lane.state import ENTRY, RUNS, SLOTS, STARTS, State

__all__ = ["Ends", "amount", "look", "moved_ends", "new_ends", "reservation"]

_SPARE = 32


@by_pointer
class Ends(NamedTuple):
    """Heaps of ``(expected end, run)``; those of runs that are over are dropped when they are seen."""

    heaps: np.recarray  # (types * length,) ENTRY
    held: np.ndarray  # (types,) int64
    aside: np.recarray  # (length,) ENTRY: what is taken out for a question, to be put back
    gpus: np.ndarray  # (K,) int64: millionths of a GPU that an instance takes


def new_ends(types: int, runs: int, classes: Classes) -> Ends:
    """No runs, and space for those of a state with ``runs`` slots."""
    length = 2 * runs + _SPARE
    gpus = np.array([round(gpus * MICRO) for gpus in classes.table.gpus.tolist()], np.int64)
    return Ends(records(ENTRY, types * length), np.zeros(types, np.int64), records(ENTRY, length), gpus)


def moved_ends(e: Ends, runs: int) -> Ends:
    """The same with space for ``runs`` slots."""
    types = len(e.held)
    before, length = len(e.aside), 2 * runs + _SPARE
    heaps = records(ENTRY, types * length)
    for type_ in range(types):
        heaps[type_ * length : type_ * length + before] = e.heaps[type_ * before : (type_ + 1) * before]
    return e._replace(heaps=heaps, aside=records(ENTRY, length))


@inner
def look(s: State, e: Ends) -> None:
    """Take in the runs started since the last look."""
    for each in range(s.n[STARTS]):
        entry = s.starts[each]
        if alive(s, entry):
            run = entry & ((1 << SLOTS) - 1)
            task, type_ = s.runs[run].task, s.runs[run].type
            if e.held[type_] > 2 * s.n[RUNS] + 16:
                _tidy(s, e, type_)
            end_s = max(s.runs[run].start_s + s.seconds[task, type_], s.now[0])
            push(e.heaps, type_ * len(e.aside), e.held[type_], end_s, entry)
            e.held[type_] += 1
    s.n[STARTS] = 0


@inner
def amount(s: State, e: Ends, kind: int, head: int) -> int:
    """Millionths of class ``head``'s unit (GPUs, or cores) that an instance of a class takes."""
    return e.gpus[kind] if s.classes[head].gpus else s.classes[kind].cpus


@inner
def reservation(s: State, e: Ends, head: int) -> tuple[float, int, int]:
    """Find the soonest time at which a task has room, its type and what is left over."""
    kind = int64(s.tasks[head].kind)
    soonest, on, extra = np.inf, -1, int64(0)
    for type_ in range(len(s.types)):
        if s.may[kind, type_]:
            time_s, left = _shadow(s, e, kind, type_)
            if on < 0 or time_s < soonest:
                soonest, on, extra = time_s, type_, left
    return soonest, on, extra


@inner
def _shadow(s: State, e: Ends, kind: int, type_: int) -> tuple[float, int]:
    """The time when a type has enough free for the class, and how much more.

    GPUs are added up as numbers with fractions, cores in millionths, as the SimPy kernel does.
    """
    together = max(s.classes[kind].gang, 1)
    on_gpus = s.classes[kind].gpus > 0
    missing = s.classes[kind].gpus * together - s.types[type_].idle
    if not on_gpus:
        missing = float(s.classes[kind].cpus * together - s.types[type_].cpus)
    at, aside = type_ * len(e.aside), 0
    shadow_s = s.now[0] if missing <= 0 else np.inf
    while e.held[type_]:
        end_s, entry = e.heaps[at].key, e.heaps[at].what
        if missing <= 0 and end_s > shadow_s:
            break
        pop(e.heaps, at, e.held[type_])
        e.held[type_] -= 1
        if not alive(s, entry):
            continue
        e.aside[aside].key = end_s
        e.aside[aside].what = entry
        aside += 1
        if missing > 0:
            shadow_s = max(end_s, s.now[0])
        run = entry & ((1 << SLOTS) - 1)
        other = s.tasks[s.runs[run].task].kind
        missing -= (s.classes[other].gpus if on_gpus else float(s.classes[other].cpus)) * s.runs[run].count
    for each in range(aside):
        push(e.heaps, at, e.held[type_], e.aside[each].key, e.aside[each].what)
        e.held[type_] += 1
    if missing > 0:
        return np.inf, int64(0)
    return shadow_s, int64(np.rint(-missing * MICRO) if on_gpus else -missing)


@inner
def _tidy(s: State, e: Ends, type_: int) -> None:
    """Drop the runs that are over."""
    at, held = type_ * len(e.aside), e.held[type_]
    e.held[type_] = 0
    for each in range(held):
        key, entry = e.heaps[at + each].key, e.heaps[at + each].what
        if alive(s, entry):
            push(e.heaps, at, e.held[type_], key, entry)
            e.held[type_] += 1

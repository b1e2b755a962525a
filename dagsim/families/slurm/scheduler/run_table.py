"""The runs in progress on each node, as the compiled functions of backfill read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from dagsim.families.slurm import services
from dagsim.families.slurm.scheduler import slurm_times
from dagsim.families.slurm.scheduler.slurm_times import FitSteps, Limits
from dagsim.model.arithmetic import bits
from dagsim.systems.cluster.api import NodeState, Run

Numbers: TypeAlias = Any
"""A list or an array of numbers."""
_LISTED = 100_000
"""Number of nodes searched in a ``RunTable`` up to which lists cost less than loading compiled
code. Once a process has loaded the code, every table uses it from the start."""
_SETS = 4096
"""Maximum number of bit sets that are also kept as lists."""


class RunTable:
    """The runs in progress on each node, sorted by the ends of their time limits, in the flat
    sequences that ``slurm_times`` needs. The sequences are lists at first. They are replaced by
    arrays, for compiled functions, once more than ``_LISTED`` nodes have been searched. The object
    can be deep-copied. A start or an end takes O(runs on the node)."""

    def __init__(self, nodes: int) -> None:
        self.ids: list[list[int]] = [[] for _ in range(nodes)]
        """The runs on each node."""
        self.stride = self.kept_stride = 4
        """Rows per node in the sequences of runs and reservations."""
        self.ends: Numbers = [0.0] * 4 * nodes
        self.gives: Numbers = [0.0] * 12 * nodes
        self.runs: Numbers = [0] * nodes
        self.free: Numbers = [0.0] * 3 * nodes
        self.begins: Numbers = [0.0] * 4 * nodes
        self.untils: Numbers = [0.0] * 4 * nodes
        self.owners: Numbers = [0] * 4 * nodes
        self.kept: Numbers = [0] * nodes
        self.out: Numbers = [0.0] * nodes
        self.limits = Limits([], [], self.runs, self.stride, [])
        """The ends of all runs, as of the last sort."""
        self.compiled = False
        self.searched = 0
        """Number of nodes searched so far."""
        self._stale = dict.fromkeys(range(nodes))
        """Nodes whose free resources have changed."""
        self._members: dict[tuple[int, ...], tuple[list[int], Numbers]] = {}
        self._flags: dict[int, Numbers] = {}

    def started(self, run: Run, limit_ends_s: float) -> None:
        """Record that a run has started."""
        demand = run.task.demand
        for machine, count, *_ in run.held:
            node = machine.index
            ids, self._stale[node] = self.ids[node], None
            if len(ids) == self.stride:
                self._widen()
            row, place = node * self.stride, len(ids)
            ends, gives = self.ends, self.gives
            while place and ends[row + place - 1] > limit_ends_s:
                ends[row + place] = ends[row + place - 1]
                to = 3 * (row + place)
                gives[to : to + 3] = gives[to - 3 : to]
                place -= 1
            ids.insert(place, run.id)
            ends[row + place] = limit_ends_s
            to = 3 * (row + place)
            gives[to : to + 3] = [float(demand.whole * count), float(demand.cpus * count), float(demand.memory * count)]
            self.runs[node] = len(ids)

    def freed(self, nodes: Iterable[int]) -> None:
        """Record that the free resources of some nodes have changed although no run started or
        ended.
        """
        self._stale.update(dict.fromkeys(nodes))

    def move(self, run: Run, limit_ends_s: float) -> None:
        """Move the end of a run's time limit."""
        self.ended(run)
        self.started(run, limit_ends_s)

    def ended(self, run: Run) -> None:
        """Record that a run has ended."""
        for machine, *_ in run.held:
            node = machine.index
            ids, self._stale[node] = self.ids[node], None
            place = ids.index(run.id)
            del ids[place]
            row, last = node * self.stride, len(ids)
            self.ends[row + place : row + last] = self.ends[row + place + 1 : row + last + 1]
            self.gives[3 * (row + place) : 3 * (row + last)] = self.gives[3 * (row + place + 1) : 3 * (row + last + 1)]
            self.runs[node] = last

    def without(self, runs: Iterable[Run], now: float) -> RunTable:
        """Return a copy in which some of the runs have ended, so that their resources are free.
        Reservations are not copied.
        """
        table = copy(self)
        table.ids = [list(ids) for ids in self.ids]
        table._stale = {}
        for name in ("ends", "gives", "runs", "free"):
            setattr(table, name, getattr(self, name).copy())
        for run in runs:
            demand = run.task.demand
            table.ended(run)
            for machine, count, *_ in run.held:
                at = 3 * machine.index
                for place, amount in enumerate((demand.whole, demand.cpus, demand.memory)):
                    table.free[at + place] += float(amount * count)
        table.sort(now)
        return table

    def refresh(self, machines: Sequence[NodeState]) -> None:
        """Update the free resources of the nodes on which they have changed."""
        for node in self._stale:
            machine = machines[node]
            self.free[3 * node : 3 * node + 3] = [float(machine.idle), float(machine.cpus), float(machine.memory)]
        self._stale.clear()

    def begin(self) -> None:
        """Drop all reservations, and switch to compiled functions once there is enough work."""
        self.kept = [0] * len(self.ids)
        # compiled functions are worth loading after many searches, or if both versions are already
        # loaded
        pays = self.searched > _LISTED or inner_loops.cache_info().currsize == 2
        if not self.compiled and pays and inner_loops(compiled=True) != inner_loops(compiled=False):
            self.compiled = True
            for name in ("ends", "gives", "free", "begins", "untils", "out"):
                setattr(self, name, np.array(getattr(self, name), np.float64))
            for name in ("runs", "owners"):
                setattr(self, name, np.array(getattr(self, name), np.int64))
            self._members.clear()
            self._flags.clear()
        if self.compiled:
            self.kept = np.zeros(len(self.ids), np.int64)

    def sort(self, now: float) -> None:
        """Sort the distinct end times of all runs. A run that has exceeded its limit may end at any
        moment, so its end is assumed to be 1 s from now.
        """
        rows = np.arange(self.stride) < np.asarray(self.runs)[:, None]
        ends = np.maximum(np.asarray(self.ends).reshape(rows.shape), now + 1.0)
        order, ranks = np.unique(ends[rows], return_inverse=True)
        places = np.zeros(rows.shape, np.int64)
        places[rows] = ranks
        marks = np.zeros(len(order), np.int64)
        columns: list[Any] = [order, places.ravel(), marks]
        order, ranks, marks = columns if self.compiled else [column.tolist() for column in columns]
        self.limits = Limits(order, ranks, self.runs, self.stride, marks)

    def keep(self, node: int, begin_s: float, until_s: float, owner: int) -> None:
        """Reserve a node for ``owner``."""
        count = self.kept[node]
        if count == self.kept_stride:
            self.widen_kept()
        row = node * self.kept_stride + count
        self.begins[row], self.untils[row], self.owners[row] = begin_s, until_s, owner
        self.kept[node] = count + 1

    def widen_kept(self) -> None:
        """Double the space for reservations per node."""
        self.begins, self.untils, self.owners = [
            self._wider(values, self.kept_stride, 1) for values in (self.begins, self.untils, self.owners)
        ]
        self.kept_stride *= 2

    def members(self, groups: tuple[int, ...]) -> tuple[list[int], Numbers]:
        """Return the nodes of several bit sets, set by set, both as a list and in the form that the
        functions in ``slurm_times`` accept.
        """
        members = self._members.get(groups)
        if members is None:
            if len(self._members) > _SETS:
                self._members.clear()
            listed = list(dict.fromkeys(node for nodes in groups for node in bits(nodes)))
            members = self._members[groups] = listed, np.array(listed, np.int64) if self.compiled else listed
        return members

    def flags(self, nodes: int) -> Numbers:
        """Convert a bit set to a sequence with one flag per node."""
        flags = self._flags.get(nodes)
        if flags is None:
            if len(self._flags) > _SETS:
                self._flags.clear()
            listed = [nodes >> node & 1 for node in range(len(self.ids))]
            flags = self._flags[nodes] = np.array(listed, np.int64) if self.compiled else listed
        return flags

    def empty(self) -> FitSteps:
        """Return sequences with space for the times from which more instances of one demand fit."""
        count = len(self.ids) * (self.stride + 1)
        if self.compiled:
            return FitSteps(np.empty(count), np.empty(count), np.zeros(len(self.ids), np.int64))
        return FitSteps([0.0] * count, [0.0] * count, [0] * len(self.ids))

    def _widen(self) -> None:
        self.ends, self.gives = self._wider(self.ends, self.stride, 1), self._wider(self.gives, self.stride, 3)
        self.stride *= 2

    def _wider(self, values: Numbers, stride: int, columns: int) -> Numbers:
        """Copy the values into rows that are twice as long."""
        old = np.array(values).reshape(len(self.ids), stride * columns)
        new = np.concatenate((old, np.zeros_like(old)), axis=1).ravel()
        return new if self.compiled else new.tolist()


@cache
def inner_loops(*, compiled: bool) -> tuple[Callable[..., Any], ...]:
    """Return the functions in ``slurm_times``, which are compiled if ``compiled`` is set and numba
    is installed.
    """
    fill_rooms, earliest = slurm_times.fill_rooms, slurm_times.earliest
    if compiled and (compile_ := services.compiled_function.offered()):
        return compile_(fill_rooms), compile_(earliest, *slurm_times.CALLED)
    return fill_rooms, earliest


def load_compiled() -> None:
    """Load the compiled functions in a process that is about to run many simulations. Each
    ``RunTable`` then uses them from the start.
    """
    for compiled in (False, True):
        inner_loops(compiled=compiled)

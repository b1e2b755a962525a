"""Slurm's backfill cycle in compiled code: the columns that ``lane.slurm_cycle`` reads.

``SlurmMultifactor._backfill`` defines the cycle. It hands it over once there is enough work
(``RunTable.compiled``), unless jobs share GPUs, limits hold for a type of GPU, or a gang must lie in one
domain of the network. Both make the same decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nextafter
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dagsim.model.arithmetic import bits
from dagsim.systems.cluster.api import ClusterView, DemandClass
from dagsim.systems.cluster.policies.slurm_backfill import PendingJob, RunTable, may_fit
from dagsim.systems.cluster.policies.slurm_times import NodeChoice

__all__ = ["AT_LIMIT", "GONE", "PASSED", "TESTED", "CycleColumns", "Modes"]

TESTED, PASSED, AT_LIMIT, GONE = range(4)
"""Modes of a job: it is tested; it counts as tested, but may not start; it is set aside, because a
limit leaves no room; it has left.
"""


class Modes(NamedTuple):
    """The next jobs of a cycle, and how each is treated (``lane.slurm_cycle``)."""

    jobs: Sequence[PendingJob]
    modes: list[int] | None
    """None if all are tested."""


class _Kind(NamedTuple):
    """Jobs that differ only in their limits."""

    demand: DemandClass
    alone: bool
    spread: bool
    questions: tuple[tuple[int, ...], ...]
    """For each question, the groups of nodes in order."""


_START = 8
"""Initial rows of scratch space."""


class CycleColumns:
    """The kinds of waiting jobs, as columns. An index rebuilds it, so it may refer to demands.

    O(kinds x nodes) when a kind appears, or nodes go down or come back; O(jobs + kinds of these) per cycle.
    """

    def __init__(self) -> None:
        self.kinds: list[_Kind] = []
        self._numbers: dict[_Kind, int] = {}
        self._foreign = False
        """True if any kind shares GPUs or lies in one domain of the network."""
        self._up = -1
        self._laid = 0
        """Number of kinds with columns."""
        self._rows: dict[int, int] = {}
        self._flags: list[np.ndarray] = []
        self._usable: list[int] = []
        self._opened: list[int] = []
        """The open nodes of each kind when last seen."""
        self._lane: ModuleType | None = None
        self._k: Any = None
        self._s: Any = None
        self._weight = np.zeros(0, np.int64)
        self._stride = 0

    def number(self, job: PendingJob) -> int:
        """The kind of a job."""
        key = _Kind(job.task.demand, job.alone, job.spread, tuple([groups for _, groups in job.asked]))
        kind = self._numbers.get(key)
        if kind is None:
            kind = self._numbers[key] = len(self.kinds)
            self.kinds.append(key)
            self._foreign = self._foreign or bool(key.demand.share or key.demand.bound)
        return kind

    def handles(self, view: ClusterView) -> bool:
        """True if compiled code knows all that the jobs need."""
        return not (self._foreign or any(view.machines.shared))

    def begin(self, view: ClusterView, table: RunTable, choice: NodeChoice, until_s: float) -> None:
        """Begin a cycle."""
        if self._lane is None:
            from dagsim.systems.cluster.lane import slurm_cycle

            self._lane = slurm_cycle
            self._weight = np.array(choice.ranks(len(view.machines.list)), np.int64)
        up = sum([machine.bit for machine in view.machines.list if machine.up])
        if up != self._up or self._laid != len(self.kinds):
            self._lay(view, up)
        k, now = self._k, float(view.now)
        k.least_s.fill(now)
        k.until_s.fill(until_s)
        k.own.fill(-2)
        k.never_s.fill(inf)
        k.never_s[k.first == k.last] = -inf
        closed = view.machines.site.closed if view.machines.site is not None else ()
        for number in self._reserved:
            own = self.kinds[number].demand.terms.reservation  # type: ignore[union-attr]
            places = slice(k.question[number], k.question[number + 1])
            k.own[places] = own
            k.least_s[places] = max(now, closed[own].start_s)
            k.until_s[places] = min(until_s, nextafter(closed[own].end_s, -inf))
            if k.least_s[k.question[number]] > k.until_s[k.question[number]]:
                k.never_s[places] = -inf
        self._most_kept = int(table.kept.max()) if closed else 0

    def run(
        self, view: ClusterView, table: RunTable, whole: int, listed: Modes, tests: int, resolution_s: float,
        linear_s: float, ties: bool,
    ) -> tuple[bool, int, int]:  # fmt: skip
        """Test jobs until one starts or the cycle is over. Returns whether one starts, its index (or that
        after the last job that was reached), and the nodes on which it may.
        """
        lane, jobs = self._lane, listed.jobs
        assert lane is not None
        numbers = [job.kind for job in jobs]
        for number in dict.fromkeys(numbers):
            demand = self.kinds[number].demand
            self._k.fits[number] = may_fit(view.machines, demand)
            if demand.terms is not None and demand.nodes != self._opened[number]:
                self._open(number, demand.nodes)
        modes = np.zeros(len(jobs), np.int64) if listed.modes is None else np.array(listed.modes, np.int64)
        columns = lane.CycleJobs(np.array(numbers, np.int64), modes, self._limits(jobs))
        self._fresh(table)
        s, state = self._s, self._s.state
        state[:] = 0
        state[lane.KEPT] = self._most_kept
        while True:
            nodes = lane.CycleNodes(
                table.ends, table.gives, table.runs, table.free, table.flags(whole), self._weight, table.begins,
                table.untils, table.owners, table.kept,
            )  # fmt: skip
            why = lane.cycle(
                nodes, self._k, columns, s, table.stride, table.kept_stride, len(jobs), tests, float(view.now),
                float(resolution_s), float(linear_s), ties,
            )  # fmt: skip
            if why != lane.WIDEN:
                break
            if state[lane.KEPT] >= table.kept_stride:
                table.widen_kept()
            else:
                s = self._s = self._wider(s)
                state = s.state
        self._most_kept = int(state[lane.KEPT])
        starts = why == lane.STARTS
        open_ = sum([1 << node for node in np.flatnonzero(s.out).tolist()]) if starts else 0
        return starts, int(state[lane.AT]), open_

    def _limits(self, jobs: Sequence[PendingJob]) -> np.ndarray:
        """(jobs, most questions) float64: the limits of the jobs."""
        if self._most == 1:
            return np.array([job.asked[0][0] for job in jobs]).reshape(-1, 1)
        limits = np.zeros((len(jobs), self._most))
        for place, job in enumerate(jobs):
            for question, (limit_s, _) in enumerate(job.asked):
                limits[place, question] = limit_s
        return limits

    def _open(self, number: int, nodes: int) -> None:
        """Set the nodes that are open to a kind."""
        self._opened[number] = nodes
        row = self._rows.get(nodes)
        if row is None:
            row = self._rows[nodes] = len(self._flags)
            count = len(self._weight)
            self._flags.append(np.array([nodes >> node & 1 for node in range(count)], np.int64))
            self._k = self._k._replace(is_open=np.array(self._flags))
        self._k.row[number] = row

    def _lay(self, view: ClusterView, up: int) -> None:
        """Write the columns of all kinds, for the nodes that are up."""
        lane, kinds = self._lane, self.kinds
        assert lane is not None
        count, machines = len(view.machines.list), view.machines
        of_type = [0] * len(machines.types)
        for machine in machines.list:
            of_type[machine.type] |= machine.bit & up
        question, first, last, windows = [0], list[int](), list[int](), list[int]()
        member, group = list[int](), list[int]()
        places: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
        sets: dict[int, int] = {}
        self._reserved = []
        for number, kind in enumerate(kinds):
            demand = kind.demand
            usable = sum([of_type[type_] for type_ in demand.types])
            if demand.terms is not None:
                usable &= demand.terms.nodes
                if demand.terms.reservation >= 0 and machines.site is not None:
                    usable &= machines.site.closed[demand.terms.reservation].nodes
                    self._reserved.append(number)
            for groups in kind.questions:
                key = usable, groups
                if key not in places:
                    begin, seen = len(member), 0
                    for order, nodes in enumerate(groups):
                        for node in bits(nodes & usable & ~seen):
                            member.append(node)
                            group.append(order)
                        seen |= nodes
                    places[key] = begin, len(member)
                first.append(places[key][0])
                last.append(places[key][1])
                nodes = sum([1 << node for node in member[first[-1] : last[-1]]])
                windows.append(sets.setdefault(nodes, len(sets)))
            question.append(len(first))
        self._up, self._laid = up, len(kinds)
        self._most = max([len(kind.questions) for kind in kinds], default=1)
        self._rows, self._flags, self._opened = {}, [], [-1] * len(kinds)
        whole = [[float(kind.demand.whole), float(kind.demand.cpus), float(kind.demand.memory)] for kind in kinds]
        ints = [np.array(values, np.int64) for values in (question, first, last, windows)]
        asked = len(first)
        self._k = lane.CycleKinds(
            np.array(whole).reshape(-1, 3),
            np.array([kind.demand.gang or 1 for kind in kinds], np.int64),
            np.array([kind.alone for kind in kinds], np.int64),
            np.array([kind.spread for kind in kinds], np.int64),
            np.zeros(len(kinds), np.int64),
            np.zeros(len(kinds), np.int64),
            np.ones((1, count), np.int64),
            *ints,
            np.zeros(asked, np.int64),
            np.zeros(asked),
            np.zeros(asked),
            np.zeros(asked),
            np.array(member, np.int64),
            np.array(group, np.int64),
        )
        for number, kind in enumerate(kinds):
            self._open(number, kind.demand.nodes)
        self._s = None

    def _fresh(self, table: RunTable) -> None:
        """Forget what was worked out, because a run has started or a cycle begins."""
        lane, count, k = self._lane, len(self._weight), self._k
        assert lane is not None
        if self._s is None or table.stride != self._stride:
            self._stride = table.stride
            sets = int(k.windows.max(initial=-1)) + 1
            slots, widest = _START, max(_START, int(np.diff(k.question).max(initial=1)))
            steps = count * (table.stride + 1)
            self._s = lane.CycleScratch(
                np.zeros(6, np.int64),
                np.empty(len(self.kinds), np.int64),
                np.empty((slots, steps)),
                np.empty((slots, steps)),
                np.zeros((slots, count), np.int64),
                np.empty(sets, np.int64),
                np.empty((widest, count * table.stride + 1)),
                np.zeros(widest, np.int64),
                np.zeros(count),
                np.zeros(count, np.int64),
                np.zeros(count, np.int64),
                np.zeros(count, np.int64),
            )
        self._s.slot.fill(-1)
        self._s.windows_slot.fill(-1)

    def _wider(self, s: Any) -> Any:
        """Twice the rows for steps and windows."""
        names = ("times", "rooms", "counts", "windows", "windows_count")
        return s._replace(
            **{name: np.concatenate((getattr(s, name), np.zeros_like(getattr(s, name)))) for name in names}
        )

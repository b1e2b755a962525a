"""EASY with a placement rule that uses the levels of the network, which reserves specific nodes."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from dagsim.families.fabric.topology_placement import NO_NODES, NodeNumbers, SegmentsInBlocks, SmallestDomain
from dagsim.model import Placement
from dagsim.systems.cluster.api import ClusterView, TaskState
from dagsim.systems.cluster.policies.backfilling import EVERYTHING, NOTHING, Backlog, Easy, Shadow, by_order


class _Reserved(NamedTuple):
    """The nodes that are reserved for the oldest task, and the time at which it will get them."""

    shadow: Shadow
    nodes: NodeNumbers


class _Avoiding(NamedTuple):
    """A placement rule that uses none of the nodes in ``avoid``."""

    rule: SmallestDomain | SegmentsInBlocks
    avoid: NodeNumbers

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        return self.rule.place(view, task, type_, self.avoid)


class EasyOnNodes(Easy):
    """EASY, except that the oldest task reserves specific nodes rather than a number of GPUs if it
    needs whole domains (it has a segment or requires a level). Other tasks start on other nodes, or
    on the reserved nodes if they end before the reservation begins.

    The reservation contains the nodes that the rule would choose at the first expected end after
    which the task fits, judging only by GPUs. It remains until the task starts or is overdue. The
    policy uses estimates, and never preempts. It costs as much as ``Easy``, plus O(nodes) per start
    and O(nodes log running) per reservation.
    """

    def __init__(self, rule: SmallestDomain | SegmentsInBlocks) -> None:
        super().__init__(by_order, rule)
        self.rule = rule
        self._reserved_for: tuple[tuple[int, int], _Reserved] | None = None

    def _filler(
        self, view: ClusterView, backlog: Backlog, head: TaskState, shadow: Shadow
    ) -> tuple[TaskState, Placement] | None:
        split = bool(view.levels) and _is_split(self.rule, head)
        if not (head.demand.gang and head.demand.whole and (head.demand.bound or split)):
            return super()._filler(view, backlog, head, shadow)
        reserved = self._reserved(view, head)
        elsewhere = Easy(self.rank, _Avoiding(self.rule, reserved.nodes))
        filler = elsewhere._filler(view, backlog, head, reserved.shadow._replace(extra=EVERYTHING))
        return filler or super()._filler(view, backlog, head, reserved.shadow)

    def _reserved(self, view: ClusterView, head: TaskState) -> _Reserved:
        key = head.order, head.piece
        if self._reserved_for is None or self._reserved_for[0] != key or self._reserved_for[1].shadow.time_s < view.now:
            best = min([self._reservation(view, head, type_) for type_ in head.demand.types], key=_time_s)
            self._reserved_for = key, best
        return self._reserved_for[1]

    def _reservation(self, view: ClusterView, head: TaskState, type_: int) -> _Reserved:
        """Return the first expected end of a run on ``type_`` after which the oldest task can
        start, and the nodes that it then gets.
        """
        whole = head.demand.whole
        own = [machine for machine in view.machines.list if machine.type == type_ and machine.up]
        ends = view.expected_free.ends(type_)

        def chosen(count: int) -> list[tuple[int, int]] | None:
            idle = {machine.index: machine.idle for machine in own}
            for _, run, _ in ends[:count]:
                for machine, instances, *_ in view.running[run].held:
                    if machine.index in idle:
                        idle[machine.index] += instances * view.running[run].task.demand.whole
            rooms = [(idle[machine.index] // whole, [machine]) for machine in own if idle[machine.index] >= whole]
            terms = head.demand.terms
            for domain in terms.domains if terms is not None and head.demand.bound else (-1,):
                inside = [(room, machines) for room, machines in rooms if domain >> machines[0].index & 1]
                taken = self.rule.choose(view, head, type_, inside)
                if taken is not None:
                    return taken
            return None

        low, high = 0, len(ends)
        best = chosen(high)
        if best is None:
            return _Reserved(Shadow(inf, type_, NOTHING), NO_NODES)
        while low < high:
            middle = (low + high) // 2
            taken = chosen(middle)
            if taken is None:
                low = middle + 1
            else:
                high, best = middle, taken
        time_s = max(ends[high - 1][0], view.now) if high else view.now
        return _Reserved(Shadow(time_s, type_, NOTHING), frozenset([node for node, _ in best]))


def _time_s(reserved: _Reserved) -> float:
    return reserved.shadow.time_s


def _is_split(rule: SmallestDomain | SegmentsInBlocks, task: TaskState) -> bool:
    """Return True if the rule places each segment of the task within one domain."""
    request = task.job.job.request
    return isinstance(rule, SegmentsInBlocks) or (request is not None and request.segment is not None)


def topology() -> EasyOnNodes:
    """Return EASY with gangs in the smallest sufficient domain. The policy uses estimates, and
    costs as much as ``EasyOnNodes``."""
    return EasyOnNodes(SmallestDomain())


def block() -> EasyOnNodes:
    """Return EASY with the segments of gangs within blocks. The policy uses estimates, and costs as
    much as ``EasyOnNodes``."""
    return EasyOnNodes(SegmentsInBlocks())

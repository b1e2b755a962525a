"""The look-ahead: how long one training step takes, gone through tick by tick.

A server runs its ready operation of the highest rank, and may change to another at every tick. A tick lasts until the
first operation ends, or the first dependency that is at the head of its channel. Operations are advanced piece by
piece; dependencies that became ready together at one price are advanced as one *cohort*, since they stay alike.
"""

from __future__ import annotations

from bisect import insort
from math import inf
from typing import NamedTuple

from dagsim.systems.ramp.decisions import OpSchedule
from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.rules import Rules
from dagsim.systems.ramp.timing import Bundle, TimedGraph

__all__ = ["Step", "look_ahead"]


class Step(NamedTuple):
    """One training step. Seconds in which operations ran and seconds in which something was sent may overlap."""

    seconds: float
    communication_s: float
    computation_s: float
    ticks: int
    busy_s: float
    """Seconds of computing, summed over all servers."""


class _Cohort:
    """Dependencies that became ready together and take equally long: what is left, and whom they arrive at."""

    __slots__ = ("arrivals", "channels", "key", "left")

    def __init__(self, key: tuple[float, int], left: float) -> None:
        self.key = key
        self.left = left
        self.channels = 0
        self.arrivals: list[tuple[int, tuple[int, ...]]] = []

    def __lt__(self, other: _Cohort) -> bool:
        return self.key < other.key


def look_ahead(
    timed: TimedGraph, schedule: OpSchedule, fabric: Fabric, rules: Rules, *, shortest_flow_first: bool = True
) -> Step:
    """Go through one training step. Costs one pass over operations, bundles and ticks; pairs are never listed."""
    return _Walk(timed, schedule, fabric, rules, shortest_flow_first).run()


class _Walk:
    """The state of one look-ahead. Pieces are numbered through: those of pass operation ``op`` from ``first[op]``."""

    def __init__(
        self, timed: TimedGraph, schedule: OpSchedule, fabric: Fabric, rules: Rules, shortest_flow_first: bool
    ) -> None:
        parts = timed.parts
        self.bundles = timed.bundles
        self.pieces = parts.pieces
        self.serial = rules.flows == "serial"
        self.early = rules.early_release
        self.shortest_first = shortest_flow_first
        count = len(parts.graph)
        blocks = [timed.placement.block(op) for op in range(count)] * 2
        self.blocks = blocks
        costs = [parts.graph.costs(gpu.name) for gpu in fabric.types]
        self.first: list[int] = []
        self.left: list[float] = []
        self.op_of: list[int] = []
        self.server_of: list[int] = []
        self.rank_of: list[int] = []
        self.runs: dict[int, list[int]] = {server: [-1] * len(blocks) for server in timed.placement.servers}
        """Per server and rank the piece."""
        for op, block in enumerate(blocks):
            self.first.append(len(self.left))
            for server in block:
                kind = fabric.type_of[server]
                rank = schedule.ranks[kind][op]
                self.runs[server][rank] = len(self.left)
                self.left.append(costs[kind][op] / self.pieces[op])
                self.op_of.append(op)
                self.server_of.append(server)
                self.rank_of.append(rank)
        self.needs = [0] * len(blocks)
        for edge in parts.edges:
            self.needs[edge.target] += self.pieces[edge.source]
        self.seen = [0] * len(self.left)
        self.closed = [self.pieces[op] for op in range(len(blocks))]
        """Per operation the pieces that are not yet released."""
        self.ready = dict.fromkeys(self.runs, 0)
        """Per server the ranks that are ready, as bits."""
        self.changed: set[int] = set()
        self.running: dict[int, int] = {}
        self.cohorts: list[_Cohort] = []
        self.local: list[tuple[int, tuple[int, ...]]] = []
        """What has arrived without being sent, to be passed on at the next tick."""
        self.started = 0

    def run(self) -> Step:
        for op, need in enumerate(self.needs):
            if not need:
                for piece in range(self.first[op], self.first[op] + self.pieces[op]):
                    self._release(op, piece)
        now = communication_s = computation_s = busy_s = 0.0
        ticks, todo, left, running = 0, len(self.left), self.left, self.running
        while todo or self.cohorts or self.local:
            if self.changed:
                self._choose()
            local, moving, next_s = self.local, (), inf
            if local:
                next_s = 0.0
            elif self.cohorts:
                moving, next_s = self._moving()
            tick_s = next_s
            for piece in running.values():
                if left[piece] < tick_s:
                    tick_s = left[piece]
            assert tick_s < inf, "a step that cannot go on"
            ticks += 1
            self.local = []
            if running:
                computation_s += tick_s
                busy_s += tick_s * len(running)
                ended = self._compute(tick_s)
            else:
                ended = []
            if local:
                self._arrive(local)
            elif moving:
                communication_s += tick_s
                self._send(moving, tick_s)
            if ended:
                todo -= len(ended)
                self._set_off(ended)
            now += tick_s
        return Step(now, communication_s, computation_s, ticks, busy_s)

    def _choose(self) -> None:
        """Let the servers where something changed run their ready operation of the highest rank."""
        for server in self.changed:
            ranks = self.ready[server]
            if ranks:
                self.running[server] = self.runs[server][ranks.bit_length() - 1]
            else:
                self.running.pop(server, None)
        self.changed.clear()

    def _moving(self) -> tuple[list[_Cohort] | tuple[()], float]:
        """The cohorts that are sent on, and the seconds to the first that ends at the head of a channel."""
        taken, next_s = 0, inf
        if not self.serial:
            for cohort in self.cohorts:
                if cohort.channels & ~taken:
                    taken |= cohort.channels
                    if cohort.left < next_s:
                        next_s = cohort.left
            return self.cohorts, next_s
        moving = []
        for cohort in self.cohorts:
            if not cohort.channels & taken:
                taken |= cohort.channels
                moving.append(cohort)
                if cohort.left < next_s:
                    next_s = cohort.left
        return moving, next_s

    def _compute(self, tick_s: float) -> list[int]:
        """Run what is running for ``tick_s``; returns the pieces that ended."""
        left, ended = self.left, []
        for piece in self.running.values():
            rest = left[piece] - tick_s
            left[piece] = rest
            if rest <= 0.0:
                ended.append(piece)
        for piece in ended:
            server = self.server_of[piece]
            self.ready[server] &= ~(1 << self.rank_of[piece])
            self.changed.add(server)
        return ended

    def _send(self, moving: list[_Cohort] | tuple[()], tick_s: float) -> None:
        """Send on the cohorts for ``tick_s``."""
        over = False
        for cohort in moving:
            cohort.left -= tick_s
            if cohort.left <= 0.0:
                over = True
                self._arrive(cohort.arrivals)
        if over:
            self.cohorts = [cohort for cohort in self.cohorts if cohort.left > 0.0]

    def _arrive(self, arrivals: list[tuple[int, tuple[int, ...]]]) -> None:
        """Count what has arrived; a piece that has all its inputs is released."""
        seen, needs, closed = self.seen, self.needs, self.closed
        for op, counts in arrivals:
            if not closed[op]:
                continue
            need, piece = needs[op], self.first[op]
            for more in counts:
                if more:
                    before = seen[piece]
                    seen[piece] = before + more
                    if before < need <= before + more:
                        self._release(op, piece)
                piece += 1

    def _release(self, op: int, piece: int) -> None:
        server = self.server_of[piece]
        self.ready[server] |= 1 << self.rank_of[piece]
        self.changed.add(server)
        self.closed[op] -= 1

    def _set_off(self, ended: list[int]) -> None:
        """Make the dependencies of the pieces that ended ready."""
        by_op: dict[int, list[int]] = {}
        for piece in ended:
            op = self.op_of[piece]
            by_op.setdefault(op, []).append(piece - self.first[op])
        new: dict[object, _Cohort] = {}
        for op, pieces in by_op.items():
            whole = len(pieces) == self.pieces[op]
            for bundle in self.bundles[op]:
                self._load(op, bundle, None if whole else pieces, new)
        for cohort in new.values():
            insort(self.cohorts, cohort)

    def _load(self, op: int, bundle: Bundle, pieces: list[int] | None, new: dict[object, _Cohort]) -> None:
        """Put the bundle's dependencies from the pieces (``None``: all of them) into a cohort."""
        lane = bundle.lane
        counts, channels = (lane.arrivals, lane.all_channels) if pieces is None else _some(bundle, pieces, self.pieces)
        counted = self.early or bundle.target != op
        if not bundle.flows:
            if any(counts):
                self.local.append((bundle.target, counts if counted else ()))
            return
        if not channels:
            return
        key = (op, bundle.group) if self.serial else bundle.seconds
        cohort = new.get(key)
        if cohort is None:
            self.started += 1
            order = (bundle.seconds, -self.started) if self.shortest_first else (0.0, self.started)
            cohort = new[key] = _Cohort(order, bundle.seconds)
        cohort.channels |= channels
        if counted:
            cohort.arrivals.append((bundle.target, counts))


def _some(bundle: Bundle, pieces: list[int], of: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """What only some pieces of the source send: arrivals per piece of the target, and the channels."""
    counts = [0] * of[bundle.target]
    channels = 0
    for piece in pieces:
        channels |= bundle.lane.channels[piece]
        for to in bundle.lane.targets[piece]:
            counts[to] += 1
    return tuple(counts), channels

"""Look-ahead: the simulation of one training step, tick by tick, and a memo of the results.

Each server runs the ready operation with the highest rank, and may change to another one at every
tick. A tick lasts until an operation ends, or until a dependency at the head of its channel ends.
Operations advance piece by piece. Dependencies that became ready together and take the same time
remain equal, so they advance together as one *cohort*. The simulation never lists individual pairs
of pieces.

The memo stores the time of each step under a key, which contains everything that affects this time.
Kernels share the memo, and processes share it through a file.
"""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Hashable, Iterable
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeAlias

from dagsim.errors import RunFolderError
from dagsim.families.ramp.decisions import OpSchedule, Rules
from dagsim.families.ramp.fabric import Fabric
from dagsim.families.ramp.timing import Bundle, TimedGraph
from dagsim.files import parsed_json, write_text


class StepTime(NamedTuple):
    """The duration of one training step, and its parts. Computation and communication may
    overlap."""

    seconds: float
    communication_s: float
    computation_s: float
    ticks: int
    busy_s: float
    """Seconds of computing, summed over all servers."""


PieceArrivals: TypeAlias = tuple[int, tuple[int, ...], int]
"""A pass operation, the number of dependencies that arrive at each of its pieces, and their common
value (-1 if they differ)."""


class _Cohort:
    """Dependencies that became ready together and take the same time: how much time they have left,
    and the pieces that receive them.
    """

    __slots__ = ("arrivals", "channels", "key", "left")

    def __init__(self, key: tuple[float, int], left: float) -> None:
        self.key = key
        self.left = left
        self.channels = 0
        self.arrivals: list[PieceArrivals] = []

    def __lt__(self, other: _Cohort) -> bool:
        return self.key < other.key


def look_ahead(
    timed: TimedGraph, schedule: OpSchedule, fabric: Fabric, rules: Rules, *, shortest_flow_first: bool = True
) -> StepTime:
    """Simulate one training step. The cost is one pass over operations, bundles and ticks, because
    pairs of pieces are never listed."""
    return _Walk(timed, schedule, fabric, rules, shortest_flow_first).run()


class _Walk:
    """The state of one look-ahead. Pieces are numbered consecutively. Those of the pass operation
    ``op`` begin at ``first[op]``.
    """

    def __init__(
        self, timed: TimedGraph, schedule: OpSchedule, fabric: Fabric, rules: Rules, shortest_flow_first: bool
    ) -> None:
        parts = timed.parts
        count = len(parts.graph)
        self.bundles = timed.bundles
        self.pieces = parts.pieces
        self.serial = rules.flows == "serial"
        self.early = rules.early_release
        self.shortest_first = shortest_flow_first
        self.blocks = [timed.placement.block(op) for op in range(count)] * 2
        self.place_in = [fabric.place_in(block) for block in self.blocks]
        self.type_of = fabric.type_of
        self.bits = [[1 << rank for rank in ranks] for ranks in schedule.ranks]
        """For each GPU type, the bit of each operation's rank."""
        self.op_at = [_inverse(ranks) for ranks in schedule.ranks]
        self.first: list[int] = []
        self.op_of: list[int] = []
        self.left: list[float] = []
        """Remaining seconds of each piece."""
        self._fill([parts.graph.costs(gpu.name) for gpu in fabric.types])
        self.needs = [0] * len(self.blocks)
        """Number of dependencies that must arrive at a piece before it is ready, for each
        operation."""
        for edge in parts.edges:
            self.needs[edge.target] += self.pieces[edge.source]
        self.seen = [0] * len(self.blocks)
        """Number of dependencies that have arrived at each piece of an operation, besides those in
        ``uneven``."""
        self.uneven: dict[int, list[int]] = {}
        self.closed = list(self.pieces)
        """Number of pieces of each operation that are not ready."""
        self.ready = dict.fromkeys(timed.placement.servers, 0)
        """Ready ranks of each server, as bits."""
        self.changed: set[int] = set()
        self.running: dict[int, int] = {}
        """Running piece of each server."""
        self.cohorts: list[_Cohort] = []
        self.local: list[PieceArrivals] = []
        """Arrivals that need no transfer, which are passed on at the next tick."""
        self.started = 0

    def run(self) -> StepTime:
        for op, need in enumerate(self.needs):
            if not need:
                self._release_all(op)
        now = communication_s = computation_s = busy_s = 0.0
        ticks, todo, left, running = 0, len(self.left), self.left, self.running
        while todo or self.cohorts or self.local:
            if self.changed:
                self._choose()
            local, moving, tick_s = self.local, _NOTHING, inf
            if local:
                tick_s, self.local = 0.0, []
            elif self.cohorts:
                moving, tick_s = self._moving()
            soonest_s = min([left[piece] for piece in running.values()]) if running else inf
            tick_s = min(tick_s, soonest_s)
            assert tick_s < inf, "a step that cannot continue"
            ticks += 1
            now += tick_s
            if running:
                computation_s += tick_s
                busy_s += tick_s * len(running)
                if tick_s:
                    for piece in running.values():
                        left[piece] -= tick_s
            ended = self._ended() if tick_s == soonest_s else ()
            if local:
                self._arrive(local)
            elif moving:
                communication_s += tick_s
                self._send(moving, tick_s)
            if ended:
                todo -= len(ended)
                self._set_off(ended)
        return StepTime(now, communication_s, computation_s, ticks, busy_s)

    def _fill(self, costs: list[tuple[float, ...]]) -> None:
        """Number the pieces, and set how many seconds each of them takes on its server."""
        for op, block in enumerate(self.blocks):
            self.first.append(len(self.left))
            pieces = len(block)
            self.op_of += [op] * pieces
            if len(costs) == 1:
                self.left += [costs[0][op] / pieces] * pieces
            else:
                self.left += [costs[self.type_of[server]][op] / pieces for server in block]

    def _choose(self) -> None:
        """Start the ready operation with the highest rank on each server that has changed."""
        for server in self.changed:
            ranks = self.ready[server]
            if ranks:
                op = self.op_at[self.type_of[server]][ranks.bit_length() - 1]
                self.running[server] = self.first[op] + self.place_in[op][server]
            else:
                self.running.pop(server, None)
        self.changed.clear()

    def _moving(self) -> tuple[list[_Cohort], float]:
        """Return the cohorts that are being sent. Also return the seconds until a cohort at the
        head of a channel is complete.
        """
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

    def _ended(self) -> list[int]:
        """End the running pieces that are complete, and return them. Their servers become free for
        other operations.
        """
        ended = []
        for server, piece in self.running.items():
            if self.left[piece] <= 0.0:
                ended.append(piece)
                self.ready[server] ^= self.bits[self.type_of[server]][self.op_of[piece]]
                self.changed.add(server)
        return ended

    def _send(self, moving: list[_Cohort], tick_s: float) -> None:
        """Advance the cohorts by one tick of ``tick_s`` seconds."""
        over = False
        for cohort in moving:
            cohort.left -= tick_s
            if cohort.left <= 0.0:
                over = True
                self._arrive(cohort.arrivals)
        if over:
            self.cohorts = [cohort for cohort in self.cohorts if cohort.left > 0.0]

    def _arrive(self, arrivals: list[PieceArrivals]) -> None:
        """Count the inputs that arrive. A piece becomes ready when it has received all its
        inputs."""
        for op, counts, even in arrivals:
            if not self.closed[op]:
                continue
            uneven, seen, need = self.uneven.get(op), self.seen[op], self.needs[op]
            if even >= 0 and uneven is None:
                self.seen[op] = seen + even
                if seen < need <= seen + even:
                    self._release_all(op)
                continue
            if uneven is None:
                uneven = self.uneven[op] = [0] * self.pieces[op]
            for place, more in enumerate(counts):
                before = seen + uneven[place]
                uneven[place] += more
                if before < need <= before + more:
                    self._release(op, self.blocks[op][place])

    def _release(self, op: int, server: int) -> None:
        self.ready[server] |= self.bits[self.type_of[server]][op]
        self.changed.add(server)
        self.closed[op] -= 1

    def _release_all(self, op: int) -> None:
        for server in self.blocks[op]:
            self.ready[server] |= self.bits[self.type_of[server]][op]
        self.changed.update(self.blocks[op])
        self.closed[op] = 0

    def _set_off(self, ended: Iterable[int]) -> None:
        """Begin to send the dependencies of pieces that have ended."""
        by_op: dict[int, list[int]] = {}
        for piece in ended:
            by_op.setdefault(self.op_of[piece], []).append(piece)
        new: dict[object, _Cohort] = {}
        # sorted by op, not by server, so that identical patterns are traversed in the same order
        for op, pieces in sorted(by_op.items()):
            some = None
            if len(pieces) < self.pieces[op]:
                some = [piece - self.first[op] for piece in pieces]
            for bundle in self.bundles[op]:
                self._load(op, bundle, some, new)
        for cohort in new.values():
            insort(self.cohorts, cohort)

    def _load(self, op: int, bundle: Bundle, some: list[int] | None, new: dict[object, _Cohort]) -> None:
        """Put the dependencies of a bundle into a cohort. ``some`` are the pieces of the operation
        from which they come (``None`` means all pieces).
        """
        lane = bundle.lane
        if some is None:
            counts, even, channels = lane.arrivals, lane.even, lane.all_channels
        else:
            counts, channels = _of_some(bundle, some, self.pieces)
            even = -1
        counted = self.early or bundle.target != op
        arrivals = (bundle.target, counts, even) if counted else (op, (), 0)
        if not bundle.flows:
            if even > 0 or any(counts):
                self.local.append(arrivals)
            return
        if not channels:
            return
        key: object = (op, bundle.group) if self.serial else bundle.seconds
        cohort = new.get(key)
        if cohort is None:
            self.started += 1
            order = (bundle.seconds, -self.started) if self.shortest_first else (0.0, self.started)
            cohort = new[key] = _Cohort(order, bundle.seconds)
        cohort.channels |= channels
        if counted:
            cohort.arrivals.append(arrivals)


_NOTHING: list[_Cohort] = []


def _inverse(ranks: tuple[int, ...]) -> list[int]:
    ops = [0] * len(ranks)
    for op, rank in enumerate(ranks):
        ops[rank] = op
    return ops


def _of_some(bundle: Bundle, pieces: list[int], of: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the traffic that comes from only some of the source's pieces: how many dependencies
    arrive at each piece of the target, and the channels that they use.
    """
    counts = [0] * of[bundle.target]
    channels = 0
    for piece in pieces:
        channels |= bundle.lane.channels[piece]
        for to in bundle.lane.targets[piece]:
            counts[to] += 1
    return tuple(counts), channels


_VERSION = 1


class Memo:
    """The memo: the time of each step, by key. A key identifies everything that affects the time of
    a step: the digest of the graph, how its operations are split, the pattern of the blocks, the
    fabric, and the order of operations and flows.

    Two jobs with the same key take exactly the same time, wherever they run. The memo therefore
    never changes a result.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self.limit = limit
        self._steps: dict[str, StepTime] = {}
        self._names: dict[Hashable, str] = {}
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable) -> StepTime | None:
        """Return the step time stored under the key, or None if there is none."""
        step = self._steps.get(self._name(key))
        if step is None:
            self.misses += 1
        else:
            self.hits += 1
        return step

    def put(self, key: Hashable, step: StepTime) -> None:
        """Store a step time, and drop the oldest one if there are more than ``limit``."""
        if len(self._steps) >= self.limit:
            del self._steps[next(iter(self._steps))]
        self._steps[self._name(key)] = step

    def save(self, path: Path) -> None:
        """Write all step times to ``path`` (JSON). Step times that another process has written
        there in the meantime are kept.

        Raises:
            RunFolderError: The existing file is not a memo of this version.
            InputError: The file cannot be written.
        """
        if path.is_file():
            self.load(path)
        steps = {name: list(step) for name, step in sorted(self._steps.items())}
        write_text(path, json.dumps({"version": _VERSION, "steps": steps}))

    def load(self, path: Path) -> None:
        """Add the step times in a file that ``save`` wrote.

        Raises:
            RunFolderError: ``path`` is missing, damaged, or from another version.
        """
        try:
            document = parsed_json(path.read_text(encoding="utf-8"))
            steps = {str(name): StepTime(*step) for name, step in document["steps"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{path}: the look-ahead memo cannot be read ({error})") from None
        if document.get("version") != _VERSION:
            raise RunFolderError(
                f"{path}: the memo has version {document.get('version')!r}, but this version of dagsim reads {_VERSION}"
            )
        self._steps = steps | self._steps

    def _name(self, key: Hashable) -> str:
        """Return the fingerprint of a key. It is the same in every process."""
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= self.limit:
                self._names.clear()
            name = self._names[key] = blake2b(repr(key).encode(), digest_size=16).hexdigest()
        return name

    def __len__(self) -> int:
        return len(self._steps)


SHARED = Memo()
"""The memo of this process, used by default."""

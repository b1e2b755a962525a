"""The policy ``defrag``, which moves runs so that a gang fits into a smaller domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from dagsim.errors import ConfigError
from dagsim.families.fabric.topology_placement import SmallestDomain, as_placement
from dagsim.families.fabric.topology_policies import EasyOnNodes
from dagsim.model import Decision, Migrate, Placement, Share, Start
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.systems.cluster.api import ClusterView, DemandClass, NodeState, Run, TaskState
from dagsim.systems.cluster.policies.orders import by_arrival
from dagsim.systems.cluster.policies.placement import by_speed


class _Clearing(NamedTuple):
    """The runs that have to migrate so that a gang fits, and the cost of these migrations in
    GPU-seconds.
    """

    cost: float
    moves: tuple[tuple[Run, int], ...]
    """Runs, each with the node to which it migrates."""


class Defrag(EasyOnNodes):
    """``topology`` with migrations: if the oldest gang fits on no single node, rack or pod although
    there are enough free GPUs in total, the policy empties a node, rack or pod by moving runs that
    use a single node. It does so only if the moves cost fewer GPU-seconds than the gang gains.

    All moves happen simultaneously, and cost the time until the runs compute again: the delays in
    ``Preemption``, the transfer of their states next to the flows in transit
    (``expected_moves_s``), and, without a checkpoint, the lost work. The gain is the time that the
    gang would lose to communication if it were spread (``expected_rate``). A gang that cannot start
    without the moves gains the time that it would otherwise wait, but at most its own run time.
    Gains and costs are multiplied by the number of GPUs. At most ``most_moves`` runs move
    simultaneously. The policy uses estimates, and preempts. It costs as much as ``Easy``, plus
    O(running + nodes) for each gang that waits or would be spread.

    Raises:
        ConfigError: ``most_moves`` is below 1.
    """

    def __init__(self, most_moves: int = 8) -> None:
        if most_moves < 1:
            raise ConfigError(f"defrag: most_moves must be 1 or more, got {most_moves!r}")
        super().__init__(SmallestDomain())
        self.most_moves = most_moves
        self._cleared_for: tuple[int, int, float] | None = None
        """The task and the time of the last moves, which happen at most once at a time, even if the
        task then does not fit for a reason that ``_clearing`` does not consider, such as a
        reservation."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        head = view.queue(by_arrival).first()
        if head is not None and head.demand.gang and head.demand.whole and head.training is None:
            key = head.order, head.piece, view.now
            clearing = None if key == self._cleared_for else self._clearing(view, head)
            if clearing is not None:
                self._cleared_for = key
                for run, node in clearing.moves:
                    yield Migrate(run.id, (Share(node, run.instances),))
                placement = self._place(view, head)
                if placement is not None:
                    yield Start(head, placement)
                return
        yield from super().decide(view)

    def _clearing(self, view: ClusterView, task: TaskState) -> _Clearing | None:
        """Return the cheapest moves that give ``task`` a smaller domain than it would get now, or
        None if no moves are worthwhile."""
        placement, demand, machines = self._place(view, task), task.demand, view.machines.list
        type_ = by_speed(task, None)[0] if placement is None else machines[placement[0].node].type
        nodes = -1 if demand.terms is None else demand.terms.nodes
        own = [machine for machine in machines if machine.type == type_ and machine.up and nodes >> machine.index & 1]
        if placement is not None and len(placement) == 1:
            return None
        if sum(machine.idle // demand.whole for machine in own) < demand.gang:
            return None
        for domains in ([*range(len(machines))], *(level.domains for level in view.levels)):
            if placement is not None and len({domains[share.node] for share in placement}) == 1:
                return None
            best: _Clearing | None = None
            for domain in dict.fromkeys(domains[machine.index] for machine in own):
                inside = [machine for machine in own if domains[machine.index] == domain]
                clearing = self._cleared(view, task, inside, own)
                if clearing is not None and (best is None or clearing.cost < best.cost):
                    best = clearing
                    compact = _filled(inside, demand.whole, demand.gang)
            if best is not None:
                gpus, seconds = demand.whole * demand.gang, task.seconds[type_]
                if placement is None:
                    gain = gpus * min(seconds, self._wait_s(view, task))
                else:
                    gain = _spread_costs(view, task, placement, compact, gpus * seconds)
                return best if best.cost < gain else None
        return None

    def _cleared(
        self, view: ClusterView, task: TaskState, inside: Sequence[NodeState], own: Sequence[NodeState]
    ) -> _Clearing | None:
        """Return moves out of ``inside``, cheapest per GPU first, until ``task`` fits there."""
        demand = task.demand
        if sum(machine.gpus // demand.whole for machine in inside) < demand.gang:
            return None
        within = {machine.index for machine in inside}
        left = {machine.index: (machine.idle, machine.cpus, machine.memory) for machine in own}
        movable = [
            run
            for run in view.running.values()
            if len(run.held) == 1 and run.held[0][0].index in within and run.task.demand.whole and not run.beside
            and run.task.training is None and run.computing_s is not None
        ]  # fmt: skip
        moves: list[tuple[Run, int]] = []
        for run in sorted(movable, key=lambda run: (_lost_s(view, run), _state_gb(view, run), -run.gpus, run.id)):
            if whole_sum(_instances(left[node], demand) for node in within) >= demand.gang:
                break
            count, source = run.instances, run.held[0][0].index
            targets = [
                (left[machine.index], machine.index)
                for machine in own
                if machine.index not in within
                and machine.room(run.task.demand) >= count
                and _instances(left[machine.index], run.task.demand) >= count
            ]
            if not targets:
                continue
            _, node = min(targets)
            left[node] = _after(left[node], run.task.demand, -count)
            left[source] = _after(left[source], run.task.demand, count)
            moves.append((run, node))
        enough = whole_sum(_instances(left[node], demand) for node in within) >= demand.gang
        if not (enough and 0 < len(moves) <= self.most_moves):
            return None
        away_s = view.expected_moves_s([(run, (Share(node, run.instances),)) for run, node in moves])
        costs = [run.gpus * (_lost_s(view, run) + seconds) for (run, _), seconds in zip(moves, away_s, strict=True)]
        return _Clearing(ordered_sum(costs), tuple(moves))

    def _wait_s(self, view: ClusterView, task: TaskState) -> float:
        """Return the seconds until the task would start without any moves."""
        return self._reserved(view, task).shadow.time_s - view.now


_Free: TypeAlias = tuple[int, int, int]
"""Idle GPUs of a node, and its free CPUs and memory in millionths."""


def _instances(free: _Free, demand: DemandClass) -> int:
    """Return the number of instances with whole GPUs that fit."""
    asked = demand.whole, demand.cpus, demand.memory
    return min([has // amount for has, amount in zip(free, asked, strict=True) if amount])


def _after(free: _Free, demand: DemandClass, count: int) -> _Free:
    """Return a node's free resources after ``count`` instances have left."""
    gpus, cpus, memory = free
    return gpus + count * demand.whole, cpus + count * demand.cpus, memory + count * demand.memory


def _lost_s(view: ClusterView, run: Run) -> float:
    """Return how many seconds of computation a run loses if it moves."""
    kept = view.preemption.on_resume == "resume" or run.computing_s is None
    return 0.0 if kept else view.now - run.computing_s  # type: ignore[operator]


def _state_gb(view: ClusterView, run: Run) -> float:
    """Return how many GB a run has to save."""
    return run.task.task.memory_gb * run.instances if view.preemption.on_resume == "resume" else 0.0


def _filled(machines: Iterable[NodeState], whole: int, gang: int) -> Placement:
    """Return the placement that a gang would get if these machines were empty."""
    taken = []
    for machine in machines:
        count = min(gang, machine.gpus // whole)
        if count:
            taken.append((machine.index, count))
            gang -= count
    return as_placement(taken)


def _spread_costs(view: ClusterView, task: TaskState, spread: Placement, compact: Placement, whole: float) -> float:
    """Return how much longer a gang with ``whole`` GPU-seconds of work takes on ``spread`` than on
    ``compact``, in GPU-seconds."""
    slow, fast = (max(view.expected_rate(task, way), 1e-9) for way in (spread, compact))
    return whole * (1 / slow - 1 / fast)

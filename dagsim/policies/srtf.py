"""Shortest remaining time first, with preemption."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from dagsim.model import Decision, Preempt
from dagsim.policies.ordered import TypedOrdered
from dagsim.policies.orders import by_seconds
from dagsim.policies.placement import Placing
from dagsim.sim.frontier import ActiveTask
from dagsim.sim.machines import Machine
from dagsim.sim.policy import View
from dagsim.sim.run import Run

__all__ = ["Srtf"]


class Srtf:
    """Shortest job first by remaining time; a ready task that does not fit takes the place of the runs with the most
    time left, as long as each of them has more left than it needs there. Clairvoyant, preemptive. O(log n) per decision
    plus O(log running) per victim looked at (Schrage 1968, for one machine)."""

    def __init__(self, placement: str | Placing = "best-fit") -> None:
        self._start = TypedOrdered(by_seconds, placement)
        self._victims: list[tuple[float, int]] = []
        """A heap of ``(-end, run)`` over all runs seen; those that ended are dropped when they come up."""
        self._seen = -1

    def decide(self, view: View) -> Iterable[Decision]:
        return self._start.decide(view) or self._take_over(view)

    def _take_over(self, view: View) -> list[Decision]:
        """Preempt for the task with the least time left, if the run with the most has more."""
        pair = view.typed_queue(by_seconds).first()
        if pair is None:
            return []
        self._look_at_new_runs(view)
        victims, running = self._victims, view.running
        while victims and victims[0][1] not in running:
            heappop(victims)
        if not victims or -victims[0][0] - view.now <= pair[0].best_s:
            return []
        return [Preempt(run) for run in self._victims_of(view, pair[0])]

    def _look_at_new_runs(self, view: View) -> None:
        last = self._seen
        for run in view.runs_after(last):
            self._seen = max(self._seen, run.id)
            heappush(self._victims, (-run.estimated_end_s(view.now), run.id))

    def _victims_of(self, view: View, task: ActiveTask) -> list[int]:
        """The runs that must go so that ``task`` fits, or none if the longest ones that may go do not suffice."""
        now, running = view.now, view.running
        demand, gang = task.demand, task.demand.gang or 1
        freed: dict[int, Machine] = {}
        chosen: list[int] = []
        looked_at: list[tuple[float, int]] = []
        room: dict[int, int] = {}
        enough: set[int] | None = None
        while self._victims and enough is None:
            entry = heappop(self._victims)
            run = running.get(entry[1])
            if run is None:
                continue
            looked_at.append(entry)
            if -entry[0] - now <= task.best_s:
                break
            if run.type not in demand.types or -entry[0] - now <= task.seconds[run.type]:
                continue
            chosen.append(run.id)
            for node in _free(run, view, freed):
                room[node] = freed[node].room(demand)
                if not demand.gang and room[node]:
                    enough = {node}
            if demand.gang and self._gang_room(view, task, run.type, room) >= gang:
                enough = set(room)
        for entry in looked_at:
            heappush(self._victims, entry)
        if enough is None:
            return []
        return [id_ for id_ in chosen if enough.intersection(running[id_].nodes)]

    def _gang_room(self, view: View, task: ActiveTask, type_: int, room: dict[int, int]) -> int:
        machines = view.machines
        untouched = (i for i in machines.candidates(task.demand, type_) if i not in room)
        return sum(machines.list[i].room(task.demand) for i in untouched) + sum(
            free for node, free in room.items() if machines.list[node].type == type_
        )


def _free(run: Run, view: View, freed: dict[int, Machine]) -> list[int]:
    """Note on copies of the run's machines what they would have free without it."""
    demand = run.task.demand
    nodes = []
    for machine, count, _, on in run.held:
        copy = freed.get(machine.index) or machine.copy()
        freed[machine.index] = copy
        copy.idle += demand.whole * count
        copy.cpus += demand.cpus * count
        copy.memory += demand.memory * count
        for gpu in on:
            copy.shares[gpu] += demand.share
        nodes.append(machine.index)
    return nodes

"""RLScheduler's way of scheduling: pick one task by score, and commit to it until it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log10

from dagsim.errors import ConfigError
from dagsim.model import Decision, Placement, Start
from dagsim.systems.cluster.api import ClusterView, Run, TaskState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.support.batch_events import NEARLY, Key, Ready, free, held, size

__all__ = ["SCORES", "Committed"]


def _fcfs(task: TaskState) -> float:
    return task.job.job.arrival_s


def _sjf(task: TaskState) -> float:
    return task.best_s


def _f1(task: TaskState) -> float:
    return log10(max(task.best_s, 1e-9)) * size(task) + 870 * log10(max(task.job.job.arrival_s, 1e-9))


SCORES: dict[str, Callable[[TaskState], float]] = {"fcfs": _fcfs, "sjf": _sjf, "f1": _f1}
"""Smaller first; ties go first come, first served. F1 takes absolute times of arrival."""


class Committed:
    """The environment of RLScheduler (Zhang et al., SC 2020) as a wrapper of a score: as soon as a task has started,
    the next is picked from the queue and waits until it fits, whoever comes meanwhile. A task that comes enters the
    queue only while somebody waits so, or when the queue is empty.

    With ``backfill``, tasks of the queue that fit start meanwhile, oldest first, if by their estimates they end before
    (not at) the *shadow time*: when enough is expected to be free for the one that waits, as it was when it was picked.
    Clairvoyant, not preemptive. O(queue) per decision.

    Raises:
        ConfigError: Another score than fcfs, sjf or f1.
    """

    def __init__(
        self, score: str = "fcfs", backfill: bool = False, placement: str | PlacementRule = "best-fit"
    ) -> None:
        if score not in SCORES:
            raise ConfigError(f"committed: score must be one of {', '.join(SCORES)}, got {score!r}")
        self.score = score
        self.backfill = backfill
        self._place = placing(placement).place
        self._queued: dict[Key, None] = {}
        """The tasks in the queue; others are ready, but have not entered it."""
        self._picked: Key | None = None
        self._shadow_s = 0.0
        self._ended: list[tuple[int, float]] = []
        """Runs that ended since the last decision: id and size."""

    def ended(self, run: Run, now: float) -> None:
        """Note what a run held that has just ended."""
        self._ended.append((run.id, held(run)))

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        ready = view.index(Committed, Ready).tasks
        # Of what happened at this instant arrivals count first, then one end after the other.
        ended = [amount for _, amount in sorted(self._ended)]
        self._ended.clear()
        arrived = sorted(key for key in ready if key not in self._queued)
        while True:
            if self._picked is None or self._picked not in ready:
                if not self._queued and arrived:
                    self._queued[arrived.pop(0)] = None
                if not self._queued:
                    return
                self._pick(view, ready, ended)
            picked = ready[self._picked]  # type: ignore[index]
            placement = self._room(view, picked, ended)
            if placement is not None:
                yield Start(picked, placement)
                self._leave(picked, ready)
                continue
            yield from self._fill(view, ready, ended)
            if arrived:
                self._queued[arrived.pop(0)] = None
            elif ended:
                ended.pop(0)
            else:
                return

    def _pick(self, view: ClusterView, ready: dict[Key, TaskState], ended: list[float]) -> None:
        score = SCORES[self.score]
        picked = min((ready[key] for key in self._queued), key=lambda task: (score(task), task.order, task.piece))
        self._picked = (picked.order, picked.piece)
        idle, wanted = free(view, picked) - sum(ended), size(picked)
        self._shadow_s = view.now
        for amount in ended:
            idle += amount if idle + NEARLY < wanted else 0.0
        for end_s, id_ in sorted((run.estimated_end_s(view.now), run.id) for run in view.running.values()):
            if idle + NEARLY >= wanted:
                break
            idle += held(view.running[id_])
            self._shadow_s = end_s

    def _fill(self, view: ClusterView, ready: dict[Key, TaskState], ended: list[float]) -> Iterator[Decision]:
        """Start what may go ahead of the picked task."""
        if not self.backfill:
            return
        for key in sorted(key for key in self._queued if key != self._picked):
            task = ready[key]
            if view.now + task.best_s < self._shadow_s:
                placement = self._room(view, task, ended)
                if placement is not None:
                    yield Start(task, placement)
                    self._leave(task, ready)

    def _room(self, view: ClusterView, task: TaskState, ended: list[float]) -> Placement | None:
        """The placement for the task while what ``ended`` holds is not free yet."""
        if ended and free(view, task) - sum(ended) + NEARLY < size(task):
            return None
        return self._place(view, task)

    def _leave(self, task: TaskState, ready: dict[Key, TaskState]) -> None:
        """Take a task that was started out of the queue, if nothing of it waits."""
        if not task.waiting:
            key = (task.order, task.piece)
            del self._queued[key], ready[key]
            if self._picked == key:
                self._picked = None

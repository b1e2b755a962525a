"""Tiresias' own simulator (Gu et al., NSDI 2019) as a policy. It has the queues based on the
service that tasks have received, and the simulator's other schedules. Decisions are made at events
instead of in rounds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from dagsim.errors import ConfigError, require
from dagsim.model import Decision, Preempt, Start, Wait
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.systems.cluster.api import ClusterView, Run, TaskState
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing, start_of
from dagsim.systems.cluster.policies.waiting_tasks import WaitingTasks

_SCHEDULES = ("fifo", "fjf", "sjf", "shortest", "shortest-gpu", "dlas", "dlas-gpu", "dlas-gpu-gittins")
_GITTINS_UNIT = 3250
"""GPU-seconds of further service for which an index weighs gain against cost."""
_GITTINS_SCALE = 1_000_000
_SAME_S = 1e-6
"""Times that differ by less are the same: the kernel adds up the parts of a preempted task in
floating point.
"""


@dataclass(slots=True, eq=False)
class _Served:
    """A task and the service that it has received."""

    order: int
    gpus: float
    best_s: float
    since_s: float
    """Time until which its service is counted."""
    runs: bool = False
    queue: int = 0
    counted_s: float = 0.0
    """Seconds of service since the last promotion."""
    total_s: float = 0.0
    waited_s: float = 0.0
    """Seconds of waiting since the last promotion, after the first service."""


class TiresiasEvents:
    """The scheduling policies of Tiresias' own simulator, applied at each arrival and end, and when
    a task is due to move to another queue.

    ``schedule`` is the name of one of the simulator's own schedules.

    - ``dlas-gpu``: three queues. When a task's GPU-seconds reach one of ``limits``, the task moves
      to the end of the next queue. Tasks run in the order of the queues; those that do not fit are
      skipped or stopped. Within a queue, running tasks come before waiting ones. With ``dlas``,
      service is measured in seconds. With a factor after the name (``dlas-gpu-8``), a task returns
      to the first queue once it has waited for that many times the service that it has received.
    - ``dlas-gpu-gittins``: like ``dlas-gpu``, but the queues are sorted by Gittins indices
      (``tiresias_indices``), highest first.
    - ``shortest``, ``shortest-gpu``: the task with the fewest remaining seconds, or GPU-seconds,
      first.
    - ``sjf``: the fewest GPUs first. ``fjf``: the oldest task that fits, without preemption.
      ``fifo``: the oldest task.

    ``samples`` are the GPU-seconds of earlier tasks, from which Gittins indices are computed. The
    policy reproduces an error in the original: it expects the next change of queue after (limit -
    seconds) // GPUs instead of (limit / GPUs) - seconds. As a result, some changes are late, and
    others are not yet due at the event planned for them. Only the number of free GPUs decides
    whether a task fits. The policy uses estimates only for ``shortest``, and is preemptive. An
    event costs O(tasks log tasks) (Gu et al., NSDI 2019; as published, checked by
    ``scripts/validate_tiresias.py``).

    Raises:
        ConfigError: The schedule is unknown, the limits do not increase, or ``dlas-gpu-gittins``
            has no samples.
    """

    forgets = "the queues of the jobs, and their service"

    def __init__(
        self,
        schedule: str = "dlas-gpu",
        limits: tuple[float, ...] = (3250, 7200),
        placement: str | PlacementRule = "best-fit",
        samples: tuple[int, ...] = (),
    ) -> None:
        name, _, factor = schedule.rpartition("-")
        self.promote = 0.0
        if name in ("dlas", "dlas-gpu") and factor.replace(".", "", 1).isdigit():
            if len(factor) > 1 and factor[0] == "0" and factor[1] != ".":
                factor = f"0.{factor[1:]}"  # Tiresias writes 0.5 as 05
            schedule, self.promote = name, float(factor)
        if schedule not in _SCHEDULES:
            raise ConfigError(
                f"tiresias-events: schedule must be one of {', '.join(_SCHEDULES)} or dlas-gpu-NUMBER, got {schedule!r}"
            )
        require(list(limits) == sorted(set(limits)) and limits, "tiresias-events: limits must rise", limits)
        if (schedule == "dlas-gpu-gittins") != bool(samples):
            raise ConfigError(
                "tiresias-events: samples (the GPU-seconds of earlier tasks) must be given for dlas-gpu-gittins, "
                f"and only for it, got {schedule} with {len(samples)}"
            )
        self.schedule = schedule.removesuffix("-gittins")
        self.samples = tuple(sorted(samples))
        self._indices = tiresias_indices(self.samples)
        self.limits = limits
        self.promotions: dict[int, int] = {}
        """Number of promotions by ``TaskState.order``."""
        self._place = placing(placement).place
        self._tasks: dict[int, _Served] = {}
        """Tasks in order of arrival; ``shortest`` and ``sjf`` keep their last order, as ties fall back on it."""
        self._queues: list[list[_Served]] = [[] for _ in (*limits, inf)]
        self._jump_s = inf

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        waiting = view.index(TiresiasEvents, lambda: WaitingTasks(view.machines))
        if start := start_of(self._place, view, waiting.without_gpus.first_fit()):
            yield from start
            return
        now = view.now
        event_s = float(round(now)) if abs(now - round(now)) <= _SAME_S else now
        runs = [run for run in view.running.values() if run.task.demand.demand.gpus]
        running = {run.task.order for run in runs}
        arrived = [task for task in waiting.oldest() if task.order not in self._tasks]
        ended = [order for order in self._tasks if order not in running and not waiting.pieces(order)]
        if not (arrived or ended or now >= self._jump_s or self._has_lost(running)):
            if not view.pending:
                yield from start_of(self._place, view, waiting.first_fit(view))
            yield from self._wait_for_jump(now)
            return
        if event_s > now:
            # This event comes slightly early. Wait, so that jobs that arrive at ``event_s`` belong
            # to this event.
            yield Wait(event_s)
            return
        if any(0 < run.estimated_end_s(now) - now <= _SAME_S for run in runs):
            return  # a run that ends slightly later belongs to this event
        self._serve(arrived, ended, event_s)
        chosen = self._chosen(whole_sum(machine.gpus for machine in view.machines.list if machine.up), running)
        yield from self._replace(view, waiting, runs, chosen)
        if not view.running:
            yield from start_of(self._place, view, waiting.first_fit(view))
        self._requeue({run.task.order for run in view.running.values()})
        self._jump_s = self._next_jump_s(event_s)
        yield from self._wait_for_jump(now)

    def _has_lost(self, running: Collection[int]) -> bool:
        """Return True if a task does not run any more, although the policy has not stopped it."""
        return any(task.runs and task.order not in running for task in self._tasks.values())

    def _wait_for_jump(self, now: float) -> Iterator[Decision]:
        """Request a call at the next time at which a task changes its queue."""
        if now < self._jump_s < inf:
            yield Wait(self._jump_s)

    def _replace(
        self, view: ClusterView, waiting: WaitingTasks, runs: Iterable[Run], chosen: Collection[int]
    ) -> Iterator[Decision]:
        """Stop the runs of tasks that are not chosen, and start the chosen tasks that fit."""
        for run in runs:
            if run.task.order not in chosen and run.started_s < view.now:
                yield Preempt(run.id)
        for order in chosen:
            while (piece := waiting.get(order)) is not None and piece.waiting:
                placement = self._place(view, piece)
                if placement is None:
                    break
                yield Start(piece, placement)

    def _serve(self, arrived: Iterable[TaskState], ended: Iterable[int], event_s: float) -> None:
        """Remove ended tasks, add new ones, and add up the service of all tasks until an event."""
        for order in ended:
            task = self._tasks.pop(order)
            self._queues[task.queue].remove(task)
        for arrival in sorted(arrived, key=lambda task: (task.ready_s, task.order)):
            self._add(arrival, event_s)
        for task in self._tasks.values():
            self._count(task, event_s)

    def _chosen(self, free: float, running: Iterable[int]) -> dict[int, None]:
        """Return the tasks that will run from now on, on ``free`` GPUs in total, as their keys
        ``TaskState.order``. If the schedule does not preempt, running tasks stay.
        """
        chosen: dict[int, None] = {}
        if self.schedule in ("fifo", "fjf"):
            chosen = dict.fromkeys(running)
            free -= ordered_sum(task.gpus for task in self._tasks.values() if task.order in chosen)
        for task in self._ordered():
            if task.order in chosen:
                continue
            if task.gpus <= free:
                free -= task.gpus
                chosen[task.order] = None
            elif self.schedule == "fifo":
                break
        return chosen

    def _requeue(self, running: Collection[int]) -> None:
        """In each queue, move running tasks ahead of waiting ones."""
        for task in self._tasks.values():
            task.runs = task.order in running
        for queue in self._queues:
            queue.sort(key=lambda task: not task.runs)

    def _add(self, task: TaskState, event_s: float) -> None:
        served = _Served(task.order, width(task), task.best_s, event_s)
        self._tasks[task.order] = served
        self._queues[0].append(served)

    def _count(self, task: _Served, event_s: float) -> None:
        """Add up the service or the waiting time of a task until the event, and move the task
        between queues."""
        passed_s, task.since_s = event_s - task.since_s, event_s
        if task.runs:
            task.counted_s += passed_s
            task.total_s += passed_s
            if task.queue < len(self.limits) and self._service(task) >= self.limits[task.queue]:
                self._move(task, task.queue + 1)
            return
        if task.counted_s > 0:
            task.waited_s += passed_s
            if self.promote and task.queue and task.waited_s >= int(task.counted_s * self.promote):
                task.counted_s = task.waited_s = 0.0
                self._move(task, 0)
                self.promotions[task.order] = self.promotions.get(task.order, 0) + 1

    def _service(self, task: _Served) -> float:
        return task.counted_s * (task.gpus if self.schedule == "dlas-gpu" else 1)

    def _index(self, task: _Served) -> float:
        """Return the Gittins index of a task, which is the index of the first sample above its
        service."""
        return [*self._indices, 0.0][bisect_right(self.samples, self._service(task))]

    def _move(self, task: _Served, queue: int) -> None:
        self._queues[task.queue].remove(task)
        self._queues[queue].append(task)
        task.queue = queue

    def _ordered(self) -> list[_Served]:
        """Return the tasks in the order in which they may run."""
        if self.schedule in ("dlas", "dlas-gpu"):
            if self.samples:
                for queue in self._queues:
                    queue.sort(key=lambda task: (-self._index(task), task.order))
            return [task for queue in self._queues for task in queue]
        tasks = list(self._tasks.values())
        if self.schedule == "sjf":
            tasks.sort(key=lambda task: task.gpus)
        elif self.schedule.startswith("shortest"):
            by_gpus = self.schedule == "shortest-gpu"
            tasks.sort(key=lambda task: (task.best_s - task.total_s) * (task.gpus if by_gpus else 1))
        self._tasks = {task.order: task for task in tasks}
        return tasks

    def _next_jump_s(self, event_s: float) -> float:
        """Return the next time at which a task changes its queue, according to the rule of the
        original simulator.
        """
        if self.schedule not in ("dlas", "dlas-gpu"):
            return inf
        jump_s = inf
        for task in self._tasks.values():
            if task.runs and task.queue < len(self.limits):
                missing_s = self.limits[task.queue] - task.counted_s
                jump_s = min(jump_s, event_s + (missing_s // task.gpus if self.schedule == "dlas-gpu" else missing_s))
            elif self.promote and not task.runs and task.queue and task.counted_s > 0:
                missing_s = int(task.counted_s * self.promote - task.waited_s)
                jump_s = min(jump_s, event_s + missing_s if missing_s > 0 else inf)
        return jump_s if jump_s > event_s else inf


def tiresias_indices(samples: Sequence[int]) -> list[float]:
    """Return the Gittins index of a task just below each of the ascending ``samples``: the
    probability that it ends within a unit of further service, divided by the mean service that it
    then takes.

    As in the published code, the last sample never counts as reached, the mean service is rounded
    down (an integer division in Python 2), and the other numbers are rounded.
    """
    count = len(samples)
    sums = [0, *accumulate(samples)]
    indices = []
    for sample in samples:
        service = sample - 1
        until = service + _GITTINS_UNIT
        first = bisect_right(samples, service)
        beyond = count - 1 if until > samples[-1] - 1 else bisect_right(samples, until)
        chance = round((beyond - first) / (count - first), 5)
        cost = (sums[beyond] - sums[first] + _GITTINS_UNIT * (count - beyond)) // (count - first)
        indices.append(round(chance * _GITTINS_SCALE / cost, 4))
    return indices

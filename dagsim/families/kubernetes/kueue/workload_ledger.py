"""The tasks of Kueue's workloads: which workload each task belongs to, and what has become of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from dagsim.systems.cluster.api import Run, TaskState

TaskPlace: TypeAlias = tuple[int, int, int]
"""Numbers of the job, the task and the piece."""


def place_of(task: TaskState) -> TaskPlace:
    """Return the numbers that identify a task: job, task and piece."""
    return task.job.number, task.index, task.piece


@dataclass(slots=True)
class AdmittedWorkload:
    """A workload that holds quota. ``places`` are its tasks that have not started. ``from_s`` is
    the time at which the admission checks of the workload are complete."""

    places: dict[TaskPlace, None]
    from_s: float


@dataclass(slots=True)
class WorkloadLedger:
    """The workloads of tasks and runs. Others read its fields, and only its methods change them."""

    created: dict[tuple[int, int], float] = field(default_factory=dict)
    """The time at which each task first became ready, which preempted workloads keep."""
    open: dict[TaskPlace, str] = field(default_factory=dict)
    """The workload of each task that waits, or that holds quota but has not started."""
    places: dict[str, dict[TaskPlace, None]] = field(default_factory=dict)
    """The tasks of each workload: one, or one for each pod set."""
    carried: set[str] = field(default_factory=set)
    """Names of the workloads that manifests described and that have been submitted."""
    waiting: dict[str, AdmittedWorkload] = field(default_factory=dict)
    """Admitted workloads of which a task has not started, in order of admission."""
    claimed: Counter[TaskPlace] = field(default_factory=Counter)
    """Number of each task's workloads that are admitted but have not started."""
    runs: dict[int, str] = field(default_factory=dict)
    """Workloads by run."""
    runs_of: dict[str, dict[int, None]] = field(default_factory=dict)
    names_of: dict[int, list[str]] = field(default_factory=dict)
    """All workloads of a job, by its number."""
    touched: dict[int, None] = field(default_factory=dict)
    """Jobs of which a run has ended since the last decision."""
    preempted: dict[str, dict[TaskPlace, None]] = field(default_factory=dict)
    """Preempted workloads with pieces that have not come back, and the nodes where these ran.
    """
    late: dict[int, None] = field(default_factory=dict)
    """Runs of preempted workloads that began at the same time."""
    refused: dict[str, TaskState] = field(default_factory=dict)
    """Workloads of jobs that were rejected on arrival, but that Kueue keeps in their queues,
    with one task each.
    """

    def wait(self, name: str, place: TaskPlace) -> None:
        """Add a waiting task to a workload."""
        self.join(name, place)
        self.open[place] = name

    def first_ready_s(self, place: TaskPlace, ready_s: float) -> float:
        """Return the time at which a task first became ready, which is ``ready_s`` for a new task."""
        return self.created.setdefault(place[:2], ready_s)

    def carry(self, name: str) -> None:
        """Record that a workload from a manifest has been submitted."""
        self.carried.add(name)

    def refuse(self, name: str, task: TaskState) -> None:
        """Record the workload of a job that was rejected on arrival."""
        self.refused[name] = task

    def join(self, name: str, place: TaskPlace) -> None:
        """Add a task to a workload."""
        self.places.setdefault(name, {})[place] = None
        names = self.names_of.setdefault(place[0], [])
        if name not in names[-1:]:
            names.append(name)

    def claim(self, name: str, places: Iterable[TaskPlace], from_s: float) -> None:
        """Mark tasks of an admitted workload as waiting to start, from ``from_s`` on."""
        admitted = self.waiting.setdefault(name, AdmittedWorkload({}, from_s))
        for place in places:
            if place not in admitted.places:
                admitted.places[place] = None
                self.claimed[place] += 1

    def unclaim(self, name: str, place: TaskPlace) -> None:
        """Undo ``claim`` for a task if the task is still waiting to start."""
        admitted = self.waiting.get(name)
        if admitted is not None and place in admitted.places:
            del admitted.places[place]
            self.claimed[place] -= 1
            if not admitted.places:
                del self.waiting[name]

    def close(self, place: TaskPlace) -> None:
        """Record that a task no longer waits in a workload."""
        self.open.pop(place, None)

    @contextmanager
    def starting(self, name: str, place: TaskPlace) -> Iterator[None]:
        """Inside the ``with`` statement, let a task start in the workload ``name``, although the
        task may also wait in another workload."""
        waiting = self.open.get(place)
        self.open[place] = name
        try:
            yield
        finally:
            if waiting is not None and waiting != name:
                self.open[place] = waiting

    def start(self, name: str, place: TaskPlace, run: int) -> None:
        """Add a run of a task in a workload."""
        self.runs[run] = name
        self.runs_of.setdefault(name, {})[run] = None
        self.unclaim(name, place)

    def end(self, run: int, job: int) -> str:
        """Remove a run of a job. Return its workload."""
        name = self.runs.pop(run)
        self.late.pop(run, None)
        del self.runs_of[name][run]
        if not self.runs_of[name]:
            del self.runs_of[name]
        self.touched[job] = None
        return name

    def preempt(self, name: str, places: Iterable[TaskPlace]) -> None:
        """Record that a workload was preempted while its tasks ``places`` were running."""
        self.preempted[name] = dict.fromkeys(places)

    def wait_again(self, name: str) -> None:
        """Make the tasks of an admitted workload wait again if they have not started."""
        admitted = self.waiting.get(name)
        for place in list(admitted.places if admitted is not None else ()):
            self.unclaim(name, place)
            self.open.setdefault(place, name)

    def stop_later(self, run: int) -> None:
        """Record that a run must be stopped at the next event."""
        self.late[run] = None

    def stop_now(self, run: int) -> None:
        """Record that a run need not be stopped later, because it is stopped now."""
        del self.late[run]

    def leave(self, name: str, place: TaskPlace) -> bool:
        """Remove a task from a workload. Remove the workload with its last task, and then return
        True."""
        self.unclaim(name, place)
        self.places[name].pop(place, None)
        if self.open.get(place) == name:
            del self.open[place]
        if self.places[name]:
            return False
        del self.places[name]
        self.preempted.pop(name, None)
        for run in self.runs_of.get(name, ()):
            self.late.pop(run, None)
        return True

    def take_gone(self, jobs: Container[int]) -> list[tuple[str, TaskPlace]]:
        """Return the workloads and tasks of jobs that are no longer in ``jobs``, among the jobs of
        which a run has ended since the last call."""
        gone = [
            (name, place)
            for number in self.touched
            if number not in jobs
            for name in dict.fromkeys(self.names_of.pop(number, ()))
            for place in self.places.get(name, ())
            if place[0] == number
        ]
        self.touched.clear()
        return gone

    def reassign(self, name: str, old: TaskPlace, new: TaskPlace) -> None:
        """Assign the remaining part of a preempted run to the workload of that run."""
        del self.preempted[name][old]
        if not self.preempted[name]:
            del self.preempted[name]
        self.open[new] = name
        self.places[name].pop(old, None)
        self.places[name][new] = None
        admitted = self.waiting.get(name)
        if admitted is not None and old in admitted.places:
            del admitted.places[old]
            admitted.places[new] = None
            self.claimed[old] -= 1
            self.claimed[new] += 1


class ReadyTasks:
    """The ready tasks, indexed by job, task and piece."""

    def __init__(self) -> None:
        self.ready: dict[TaskPlace, TaskState] = {}
        self._new: list[TaskPlace] = []

    def push(self, task: TaskState) -> None:
        """Add a task that has become ready."""
        place = place_of(task)
        self.ready[place] = task
        self._new.append(place)

    def started(self, run: Run, now: float) -> None:
        """Remove a task when no instance of it waits any longer."""
        if not run.task.waiting:
            self.ready.pop(place_of(run.task), None)

    def take_new(self) -> list[TaskPlace]:
        """Return the tasks that have become ready since the last call."""
        new, self._new = [place for place in self._new if place in self.ready], []
        return new

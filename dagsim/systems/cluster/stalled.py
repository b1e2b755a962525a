"""Simulations that cannot go on: who waits, and why. Nothing here changes anything."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dagsim.errors import Stalled
from dagsim.systems.cluster.forks import SAME, Forked
from dagsim.systems.cluster.nodes import DemandClass, NodeState
from dagsim.systems.cluster.state import Run, TaskState

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

_NAMED = 5
"""Maximum number of nodes and runs that a message names."""
JUDGED_EVERY = 256
"""Number of times that a policy wakes up between two judgements of whether it makes progress."""
_IDLE = 16
"""Number of judgements in a row without progress after which a simulation is given up."""
MOST_WAKES = 1_000_000
"""Maximum number of times that a policy may wake up before a task ends or a job arrives."""
_MOST_SPEEDUP = 64.0
"""Bound on how much faster an elastic task may become."""


class Wakes(Forked):
    """Count of the times that a policy was asked only because it had said ``Wait``, since a task last
    ended or a job arrived. Rounds that stop and start runs for ever are found by it: they make no
    progress, or there would be too many of them.
    """

    __slots__ = {"count": SAME, "idle": SAME, "least_s": SAME, "since_s": SAME, "until_s": SAME}

    def __init__(self) -> None:
        self.count = 0
        self.since_s = 0.0
        """Time of the first."""
        self.least_s, self.idle = inf, 0
        """The least work that was left, and the number of judgements since then."""
        self.until_s = inf
        """End of the simulation, if it ends before its jobs."""

    def tell_loss(self) -> None:
        """Expect that work was lost."""
        self.least_s, self.idle = inf, 0

    def count_one(self, kernel: ClusterKernel) -> None:
        """Count one now. O(1), and O(tasks) every ``JUDGED_EVERY`` times.

        Raises:
            Stalled: Runs stop and start without progress, or will do so too often.
        """
        if not self.count:
            self.since_s = kernel.now
            self.tell_loss()
        self.count += 1
        if self.count % JUDGED_EVERY == 0 and kernel.now > self.since_s:
            self._judge(kernel)

    def _judge(self, kernel: ClusterKernel) -> None:
        now, upcoming = kernel.now, kernel.upcoming.peek()
        ends_s = [
            *(now + _shortest_s(task) for task in kernel.frontier.ready),
            *(now + (run._ends_s - now) / _speedup(run.task) for run in kernel.running.values()),
        ]
        next_s = min([*ends_s, inf if upcoming is None else upcoming.arrival_s, self.until_s])
        more = 0.0 if next_s == inf else (next_s - now) * self.count / (now - self.since_s)
        if self.count + more > MOST_WAKES:
            raise Stalled(why_endless(now, self.since_s, self.count, next_s))
        waits = kernel.eligibility is not None and kernel.eligibility.pending
        if upcoming is not None or waits or not kernel.running:
            return
        left_s = sum([_shortest_s(task) * task.waiting for task in kernel.frontier.ready])
        left_s += sum([_work_left_s(run, now) * run.instances for run in kernel.running.values()])
        self.idle = 0 if left_s < self.least_s else self.idle + 1
        self.least_s = min(self.least_s, left_s)
        if self.idle >= _IDLE:
            raise Stalled(
                f"at {now:g} s: the policy was asked {self.count:,} times since {self.since_s:g} s, and no work got "
                f"done: runs of {len(kernel.frontier.jobs)} jobs take turns, and each is stopped before it computes "
                f"anything that is kept (preemption.restart_s is {kernel.preemption.restart_s:g}, on_resume "
                f"{kernel.preemption.on_resume}). Choose a longer quantum_s (round_s, interval_s), or a lower price"
            )


def why_endless(now: float, since_s: float, asked: int, next_s: float) -> str:
    """The message of ``Stalled``, for a policy that would be asked too often before something happens
    at ``next_s``.
    """
    more = (next_s - now) * asked / (now - since_s)
    return (
        f"at {now:g} s: the policy was asked {asked:,} times since {since_s:g} s, and would be asked about {more:.2g} "
        f"times more before a task can end or a job arrives, at {next_s:g} s (allowed: {MOST_WAKES:,}). Choose a "
        "longer quantum_s (round_s, interval_s) if the tasks really take so long; las and 2d-las also have lead "
        "(las[lead=0.1]), with which old jobs rarely take turns"
    )


def _shortest_s(task: TaskState) -> float:
    """Lower bound on the seconds that the task computes if it starts now."""
    return min(task._truth) * task.left / _speedup(task)


def _speedup(task: TaskState) -> float:
    return 1.0 if task.training is None else _MOST_SPEEDUP


def _work_left_s(run: Run, now: float) -> float:
    """Seconds of work that a run has left, without its set-up."""
    if run.task.training is not None:
        return _shortest_s(run.task) * (1.0 - run.done(now) / run.task.training.total)
    return max(run._seconds - run.done(now), 0.0)


def is_hopeless(kernel: ClusterKernel) -> bool:
    """True if no waiting task will ever have room: nodes have left for good and no job is still to
    arrive. A policy that asks to be woken would otherwise continue forever. Asked only while nothing
    runs.
    """
    ready = kernel.frontier.ready
    if kernel.upcoming.any_left or kernel.applicants or (kernel.life is not None and kernel.life.pending) or not ready:
        return False
    lasting = kernel.lasting()
    return not any(_could_fit(kernel, demand, lasting) for demand in {task.demand for task in ready})


def _could_fit(kernel: ClusterKernel, demand: DemandClass, lasting: list[bool]) -> bool:
    """True if the nodes that are or will be up can hold an instance (a gang: all of it)."""
    for type_ in demand.types:
        empty = (
            NodeState(machine.index, machine.node, type_)
            for machine in kernel.machines.list
            if machine.type == type_ and lasting[machine.index]
        )
        if sum(machine.room(demand) for machine in empty) >= max(demand.gang, 1):
            return True
    return False


def why_stalled(kernel: ClusterKernel) -> str:
    """The message of ``Stalled``, for a kernel in which nothing will happen without a decision."""
    ready, fits = kernel.frontier.ready, kernel.machines.fits
    first = next(iter(ready), None)
    waiting = [f"{len(ready)} ready tasks wait" + (f", {first.name} among them" if first else "")]
    if kernel.applicants:
        waiting.append(f"{len(kernel.applicants)} jobs wait to be admitted")
    endless = [f"{run.id} of {run.task.name}" for run in kernel.running.values() if run.is_endless]
    if endless:
        return f"at {kernel.now:g} s: {' and '.join(waiting)}, and nothing is due: run {_some(endless)} never ends"
    stuck = next((task for task in ready if not fits(task.demand)), None)
    startable = next((task for task in ready if fits(task.demand)), None)
    pending = "nothing is pending" if not kernel.pending else "nothing that is pending helps"
    idle = f"at {kernel.now:g} s: {' and '.join(waiting)}, nothing runs and {pending}"
    if startable is not None or kernel.applicants:
        could = f", although {startable.name} could start" if startable is not None else ""
        return f"{idle}, but the policy decided nothing{could}"
    return f"{idle}: {_why_stuck(kernel, stuck)}" if stuck is not None else idle


def _why_stuck(kernel: ClusterKernel, task: TaskState) -> str:
    """The reason why there is no room for the task although nothing runs."""
    lasting = kernel.lasting()
    machines = [machine for machine in kernel.machines.list if machine.type in task.demand.types]
    down = [machine.node.name for machine in machines if not lasting[machine.index]]
    asked = f"{task.name} asks {task.demand.gang or 1} x {tuple(task.demand.demand)}"
    return f"{asked}, which needs nodes that are down and are not to come back ({_some(down)})"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

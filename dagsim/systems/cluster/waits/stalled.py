"""Functions that detect simulations which cannot continue, and that state why jobs are still
waiting. Nothing in this module changes any state.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dagsim.errors import Stalled
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.forks import SAME, Forked
from dagsim.systems.cluster.state import Run, TaskState
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

_NAMED = 5
"""Maximum number of runs that a message names."""
JUDGED_EVERY = 256
"""Number of counted calls of a policy between two checks of whether it makes progress."""
_IDLE = 16
"""Number of consecutive checks without progress after which a simulation is stopped."""
MOST_WAKES = 1_000_000
"""Maximum number of counted calls of a policy before a task ends or a job arrives."""
_MOST_SPEEDUP = 64.0
"""Largest factor by which the rate of an elastic task may increase."""


class Wakes(Forked):
    """A counter of how often a policy has been called since a task last ended or a job last
    arrived. It counts only calls that were made because the policy had returned ``Wait``. The
    counter detects policies that stop and start runs forever, either without making any progress
    or with too many calls.
    """

    __slots__ = {"count": SAME, "idle": SAME, "least_s": SAME, "since_s": SAME, "until_s": SAME}

    def __init__(self) -> None:
        self.count = 0
        self.since_s = 0.0
        """Time of the first call that was counted."""
        self.least_s, self.idle = inf, 0
        """The least amount of work that was left at any check, and the number of checks since then."""
        self.until_s = inf
        """End of the simulation, if it ends before its jobs."""

    def tell_loss(self) -> None:
        """Record that work was lost."""
        self.least_s, self.idle = inf, 0

    def count_one(self, kernel: ClusterKernel) -> None:
        """Count one call at the current time. A call costs O(1), except that one in
        ``JUDGED_EVERY`` calls costs O(tasks).

        Raises:
            Stalled: Runs are stopped and started without progress, or would be too often.
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
            *(now + (run.scheduled_end_s - now) / _speedup(run.task) for run in kernel.running.values()),
        ]
        next_s = min([*ends_s, inf if upcoming is None else upcoming.arrival_s, self.until_s])
        more = 0.0 if next_s == inf else (next_s - now) * self.count / (now - self.since_s)
        if self.count + more > MOST_WAKES:
            raise Stalled(why_endless(now, self.since_s, self.count, next_s))
        waits = kernel.eligibility is not None and kernel.eligibility.pending
        if upcoming is not None or waits or not kernel.running:
            return
        left_s = ordered_sum([_shortest_s(task) * task.waiting for task in kernel.frontier.ready])
        left_s += ordered_sum([_work_left_s(run, now) * run.instances for run in kernel.running.values()])
        self.idle = 0 if left_s < self.least_s else self.idle + 1
        self.least_s = min(self.least_s, left_s)
        if self.idle >= _IDLE:
            raise Stalled(
                f"at {now:g} s: the policy has been called {self.count:,} times since {self.since_s:g} s without "
                f"any progress, because runs of {count_of(len(kernel.frontier.jobs), 'job')} take "
                "turns and each is stopped "
                f"before it makes lasting progress (preemption.restart_s is {kernel.preemption.restart_s:g}, "
                f"on_resume {kernel.preemption.on_resume}). Choose a longer quantum_s (round_s, interval_s), or a "
                "lower cost of preemption"
            )


def why_endless(now: float, since_s: float, asked: int, next_s: float) -> str:
    """Return the message of the error ``Stalled`` for a policy that would be called too often
    before the next event at ``next_s``.
    """
    more = (next_s - now) * asked / (now - since_s)
    return (
        f"at {now:g} s: the policy was called {asked:,} times since {since_s:g} s, and would be called about "
        f"{more:.2g} times more before a task can end or a job arrives, at {next_s:g} s (allowed: {MOST_WAKES:,}). "
        "Choose a longer quantum_s (round_s, interval_s) if the tasks really take so long; las and 2d-las also have "
        "lead (las[lead=0.1]), with which old jobs rarely take turns"
    )


def _shortest_s(task: TaskState) -> float:
    """Return a lower bound on the compute time of the task if it starts now."""
    return min(task.true_seconds) * task.left / _speedup(task)


def _speedup(task: TaskState) -> float:
    return 1.0 if task.training is None else _MOST_SPEEDUP


def _work_left_s(run: Run, now: float) -> float:
    """Return the seconds of work that a run still has to do, not counting its set-up."""
    if run.task.training is not None:
        return _shortest_s(run.task) * (1.0 - run.done(now) / run.task.training.total)
    return max(run.true_seconds - run.done(now), 0.0)


MOST_FAILURES = 1_000
"""Number of consecutive failures, each with the loss of all work, after which a task is assumed
never to finish."""
FAILS_ALWAYS = (
    f"it failed {MOST_FAILURES:,} times in a row with its nodes and lost its work each time: set preemption "
    "on_failure to resume, or let nodes stay up longer"
)


def only_endless(kernel: ClusterKernel) -> bool:
    """Return True if the remaining runs never end, so that no event is due, and if no waiting task
    could start while they are running.
    """
    ready, fits = kernel.frontier.ready, kernel.machines.fits
    endless = any(run.is_endless for run in kernel.running.values())
    return endless and not kernel.applicants and not any(fits(task.demand) for task in ready)


def why_unfinished(kernel: ClusterKernel) -> dict[int, str]:
    """For each job that is still in the system at the end of a simulation, return the reason why it
    is unfinished, by job number.
    """
    reasons = dict.fromkeys(kernel.frontier.jobs, "it waited when the simulation ended")
    for run in kernel.running.values():
        reasons[run.task.job.number] = (
            "a run of it never ends" if run.is_endless else "it ran when the simulation ended"
        )
    reasons |= {number: why for number, why in kernel.stuck.items() if number in reasons}
    reasons |= dict.fromkeys(kernel.applicants, "the policy neither admitted nor rejected it")
    return reasons if kernel.eligibility is None else reasons | kernel.eligibility.why_waiting()


def why_stalled(kernel: ClusterKernel) -> str:
    """Return the message of the error ``Stalled`` for a kernel in which nothing will happen without
    a decision.
    """
    ready, fits = kernel.frontier.ready, kernel.machines.fits
    first = next(iter(ready), None)
    waiting = [f"{len(ready)} ready tasks wait" + (f", {first.name} among them" if first else "")]
    if kernel.applicants:
        waiting.append(f"{count_of(len(kernel.applicants), 'job waits', 'jobs wait')} to be admitted")
    endless = [f"{run.id} of {run.task.name}" for run in kernel.running.values() if run.is_endless]
    if endless:
        return f"at {kernel.now:g} s: {' and '.join(waiting)}, and nothing is due: run {_some(endless)} never ends"
    startable = next((task for task in ready if fits(task.demand)), None)
    pending = "nothing is pending" if not kernel.pending else "nothing that is pending helps"
    idle = f"at {kernel.now:g} s: {' and '.join(waiting)}, nothing runs and {pending}"
    if startable is not None or kernel.applicants:
        could = f", although {startable.name} could start" if startable is not None else ""
        return (
            f"the policy returned no decision {idle}{could}; yield a decision, such as Start, or yield Wait(until_s) "
            "to be called again later"
        )
    return idle


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

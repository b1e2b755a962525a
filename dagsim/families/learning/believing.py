"""Heuristics that see the same expected durations as agents with beliefs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import GeneratorType

from dagsim.errors import ConfigError
from dagsim.families.learning.codecs.belief import Belief
from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView, JobState, Run, Simulation, TaskState
from dagsim.systems.cluster.policies import POLICIES


class Believing:
    """Decide as ``policy`` would if each task took as long as agents with ``beliefs`` expect. If
    durations are hidden, this expectation depends on the service so far and on finished tasks.
    Otherwise, it is the estimate, except for overdue runs.

    ``policy`` is a policy that uses estimates, such as ``eft-wait[theta=0.7]``. A new object is
    created for each decision, so the policy keeps no state. It never preempts unless ``policy``
    does. The cost is that of ``policy`` on a copy of the current state, O(tasks in the system +
    machines) per decision.

    Raises:
        ConfigError: ``policy`` uses no estimates, or cannot be created.
    """

    def __init__(self, policy: str = "eft-wait") -> None:
        POLICIES.create(policy)
        entry = POLICIES.entry_of(policy)
        if entry is None or "estimates" not in entry.tags or entry.name == "believing":
            raise ConfigError(f"believing: policy must be a policy that uses estimates, got {policy!r}")
        self.policy = policy
        self._preempts = "preemptive" in entry.tags

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        belief = view.index((self, "belief"), lambda: Belief(view))
        belief.refresh()
        if not self._preempts and not any(view.fits(task) for task in view.ready):
            return
        tasks = {(task.order, task.piece): task for task in view.ready}
        decided: Iterable[Decision] | None = POLICIES.create(self.policy).decide(ClusterView(believed(view, belief)))
        for decision in decided or ():
            if (task := getattr(decision, "task", None)) is not None:
                decision = decision._replace(task=tasks[task.order, task.piece])  # type: ignore[call-arg]
            yield decision
            if isinstance(decided, GeneratorType):
                return  # the fork does not show the effect of the decision, so ask again with a new fork


def believed(view: ClusterView, belief: Belief) -> Simulation:
    """Return a fork of the simulation whose estimates are the times that ``belief`` expects."""
    fork = view.fork()
    originals = [(view.jobs, view.ready, view.running), (fork.frontier.jobs, fork.frontier.ready, fork.running)]
    tasks, twins = [_tasks(jobs.values(), ready, running.values()) for jobs, ready, running in originals]
    expected = {key: belief.seconds(task) for key, task in tasks.items()}
    for key, seconds in expected.items():
        twin = twins[key]
        twin.seconds, twin.best_s = seconds, min(seconds)
        twin.believe_estimate()
    for job in fork.frontier.jobs.values():
        job.changed()
        job.rank()
    for twin in twins.values():
        whole = twin.job.tasks[twin.index]
        if twin is not whole:
            twin.rank_s = whole.rank_s + twin.best_s - whole.best_s
    for run in fork.running.values():
        run.progress, run.suspended_since_s = None, None
        run.computing_s = fork.now + belief.left_s(view.running[run.id]) - run.estimate_s
    return fork


def _tasks(
    jobs: Iterable[JobState], ready: Iterable[TaskState], runs: Iterable[Run]
) -> dict[tuple[int, int], TaskState]:
    """Return all tasks of the jobs, and all waiting or running pieces, keyed by sort key and piece
    number.
    """
    tasks = [*(task for job in jobs for task in job.tasks), *ready, *(run.task for run in runs)]
    return {(task.order, task.piece): task for task in tasks}

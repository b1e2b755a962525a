"""The policies of Pollux's simulator on dagsim's kernel for GPU clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import floor

from dagsim.errors import ConfigError
from dagsim.families.elastic.genetic import EqualNodes
from dagsim.families.elastic.pollux_policy import equal_nodes
from dagsim.families.elastic.training_jobs import ElasticJob, MeasuredTraining, Training
from dagsim.model import Decision, Elastic, Job, Preempt, Share, Start, Task, Wait
from dagsim.systems.cluster.api import ClusterView, Run, TaskState
from pollux.stepped_cluster import MOST_REPLICAS, ElasticPolicy, SteppedJob


def elastic_job_of(
    job: ElasticJob, policy: ElasticPolicy, *, restart_s: float | None = None, whole_seconds: bool = False
) -> Job:
    """Return a measured application as a job of the kernel.

    The policy decides whether the job keeps its user's batch. By default, ``restart_s`` is taken
    from the application. With ``whole_seconds``, epochs end as in Pollux's simulator.
    """
    training = MeasuredTraining(job, policy.batch(job), whole_seconds)
    restart_s = job.profile.application.restart_s if restart_s is None else restart_s
    elastic = Elastic(1, max(MOST_REPLICAS, job.replicas), training, restart_s)
    task = Task("train", training.start().total, job.replicas, gang=True, model=job.profile.name, elastic=elastic)
    return Job.single(job.name, task, job.arrival_s)


class IntervalAllocation:
    """Lets a policy for elastic jobs make all allocations every ``interval_s`` seconds.

    It supports only tasks with ``MeasuredTraining``, on equal nodes. A task whose nodes change is
    preempted and started again, so that all simultaneous changes fit.

    Raises:
        ConfigError: There are other tasks or unequal nodes, which the policy does not support.
    """

    def __init__(self, policy: ElasticPolicy, interval_s: int = 60) -> None:
        self.policy, self.interval_s = policy, interval_s
        self._jobs: dict[int, SteppedJob] = {}
        self._cluster: EqualNodes | None = None
        self._decided_s = -1.0

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        now = view.now
        if not (view.ready or view.running):
            return
        # the simulator makes its first decision after one interval
        if now % self.interval_s or now in (0.0, self._decided_s):
            yield Wait((floor(now / self.interval_s) + 1) * self.interval_s)
            return
        self._decided_s = now
        waiting = {task.order: task for task in view.ready}
        runs = {run.task.order: run for run in view.running.values()}
        jobs = {order: self._job(order, waiting, runs) for order in sorted({*waiting, *runs})}
        names = {job.job.name: order for order, job in jobs.items()}
        self._jobs = jobs
        cluster = self._cluster = self._cluster or equal_nodes(view)
        cluster.allocations = {name: nodes for name, nodes in cluster.allocations.items() if name in names}
        allocations = self.policy.allocate(int(now), {job.job.name: job for job in jobs.values()}, cluster)
        changed = [name for name in names if allocations.get(name, []) != cluster.allocations.get(name, [])]
        cluster.allocations = allocations
        for name in changed:
            if run := runs.get(names[name]):
                yield Preempt(run.id)
        waiting = {task.order: task for task in view.ready}
        for name in changed:
            if nodes := allocations.get(name):
                shares = tuple([Share(node, len(list(replicas))) for node, replicas in groupby(nodes)])
                jobs[names[name]].restarts += 1
                yield Start(waiting[names[name]], shares)
        yield Wait(now + self.interval_s)

    def _job(self, order: int, waiting: dict[int, TaskState], runs: dict[int, Run]) -> SteppedJob:
        """Return the task in the form that the policy expects."""
        task = waiting[order] if order in waiting else runs[order].task
        if not isinstance(task.training, Training):
            raise ConfigError(
                "elastic policies from Pollux's simulator support only measured applications; "
                f"{task.name} is a different task "
                "(elastic: {profiles: ...})"
            )
        job = self._jobs.get(order) or SteppedJob(task.training.job, task.training.batch)
        job.training = task.training
        return job

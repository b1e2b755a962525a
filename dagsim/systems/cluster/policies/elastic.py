"""Policies of Pollux's simulator on the kernel: GPUs of elastic tasks, allocated at intervals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import floor

from dagsim.elastic.jobs import ElasticJob, MeasuredTraining, Training
from dagsim.elastic.policies import AttainedServiceQueues, OptimusOracle
from dagsim.elastic.search import PolluxSearch
from dagsim.elastic.stepping import ElasticPolicy, EqualNodes, SteppedJob
from dagsim.errors import ConfigError
from dagsim.model import Decision, Elastic, Job, Preempt, Share, Start, Task, Wait
from dagsim.systems.cluster.api import ClusterView, Run, TaskState

__all__ = ["ELASTIC_POLICIES", "IntervalAllocation", "elastic_job_of"]

ELASTIC_POLICIES = {"tiresias": AttainedServiceQueues, "optimus": OptimusOracle, "pollux": PolluxSearch}
"""Policies that ``IntervalAllocation`` plays, by name."""
_MOST_REPLICAS = 64


def elastic_job_of(
    job: ElasticJob, policy: ElasticPolicy, *, restart_s: float | None = None, whole_seconds: bool = False
) -> Job:
    """A measured application as a job of the kernel.

    The policy decides whether the user's batch stays. ``restart_s`` is by default that of the
    application. With ``whole_seconds``, epochs end as in Pollux's simulator.
    """
    training = MeasuredTraining(job, policy.batch(job), whole_seconds)
    restart_s = job.profile.application.restart_s if restart_s is None else restart_s
    elastic = Elastic(1, max(_MOST_REPLICAS, job.replicas), training, restart_s)
    task = Task("train", training.start().total, job.replicas, gang=True, model=job.profile.name, elastic=elastic)
    return Job.single(job.name, task, job.arrival_s)


class IntervalAllocation:
    """Ask a policy for elastic jobs for all allocations, every ``interval_s`` seconds.

    ``policy`` is ``tiresias``, ``optimus`` or ``pollux``, or an ``ElasticPolicy``. Its jobs are tasks
    that run with ``MeasuredTraining``, on equal nodes. A task whose nodes change is preempted and
    started again, so that all changes of an instant fit. Preemptive. As published with Pollux for
    ``tiresias`` and ``optimus``, checked by ``scripts/validate_pollux.py --kernel``; ``pollux`` is
    after Pollux (Qiao et al., OSDI 2021).

    Raises:
        ConfigError: There is no such policy, or the interval is not positive; in a simulation with
            other tasks or unequal nodes, that it cannot play it.
    """

    def __init__(self, policy: str | ElasticPolicy = "pollux", interval_s: int = 60) -> None:
        if isinstance(policy, str) and policy not in ELASTIC_POLICIES:
            raise ConfigError(f"elastic policy must be one of {', '.join(ELASTIC_POLICIES)}, got {policy!r}")
        if not interval_s > 0:
            raise ConfigError(f"interval_s must be positive, got {interval_s!r}")
        self.policy: ElasticPolicy = ELASTIC_POLICIES[policy]() if isinstance(policy, str) else policy
        self.interval_s = interval_s
        self._jobs: dict[int, SteppedJob] = {}
        self._cluster: EqualNodes | None = None
        self._decided_s = -1.0

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        now = view.now
        if not (view.ready or view.running):
            return
        if now % self.interval_s or now in (0.0, self._decided_s):  # the simulator first decides after an interval
            yield Wait((floor(now / self.interval_s) + 1) * self.interval_s)
            return
        self._decided_s = now
        waiting = {task.order: task for task in view.ready}
        runs = {run.task.order: run for run in view.running.values()}
        jobs = {order: self._job(order, waiting, runs) for order in sorted({*waiting, *runs})}
        names = {job.job.name: order for order, job in jobs.items()}
        self._jobs = jobs
        cluster = self._cluster or self._equal_nodes(view)
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
        """The task as its policy knows it."""
        task = waiting[order] if order in waiting else runs[order].task
        if not isinstance(task.training, Training):
            raise ConfigError(f"elastic policies play measured applications only; {task.name} is another task")
        job = self._jobs.get(order) or SteppedJob(task.training.job, task.training.batch)
        job.training = task.training
        return job

    def _equal_nodes(self, view: ClusterView) -> EqualNodes:
        sizes = {machine.gpus for machine in view.machines.list}
        if len(sizes) != 1:
            raise ConfigError(f"elastic policies need nodes of one size, got nodes of {sorted(sizes)} GPUs")
        self._cluster = EqualNodes(len(view.machines.list), sizes.pop())
        return self._cluster

"""Pollux's simulator as published, with the policies that its authors compare with, in its own loop and on the kernel.

As published (Qiao et al., OSDI 2021, artifact): times are whole seconds, an arrival is noticed at the next interval,
and every change of a job's nodes costs 30 s during which it holds its GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import floor, isfinite
from pathlib import Path
from typing import Protocol

from dagsim.errors import ConfigError, TraceError
from dagsim.families.elastic.genetic import Allocations, EqualNodes
from dagsim.families.elastic.goodput import BatchLimits, GoodputModel
from dagsim.families.elastic.pollux_policy import equal_nodes
from dagsim.families.elastic.profiles import TrainingProfile, table_rows
from dagsim.families.elastic.training_jobs import ElasticJob, MeasuredTraining, Training, split_batch
from dagsim.model import Decision, Elastic, Job, Preempt, Share, Start, Task, Wait
from dagsim.systems.cluster.api import ClusterView, Run, TaskState

_MOST_REPLICAS = 64
"""Largest number of replicas that was measured."""


class SteppedJob:
    """A job in the simulator: its training, restarts and times, in whole seconds."""

    def __init__(self, job: ElasticJob, batch: int | None) -> None:
        self.job = job
        self.training = Training(job, batch)
        self.restart_left_s = 0
        self.attained_gpu_s = 0
        self.restarts = -1
        """Number of starts after the first, or -1 before that."""
        self.end_s: int | None = None

    @property
    def arrival_s(self) -> float:
        """Arrival time."""
        return self.job.arrival_s

    @property
    def limits(self) -> BatchLimits:
        """Batch sizes that its application may use."""
        return self.job.profile.limits

    @property
    def goodput(self) -> GoodputModel | None:
        """The model fitted to the job's iterations so far."""
        return self.training.goodput

    @property
    def largest_measured(self) -> int:
        """Largest number of replicas with which the job has run."""
        return self.training.largest_measured

    def most_replicas(self, batch: int) -> int:
        """Return the maximum number of GPUs for a batch, as the simulator limits it: 64, and 1 for
        ncf."""
        profile = self.job.profile
        return 1 if profile.name == "ncf" else min(_MOST_REPLICAS, batch // profile.limits.local_min)

    def place(self, placement: Sequence[int], restart_s: int) -> None:
        """Move to other GPUs; an empty placement stops the job."""
        self.training.place(placement)
        if placement:
            self.restart_left_s = restart_s
            self.restarts += 1

    def step(self, now_s: int, seconds: int, interference: float) -> None:
        """Train from ``now_s`` for ``seconds``."""
        training = self.training
        if not training.placement:
            return
        held_s = min(self.restart_left_s, seconds)
        self.restart_left_s -= held_s
        left_s = seconds - held_s
        while left_s > 0 and self.end_s is None:
            rate, until, _ = training.pace(interference)
            if training.progress + rate * left_s < until:
                training.advance(rate * left_s)
                left_s = 0
            else:
                left_s -= round((until - training.progress) / rate)
                training.end_epoch()
                if training.done:
                    self.end_s = now_s + seconds - left_s
        self.attained_gpu_s += (seconds - left_s) * training.replicas


class ElasticPolicy(Protocol):
    """Allocates GPUs to elastic jobs at the end of each interval."""

    def batch(self, job: ElasticJob) -> int | None:
        """Return the batch size of the job, or None to maximise its goodput."""

    def allocate(self, now_s: int, jobs: dict[str, SteppedJob], cluster: EqualNodes) -> Allocations:
        """Return the nodes of every job. A job whose list does not change continues undisturbed.

        Args:
            now_s: The current time.
            jobs: Jobs that have arrived and are not done, in order of the workload.
            cluster: Its size, and the current ``allocations``.
        """


class SteppedCluster(EqualNodes):
    """A cluster of equal nodes under a policy.

    Args:
        jobs: In order of the workload.
        policy: Allocates at the end of each interval.
        nodes, gpus_per_node: Size of the cluster.
        interval_s: Seconds between allocations.
        restart_s: Seconds that each start takes, the first included.
        interference: Share of its rate that a job on several nodes loses if another such job shares
            one of them.
    """

    def __init__(
        self,
        jobs: Sequence[ElasticJob],
        policy: ElasticPolicy,
        *,
        nodes: int = 16,
        gpus_per_node: int = 4,
        interval_s: int = 60,
        restart_s: int = 30,
        interference: float = 0.0,
    ) -> None:
        super().__init__(nodes, gpus_per_node)
        self.interval_s, self.restart_s, self.interference = interval_s, restart_s, interference
        self.now_s = 0
        self.jobs = {job.name: SteppedJob(job, policy.batch(job)) for job in jobs}
        self._policy = policy

    def run(self) -> dict[str, int]:
        """Play until all jobs are done; return their completion times (from arrival) by name."""
        while any(job.end_s is None for job in self.jobs.values()):
            self.step()
        return {name: int(job.end_s - job.job.arrival_s) for name, job in self.jobs.items() if job.end_s is not None}

    def step(self) -> None:
        """Advance by one interval, then allocate."""
        disturbed = self._disturbed() if self.interference else set()
        for name, job in self.jobs.items():
            if job.end_s is None:
                job.step(self.now_s, self.interval_s, self.interference if name in disturbed else 0.0)
        self.now_s += self.interval_s
        waiting = {
            name: job for name, job in self.jobs.items() if job.end_s is None and job.job.arrival_s <= self.now_s
        }
        self.allocations = {name: nodes for name, nodes in self.allocations.items() if name in waiting}
        if not waiting:
            return
        allocations = self._policy.allocate(self.now_s, waiting, self)
        for name, job in waiting.items():
            nodes = allocations.get(name, [])
            if nodes != self.allocations.get(name, []):
                job.place([len(list(replicas)) for _, replicas in groupby(nodes)], self.restart_s)
        self.allocations = allocations

    def _disturbed(self) -> set[str]:
        """Jobs on several nodes that share one with another such job."""
        distributed = {name: set(nodes) for name, nodes in self.allocations.items() if len(set(nodes)) > 1}
        crowds = Counter(node for nodes in distributed.values() for node in nodes)
        return {name for name, nodes in distributed.items() if any(crowds[node] > 1 for node in nodes)}


class AttainedServiceQueues:
    """Tiresias (NSDI 2019) with two queues. A job leaves the first queue when it has run long
    enough.

    Each queue is in order of entry. A job that fits starts even if one before it does not fit. Jobs
    run with the GPUs and the batch that their users requested.

    Args:
        threshold_gpu_s: GPU-seconds, with restarts, after which a job moves to the second queue.
    """

    def __init__(self, threshold_gpu_s: int = 57_600) -> None:
        self._threshold_gpu_s = threshold_gpu_s
        self._queues: tuple[list[str], list[str]] = ([], [])
        self._running: set[str] = set()
        self._executed_s: Counter[str] = Counter()
        self._asked_s = 0

    def batch(self, job: ElasticJob) -> int | None:
        """Return the batch that the user requested."""
        return job.batch

    def allocate(self, now_s: int, jobs: dict[str, SteppedJob], cluster: EqualNodes) -> Allocations:
        """Preempt and start jobs in the order of the queues; running jobs keep their nodes."""
        first, second = ([name for name in queue if name in jobs] for queue in self._queues)
        queued = {*first, *second}
        first += [name for name in jobs if name not in queued]
        for name, job in jobs.items():
            if name in self._running:
                self._executed_s[name] += now_s - self._asked_s
                if name in first and self._executed_s[name] * job.job.replicas >= self._threshold_gpu_s:
                    first.remove(name)
                    second.append(name)
        self._queues, self._asked_s = (first, second), now_s

        idle = cluster.gpus
        self._running = set()
        for name in (*first, *second):
            if jobs[name].job.replicas <= idle:
                idle -= jobs[name].job.replicas
                self._running.add(name)
        allocations = {name: nodes for name, nodes in cluster.allocations.items() if name in self._running}
        free = cluster.free_gpus(allocations)
        for name in (*first, *second):
            if name in self._running and name not in allocations:
                allocations[name] = _take_most_free(free, jobs[name].job.replicas)
        return allocations


class OptimusOracle:
    """Optimus (EuroSys 2018) with true step times and true remaining iterations. First, each job
    gets one GPU. Then each further GPU goes to the job whose remaining time it shortens most. Jobs
    run with the batch that their users requested.
    """

    def batch(self, job: ElasticJob) -> int | None:
        """Return the batch that the user requested."""
        return job.batch

    def allocate(self, now_s: int, jobs: dict[str, SteppedJob], cluster: EqualNodes) -> Allocations:
        """Choose the number of GPUs of each job. A job whose number does not change keeps its
        nodes."""
        counts = {name: int(place < cluster.gpus) for place, name in enumerate(jobs)}
        gains = {name: self._gain_s(jobs[name], 1) if count else 0.0 for name, count in counts.items()}
        for _ in range(cluster.gpus - sum(counts.values())):
            name = max(gains, key=gains.__getitem__)
            if gains[name] <= 0:
                break
            counts[name] += 1
            gains[name] = self._gain_s(jobs[name], counts[name])
        allocations = {name: nodes for name, nodes in cluster.allocations.items() if len(nodes) == counts[name]}
        free = cluster.free_gpus(allocations)
        for name in sorted(jobs, key=counts.__getitem__):
            if counts[name] and name not in allocations:
                allocations[name] = _take_most_free(free, counts[name])
        return allocations

    def _gain_s(self, job: SteppedJob, replicas: int) -> float:
        """Return the seconds that the job would save with one more replica, or 0 if it may not have
        more."""
        if replicas >= job.most_replicas(job.job.batch):
            return 0.0
        return (self._step_s(job, replicas) - self._step_s(job, replicas + 1)) * self._iterations_left(job)

    def _iterations_left(self, job: SteppedJob) -> float:
        """Return the number of iterations after the current epoch, or 1 in the last epoch."""
        profile, epoch = job.job.profile, job.training.epoch + 1
        if epoch >= profile.application.epochs:
            return 1.0
        batch = job.job.batch
        return profile.iterations(batch, profile.application.epochs) - profile.iterations(batch, epoch)

    def _step_s(self, job: SteppedJob, replicas: int) -> float:
        """Return the true seconds of an iteration on nodes that are filled one after the other."""
        profile = job.job.profile
        local, accumulation = split_batch(profile, job.job.batch, replicas)
        local = min(local, profile.limits.largest // (replicas * (accumulation + 1)))
        full, rest = divmod(replicas, 4)
        step_s, sync_s = profile.times((4,) * full + ((rest,) if rest else ()), local)
        return step_s + (step_s - sync_s) * accumulation


def _take_most_free(free: Counter[int], replicas: int) -> list[int]:
    """Take GPUs from the node with the most free ones, then from the next; the first node wins
    ties."""
    nodes: list[int] = []
    while len(nodes) < replicas:
        [(node, count)] = free.most_common(1)
        count = min(count, replicas - len(nodes))
        nodes += [node] * count
        free[node] -= count
    return nodes


def elastic_job_of(
    job: ElasticJob, policy: ElasticPolicy, *, restart_s: float | None = None, whole_seconds: bool = False
) -> Job:
    """Return a measured application as a job of the kernel.

    The policy decides whether the job keeps its user's batch. By default, ``restart_s`` is taken
    from the application. With ``whole_seconds``, epochs end as in Pollux's simulator.
    """
    training = MeasuredTraining(job, policy.batch(job), whole_seconds)
    restart_s = job.profile.application.restart_s if restart_s is None else restart_s
    elastic = Elastic(1, max(_MOST_REPLICAS, job.replicas), training, restart_s)
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


def read_workload(path: Path | str, profiles: Mapping[str, TrainingProfile]) -> list[ElasticJob]:
    """Read a workload from Pollux or Sia: a CSV file, plain or gzip, with the columns ``name, time,
    application, num_replicas, batch_size``.

    Raises:
        TraceError: The file is malformed, repeats a job, or names an application without a profile.
    """
    jobs: dict[str, ElasticJob] = {}
    for where, (name, application), numbers in table_rows(Path(path), ("name", "application"), _NUMBERS):
        arrival_s, replicas, batch = numbers
        if application not in profiles:
            raise TraceError(f"{where}: there is no profile for the application {application!r}")
        if name in jobs:
            raise TraceError(f"{where}: the job {name!r} occurs twice")
        if not (isfinite(arrival_s) and arrival_s >= 0 and replicas >= 1 and batch >= 1):
            raise TraceError(
                f"{where}: a job needs a time of 0 or more, at least one replica and at least one sample, got {numbers}"
            )
        jobs[name] = ElasticJob(name, profiles[application], arrival_s, int(replicas), int(batch))
    return list(jobs.values())


_NUMBERS = ("time", "num_replicas", "batch_size")

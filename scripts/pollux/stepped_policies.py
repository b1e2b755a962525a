"""Tiresias and Optimus as in Pollux's simulator."""

from __future__ import annotations

from collections import Counter

from dagsim.families.elastic.genetic import Allocations, EqualNodes
from dagsim.families.elastic.training_jobs import ElasticJob, split_batch
from pollux.stepped_cluster import SteppedJob


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

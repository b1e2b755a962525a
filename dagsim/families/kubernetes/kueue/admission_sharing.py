"""The past usage of LocalQueues, by which admission fair sharing orders workloads."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from dagsim.families.kubernetes.kueue.amounts import unit
from dagsim.families.kubernetes.kueue.kueue_objects import AdmissionFairSharing, LocalQueue
from dagsim.families.kubernetes.kueue.workloads import WorkloadState


class LocalQueueUsage:
    """The past usage of all LocalQueues. It decays, and is sampled at intervals. Until the next
    sample, an admission counts as a penalty. Amounts are in thousandths.
    """

    def __init__(self, sharing: AdmissionFairSharing, queues: Mapping[str, LocalQueue]) -> None:
        self._sharing, self._queues = sharing, queues
        self._consumed: dict[str, dict[str, int]] = {
            name: {resource: round(amount * 1000) for resource, amount in queue.consumed_resources.items()}
            for name, queue in queues.items()
        }
        self._penalties: dict[str, dict[str, int]] = {}
        self._sampled_s: float | None = None

    def past(self, local_queue: str) -> float:
        """Return the past usage of a LocalQueue, including penalties for recent admissions, divided
        by the weight of the queue."""
        consumed, penalties = self._consumed.get(local_queue, {}), self._penalties.get(local_queue, {})
        usage = 0.0
        for resource in sorted(consumed.keys() | penalties.keys()):
            total = consumed.get(resource, 0) + penalties.get(resource, 0)
            # Kubernetes stores whole amounts without decimals, and computes all others as a
            # multiple of 0.001. Do the same, so that rounding errors are equal.
            amount = total * 0.001 if resource in penalties or total % 1000 else float(total // 1000)
            usage += self._sharing.resource_weights.get(resource, 1.0) * amount
        weight = self._queues[local_queue].weight
        return usage / weight if weight else (inf if usage else 0.0)

    def penalised(self) -> tuple[float, ...]:
        """Return the past usage of the LocalQueues that have penalties."""
        return tuple([self.past(name) for name in self._penalties])

    def penalise(self, workload: WorkloadState) -> None:
        """Add a penalty for an admission."""
        sharing = self._sharing
        share = (
            1.0 - 0.5 ** (sharing.usage_sampling_interval_s / sharing.usage_half_life_s)
            if sharing.usage_half_life_s
            else 0.0
        )
        penalty = self._penalties.setdefault(workload.local_queue, {})
        totals: dict[str, int] = {}
        for pod_set, requests in zip(workload.spec.pod_sets, workload.requests, strict=True):
            for resource, amount in requests:
                totals[resource] = totals.get(resource, 0) + amount * pod_set.count
        for resource, amount in totals.items():
            penalty[resource] = penalty.get(resource, 0) + int(float(amount * 1000 // unit(resource)) * share)

    def is_due(self, now: float) -> bool:
        """Return True if an interval has passed since the last sample. The first interval begins
        with the first call.
        """
        if self._sampled_s is None:
            self._sampled_s = now
        return now - self._sampled_s >= self._sharing.usage_sampling_interval_s

    def sample(self, now: float, present: Mapping[str, Mapping[str, int]]) -> None:
        """Decay past usage, and add the ``present`` usage by LocalQueue and the penalties."""
        assert self._sampled_s is not None
        half_life_s, elapsed_s = self._sharing.usage_half_life_s, now - self._sampled_s
        self._sampled_s = now
        kept = 0.5 ** (elapsed_s / half_life_s) if half_life_s else 1.0
        for name in {*self._consumed, *self._penalties}:
            consumed, penalty = self._consumed.setdefault(name, {}), self._penalties.get(name, {})
            for resource in {*consumed, *penalty, *present.get(name, {})}:
                old = consumed.get(resource, 0) + penalty.get(resource, 0)
                new = present.get(name, {}).get(resource, 0)
                consumed[resource] = int(old * kept) + int(new * (1.0 - kept))
        self._penalties.clear()

"""The quotas of Kueue, told of a log: what of them kept a workload waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dagsim.model import Job
from dagsim.systems.cluster.api import ClusterView, TaskState
from dagsim.systems.cluster.policies.production.quotas import QuotaTree

__all__ = ["KueueWaits"]


class KueueWaits:
    """Quotas with what queues used of them; ``waits.WaitRules`` says what is asked."""

    elsewhere = "there was room, but only on types of which its queue had no quota left"

    def __init__(
        self,
        view: ClusterView,
        quotas: QuotaTree,
        queue_of: Callable[[Job], str],
        amounts: Callable[[str, TaskState, int, int | None], dict[str, float]],
    ) -> None:
        self._quotas, self._queue_of, self._amounts = quotas, queue_of, amounts
        self._of_type = [0] * len(view.gpu_types)
        for machine in view.machines.list:
            self._of_type[machine.type] |= machine.bit
        self._taken: dict[int, tuple[str, dict[str, float]]] = {}

    def started(self, run: int, task: TaskState, instances: int, type_: int) -> None:
        """Take in a run."""
        queue = self._queue_of(task.job.job)
        self._taken[run] = queue, self._amounts(queue, task, type_, instances)
        self._quotas.take(*self._taken[run])

    def ended(self, run: int) -> None:
        """Let go of a run."""
        self._quotas.give(*self._taken.pop(run))

    def limits(self, task: TaskState) -> Iterator[str]:
        """The quotas that are used up, in words; none while a type has quota left."""
        if not self._with_quota(task):
            queue = self._queue_of(task.job.job)
            told: dict[str, None] = {}
            for type_ in task.demand.types:
                for key, amount in self._amounts(queue, task, type_, None).items():
                    if not self._quotas.fits(queue, {key: amount}):
                        told[self._used_up(queue, key, amount)] = None
            yield from told

    def nodes(self, task: TaskState) -> int:
        """The nodes of types with quota left; all of its types, where there is none of any."""
        types = self._with_quota(task) or task.demand.types
        return sum(self._of_type[type_] for type_ in types)

    def alone(self, task: TaskState) -> bool:
        """Nodes are shared."""
        return False

    def distinct(self, task: TaskState) -> bool:
        """Pods of a gang may share a node."""
        return False

    def _with_quota(self, task: TaskState) -> Sequence[int]:
        queue = self._queue_of(task.job.job)
        return [
            type_ for type_ in task.demand.types if self._quotas.fits(queue, self._amounts(queue, task, type_, None))
        ]

    def _used_up(self, queue: str, key: str, amount: float) -> str:
        quota = f"the quota of {self._quotas.nominal(queue, key):g} {key} of the queue {queue}"
        if self._quotas.within_nominal(queue, {key: amount}):
            return f"{quota} was lent to others"
        return f"{quota} was used up, and its cohort could lend it no more"

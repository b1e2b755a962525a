"""The limits and partitions of Slurm, told of a log: what of them kept a job waiting."""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.systems.cluster.api import ClusterView, TaskState
from dagsim.systems.cluster.policies.production.limits import Holder
from dagsim.systems.cluster.policies.production.slurm_rules import SlurmRules

__all__ = ["SlurmWaits"]

_WORDS = {
    "partition": "the partition {0}",
    "qos": "the QOS {0}",
    "account": "the account {0}",
    "user": "the user {1} in the account {0}",
    "qos user": "the user {1} in the QOS {0}",
    "qos account": "the account {1} in the QOS {0}",
}
_UNITS = {"gpus": "GPUs", "cpus": "CPUs", "memory_gb": "GB of memory", "jobs": "running jobs"}


class SlurmWaits:
    """The rules of a site with what its users held; ``waits.WaitRules`` says what is asked."""

    elsewhere = "there was room, but only outside its partition"

    def __init__(self, view: ClusterView, *, distinct: bool) -> None:
        self._rules, self._distinct = SlurmRules(view, kill="never", distinct=distinct), distinct

    def started(self, run: int, task: TaskState, instances: int, type_: int) -> None:
        """Take in a run."""
        amounts = self._rules.amounts(task).times(instances / (task.demand.gang or 1))
        self._rules.holdings.take(run, self._rules.holders(task.job), amounts)

    def ended(self, run: int) -> None:
        """Let go of a run."""
        self._rules.holdings.give(run)

    def limits(self, task: TaskState) -> Iterator[str]:
        """The limits that leave no room for a start of the task now, in words."""
        rules = self._rules
        for holder, what, limit in rules.holdings.used_up(rules.holders(task.job), rules.amounts(task)):
            yield f"the limit of {limit:g} {_UNITS[what]} of {_named(holder)} was reached"

    def nodes(self, task: TaskState) -> int:
        """The nodes of its partition."""
        return self._rules.nodes[self._rules.partition(task.job).name]

    def alone(self, task: TaskState) -> bool:
        """True in a partition that gives whole nodes."""
        return self._rules.partition(task.job).exclusive

    def distinct(self, task: TaskState) -> bool:
        """True if gangs take a node for each instance."""
        return self._distinct


def _named(holder: Holder) -> str:
    return _WORDS[holder[0]].format(*holder[1:])

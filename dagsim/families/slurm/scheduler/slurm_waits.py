"""Explanations of why jobs wait: the limits and partitions of a Slurm site, with Slurm's names for
them."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from dagsim.families.slurm.scheduler.holdings import Amounts, Holder
from dagsim.families.slurm.scheduler.slurm_rules import RESOURCES, SlurmRules
from dagsim.families.slurm.scheduler.slurm_settings import slurm_settings
from dagsim.model import NodePartition
from dagsim.systems.cluster.api import ClusterView, Excess, ReachedLimit, TaskState, WaitRules

_WORDS = {
    "partition": "the partition {0}",
    "qos": "the QOS {0}",
    "account": "the account {0}",
    "user": "the user {1} in the account {0}",
    "qos user": "the user {1} in the QOS {0}",
    "qos account": "the account {1} in the QOS {0}",
}
_REASONS = {
    "partition": "Partition{0}Limit",
    "qos": "QOSGrp{0}",
    "account": "AssocGrp{0}",
    "user": "AssocGrp{0}",
    "qos user": "QOSMax{0}PerUser",
    "qos account": "Max{0}PerAccount",
}
"""Slurm's names for limits, with the resource that each limits."""
_UNITS = {"gpus": "GPUs", "cpus": "CPUs", "memory_gb": "GB of memory", "jobs": "running jobs", "nodes": "nodes"}
_UNITS |= {f"{name} minutes": f"{word} times minutes" for name, word in _UNITS.items()}


class SlurmWaits(WaitRules):
    """A site's rules, together with what its users currently hold."""

    elsewhere = "it would have fitted, but only outside its partition"

    def __init__(self, view: ClusterView, rules: SlurmRules) -> None:
        self._rules, self._view = rules, view

    def started(self, run: int, task: TaskState, instances: int, type_: int) -> None:
        """Record that a run has started."""
        amounts = self._rules.amounts(task).times(instances / (task.demand.gang or 1))
        self._rules.holdings.take(run, self._rules.holders(task.job), amounts)

    def ended(self, run: int) -> None:
        """Record that a run has ended."""
        self._rules.holdings.give(run)

    def limits(self, task: TaskState) -> Iterator[str]:
        """Describe the limits that currently prevent a start of the task."""
        rules = self._rules
        for holder, what, limit in rules.holdings.used_up(rules.holders(task.job), rules.amounts(task)):
            yield f"the limit of {limit:g} {_UNITS[what]} of {_named(holder)} was reached"

    def reached(self, task: TaskState) -> Iterator[ReachedLimit]:
        """Yield the limits that keep a start of the task from happening now. If several partitions
        refuse the task, these are the limits of the partition with the fewest such limits. Yield
        nothing if a partition admits the task."""
        rules = self._rules
        several: list[list[ReachedLimit]] = []
        for part, gpu, _ in rules.ways(self._view, task):
            start = rules.least(task, part)
            # like Slurm (acct_policy.c), test the limits of the QOS before those of the
            # associations
            holders = sorted(
                rules.holders(task.job, part, gpu), key=lambda holder: not _plain(holder)[0].startswith("qos")
            )
            several.append(
                [
                    ReachedLimit(
                        _reason(holder, what), _named(holder), _UNITS.get(what, what), limit,
                        rules.holdings.held(holder, what), _amount(start, what), runs=rules.holdings.runs_of(holder),
                    )
                    for holder, what, limit in rules.holdings.used_up(holders, start)
                ]
            )  # fmt: skip
        yield from min(several, key=len, default=[])

    def never(self, task: TaskState) -> Iterator[str]:
        """Describe what would keep the task out of each of its partitions even if nothing else ran,
        with Slurm's names for limits. Yield nothing if a partition admits the task.
        """
        reasons: dict[str, None] = {}
        for part, gpu, nodes in self._rules.ways(self._view, task):
            own = list(self._never_in(task, part, gpu, nodes))
            if not own:
                return
            reasons |= dict.fromkeys(own)
        yield from reasons

    def _never_in(self, task: TaskState, part: NodePartition, gpu: str, nodes: int) -> Iterator[str]:
        rules, view = self._rules, self._view
        holders = rules.holders(task.job, part, gpu)
        for holder, what, limit, amount in rules.holdings.exceeded(holders, rules.least(task, part)):
            reason = _REASONS[_plain(holder)[0]].format(RESOURCES[what])
            yield Excess.of(f"{reason} ({limit:,g}) < ", amount, f": {_named(holder)}")
        yield from rules.barred(task, part)
        requested_s = min(view.requested_s(task) or (inf,))
        if part.max_time_s is not None and part.max_time_s < requested_s < inf:
            reason = f"PartitionTimeLimit ({part.max_time_s:,g} s) < "
            yield Excess.of(reason, requested_s, f" s: the partition {part.name}")
        for qos in dict.fromkeys((rules.quality(task.job).name, part.qos)):
            most_s = rules.qos[qos].max_time_s if qos in rules.qos else None
            if most_s is not None and most_s < requested_s < inf:
                yield Excess.of(f"QOSMaxWallDurationPerJob ({most_s:,g} s) < ", requested_s, f" s: the QOS {qos}")
        if not rules.holds(view, task, nodes):
            yield f"the partition {part.name}, even when idle, is too small for it{f' on {gpu}' if gpu else ''}"

    def nodes(self, task: TaskState) -> int:
        """Return the nodes in the task's partition."""
        return self._rules.nodes[self._rules.partition(task.job).name]

    def alone(self, task: TaskState) -> bool:
        """Return True if the task's job or partition takes whole nodes."""
        return self._rules.alone(task.job, self._rules.partition(task.job))

    def distinct(self, task: TaskState) -> bool:
        """Return True if a gang of the task's job takes one node per instance."""
        return self._rules.spread(task.job)


def _plain(holder: Holder) -> Holder:
    """Return the holder of a limit, without the GPU type to which the limit applies."""
    return holder[2:] if holder[0] == "gpus" else holder


def _reason(holder: Holder, what: str) -> str:
    """Return Slurm's name for a holder's limit on a resource, or on the minutes of a resource."""
    resource, _, minutes = what.partition(" ")
    return _REASONS[_plain(holder)[0]].format(RESOURCES.get(resource, resource)) + minutes.title()


def _amount(start: Amounts, what: str) -> float:
    """Return how much of a resource, or how many minutes of the resource, a start takes."""
    resource, _, minutes = what.partition(" ")
    amount: float = getattr(start, resource)
    return amount * start.limit_s / 60 if minutes else amount


def _named(holder: Holder) -> str:
    if holder[0] == "gpus":
        return f"{_named(holder[2:])} on {holder[1]}"
    return _WORDS[holder[0]].format(*holder[1:])


def rules_of_site(view: ClusterView) -> SlurmWaits | None:
    """Return the rules for partitions, QOS and accounts at a site, or None if the site does not
    have Slurm queues.
    """
    queues = view.queues
    if queues is None or queues.has_quota or not (queues.partitions or queues.qos or queues.tree):
        return None
    return SlurmWaits(view, SlurmRules(view, kill="never", distinct=slurm_settings(queues).distinct))

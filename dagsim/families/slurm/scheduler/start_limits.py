"""The number of starts of a pending job that the limits at a Slurm site allow now, and the nodes
that they allow."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from dagsim.families.slurm.scheduler.holdings import Holder, of_nodes
from dagsim.families.slurm.scheduler.pending_jobs import PendingJob
from dagsim.families.slurm.scheduler.slurm_rules import SlurmRules
from dagsim.model.arithmetic import bits
from dagsim.systems.cluster.api import ClusterState, TaskState


def licensed(machines: ClusterState, task: TaskState) -> bool:
    """Return True if there are enough free licences for a start."""
    site, terms = machines.site, task.demand.terms
    if site is None or terms is None:
        return True
    return all(site.licences[name] >= count for name, count in terms.licences)


class StartLimits:
    """The limits at a site, as they apply to the next start of a pending job."""

    def __init__(self, rules: SlurmRules) -> None:
        self._rules, self._holdings = rules, rules.holdings

    def room(self, job: PendingJob) -> tuple[float, Holder | None]:
        """Return the number of starts that the limits allow, and the tightest limit. A limit on a
        GPU type counts only if the task cannot run on any other type.
        """
        return self._holdings.room(job.holders, job.amounts) if job.holders else (inf, None)

    def allowed(self, job: PendingJob, types: tuple[int, ...]) -> tuple[int, ...]:
        """Return the types on which GPU limits still allow a start."""
        if not job.task.demand.demand.gpus or not self._holdings.limits_types:
            return types
        claims = {type_: self._rules.claim(job.task, job.part, self._rules.gpu_names[type_]) for type_ in types}
        return tuple([type_ for type_, claim in claims.items() if self._holdings.room(*claim)[0]])

    def may_hold(
        self, job: PendingJob, machines: ClusterState, nodes: Collection[int], *, planned: bool = False
    ) -> bool:
        """Return True if a job's limits allow it to hold these nodes. A job that does not share
        nodes holds them in full. Slurm tests this after it has chosen the nodes
        (acct_policy_job_runnable_post_select in acct_policy.c), even if the nodes are only
        ``planned`` or if too few of them are free.
        """
        if self._is_full_of_nodes(job, nodes, planned=planned):
            return False
        if job.part.exclusive or not job.alone:
            return True
        rules, held = self._rules, [machines.list[node] for node in nodes]
        amounts = of_nodes(rules.amounts(job.task), [machine.node for machine in held])
        gpu = rules.gpu_names[held[0].type] if amounts.gpus else ""
        return self._holdings.room(rules.holders(job.task.job, job.part, gpu), amounts)[0] > 0

    def is_over_nodes(self, job: PendingJob) -> bool:
        """Return True if a job that does not fit now requests more nodes than its limits allow.
        Such a job waits for the limits, not for nodes (``select_nodes``).
        """
        return self._is_full_of_nodes(job, range(self._rules.fewest_nodes(job.task)), planned=True)

    def _is_full_of_nodes(self, job: PendingJob, nodes: Collection[int], *, planned: bool) -> bool:
        """Return True if a limit on the number of different nodes forbids a start on ``nodes``."""
        if not self._holdings.most_nodes:
            return False
        terms, holders = job.task.demand.terms, self._rules.holders(job.task.job, job.part)
        named = [] if terms is None else list(bits(terms.named))
        return self._holdings.full_of_nodes(holders, nodes, named if planned else None) is not None

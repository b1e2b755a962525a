"""The usage of users and accounts before a simulation begins."""

from __future__ import annotations

from math import e, log2
from typing import Any

import numpy as np

from dagsim.families.slurm.scheduler.holdings import PastUse, UsageBefore
from dagsim.families.slurm.scheduler.slurm_priority import Asked, Capacity, PriorityBook
from dagsim.families.slurm.scheduler.slurm_settings import SlurmSettings
from dagsim.model import Cluster, QueueTree
from dagsim.model.arithmetic import ordered_sum

_MOST_DOUBLINGS = 500.0


class Usage:
    """The usage in a log (``forecast.job_log.JobLog``) at a site: what each account had used before
    a time. It is what the site billed or, if the log does not state that, what its partitions and
    QOS would bill.
    """

    def __init__(self, log: Any, cluster: Cluster, queues: QueueTree, settings: SlurmSettings) -> None:
        sums = [ordered_sum(getattr(node, name) for node in cluster.nodes) for name in ("cpus", "memory_gb", "gpus")]
        book = PriorityBook(settings.priorities(), queues, Capacity(len(cluster.nodes), *sums))
        amounts = [log.jobs.asked(name) * log.jobs.instances for name in ("cpus", "memory_gb", "gpus")]
        qos = [""] * len(log) if log.jobs.qos is None else log.jobs.qos.tolist()
        rows = zip(log.account, log.user, log.partition, qos, *[column.tolist() for column in amounts], strict=True)
        asked = [
            Asked(user, part, quality, 0.0, None, nodes=1.0, cpus=cpus, memory_gb=memory_gb, gpus=gpus, limit_s=0.0)
            for account, user, part, quality, cpus, memory_gb, gpus in rows
        ]
        charged = log.billing * np.array([book.quality(terms.qos).usage_factor for terms in asked])
        self._rate = np.where(np.isnan(charged), [book.rate(terms) for terms in asked], charged)
        self._names, self._of = np.unique(
            [f"{account or 'default'}/{user}" for account, user in zip(log.account, log.user, strict=True)],
            return_inverse=True,
        )
        self._amounts = dict(zip(("cpus", "memory_gb", "gpus"), amounts, strict=True))
        owners = zip(log.account, log.user, qos, log.partition, strict=True)
        self._groups, self._group = np.unique(["\t".join(owner) for owner in owners], return_inverse=True)
        self._half_life_s = settings.half_life_s
        self._log = log

    def before(self, state: Any, zero_s: float) -> UsageBefore:
        """Return the usage of the jobs that had ended when a state was recorded."""
        return UsageBefore(self.at(state, zero_s), self.by_resource(state, zero_s))

    def at(self, state: Any, zero_s: float) -> dict[str, float]:
        """Return the billed seconds of the jobs that had ended when a state was recorded, by
        ``account/user``. Each amount is decayed to the equivalent usage at ``zero_s``. Running jobs
        are not included, because the simulation charges them from their starts."""
        ended, used_s, _ = self._ended(state, zero_s)
        total = np.bincount(self._of[ended], self._rate[ended] * used_s, len(self._names))
        return {str(name): amount for name, amount in zip(self._names, total.tolist(), strict=True) if amount > 0}

    def by_resource(self, state: Any, zero_s: float) -> list[PastUse]:
        """Return the same usage as seconds of each resource, by account, user, QOS and partition."""
        ended, used_s, full_s = self._ended(state, zero_s)
        sums = {
            (name, of): np.bincount(self._group[ended], column[ended] * seconds, len(self._groups)).tolist()
            for name, column in self._amounts.items()
            for of, seconds in (("full", full_s), ("decayed", used_s))
        }
        uses = []
        for at, owner in enumerate(self._groups):
            account, user, qos, partition = str(owner).split("\t")
            full, decayed = ({name: sums[name, of][at] for name in self._amounts} for of in ("full", "decayed"))
            if any(full.values()):
                uses.append(PastUse(account, user, qos, partition, full, decayed))
        return uses

    def _ended(self, state: Any, zero_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the indices of the jobs that had ended, and for how many seconds each of them ran,
        both decayed and in full.
        """
        log, t = self._log, state.t
        ended = np.flatnonzero((log.start_s <= t) & (log.end_s <= t))
        begin_s, end_s, life_s = log.start_s[ended], log.end_s[ended], self._half_life_s
        if life_s:
            per_s = log2(e) * life_s
            grown = np.exp2(np.minimum((end_s - zero_s) / life_s, _MOST_DOUBLINGS))
            used_s = per_s * (grown - np.exp2(np.minimum((begin_s - zero_s) / life_s, _MOST_DOUBLINGS)))
        else:
            used_s = end_s - begin_s
        return ended, used_s, end_s - begin_s

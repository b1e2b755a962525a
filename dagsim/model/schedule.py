"""A schedule: the cluster, the jobs that arrived, and the log of what happened. Every metric and plot is made of these
three."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dagsim.model import Cluster, JobFacts
from dagsim.model.log import ScheduleLog

__all__ = ["Schedule"]


@dataclass(slots=True)
class Schedule:
    """The result of a simulation, live or read back from a run folder. ``jobs[n]`` belongs to ``Record.job ==
    n``."""

    cluster: Cluster
    jobs: Sequence[JobFacts] = field(default_factory=list)
    """A list, or ``FactColumns`` where they are many."""
    log: ScheduleLog = field(default_factory=ScheduleLog)
    seed: int = 0
    decision_s: float = 0.0
    """Wall-clock seconds the policy took to decide, summed (0 where it was not measured)."""
    decisions: int = 0
    """Decisions carried out."""
    ended_s: float = 0.0
    """When the simulation stopped: its last event, or the time it was run until."""

    def arrived(self, job: JobFacts) -> None:
        """Take in the next job."""
        if not isinstance(self.jobs, list):
            self.jobs = list(self.jobs)
        self.jobs.append(job)

    def copy(self) -> Schedule:
        """An equal schedule that grows on its own."""
        return replace(self, jobs=list(self.jobs), log=self.log.copy())

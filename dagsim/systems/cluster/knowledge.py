"""The rule for what policies know about run times, and the line of text that reports it.

``known`` implements the rule for all engines: policies know users' time limits, and they know true
run times only if no job states a limit. ``Knowledge`` counts the jobs and formats the line. It is
part of the facts about a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dagsim.model import Job
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.seam import CountedJobs
from dagsim.workload.arrays import JobArrays


def states_limits(jobs: Iterable[Job] | JobArrays) -> bool:
    """Return True if any of the jobs states a time limit. If jobs are read one by one, only the first
    one is checked.
    """
    if isinstance(jobs, JobArrays):
        return jobs.estimate is not None and not bool(np.isnan(jobs.estimate).all())
    if isinstance(jobs, CountedJobs):
        return states_limits(jobs.jobs)
    if isinstance(jobs, list | tuple):
        return any(True for job in jobs for task in job.graph.tasks if task.estimate is not None)
    return bool(getattr(jobs, "states_limits", True))


def has_limit(job: Job) -> bool:
    """Return True if a task of the job has a time limit."""
    return any(task.estimate is not None for task in job.graph.tasks)


def known(estimates: Estimates, jobs: Iterable[Job] | JobArrays) -> Estimates:
    """Return what policies know about these jobs. If policies are meant to know time limits but no
    job states one, they know the true run times.
    """
    if estimates.kind != "predicted" or states_limits(jobs):
        return estimates
    return replace(estimates, kind="exact")


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The knowledge that policies have about the run times of some jobs. Every result contains a line with this
    information.
    """

    kind: str
    """The kind of the requested estimates, ``forecast`` for forecasts of starts, or ``queue`` for
    forecasts from a queue alone, without finished jobs.
    """
    sigma: float
    jobs: int
    limited: int
    """Number of jobs that state a time limit."""
    of_log: bool
    """True if the jobs come from a log."""

    @property
    def is_hindsight(self) -> bool:
        """True if policies know true run times although the scheduler that produced the log had
        only the time limits.
        """
        return self.of_log and self.limited > 0 and self.kind in ("exact", "noisy")

    def __str__(self) -> str:
        source = "log" if self.of_log else "workload"
        noise = f" with log-normal noise (sigma {self.sigma:g})" if self.kind == "noisy" else ""
        if self.kind == "hidden":
            return "policies know nothing about run times (all tasks seem equally long)"
        if self.is_hindsight:
            share = _percent(self.limited, self.jobs)
            return (
                f"hindsight: policies know the true run times{noise} instead of the time limits that {share} of the "
                "jobs in the log have (--set estimates.kind=predicted)"
            )
        if self.kind in ("exact", "noisy"):
            return f"policies know the true run times{noise}"
        if self.kind == "queue" and not self.limited:
            return "policies know neither time limits nor run times; they assume a week for each job"
        ended = ", and the run times of finished jobs" if self.kind == "forecast" else ""
        if not self.limited and not ended:
            return f"policies know the true run times (the {source} has no time limits)"
        without = "a week" if self.kind in ("forecast", "queue") else "the limit of their partition, or a year"
        rest = "" if self.limited == self.jobs else f"; for the others, they assume {without}"
        share = _percent(self.limited, self.jobs)
        return f"policies know the time limits in the {source} ({share} of the jobs{rest}){ended}"

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and the line as plain data."""
        return {"text": str(self), **asdict(self)}

    @classmethod
    def joined(cls, several: Iterable[Mapping[str, Any]]) -> Knowledge | None:
        """Combine the knowledge in several runs, each given as the result of ``to_dict``. Return
        None if there are no runs.
        """
        facts = [{name: value for name, value in of.items() if name != "text"} for of in several]
        if not facts:
            return None
        counts = {name: whole_sum(of[name] for of in facts) for name in ("jobs", "limited")}
        return cls(**facts[0] | counts)


def _percent(part: int, whole: int) -> str:
    """Format a share in percent. It is rounded so that 100% appears only if all jobs count, and 0%
    only if none does.
    """
    share = 100 * part / max(whole, 1)
    if part in (0, whole):
        return "100%" if part else "0%"
    return f"{min(max(round(share, 0 if 1 <= share < 99 else 1), 0.1), 99.9):g}%"

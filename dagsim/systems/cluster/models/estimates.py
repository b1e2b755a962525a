"""Estimates, which determine what policies know about the durations of tasks: users' time limits, the
true time, a noisy guess, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, TypeAlias

from dagsim.errors import ModelError, require
from dagsim.model import Task, TimeLimits
from dagsim.model.streams import stream
from dagsim.systems.cluster.state import JobState, TaskState

SecondsByType: TypeAlias = Callable[[Task], tuple[float, ...]]
"""Seconds that one instance of a task takes on each type."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """The knowledge that policies have about the durations of tasks.

    - ``predicted``: the limits stated by users in ``Task.estimate`` (the time limits of a batch
      system), converted by the runtime model, so that tasks with equal limits tie. A job without a
      limit has the default limit of its partition, or else the partition's longest limit, or else a
      limit of a year. No limit exceeds the partition's longest limit. If no job at all states a
      limit, policies see the true durations.
    - ``exact``: the true durations. For a log with time limits, this is hindsight.
    - ``noisy``: the true duration times a log-normal factor for each task, which is the same on
      every type. The median of this factor is 1, and the standard deviation of its logarithm is
      ``sigma``.
    - ``hidden``: 1 s everywhere, so that every order by duration falls back on first come, first
      served.

    Raises:
        ModelError: The kind is unknown, sigma is negative or, with ``predicted``, an arriving job
            has an invalid estimate.
    """

    kind: Literal["predicted", "exact", "noisy", "hidden"] = "predicted"
    """Which durations policies receive: the users' time limits (``predicted``), the true durations
    (``exact``), the true durations with random errors (``noisy``), or none (``hidden``).
    """
    sigma: float = 0.5
    """Standard deviation of the logarithm of the errors, for ``noisy``."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.kind not in ("predicted", "exact", "noisy", "hidden"):
            raise ModelError(f"estimates: kind must be predicted, exact, noisy or hidden, got {self.kind!r}")
        require(self.sigma >= 0, "estimates: sigma must be 0 or more", self.sigma, ModelError)

    def apply(self, active: JobState, seed: int, limits_s: Callable[[TaskState], tuple[float, ...]]) -> None:
        """Replace the true durations of the job's tasks by the durations that policies may know.
        The result depends only on the job, its number and the seed. ``limits_s`` returns the time
        limit of a task on each type.
        """
        if self.kind == "exact":
            return
        factors = self._factors(active, seed)
        for task, factor in zip(active.tasks, factors, strict=True):
            if self.kind == "hidden":
                task.seconds = tuple([s if s == inf else 1.0 for s in task.true_seconds])
            elif self.kind == "predicted":
                task.seconds = limits_s(task)
            else:
                task.seconds = tuple([s * factor for s in task.true_seconds])
            task.best_s = task.rank_s = min(task.seconds)
        active.has_limits = self.kind == "predicted"
        active.changed()
        active.rank()

    def _factors(self, active: JobState, seed: int) -> list[float]:
        """Return the noisy estimate of each task as a multiple of the truth."""
        if self.kind != "noisy":
            return [1.0] * len(active.tasks)
        rng = stream(seed, "estimates", active.number)
        return [float(factor) for factor in rng.lognormal(0.0, self.sigma, len(active.tasks))]


def limit_seconds(
    task: Task, job: str, seconds: SecondsByType, truth: tuple[float, ...], limits: TimeLimits
) -> tuple[float, ...]:
    """Return the time limit of a task on each type, as known to the site's scheduler. This is the
    limit stated by the user or, without one, the limit of the site. As in ``truth``, it is ``inf``
    where the task cannot run.

    Raises:
        ModelError: The user stated an invalid amount of work.
    """
    if task.estimate is None:
        return tuple([inf if true_s == inf else limits.unstated_s for true_s in truth])
    stated = seconds(as_claimed(task, job))
    if limits.most_s == inf:
        return stated
    return tuple([stated_s if stated_s == inf else min(stated_s, limits.most_s) for stated_s in stated])


def as_claimed(task: Task, job: str) -> Task:
    """Return the task with the amount of work that its user stated as an estimate.

    Raises:
        ModelError: The claimed amount of work is missing, negative, infinite or not a number.
    """
    if task.estimate is None or not 0 <= task.estimate < inf:
        raise ModelError(
            f"estimates 'predicted': the estimate of task {job}/{task.name} is {task.estimate!r}, but must be a "
            "finite number of 0 or more"
        )
    return replace(task, work=task.estimate)

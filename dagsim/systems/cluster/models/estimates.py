"""Estimates of durations for policies: the truth, a noisy guess, the user's claim, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, TypeAlias

from dagsim.errors import ModelError
from dagsim.model import Task
from dagsim.model.streams import stream
from dagsim.systems.cluster.state import JobState

__all__ = ["Estimates", "Seconds", "as_claimed"]

Seconds: TypeAlias = Callable[[Task], tuple[float, ...]]
"""Seconds that one instance of a task takes on each type."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """The rule that derives the durations a policy sees from the true ones.

    - ``exact``: the true durations.
    - ``noisy``: the true duration times a log-normal factor per task with median 1 and ``sigma`` of its
      logarithm, the same on every type.
    - ``predicted``: ``Task.estimate`` instead of ``Task.work`` (a batch system's requested time), with exactly
      the seconds that the runtime model gives for it, so that equal claims tie.
    - ``hidden``: 1 s everywhere, so that every order by duration falls back on first come, first served.

    Raises:
        ModelError: An unknown kind or a negative sigma; with ``predicted``, at arrival, a task without an estimate.
    """

    kind: Literal["exact", "noisy", "predicted", "hidden"] = "exact"
    sigma: float = 0.5

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.kind not in ("exact", "noisy", "predicted", "hidden"):
            raise ModelError(f"estimates: kind must be exact, noisy, predicted or hidden, got {self.kind!r}")
        if not self.sigma >= 0:
            raise ModelError(f"estimates: sigma must be 0 or more, got {self.sigma!r}")

    def apply(self, active: JobState, seed: int, seconds: Seconds) -> None:
        """Replace the true durations on the job's tasks by the ones that policies may know. The
        result depends only on job, number and seed; ``seconds`` returns the seconds of a task on
        each type.
        """
        if self.kind == "exact":
            return
        factors = self._factors(active, seed)
        for task, factor in zip(active.tasks, factors, strict=True):
            if self.kind == "hidden":
                task.seconds = tuple([s if s == inf else 1.0 for s in task._truth])
            elif self.kind == "predicted":
                task.seconds = seconds(as_claimed(task.task, active.job.id))
            else:
                task.seconds = tuple([s * factor for s in task._truth])
            task.best_s = task.rank_s = min(task.seconds)
        active.rank()

    def _factors(self, active: JobState, seed: int) -> list[float]:
        """The noisy estimate of each task as a multiple of the truth."""
        if self.kind != "noisy":
            return [1.0] * len(active.tasks)
        rng = stream(seed, "estimates", active.number)
        return [float(factor) for factor in rng.lognormal(0.0, self.sigma, len(active.tasks))]


def as_claimed(task: Task, job: str) -> Task:
    """The task with the work that its user claims.

    Raises:
        ModelError: There is no claim, or it is not an amount of work.
    """
    if task.estimate is None:
        raise ModelError(f"estimates 'predicted' need Task.estimate, and task {job}/{task.name} has none")
    if not 0 <= task.estimate < inf:
        raise ModelError(f"estimates 'predicted': the estimate of task {job}/{task.name} is {task.estimate!r}")
    return replace(task, work=task.estimate)

"""Jobs on their way into a kernel, while somebody hears how many have come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["Heard"]

JobT = TypeVar("JobT")

_JOBS_PER_STEP = 500


class Heard(Generic[JobT]):
    """The ``jobs``; ``heard`` is called with the number that came, at the first and then at every 500th."""

    def __init__(self, jobs: Iterable[JobT], heard: Callable[[int], None]) -> None:
        self.jobs = jobs
        self._heard = heard

    def __iter__(self) -> Iterator[JobT]:
        for number, job in enumerate(self.jobs):
            if number % _JOBS_PER_STEP == 0:
                self._heard(number)
            yield job

"""The view: what a policy may know when a job has arrived."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.job import RampJob
from dagsim.systems.ramp.planner import Outlook

if TYPE_CHECKING:
    from dagsim.systems.ramp.fabric import Fabric
    from dagsim.systems.ramp.kernel import RampKernel
    from dagsim.systems.ramp.rules import Rules

__all__ = ["RampPolicy", "RampView"]


class RampView:
    """The job that waits for its decision, and the fabric as it is now. It is the kernel's own: do not keep it."""

    __slots__ = ("_kernel",)

    def __init__(self, kernel: RampKernel) -> None:
        self._kernel = kernel

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._kernel.now

    @property
    def number(self) -> int:
        """The number of the job that waits, which a ``Partition`` names."""
        return self._kernel.queued_number

    @property
    def job(self) -> RampJob:
        """The job that waits."""
        return self._kernel.queued

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degrees that may be decided, in ascending order; 0, to turn the job away, is always one."""
        return self._kernel.degrees()

    @property
    def free(self) -> int:
        """The number of servers without a job."""
        return self._kernel.free

    @property
    def occupied(self) -> int:
        """The servers with a job, as a bit mask."""
        return self._kernel.occupied

    @property
    def running(self) -> int:
        """The number of jobs that run."""
        return len(self._kernel.running)

    @property
    def fabric(self) -> Fabric:
        """The topology and its GPUs."""
        return self._kernel.planner.fabric

    @property
    def rules(self) -> Rules:
        """The rules of the model."""
        return self._kernel.planner.rules

    @property
    def remaining_s(self) -> tuple[float, ...]:
        """Per server how long its job still runs; 0 where it has none."""
        return self._kernel.remaining_s()

    def outlook(self, degree: int, placer: str | None = None) -> Outlook | None:
        """The place where the job would run at this degree, and for how long; None where it cannot be placed now."""
        return self._kernel.outlook(degree, placer)

    def stream(self, name: str) -> np.random.Generator:
        """The random stream of that name in this simulation."""
        return self._kernel.stream(name)


class RampPolicy(Protocol):
    """A policy."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """One decision for the job that waits; none turns it away."""

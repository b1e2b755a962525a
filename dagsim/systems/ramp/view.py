"""The view: what a policy may know when a job has arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.partition import PartitionedGraph
from dagsim.systems.ramp.planner import Outlook
from dagsim.systems.ramp.workload import RampJob

if TYPE_CHECKING:
    from dagsim.systems.ramp.decisions import Rules
    from dagsim.systems.ramp.fabric import Fabric
    from dagsim.systems.ramp.kernel import RampKernel

__all__ = ["RampPolicy", "RampView"]


class RampView:
    """The waiting job and the fabric as it is now. The view belongs to the kernel: do not keep it."""

    __slots__ = ("_kernel",)

    def __init__(self, kernel: RampKernel) -> None:
        self._kernel = kernel

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._kernel.now

    @property
    def number(self) -> int:
        """Number of the waiting job, which a ``Partition`` names."""
        return self._kernel.queued_number

    @property
    def job(self) -> RampJob:
        """The waiting job."""
        return self._kernel.queued

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees that may be chosen, in ascending order; 0, which turns the job away, is always
        among them.
        """
        return self._kernel.degrees()

    @property
    def free(self) -> int:
        """Number of servers without a job."""
        return self._kernel.free

    @property
    def occupied(self) -> int:
        """The servers with a job, as a bit mask."""
        return self._kernel.occupied

    @property
    def running(self) -> int:
        """Number of running jobs."""
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
        """Remaining seconds of the job on each server; 0 without a job."""
        return self._kernel.remaining_s()

    @property
    def ends(self) -> tuple[tuple[float, int], ...]:
        """Ends of running jobs (s since the start), and their servers as bit masks; unordered."""
        return tuple((run.end_s, run.servers) for run in self._kernel.running)

    @property
    def gap_s(self) -> float:
        """Mean time between the arrivals so far; 0 at the first."""
        number = self._kernel.queued_number
        return (self._kernel.queued.arrival_s - self._kernel.jobs[0].arrival_s) / number if number else 0.0

    @property
    def examples(self) -> tuple[RampJob, ...]:
        """Examples of the kind of jobs to come (not those jobs themselves), if known."""
        return self._kernel.examples

    def outlook(self, degree: int, placer: str | None = None, servers: int | None = None) -> Outlook | None:
        """Servers and time of the job at this degree; None if it cannot be placed now.

        With ``servers`` (a bit mask) it stays on these.
        """
        return self._kernel.outlook(degree, placer, servers)

    def jct_on(self, degree: int, servers: Iterable[int]) -> Iterator[float | None]:
        """Seconds that the job would take within each set of free servers (bit masks); None if it
        cannot be placed.
        """
        return self._kernel.jct_on(degree, servers)

    def parts(self, degree: int) -> PartitionedGraph:
        """Return the graph of the job in pieces."""
        return self._kernel.planner.parts(self.job.graph, degree)

    def stream(self, name: str) -> np.random.Generator:
        """Named random stream of this simulation."""
        return self._kernel.stream(name)


class RampPolicy(Protocol):
    """A policy: decides on each waiting job."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return one decision for the waiting job; an empty answer turns it away."""

"""The six rewards of ddls as costs, which are charged for each decision or for the time until the
next decision.

A cost is the negative reward. ddls averages over the steps of its cluster. dagsim averages over the
intervals between events (ends and arrivals of jobs), and all intervals have the same weight,
however long they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import log10
from typing import Literal

from dagsim.errors import ConfigError, require
from dagsim.families.ramp.kernel import JobOutcome, RampKernel
from dagsim.families.ramp.workload import RampJob
from dagsim.model import Kind
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.log import Record
from dagsim.registry import Entry, Registry
from dagsim.systems.seam import RewardTerm

Info = Literal["compute", "cluster", "demand_total"]


class _PerDecision(ABC):
    """A cost that is charged once for each decision, after the decision has been carried out."""

    def __init__(self, kernel: RampKernel) -> None:
        self._kernel = kernel
        self._seen = 0

    def cost(self, now: float) -> float:
        """Return the cost of the decisions since the last call."""
        return -ordered_sum(self.reward(outcome) for outcome in self._decided())

    @abstractmethod
    def reward(self, outcome: JobOutcome) -> float:
        """Return the reward of one decision."""

    def _decided(self) -> Iterator[JobOutcome]:
        outcomes = self._kernel.outcomes
        while self._seen < len(outcomes) and outcomes[self._seen].degrees:
            yield outcomes[self._seen]
            self._seen += 1


class JobAcceptance(_PerDecision):
    """The reward of PAC-ML: ``success`` for an accepted job and ``fail`` for a blocked one."""

    def __init__(self, kernel: RampKernel, success: float = 1.0, fail: float = -1.0) -> None:
        super().__init__(kernel)
        self.success, self.fail = success, fail

    def reward(self, outcome: JobOutcome) -> float:
        return self.success if outcome.started else self.fail


class LookaheadJct(_PerDecision):
    """The completion time of an accepted job according to the look-ahead; for a blocked job, ``fail``
    times ``fail_factor``.

    ``fail`` is a number of seconds, or ``sequential`` for the job's sequential time. The options
    are then applied in this order: division by the sequential time, inversion, sign, and sign x
    log10(1 + ...).

    Raises:
        ConfigError: ``fail`` is neither ``sequential`` nor a number.
    """

    def __init__(
        self,
        kernel: RampKernel,
        fail: str | float = "sequential",
        fail_factor: float = 1.0,
        normalised: bool = False,
        inverse: bool = False,
        sign: int = -1,
        log: bool = False,
    ) -> None:
        super().__init__(kernel)
        if isinstance(fail, str) and fail != "sequential":
            raise ConfigError(
                f"lookahead_job_completion_time: fail must be sequential or a number of seconds, got {fail!r}"
            )
        self.fail, self.fail_factor, self.normalised = fail, fail_factor, normalised
        self._shape = _Shape(inverse, sign, log)

    def reward(self, outcome: JobOutcome) -> float:
        sequential_s = outcome.job.sequential_s
        if outcome.started and outcome.outlook is not None:
            jct_s = outcome.outlook.jct_s
        else:
            jct_s = self.fail_factor * (sequential_s if isinstance(self.fail, str) else self.fail)
        return self._shape(jct_s / sequential_s if self.normalised and sequential_s else jct_s)


class MultiObjective(_PerDecision):
    """The completion time of an accepted job divided by its sequential time.

    For a blocked job, the value is ``weight`` x (1 + s), where s is its sequential time, min-max
    scaled over the example jobs. Inversion, sign and logarithm are then applied.

    Raises:
        ConfigError: The kernel has no examples of jobs.
    """

    def __init__(
        self, kernel: RampKernel, weight: float = 1.0, inverse: bool = False, sign: int = -1, log: bool = False
    ) -> None:
        super().__init__(kernel)
        if not kernel.examples:
            raise ConfigError("multi_objective_jct_blocking needs a kernel with example jobs")
        times = [job.sequential_s for job in kernel.examples]
        self.weight, self._least, self._most = weight, min(times), max(times)
        self._shape = _Shape(inverse, sign, log)

    def reward(self, outcome: JobOutcome) -> float:
        if outcome.started and outcome.outlook is not None:
            sequential_s = outcome.job.sequential_s
            return self._shape(outcome.outlook.jct_s / sequential_s if sequential_s else 1.0)
        return self._shape(self.weight * (self._place(outcome.job) + 1))

    def _place(self, job: RampJob) -> float:
        return (job.sequential_s - self._least) / (self._most - self._least) if self._most > self._least else 1.0


class WorkRate:
    """Bytes per second processed by running jobs, averaged over the intervals since the last decision.

    ``info`` selects the bytes: the memory of the pieces (``compute``), memory and traffic
    (``cluster``), or the memory and dependencies of the unsplit graphs (``demand_total``). With
    ``normalised`` the rate is divided by the best rate that all servers could reach on any example
    (and, except for ``compute``, by the capacity of their channels).

    Raises:
        ConfigError: ``normalised`` is set, but the kernel has no examples of jobs.
    """

    def __init__(
        self, kernel: RampKernel, info: Info, normalised: bool = False, sign: int = 1, log: bool = False
    ) -> None:
        self._kernel = kernel
        self._info = info
        self._shape = _Shape(inverse=False, sign=sign, log=log)
        self._scale = _best_rate(kernel, info) if normalised else 1.0
        self._rate = self._since_s = 0.0
        self._rates: list[float] = []
        self._by_job: dict[int, float] = {}

    def take(self, row: Record) -> None:
        """Process a row of the log if it reports the start or the end of a job."""
        if row.kind == Kind.ADMITTED:
            self._until(row.time_s)
            self._by_job[row.job] = rate = self._rate_of(row.job)
            self._rate += rate
        elif row.kind == Kind.COMPLETED:
            self._until(row.time_s)
            self._rate -= self._by_job.pop(row.job)

    def cost(self, now: float) -> float:
        """Return minus the mean rate since the last call, or 0 if no time has passed."""
        self._until(now)
        rates, self._rates = self._rates, []
        return -self._shape(ordered_sum(rates) / len(rates) / self._scale) if rates else 0.0

    def _until(self, time_s: float) -> None:
        if time_s > self._since_s:
            self._rates.append(self._rate)
            self._since_s = time_s

    def _rate_of(self, number: int) -> float:
        outcome = self._kernel.outcomes[number]
        assert outcome.outlook is not None
        parts, graph = outcome.outlook.parts, outcome.job.graph
        match self._info:
            case "compute":
                amount = parts.total_memory_bytes
            case "cluster":
                amount = parts.total_memory_bytes + parts.total_dep_bytes
            case _:
                amount = graph.memory_bytes + graph.dep_bytes
        return amount / outcome.outlook.jct_s if outcome.outlook.jct_s else 0.0


class _Shape:
    """Applies inversion, sign and logarithm to a value, in that order."""

    def __init__(self, inverse: bool, sign: int, log: bool) -> None:
        require(sign in (-1, 1), "reward: sign must be 1 or -1", sign)
        self.inverse, self.sign, self.log = inverse, sign, log

    def __call__(self, figure: float) -> float:
        if self.inverse:
            figure = 1 / figure if figure else 0.0
        return self.sign * (log10(1 + abs(figure)) if self.log else figure)


def _best_rate(kernel: RampKernel, info: Info) -> float:
    """Return how many bytes per second would be processed if all servers ran the operation with the
    most memory per second and every channel were busy.
    """
    if not kernel.examples:
        raise ConfigError(f"mean_{info}_throughput: normalised needs a kernel with example jobs")
    graphs = {job.graph.digest: job.graph for job in kernel.examples}.values()
    rates = [
        op.memory_bytes / cost
        for graph in graphs
        for op, cost in zip(graph.ops * 2, graph.costs(), strict=True)
        if cost
    ]
    fabric = kernel.planner.fabric
    best = max(rates, default=1.0) * fabric.servers
    per_s = getattr(fabric.topology, "channel_bytes_per_s", 0.0)
    return best + (0.0 if info == "compute" else fabric.servers * per_s)


def compute_throughput(kernel: RampKernel, normalised: bool = False, sign: int = 1, log: bool = False) -> WorkRate:
    """Build a reward based on the memory of the pieces that are processed."""
    return WorkRate(kernel, "compute", normalised, sign, log)


def cluster_throughput(kernel: RampKernel, normalised: bool = False, sign: int = 1, log: bool = False) -> WorkRate:
    """Build a reward based on the memory of the pieces that are processed, and on the traffic."""
    return WorkRate(kernel, "cluster", normalised, sign, log)


def demand_throughput(kernel: RampKernel, normalised: bool = False, sign: int = 1, log: bool = False) -> WorkRate:
    """Build a reward based on the memory and the dependencies of the unsplit graphs."""
    return WorkRate(kernel, "demand_total", normalised, sign, log)


RAMP_TERMS: Registry[RewardTerm] = Registry(
    "reward term",
    [
        Entry("job_acceptance", ".rewards:JobAcceptance", "1 for an accepted job, -1 for a blocked one"),
        Entry(
            "lookahead_job_completion_time",
            ".rewards:LookaheadJct",
            "minus the completion time according to the look-ahead",
        ),
        Entry(
            "multi_objective_jct_blocking",
            ".rewards:MultiObjective",
            "negative relative completion time, or a penalty for a blocked job",
        ),
        Entry(
            "mean_compute_throughput",
            ".rewards:compute_throughput",
            "memory of the processed pieces, in bytes per second",
        ),
        Entry(
            "mean_cluster_throughput",
            ".rewards:cluster_throughput",
            "memory of the pieces processed, and traffic, bytes/s",
        ),
        Entry(
            "mean_demand_total_throughput",
            ".rewards:demand_throughput",
            "memory and traffic of the unsplit graphs, bytes/s",
        ),
    ],
    group="dagsim.ramp_rewards",
    listing="dagsim list rewards",
    home="dagsim.families.ramp",
    method="cost",
)
"""Reward terms for RAMP, by name; each is built with ``kernel``."""

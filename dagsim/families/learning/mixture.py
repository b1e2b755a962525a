"""Random clusters and workloads, which are different for every seed. They are for agents that have
to work on any cluster."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from dagsim.errors import ConfigError, WorkloadError, require
from dagsim.model import Cluster, GpuType, Node, gpu_type
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.model.streams import stream
from dagsim.systems.cluster.arrivals.job_sources import StoredJobs
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import NodeFailures
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.models.runtime import Flops, Recorded, Runtime, Throughput
from dagsim.systems.cluster.scenario import ClusterScenario, ClusterWorld
from dagsim.systems.seam import Kernel
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.array_tools import renumbered
from dagsim.workload.arrays import JobArrays
from dagsim.workload.arrivals import Arrivals, Batch, Bursty, Poisson
from dagsim.workload.distributions import AnyDistribution, Choice, Constant, LogNormal, Whole
from dagsim.workload.shapes import Chain, ForkJoin, Layered, MapReduce, RandomDag, Shape, Single
from dagsim.workload.sizes import MEASURED_MODELS, Independent
from dagsim.workload.synthetic import Synthetic

_KEPT = 64
"""Number of scenarios that are kept for replicas and for other policies."""
_MEASURED = ("A100-40", "V100-16", "T4")
"""GPU types on which all of ``MEASURED_MODELS`` were measured."""
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
_NODES = (1, 2, 4, 8)
"""GPUs per node."""


class _Worlds:
    """The most recently used scenarios, by seed. They are not sent to other processes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, ClusterScenario] = OrderedDict()

    def __reduce__(self) -> tuple[type[_Worlds], tuple[()]]:
        return _Worlds, ()

    def get(self, seed: int, draw: Callable[[int], ClusterScenario]) -> ClusterScenario:
        world = self._kept.get(seed)
        if world is None:
            world = self._kept[seed] = draw(seed)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return world


@dataclass(frozen=True)
class MixtureScenario(ClusterWorld):
    """A scenario with a different GPU cluster and different jobs for every seed. An agent that
    trains on them learns rules that work on every cluster.

    The seed determines the GPU types (as measured, with random speeds, or equally fast), their
    number and their nodes; the number of jobs, their load and their arrivals; the shape of their
    DAGs; the median and the tail of their work; gangs, GPU shares and independent instances; and
    whether estimates are exact or noisy. If ``traces`` are given, some seeds use windows of them
    instead, with random arrival rates, clusters and models. Training, validation and the final test
    use separate parts of the traces (``seeds.part_of``).
    """

    varied: ClassVar[bool] = True
    """Every seed has its own unit of time."""
    gpus: tuple[int, int] = (2, 64)
    """Smallest and largest number of GPUs."""
    jobs: tuple[int, int] = (20, 100)
    """Smallest and largest number of jobs."""
    load: tuple[float, float] = (0.5, 1.4)
    """Lowest and highest offered load."""
    sigma: tuple[float, float] = (0.6, 2.8)
    """Smallest and largest standard deviation of the logarithm of a task's work."""
    instances: int = 200
    """Largest number of independent instances that a task may have."""
    noisy: float = 0.3
    """Share of seeds for which estimates of durations have random errors."""
    noise: tuple[float, float] = (0.2, 1.0)
    """Smallest and largest ``sigma`` of these errors."""
    hidden: float = 0.0
    """Share of seeds for which policies have no information about durations."""
    limited: float = 0.0
    """Share of seeds for which policies know only the users' time limits. A time limit is 1 to
    about 20 times the true duration, rounded up to a power of 2.
    """
    typical: float = 0.0
    """Share of seeds for which policies know only the typical duration: every task has the geometric
    mean of all tasks as its estimate. An agent with ``beliefs`` expects about the same where
    durations are hidden, but these episodes also run in the compiled engine, without ``beliefs``.
    """
    failing: float = 0.0
    """Share of seeds for which nodes fail. If a node fails, its runs start over."""
    restart_s: tuple[float, float] = (0.0, 0.0)
    """Smallest and largest set-up time in seconds when a preempted run resumes. For a quarter of
    the seeds, it has the smallest value.
    """
    trace_share: float = 0.25
    """Share of seeds for which the jobs are taken from ``traces``, if there are any traces."""
    traces: tuple[TraceFile, ...] = ()
    """Traces, each with a ``window``."""
    kind: Literal["mixture"] = "mixture"
    _worlds: Any = field(default_factory=_Worlds, init=False, repr=False, compare=False)

    __pydantic_config__ = {"extra": "forbid"}

    @property
    def trace_paths(self) -> tuple[Path, ...]:
        """The paths of all traces."""
        return tuple([Path(trace.path) for trace in self.traces])

    @property
    def knowledge(self) -> tuple[str, ...]:
        """The kinds of estimates that can be drawn."""
        shares = {"noisy": self.noisy, "hidden": self.hidden, "predicted": self.limited + self.typical}
        kinds = [kind for kind, share in shares.items() if share > 0]
        return (*kinds, "exact") if ordered_sum(shares.values()) < 1 else tuple(kinds)

    def __post_init__(self) -> None:
        ranges = {"gpus": 1, "jobs": 1, "load": 1e-6, "sigma": 0, "noise": 0, "restart_s": 0}
        for name, least in ranges.items():
            low, high = getattr(self, name)
            if not least <= low <= high:
                raise ConfigError(
                    f"mixture: {name} must be [smallest, largest], both at least {least:g}; got [{low}, {high}]"
                )
        require(self.instances >= 1, "mixture: instances must be 1 or more", self.instances)
        for name in ("noisy", "hidden", "limited", "typical", "failing", "trace_share"):
            require(0 <= getattr(self, name) <= 1, f"mixture: {name} must be between 0 and 1", getattr(self, name))
        if self.noisy + self.hidden + self.limited + self.typical > 1 + 1e-9:
            raise ConfigError(
                "mixture: noisy, hidden, limited and typical are shares of all seeds, so their sum must be 1 or less; "
                f"got {self.noisy:g} + {self.hidden:g} + {self.limited:g} + {self.typical:g}"
            )
        for trace in self.traces:
            if trace.window is None:
                raise ConfigError(f"mixture: the trace {trace.path} needs a window (the number of jobs per seed)")

    def world(self, seed: int) -> ClusterScenario:
        """Draw the cluster and the jobs for a seed.

        Raises:
            TraceError, WorkloadError: The jobs cannot be generated.
        """
        world: ClusterScenario = self._worlds.get(seed, self._draw)
        return world

    @property
    def cluster(self) -> Cluster:
        """The cluster for the first seed."""
        return self.world(0).cluster

    def kernel(
        self, seed: int, *, record: bool = True, on_arrivals: Callable[[int], None] | None = None
    ) -> ClusterKernel:
        """Build a kernel for the scenario of a seed. All runs are recorded.

        Raises:
            TraceError, WorkloadError: The jobs cannot be generated.
        """
        return self.world(seed).kernel(seed, on_arrivals=on_arrivals)

    def facts(self, kernel: Kernel[Any, Any]) -> Mapping[str, Any]:
        """Return how many jobs a kernel has, and their load."""
        return self.world(kernel.schedule.seed).facts(kernel)

    def unfinished(self, kernel: Kernel[Any, Any]) -> Mapping[int, str]:
        """Explain why jobs in a kernel cannot be completed."""
        return self.world(kernel.schedule.seed).unfinished(kernel)

    def check(self) -> None:
        """Check the settings by drawing one scenario. Also check the traces.

        Raises:
            InputError: Something is invalid.
        """
        for trace in self.traces:
            trace.check()
        self.world(0)

    def _draw(self, seed: int) -> ClusterScenario:
        rng = stream(seed, "mixture")
        estimates = self._estimates(rng)
        if self.traces and rng.random() < self.trace_share:
            cluster, runtime, arrays = self._traced(seed, rng)
            return self._scenario(seed, cluster, arrays, runtime, estimates)
        cluster, runtime, models = _cluster(rng, *self.gpus)
        workload = self._workload(rng, cluster, models)
        try:
            arrays = workload.arrays(cluster, runtime, seed)
        except WorkloadError as error:
            raise WorkloadError(f"mixture: the scenario for seed {seed}: {error}") from None
        return self._scenario(seed, cluster, arrays, runtime, estimates)

    def _estimates(self, rng: np.random.Generator) -> Estimates:
        """Draw the kind of estimates, which decides what policies know about durations."""
        draw = rng.random()
        if draw < self.noisy:
            return Estimates("noisy", float(rng.uniform(*self.noise)))
        if draw < self.noisy + self.hidden:
            return Estimates("hidden")
        return Estimates("predicted" if draw < self.noisy + self.hidden + self.limited + self.typical else "exact")

    def _scenario(
        self, seed: int, cluster: Cluster, arrays: JobArrays, runtime: Runtime, estimates: Estimates
    ) -> ClusterScenario:
        """Add time limits, failures and the cost of a preemption. They are drawn from a separate
        random stream."""
        rng = stream(seed, "mixture", 1)
        if estimates.kind == "predicted":
            claimed = arrays.work * np.exp(rng.normal(1.0, 0.8, len(arrays.work)).clip(0.0, 3.0))
            estimate = 2.0 ** np.ceil(np.log2(np.maximum(claimed, 1e-9)))
            if stream(seed, "mixture", 2).random() * (self.limited + self.typical) < self.typical:
                estimate = np.full(len(estimate), np.exp(np.mean(np.log(np.maximum(arrays.work, 1e-9)))))
            arrays = replace(arrays, estimate=estimate)
        failures: tuple[NodeFailures, ...] = ()
        if rng.random() < self.failing:
            typical_s = float(np.median(arrays.work))
            failures = (NodeFailures(typical_s * _log_uniform(rng, 30, 1000), typical_s * _log_uniform(rng, 0.5, 5)),)
        least_s, most_s = self.restart_s
        restart_s = least_s if rng.random() < 0.25 or not most_s else _log_uniform(rng, max(least_s, 1.0), most_s)
        return ClusterScenario(
            cluster,
            StoredJobs(arrays),
            runtime=runtime,
            estimates=estimates,
            preemption=Preemption(restart_s=restart_s),
            failures=failures,
        )

    def _workload(self, rng: np.random.Generator, cluster: Cluster, models: tuple[str, ...]) -> Synthetic:
        """Draw a workload all of whose jobs fit on the cluster."""
        by_type = [
            whole_sum(node.gpus for node in cluster.nodes if node.gpu == gpu)
            for gpu in dict.fromkeys(cluster.gpu_types)
        ]
        widest = min(max(by_type), 64)
        widths = tuple([float(width) for width in _WIDTHS if width <= widest])
        steepness = rng.uniform(0.8, 2.5)
        weights = np.array(widths) ** -steepness
        gang = bool(rng.random() < 0.75)
        instances: AnyDistribution = Choice(widths, tuple((weights / weights.sum()).tolist()))
        if not gang:
            instances = Whole(1, round(_log_uniform(rng, 2, max(2, self.instances))))
        gpus: AnyDistribution = Constant(1.0)
        match int(rng.choice(3, p=(0.8, 0.1, 0.1))):
            case 1:
                gpus = Choice((0.25, 0.5, 1.0), (0.4, 0.3, 0.3))
                gang = False
                instances = Constant(1.0)
            case 2 if (most := max(node.gpus for node in cluster.nodes)) >= 2:
                whole = tuple([float(width) for width in _WIDTHS if width <= most])
                gpus = Choice(whole, tuple(((shares := np.array(whole) ** -steepness) / shares.sum()).tolist()))
                gang = False
                instances = Constant(1.0)
            case _:
                pass
        shape: Shape = Single()
        if rng.random() < 0.55:
            shapes: tuple[Shape, ...] = (
                RandomDag(float(rng.uniform(0, 0.4)), (2, int(rng.integers(3, 12)))),
                Chain((2, int(rng.integers(2, 9)))),
                ForkJoin((2, int(rng.integers(2, 9))), (1, int(rng.integers(1, 4)))),
                MapReduce((2, int(rng.integers(2, 9))), (1, int(rng.integers(1, 5))), (1, int(rng.integers(1, 3)))),
                Layered((2, int(rng.integers(2, 6))), (1, int(rng.integers(2, 5)))),
                RandomDag(0.15, (3, 8)),
            )
            shape = shapes[int(rng.integers(len(shapes)))]
        arrivals: Arrivals = Poisson()
        match int(rng.choice(3, p=(0.45, 0.5, 0.05))):
            case 1:
                arrivals = Bursty(int(rng.integers(2, 9)), float(rng.uniform(0.3, 0.9)), float(rng.uniform(0.01, 0.06)))
            case 2:
                arrivals = Batch()
            case _:
                pass
        median_s, sigma = _log_uniform(rng, 30, 6000), float(rng.uniform(*self.sigma))
        sizes = Independent(
            work=LogNormal(median_s, sigma, median_s * 1e-3, median_s * 1e3),
            instances=instances,
            gang=gang,
            gpus=gpus,
            models=models,
        )
        return Synthetic(
            round(_log_uniform(rng, *self.jobs)),
            float(rng.uniform(*self.load)),
            arrivals=arrivals,
            shape=shape,
            sizes=sizes,
        )

    def _traced(self, seed: int, rng: np.random.Generator) -> tuple[Cluster, Runtime, JobArrays]:
        """Take a window of a trace, and draw a cluster that is large enough for it."""
        trace: TraceFile = self.traces[int(rng.integers(len(self.traces)))]
        cluster, runtime, models = _cluster(rng, max(16, self.gpus[0]), max(16, self.gpus[1]))
        load = float(rng.uniform(*self.load))
        plain = runtime if not isinstance(runtime, Throughput) else Throughput(missing="flops")
        file = replace(trace, options=replace(trace.options, load=load))
        # ``window_of`` rescales the trace to this cluster and this load
        arrays = file.window_of(seed, cluster, plain, overlap=True)
        if models:
            arrays = _with_models(arrays, models, rng)
        return cluster, runtime, arrays


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _cluster(rng: np.random.Generator, least: int, largest: int) -> tuple[Cluster, Runtime, tuple[str, ...]]:
    """Draw a cluster. Return it with the runtime model, and with the models of the tasks."""
    total = max(1, round(_log_uniform(rng, least, largest)))
    kinds = min(int(rng.choice(4, p=(0.12, 0.3, 0.4, 0.18))) + 1, total)
    runtime: Runtime
    models: tuple[str, ...] = ()
    how = int(rng.choice(3, p=(0.5, 0.4, 0.1)))
    if how == 0:
        kinds = min(kinds, len(_MEASURED))
        types = [gpu_type(_MEASURED[place]) for place in rng.permutation(len(_MEASURED))[:kinds]]
        runtime, models = Throughput(), MEASURED_MODELS
    elif how == 1:
        spread = rng.uniform(1.0, np.log(16))
        types = [
            GpuType(f"drawn-{number}", float(speed), 40.0, 1000.0, 300.0, 30.0)
            for number, speed in enumerate(10 * np.exp(-np.sort(rng.uniform(0, spread, kinds))))
        ]
        runtime = Flops("fp32")
    else:
        types = [gpu_type(_MEASURED[place]) for place in range(min(kinds, len(_MEASURED)))]
        runtime = Recorded()
    shares = rng.dirichlet(np.full(len(types), 2.0))
    counts = np.maximum(np.round(shares * total), 1).astype(int)
    nodes = []
    for gpu, count in zip(types, counts.tolist(), strict=True):
        size = int(rng.choice(_NODES))
        for number, first in enumerate(range(0, count, size)):
            held = min(size, count - first)
            nodes.append(Node(f"{gpu.name.lower()}-{number}", gpu, held, 1e3 * held, 1e4 * held))
    return Cluster(tuple(nodes), "drawn"), runtime, models


def _with_models(jobs: JobArrays, models: tuple[str, ...], rng: np.random.Generator) -> JobArrays:
    """Assign random models to the jobs. All tasks in a job get the same model."""
    model = np.repeat(rng.integers(len(models), size=len(jobs)), np.diff(jobs.first))
    kinds = tuple([kind._replace(model=name) for kind in jobs.kinds for name in models])
    kind, kinds = renumbered(jobs.kind * len(models) + model, kinds)
    return replace(jobs, kind=kind, kinds=kinds)

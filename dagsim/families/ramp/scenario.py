"""The scenario for the RAMP fabric. Only scenarios build kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from dagsim.errors import ConfigError, require
from dagsim.families.ramp.codecs import RAMP_CODECS, RampCodec
from dagsim.families.ramp.decisions import DDLS, PLAIN, Rules
from dagsim.families.ramp.fabric import Fabric
from dagsim.families.ramp.graph import ComputationGraph, attention, branches, costed, op_chain
from dagsim.families.ramp.kernel import RampKernel
from dagsim.families.ramp.kpis import kpis
from dagsim.families.ramp.planner import Planner
from dagsim.families.ramp.policies import RAMP_POLICIES
from dagsim.families.ramp.readers import read_graphs
from dagsim.families.ramp.rewards import RAMP_TERMS
from dagsim.families.ramp.topology import TOPOLOGIES
from dagsim.families.ramp.view import RampPolicy
from dagsim.families.ramp.workload import RampJob, RampWorkload
from dagsim.model import Cluster, RejectReason, gpu_type
from dagsim.registry import Registry
from dagsim.spelling import nearest
from dagsim.systems.seam import Blocking, CountedJobs, Kernel, RewardTerm, Scenario

_MADE_UP_SEED = 20_220_617
_DDLS = "ddls=true"


class _Made:
    """The graphs and the planner. They are built on first use, and each process builds its own."""

    def __init__(self) -> None:
        self.graphs: list[ComputationGraph] | None = None
        self.planner: Planner | None = None
        self.examples: tuple[RampJob, ...] | None = None

    def __reduce__(self) -> tuple[type[_Made], tuple[()]]:
        return _Made, ()


@dataclass(frozen=True)
class RampScenario(Scenario):
    """Training jobs that are given as computation graphs and are partitioned over the servers of a
    fabric (Parsonson et al. 2023).

    Jobs are drawn uniformly from ``graphs`` (a folder of PipeDream ``graph.txt`` profiles,
    restricted to ``models``), or from synthetic graphs. A job starts on arrival, or it is rejected.
    """

    system: ClassVar[str] = "ramp"
    merit: ClassVar[str] = "blocking_rate"
    policies: ClassVar[Registry[RampPolicy]] = RAMP_POLICIES
    codecs: ClassVar[Registry[Any]] = RAMP_CODECS
    terms: ClassVar[Registry[RewardTerm]] = RAMP_TERMS
    score: ClassVar[str] = merit
    training: ClassVar[Mapping[str, Any]] = {
        "codec": "partition",
        "net": "pac_ml",
        "reward": {"job_acceptance": 1.0},
        "rivals": ["max", "acceptable_jct", "on_time"],
        "linear_iterations": 0,
    }
    variants: ClassVar[tuple[str, ...]] = (
        *(f"constant[degree={degree}]" for degree in (2, 8, 16)),
        *(f"on_time[least={degree}]" for degree in (2, 4, 8)),
        *(f"roomy[least={degree}]" for degree in (2, 4, 8)),
    )
    blocked_by: ClassVar[Blocking | None] = Blocking(
        "beta", (RejectReason.BY_POLICY, RejectReason.NO_PLACE, RejectReason.TOO_SLOW)
    )
    topology: str = "ramp"
    """The fabric, with parameters in brackets: ``ramp[groups=4,racks=4,servers_per_rack=2]``,
    ``torus``, ``switch``, ``fat_tree``."""
    gpus: tuple[str, ...] = ("A100-80",)
    """GPU type of all servers, or a list with one per server."""
    graphs: str | None = None
    """Folder with computation graphs. By default, synthetic graphs are used."""
    models: tuple[str, ...] = ()
    """Names of the graphs to draw from (file names without ``.txt``). By default, all graphs in the
    folder are used.
    """
    time_unit: Literal["s", "ms", "us"] | None = None
    """Unit of the times in ``graphs``. The default depends on the format: milliseconds for
    PipeDream, seconds for ``ddls``.
    """
    profiled_on: str | None = None
    """GPU type on which the graphs were profiled. Times on other types are estimated from the times
    on this type. By default, an operation takes the same time on all types, unless the graph gives
    its own times for a type.
    """
    jobs: int = 100
    """Jobs per episode. The jobs use every graph equally often, in random order."""
    gap_s: float = 1.0
    """Seconds between two arrivals."""
    poisson: bool = False
    """True to draw the times between arrivals from an exponential distribution with mean ``gap_s``."""
    beta: str = "A"
    """Distribution of the longest acceptable duration of a job, as a fraction of the time that one
    GPU would need. It is one of A to D (PAC-ML), or a form such as ``uniform[least=0.1,most=1]`` or
    ``fixed[value=0.5]``.
    """
    training_steps: int = 50
    """Training steps of each job."""
    max_degree: int = 16
    """Maximum number of pieces into which an operation may be divided."""
    partitioner: str = "sip_ml"
    """Rule by which operations are divided into pieces: ``sip_ml`` (an even number of pieces that
    take about one quantum each) or ``random``.
    """
    placer: str = "first_fit"
    """Rule that places pieces on servers: ``first_fit``, ``packed``, ``best_fit``, ``same_type`` or
    ``random``."""
    op_schedule: str = "srpt"
    """Which operation a server runs first: ``srpt`` (the shortest piece) or ``fifo`` (the order of
    the graph)."""
    flow_schedule: str = "srpt"
    """Which flow a link sends first: ``srpt`` (the one with the least data left to send) or ``fifo``."""
    ddls: bool = False
    """Use the rules of the simulator ``ddls``, including its peculiarities (docs/ramp.md)."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Individual rules that replace those of the chosen set, by name
    (``dagsim.families.ramp.decisions.Rules``).
    """
    horizon_s: float | None = None
    """Time at which the simulation stops. By default, it stops when all jobs have completed or been
    rejected.
    """
    figures: bool = False
    """With each run, store the statistics that ``ddls`` reports for an episode
    (``dagsim.families.ramp.kpis``).
    """
    kind: Literal["ramp"] = "ramp"
    _made: Any = field(default_factory=_Made, init=False, repr=False, compare=False)

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        require(self.horizon_s is None or self.horizon_s > 0, "horizon_s must be positive", self.horizon_s)
        if self.training_steps < 1 or self.jobs < 1:
            raise ConfigError(f"jobs and training_steps must be at least 1, got {self.jobs} and {self.training_steps}")
        if self.profiled_on is not None:
            gpu_type(self.profiled_on)
        _ = self._rules, self._fabric()

    @property
    def episode_jobs(self) -> int:
        """The number of jobs per episode. A kernel can also simulate only the first few of them."""
        return self.jobs

    @property
    def cluster(self) -> Cluster:
        """A cluster with one node per server, each with one GPU."""
        return self.planner.fabric.cluster()

    @property
    def planner(self) -> Planner:
        """The planner for jobs on this fabric, shared by all kernels of the scenario."""
        lazy: _Made = self._made
        if lazy.planner is None:
            lazy.planner = Planner(
                self._fabric(),
                self._rules,
                partitioner=self.partitioner,
                placer=self.placer,
                op_schedule=self.op_schedule,
                flow_schedule=self.flow_schedule,
            )
        return lazy.planner

    @property
    def workload(self) -> RampWorkload:
        """The workload, which draws the jobs of an episode from a seed.

        Raises:
            InputError: The graphs cannot be read.
        """
        return RampWorkload(tuple(self.pool), self.jobs, self.beta, self.gap_s, self.poisson, self.training_steps)

    @property
    def pool(self) -> Sequence[ComputationGraph]:
        """The graphs from which jobs are drawn.

        Raises:
            InputError: The graphs cannot be read.
        """
        lazy: _Made = self._made
        if lazy.graphs is None:
            lazy.graphs = self._read()
            if self.profiled_on is not None:
                types = tuple(map(gpu_type, dict.fromkeys(self.gpus)))
                lazy.graphs = [costed(graph, gpu_type(self.profiled_on), types) for graph in lazy.graphs]
        return lazy.graphs

    @property
    def examples(self) -> tuple[RampJob, ...]:
        """The jobs for seed 0. They set the ranges of a codec's features."""
        lazy: _Made = self._made
        if lazy.examples is None:
            lazy.examples = self.workload.draw(0)
        return lazy.examples

    def drawing_from(self, pool: Sequence[ComputationGraph]) -> RampScenario:
        """Return the same scenario with jobs from ``pool`` instead of files."""
        scenario = replace(self)
        scenario._made.graphs = list(pool)
        return scenario

    def planned_by(self, planner: Planner) -> RampScenario:
        """Return the same scenario with a different planner, and with the fabric and the rules of
        that planner."""
        scenario = replace(self)
        scenario._made.planner = planner
        return scenario

    def kernel(
        self,
        seed: int,
        *,
        record: bool = True,
        on_arrivals: Callable[[int], None] | None = None,
        jobs: Iterable[RampJob] | int | None = None,
    ) -> RampKernel:
        """Build a kernel. The same seed gives the same jobs.

        ``jobs`` is either a number, to simulate only the first jobs, or the jobs themselves. The
        log is always recorded.

        Raises:
            InputError: The graphs cannot be read.
        """
        source: Iterable[RampJob] = self.workload.draw(seed) if jobs is None or isinstance(jobs, int) else jobs
        if isinstance(jobs, int):
            source = islice(source, jobs)
        horizon_s = float("inf") if self.horizon_s is None else self.horizon_s
        return RampKernel(
            source if on_arrivals is None else CountedJobs(source, on_arrivals),
            self.planner,
            horizon_s=horizon_s,
            seed=seed,
            examples=self.examples,
        )

    def codec(self, *, blocks: int = 0, outlooks: bool = True) -> RampCodec:
        """Return a codec whose feature ranges come from the jobs for seed 0."""
        return RampCodec(self.examples, blocks=blocks, outlooks=outlooks)

    def facts(self, kernel: Kernel[Any, Any]) -> Mapping[str, Any]:
        """Return the number of jobs that arrived and the time that they span. With ``figures``, add
        the statistics of the episode.
        """
        jobs = kernel.schedule.jobs
        assert isinstance(kernel, RampKernel)
        figures = {"figures": kpis(kernel)} if self.figures else {}
        return figures | {
            "cluster": self.planner.fabric.name,
            "jobs": len(jobs),
            "span_s": jobs[-1].arrival_s - jobs[0].arrival_s if jobs else 0.0,
            "gpu_load": None,
            "cpu_load": None,
            "warning": None,
        }

    def check(self) -> None:
        """Read the graphs from which jobs are drawn, and build the planner.

        Raises:
            InputError: The graphs cannot be read or generated.
        """
        _ = self.workload.draw(0), self.planner

    def _read(self) -> list[ComputationGraph]:
        if self.graphs is None:
            rng = np.random.default_rng(_MADE_UP_SEED)
            drawn = [op_chain(8, rng=rng), op_chain(24, rng=rng), branches(4, 4, rng=rng), branches(8, 3, rng=rng)]
            return [*drawn, attention(2), attention(6)]
        folder = Path(os.path.expandvars(self.graphs))
        names = self.models or tuple(sorted(path.stem for path in folder.glob("*.txt")))
        unit = self.time_unit or ("s" if self.ddls else None)
        return list(read_graphs(folder, names, unit).values())

    @property
    def _rules(self) -> Rules:
        names = {rule.name for rule in fields(Rules)}
        for name in self.rules:
            if name not in names:
                allowed = f"allowed: {', '.join(sorted(names))}"
                raise ConfigError(f"there is no rule {name!r}{nearest(name, names, allowed)}")
        return (DDLS if self.ddls else PLAIN).but(max_degree=self.max_degree, **self.rules)

    def _fabric(self) -> Fabric:
        topology = TOPOLOGIES.create(f"ramp[{_DDLS}]" if self.ddls and self.topology == "ramp" else self.topology)
        types = tuple(map(gpu_type, self.gpus))
        return Fabric(topology, types[0] if len(types) == 1 else types)

"""The scenario of the RAMP fabric: the only place that builds its kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model import Cluster, gpu_type
from dagsim.model.streams import stream
from dagsim.registry import Registry
from dagsim.systems.heard import Heard
from dagsim.systems.ramp.codecs import RAMP_CODECS
from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.fat_tree import FatTree
from dagsim.systems.ramp.graph import ComputationGraph
from dagsim.systems.ramp.job import RampJob
from dagsim.systems.ramp.kernel import RampKernel
from dagsim.systems.ramp.made import attention, branches, chain
from dagsim.systems.ramp.planner import Planner
from dagsim.systems.ramp.policies import RAMP_POLICIES
from dagsim.systems.ramp.ramp_topology import Ramp
from dagsim.systems.ramp.readers import read_graphs
from dagsim.systems.ramp.rules import DDLS, Rules
from dagsim.systems.ramp.switch import Switch
from dagsim.systems.ramp.topology import Topology
from dagsim.systems.ramp.torus import Torus
from dagsim.systems.ramp.view import Policy
from dagsim.systems.seam import Kernel
from dagsim.workload.distributions import Constant, Distribution, Uniform

__all__ = ["RampScenario"]

_MADE_UP_SEED = 20_220_617


class _Made:
    """Graphs and planner, made when they are first asked for; other processes make them anew."""

    def __init__(self) -> None:
        self.graphs: list[ComputationGraph] | None = None
        self.planner: Planner | None = None

    def __reduce__(self) -> tuple[type[_Made], tuple[()]]:
        return _Made, ()


@dataclass(frozen=True)
class RampScenario:
    """Training jobs as computation graphs, partitioned over the servers of a fabric (Parsonson et al. 2023).

    Jobs are drawn uniformly from ``graphs`` (a folder of PipeDream ``graph.txt`` profiles, ``models`` of them), or from
    made-up graphs. A job waits for no other: it starts when it arrives, or it is rejected.
    """

    topology: Literal["ramp", "torus", "switch", "fat_tree"] = "ramp"
    """The fabric between the servers."""
    shape: tuple[int, ...] = (4, 4, 2)
    """Of RAMP: communication groups, racks, servers per rack. Torus: its lengths. Switch: servers. Fat tree: leaves,
    servers per leaf."""
    gpus: Mapping[str, int] | None = None
    """GPU types of the servers with their numbers, in order; left out: an A100-80 each."""
    graphs: str | None = None
    """Folder of computation graphs; left out: made-up ones."""
    models: tuple[str, ...] = ()
    """Names of the graphs to draw from (files without ``.txt``); left out: all of the folder."""
    time_unit: Literal["s", "ms", "us"] | None = None
    """Unit of the times in ``graphs``; left out: that of the format (PipeDream: milliseconds; ``ddls``: seconds)."""
    jobs: int = 100
    """Jobs of an episode."""
    gap_s: Distribution = field(default_factory=lambda: Constant(1.0))
    """Seconds between two arrivals."""
    beta: Distribution = field(default_factory=lambda: Uniform(0.1, 1.0))
    """Acceptable fraction of the time that one GPU would need."""
    training_steps: int = 50
    """Training steps of each job."""
    max_degree: int = 16
    """Pieces that an operation may be split into."""
    placer: str = "first_fit"
    ddls: bool = False
    """The rules of ``ddls``, quirks included, instead of ours (docs/ramp.md)."""
    horizon_s: float | None = None
    """Time at which everything stops; left out: when all jobs have left."""
    kind: Literal["ramp"] = "ramp"
    _made: Any = field(default_factory=_Made, init=False, repr=False, compare=False)

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name in ("jobs", "training_steps", "max_degree"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if self.horizon_s is not None and not self.horizon_s > 0:
            raise ConfigError(f"horizon_s must be positive, got {self.horizon_s!r}")
        self._fabric()

    @property
    def system(self) -> str:
        """The name of the system."""
        return "ramp"

    @property
    def cluster(self) -> Cluster:
        """A node with one GPU per server."""
        return self.planner.fabric.cluster()

    @property
    def policies(self) -> Registry[Policy]:
        """The policies for RAMP."""
        return RAMP_POLICIES

    @property
    def codecs(self) -> Registry[Any]:
        """The codecs for RAMP."""
        return RAMP_CODECS

    @property
    def planner(self) -> Planner:
        """What partitions, places and times jobs on this fabric; shared by all kernels of the scenario."""
        made: _Made = self._made
        if made.planner is None:
            rules = DDLS if self.ddls else Rules()
            made.planner = Planner(self._fabric(), rules.but(max_degree=self.max_degree), placer=self.placer)
        return made.planner

    @property
    def pool(self) -> Sequence[ComputationGraph]:
        """The graphs to draw from.

        Raises:
            InputError: They cannot be read.
        """
        made: _Made = self._made
        if made.graphs is None:
            made.graphs = self._read()
        return made.graphs

    def kernel(
        self,
        seed: int,
        *,
        record: bool = True,
        heard: Callable[[int], None] | None = None,
        jobs: Iterable[RampJob] | None = None,
    ) -> RampKernel:
        """A new kernel: the same seed gives the same jobs. ``jobs`` are played instead, if given. It always records.

        Raises:
            InputError: The graphs cannot be read.
        """
        source: Iterable[RampJob] = self._drawn(seed) if jobs is None else jobs
        horizon_s = float("inf") if self.horizon_s is None else self.horizon_s
        return RampKernel(
            source if heard is None else Heard(source, heard), self.planner, horizon_s=horizon_s, seed=seed
        )

    def facts(self, kernel: Kernel[Any, Any]) -> Mapping[str, Any]:
        """Facts of the jobs that came: their number and span."""
        came = kernel.schedule.jobs
        return {
            "cluster": self.planner.fabric.name,
            "jobs": len(came),
            "span_s": came[-1].arrival_s - came[0].arrival_s if came else 0.0,
            "gpu_load": None,
            "cpu_load": None,
            "warning": None,
        }

    def check(self) -> None:
        """Read the graphs that are drawn from, and make the planner.

        Raises:
            InputError: They cannot be read or made.
        """
        if not self.pool:
            raise ConfigError("there are no graphs to draw jobs from")
        _ = self.planner

    def _drawn(self, seed: int) -> list[RampJob]:
        pool = self.pool
        mix, gaps, fractions = (stream(seed, name) for name in ("mix", "arrivals", "beta"))
        arrivals = np.append(0.0, np.cumsum(self.gap_s.draw(gaps, self.jobs - 1)))
        betas, chosen = self.beta.draw(fractions, self.jobs), mix.integers(len(pool), size=self.jobs)
        drawn = zip(arrivals.tolist(), betas.tolist(), chosen.tolist(), strict=True)
        return [
            RampJob(f"{number}:{pool[which].model}", pool[which], arrival_s, beta, self.training_steps)
            for number, (arrival_s, beta, which) in enumerate(drawn)
        ]

    def _read(self) -> list[ComputationGraph]:
        if self.graphs is None:
            rng = np.random.default_rng(_MADE_UP_SEED)
            drawn = [chain(8, rng=rng), chain(24, rng=rng), branches(4, 4, rng=rng), branches(8, 3, rng=rng)]
            return [*drawn, attention(2), attention(6)]
        folder = Path(os.path.expandvars(self.graphs))
        names = self.models or tuple(sorted(path.stem for path in folder.glob("*.txt")))
        unit = self.time_unit or ("s" if self.ddls else None)
        return list(read_graphs(folder, names, unit).values())

    def _fabric(self) -> Fabric:
        return Fabric(self._topology(), self._gpus())

    def _topology(self) -> Topology:
        counts = {"ramp": 3, "switch": 1, "fat_tree": 2}
        if self.topology in counts and len(self.shape) != counts[self.topology]:
            raise ConfigError(f"shape of {self.topology} must have {counts[self.topology]} numbers, got {self.shape!r}")
        match self.topology:
            case "ramp":
                return Ramp(*self.shape, ddls=self.ddls)
            case "torus":
                return Torus(self.shape)
            case "switch":
                return Switch(*self.shape)
            case "fat_tree":
                return FatTree(*self.shape)

    def _gpus(self) -> Any:
        if self.gpus is None:
            return None
        return [gpu_type(name) for name, count in self.gpus.items() for _ in range(count)]

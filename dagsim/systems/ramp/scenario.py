"""A scenario: what a simulation is made of, as plain values. The only place that builds kernels from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from dagsim.model import gpu_type
from dagsim.systems.ramp.codec import RampCodec
from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.kernel import RampKernel
from dagsim.systems.ramp.planner import Planner
from dagsim.systems.ramp.policies import RAMP_POLICIES
from dagsim.systems.ramp.rules import PLAIN, Rules
from dagsim.systems.ramp.topology import TOPOLOGIES
from dagsim.systems.ramp.workload import RampWorkload

__all__ = ["RampScenario"]


@dataclass(frozen=True, slots=True)
class RampScenario:
    """Jobs, fabric and rules; picklable. Kernels of one process share what was worked out for the fabric.

    ``topology`` is a name with parameters (``"ramp[groups=4,racks=4,servers_per_rack=2]"``); ``gpus`` is one GPU type
    for all servers, or one per server.
    """

    workload: RampWorkload
    topology: str = "ramp"
    gpus: tuple[str, ...] = ("A100-80",)
    rules: Rules = PLAIN
    partitioner: str = "sip_ml"
    placer: str = "first_fit"
    op_schedule: str = "srpt"
    flow_schedule: str = "srpt"
    horizon_s: float = inf

    policies = RAMP_POLICIES

    def kernel(self, seed: int) -> RampKernel:
        """A kernel at the start of an episode; equal seeds, equal jobs."""
        return RampKernel(self.workload.draw(seed), self.planner(), horizon_s=self.horizon_s, seed=seed)

    def planner(self) -> Planner:
        """The planner that all kernels of this scenario share in this process."""
        return _planner(
            self.topology,
            self.gpus,
            self.rules,
            self.partitioner,
            self.placer,
            self.op_schedule,
            self.flow_schedule,
        )

    def codec(self, *, outlooks: bool = True) -> RampCodec:
        """A codec whose ranges are those of the jobs of seed 0."""
        return RampCodec(self.workload.draw(0), self.rules.max_degree, outlooks=outlooks)


@lru_cache(maxsize=16)
def _planner(
    topology: str,
    gpus: tuple[str, ...],
    rules: Rules,
    partitioner: str,
    placer: str,
    op_schedule: str,
    flow_schedule: str,
) -> Planner:
    types = tuple(map(gpu_type, gpus))
    fabric = Fabric(TOPOLOGIES.create(topology), types[0] if len(types) == 1 else types)
    return Planner(
        fabric, rules, partitioner=partitioner, placer=placer, op_schedule=op_schedule, flow_schedule=flow_schedule
    )

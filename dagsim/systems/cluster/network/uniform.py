"""A network with the same bandwidth and latency between every pair of nodes, without contention."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from simpy.events import Event

from dagsim.errors import ModelError
from dagsim.model import Cluster
from dagsim.systems.cluster.clock import Clock, Timer
from dagsim.systems.cluster.network.base import Flow

__all__ = ["UniformNetwork"]


@dataclass(frozen=True, slots=True)
class UniformNetwork:
    """A flow takes ``latency_s + size / bandwidth``. Flows to one run are parallel; nothing is sent
    within a node.
    """

    bandwidth_gb_s: float = 12.5
    latency_s: float = 0.0
    kind: Literal["uniform"] = "uniform"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.bandwidth_gb_s > 0:
            raise ModelError(f"uniform network: bandwidth_gb_s must be positive, got {self.bandwidth_gb_s!r}")
        if not self.latency_s >= 0:
            raise ModelError(f"uniform network: latency_s must be 0 or more, got {self.latency_s!r}")

    def carrier(self, clock: Clock, cluster: Cluster) -> _Uniform:
        return _Uniform(self, clock)


class _Uniform(NamedTuple):
    network: UniformNetwork
    clock: Clock

    def fetch(self, flows: Sequence[Flow]) -> Generator[Event, object, None]:
        """Wait for the slowest flow."""
        now, network = self.clock.now, self.network
        for flow in flows:
            if flow.ends_s is None:
                flow.ends_s = now + network.latency_s + flow.size / (network.bandwidth_gb_s * 1e9)
        yield Timer(self.clock, max(flow.ends_s or 0.0 for flow in flows))

    def fork(self, clock: Clock) -> _Uniform:
        return _Uniform(self.network, clock)

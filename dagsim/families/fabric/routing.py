"""Links, and the routes between hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Protocol, TypeAlias

from dagsim.errors import ModelError
from dagsim.systems.cluster.network.links import FabricLevel, Link

Path: TypeAlias = tuple[int, ...]
"""Numbers of the links on the route, in order; empty within a host."""


class Routing:
    """The links between ``hosts`` hosts. ``paths(source, destination)`` returns the routes between
    two different hosts, over which traffic splits evenly."""

    def __init__(self, hosts: int, links: Sequence[Link], paths: Callable[[int, int], tuple[Path, ...]]) -> None:
        self.hosts = hosts
        self.links = tuple(links)
        self._paths = cache(paths)

    def paths(self, source: int, destination: int) -> tuple[Path, ...]:
        """Return the routes from one host to another. If both are the same host, return one empty
        route.
        """
        return ((),) if source == destination else self._paths(source, destination)

    def latency_s(self, path: Path) -> float:
        """Return the seconds until the first byte has crossed ``path``."""
        links, total = self.links, 0.0
        for link in path:
            total += links[link].latency_s
        return total


def levels_of(
    domains: Sequence[Sequence[int]], names: Sequence[str] = (), kept: Collection[str] = ()
) -> tuple[FabricLevel, ...]:
    """Return levels with these domains, narrowest first. Unless ``names`` are given, they are
    called ``rack``, ``pod``, ``level3`` and so on. A level with a single domain for all hosts is
    left out unless it is in ``kept``.
    """
    usual = [*(names or ("rack", "pod")), *(f"level{place}" for place in range(3, len(domains) + 1))]
    return tuple(
        FabricLevel(name, tuple(of))
        for name, of in zip(usual, domains, strict=False)
        if len(set(of)) > 1 or name in kept
    )


class NetworkTopology(Protocol):
    """A description from which the links and routes of a cluster are built."""

    def routing(self, names: Sequence[str]) -> Routing:
        """Build the links between the hosts with these ``names``, in the order of the nodes.

        Raises:
            ModelError: The topology does not fit these hosts.
        """

    def levels(self, names: Sequence[str]) -> tuple[FabricLevel, ...]:
        """Return the levels between a host and the whole fabric, narrowest first."""


def check_link(kind: str, bandwidth_gb_s: float, latency_s: float) -> None:
    """Raise ``ModelError`` for a bandwidth that is not positive, or a negative latency."""
    if not 0 < bandwidth_gb_s < float("inf"):
        raise ModelError(f"{kind}: bandwidth_gb_s must be positive, got {bandwidth_gb_s!r}")
    if not 0 <= latency_s < float("inf"):
        raise ModelError(f"{kind}: latency_s must be 0 or more, got {latency_s!r}")


def check_counts(kind: str, **counts: int) -> None:
    """Raise ``ModelError`` unless every count is at least 1."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ModelError(f"{kind}: {name} must be a whole number of at least 1, got {count!r}")


def check_hosts(kind: str, places: int, names: Sequence[str]) -> None:
    """Raise ``ModelError`` unless the topology has exactly one place for each host."""
    if places != len(names):
        raise ModelError(f"{kind}: the topology has {places:,} hosts, but the cluster has {len(names):,} nodes")

"""A node as a scheduler describes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["MOST_NODES", "FoundNode"]

MOST_NODES = 1 << 17
"""More nodes than this are damage."""


@dataclass(frozen=True, slots=True)
class FoundNode:
    """One node: GPUs by the site's names, and whether jobs may run on it."""

    name: str
    gpus: tuple[tuple[str, int], ...]
    """Type and number; the type is empty where the site says none. MIG profiles count as types."""
    cpus: float
    memory_gb: float
    state: str
    usable: bool
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    def also_in(self, partitions: tuple[str, ...]) -> FoundNode:
        """The same node, in more partitions."""
        return replace(self, partitions=tuple(dict.fromkeys([*self.partitions, *partitions])))

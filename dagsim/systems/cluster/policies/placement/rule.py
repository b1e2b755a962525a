"""The placement axis: on which GPU type and nodes a chosen task starts."""

from __future__ import annotations

from typing import Protocol

from dagsim.model import Placement
from dagsim.registry import Entry, Registry
from dagsim.systems.cluster.api import ClusterView, TaskState

__all__ = ["PLACEMENT_RULES", "BestFit", "PlacementRule", "placing"]


class PlacementRule(Protocol):
    """Finds room for a task."""

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        """The placement of the task's waiting instances; ``None`` if there is no room. It is on the GPU type ``type_``
        (a place in ``ClusterView.gpu_types``), or on whichever the rule prefers."""
        ...


class BestFit:
    """The fastest type with room, and on it the node with the fewest idle GPUs. Types that are as fast count, too;
    gangs go to one node if they fit, else to as few as possible. Cost O(1) without CPU and memory demands, else O(nodes
    of the type)."""

    place = staticmethod(ClusterView.fit)


PLACEMENT_RULES: Registry[PlacementRule] = Registry(
    "placement",
    [
        Entry("best-fit", ".placement.rule:BestFit", "fastest type, then the fullest node that takes it"),
        Entry("fastest", ".placement.rule:BestFit", "another name of best-fit"),
        Entry("first-fit", ".placement.nodes:FirstFit", "the first node of all that takes it"),
        Entry("worst-fit", ".placement.nodes:WorstFit", "fastest type, then the emptiest node"),
        Entry("random", ".placement.nodes:RandomNode", "any type and node with room"),
        Entry("consolidate", ".placement.gangs:Consolidate", "as few nodes as possible"),
        Entry("spread", ".placement.gangs:SpreadGang", "as many nodes as possible"),
        Entry(
            "comparative-advantage",
            ".placement.types:ComparativeAdvantage",
            "the type where it loses less than others do",
        ),
        Entry("dot-product", ".placement.nodes:DotProduct", "the node most aligned with the demand"),
        Entry("gpu-packing", ".placement.nodes:GpuPacking", "GPUs, then nodes in use first"),
        Entry("gpu-clustering", ".placement.nodes:GpuClustering", "beside tasks with the same demand"),
        Entry("fgd", ".placement.fgd:Fgd", "where fragmentation grows least"),
    ],
    group="dagsim.placements",
    home="dagsim.systems.cluster.policies",
    listing="dagsim list placements",
)


def placing(placement: str | PlacementRule) -> PlacementRule:
    """The placement itself, or the one of that name."""
    return PLACEMENT_RULES.create(placement) if isinstance(placement, str) else placement

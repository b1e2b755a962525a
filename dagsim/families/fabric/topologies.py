"""All topologies of the shared network."""

from dagsim.families.fabric.dragonfly import Dragonfly
from dagsim.families.fabric.explicit import Cable, Explicit, Route, Tree, TreeSwitch
from dagsim.families.fabric.fat_tree import FatTree
from dagsim.families.fabric.island import Island
from dagsim.families.fabric.max_min import LinkFlow, SharedLinks
from dagsim.families.fabric.routing import NetworkTopology, Routing
from dagsim.families.fabric.torus import Torus
from dagsim.systems.cluster.network.links import FabricLevel, Link

__all__ = [
    "Cable", "Dragonfly", "Explicit", "FabricLevel", "FatTree", "Island", "Link", "LinkFlow", "NetworkTopology",
    "Route", "Routing", "SharedLinks", "Torus", "Tree", "TreeSwitch",
]  # fmt: skip

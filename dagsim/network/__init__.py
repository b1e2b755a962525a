"""Networks as links that flows share: topologies, routes, and max-min rates."""

from dagsim.network.dragonfly import Dragonfly
from dagsim.network.explicit import Cable, Explicit, Route, Tree, TreeSwitch
from dagsim.network.fat_tree import FatTree
from dagsim.network.island import Island
from dagsim.network.max_min import LinkFlow, SharedLinks
from dagsim.network.routing import FabricLevel, Link, NetworkTopology, Routing
from dagsim.network.torus import Torus

__all__ = [
    "Cable",
    "Dragonfly",
    "Explicit",
    "FabricLevel",
    "FatTree",
    "Island",
    "Link",
    "LinkFlow",
    "NetworkTopology",
    "Route",
    "Routing",
    "SharedLinks",
    "Torus",
    "Tree",
    "TreeSwitch",
]

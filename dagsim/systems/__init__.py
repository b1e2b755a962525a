"""Systems: kinds of simulations behind a common interface (``dagsim.systems.seam``)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from dagsim.errors import PluginError
from dagsim.registry import Entry, Registry

if TYPE_CHECKING:
    from dagsim.systems.seam import System

__all__ = ["DEFAULT_SYSTEM", "LISTS", "SYSTEMS", "all_systems", "system_named"]

SYSTEMS: Registry[Any] = Registry(
    "system",
    [Entry("cluster", ".cluster.section:ClusterSystem", "DAG jobs on a heterogeneous GPU cluster, on SimPy")],
    group="dagsim.systems",
    listing="dagsim list systems",
    home="dagsim.systems",
    method="kernel",
)
"""Every system by name, as the class of its settings. The key ``system`` of a configuration selects
one."""

DEFAULT_SYSTEM = "cluster"
"""The system of a configuration that does not name one. Its keys are at the top level
(``default.TopKeys``)."""


LISTS: Registry[Any] = Registry(
    "list",
    [
        Entry("policies", ".policies:POLICIES", "policy"),
        Entry("placements", ".policies:PLACEMENT_RULES", "placement"),
        Entry("networks", ".network:NETWORKS", "network"),
        Entry("setups", ".models:SETUPS", "set-up"),
        Entry("communications", ".models:COMMUNICATIONS", "communication model"),
        Entry("sharings", ".models:SHARINGS", "sharing model"),
        Entry("runtimes", ".models:RUNTIMES", "runtime"),
        Entry("failures", ".models:FAILURE_MODELS", "failure model"),
        Entry("codecs", ".learnable:CODECS", "codec"),
        Entry("rewards", ".learnable:TERMS", "reward term"),
    ],
    group="dagsim.lists",
    home="dagsim.systems.cluster",
)
"""The registries of all systems by the name of their list (``dagsim list NAME``), each with the word for an entry."""


def system_named(name: str) -> type[System]:
    """Return the class of the system that has this name in configurations.

    Raises:
        UnknownName: There is no such system.
        PluginError: The system is in another package, which cannot be imported.
    """
    return cast("type[System]", SYSTEMS.get(name))


def all_systems() -> dict[str, type[System]]:
    """Return all systems by the names that they have in configurations, except for systems in other
    packages that cannot be imported.
    """
    systems: dict[str, type[System]] = {}
    for name in SYSTEMS.names():
        with suppress(PluginError):
            systems[name] = system_named(name)
    return systems

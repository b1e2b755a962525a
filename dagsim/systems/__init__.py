"""Systems: kinds of simulated worlds behind one seam (``dagsim.systems.seam``)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from dagsim.errors import PluginError
from dagsim.registry import Entry, Registry

if TYPE_CHECKING:
    from dagsim.systems.seam import System

__all__ = ["DEFAULT_SYSTEM", "SYSTEMS", "all_systems", "system_named"]

SYSTEMS: Registry[Any] = Registry(
    "system",
    [
        Entry("cluster", ".cluster.section:ClusterSystem", "DAG jobs on a heterogeneous GPU cluster, on SimPy"),
        Entry("mixture", ".cluster.mixture:MixtureScenario", "another GPU cluster with other jobs for every seed"),
        Entry("spark", ".spark.scenario:SparkScenario", "DAGs of stages on Spark executors (Decima)"),
        Entry("ramp", ".ramp.scenario:RampScenario", "computation graphs, partitioned, on an optical fabric (PAC-ML)"),
    ],
    group="dagsim.systems",
    listing="dagsim list systems",
    home="dagsim.systems",
    method="kernel",
)
"""Every system by name, as the class of its settings: what ``system`` means in a configuration."""

DEFAULT_SYSTEM = "cluster"
"""The system of a configuration that names none. Its keys are at the top level (``default.TopKeys``)."""


def system_named(name: str) -> type[System]:
    """Return the class of a system by its name in a configuration.

    Raises:
        UnknownName: There is no such system.
        PluginError: It belongs to another package, and cannot be imported.
    """
    return cast("type[System]", SYSTEMS.get(name))


def all_systems() -> dict[str, type[System]]:
    """Return every system by its name in a configuration, without those of other packages that
    cannot be imported.
    """
    systems: dict[str, type[System]] = {}
    for name in SYSTEMS.names():
        with suppress(PluginError):
            systems[name] = system_named(name)
    return systems

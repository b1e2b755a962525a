"""Systems: kinds of simulated worlds behind one seam (``dagsim.systems.seam``)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from dagsim.errors import PluginError
from dagsim.registry import Entry, Registry

if TYPE_CHECKING:
    from dagsim.systems.seam import System

__all__ = ["DEFAULT_SYSTEM", "PARTS", "SYSTEMS", "all_systems", "system_named"]

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


_CLUSTER = "dagsim.systems.cluster"
PARTS: Mapping[str, tuple[str, str]] = {
    "policies": (f"{_CLUSTER}.policies:POLICIES", "policy"),
    "spark-policies": ("dagsim.systems.spark.policies:SPARK_POLICIES", "policy"),
    "ramp-policies": ("dagsim.systems.ramp.policies:RAMP_POLICIES", "policy"),
    "placements": (f"{_CLUSTER}.policies:PLACEMENT_RULES", "placement"),
    "networks": (f"{_CLUSTER}.network:NETWORKS", "network"),
    "setups": (f"{_CLUSTER}.models:SETUPS", "set-up"),
    "communications": (f"{_CLUSTER}.models:COMMUNICATIONS", "communication model"),
    "sharings": (f"{_CLUSTER}.models:SHARINGS", "sharing model"),
    "runtimes": (f"{_CLUSTER}.models:RUNTIMES", "runtime"),
    "failures": (f"{_CLUSTER}.models:FAILURE_MODELS", "failure model"),
    "codecs": (f"{_CLUSTER}.codecs:CODECS", "codec"),
    "spark-codecs": ("dagsim.systems.spark.codecs:SPARK_CODECS", "codec"),
    "ramp-codecs": ("dagsim.systems.ramp.codecs:RAMP_CODECS", "codec"),
    "rewards": (f"{_CLUSTER}.rewards:TERMS", "reward term"),
    "spark-rewards": ("dagsim.systems.spark.rewards:SPARK_TERMS", "reward term"),
    "ramp-rewards": ("dagsim.systems.ramp.rewards:RAMP_TERMS", "reward term"),
}
"""The registries of all systems by the name of their list: ``module:attr``, and what an entry is."""


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

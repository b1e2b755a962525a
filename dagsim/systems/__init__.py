"""Systems: kinds of simulated worlds behind one seam (``dagsim.systems.seam``)."""

from __future__ import annotations

from typing import Any

from dagsim.registry import Entry, Registry

__all__ = ["SYSTEMS"]

SYSTEMS: Registry[Any] = Registry(
    "system",
    [
        Entry("cluster", ".cluster.scenario:ClusterSystem", "DAG jobs on a heterogeneous GPU cluster, on SimPy"),
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

"""Who gets the executors: the list of all policies of the Spark simulation, by name."""

from __future__ import annotations

from dagsim.registry import Entry, Registry
from dagsim.spark.view import Policy

__all__ = ["SPARK_POLICIES"]

SPARK_POLICIES: Registry[Policy] = Registry(
    "Spark policy",
    [
        Entry("fifo", "dagsim.spark.policies_fair:fifo", "oldest job first, as many executors as it can use"),
        Entry("fair", "dagsim.spark.policies_fair:FairShare", "equal shares; a job keeps what it has while it can"),
    ],
)

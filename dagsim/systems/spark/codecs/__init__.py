"""Codecs of Spark executors: from a view to arrays that a net reads, and from its choice back to decisions."""

from __future__ import annotations

from typing import Any

from dagsim.registry import Entry, Registry

__all__ = ["SPARK_CODECS"]

SPARK_CODECS: Registry[Any] = Registry(
    "codec",
    [Entry("stages", ".stages:StagesConfig", "a stage and a number of executors, as Decima decides")],
    group="dagsim.codecs",
    listing="dagsim list codecs",
    home="dagsim.systems.spark.codecs",
    method="build",
)
"""Every codec of Spark executors by name."""

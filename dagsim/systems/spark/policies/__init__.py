"""Policies for executors: all policies of the Spark simulation, by name."""

from __future__ import annotations

from dagsim.registry import Entry, Registry
from dagsim.systems.spark.view import SparkPolicy

__all__ = ["SPARK_POLICIES"]

SPARK_POLICIES: Registry[SparkPolicy] = Registry(
    "Spark policy",
    [
        Entry("fifo", ".fair:fifo", "oldest job first, as many executors as it can use"),
        Entry("fair", ".fair:FairShare", "equal shares; a job keeps what it has while it can"),
        Entry(
            "weighted-fair",
            ".weighted:WeightedFair",
            "shares by work left to the power alpha (0: equal), which takes executors back",
        ),
        Entry(
            "naive-weighted-fair", ".weighted:naive_weighted_fair", "shares in proportion to the work of the whole job"
        ),
        Entry("sjf-cp", ".shortest:sjf_cp", "job with the least work, its critical path first"),
        Entry("srpt-cp", ".shortest:srpt_cp", "job with the least work left, at most cap each"),
        Entry("tetris", ".tetris:SparkTetris", "what fills most of what is free, less the work left"),
        Entry("graphene", ".graphene:Graphene", "weighted fair, long stages' ancestors first"),
        Entry("random", ".random_stage:RandomJob", "a uniform job, a uniform number of executors"),
    ],
    group="dagsim.spark_policies",
    listing="dagsim list spark-policies",
    home="dagsim.systems.spark.policies",
    method="decide",
)

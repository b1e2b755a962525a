"""Spark: DAGs of stages whose many short tasks run on executors that move between jobs (Mao et al. 2019)."""

from __future__ import annotations

from dagsim.systems.spark.executors import ExecutorType
from dagsim.systems.spark.job import RecordedDurations, SparkJob, Waves
from dagsim.systems.spark.kernel import SparkKernel
from dagsim.systems.spark.policies import SPARK_POLICIES
from dagsim.systems.spark.rewards import JobTime
from dagsim.systems.spark.schedule import SparkEpisode, schedule_of
from dagsim.systems.spark.state import DurationSource, Executor, PairedStreams, SharedStream, SparkJobState, StageState
from dagsim.systems.spark.view import Action, Commit, SparkPolicy, SparkView
from dagsim.systems.spark.workload import (
    Dump,
    ParitySequence,
    parity_sequence,
    read_dump,
    read_profiles,
    sequence,
    synthetic_profiles,
    trace_jobs,
    write_dump,
)

__all__ = [
    "SPARK_POLICIES",
    "Action",
    "Commit",
    "Dump",
    "DurationSource",
    "Executor",
    "ExecutorType",
    "JobTime",
    "PairedStreams",
    "ParitySequence",
    "RecordedDurations",
    "SharedStream",
    "SparkEpisode",
    "SparkJob",
    "SparkJobState",
    "SparkKernel",
    "SparkPolicy",
    "SparkView",
    "StageState",
    "Waves",
    "parity_sequence",
    "read_dump",
    "read_profiles",
    "schedule_of",
    "sequence",
    "synthetic_profiles",
    "trace_jobs",
    "write_dump",
]

"""The public names of the Spark family."""

from __future__ import annotations

from dagsim.families.spark.kernel import SparkKernel
from dagsim.families.spark.policies import SPARK_POLICIES
from dagsim.families.spark.rewards import JobTime
from dagsim.families.spark.schedule import SparkEpisode, schedule_of
from dagsim.families.spark.spark_executors import ExecutorType
from dagsim.families.spark.spark_job import RecordedDurations, SparkJob, Waves
from dagsim.families.spark.state import DurationSource, Executor, PairedStreams, SharedStream, SparkJobState, StageState
from dagsim.families.spark.view import Action, Commit, SparkPolicy, SparkView
from dagsim.families.spark.workload import (
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
    "SPARK_POLICIES", "Action", "Commit", "Dump", "DurationSource", "Executor", "ExecutorType", "JobTime",
    "PairedStreams", "ParitySequence", "RecordedDurations", "SharedStream", "SparkEpisode", "SparkJob", "SparkJobState",
    "SparkKernel", "SparkPolicy", "SparkView", "StageState", "Waves", "parity_sequence", "read_dump", "read_profiles",
    "schedule_of", "sequence", "synthetic_profiles", "trace_jobs", "write_dump",
]  # fmt: skip

"""Spark: DAGs of stages whose many short tasks run on executors that move between jobs (Mao et al. 2019)."""

from __future__ import annotations

from dagsim.systems.spark.dump import Dump, read_dump, write_dump
from dagsim.systems.spark.durations import DurationSource, PairedStreams, SharedStream
from dagsim.systems.spark.episode import SparkEpisode
from dagsim.systems.spark.executors import ExecutorType
from dagsim.systems.spark.job import RecordedDurations, SparkJob
from dagsim.systems.spark.kernel import SparkKernel
from dagsim.systems.spark.policies import SPARK_POLICIES
from dagsim.systems.spark.profiles import read_profiles
from dagsim.systems.spark.rewards import JobTime
from dagsim.systems.spark.schedule import schedule_of
from dagsim.systems.spark.sequences import ParitySequence, parity_sequence, sequence
from dagsim.systems.spark.state import Executor, SparkJobState, StageState
from dagsim.systems.spark.synthetic import synthetic_profiles
from dagsim.systems.spark.traces import trace_jobs
from dagsim.systems.spark.view import Action, Commit, SparkPolicy, SparkView
from dagsim.systems.spark.waves import Waves

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

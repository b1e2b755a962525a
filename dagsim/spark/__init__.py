"""Spark: DAGs of stages whose many short tasks run on executors that move between jobs (Mao et al. 2019)."""

from __future__ import annotations

from dagsim.spark.draws import Draws, OneStream, PairedStreams
from dagsim.spark.dump import Dump, read_dump, write_dump
from dagsim.spark.episode import Episode
from dagsim.spark.executors import ExecutorType
from dagsim.spark.job import Replay, SparkJob
from dagsim.spark.policies import SPARK_POLICIES
from dagsim.spark.profiles import read_profiles
from dagsim.spark.reward import JobTime
from dagsim.spark.schedule import schedule_of
from dagsim.spark.sequences import ParitySequence, parity_sequence, sequence
from dagsim.spark.simulation import SparkSimulation
from dagsim.spark.state import ActiveJob, ActiveStage, Executor
from dagsim.spark.synthetic import synthetic_profiles
from dagsim.spark.traces import trace_jobs
from dagsim.spark.view import Action, Commit, Policy, View
from dagsim.spark.waves import Waves

__all__ = [
    "SPARK_POLICIES",
    "Action",
    "ActiveJob",
    "ActiveStage",
    "Commit",
    "Draws",
    "Dump",
    "Episode",
    "Executor",
    "ExecutorType",
    "JobTime",
    "OneStream",
    "PairedStreams",
    "ParitySequence",
    "Policy",
    "Replay",
    "SparkJob",
    "SparkSimulation",
    "View",
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

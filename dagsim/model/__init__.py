"""Frozen values that describe a simulation: clusters, jobs, decisions, records and queues."""

from dagsim.model.cluster import Cluster, Node
from dagsim.model.decision import (
    Admit,
    Decision,
    Join,
    Kill,
    Migrate,
    Placement,
    Preempt,
    Reject,
    Resize,
    Share,
    Start,
    Wait,
)
from dagsim.model.elastic import Elastic, Pace, TrainingModel, TrainingState
from dagsim.model.gpu import GPU_TYPES, GpuType, gpu_type
from dagsim.model.job import Condition, Demand, Edge, InFlight, Job, Request, Task, TaskGraph, canonical_json
from dagsim.model.log import JobFacts, Kind, Record, RejectReason
from dagsim.model.queues import Caps, NodeOutage, NodePartition, NodeReservation, Qos, QueueNode, QueueTree

__all__ = [
    "GPU_TYPES",
    "Admit",
    "Caps",
    "Cluster",
    "Condition",
    "Decision",
    "Demand",
    "Edge",
    "Elastic",
    "GpuType",
    "InFlight",
    "Job",
    "JobFacts",
    "Join",
    "Kill",
    "Kind",
    "Migrate",
    "Node",
    "NodeOutage",
    "NodePartition",
    "NodeReservation",
    "Pace",
    "Placement",
    "Preempt",
    "Qos",
    "QueueNode",
    "QueueTree",
    "Record",
    "Reject",
    "RejectReason",
    "Request",
    "Resize",
    "Share",
    "Start",
    "Task",
    "TaskGraph",
    "TrainingModel",
    "TrainingState",
    "Wait",
    "canonical_json",
    "gpu_type",
]

"""Immutable values that describe a simulation: clusters, jobs, decisions, log rows and queues."""

from dagsim.model.cluster import Cluster, Node, OnDemand, PowerState
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
from dagsim.model.job import Attempt, Condition, Demand, Edge, InFlight, Job, Request, Task, TaskGraph, canonical_json
from dagsim.model.log import JobFacts, Kind, Record, RejectReason
from dagsim.model.queues import (
    OVERDUE_S,
    UNLIMITED_S,
    Caps,
    JobCaps,
    JobSuspension,
    NodeOutage,
    NodePartition,
    NodeReservation,
    Qos,
    QueueNode,
    QueueTree,
    TimeLimits,
)

__all__ = [
    "GPU_TYPES", "OVERDUE_S", "UNLIMITED_S", "Admit", "Attempt", "Caps", "Cluster", "Condition", "Decision", "Demand",
    "Edge", "Elastic", "GpuType", "InFlight", "Job", "JobCaps", "JobFacts", "JobSuspension", "Join", "Kill", "Kind",
    "Migrate", "Node", "NodeOutage", "NodePartition", "NodeReservation", "OnDemand", "Pace", "Placement", "PowerState",
    "Preempt", "Qos", "QueueNode", "QueueTree", "Record", "Reject", "RejectReason", "Request", "Resize", "Share",
    "Start", "Task", "TaskGraph", "TimeLimits", "TrainingModel", "TrainingState", "Wait", "canonical_json", "gpu_type",
]  # fmt: skip

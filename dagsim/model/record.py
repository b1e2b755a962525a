"""Events, as rows of one log. Every number dagsim reports is a fold over these rows."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

__all__ = ["JobFacts", "Kind", "Record", "RejectReason"]


class Kind(IntEnum):
    """The kind of a row of the log. A run that spans nodes (a gang) writes one row per node for each of its steps."""

    ARRIVED = 0
    """A job arrived."""
    ADMITTED = 1
    """A job that had to be admitted was."""
    REJECTED = 2
    """A job was turned away, or killed; ``value`` is the ``RejectReason``."""
    STARTED = 3
    """A run took its GPUs, CPUs and memory; ``value`` is the GPUs held on this node (a fraction where shared)."""
    COMPUTING = 4
    """A run that had transfers or a set-up has finished them and now computes."""
    FINISHED = 5
    """A run did all its work and gave its resources back; ``value`` as in STARTED."""
    PREEMPTED = 6
    """A run was stopped by a decision; ``value`` as in STARTED."""
    FAILED = 7
    """A run was stopped by the failure of a node; ``value`` as in STARTED."""
    COMPLETED = 8
    """The last task of a job finished."""
    DOWN = 9
    """A node went down."""
    UP = 10
    """A node came back."""


class RejectReason(IntEnum):
    """The reason why a job was rejected."""

    TOO_LARGE = 1
    """Some task asks more than the whole cluster, empty, can ever give."""
    NO_SUCH_GPU = 2
    """Some task allows only GPU types that the cluster does not have."""
    BY_POLICY = 3
    """The policy rejected it."""
    NO_PLACE = 4
    """It could not wait, and there was no place for it."""
    TOO_SLOW = 5
    """It would have taken longer than is acceptable."""
    TIME_LIMIT = 6
    """It ran until its time limit, and was killed."""
    CANCELLED = 7
    """It was cancelled: preempted by a scheduler that does not requeue, or because no limit would ever let it run."""


class Record(NamedTuple):
    """One row of the log. Fields that a kind does not use are -1 (``instances``, ``gpus``: 0).

    ``job`` counts arrivals from 0; ``task`` is the place in the job's graph; ``run`` counts starts from 0; ``node`` is
    the place in the cluster; ``gpus`` is the set of GPUs held on that node as a bit mask (0 where a node has more than
    62).
    """

    kind: int
    time_s: float
    job: int = -1
    task: int = -1
    run: int = -1
    node: int = -1
    instances: int = 0
    gpus: int = 0
    value: float = 0.0


class JobFacts(NamedTuple):
    """Facts of a job that stay known after it left: one per arrival, in the order of ``Record.job``."""

    id: str
    arrival_s: float
    priority: float
    tenant: str
    deadline_s: float | None
    weight: float
    ideal_s: float
    """The critical path with every task on its fastest allowed GPU type and no waiting: no schedule ends sooner."""
    ideal_gpu_s: float
    """GPU-seconds of all instances, each on its fastest allowed GPU type (CPU-only tasks count 0)."""
    gpus: float
    """The most GPUs any one task can hold at once: instances times GPUs per instance."""
    tasks: tuple[str, ...]
    """The names of its tasks, by ``Record.task``."""
    parents: tuple[tuple[int, ...], ...] = ()
    """Per task those that must end before it starts; empty where the record does not say."""

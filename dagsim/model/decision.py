"""The decisions that a policy can make. They are frozen data, which the kernel checks and carries
out.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from dagsim.model.log import RejectReason


class Waiting(Protocol):
    """A ready task, as shown by a view (``dagsim.systems.cluster.view``)."""

    waiting: int


class Share(NamedTuple):
    """A number of ``instances`` of a task on one node.

    If the demand is a fraction of a GPU, ``gpu`` selects the GPU. If ``gpu`` is None, the kernel
    chooses the fullest GPU on which the instances fit.
    """

    node: int
    instances: int = 1
    gpu: int | None = None


Placement: TypeAlias = tuple[Share, ...]
"""Placement of one start: one share per node."""


class Start(NamedTuple):
    """Start waiting instances of a ready task.

    All instances of a gang must be placed, whereas any number of independent instances may start.
    """

    task: Waiting
    placement: Placement


class Preempt(NamedTuple):
    """Stop a run. Its instances become ready again. The preemption model determines how much work
    remains.
    """

    run: int


class Migrate(NamedTuple):
    """Preempt a run, and start its instances on other nodes at the same time."""

    run: int
    placement: Placement


class Resize(NamedTuple):
    """Preempt a run of an elastic task, and immediately continue it on a different number of GPUs
    or on other nodes. The run first needs the task's restart time.
    """

    run: int
    placement: Placement


class Join(NamedTuple):
    """Start a ready task on the GPUs of a run, so that both share these GPUs. This is only possible
    in simulations with a sharing model.

    The task must need the same number of whole GPUs as the run. Until one of them ends, both run at
    the rates that the sharing model gives for this pair.
    """

    task: Waiting
    run: int


class Admit(NamedTuple):
    """Admit an arrived job (only in simulations with admission control)."""

    job: int


class Reject(NamedTuple):
    """Reject an arrived job (only in simulations with admission control)."""

    job: int


class Kill(NamedTuple):
    """End an unfinished job, as if it had reached its time limit. Its runs are stopped and are not requeued."""

    job: int
    reason: RejectReason = RejectReason.TIME_LIMIT


class Wait(NamedTuple):
    """Make no decision now. The policy is called again no later than ``until_s``, even if nothing
    changes.

    Use this decision in policies that work in time slices or rounds.
    """

    until_s: float


Decision: TypeAlias = Start | Preempt | Migrate | Resize | Join | Admit | Reject | Kill | Wait

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

    If the demand is a fraction of a GPU, ``gpu`` selects the GPU. With None, the kernel chooses the
    fullest GPU on which the instances fit.
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
    """Stop a run. Its instances become ready again, with the remaining work that the preemption
    model determines.
    """

    run: int


class Migrate(NamedTuple):
    """Preempt a run, and start its instances on other nodes at the same time."""

    run: int
    placement: Placement


class Resize(NamedTuple):
    """Preempt a run of an elastic task, and continue it at the same time on a different number of
    GPUs or on other nodes. The run then needs the task's restart time.
    """

    run: int
    placement: Placement


class Join(NamedTuple):
    """Start a ready task on the GPUs of a run, so that both share them (only in simulations with a
    sharing model).

    The task must need the same number of whole GPUs as the run. Both then run at the rates for this
    pair until one of them ends.
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
    """End an unfinished job, as its time limit would. Its runs are stopped and do not return."""

    job: int
    reason: RejectReason = RejectReason.TIME_LIMIT


class Wait(NamedTuple):
    """Make no decision now, but call the policy again no later than ``until_s``, even if nothing
    changes.

    Policies with time slices or rounds use this decision.
    """

    until_s: float


Decision: TypeAlias = Start | Preempt | Migrate | Resize | Join | Admit | Reject | Kill | Wait

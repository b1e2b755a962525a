"""Decisions of policies: frozen data that the kernel checks and carries out."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from dagsim.model.log import RejectReason


class Waiting(Protocol):
    """A ready task, as offered by a view (``dagsim.systems.cluster.view``)."""

    waiting: int


class Share(NamedTuple):
    """``instances`` of a task on one node.

    ``gpu`` selects the GPU to share if the demand is a fraction. With None, the kernel takes the
    fullest GPU that fits it.
    """

    node: int
    instances: int = 1
    gpu: int | None = None


Placement: TypeAlias = tuple[Share, ...]
"""Placement of one start: one share per node."""


class Start(NamedTuple):
    """Start waiting instances of a ready task.

    A gang must be placed completely, whereas any number of independent instances may start.
    """

    task: Waiting
    placement: Placement


class Preempt(NamedTuple):
    """Stop a run. Its instances become ready again, with the work that the preemption model
    leaves."""

    run: int


class Migrate(NamedTuple):
    """Preempt a run and start its instances elsewhere at the same time."""

    run: int
    placement: Placement


class Resize(NamedTuple):
    """Preempt a run of an elastic task and continue it at the same time on a different number of
    GPUs, or elsewhere. The run incurs the task's restart time.
    """

    run: int
    placement: Placement


class Join(NamedTuple):
    """Start a ready task beside a run, on the same GPUs (only in simulations with a sharing model).

    The task must need the same number of whole GPUs as the run. Both then run at the rates for the
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
    """End an unfinished job, as its time limit would: its runs stop and do not come back."""

    job: int
    reason: RejectReason = RejectReason.TIME_LIMIT


class Wait(NamedTuple):
    """Decide nothing now, but call the policy again at ``until_s`` at the latest, even if nothing
    changes.

    Time slices and rounds use this.
    """

    until_s: float


Decision: TypeAlias = Start | Preempt | Migrate | Resize | Join | Admit | Reject | Kill | Wait

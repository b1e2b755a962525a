"""Decisions of policies: frozen data that the kernel checks and carries out."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from dagsim.model.log import RejectReason

__all__ = ["Admit", "Decision", "Kill", "Migrate", "Placement", "Preempt", "Reject", "Share", "Start", "Wait"]


class Waiting(Protocol):
    """A ready task, as the view hands it out (``dagsim.systems.cluster.api.TaskState``)."""

    waiting: int


class Share(NamedTuple):
    """``instances`` of a task on one node. ``gpu`` picks the GPU to share for a fractional demand; ``None`` lets the
    kernel take the fullest one with room."""

    node: int
    instances: int = 1
    gpu: int | None = None


Placement: TypeAlias = tuple[Share, ...]
"""Where the instances of one start go: one share per node."""


class Start(NamedTuple):
    """Start waiting instances of a ready task. A gang must be placed whole; of independent instances, as many as you
    like."""

    task: Waiting
    placement: Placement


class Preempt(NamedTuple):
    """Stop a run; its instances go back to the ready tasks, with the work left that the preemption model keeps."""

    run: int


class Migrate(NamedTuple):
    """Preempt a run and start its instances elsewhere in the same instant."""

    run: int
    placement: Placement


class Admit(NamedTuple):
    """Let a job that arrived into the system (only where the simulation asks for admission)."""

    job: int


class Reject(NamedTuple):
    """Turn a job that arrived away (only where the simulation asks for admission)."""

    job: int


class Kill(NamedTuple):
    """End a job in the system before it is done, as at its time limit: its runs stop, and nothing of it comes back."""

    job: int
    reason: RejectReason = RejectReason.TIME_LIMIT


class Wait(NamedTuple):
    """Decide nothing now, but ask again at ``until_s`` at the latest. That holds even if nothing changes (time slices,
    rounds)."""

    until_s: float


Decision: TypeAlias = Start | Preempt | Migrate | Admit | Reject | Kill | Wait

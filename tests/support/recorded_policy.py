"""A recorded schedule, sent again."""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.errors import IllegalDecision
from dagsim.model import Admit, Decision, Kill, Kind, Preempt, Record, Reject, RejectReason, Share, Start, Wait
from dagsim.model.log import ScheduleLog
from dagsim.systems.cluster.api import ClusterView, TaskState

__all__ = ["RecordedPolicy"]

_KILLED = (RejectReason.TIME_LIMIT, RejectReason.CANCELLED)


class RecordedPolicy:
    """Decides what ``log`` says, when it says so, on the same nodes and GPUs: on the same jobs, models and seed the new
    log is the old one. What happens by itself (arrivals, failures, ends) comes from the simulation again.

    A log does not say which preempted instances of a task a start took; where several wait, those are taken whose end
    fits the record, else the oldest.

    Raises (from ``decide``):
        IllegalDecision: The log starts a task that does not wait now: it was recorded on other jobs.
    """

    clairvoyant = True

    def __init__(self, log: ScheduleLog) -> None:
        self._answers = _conversations(log)
        self._computing_s: dict[int, float] = {}
        self._finished_s: dict[int, float] = {}
        for record in log:
            if record.kind in (Kind.STARTED, Kind.COMPUTING):
                self._computing_s[record.run] = record.time_s
            elif record.kind == Kind.FINISHED:
                self._finished_s[record.run] = record.time_s
        self._next = 0
        self._answered = False
        """The answer of this conversation is given; asked once more, there is nothing to add."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if self._answered:
            self._answered = False
        elif self._next < len(self._answers) and self._answers[self._next][0][0].time_s <= view.now:
            steps = self._answers[self._next]
            self._next += 1
            for step in steps:
                yield self._decision(view, step)
            self._answered = bool(view.ready or view.applicants)  # else the kernel does not ask again
            return
        if self._next < len(self._answers) and (time_s := self._answers[self._next][0][0].time_s) > view.now:
            yield Wait(time_s)

    def _decision(self, view: ClusterView, step: list[Record]) -> Decision:
        first = step[0]
        match first.kind:
            case Kind.ADMITTED:
                return Admit(first.job)
            case Kind.REJECTED if first.value in _KILLED:
                return Kill(first.job, RejectReason(int(first.value)))
            case Kind.REJECTED:
                return Reject(first.job)
            case Kind.PREEMPTED:
                return Preempt(first.run)
            case _:
                task = self._waiting(view, step)
                shared = 0 < task.demand.demand.gpus < 1
                return Start(
                    task, tuple([Share(row.node, row.instances, _only(row.gpus) if shared else None) for row in step])
                )

    def _waiting(self, view: ClusterView, step: list[Record]) -> TaskState:
        """The waiting piece of the task that the recorded run was made of."""
        first, asked = step[0], sum(row.instances for row in step)
        pieces = sorted(
            piece
            for piece in view.ready
            if piece.job.number == first.job and piece.index == first.task and piece.waiting >= asked
        )
        if not pieces:
            raise IllegalDecision(
                f"at {view.now:g} s: the log starts {asked} of task {first.task} of job {first.job}, which do not wait"
            )
        finished_s = self._finished_s.get(first.run)
        if finished_s is not None and len(pieces) > 1:
            type_, begun_s = view.machines.list[first.node].type, self._computing_s[first.run]
            pieces.sort(key=lambda piece: abs(begun_s + piece.truth[type_] * piece.left - finished_s))
        return pieces[0]


def _conversations(log: ScheduleLog) -> list[list[list[Record]]]:
    """The decisions of each conversation that decided something: a decision is the rows of one step (a gang has one per
    node); anything that happened by itself in between parts two conversations of one instant."""
    answers: list[list[list[Record]]] = []
    last: Record | None = None
    for record in log:
        if not _decided(record):
            last = None
            continue
        if last is None or last.time_s != record.time_s:
            answers.append([])
        if last is not None and answers[-1] and record.run >= 0 and (last.kind, last.run) == (record.kind, record.run):
            answers[-1][-1].append(record)
        else:
            answers[-1].append([record])
        last = record
    return answers


def _decided(record: Record) -> bool:
    by_policy = record.kind == Kind.REJECTED and record.value in (RejectReason.BY_POLICY, *_KILLED)
    return by_policy or record.kind in (Kind.STARTED, Kind.PREEMPTED, Kind.ADMITTED)


def _only(mask: int) -> int | None:
    """The one GPU of a mask; ``None`` if there are several, which the kernel then finds again by its own rule."""
    return mask.bit_length() - 1 if mask and mask & (mask - 1) == 0 else None

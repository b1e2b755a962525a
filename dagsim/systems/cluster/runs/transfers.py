"""Transfers over the network before a run computes, while it computes, and after it has stopped.
They transport the outputs of parents, data, and the states of runs (checkpoints, and states that
are written after a run was stopped).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING

from simpy import Interrupt
from simpy.events import Event, Process

from dagsim.model import Cluster, Kind, Placement
from dagsim.model.log import packed_row
from dagsim.systems.cluster.clock import DISTURBANCES, Timer
from dagsim.systems.cluster.forks import COPIED, EMPTY, SAME, Forked
from dagsim.systems.cluster.network.base import Carrier, Flow, ForeseeingCarrier, Storage
from dagsim.systems.cluster.network.run_inputs import output_flows, stored_flows
from dagsim.systems.cluster.state import Run, TaskState, WorkProgress

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel
    from dagsim.systems.cluster.runs.life import Life

_WRITTEN = int(Kind.WRITTEN)


class StateWrite(Forked):
    """The state of a stopped run that is being sent to the storage, while its former nodes may
    already run other tasks.

    If the instances had notice before their node left, they return as one of two ``pieces``. This
    is the first piece if all bytes have arrived by ``deadline_s``, and otherwise the second.
    """

    __slots__ = {
        "deadline_s": SAME,
        "flows": COPIED,
        "pieces": COPIED,
        "process": EMPTY,
        "run": SAME,
    }

    def __init__(self, run: Run, flows: Sequence[Flow]) -> None:
        self.run = run.task.job.number, run.task.index, run.id
        """The numbers of the run's job and task, and of the run itself."""
        self.flows = flows
        self.deadline_s = inf
        self.pieces: tuple[TaskState, ...] = ()
        self.process: Process | None = None


class Transfers(Forked):
    """The transfers of a kernel with a network. Each transfer is a SimPy process that waits for
    flows. If a run is stopped, the transfers of its inputs are interrupted, whereas a transfer that
    writes its state continues.
    """

    __slots__ = {
        "_kernel": COPIED,
        "_life": COPIED,
        "_storage": SAME,
        "_stores": SAME,
        "carrier": COPIED,
        "keeps_states": SAME,
        "writes": COPIED,
    }

    def __init__(self, kernel: ClusterKernel, life: Life, carrier: Carrier, cluster: Cluster) -> None:
        self._kernel = kernel
        self._life = life
        self.carrier = carrier
        storage: Storage | None = getattr(kernel.models.network, "storage", None)
        self._storage = storage
        names = [node.name for node in cluster.nodes]
        self._stores = () if storage is None else tuple(storage.numbers(names))
        """The nodes of the storage."""
        self.keeps_states = storage is not None and storage.checkpoints
        """True if states are sent over the network."""
        self.writes: dict[int, StateWrite] = {}
        """The states of stopped runs that the storage does not have yet, by the piece that needs them."""

    # Data that a run reads before it starts to compute.

    def fetches(self, run: Run) -> bool:
        """Begin to read, over the network, everything that a new run needs. Return False if it
        needs nothing.
        """
        saved = run.task.saved
        state = None if saved is None else saved[1] if run.moves else ()
        run.flows = self._flows(run.task, [(machine.index, count) for machine, count, *_ in run.held], state)
        write = self.writes.get(run.task.piece)
        if write is not None and run.moves and not run.task.waiting:
            # the run itself keeps its state, so no later piece will read it from the storage
            self._cancel(write)
        if not run.flows and write is None:
            return False
        self.fetch(run)
        return True

    def fetch(self, run: Run) -> None:
        """Start the process in which a run reads its inputs."""
        run.phase_until(inf)
        run.process = self._kernel.clock.process(self._fetch(run))

    def _fetch(self, run: Run) -> Generator[Event, object, None]:
        try:
            write = self.writes.get(run.task.piece)
            if write is not None and write.process is not None and not run.moves:
                yield write.process  # wait until the state is in the storage
            yield from self.carrier.fetch(run.flows)
        except Interrupt:
            return
        run.process, run.flows = None, ()
        self._life.set_up(run)

    def finished(self, run: Run) -> None:
        """Record where a run has ended, because the children of its task read its output there."""
        places = run.task.job.places.setdefault(run.task.index, {})
        for machine, count, *_ in run.held:
            places[machine.index] = places.get(machine.index, 0) + count

    def _flows(
        self, task: TaskState, here: Sequence[tuple[int, int]], state: Sequence[tuple[int, int]] | None
    ) -> list[Flow]:
        """Return the flows that a run on the nodes ``here`` must read. A run that has kept its work
        reads its ``state`` instead of its data."""
        flows = [] if self._storage is None else stored_flows(self._storage, self._store(task), task.task, here, state)
        return flows + output_flows(task.job.job.graph, task.index, here, task.job.places)

    def _store(self, task: TaskState) -> int:
        """Return the storage node to which a task's job is assigned."""
        return self._stores[task.job.number % len(self._stores)]

    def expected_s(self, moves: Sequence[tuple[Run, Placement]], *, kept: bool) -> list[float]:
        """Suppose that all these runs moved to their placements now. Return, for each run, the
        seconds until everything that it would read there has arrived, or 0 if the network cannot
        predict this. With ``kept``, the runs keep their work.
        """
        groups = []
        for run, placement in moves:
            state = [(machine.index, count) for machine, count, *_ in run.held] if kept and self.keeps_states else None
            groups.append(self._flows(run.task, [share[:2] for share in placement], state))
        if not any(groups) or not isinstance(self.carrier, ForeseeingCarrier):
            return [0.0] * len(groups)
        return self.carrier.expected_s(groups)

    # Periodic checkpoints, after which the run continues.

    def saves(self, run: Run) -> bool:
        """Begin to write a run's state to the storage. Return False if this takes no time."""
        run.flows = self._state_flows(run.task, [(machine.index, count) for machine, count, *_ in run.held])
        return bool(run.flows)

    def save(self, run: Run, progress: WorkProgress) -> None:
        """Start the process in which a run writes its state."""
        run.phase_until(inf)
        run.process = self._kernel.clock.process(self._save(run, progress))

    def _save(self, run: Run, progress: WorkProgress) -> Generator[Event, object, None]:
        numbers = run.task.job.number, run.task.index, run.id
        try:
            yield from self.carrier.fetch(run.flows)
        except Interrupt:
            self._record_written(numbers, run.flows)
            return
        self._record_written(numbers, run.flows)
        run.process, run.flows = None, ()
        self._life.has_saved(run, progress)

    # States of stopped runs.

    def keep_state(self, run: Run, again: TaskState, kind: int, notice_s: float) -> bool:
        """Begin to send the state of a stopped run to the storage from the nodes that have it.
        ``again`` is the piece of the task that remains. If ``notice_s`` is above 0, these nodes
        leave after that time. In this case, return True, and make ``again`` ready only when it is
        certain which bytes have arrived.
        """
        places: Sequence[tuple[int, int]] = [(machine.index, count) for machine, count, *_ in run.held]
        if run.computing_s is None:
            # The run has not read its state yet. If the state was to come directly from other
            # nodes, they still hold it.
            places = ()
            if run.moves and again.saved is not None:
                places = again.saved[1]
                again.saved = self._kernel.now, again.saved[1]
        if run.task.piece in self.writes:
            self.writes[again.piece] = self.writes[run.task.piece]
        flows = self._state_flows(run.task, places) if kind == Kind.PREEMPTED or notice_s else ()
        if not flows:
            return False
        write = self.writes[again.piece] = StateWrite(run, flows)
        if notice_s:
            lost = self._kernel.piece(run, kind, self._kernel.preemption.kept_on_failure)
            write.deadline_s, write.pieces = self._kernel.now + notice_s, (again, lost)
        self._begin(write)
        return bool(notice_s)

    def cancel(self, number: int) -> None:
        """Stop writing the states of a job that has been killed."""
        for write in {id(write): write for write in self.writes.values() if write.run[0] == number}.values():
            self._cancel(write)

    def resume(self, *, by_estimates: bool) -> None:
        """In a fork, continue the writes that are in progress in the original."""
        for write in {id(write): write for write in self.writes.values()}.values():
            for piece in write.pieces if by_estimates else ():
                piece.believe_estimate()
            self._begin(write)

    def _begin(self, write: StateWrite) -> None:
        write.process = self._kernel.clock.process(self._write(write))
        if write.deadline_s < inf:
            timer = Timer(self._kernel.clock, write.deadline_s, DISTURBANCES)
            timer.callbacks.append(lambda _: self._interrupt(write))

    def _write(self, write: StateWrite) -> Generator[Event, object, None]:
        arrived = True
        try:
            yield from self.carrier.fetch(write.flows)
        except Interrupt:
            arrived = False
        self._record_written(write.run, write.flows)
        self._forget(write)
        if write.pieces:
            self._kernel.frontier.add(write.pieces[0 if arrived else 1], self._kernel.now)
            self._kernel.changed = True

    def _interrupt(self, write: StateWrite) -> None:
        if write.process is not None and write.process.is_alive:
            write.process.interrupt()

    def _cancel(self, write: StateWrite) -> None:
        """Stop writing a state that is no longer needed."""
        self._forget(write)
        write.pieces = ()
        self._interrupt(write)

    def _forget(self, write: StateWrite) -> None:
        self.writes = {piece: other for piece, other in self.writes.items() if other is not write}

    def _state_flows(self, task: TaskState, places: Iterable[tuple[int, int]]) -> list[Flow]:
        """Return the flows that carry the state of instances from their nodes to the storage."""
        size, store = task.task.memory_gb * 1e9, self._store(task)
        return [Flow(node, store, size * count) for node, count in places if size and node != store]

    def _record_written(self, run: tuple[int, int, int], flows: Sequence[Flow]) -> None:
        for flow in flows:
            if sent := flow.sent(self._kernel.now):
                self._kernel.record(packed_row(_WRITTEN, self._kernel.now, *run, flow.source, 0, 0, sent / 1e9))

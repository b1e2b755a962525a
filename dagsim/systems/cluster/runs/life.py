"""The phases of runs that need more than a single timeout. Such runs may fetch inputs and be set up
before they compute, may compute at changing rates, and may write checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from simpy.events import Event

from dagsim.errors import ModelError
from dagsim.model import Cluster, Elastic, Kind, Placement, RejectReason, TrainingState
from dagsim.model.arithmetic import bits
from dagsim.systems.cluster.clock import COMPLETIONS, Clock, Timer
from dagsim.systems.cluster.forks import COPIED, SAME, Fork, Forked
from dagsim.systems.cluster.legality import placed
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.kept_work import KeptWork
from dagsim.systems.cluster.network.base import Communication
from dagsim.systems.cluster.resources.nodes import Allotted, DemandClass
from dagsim.systems.cluster.runs.gangs import Gangs
from dagsim.systems.cluster.runs.transfers import Transfers
from dagsim.systems.cluster.state import Run, TaskState, WorkProgress

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel


class Life(Forked):
    """The phases and rates of the runs in a kernel. A kernel has this object only if a model or an
    elastic task needs it. Without it, every run computes from its start to its end.

    The phases of a run follow each other without waiting for the kernel:

        begin ─> [fetch: a process] ─> [set up: the run as an event] ─> compute ─> the kernel ends it

    While a run computes at rate 1, the run itself is the event of its end. Otherwise, the run has a
    ``WorkProgress``, whose event ends the current period of constant rate: an epoch, the work
    before a checkpoint, or the whole run. When the rate changes, the work done so far is recorded
    and a new event is created. The old event stays on the clock but does nothing.
    """

    __slots__ = {
        "_gangs": COPIED,
        "_kernel": COPIED,
        "_preemption": SAME,
        "_served": COPIED,
        "_setup": SAME,
        "_sharing": SAME,
        "_transfers": COPIED,
    }

    def __init__(self, kernel: ClusterKernel, cluster: Cluster) -> None:
        models = kernel.models
        self._kernel = kernel
        self._setup, self._sharing, self._preemption = models.setup, models.sharing, models.preemption
        carrier = None if models.network is None else models.network.carrier(kernel.clock, cluster)
        self._transfers = None if carrier is None else Transfers(kernel, self, carrier, cluster)
        self._gangs = Gangs.of(models, kernel.machines.types, carrier)
        self._served: list[list[int]] | None = None
        """The job that each GPU of each machine ran last; stored only for a set-up model."""
        if models.setup is not None:
            self._served = [[-1] * node.gpus for node in cluster.nodes]

    @staticmethod
    def is_needed(models: Models, cluster: Cluster) -> bool:
        """Return True if runs may need more than one timeout, even if no task is elastic."""
        preemption = models.preemption
        costs = preemption.restart_s or preemption.checkpoint_s_per_gb or preemption.checkpoint_interval_s is not None
        others = (models.setup, models.network, models.sharing, models.communication)
        return (
            bool(costs)
            or any(model is not None for model in others)
            or isinstance(models.runtime, Communication)
            or any(node.mig_s is not None for node in cluster.nodes)
        )

    @property
    def pending(self) -> bool:
        """True while the state of any stopped run is being sent."""
        return self._transfers is not None and bool(self._transfers.writes)

    @property
    def by_network(self) -> bool:
        """True if the states of stopped runs are sent over the network."""
        return self._transfers is not None and self._transfers.keeps_states

    # Phases of a run.

    def begin(self, run: Run) -> None:
        """Begin a run: fetch its inputs, then set it up, then compute."""
        run.setup_s = run.task.restore_s + self._setup_s(run)
        if self._transfers is None or not self._transfers.fetches(run):
            self.set_up(run)

    def set_up(self, run: Run) -> None:
        """Set up a run that has all its inputs, if it needs set-up. Then start its computation."""
        kernel, now, preemption = self._kernel, self._kernel.now, self._preemption
        if run.setup_s:
            run.callbacks = [self._has_set_up]
            kernel.clock.at(run.phase_until(now + run.setup_s), COMPLETIONS, run)
            return
        if preemption.checkpoint_interval_s is not None and not (self.by_network or run.task.training is not None):
            # the times of its checkpoints are known in advance, so they are added to its duration
            run.take(preemption.with_writes_s(run.true_seconds))
        end_s = run.compute(now)
        if preemption.checkpoint_interval_s is not None and self.by_network:
            run.progress = WorkProgress(now)
            run.progress.checkpoint = preemption.next_checkpoint_s(0.0, run.true_seconds)
        elif preemption.checkpoint_interval_s is not None and run.task.training is not None:
            run.progress = WorkProgress(now)
            self._has_written(run.progress, run.task.training)
        if now > run.started_s:
            kernel.record_run(Kind.COMPUTING, run)
        run.callbacks = [kernel.end]
        self.set_pace(run)
        if run.progress is None:  # for a run with a ``progress``, ``set_pace`` sets the event
            kernel.clock.at(end_s, COMPLETIONS, run)

    def _has_set_up(self, event: Event) -> None:
        run: Run = event  # type: ignore[assignment]
        run.setup_s = 0.0
        self.set_up(run)

    def _setup_s(self, run: Run) -> float:
        """Return the set-up time: the time according to the set-up model plus the time for creating
        GPU partitions.
        """
        parting_s = max([machine.node.mig_s or 0.0 for machine, *_ in run.held if machine.remade], default=0.0)
        if self._setup is None:
            return parting_s
        return parting_s + self._setup.seconds(run.task.task, run.task.job.number, self._serve(run))

    def _serve(self, run: Run) -> tuple[int, ...]:
        """Record for a set-up model that the GPUs of a run serve its job from now on. Return the
        job that each of them served before, or -1 if it served none.
        """
        assert self._served is not None
        number, previous = run.task.job.number, list[int]()
        for machine, _, mask, _ in run.held:
            served = self._served[machine.index]
            for gpu in bits(mask):
                previous.append(served[gpu])
                served[gpu] = number
        return tuple(previous)

    def ended(self, run: Run, kind: int) -> None:
        """Discard the state of a run that has finished or was stopped. The run has already released
        its nodes.
        """
        if self._transfers is not None and kind == Kind.FINISHED:
            self._transfers.finished(run)
        if self._gangs is not None and run.progress is not None:
            self._gangs.end(run.progress)
        for other in run.beside:
            partner = self._kernel.running[other]
            partner.beside = ()
            if partner.computing_s is not None:
                self.set_pace(partner)

    # Rates.

    def set_rate(self, run: Run, rate: float, until: float = inf, after_s: float | None = None) -> None:
        """Change the rate of a computing run from now on, and reschedule its end. The rate of an
        elastic task is computed again when its progress reaches ``until``, or ``after_s``
        seconds from now.

        Raises:
            ModelError: The run is not computing yet, or the rate is not a finite number of 0 or
                more.
        """
        now, progress, training = self._kernel.now, run.progress, run.task.training
        if run.computing_s is None or not 0 <= rate < inf:
            raise ModelError(
                f"at {now:g} s: run {run.id} of {run.task.name} cannot continue at rate {rate!r}; the run must be "
                "computing, and its rate must be a finite number of 0 or more"
            )
        if progress is None:
            if rate == 1.0 and training is None:
                return
            progress = run.progress = WorkProgress(run.computing_s)
        elif rate == progress.rate and until == progress.until and progress.event is not None:
            return
        self.settle(run, progress)
        run.disarm()
        if rate != progress.rate or progress.since_s == run.computing_s:
            self._kernel.record_run(Kind.RATE, run, rate)
        progress.rate, progress.usual, progress.until = rate, rate, until
        end = min(run.true_seconds, progress.checkpoint)
        left = end - progress.done if training is None else until - training.progress
        if after_s is None:
            after_s = left / rate if rate else inf
        if training is not None and rate and progress.checkpoint < progress.done + after_s:
            progress.phase, after_s = "work", progress.checkpoint - progress.done
        run.phase_until(now + max(after_s, 0.0))
        self._set_end(run, progress)
        self._kernel.clock.tidy()
        self._tell_rate(run)

    def set_pace(self, run: Run) -> None:
        """Set the rate of a computing run. It depends on the run's training, on its communication,
        or on the run that shares its GPUs.
        """
        task, training = run.task, run.task.training
        if run.process is not None:
            return  # the run is writing a checkpoint
        if training is not None:
            self.set_rate(run, *training.pace())
        elif self._gangs is not None and self._gangs.begin(run, self._kernel.now, partial(self.set_rate, run)):
            return
        elif self._sharing is not None:
            rate, gpu = 1.0, self._kernel.machines.types[run.type]
            for other in run.beside:
                partner = self._kernel.running[other].task.task
                rate = self._sharing.rate(task.task, partner, "" if gpu is None else gpu.name, self._kernel.now)
            self.set_rate(run, rate)
        elif run.progress is not None:
            self.set_rate(run, 1.0)

    def join(self, host: Run, task: TaskState) -> None:
        """Start the task on the GPUs of the run ``host``, so that both share them."""
        for machine, count, *_ in host.held:
            self._kernel.machines.join(machine, task.demand, count)
        self._kernel.launch(task, host.instances, host.held, beside=host)
        if host.computing_s is not None:
            self.set_pace(host)

    def settle(self, run: Run, progress: WorkProgress) -> None:
        """Bring the progress of a run up to date by adding the work done since the last call."""
        now, training = self._kernel.now, run.task.training
        work = (now - progress.since_s) * progress.rate
        if training is None:
            progress.done += work
        else:
            training.advance(work)
            progress.done += now - progress.since_s if progress.rate else 0.0
        progress.since_s = now

    def expected_rate(self, task: TaskState, placement: Placement) -> float:
        """See ``ClusterView.expected_rate``."""
        if self._gangs is None:
            return 1.0
        return self._gangs.expected_rate(task, placement, self._kernel.machines.list, self._kernel.now)

    def expected_moves_s(self, moves: Sequence[tuple[Run, Placement]]) -> list[float]:
        """See ``ClusterView.expected_moves_s``."""
        kept, stops = self._preemption.on_resume == "resume", self._preemption
        fixed_s = [stops.cost_s(run.task.task.memory_gb, kept and not self.by_network) for run, _ in moves]
        if self._transfers is None:
            return fixed_s
        sent_s = self._transfers.expected_s(moves, kept=kept)
        return [fixed + sent for fixed, sent in zip(fixed_s, sent_s, strict=True)]

    def _set_end(self, run: Run, progress: WorkProgress) -> None:
        """Schedule the end of the current constant-rate period, unless it never ends."""
        if not run.is_endless:
            progress.event = Timer(self._kernel.clock, run.scheduled_end_s, COMPLETIONS, run)
            progress.event.callbacks = [self._reached]

    def _reached(self, event: Event) -> None:
        """Handle the end of a period of constant rate: end the run, end the epoch of an elastic
        run, or begin a checkpoint.
        """
        run: Run = event.value  # type: ignore[assignment]
        training, progress = run.task.training, run.progress
        assert progress is not None
        progress.event = None
        if training is not None and progress.phase != "epoch":
            self._write_elastic(run, progress, training)
        elif training is not None:
            progress.done += self._kernel.now - progress.since_s if progress.rate else 0.0
            training.end_epoch()
            progress.since_s = self._kernel.now
            if training.done:
                self._kernel.end(run)
            else:
                self.set_pace(run)
                self._kernel.changed = True
        elif progress.checkpoint < run.true_seconds:
            self._checkpoint(run, progress)
        else:
            self._kernel.end(run)

    def _tell_rate(self, run: Run) -> None:
        for tell in self._kernel.frontier.rated:
            tell(run, self._kernel.now)

    # Checkpoints, and the work left after a stop.

    def _checkpoint(self, run: Run, progress: WorkProgress) -> None:
        """Pause a run while its state is being written to the storage."""
        assert self._transfers is not None
        self.settle(run, progress)
        # the exact value, because ``settle`` adds up steps, each of which is rounded
        progress.done = progress.checkpoint
        if not self._transfers.saves(run):
            self.has_saved(run, progress)
            return
        if self._gangs is not None:
            self._gangs.end(progress)
        self._kernel.record_run(Kind.RATE, run, 0.0)
        progress.rate = 0.0
        self._transfers.save(run, progress)
        self._tell_rate(run)

    def has_saved(self, run: Run, progress: WorkProgress) -> None:
        """Continue a run after its state has arrived in the storage."""
        progress.saved = progress.done
        progress.checkpoint = self._preemption.next_checkpoint_s(progress.saved, run.true_seconds)
        if progress.rate:
            self.set_rate(run, progress.rate)
        else:
            self.set_pace(run)

    def _write_elastic(self, run: Run, progress: WorkProgress, training: TrainingState) -> None:
        """Begin to write a checkpoint of an elastic run, or continue the run once it has been written."""
        if progress.phase == "work":
            self.settle(run, progress)
            progress.phase = "write"
            self.set_rate(run, 0.0, training.progress, self._preemption.checkpoint_write_s)
        else:
            self._has_written(progress, training)
            self.set_pace(run)
        self._kernel.changed = True

    def _has_written(self, progress: WorkProgress, training: TrainingState) -> None:
        """Record the saved state of an elastic run, and schedule its next checkpoint."""
        assert self._preemption.checkpoint_interval_s is not None
        progress.state, progress.phase = training.copy(), "epoch"
        progress.checkpoint = progress.done + self._preemption.checkpoint_interval_s

    def piece(self, run: Run, number: int, kind: int, kept: KeptWork) -> TaskState:
        """Create the piece with this number, which consists of the instances of a stopped run."""
        task, elastic = run.task, run.task.task.elastic
        saves = kept is not KeptWork.NOTHING and run.computing_s is not None
        left = 1.0 if kept is KeptWork.NOTHING else self._left(run, kept)
        cost_s = self._preemption.cost_s(task.task.memory_gb, saves and not self.by_network)
        again = task.piece_of(number, run.instances if elastic is None else task.task.instances, left, cost_s)
        if kept is KeptWork.NOTHING:
            again.saved = None
            if elastic is not None:
                again.training = elastic.training.start()
        elif kept is KeptWork.CHECKPOINT and run.progress is not None and run.progress.state is not None:
            again.training = run.progress.state
        elif self.by_network and saves and left < task.left:
            nodes = () if kind == Kind.FAILED else tuple([(machine.index, count) for machine, count, *_ in run.held])
            again.saved = self._kernel.now, nodes
        return again

    def keeps_state(self, run: Run, again: TaskState, kind: int, kept: KeptWork, notice_s: float) -> bool:
        """Begin to send the state of a stopped run to the storage, if there is one. Return True if
        the piece ``again`` does not become ready immediately.
        """
        if self._transfers is None or not self.by_network or kept is not KeptWork.ALL:
            return False
        return self._transfers.keep_state(run, again, kind, notice_s)

    def killed(self, number: int) -> None:
        """Discard all data that is still stored for a job."""
        if self._transfers is not None:
            self._transfers.cancel(number)

    def _left(self, run: Run, kept: KeptWork) -> float:
        """Return the fraction of the task's work that would remain if the run stopped now."""
        task, progress, preemption = run.task, run.progress, self._preemption
        if progress is not None:
            self.settle(run, progress)
            if task.training is not None:
                state = progress.state if kept is KeptWork.CHECKPOINT and progress.state is not None else task.training
                return max(0.0, 1.0 - state.progress / state.total)
            passed_s = progress.done
        else:
            passed_s = 0.0 if run.computing_s is None else self._kernel.now - run.computing_s
        whole_s, saved = run.true_seconds, kept is KeptWork.CHECKPOINT
        if self.by_network:
            if saved:
                passed_s = 0.0 if progress is None else progress.saved
        elif preemption.checkpoint_interval_s is not None and run.computing_s is not None:
            # both durations include the time for writing checkpoints, which ``worked_s`` subtracts
            whole_s = preemption.worked_s(whole_s)
            passed_s = preemption.worked_s(passed_s, saved=saved)
        return task.left * max(0.0, 1.0 - (passed_s / whole_s if whole_s else 0.0))

    # Elastic tasks.

    def enter_elastic(self, task: TaskState, elastic: Elastic) -> DemandClass:
        """Create the training state of an elastic task. Return the demand for the task's minimum
        size, which determines whether the task can ever run.

        Raises:
            ModelError: No GPU type has enough GPUs for the minimum size of the task.
        """
        machines, demand, job = self._kernel.machines, task.demand, task.job.job
        task.training = elastic.training.start()
        if self._preemption.checkpoint_interval_s is not None and self.by_network:
            raise ModelError(
                f"job {job.id!r}: elastic tasks cannot write periodic checkpoints over a network, so "
                "leave out preemption.checkpoint_interval_s"
            )
        least = machines.compile(task.task.demand, elastic.least, demand.terms)
        if least.rejected is RejectReason.TOO_LARGE:
            most = max([machines.capacity(least, type_) for type_ in least.types])
            raise ModelError(
                f"job {job.id!r}, task {task.task.name!r}: the task needs {elastic.least} to "
                f"{elastic.most} instances, but at most {most} fit on nodes of one type"
            )
        return least

    def place_elastic(self, task: TaskState, shares: list[Allotted], training: TrainingState | None) -> None:
        """Set an elastic task's number of instances to the number in its placement. The task
        continues with the state ``training``, which defaults to the task's own state.
        """
        assert task.task.elastic is not None
        task.training = training or placed(self._kernel, task, shares)
        task.restore_s += task.task.elastic.restart_s
        task.waiting = sum(share.instances for share in shares)

    def resize(self, run: Run, shares: list[Allotted]) -> None:
        """Stop a run of an elastic task, and start the task again on ``shares``."""
        if run.progress is not None:
            self.settle(run, run.progress)
        # an illegal placement raises here, before anything is stopped
        training = placed(self._kernel, run.task, shares)
        task = self._kernel.preempt(run)
        self._kernel.occupy(task, shares, training if self._preemption.on_resume == "resume" else None)

    # Methods for simulations that begin with jobs in the system, and for forks.

    def recall(self, run: Run) -> None:
        """Set up the rate and the checkpoints of a run that started to compute before the beginning
        of the simulation.
        """
        if self._setup is not None:
            self._serve(run)
        preemption, begins_s = self._preemption, self._kernel.now
        if self.by_network and preemption.checkpoint_interval_s is not None:
            progress = run.progress = WorkProgress(run.computing_s or 0.0)
            progress.saved = (
                (begins_s - progress.since_s) // preemption.checkpoint_interval_s * preemption.checkpoint_interval_s
            )
            progress.checkpoint = preemption.next_checkpoint_s(progress.saved, run.true_seconds)
        if self._gangs is not None or run.progress is not None:
            self.set_pace(run)

    def fork_network(self, fork: Fork, clock: Clock) -> None:
        """In a fork, register the copy of the network, which uses the fork's own clock, among the
        copies.
        """
        if self._transfers is not None:
            fork.twins[id(self._transfers.carrier)] = self._transfers.carrier.fork(clock)

    def resume(self, *, by_estimates: bool) -> None:
        """In a fork, continue the writes to storage that are in progress in the original."""
        if self._transfers is not None:
            self._transfers.resume(by_estimates=by_estimates)

    def resume_run(self, run: Run, original: Run) -> None:
        """In a fork, continue the current phase of a run."""
        progress = run.progress
        if progress is not None and original.progress is not None and self._gangs is not None:
            self._gangs.adopt(progress, original.progress.gang, partial(self.set_rate, run))
        if original.process is not None:
            assert self._transfers is not None
            if progress is None:
                self._transfers.fetch(run)
            else:
                self._transfers.save(run, progress)
        elif progress is not None:
            self._set_end(run, progress)
        else:
            run.callbacks = [self._has_set_up if run.computing_s is None else self._kernel.end]
            self._kernel.clock.at(run.scheduled_end_s, COMPLETIONS, run)

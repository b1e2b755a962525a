"""Gavel as published, with its rounds and its policies, on dagsim's kernel (Narayanan et al., OSDI
2020).

The policy keeps Gavel's own ledger (``round_ledger.py``), and starts and stops runs at the ends of
its micro-tasks. ``scripts/validate_gavel.py`` compares the end times of all jobs with those in
Gavel's simulator.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from math import inf, isnan, ulp
from typing import NamedTuple

from dagsim.errors import ConfigError, ModelError, require
from dagsim.families.gavel.allocations import allocator
from dagsim.families.gavel.round_ledger import Allocator, GavelJob, GavelLedger, MicroTask, PairRates
from dagsim.model import Decision, Join, Kill, Preempt, RejectReason, Start, Task, Wait
from dagsim.systems.cluster.api import ClusterView, Run, Sharing, TaskState
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing, start_of
from dagsim.systems.cluster.policies.waiting_tasks import WaitingTasks

_SAME_S = 1e-6
"""Times that differ by less are the same: the books and the kernel add up the same seconds in
different orders.
"""
_SAME_PART = 1e-6
"""Amounts of work, as parts of the whole, that differ by less are the same."""
_NO_TIME_S = 1e-9
"""Seconds that a task without work takes."""
_FEW = 16
"""Fewer rounds than these are not worth passing over."""


class Gavel:
    """Runs tasks in rounds that approximate the share of its time that each task should spend on
    each GPU type, as Gavel does.

    ``policy`` is the Gavel policy that computes the shares. It is given by its name in Gavel
    (``max_min_fairness_perf``, ``finish_time_fairness_perf``, ``min_total_duration_perf``,
    ``isolated``, ``fifo_perf``, ``allox`` and more), or is any ``Allocator``. Shares are computed
    when tasks arrive and end, but at most once every ``gap_s`` seconds. In each round of
    ``round_s`` seconds, the tasks with the highest priority run. A task's priority is its share
    divided by the fraction of time for which it has run so far. Tasks that become ready wait for
    the next round. With ``whole_steps``, ``Task.work`` is a number of steps. Only whole steps are
    done in a round, so the round ends slightly early. ``seed`` determines the order of types in
    policies that do not distinguish them. Only the ``window`` oldest tasks compete; Gavel itself
    has no such limit. An elastic task runs with its ``instances``, at the rate of its current
    phase.

    Policies with ``_packed`` in their names let two tasks with equal numbers of GPUs share their
    GPUs. These policies need a sharing model. ``pair_rates`` (in steps per second) replaces the
    rates of the sharing model when shares are computed.

    A task that continues keeps its GPUs, as with Gavel's leases. It is stopped at the end of its
    micro-task only with ``whole_steps`` and preemption without cost, as in Gavel's simulator. Runs
    are never stopped if preemption loses work, or before they have begun to compute. While all
    tasks fit and keep their GPUs, many rounds are skipped in one step, with the same result
    (``GavelLedger.repeats``). The policy uses estimates, and is preemptive. It is costly by
    definition: each solve is a program with tasks x types variables (Narayanan et al., OSDI 2020;
    as published, checked by ``scripts/validate_gavel.py``).

    Raises:
        ConfigError: There is no such policy, or a time is not positive; or, in a simulation, the
        policy needs pairs but there is no sharing model.
    """

    forgets = "when its rounds began, and how long each task had run on each type"

    def __init__(
        self,
        policy: str | Allocator = "max_min_fairness_perf",
        round_s: float = 360.0,
        gap_s: float = 1920.0,
        seed: int = 0,
        whole_steps: bool = False,
        window: int = 200,
        placement: str | PlacementRule = "best-fit",
        pair_rates: PairRates | None = None,
    ) -> None:
        require(round_s > 0, "gavel: round_s must be positive", round_s)
        require(gap_s >= 0, "gavel: gap_s must be 0 or more", gap_s)
        require(seed >= 0, "gavel: seed must be 0 or more", seed)
        require(window >= 1, "gavel: window must be 1 or more", window)
        self.allocator = allocator(policy) if isinstance(policy, str) else policy
        self.round_s = round_s
        self.gap_s = gap_s
        self.seed = seed
        self.whole_steps = whole_steps
        self.window = window
        self.pair_rates = pair_rates
        self._place = placing(placement).place
        self._tasks: dict[int, Task] = {}
        """Tasks in the books, by ``TaskState.order``; kept only for pairs."""
        self._ledger: GavelLedger | None = None
        self._type_of: dict[str, int] = {}
        """Index of each GPU type by name."""
        self._due: dict[int, _Due] = {}
        """The micro-tasks in the current round, by ``TaskState.order``."""
        self._ends_s = -inf
        """Time at which the current round ends."""
        self._still_s = -inf
        """Time until which the rounds after the present one change nothing, or -inf if there are
        none."""

    @property
    def micro_tasks(self) -> Sequence[MicroTask]:
        """The micro-tasks in the current round. Their keys are ``TaskState.order``."""
        return [] if self._ledger is None else self._ledger.round

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        waiting = view.index(Gavel, lambda: WaitingTasks(view.machines))
        if start := start_of(self._place, view, waiting.without_gpus.first_fit()):
            yield from start
            return
        ledger, now = self._ledger or self._open(view), view.now
        self._pass_rounds(ledger, now)
        stoppable = view.preemption.on_resume == "resume"
        leases = not (self.whole_steps and stoppable) or view.preemption.cost_s(1.0, True) > 0
        runs = runs_by_task(view.running.values())
        next_s = yield from self._stop_due(runs, leases, now)
        if next_s < inf or now < self._ends_s:
            yield Wait(min(next_s, self._ends_s) if self._ends_s > now else next_s)
            return
        yield from self._close(view, ledger, waiting, runs)
        self._enter(ledger, waiting)
        self._renew_rates(view, ledger, waiting, runs)
        if ledger.jobs:
            yield from self._open_round(view, ledger, waiting, runs if stoppable else {})
        # If nothing is running now, the chosen tasks could not start because machines are down, or
        # because CPUs or memory are missing. In that case, start the oldest task that fits.
        if not view.running and not view.pending:
            yield from start_of(self._place, view, waiting.first_fit(view))
        if self._ends_s > view.now:
            wake_s = min([self._ends_s, *[due.finish_s for due in self._due.values() if due.finish_s > view.now]])
            self._still_s = self._still(view, ledger, waiting) if leases else -inf
            yield Wait(max(wake_s, self._still_s))

    def _stop_due(self, runs: dict[int, list[Run]], leases: bool, now: float) -> Generator[Decision, None, float]:
        """Stop the runs whose micro-tasks are over, and remove them from ``runs``. With ``leases``,
        stop none. Return the next time at which runs should stop, or ``inf`` if there is none.
        """
        next_s = inf
        for order, due in self._due.items():
            if order not in runs or (leases and not due.ends):
                continue
            stop_s = due.latest_s if due.ends else due.finish_s
            if stop_s > now:
                next_s = min(next_s, stop_s)
            elif not leases:
                for run in [run for run in runs.pop(order) if run.started_s < now]:
                    yield Preempt(run.id)
        return next_s

    def _enter(self, ledger: GavelLedger, waiting: WaitingTasks) -> None:
        """Add waiting tasks to the ledger, the oldest first, as long as the window has space."""
        for task in sorted(waiting.oldest(), key=lambda task: (task.ready_s, task.order)):
            if task.order not in ledger.jobs and len(ledger.jobs) < self.window:
                ledger.arrive(self._job(task))

    def _still(self, view: ClusterView, ledger: GavelLedger, waiting: WaitingTasks) -> float:
        """Return the time until which no round changes anything, or -inf if that time is near or
        uncertain.

        All tasks must be running, each at a rate that only a decision can change, and no task may
        be nearly done. The ledger and the kernel must agree about the remaining work, both now and
        at the end of that time, so that no round in between corrects it.
        """
        runs = runs_by_task(view.running.values())
        held = [run for order in runs for run in runs[order]]
        if waiting.oldest(1) or runs.keys() != ledger.jobs.keys() or not ledger.round:
            return -inf
        rounds = min([ledger.jobs[task.key[0]].left / task.steps[0] if task.steps[0] else 0.0 for task in ledger.round])
        if rounds < 2 * _FEW or any(run.computing_s is None or run.progress is not None for run in held):
            return -inf
        if not ledger.repeats():
            return -inf
        length_s = max([task.steps[0] / ledger.rates(task.key, task.type)[0] for task in ledger.round])
        count = min(int(rounds) - _FEW, 1 << 30)
        while count >= _FEW:
            end_s = self._ends_s + count * length_s
            lost_s = (count + 1) * ulp(end_s)
            if all(
                self._agrees(ledger.jobs[task.key[0]], task, runs[task.key[0]], time_s, past, lost_s)
                for task in ledger.round
                for time_s, past in ((self._ends_s, 1), (end_s, count + 1))
            ):
                return end_s
            count //= _FEW
        return -inf

    def _agrees(
        self, job: GavelJob, task: MicroTask, runs: Sequence[Run], time_s: float, past: int, lost_s: float
    ) -> bool:
        """Return True if the ledger and the kernel agree about a job's remaining work at
        ``time_s``, after ``past`` more rounds. Rounding errors, which add up to at most ``lost_s``
        seconds, are taken into account.
        """
        left = max([part_left(run, time_s) for run in runs]) * job.steps
        lost = lost_s * job.rate[task.type] + past * ulp(job.steps)
        return abs(left - (job.left - past * task.steps[0])) + lost < _SAME_PART * job.steps

    def _pass_rounds(self, ledger: GavelLedger, now: float) -> None:
        """Advance the ledger to the current round, if the rounds before it changed nothing."""
        if self._still_s > self._ends_s:
            self._ends_s = ledger.pass_rounds(self._ends_s, min(now, self._still_s))
            for task in ledger.round:
                self._due |= dict.fromkeys(task.key, _Due(task.finish_s, task.finish_s, ends=False))
        self._still_s = -inf

    def _open(self, view: ClusterView, books: type[GavelLedger] = GavelLedger) -> GavelLedger:
        """Create the ledger."""
        types = [gpu for gpu in view.gpu_types if gpu is not None]
        self._type_of = {gpu.name: view.gpu_types.index(gpu) for gpu in types}
        rates = self.pair_rates
        if self.allocator.pairs and rates is None:
            if view.sharing is None:
                raise ConfigError(
                    "gavel: the policy lets two tasks share GPUs, but the simulation has no sharing "
                    "model; add one, such as sharing: {default: 0.7}"
                )
            rates = _ModelledPairs(view.sharing, self._tasks)
        order = [gpu.name for gpu in sorted(types, key=lambda gpu: -gpu.fp32_tflops)]
        self._ledger = books(
            self._capacity(view),
            self.allocator,
            order=order,
            seed=self.seed,
            round_s=self.round_s,
            gap_s=self.gap_s,
            pair_rates=rates,
        )
        return self._ledger

    def _capacity(self, view: ClusterView) -> dict[str, int]:
        """Return the number of GPUs on machines that are up, by type."""
        capacity = dict.fromkeys(self._type_of, 0)
        for machine in view.machines.list:
            gpu = view.gpu_types[machine.type]
            if machine.up and gpu is not None:
                capacity[gpu.name] += machine.gpus
        return capacity

    def _job(self, task: TaskState) -> GavelJob:
        """Convert the task to a ``GavelJob``. The job's rates are exact if the task states them."""
        work = (task.task.work or 1.0) if task.training is None else task.training.total
        if task.job.has_limits and task.training is None and not self.whole_steps:
            # the task's time limit serves as its length, because its true run time is not known
            work = max(task.best_s, _NO_TIME_S)
        rate = dict(task.task.speeds or {}) if self.whole_steps else {}
        for name, type_ in self._type_of.items():
            if task.seconds[type_] == inf:
                rate[name] = 0.0
            elif name not in rate:
                rate[name] = work / max(task.seconds[type_], _NO_TIME_S)
        job = task.job.job
        if self.allocator.pairs:
            self._tasks[task.order] = task.task
        return GavelJob(
            task.order, rate, width(task), work, job.weight, task.ready_s, task.task.model, whole_steps=self.whole_steps
        )

    def _renew_rates(
        self, view: ClusterView, ledger: GavelLedger, waiting: WaitingTasks, runs: dict[int, list[Run]]
    ) -> None:
        """Update the rates of elastic tasks, which may have changed since the last round."""
        for order, job in ledger.jobs.items():
            run = runs[order][0] if order in runs else None
            piece = waiting.get(order) if run is None else run.task
            if piece is None or piece.training is None or piece.training.done:
                continue
            job.rate = {name: present_rate(view, piece, type_) for name, type_ in self._type_of.items()}

    def _close(
        self, view: ClusterView, ledger: GavelLedger, waiting: WaitingTasks, runs: dict[int, list[Run]]
    ) -> Iterator[Decision]:
        """Close the round that has ended in the ledger."""
        now_s = self._ends_s if abs(self._ends_s - view.now) <= _SAME_S else view.now
        undone: dict[int, float] = {}
        for task in ledger.round:
            for order, steps in zip(task.key, task.steps, strict=True):
                job, pieces = ledger.jobs[order], waiting.pieces(order)
                parts = [piece.expected_left for piece in pieces]
                parts += [part_left(run, view.now) for run in runs.get(order, ())]
                left, planned = max(parts, default=0.0) * job.steps, job.left - steps
                if bool(parts) != (planned > 0) or abs(left - planned) > _SAME_PART * job.steps:
                    undone[order] = left - planned
        for order, end_s in ledger.close_round(now_s, undone):
            if isnan(end_s) and order >> 32 in view.jobs:
                yield Kill(order >> 32, RejectReason.BY_POLICY)
        for order in [order for order in ledger.jobs if order not in runs and not waiting.pieces(order)]:
            ledger.leave(order)
            self._tasks.pop(order, None)
        self._due, self._ends_s = {}, now_s

    def _open_round(
        self, view: ClusterView, ledger: GavelLedger, waiting: WaitingTasks, runs: dict[int, list[Run]]
    ) -> Iterator[Decision]:
        """Begin a round: stop the runs that are not part of it, and start the others."""
        now_s = self._ends_s
        chosen = self._next_round(view, ledger)
        micro_of = {order: task for task in chosen for order in task.key}
        yield from self._stop_others(view, micro_of, runs)
        self._ends_s = max([task.finish_s for task in chosen], default=-inf)
        for task in sorted(chosen, key=lambda task: -ledger.jobs[task.key[0]].gpus):
            yield from self._start_micro_task(view, ledger, waiting, task)
        # if site rules or other resources prevent all starts, wait for a whole round
        if chosen and not any(run.task.order in micro_of for run in view.running.values()):
            self._ends_s = max(self._ends_s, now_s + self.round_s)

    def _next_round(self, view: ClusterView, ledger: GavelLedger) -> list[MicroTask]:
        """Choose the micro-tasks of the next round. If none is chosen although nothing else will
        happen, solve again as if no more jobs arrived.
        """
        ledger.resize(self._capacity(view))
        chosen = ledger.next_round(self._ends_s, more_arrive=True)
        if not chosen and not view.pending:
            ledger.must_solve = True
            chosen = ledger.next_round(self._ends_s, more_arrive=False)
            chosen = chosen or ledger.next_round(self._ends_s, more_arrive=False)
        return chosen

    def _stop_others(
        self, view: ClusterView, micro_of: Mapping[int, MicroTask], runs: Mapping[int, Sequence[Run]]
    ) -> Iterator[Decision]:
        """Stop the runs whose task, GPU type or partner is not that of the new round."""
        for order, held in runs.items():
            micro = micro_of.get(order)
            # runs of dropped jobs are no longer in the view
            for run in [run for run in held if run.id in view.running]:
                partners = [view.running[id_].task.order for id_ in run.beside]
                stays = (
                    micro is not None
                    and run.type == self._type_of[micro.type]
                    and all(partner in micro.key for partner in partners)
                )
                if not stays and run.started_s < view.now and run.computing_s is not None:
                    yield Preempt(run.id)

    def _start_micro_task(
        self, view: ClusterView, ledger: GavelLedger, waiting: WaitingTasks, task: MicroTask
    ) -> Iterator[Decision]:
        """Start the tasks of a micro-task on free GPUs, or beside the run of their partner."""
        type_ = self._type_of[task.type]
        latest_s = max(task.finish_s, view.now + self.round_s) + _SAME_S
        for order, steps in zip(task.key, task.steps, strict=True):
            self._due[order] = _Due(task.finish_s, latest_s, steps >= ledger.jobs[order].left)
            while steps > 0 and (piece := waiting.get(order)) is not None and piece.waiting:
                if host := _partner(view, task, order):
                    yield Join(piece, host.id)
                    continue
                placement = self._place(view, piece, type_)
                if placement is None:
                    break
                yield Start(piece, placement)


class _ModelledPairs:
    """Rates of pairs according to the sharing model of the simulation."""

    def __init__(self, sharing: Sharing, tasks: dict[int, Task]) -> None:
        self._sharing, self._tasks = sharing, tasks

    def __call__(self, first: GavelJob, second: GavelJob, type_: str) -> tuple[float, float]:
        rates = self._sharing.pair(self._tasks[first.number], self._tasks[second.number], type_)
        return (0.0, 0.0) if rates is None else (rates[0] * first.rate[type_], rates[1] * second.rate[type_])


def _partner(view: ClusterView, task: MicroTask, order: int) -> Run | None:
    """Return the run of the pair's other job if that run is alone on its GPUs, or None if there is
    no such run.
    """
    others = [run for run in view.running.values() if run.task.order in task.key and run.task.order != order]
    return others[0] if len(task.key) > 1 and others and not others[0].beside else None


class _Due(NamedTuple):
    """The times at which the runs of a micro-task should stop."""

    finish_s: float
    latest_s: float
    """The time at which a run stops that should have ended by itself."""
    ends: bool
    """True if the task should end with this micro-task."""


def present_rate(view: ClusterView, task: TaskState, type_: int) -> float:
    """Return the progress per second of an elastic task on a GPU type, on as few nodes as possible,
    or 0 if it cannot run on this type.
    """
    assert task.training is not None
    gpu, asked = view.gpu_types[type_], task.task.instances
    most = max([machine.gpus for machine in view.machines.list if machine.type == type_], default=0)
    if gpu is None or not most:
        return 0.0
    training = task.training.copy()
    try:
        training.place([most] * (asked // most) + [asked % most] * bool(asked % most), gpu.name)
        return training.pace().rate
    except ModelError:
        return 0.0


def runs_by_task(runs: Iterable[Run]) -> dict[int, list[Run]]:
    """Return the runs that hold GPUs, grouped by ``TaskState.order``."""
    by_task: dict[int, list[Run]] = {}
    for run in runs:
        if run.task.demand.demand.gpus:
            by_task.setdefault(run.task.order, []).append(run)
    return by_task


def part_left(run: Run, now: float) -> float:
    """Return the fraction of the task's work that remains for the run, according to the
    estimates."""
    return run.task.expected_left * min(1.0, run.work_left_s(now) / max(run.estimate_s, _NO_TIME_S))

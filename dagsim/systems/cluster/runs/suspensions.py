"""Jobs that an operator suspends for some time (``scontrol suspend``). Their runs make no progress
while they are suspended, and other runs may use their CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from simpy.events import Event

from dagsim.errors import ModelError
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.clock import COMPLETIONS
from dagsim.systems.cluster.forks import AHEAD, COPIED, Forked

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel
    from dagsim.systems.cluster.state import Run


class Suspensions(Forked):
    """The suspensions of a site's jobs. A kernel has this object only if there are suspensions.

    As in Slurm's ``select/cons_tres`` (``job_res_rm_job`` and ``job_res_add_job`` in
    job_resources.c), a suspended run returns its CPUs, and keeps its memory and GPUs. When it
    resumes, it holds its cores again only if no run of its own partition holds any of them on any
    node. Otherwise the run continues, but counts as holding no cores until it ends, because Slurm
    records each core once per partition. A core that it shares with a run of another partition
    counts once, until both have ended. Slurm allocates cores in a fixed order, so runs that started
    there in the meantime are assumed to have taken the suspended run's cores before any others.

    A suspension has no effect on a job that is not running when it begins.
    """

    __slots__ = {
        "_before": COPIED,
        "_kernel": COPIED,
        "_left_s": COPIED,
        "_lent": COPIED,
        "_since_s": COPIED,
        "_times": AHEAD,
    }

    def __init__(self, kernel: ClusterKernel, origin_s: float) -> None:
        self._kernel = kernel
        suspensions = kernel.queues.suspensions if kernel.queues is not None else ()
        self._times = [(one.start_s - origin_s, one.end_s - origin_s, one.job) for one in suspensions]
        """When each suspension begins and ends, and the id of its job."""
        self._before: list[tuple[float, float, str]] = []
        """The suspensions that began before the simulation and have not been applied yet, latest first."""
        self._left_s: dict[int, tuple[float, float]] = {}
        """For each suspended run, the seconds that it still has to compute, and when it resumes."""
        self._lent: dict[int, dict[int, int]] = {}
        """The CPUs of each run, by node, that others may use although the run continues."""
        self._since_s: dict[int, float] = {}
        """For each run that resumed and holds its cores again, the time at which it was suspended."""

    @classmethod
    def of(cls, kernel: ClusterKernel, origin_s: float) -> Suspensions | None:
        """Create the suspensions of a kernel. Return None if there are none.

        Raises:
            ModelError: Runs have phases or changing rates (``refuse_rates``).
        """
        if kernel.queues is None or not kernel.queues.suspensions:
            return None
        suspensions = cls(kernel, origin_s)
        if kernel.life is not None:
            suspensions.refuse_rates()
        return suspensions

    def refuse_rates(self) -> None:
        """Reject suspensions in a simulation whose runs have phases or changing rates, because a
        suspension would have to interrupt them.

        Raises:
            ModelError: Always.
        """
        raise ModelError(
            f"queues.suspensions: job {self._times[0][2]!r} cannot be suspended, because runs have phases or rates "
            "here (a network, sharing, elastic tasks, set-ups, checkpoints or a delay after a preemption); remove the "
            "suspensions, or the section that causes these phases"
        )

    def attach(self) -> None:
        """Put the timers on the kernel's clock. This is called at the beginning of a simulation and
        in each fork.
        """
        kernel = self._kernel
        kernel.frontier.ended.append(self._ended)
        for start_s, end_s, job in self._times:
            if start_s > kernel.now:
                kernel.call_at(start_s, partial(self._suspend, job, end_s))
        for number, (_, until_s) in self._left_s.items():
            kernel.call_at(until_s, partial(self._resume, number))

    def recall(self) -> None:
        """Prepare for the time before the beginning, when there are no timers (``pass_time``)."""
        kernel = self._kernel
        self._before = sorted([one for one in self._times if one[0] < kernel.now], reverse=True)
        for start_s, end_s, job in self._times:
            if start_s == kernel.now:
                kernel.call_at(start_s, partial(self._suspend, job, end_s))

    @property
    def next_s(self) -> float:
        """The next time before the beginning at which a job is suspended or resumes."""
        begins_s = self._before[-1][0] if self._before else inf
        return min([begins_s, *[until_s for _, until_s in self._left_s.values()]])

    def pass_time(self) -> None:
        """Suspend or resume the jobs for which this is due before the beginning."""
        now = self._kernel.now
        while self._before and self._before[-1][0] <= now:
            _, end_s, job = self._before.pop()
            self._suspend(job, end_s, None)
        for number in [number for number, (_, until_s) in self._left_s.items() if until_s <= now]:
            self._resume(number, None)

    def _runs(self, job: str) -> Iterator[Run]:
        for run in list(self._kernel.running.values()):
            if run.job.job.id == job and run.computing_s is not None and run.id not in self._left_s:
                yield run

    def _suspend(self, job: str, until_s: float, event: Event | None) -> None:
        kernel = self._kernel
        for run in self._runs(job):
            self._left_s[run.id] = run.phase_until(run.scheduled_end_s) - kernel.now, until_s
            run.disarm()
            kernel.clock.drop(run)
            run.suspended_since_s = kernel.now
            cpus = run.task.demand.cpus
            lent = self._lent.setdefault(run.id, {})
            for machine, count, *_ in run.held:
                kernel.machines.lend_cpus(machine, cpus * count - lent.get(machine.index, 0))
                lent[machine.index] = cpus * count
            if until_s >= kernel.clock.now:
                kernel.call_at(until_s, partial(self._resume, run.id))
            self._tell(run)

    def _resume(self, number: int, event: Event | None) -> None:
        kernel, run = self._kernel, self._kernel.running.get(number)
        if run is None or number not in self._left_s:
            return
        left_s = self._left_s.pop(number)[0]
        since_s = run.suspended_since_s
        assert since_s is not None
        later = [other for other in kernel.running.values() if other is not run and other.started_s >= since_s]
        own, place = {*run.nodes}, run.job.job.partition
        if not any(other.job.job.partition == place and own.intersection(other.nodes) for other in later):
            self._since_s[number] = since_s
            lent = self._lent[number]
            for machine, *_ in run.held:
                kept = min(lent[machine.index], whole_sum(_cpus_on(other, machine.index) for other in later))
                back = min(lent[machine.index] - kept, max(machine.cpus, 0))
                kernel.machines.lend_cpus(machine, -back)
                lent[machine.index] -= back
        run.resume(kernel.now)
        run.callbacks.append(kernel.end)
        kernel.clock.at(run.phase_until(kernel.now + left_s), COMPLETIONS, run)
        self._tell(run)

    def _tell(self, run: Run) -> None:
        self._kernel.changed = True
        for tell in self._kernel.frontier.rated:
            tell(run, self._kernel.now)

    def _ended(self, run: Run, now: float) -> None:
        """Occupy the CPUs that the end of a run would otherwise free twice, and the cores that it
        shared with a run that continues.
        """
        self._left_s.pop(run.id, None)
        self._since_s.pop(run.id, None)
        machines = self._kernel.machines
        for node, cpus in self._lent.pop(run.id, {}).items():
            machines.lend_cpus(machines.list[node], -cpus)
        for other, since_s in self._since_s.items():
            lent = self._lent[other]
            for node in run.nodes if run.started_s >= since_s and other not in self._left_s else ():
                if back := min(lent.get(node, 0), _cpus_on(run, node)):
                    machines.lend_cpus(machines.list[node], -back)
                    lent[node] -= back


def _cpus_on(run: Run, node: int) -> int:
    """Return the CPUs that a run holds on a node, in millionths."""
    return whole_sum(count * run.task.demand.cpus for machine, count, *_ in run.held if machine.index == node)

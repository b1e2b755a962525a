"""Forks of a kernel: independent simulations that continue from its current state."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dagsim.systems.cluster.arrivals.jobs_to_come import JobsToCome
from dagsim.systems.cluster.clock import COMPLETIONS, Clock
from dagsim.systems.cluster.forks import Fork
from dagsim.systems.cluster.state import Run

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel


def fork_of(kernel: ClusterKernel, *, by_estimates: bool = False) -> ClusterKernel:
    """Return an identical simulation at the current time. See ``ClusterKernel.fork``.

    SimPy's environment cannot be copied, so the fork gets its own clock, on which all events are
    scheduled again in the same order. Everything else is plain data, which ``Fork`` copies as the
    slots declare.
    """
    fork, clock = Fork(by_estimates=by_estimates), Clock(kernel.now)
    fork.twins[id(kernel.clock)] = clock
    if kernel.life is not None:
        kernel.life.fork_network(fork, clock)
    twin = fork.of(kernel)
    if by_estimates:
        twin.upcoming = JobsToCome(())
        twin.upcoming.peek()
        twin.jobs = ()
        twin.frontier.believe_estimates()
        if twin.on_demand is not None:
            twin.on_demand.believe_estimates()
    twin.observe(())
    twin.set_clock()
    if twin.life is not None:
        twin.life.resume(by_estimates=by_estimates)
    twin.changed = True
    if twin.wake_s < inf:
        wake_s, twin.wake_s = twin.wake_s, inf
        if wake_s > twin.now:
            twin.wait(wake_s)
    for original in _runs_by_end(kernel):
        run = twin.running[original.id]
        if by_estimates:
            run.believe_estimate(twin.now)
        if twin.on_demand is not None and twin.on_demand.holds(run):
            run.callbacks = []  # the nodes are still booting, so the run begins later
        elif twin.life is not None:
            twin.life.resume_run(run, original)
        elif run.suspended_since_s is not None:
            run.callbacks = []  # the run is suspended; its end is put on the clock when it resumes
        else:
            run.callbacks = [twin.end]
            twin.clock.at(run.scheduled_end_s, COMPLETIONS, run)
    return twin


def _runs_by_end(kernel: ClusterKernel) -> dict[Run, None]:
    """Return all runs. Runs whose end is on the clock come first, in the order of the clock. Runs
    that end at the same time thus end in the same order in a fork. Runs that wait for the network
    or have rate 0 follow.
    """
    events = [event for *_, event in kernel.clock.scheduled() if event.callbacks]
    ending = [run for event in events if isinstance(run := event if isinstance(event, Run) else event.value, Run)]
    return dict.fromkeys([*ending, *kernel.running.values()])

"""An equal simulation at the present instant, made from the plain data that a simulation is.

SimPy's environment cannot be copied. So the twin gets a clock of its own, on which the same ends are set in the same
order; everything else that changes is copied, and what does not is shared.
"""

from __future__ import annotations

import copy
from itertools import tee
from math import inf
from typing import TYPE_CHECKING, cast

from dagsim.systems.cluster.clock import COMPLETIONS
from dagsim.systems.cluster.run import Run

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

__all__ = ["forked"]


def forked(origin: ClusterKernel, known: bool) -> ClusterKernel:
    """``ClusterKernel.fork``: a twin of ``origin`` that goes its own way; with ``known`` by what a policy may know."""
    twin = type(origin).__new__(type(origin))
    twin.__dict__.update(origin.__dict__)
    twin.schedule = origin.schedule.copy()
    twin.machines = origin.machines.copy()
    twin.frontier = origin.frontier.copy(twin.machines)
    twin.applicants = {number: active.copy(twin.machines) for number, active in origin.applicants.items()}
    if known:
        twin._jobs_left, twin._next_job, twin._source = False, None, iter(())
        twin.frontier.believe_estimates()
    else:
        origin._source, twin._source = tee(origin._source)
    twin._down = list(origin._down)
    twin._streams = copy.deepcopy(origin._streams)
    twin._served = None if origin._served is None else [list(served) for served in origin._served]
    twin._disturbing = [] if known else [disturbing.copy() for disturbing in origin._disturbing]
    twin._observe(())
    twin._start_clock(twin.now)
    twin._changed = True
    if twin._wake_s < inf:
        wake_s, twin._wake_s = twin._wake_s, inf
        if wake_s > twin.now:
            twin._wait(wake_s)
    twin.running = cast(dict[int, Run], dict.fromkeys(origin.running))
    for event in origin.clock.scheduled():  # runs that end together must do so in the same order again
        if isinstance(event, Run) and event.id in origin.running:
            _copy_run(twin, event, known)
    for run in origin.running.values():
        if run.process is not None:
            _copy_run(twin, run, known)
    return twin


def _copy_run(twin: ClusterKernel, run: Run, known: bool) -> None:
    """Let the run go on in ``twin``."""
    jobs, machines = twin.frontier.jobs, twin.machines.list
    owner = jobs[run.task.job.number]
    task = run.task.copy(owner, twin.machines) if run.task.piece else owner.tasks[run.task.index]
    held = tuple((machines[machine.index], count, mask, on) for machine, count, mask, on in run.held)
    again = Run(twin.clock, run.id, task, run.instances, held, run.started_s)
    again.setup_s, again.computing_s, again.ends_s = run.setup_s, run.computing_s, run.ends_s
    if known:
        again.seconds = run.estimate_s
        if run.computing_s is not None:
            again.ends_s = run.estimated_end_s(twin.now)
    twin.running[run.id] = again
    if run.process is not None:
        again.flows = [flow.copy() for flow in run.flows]
        again.process = twin.clock.process(twin._fetch(again))
        return
    again.callbacks = twin._on_set_up if run.computing_s is None else twin._on_end  # type: ignore[assignment]
    twin.clock.at(again.ends_s, COMPLETIONS, again)

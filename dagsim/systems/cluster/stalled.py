"""Simulations that cannot go on: who waits, and why. Nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

_NAMED = 5
"""Maximum number of runs that a message names."""


GONE = "the nodes that it needs have left for good"
OVER = "its reservation is over, or its nodes are drained for good"


def only_endless(kernel: ClusterKernel) -> bool:
    """True if runs that never end are all that is left: nothing is due, and no waiting task could start beside them."""
    ready, fits = kernel.frontier.ready, kernel.machines.fits
    endless = any(run.is_endless for run in kernel.running.values())
    return endless and not kernel.applicants and not any(fits(task.demand) for task in ready)


def why_unfinished(kernel: ClusterKernel) -> dict[int, str]:
    """The reason why each job that is still there at the end of a simulation is unfinished, by its number."""
    reasons = dict.fromkeys(kernel.frontier.jobs, "it waited when the simulation ended")
    for run in kernel.running.values():
        reasons[run.task.job.number] = (
            "a run of it never ends" if run.is_endless else "it ran when the simulation ended"
        )
    reasons |= {number: why for number, why in kernel.stuck.items() if number in reasons}
    reasons |= dict.fromkeys(kernel.applicants, "the policy neither admitted nor rejected it")
    return reasons if kernel.eligibility is None else reasons | kernel.eligibility.why_waiting()


def why_stalled(kernel: ClusterKernel) -> str:
    """The message of ``Stalled``, for a kernel in which nothing will happen without a decision."""
    ready, fits = kernel.frontier.ready, kernel.machines.fits
    first = next(iter(ready), None)
    waiting = [f"{len(ready)} ready tasks wait" + (f", {first.name} among them" if first else "")]
    if kernel.applicants:
        waiting.append(f"{len(kernel.applicants)} jobs wait to be admitted")
    endless = [f"{run.id} of {run.task.name}" for run in kernel.running.values() if run.is_endless]
    if endless:
        return f"at {kernel.now:g} s: {' and '.join(waiting)}, and nothing is due: run {_some(endless)} never ends"
    startable = next((task for task in ready if fits(task.demand)), None)
    pending = "nothing is pending" if not kernel.pending else "nothing that is pending helps"
    idle = f"at {kernel.now:g} s: {' and '.join(waiting)}, nothing runs and {pending}"
    if startable is not None or kernel.applicants:
        could = f", although {startable.name} could start" if startable is not None else ""
        return f"{idle}, but the policy decided nothing{could}"
    return idle


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

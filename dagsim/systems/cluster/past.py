"""The past of a simulation that begins in the middle: jobs that were in the system, and their runs
that still ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dagsim.errors import ModelError
from dagsim.model import Demand, InFlight, Job
from dagsim.systems.cluster.nodes import ClusterState, DemandClass

__all__ = ["check_in_flight", "past_of"]


def past_of(jobs: Sequence[Job], begins_s: float) -> Iterator[tuple[float, int, Job | InFlight]]:
    """Yield arrivals and starts before ``begins_s`` in the order in which they happened, each with
    its time and the number of its job. At one instant jobs arrive before runs start, each by
    number.

    Raises:
        ModelError: The jobs are not in order of arrival, or a run starts at the beginning or later.
    """
    starts: list[tuple[float, int, InFlight]] = []
    for number, job in enumerate(jobs):
        if number and job.arrival_s < (before_s := jobs[number - 1].arrival_s):
            raise ModelError(f"job {job.id!r} arrives at {job.arrival_s!r} s, after one that arrived at {before_s!r} s")
        for run in job.in_flight:
            if run.since_s >= begins_s:
                raise ModelError(
                    f"job {job.id!r} runs since {run.since_s!r} s, but the simulation begins at {begins_s!r} s; "
                    "what begins then or later is to be started by the policy"
                )
            starts.append((run.since_s, number, run))
    starts.sort(key=lambda start: start[:2])
    at = 0
    for number, job in enumerate(jobs):
        while at < len(starts) and starts[at][0] < job.arrival_s:
            yield starts[at]
            at += 1
        yield job.arrival_s, number, job
    yield from starts[at:]


def check_in_flight(job: Job, run: InFlight, demand: DemandClass | None, machines: ClusterState) -> None:
    """Check that the nodes of a run in flight exist and have room for it beside the runs that
    started before it. ``demand`` is that of its task, ``None`` if the job can never run.

    Raises:
        ModelError: They do not; the message names job and node.
    """
    where, nodes = f"job {job.id!r} is in flight on node", [share.node for share in run.placement]
    for number, instances, _ in run.placement:
        if not 0 <= number < len(machines.list) or nodes.count(number) > 1:
            why = "which is listed twice" if nodes.count(number) > 1 else f"but there are {len(machines.list)}"
            raise ModelError(f"{where} number {number}, {why}")
        machine = machines.list[number]
        if demand is None:
            raise ModelError(f"{where} {machine.node.name!r}, but it asks for more than the whole cluster has")
        if machine.type not in demand.types:
            raise ModelError(f"{where} {machine.node.name!r}, which cannot run it: it asks for {_words(demand.demand)}")
        if machine.type != machines.list[nodes[0]].type:
            raise ModelError(f"{where} {machine.node.name!r} and on one of another GPU type")
        if machine.room(demand) < instances:
            raise ModelError(
                f"{where} {machine.node.name!r} with {instances} x {_words(demand.demand)}, but there is room for "
                f"{machine.room(demand)} beside the jobs that run there already"
            )


def _words(demand: Demand) -> str:
    """The demand of an instance in words."""
    types = "" if demand.gpu_types is None else f" ({' or '.join(demand.gpu_types)})"
    parts = [f"{demand.gpus:g} GPUs{types}"] if demand.gpus else []
    parts += [f"{demand.cpus:g} CPUs"] if demand.cpus else []
    parts += [f"{demand.memory_gb:g} GB"] if demand.memory_gb else []
    return ", ".join(parts) or "nothing"

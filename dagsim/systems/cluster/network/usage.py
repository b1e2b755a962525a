"""The bytes that runs sent over each link, from the log of a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dagsim.model import Job, Kind
from dagsim.model.log import Record, Schedule
from dagsim.network.collectives import Exchange
from dagsim.network.routing import Link
from dagsim.systems.cluster.models.communication import gang_step
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.network.base import Communication, Storage
from dagsim.systems.cluster.network.shared import SharedNetwork, gang_exchange

__all__ = ["LinkUse", "busiest", "link_usage"]


class LinkUse(NamedTuple):
    """A link, and the traffic on it: from when to when, and bytes per second."""

    link: Link
    traffic: list[tuple[float, float, float]]

    @property
    def bytes(self) -> float:
        """All bytes that crossed it."""
        return sum([(end_s - start_s) * bytes_s for start_s, end_s, bytes_s in self.traffic])


class _Run:
    """A run in the log, as far as it has been read."""

    def __init__(self, row: Record) -> None:
        self.started_s, self.job, self.task = row.time_s, row.job, row.task
        self.held: list[tuple[int, int, int]] = []
        self.since_s = row.time_s
        self.load: dict[int, float] = {}
        """Bytes per second on each link since ``since_s``."""
        self.exchange: Exchange | None = None
        self.steps_s = 0.0
        """Seconds of compute of a step."""


def link_usage(
    schedule: Schedule,
    jobs: Sequence[Job],
    network: SharedNetwork,
    communication: Communication | None,
    runtime: Runtime,
) -> list[LinkUse]:
    """The traffic on all links of the ``network`` in a simulation of ``jobs``.

    Gangs are exact, as the log has their rates. Outputs, data and states count as evenly sent: those
    that a run reads from its start until it computes, those that it writes until they have arrived. If
    the log does not name GPUs, gangs that use some NICs of a node count on its first ones.
    """
    cluster = schedule.cluster
    names = [node.name for node in cluster.nodes]
    routing = network.routing(names)
    usage = [LinkUse(link, []) for link in routing.links]
    running: dict[int, _Run] = {}
    places: dict[tuple[int, int], dict[int, int]] = {}
    stopped: dict[tuple[int, int], tuple[float, dict[int, int]]] = {}
    writes_s: dict[tuple[int, int], float] = {}
    """Since when a run may be writing its state from a node (-1: any)."""
    stores = [] if network.storage is None else network.storage.numbers(names)
    types = cluster.gpu_types

    def book(run: _Run, now: float) -> None:
        if now > run.since_s:
            for link, bytes_s in run.load.items():
                usage[link].traffic.append((run.since_s, now, bytes_s))
        run.since_s = now

    def begin(run: _Run) -> None:
        """Find what the gang sends."""
        task, gpu = jobs[run.job].tasks[run.task], cluster.nodes[run.held[0][0]].gpu
        step = None if communication is None else gang_step(communication, runtime, task, types, gpu, run.held)
        if step is not None:
            run.steps_s = step.step_s
            run.exchange = gang_exchange(routing, step.traffic, step.members, step.gpu)

    def fetched(run: _Run, now: float) -> None:
        sent = [*_outputs(jobs[run.job], run, places)]
        if network.storage is not None:
            sent += _stored(network.storage, stores, jobs[run.job], run, stopped)
        for source, destination, size in sent:
            evenly(source, destination, size, run.started_s, now)
        run.since_s = now

    def evenly(source: int, destination: int, size: float, start_s: float, end_s: float) -> None:
        paths = routing.paths(source, destination)
        for path in paths if end_s > start_s else ():
            for link in path:
                usage[link].traffic.append((start_s, end_s, size / len(paths) / (end_s - start_s)))

    def written(row: Record) -> None:
        since_s = max(writes_s[row.run, -1], writes_s.get((row.run, row.node), 0.0))
        writes_s[row.run, row.node] = row.time_s
        evenly(row.node, stores[row.job % len(stores)], row.value * 1e9, since_s, row.time_s)

    for row in schedule.log:
        kind = row.kind
        if kind == Kind.STARTED:
            running.setdefault(row.run, _Run(row)).held.append((row.node, row.instances, row.gpus))
        elif kind == Kind.COMPUTING:
            if (run := running[row.run]).since_s < row.time_s:
                fetched(run, row.time_s)
        elif kind == Kind.RATE:
            run = running[row.run]
            book(run, row.time_s)
            if not row.value:
                writes_s[row.run, -1] = row.time_s
            if run.exchange is None:
                begin(run)
            if run.exchange is not None:
                step = run.exchange.stream_bytes * row.value / run.steps_s
                run.load = {link: streams * step for link, streams in run.exchange.streams.items()}
        elif kind in (Kind.FINISHED, Kind.PREEMPTED, Kind.FAILED) and row.run in running:
            run = running.pop(row.run)
            book(run, row.time_s)
            held = {node: count for node, count, _ in run.held}
            if kind == Kind.FINISHED:
                ran = places.setdefault((run.job, run.task), {})
                for node, count in held.items():
                    ran[node] = ran.get(node, 0) + count
            else:
                stopped[run.job, run.task] = row.time_s, held if kind == Kind.PREEMPTED else {}
                writes_s.setdefault((row.run, -1), row.time_s)
        elif kind == Kind.WRITTEN:
            written(row)
    return usage


def _outputs(job: Job, run: _Run, places: dict[tuple[int, int], dict[int, int]]) -> Iterator[tuple[int, int, float]]:
    """Source, destination and bytes of the outputs that a run reads."""
    tasks = job.graph.tasks
    for edge in job.graph.edges:
        if edge.child == run.task and edge.bytes:
            for source, count in places.get((run.job, edge.parent), {}).items():
                for node, here, _ in run.held:
                    if node != source:
                        part = count / tasks[edge.parent].instances * here / tasks[run.task].instances
                        yield source, node, edge.bytes * part


def _stored(
    storage: Storage,
    stores: Sequence[int],
    job: Job,
    run: _Run,
    stopped: dict[tuple[int, int], tuple[float, dict[int, int]]],
) -> Iterator[tuple[int, int, float]]:
    """Source, destination and bytes of the data and states that a run reads."""
    task = job.graph.tasks[run.task]
    sources, size = {stores[run.job % len(stores)]: 1.0}, storage.load_bytes(task.model) / task.instances
    if storage.checkpoints and (run.job, run.task) in stopped:
        stopped_s, held = stopped[run.job, run.task]
        size = task.memory_gb * 1e9
        if stopped_s == run.started_s and held:
            sources = {node: count / sum(held.values()) for node, count in held.items()}
    for node, count, _ in run.held:
        for source, part in sources.items():
            if source != node and size:
                yield source, node, size * count * part


def busiest(usage: Sequence[LinkUse], count: int) -> list[LinkUse]:
    """The links with the largest shares of their bandwidth in use, over all of the time."""
    return sorted([use for use in usage if use.traffic], key=lambda use: -use.bytes / use.link.bandwidth)[:count]

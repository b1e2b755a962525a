"""The bytes that runs sent over each link, computed from the log of a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from dagsim.families.fabric.collectives import Exchange
from dagsim.families.fabric.max_min import LinkFlow, SharedLinks
from dagsim.families.fabric.shared_network import Gang, SharedNetwork, gang_exchange
from dagsim.model import Job, Kind
from dagsim.model.arithmetic import whole_sum
from dagsim.model.log import RUN_ENDS, Record, Schedule
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.network.base import Communication, Storage
from dagsim.systems.cluster.network.links import LinkUse
from dagsim.systems.cluster.runs.gangs import gang_step


class _Run:
    """The facts about a run in the part of the log that has been read."""

    def __init__(self, row: Record) -> None:
        self.started_s, self.job, self.task = row.time_s, row.job, row.task
        self.held: list[tuple[int, int, int]] = []
        self.since_s = row.time_s
        self.load: dict[int, float] = {}
        """Bytes per second on each link since ``since_s``."""
        self.exchange: Exchange | None = None
        self.steps_s = 0.0
        """Seconds of compute per step."""
        self.overlap = 0
        self.flow: LinkFlow | None = None
        """What the run sends as a gang since its last RATE row."""
        self.computes = False
        self.saved = False
        """True if it has written a checkpoint."""

    @property
    def nodes(self) -> dict[int, int]:
        """Number of the run's instances on each node."""
        return {node: count for node, count, _ in self.held}


class _Change(NamedTuple):
    """The start or the end of a flow."""

    time_s: float
    starts: bool
    flow: LinkFlow


class LinkTraffic:
    """The traffic on all links of the ``network`` in a simulation of ``jobs``, computed from the log.

    The log states the rates of gangs. Outputs, data and states share the links as in the
    simulation. They are sent from the start of a run onwards or, if the run writes its state, from
    its stop onwards. The log does not distinguish stopped instances of one task. Therefore, the
    next instance is assumed to read the state of the instance that stopped last. If the log does
    not name GPUs, gangs that use some of a node's NICs are assumed to use the first ones.
    """

    def __init__(
        self,
        schedule: Schedule,
        jobs: Sequence[Job],
        network: SharedNetwork,
        communication: Communication | None,
        runtime: Runtime,
        preemption: Preemption,
    ) -> None:
        self.log, self.cluster, self.jobs, self.storage = schedule.log, schedule.cluster, jobs, network.storage
        self.communication, self.runtime, self.preemption = communication, runtime, preemption
        names = [node.name for node in self.cluster.nodes]
        self.routing = network.routing(names)
        self.usage = [LinkUse(link, []) for link in self.routing.links]
        self.changes: list[_Change] = []
        self.stores = [] if network.storage is None else network.storage.numbers(names)
        self.running: dict[int, _Run] = {}
        self.failed: dict[int, _Run] = {}
        self.places: dict[tuple[int, int], dict[int, int]] = {}
        """Finished instances of each task by node."""
        self.stopped: dict[tuple[int, int], tuple[float, dict[int, int]]] = {}
        """For tasks that have kept work: when a run stopped, and its nodes if these have its state."""
        self.writes_s: dict[tuple[int, int], float] = {}
        """Time since which a run may be writing its state from a node (-1 for any node)."""
        self.written_s: dict[tuple[int, int], float] = {}
        """Time at which a state of a task was last in the storage."""

    def links(self) -> list[LinkUse]:
        """Read the log once, and return the traffic on each link."""
        for row in self.log:
            self._read(row)
        _replay(self.changes, self.usage)
        return self.usage

    def _read(self, row: Record) -> None:
        kind = row.kind
        if kind == Kind.STARTED:
            self.running.setdefault(row.run, _Run(row)).held.append((row.node, row.instances, row.gpus))
        elif kind == Kind.COMPUTING:
            if not (run := self.running[row.run]).computes:
                self._fetch(run)
            run.since_s, run.computes = row.time_s, True
        elif kind == Kind.RATE:
            self._change_rate(self.running[row.run], row)
        elif kind in RUN_ENDS and row.run in self.running:
            run = self.running.pop(row.run)
            self._book(run, row.time_s)
            self._send_steps(run, row.time_s, 0.0)
            if kind == Kind.FINISHED:
                ran = self.places.setdefault((run.job, run.task), {})
                for node, count in run.nodes.items():
                    ran[node] = ran.get(node, 0) + count
            else:
                self._stop(run, row)
        elif kind == Kind.WRITTEN:
            self._write(row)

    def _book(self, run: _Run, now: float) -> None:
        """Add the traffic that the gang has sent since its last change."""
        if now > run.since_s:
            for link, bytes_s in run.load.items():
                self.usage[link].traffic.append((run.since_s, now, bytes_s))
        run.since_s = now

    def _change_rate(self, run: _Run, row: Record) -> None:
        self._book(run, row.time_s)
        run.computes = True
        if not row.value:
            self.writes_s[row.run, -1] = row.time_s
        if run.exchange is None:
            self._find_exchange(run)
        if run.exchange is not None:
            step = run.exchange.stream_bytes * row.value / run.steps_s
            run.load = {link: streams * step for link, streams in run.exchange.streams.items()}
        self._send_steps(run, row.time_s, row.value)

    def _find_exchange(self, run: _Run) -> None:
        """Determine the traffic that the gang sends in a step."""
        if self.communication is None:
            return
        task, gpu = self.jobs[run.job].tasks[run.task], self.cluster.nodes[run.held[0][0]].gpu
        step = gang_step(self.communication, self.runtime, task, self.cluster.gpu_types, gpu, run.held)
        if step is not None:
            run.steps_s, run.overlap = step.step_s, step.traffic.overlap
            run.exchange = gang_exchange(self.routing, step.traffic, step.members, step.gpu)

    def _send_steps(self, run: _Run, now: float, rate: float) -> None:
        """Set the rate at which the gang sends from now on. A rate of 0 means that it stops
        sending."""
        if run.flow is not None and not rate:
            self.changes.append(_Change(now, False, run.flow))
            run.flow = None
        elif run.flow is None and rate and run.exchange is not None and run.exchange.streams:
            run.flow = Gang(run.exchange, run.steps_s, run.overlap).flow
            self.changes.append(_Change(now, True, run.flow))

    def _fetch(self, run: _Run, stop_s: float = inf) -> bool:
        """Record that a run reads its inputs until ``stop_s``. Return False if it has no inputs."""
        job = self.jobs[run.job]
        sent = [(*flow, run.started_s) for flow in _outputs(job, run, self.places)]
        if self.storage is not None:
            begin_s = max(run.started_s, self.written_s.get((run.job, run.task), 0.0))
            sent += [(*flow, begin_s) for flow in _stored(self.storage, self.stores, job, run, self.stopped)]
        for flow in sent:
            self._send(*flow, stop_s)
        return bool(sent)

    def _send(self, source: int, destination: int, size: float, start_s: float, stop_s: float = inf) -> None:
        paths = self.routing.paths(source, destination)
        for path in paths:
            flow, begin_s = LinkFlow(path, size / len(paths)), start_s + self.routing.latency_s(path)
            if path and begin_s < stop_s:
                self.changes.append(_Change(begin_s, True, flow))
                if stop_s < inf:
                    self.changes.append(_Change(stop_s, False, flow))

    def _write(self, row: Record) -> None:
        """Record that a run has written its state, or a part of it, to the storage."""
        since_s = max(self.writes_s[row.run, -1], self.writes_s.get((row.run, row.node), 0.0))
        self.writes_s[row.run, row.node] = self.written_s[row.job, row.task] = row.time_s
        self._send(row.node, self.stores[row.job % len(self.stores)], row.value * 1e9, since_s)
        if row.run in self.running:
            self.running[row.run].saved = True
        elif row.run in self.failed:
            whole_gb = self.jobs[row.job].tasks[row.task].memory_gb * self.failed[row.run].nodes[row.node]
            if row.value >= whole_gb * (1 - 1e-9):
                self.stopped[row.job, row.task] = row.time_s, {}

    def _stop(self, run: _Run, row: Record) -> None:
        """Determine which part of its work a run keeps if it stops before its end."""
        key, rules = (run.job, run.task), self.preemption
        computed = run.computes or not self._fetch(run, row.time_s)
        self.writes_s.setdefault((row.run, -1), row.time_s)
        if row.kind == Kind.FAILED:
            self.failed[row.run] = run
            if (rules.on_failure == "resume" and computed) or run.saved:
                self.stopped[key] = row.time_s, {}
            elif rules.on_failure == "restart" and rules.checkpoint_interval_s is None:
                self.stopped.pop(key, None)
        elif rules.on_resume == "restart":
            self.stopped.pop(key, None)
        elif computed:
            self.stopped[key] = row.time_s, run.nodes


def _replay(changes: list[_Change], usage: Sequence[LinkUse]) -> None:
    """Repeat the simulation of all flows on the shared links, and add the traffic of outputs, data
    and states.
    """
    changes.sort(key=lambda change: (change.time_s, change.starts))
    links, place = SharedLinks([use.link.bandwidth for use in usage]), 0
    rates: dict[LinkFlow, tuple[float, float]] = {}
    """Time since which each flow has its rate."""

    def book(flow: LinkFlow, now: float) -> None:
        since_s, rate = rates.pop(flow, (now, 0.0))
        if now > since_s and rate and flow.weights is None:
            for link in flow.route:
                usage[link].traffic.append((since_s, now, rate))

    while place < len(changes) or links.next_end_s() < inf:
        now = min(links.next_end_s(), changes[place].time_s if place < len(changes) else inf)
        for flow in links.ended(now):
            book(flow, now)
        while place < len(changes) and changes[place].time_s <= now:
            change, place = changes[place], place + 1
            if change.starts:
                links.start(change.flow, now)
            elif not change.flow.arrived:
                book(change.flow, now)
                links.stop(change.flow)
        for flow in links.update(now):
            book(flow, now)
            rates[flow] = now, flow.rate


def _outputs(job: Job, run: _Run, places: dict[tuple[int, int], dict[int, int]]) -> Iterator[tuple[int, int, float]]:
    """Yield the source, destination and bytes of the outputs that a run reads."""
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
    """Yield the source, destination and bytes of the data and states that a run reads."""
    task = job.graph.tasks[run.task]
    sources, size = {stores[run.job % len(stores)]: 1.0}, storage.load_bytes(task.model) / task.instances
    if storage.checkpoints and (run.job, run.task) in stopped:
        stopped_s, held = stopped[run.job, run.task]
        size = task.memory_gb * 1e9
        if stopped_s == run.started_s and held:
            sources = {node: count / whole_sum(held.values()) for node, count in held.items()}
    for node, count, _ in run.held:
        for source, part in sources.items():
            if source != node and size:
                yield source, node, size * count * part


def link_traffic(schedule: Schedule, jobs: list[Job], models: Models) -> list[LinkUse]:
    """Return the traffic on the links of the shared network in a simulation of ``jobs``. The result
    is empty if there is no shared network.
    """
    if not isinstance(models.network, SharedNetwork):
        return []
    runtime = models.runtime
    sends = runtime if isinstance(runtime, Communication) else models.communication
    return LinkTraffic(schedule, jobs, models.network, sends, runtime, models.preemption).links()

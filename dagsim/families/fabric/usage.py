"""The bytes that runs sent over each link, computed from the log of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from dagsim.families.fabric.collectives import Exchange
from dagsim.families.fabric.max_min import LinkFlow, SharedLinks
from dagsim.families.fabric.shared_network import Gang, SharedNetwork, gang_exchange
from dagsim.model import Job, Kind
from dagsim.model.log import RUN_ENDS, Record, Schedule
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.network.base import Communication, Flow
from dagsim.systems.cluster.network.links import LinkUse
from dagsim.systems.cluster.network.run_inputs import output_flows, stored_flows
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
        self._log, self._cluster, self._jobs, self._storage = schedule.log, schedule.cluster, jobs, network.storage
        self._communication, self._runtime, self._preemption = communication, runtime, preemption
        names = [node.name for node in self._cluster.nodes]
        self._routing = network.routing(names)
        self._usage = [LinkUse(link, []) for link in self._routing.links]
        self._changes: list[_Change] = []
        self._stores = [] if network.storage is None else network.storage.numbers(names)
        self._running: dict[int, _Run] = {}
        self._failed: dict[int, _Run] = {}
        self._places: dict[int, dict[int, dict[int, int]]] = {}
        """Finished instances of each task by node, by the numbers of its job and the task."""
        self._stopped: dict[tuple[int, int], tuple[float, dict[int, int]]] = {}
        """For tasks that have kept work: when a run stopped, and its nodes if these have its state."""
        self._writes_s: dict[tuple[int, int], float] = {}
        """Time since which a run may be writing its state from a node (-1 for any node)."""
        self._written_s: dict[tuple[int, int], float] = {}
        """Time at which a state of a task was last in the storage."""

    def links(self) -> list[LinkUse]:
        """Read the log once, and return the traffic on each link."""
        for row in self._log:
            self._read(row)
        _replay(self._changes, self._usage)
        return self._usage

    def _read(self, row: Record) -> None:
        kind = row.kind
        if kind == Kind.STARTED:
            self._running.setdefault(row.run, _Run(row)).held.append((row.node, row.instances, row.gpus))
        elif kind == Kind.COMPUTING:
            if not (run := self._running[row.run]).computes:
                self._fetch(run)
            run.since_s, run.computes = row.time_s, True
        elif kind == Kind.RATE:
            self._change_rate(self._running[row.run], row)
        elif kind in RUN_ENDS and row.run in self._running:
            run = self._running.pop(row.run)
            self._book(run, row.time_s)
            self._send_steps(run, row.time_s, 0.0)
            if kind == Kind.FINISHED:
                ran = self._places.setdefault(run.job, {}).setdefault(run.task, {})
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
                self._usage[link].traffic.append((run.since_s, now, bytes_s))
        run.since_s = now

    def _change_rate(self, run: _Run, row: Record) -> None:
        self._book(run, row.time_s)
        run.computes = True
        if not row.value:
            self._writes_s[row.run, -1] = row.time_s
        if run.exchange is None:
            self._find_exchange(run)
        if run.exchange is not None:
            step = run.exchange.stream_bytes * row.value / run.steps_s
            run.load = {link: streams * step for link, streams in run.exchange.streams.items()}
        self._send_steps(run, row.time_s, row.value)

    def _find_exchange(self, run: _Run) -> None:
        """Determine the traffic that the gang sends in a step."""
        if self._communication is None:
            return
        task, gpu = self._jobs[run.job].tasks[run.task], self._cluster.nodes[run.held[0][0]].gpu
        step = gang_step(self._communication, self._runtime, task, self._cluster.gpu_types, gpu, run.held)
        if step is not None:
            run.steps_s, run.overlap = step.step_s, step.traffic.overlap
            run.exchange = gang_exchange(self._routing, step.traffic, step.members, step.gpu)

    def _send_steps(self, run: _Run, now: float, rate: float) -> None:
        """Set the rate at which the gang sends from now on. A rate of 0 means that it stops
        sending."""
        if run.flow is not None and not rate:
            self._changes.append(_Change(now, False, run.flow))
            run.flow = None
        elif run.flow is None and rate and run.exchange is not None and run.exchange.streams:
            run.flow = Gang(run.exchange, run.steps_s, run.overlap).flow
            self._changes.append(_Change(now, True, run.flow))

    def _fetch(self, run: _Run, stop_s: float = inf) -> bool:
        """Record that a run reads its inputs until ``stop_s``. Return False if it has no inputs."""
        graph, here = self._jobs[run.job].graph, [(node, count) for node, count, _ in run.held]
        sent = [(flow, run.started_s) for flow in output_flows(graph, run.task, here, self._places.get(run.job, {}))]
        if self._storage is not None:
            begin_s = max(run.started_s, self._written_s.get((run.job, run.task), 0.0))
            store = self._stores[run.job % len(self._stores)]
            flows = stored_flows(self._storage, store, graph.tasks[run.task], here, self._state(run))
            sent += [(flow, begin_s) for flow in flows]
        for flow, begin_s in sent:
            self._send(flow, begin_s, stop_s)
        return bool(sent)

    def _state(self, run: _Run) -> Sequence[tuple[int, int]] | None:
        """Return the nodes that have the state that a run reads. The result is empty if only the
        storage has it, and None if the run begins anew."""
        key = run.job, run.task
        if self._storage is None or not self._storage.checkpoints or key not in self._stopped:
            return None
        stopped_s, nodes = self._stopped[key]
        return list(nodes.items()) if stopped_s == run.started_s else ()

    def _send(self, sent: Flow, start_s: float, stop_s: float = inf) -> None:
        paths = self._routing.paths(sent.source, sent.destination)
        for path in paths:
            flow, begin_s = LinkFlow(path, sent.size / len(paths)), start_s + self._routing.latency_s(path)
            if path and begin_s < stop_s:
                self._changes.append(_Change(begin_s, True, flow))
                if stop_s < inf:
                    self._changes.append(_Change(stop_s, False, flow))

    def _write(self, row: Record) -> None:
        """Record that a run has written its state, or a part of it, to the storage."""
        since_s = max(self._writes_s[row.run, -1], self._writes_s.get((row.run, row.node), 0.0))
        self._writes_s[row.run, row.node] = self._written_s[row.job, row.task] = row.time_s
        self._send(Flow(row.node, self._stores[row.job % len(self._stores)], row.value * 1e9), since_s)
        if row.run in self._running:
            self._running[row.run].saved = True
        elif row.run in self._failed:
            whole_gb = self._jobs[row.job].tasks[row.task].memory_gb * self._failed[row.run].nodes[row.node]
            if row.value >= whole_gb * (1 - 1e-9):
                self._stopped[row.job, row.task] = row.time_s, {}

    def _stop(self, run: _Run, row: Record) -> None:
        """Determine which part of its work a run keeps if it stops before its end."""
        key, rules = (run.job, run.task), self._preemption
        computed = run.computes or not self._fetch(run, row.time_s)
        self._writes_s.setdefault((row.run, -1), row.time_s)
        if row.kind == Kind.FAILED:
            self._failed[row.run] = run
            if (rules.on_failure == "resume" and computed) or run.saved:
                self._stopped[key] = row.time_s, {}
            elif rules.on_failure == "restart" and rules.checkpoint_interval_s is None:
                self._stopped.pop(key, None)
        elif rules.on_resume == "restart":
            self._stopped.pop(key, None)
        elif computed:
            self._stopped[key] = row.time_s, run.nodes


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


def link_traffic(schedule: Schedule, jobs: list[Job], models: Models) -> list[LinkUse]:
    """Return the traffic on the links of the shared network in a simulation of ``jobs``. The result
    is empty if there is no shared network.
    """
    if not isinstance(models.network, SharedNetwork):
        return []
    runtime = models.runtime
    sends = runtime if isinstance(runtime, Communication) else models.communication
    return LinkTraffic(schedule, jobs, models.network, sends, runtime, models.preemption).links()

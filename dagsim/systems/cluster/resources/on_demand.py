"""Nodes that are powered up when work needs them, and powered down when they are idle.

These are the states of such a node, and the events that end them:

    OFF ── a task is placed on it, or fits nowhere else ──> BOOTING ── the boot time ──> UP
    UP ── idle for ``idle_s`` ──> STOPPING ── the time to shut down ──> OFF
    BOOTING ── the boot fails: ``timeout_s`` ──> OFF and down, until the node is repaired

This order follows Slurm's documentation for power saving and cloud nodes
(https://slurm.schedmd.com/power_save.html). Powered-down nodes are allocated to a job immediately.
The nodes boot, and the job starts when all of them have registered. A node that stays idle for
SuspendTime is suspended, and is then unavailable for SuspendTimeout. A node that has not registered
after ResumeTimeout is marked as down, and its jobs are requeued. ResumeRate and SuspendRate limit
how many nodes change their power state per minute (``_do_power_work`` in power_save.c, Slurm
22.05). The trigger ``pending`` follows Kubernetes' cluster autoscaler. A node that is off is not
part of the cluster. It boots when a waiting task fits nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import product
from math import floor, inf, nextafter
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from simpy.events import Event

from dagsim.model import Kind, PowerState
from dagsim.model.log import packed_row
from dagsim.model.streams import stream
from dagsim.systems.cluster.clock import DISTURBANCES, Timer
from dagsim.systems.cluster.forks import COPIED, SAME, Forked
from dagsim.systems.cluster.resources.nodes import ALL, DemandClass, NodeState
from dagsim.systems.cluster.resources.site import nodes_by_counts
from dagsim.systems.cluster.state import Run, TaskState

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

_OFF, _BOOTING, _UP, _STOPPING = map(int, PowerState)
_POWER = int(Kind.POWER)
_MINUTE_S = 60.0


class OnDemandNodes(Forked):
    """The power states of a kernel's nodes. A kernel has this object only if one of its nodes is
    powered on demand.

    A run whose nodes are not all up is *allocated*: it holds its resources, and the log has a row
    ALLOCATED instead of STARTED. The run starts when its last node is up.
    """

    __slots__ = {
        "_allocated": COPIED,
        "_broken_s": COPIED,
        "_changes": COPIED,
        "_due_s": COPIED,
        "_expected": SAME,
        "_failing": COPIED,
        "_groups": SAME,
        "_idle_since_s": COPIED,
        "_kernel": COPIED,
        "_rules": SAME,
        "_runs": COPIED,
        "_scan_s": SAME,
        "_scanned": SAME,
        "_since_s": COPIED,
        "_streams": COPIED,
        "states": COPIED,
    }

    def __init__(self, kernel: ClusterKernel) -> None:
        nodes, begins_s = kernel.schedule.cluster.nodes, kernel.now
        self._kernel = kernel
        rules = {at: node.on_demand for at, node in enumerate(nodes) if node.on_demand is not None}
        self._rules = MappingProxyType(rules)
        groups: dict[tuple[object, ...], list[int]] = {}
        for at, rule in rules.items():
            own = nodes[at]
            groups.setdefault((replace(rule, up=False), own.gpu, own.gpus, own.cpus, own.memory_gb), []).append(at)
        self._groups = MappingProxyType({at: tuple(members) for members in groups.values() for at in members})
        """The nodes with the same rule and resources as each node."""
        self.states = {at: _UP if rule.up else _OFF for at, rule in self._rules.items()}
        """The ``PowerState`` of each node that is powered on demand."""
        self._since_s = dict.fromkeys(self._rules, begins_s)
        """The time at which each of these nodes entered its state."""
        self._due_s = dict.fromkeys(self._rules, inf)
        """The time at which its state ends or, for an idle node, at which it is checked again."""
        self._idle_since_s = dict.fromkeys(self._rules, begins_s)
        self._runs = dict.fromkeys(self._rules, 0)
        """Number of runs that hold each node."""
        self._allocated: dict[int, int] = {}
        """For each run that has not started, the number of its nodes that are booting."""
        self._failing: dict[int, None] = {}
        """The booting nodes whose boot will fail."""
        self._broken_s: dict[int, float] = {}
        """For each node whose boot failed, the time at which it will be repaired (infinite for never)."""
        self._changes: dict[str, tuple[float, float]] = {}
        """For boots and for stops, Slurm's count of recent changes and the time of this count."""
        self._streams = dict[int, np.random.Generator]()
        self._expected = False
        """True if boots take their expected time, in a fork without more information than a policy."""
        scans_s = [rule.scan_s for rule in self._rules.values() if rule.trigger == "pending"]
        self._scanned = min(scans_s, default=0.0)
        """Seconds between two scans for pending tasks, or 0 if no node boots for them."""
        self._scan_s = inf
        """Time of the next scan, if one is due."""
        for node in self._rules:
            self._show(node)
            if self.states[node] == _UP:
                self._due_s[node] = self._idle_until_s(node)

    @classmethod
    def of(cls, kernel: ClusterKernel) -> OnDemandNodes | None:
        """Create the power states of a kernel's nodes. Return None if no node is powered on demand."""
        on_demand = any(node.on_demand is not None for node in kernel.schedule.cluster.nodes)
        return cls(kernel) if on_demand else None

    @property
    def pending(self) -> bool:
        """True if a node is booting or shutting down, will be repaired after a failed boot, or may
        boot after a scheduled scan.
        """
        changing = any(state in (_BOOTING, _STOPPING) for state in self.states.values())
        return self._scan_s < inf or changing or any(until_s < inf for until_s in self._broken_s.values())

    def returning(self) -> Iterator[int]:
        """Yield the nodes that are down because a boot failed, but will be repaired."""
        yield from [node for node, until_s in self._broken_s.items() if until_s < inf]

    def attach(self) -> None:
        """Put the timers on the kernel's clock. This is called at the beginning of a simulation and
        in each fork.
        """
        for node, due_s in self._due_s.items():
            self._set_timer(node, due_s)
        if self._scan_s < inf:
            self._set_scan(self._scan_s)
        for node, until_s in self._broken_s.items():
            if until_s < inf:
                self._kernel.call_at(until_s, partial(self._mend, node))

    def believe_estimates(self) -> None:
        """Set every boot's duration to its expected value from now on. Forks for look-ahead call
        this.
        """
        self._expected, now = True, self._kernel.now
        self._failing.clear()
        for node, state in self.states.items():
            if state == _BOOTING:
                self._due_s[node] = max(now, self._since_s[node] + self._rules[node].mean_boot_s)

    # Runs.

    def allocate(self, run: Run, *, in_flight: bool = False) -> bool:
        """Record that a run has been allocated its nodes, and boot those that are off. Return True
        if the run has to wait for a boot. If the run is ``in_flight``, its nodes are already up.
        """
        now, booting, known_s = self._kernel.now, 0, 0.0
        for node in self._nodes_of(run):
            self._runs[node] += 1
            if self.states[node] != _UP and in_flight:
                self._change(node, _UP)
            elif self.states[node] == _OFF:
                self._boot(node)
            if self.states[node] == _BOOTING:
                booting += 1
                known_s = max(known_s, self._since_s[node] + self._rules[node].mean_boot_s - now)
        if booting:
            self._allocated[run.id] = booting
            run.setup_s = known_s
            run.phase_until(max([self._due_s[node] for node in self._nodes_of(run)]))
        return bool(booting)

    def holds(self, run: Run) -> bool:
        """Return True if a run is allocated but has not started."""
        return run.id in self._allocated

    def release(self, run: Run) -> bool:
        """Record that a run has returned its nodes. Return True if the run had started."""
        for node in self._nodes_of(run):
            self._runs[node] -= 1
            if not self._runs[node]:
                self._rest(node)
        return self._allocated.pop(run.id, None) is None

    def _nodes_of(self, run: Run) -> list[int]:
        return [machine.index for machine, *_ in run.held if machine.index in self._rules]

    # States.

    def is_open(self, node: int) -> bool:
        """Return True if the power state of the node allows tasks to be placed on it."""
        return node not in self._rules or self._rules[node].is_open(self.states[node])

    def fail(self, node: int) -> None:
        """Record that a node has gone down."""
        self._failing.pop(node, None)
        if self.states.get(node, _OFF) != _OFF:
            self._due_s[node] = inf
            self._change(node, _OFF)

    def repair(self, node: int) -> None:
        """Record that a node has come back. It is up if it was up at the beginning of the
        simulation. Otherwise, it is off.
        """
        if node in self._rules and self._rules[node].up:
            self._change(node, _UP)
            self._rest(node)

    def _boot(self, node: int) -> None:
        """Boot a node as soon as the rate of boots allows it. A node that waits for this
        already counts as booting.
        """
        rule = self._rules[node]
        begins_s = self._turn_s("boots", rule.boots_a_minute)
        self._change(node, _BOOTING)
        boot_s = self._boot_s(node)
        if rule.failing and not self._expected and self._stream(node).random() < rule.failing:
            self._failing[node], boot_s = None, rule.timeout_s
        self._set_timer(node, begins_s + boot_s)

    def _turn_s(self, kind: str, rate: int) -> float:
        """Return the earliest time from now on at which one more node may boot or stop. Count this
        change towards the rate if it is a boot, or if it may happen now.

        As in slurmctld, each change adds 1 to a counter that loses a sixtieth per second. While the
        rounded counter is at or above the rate per minute, no further node changes its state.
        """
        now = self._kernel.now
        if not rate:
            return now
        count, at_s = self._changes.get(kind, (0.0, now))
        turn_s = max(at_s, now)
        count = 0.0 if now - at_s >= _MINUTE_S else count * max(0.0, 1.0 - max(0.0, now - at_s) / _MINUTE_S)
        while floor(count + 0.5) >= rate:
            count, turn_s = count * (1.0 - 1.0 / _MINUTE_S), turn_s + 1.0
        if kind == "boots" or turn_s == now:
            self._changes[kind] = count + 1.0, turn_s
        return turn_s

    def _mend(self, node: int, _: Event) -> None:
        """Return a node to service after a failed boot."""
        if self._broken_s.pop(node, None) is not None:
            self._kernel.down_nodes.bring_up(node)

    def _stream(self, node: int) -> np.random.Generator:
        rng = self._streams.get(node)
        if rng is None:
            rng = self._streams[node] = stream(self._kernel.schedule.seed, "boots", node)
        return rng

    def _boot_s(self, node: int) -> float:
        """Draw the duration of a boot."""
        rule = self._rules[node]
        if self._expected or len(rule.boots_s) == 1:
            return rule.mean_boot_s
        return rule.boots_s[int(self._stream(node).integers(len(rule.boots_s)))]

    def _reached(self, event: Event) -> None:
        """End the current power state of a node, unless its timer has been set again in the
        meantime.
        """
        node: int = event.value  # type: ignore[assignment]
        if self._due_s[node] > self._kernel.now:
            return
        self._due_s[node] = inf
        match self.states[node]:
            case PowerState.BOOTING if node in self._failing:
                repair_s = self._rules[node].repair_s
                self._broken_s[node] = inf if repair_s is None else self._kernel.now + repair_s
                if repair_s is not None:
                    self._kernel.call_at(self._broken_s[node], partial(self._mend, node))
                self._kernel.down_nodes.take_down(node)
            case PowerState.BOOTING:
                self._come_up(node)
            case PowerState.STOPPING:
                self._change(node, _OFF)
            case PowerState.UP if not self._runs[node]:
                if (until_s := max(self._idle_until_s(node), self._needed_until_s(node))) > self._kernel.now:
                    self._set_timer(node, until_s)
                elif self._is_needed(node):
                    pass  # the group needs this node; this is checked again when another node of the group comes up
                elif (until_s := self._turn_s("stops", self._rules[node].stops_a_minute)) > self._kernel.now:
                    self._set_timer(node, until_s)
                elif shutdown_s := self._rules[node].shutdown_s:
                    self._change(node, _STOPPING)
                    self._set_timer(node, self._kernel.now + shutdown_s)
                else:
                    self._change(node, _OFF)

    def _come_up(self, node: int) -> None:
        """Record that a node is up, and start the runs that were waiting only for this node."""
        self._change(node, _UP)
        for other in self._groups[node]:  # now that this node is up, another one may be powered down
            if self.states[other] == _UP and not self._runs[other] and self._due_s[other] == inf and other != node:
                self._set_timer(other, max(self._kernel.now, self._idle_until_s(other)))
        if not self._runs[node]:
            self._rest(node)
        for run in [self._kernel.running[number] for number in sorted(self._allocated)]:
            if node in run.nodes:
                self._allocated[run.id] -= 1
                if not self._allocated[run.id]:
                    del self._allocated[run.id]
                    run.setup_s = 0.0
                    self._kernel.begin(run)
                    self._kernel.changed = True  # call the policy, because it may set a time limit for the run now
                    for tell in self._kernel.frontier.rated:
                        tell(run, self._kernel.now)

    def _rest(self, node: int) -> None:
        """Record that a node is idle, and set the timer for powering it down unless a timer is
        already set.
        """
        self._idle_since_s[node] = self._kernel.now
        if self.states[node] == _UP and self._due_s[node] == inf:
            self._set_timer(node, self._idle_until_s(node))

    def _idle_until_s(self, node: int) -> float:
        """Return the time at which an idle node is powered down. This is always later than the time
        at which the node becomes idle, because a policy may still place the next task on it at that
        time.
        """
        idle_s, since_s = self._rules[node].idle_s, self._idle_since_s[node]
        return inf if idle_s is None else max(since_s + idle_s, nextafter(since_s, inf))

    def _is_needed(self, node: int) -> bool:
        """Return True if a node has to stay up because its group would otherwise be below its
        minimum.
        """
        up = sum(self.states[other] == _UP for other in self._groups[node])
        return up <= self._rules[node].min_nodes

    def _needed_until_s(self, node: int) -> float:
        """Return the time until which a node that booted for pending tasks stays up even if it is
        idle. It stays up until all nodes that are booting for pending tasks are up, because the
        autoscaler removes no nodes while it is adding some.
        """
        if self._rules[node].trigger == "placed":
            return 0.0
        coming = [at for at, state in self.states.items() if state == _BOOTING and not self.is_open(at)]
        return max([nextafter(self._due_s[at], inf) for at in coming], default=0.0)

    def _change(self, node: int, state: int) -> None:
        kernel = self._kernel
        self.states[node], self._since_s[node] = state, kernel.now
        kernel.record(packed_row(_POWER, kernel.now, -1, -1, -1, node, 0, 0, float(state)))
        self._show(node)

    def _show(self, node: int) -> None:
        """Open a node to policies or close it, depending on its power state."""
        kernel, machines = self._kernel, self._kernel.machines
        machine = machines.list[node]
        machines.asleep &= ~machine.bit
        if self.states[node] == _OFF:
            machines.asleep |= machine.bit
        is_open = self.is_open(node) and not kernel.down_nodes.is_down(node)
        if is_open and not machine.up:
            machines.bring_up(machine, kernel.now)
            kernel.changed = True
        elif machine.up and not is_open:
            machines.take_down(machine)
        if self.states[node] == _OFF and not is_open:
            kernel.changed = True  # the node is off now, so waiting tasks may make it boot

    def _set_timer(self, node: int, due_s: float) -> None:
        self._due_s[node] = due_s
        Timer(self._kernel.clock, due_s, DISTURBANCES, node).callbacks.append(self._reached)

    # Pending tasks.

    def look(self) -> None:
        """Schedule a scan if tasks are still waiting after the policy has made its decisions, and
        if booting a node would help.
        """
        if self._scanned and self._scan_s == inf and self._kernel.frontier.ready and self._wanted():
            self._set_scan((floor(self._kernel.now / self._scanned) + 1) * self._scanned)

    def _set_scan(self, time_s: float) -> None:
        self._scan_s = time_s
        Timer(self._kernel.clock, time_s, DISTURBANCES).callbacks.append(self._scan)

    def _scan(self, _: Event) -> None:
        self._scan_s = inf
        for node in self._wanted():
            self._boot(node)

    def _wanted(self) -> list[int]:
        """Choose the nodes to boot for waiting tasks that fit on no node that is up or booting. The
        tasks are examined in the order in which they became ready. Each gets the first nodes on
        which it fits.
        """
        empty, coming = list(self._twins(_OFF)), list(self._twins(_BOOTING))
        booting, hopeless = len(coming), set[DemandClass]()
        fits = self._kernel.machines.fits
        for task in self._kernel.frontier.ready if empty else ():
            if task.demand not in hopeless and not fits(task.demand) and not self._fill(task, coming, empty):
                hopeless.add(task.demand)
        return sorted(machine.index for machine in coming[booting:])

    def _twins(self, state: int) -> Iterator[NodeState]:
        """Yield copies of the nodes that boot for pending tasks and are in power state ``state``.
        Tasks can be placed on the copies.
        """
        for node, rule in self._rules.items():
            if rule.trigger == "pending" and self.states[node] == state and not self._kernel.down_nodes.is_down(node):
                twin = self._kernel.machines.list[node].copy()
                twin.up = True
                yield twin

    def _fill(self, task: TaskState, coming: list[NodeState], empty: list[NodeState]) -> bool:
        """Place the waiting instances of a task on nodes of one type. Nodes that are already
        ``coming`` are used first, then ``empty`` ones, which are moved to ``coming``. Return True
        if any instance could be placed. A gang must be placed as a whole. It may also use nodes
        that are up, but must be within one of its domains and satisfy its counts.
        """
        demand, machines = task.demand, self._kernel.machines.list
        domains = demand.terms.domains if demand.terms is not None and demand.bound else (ALL,)
        for type_, domain in product(demand.types, domains):
            there = self._with_room(demand, type_, domain, [*coming, *empty])
            filled: list[tuple[NodeState, int]] = []
            missing = task.waiting
            for machine, room in there:
                count = min(room, missing)
                missing -= count
                # nodes that are not up are represented by copies
                if count and machine is not machines[machine.index]:
                    filled.append((machine, count))
            if not filled or (demand.gang and missing > 0):
                continue
            for machine, count in filled:
                machine.fill(demand, count)
                if machine in empty:
                    empty.remove(machine)
                    coming.append(machine)
            return True
        return False

    def _with_room(
        self, demand: DemandClass, type_: int, domain: int, twins: list[NodeState]
    ) -> list[tuple[NodeState, int]]:
        """Return the nodes of one type and domain on which instances fit, each with the number of
        instances. These are ``twins`` and, for a gang, also the nodes that are up, which come
        first. For a gang with counts, return nodes that satisfy the counts, or none.
        """
        machines = self._kernel.machines
        demand.widen()
        demand = copy(demand)
        demand.nodes &= domain
        up = [machines.list[at] for at in machines.candidates(demand, type_)] if demand.gang else []
        among = [machine for machine in (*up, *twins) if machine.type == type_]
        there = [(machine, room) for machine in among if (room := machine.room(demand))]
        if demand.terms is None or not demand.counted:
            return there
        chosen = nodes_by_counts([machine.index for machine, _ in there], demand.gang, demand.terms.counts)
        return [(machine, room) for machine, room in there if machine.index in (chosen or ())]

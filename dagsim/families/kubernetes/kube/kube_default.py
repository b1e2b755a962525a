"""The policy ``kube-default``, which manages the queue of kube-scheduler and carries out its
decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import require
from dagsim.families.kubernetes.kube.cycle import PodCycle, Victims, WaitingPod
from dagsim.families.kubernetes.kube.node_columns import BoundPod, NodeColumns
from dagsim.families.kubernetes.kube.objects import GPUS, Pod, node_of, plain_pod, pod_of
from dagsim.families.kubernetes.kube.profile import Profile, fit_arguments, read_profile
from dagsim.families.kubernetes.terms import WHOLE_GPUS
from dagsim.model import Decision, Kill, Placement, Preempt, RejectReason, Share, Start, Wait
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import (
    ALL,
    ClusterView,
    DemandClass,
    NextStep,
    NodeState,
    ReachedLimit,
    Run,
    Standing,
    TaskState,
)
from dagsim.systems.cluster.policies.preemption import make_room

_TaskKey: TypeAlias = tuple[int, int, int]
"""Number of the job, index of the task and number of the piece."""


def profile_from(scoring: str, cpu: float, memory: float, gpu: float, config: str) -> Profile:
    """Return the profile in a file, or the default profile with the given strategy and weights.

    Raises:
        ConfigError: A parameter is wrong, or the file cannot be read.
    """
    if config:
        stated = (scoring, cpu, memory, gpu) != ("least", 1, 1, 0)
        require(not stated, "scoring and weights are set in the file given by config; leave them out", config)
        return read_profile(Path(config))
    require(scoring in ("least", "most"), "scoring must be least or most; config=FILE allows others", scoring)
    weights = [("cpu", cpu), ("memory", memory), *[(name, gpu) for name in (*WHOLE_GPUS, GPUS)]]
    for name, weight in weights:
        whole = 0 <= weight <= 100 and weight == int(weight)
        require(whole, f"the weight of {name} in scores must be a whole number from 0 to 100", weight)
    return replace(Profile(), fit=fit_arguments(scoring, [(name, int(weight)) for name, weight in weights]))


class KubeDefault:
    """Schedules pods by ``Job.priority`` and, within a priority, by the time of the last attempt to
    find a node for them. Unless nodes fail or close, this is the order in which the pods arrived or
    came back. A pod for which no node is found is set aside and does not block any other pod. A pod
    is assigned to the feasible node with the highest score, or to the first of them if several have
    the same score (kube-scheduler picks one at random). The filters, the scores and preemption are
    the same as in kube-scheduler 1.35 if all nodes are scored (see ``docs/kubernetes.md``).

    ``config`` is a KubeSchedulerConfiguration that sets the weights and arguments of the plugins.
    If there is no ``config``, NodeResourcesFit uses the strategy ``scoring`` (``least`` or ``most``
    allocated) and the weights ``cpu``, ``memory`` and ``gpu``. With ``preempt``, a pod for which no
    node is found preempts pods of lower priority on the node where this does the least harm. A
    preempted or lost pod returns after ``restart_s`` seconds, behind the other pods of its
    priority. A preempted pod occupies its node for another ``grace_s`` seconds.

    A gang starts as a whole, as it does with a gang scheduling plug-in. The policy uses no
    estimates and is preemptive. Trying a pod costs O(nodes) operations on columns, and examining a
    node for preemption costs O(pods on the node) (Kubernetes, scheduling framework, 2025).
    """

    forgets = "when its pods were last tried"

    def __init__(
        self,
        scoring: str = "least",
        cpu: int = 1,
        memory: int = 1,
        gpu: int = 0,
        preempt: bool = True,
        config: str = "",
        restart_s: float = 0.0,
        grace_s: float = 0.0,
    ) -> None:
        profile = profile_from(scoring, cpu, memory, gpu, config)
        for name, seconds in (("restart_s", restart_s), ("grace_s", grace_s)):
            require(0 <= seconds < inf, f"{name} must be 0 or more", seconds)
        self._profile = profile if preempt else replace(profile, preempts=False)
        ignored = "; ".join(profile.unmodelled)
        self.notes = [f"settings without an effect here: {ignored}"] if ignored else []
        self._restart_s, self._grace_s = restart_s, grace_s
        self._leaving: dict[int, _Leaving] = {}
        """Pods of preempted runs that still hold their nodes, by run."""
        self._nominated: dict[_TaskKey, int] = {}
        """The nodes for which tasks are nominated."""
        self.nominations: dict[str, int] = {}
        """For each job with a nominated pod, the number of the node that is promised to it."""
        self._turns = _Turns()
        self._now = inf

    def wait_rules(self, view: ClusterView) -> KubeWaits:
        """Return the nodes that pods may use, so that waits can be explained."""
        return KubeWaits(_State(view, self._profile))

    def outlook(self, view: ClusterView) -> tuple[KubeWaits, list[Standing]]:
        """Return the nodes that pods may use, and the waiting tasks in the order of the queue. If
        no node passes the filters for a task, its outcome states how many nodes were rejected for
        which reason, in the words of kube-scheduler. No decisions are made.
        """
        state = _state(view, self._profile)
        rules, standings = KubeWaits(state), []
        for task in sorted(view.ready, key=lambda task: (-task.job.job.priority, task.job.job.arrival_s, task.order)):
            priority, outcome = float(task.job.job.priority), None
            verdict, counts = state.cycle.filters.verdicts(_pod(task))
            if not (verdict == 0).any() and rules.nodes(task):
                reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
                words = f"0/{len(verdict)} nodes are available: {reasons}"
                outcome = NextStep("Unschedulable", f"waits for room: {words}", words)
            parts = {"priority": priority} if priority else {}
            standings.append(Standing(task, "", 0, priority, parts, ALL, outcome))
        return rules, standings

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if view.now < self._now:  # time has gone back, so a new simulation has begun
            self._leaving.clear()
            self._nominated.clear()
            self._turns = _Turns()
        self._now = view.now
        state = _state(view, self._profile)
        make = partial(_Queue, view, state, self._turns, self._restart_s)
        queue = view.index((_Queue, self._profile, self._restart_s), make)
        self._repeat(view, state)
        queue.release(view)
        while (task := queue.first(view.now)) is not None:
            placement = state.place(view, task)
            if placement is None:
                yield from self._preempt(view, state, task)
                placement = state.place(view, task) if view.machines.released != queue.seen else None
            if placement is not None:
                state.snapshot.withdraw(_key(task))
                self._nominated.pop(_key(task), None)
                self._turns.known.pop(_key(task), None)
                yield Start(task, placement)
            queue.tried(view, task, placement is not None)
        self.nominations = state.nominations(view) if state.snapshot.nominated else {}
        wake_s = min([queue.next_s(), *[leaving.until_s for leaving in self._leaving.values()]])
        if wake_s < inf:
            yield Wait(wake_s)
        # Nothing runs and no job is still to arrive, so no waiting pod will ever fit.
        elif not (view.running or view.pending):
            for number in dict.fromkeys([task.job.number for task in view.ready]):
                yield Kill(number, RejectReason.CANCELLED)

    def _repeat(self, view: ClusterView, state: _State) -> None:
        """Add the terminating pods and the nominations to a state that lacks them, because a fork
        begins with a new state.
        """
        for run, leaving in list(self._leaving.items()):
            if leaving.until_s <= view.now:
                del self._leaving[run]
                state.leave(leaving)
            else:
                state.linger(leaving)
        lacking = [key for key in self._nominated if state.snapshot.nomination(key) is None]
        for task in view.ready if lacking else ():
            if _key(task) in lacking:
                state.nominate(task, self._nominated[_key(task)])

    def _preempt(self, view: ClusterView, state: _State, task: TaskState) -> Iterator[Preempt]:
        """Stop runs of lower priority, or tell them to terminate, if the task would then fit."""
        if not self._profile.preempts:
            return
        if task.demand.gang:
            yield from map(Preempt, make_room(view, task, state.lower(view, task)))
            return
        victims = state.victims(view, task)
        if victims is None:
            return
        key, snapshot = _key(task), state.snapshot
        for other in list(snapshot.nominated.get(victims.node, {}).values()):
            if other.priority < task.job.job.priority:
                snapshot.withdraw(other.key)
                self._nominated.pop(other.key, None)
        snapshot.withdraw(key)
        state.nominate(task, victims.node)
        for run in dict.fromkeys([bound.key[0] for bound in victims.pods if not bound.leaving]):
            if self._grace_s:
                self._nominated[key] = victims.node
                pods = state.pods_of(view.running[run])
                self._leaving[run] = _Leaving(view.now + self._grace_s, pods)
                yield Preempt(run)
                state.linger(self._leaving[run])
            else:
                yield Preempt(run)


class _Leaving(NamedTuple):
    """The pods that are terminating, each with its node and the time at which it will be gone."""

    until_s: float
    pods: tuple[tuple[int, BoundPod], ...]


class NodeScorer:
    """Places the pods of a task in the same way as ``KubeDefault``, whatever the order in which
    tasks are placed. The parameters are the same as for ``KubeDefault``."""

    def __init__(
        self, scoring: str = "least", cpu: float = 1, memory: float = 1, gpu: float = 0, config: str = ""
    ) -> None:
        self._profile = profile_from(scoring, cpu, memory, gpu, config)

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        """Place one pod of the task, or a whole gang. If ``type_`` is set, only nodes of this type
        are used."""
        return _state(view, self._profile).place(view, task, type_)


def _key(task: TaskState) -> _TaskKey:
    return task.job.number, task.index, task.piece


def _pod(task: TaskState) -> Pod:
    manifest = task.task.manifest
    return pod_of(manifest) if manifest else plain_pod(task.task.demand)


def _state(view: ClusterView, profile: Profile) -> _State:
    return view.index((_State, profile), partial(_State, view, profile))


class _State:
    """The snapshot of a simulation, which the kernel keeps up to date."""

    def __init__(self, view: ClusterView, profile: Profile) -> None:
        machines = view.machines.list
        self.snapshot = NodeColumns([node_of(machine.node) for machine in machines])
        self.cycle = PodCycle(profile, self.snapshot)
        self._types = np.array([machine.type for machine in machines])
        self._of_types: dict[tuple[int, ...], np.ndarray] = {}
        self.freed: list[int] = []
        """Nodes on which runs have ended since the queue was last updated, one entry per release."""
        self.lost: Counter[int] = Counter()
        """Number of pods that each failed node has lost since the queue was last updated."""
        self.starts = 0
        """Number of runs that have started."""
        self.numbers = {node.name: number for number, node in enumerate(self.snapshot.nodes)}

    def started(self, run: Run, now: float) -> None:
        """Add the pods of a run."""
        for node, bound in self.pods_of(run):
            self.snapshot.add(node, bound)
        self.starts += 1

    def ended(self, run: Run, now: float) -> None:
        """Remove the pods of a run."""
        for machine, count, *_ in run.held:
            for number in range(count):
                self.snapshot.remove(machine.index, (run.id, machine.index, number))
            self.freed.append(machine.index)
            if not machine.up:
                self.lost[machine.index] += count

    @staticmethod
    def pods_of(run: Run) -> tuple[tuple[int, BoundPod], ...]:
        """Return the pods of a run, each with its node."""
        pod, priority = _pod(run.task), run.job.job.priority
        return tuple(
            [
                (
                    machine.index,
                    BoundPod((run.id, machine.index, number), pod, priority, run.started_s, pod.terminating),
                )
                for machine, count, *_ in run.held
                for number in range(count)
            ]
        )

    def linger(self, leaving: _Leaving) -> None:
        """Keep the resources of a preempted run occupied until its pods have terminated, unless
        they are kept already."""
        for node, bound in leaving.pods:
            if (key := ("leaving", *bound.key)) not in self.snapshot.pods[node]:
                self.snapshot.add(node, bound._replace(key=key, leaving=True))

    def leave(self, leaving: _Leaving) -> None:
        """Free the resources of pods that have terminated."""
        for node, bound in leaving.pods:
            if (key := ("leaving", *bound.key)) in self.snapshot.pods[node]:
                self.snapshot.remove(node, key)
            self.freed.append(node)

    def nominate(self, task: TaskState, node: int) -> None:
        """Reserve resources on a node for the task."""
        self.snapshot.nominate(node, BoundPod(_key(task), _pod(task), task.job.job.priority, inf))

    def nominations(self, view: ClusterView) -> dict[str, int]:
        """Return the node for which each job is nominated."""
        nodes = {key: node for node, bound_pods in self.snapshot.nominated.items() for key in bound_pods}
        return {task.job.job.id: nodes[_key(task)] for task in view.ready if _key(task) in nodes}

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        """Place one pod of the task or a whole gang."""
        if task.demand.gang:
            return self._place_gang(view, task, type_)
        nodes = self._allowed(self.cycle.feasible(self._waiting(task)), task.demand, type_)
        node = self._best(view, task, nodes)
        return None if node is None else (Share(node),)

    def _best(self, view: ClusterView, task: TaskState, nodes: np.ndarray) -> int | None:
        """Return the best feasible node on which the kernel can place the task, too. In addition to
        the filters, the kernel checks whether nodes are down and whether shares of GPUs fit.
        """
        machines, demand = view.machines.list, task.demand
        if not len(nodes):
            return None
        node = self.cycle.best(_pod(task), nodes)
        if machines[node].room(demand):
            return node
        nodes = np.array([node for node in nodes.tolist() if machines[node].room(demand)], np.int64)
        return self.cycle.best(_pod(task), nodes) if len(nodes) else None

    def _place_gang(self, view: ClusterView, task: TaskState, type_: int | None) -> Placement | None:
        """Place all pods of a gang in turn on nodes of one type. The type of the best node for the
        first pod is tried first.
        """
        machines, demand = view.machines, task.demand
        pod, wanted = _pod(task), demand.gang
        types = [type_] if type_ is not None else list(demand.types)
        if len(types) > 1:
            demand.open_to(demand.opened)
            nodes = self._allowed(self.cycle.feasible(self._waiting(task)), demand, None)
            order: list[int] = []
            while len(nodes) and (node := self._best(view, task, nodes)) is not None:
                order.append(int(self._types[node]))
                nodes = nodes[self._types[nodes] != order[-1]]
            types = order
        for candidate in types:
            if not machines.fits_on(demand, candidate):
                continue
            taken: dict[int, int] = {}
            for number in range(wanted):
                nodes = self._allowed(self.cycle.feasible(self._waiting(task)), demand, candidate)
                room = [node for node in nodes.tolist() if machines.list[node].room(demand) > taken.get(node, 0)]
                if not room:
                    break
                node = self.cycle.best(pod, np.array(room))
                taken[node] = taken.get(node, 0) + 1
                self.snapshot.add(node, BoundPod(("gang", number, node), pod, task.job.job.priority, inf))
            for node in taken:
                for key in [key for key in self.snapshot.pods[node] if key[0] == "gang"]:
                    self.snapshot.remove(node, key)
            if whole_sum(taken.values()) == wanted:
                return tuple([Share(*pair) for pair in sorted(taken.items())])
        return None

    def victims(self, view: ClusterView, task: TaskState) -> Victims | None:
        """Return the least harmful preemption after which the kernel can place the task, too."""
        waiting = self._waiting(task)
        self.cycle.now = view.now
        if not self.cycle.may_preempt(waiting):
            return None
        for victims in self.cycle.candidates(waiting):
            if not len(self._allowed(np.array([victims.node]), task.demand, None)):
                continue
            machine: NodeState = view.machines.list[victims.node].copy()
            for run in dict.fromkeys([bound.key[0] for bound in victims.pods if bound.key[0] != "leaving"]):
                for held, count, mask, on in view.running[run].held:
                    if held.index == victims.node:
                        machine = machine.after(view.running[run].task.demand, count, mask, on)
            if machine.room(task.demand):
                return victims
        return None

    def lower(self, view: ClusterView, task: TaskState) -> Iterator[Run]:
        """Yield the runs of lower priority that may be stopped. Runs with the lowest priority come
        first, and among these the youngest."""
        below = [
            run
            for run in view.running.values()
            if run.job.job.priority < task.job.job.priority and run.started_s < view.now
        ]
        return iter(sorted(below, key=lambda run: (run.job.job.priority, -run.id)))

    def _waiting(self, task: TaskState) -> WaitingPod:
        return WaitingPod(_key(task), _pod(task), task.job.job.priority)

    def _allowed(self, nodes: np.ndarray, demand: DemandClass, type_: int | None) -> np.ndarray:
        """Return the nodes on which the kernel would let the demand start, whether or not it fits
        there now."""
        types = demand.types if type_ is None else (type_,)
        among = self._of_types.get(types)
        if among is None:
            among = self._of_types[types] = np.isin(self._types, types)
        nodes = nodes[among[nodes]]
        if demand.nodes == -1:
            return nodes
        return np.array([node for node in nodes.tolist() if demand.nodes >> node & 1], np.int64)


class KubeWaits:
    """Determines which nodes pods may use because of taints, cordons and labels; see
    ``waits.WaitRules``. Rules about other pods are not included, because their effect changes with
    these pods."""

    elsewhere = "it would have fitted, but only on nodes that its selectors and tolerations do not allow"

    def __init__(self, state: _State) -> None:
        self._filters = state.cycle.filters

    def started(self, run: int, task: TaskState, instances: int, type_: int) -> None:
        """Add a run."""

    def ended(self, run: int) -> None:
        """Remove a run."""

    def limits(self, task: TaskState) -> Iterator[str]:
        """Yield nothing, because this policy has no limits."""
        return iter(())

    def reached(self, task: TaskState) -> Iterator[ReachedLimit]:
        """Yield nothing, because there are no limits that could be reached."""
        return iter(())

    def never(self, task: TaskState) -> Iterator[str]:
        """Explain why the pod cannot be placed, if no node allows it."""
        if not self.nodes(task):
            counts = self._filters.verdicts(_pod(task))[1]
            yield "no node: " + ", ".join(f"{count} {reason}" for reason, count in counts.items())

    def nodes(self, task: TaskState) -> int:
        """Return the nodes whose taints, cordons and labels allow the pod, as a bit set."""
        return sum(1 << node for node in np.flatnonzero(self._filters.static(_pod(task)) == 0).tolist())

    def alone(self, task: TaskState) -> bool:
        """Return False, because pods share nodes."""
        return False

    def distinct(self, task: TaskState) -> bool:
        """Return False, because pods of one task may share a node."""
        return False


class _Rejection(NamedTuple):
    """The part of a rejection that decides after which events kube-scheduler tries the pod again
    (its queueing hints).
    """

    by_pods: bool
    """True if some node rejects it only because of the pods there."""
    by_taints: bool
    """True if some node is down, or has a taint that the pod does not tolerate."""
    by_cordons: bool
    """True if some node is cordoned or drained."""


class _Turns:
    """The order in which pods were last tried, stored only for pods whose order of arrival is
    different. This belongs to the policy and not to the queue, because a fork gets a new queue.
    """

    def __init__(self) -> None:
        self.round = 0
        """Number of times that pods have moved behind others."""
        self.known: dict[_TaskKey, tuple[int, int, float, float, _Rejection]] = {}
        """For each waiting pod the round in which it last moved, its place among those that moved
        with it, the times at which it and its previous pod were created, and its rejection."""
        self.created_s: dict[tuple[int, int], float] = {}
        """The time at which the latest pod of each task was created, by job and index."""


class _Group(NamedTuple):
    """Waiting tasks with the same template, priority and reason for rejection. If there is no node
    for the first task, there is none for the others either.
    """

    number: int
    key: object
    rejection: _Rejection
    heap: list[tuple[float, int, int, float, float, int, int, TaskState]]
    """In order: negative priority, round, place, times at which the task arrived and at which its
    previous pod did, order, piece."""

    def first(self) -> TaskState | None:
        """Drop the tasks that no longer wait, and return the first remaining one."""
        while self.heap and not self.heap[0][-1].waiting:
            heappop(self.heap)
        return self.heap[0][-1] if self.heap else None


_NEW = 1 << 62
"""Place of a pod that has not moved: behind all that moved in the same round."""


class _Queue:
    """The waiting tasks, ordered by priority and then by the time when a node for them was last
    searched. A task without a node is set aside until departing pods free a node on which it might
    fit.

    kube-scheduler tries a pod again only after events that could help it, and then puts it behind
    the other pods of its priority. An event that concerns all waiting pods does not change their
    order, so only other events are handled here.
    """

    def __init__(self, view: ClusterView, state: _State, turns: _Turns, restart_s: float) -> None:
        self._machines = view.machines
        self._state = state
        self._turns = turns
        self._restart_s = restart_s
        self._groups: dict[object, _Group] = {}
        self._by_number: list[_Group] = []
        self._active: list[tuple[float, int, int, float, float, int, int, int]] = []
        """A heap of the first task in each group that is not blocked, with the group's number."""
        self._later: list[tuple[float, int, int, TaskState]] = []
        """Tasks that come back later."""
        rows = len(state.snapshot.row)
        self._asks = np.zeros((0, rows), np.int64)
        self._blocked = np.zeros(0, bool)
        self._priorities = np.zeros(0)
        self._depends = np.zeros(0, bool)
        """True if the filters of a group depend on pods elsewhere, and so also on pods that start."""
        self._starts = 0
        self.seen = -1
        """Number of releases (``ClusterState.released``) taken into account so far."""
        self._rejections: dict[tuple[Pod, DemandClass], _Rejection] = {}
        """Rejections by the nodes as they are now."""
        self._up = np.ones(0, bool)
        self._nodes_seen = -1, -inf
        """Number of failures (``ClusterState.downs``) and time of the last return (``returned_s``)
        taken into account so far."""
        self._nodes_judged = self._nodes_seen
        self._returned_s = -inf
        self._were_up = {machine.index for machine in view.machines.list if machine.up}
        self._unsettled = False
        """True if pods that departures do not concern have come since the last departure."""

    def push(self, task: TaskState) -> None:
        """Add a task."""
        if task.piece and self._restart_s:
            heappush(self._later, (task.ready_s + self._restart_s, task.order, task.piece, task))
            return
        pod = _pod(task)
        if pod.nominated in self._state.numbers and not task.piece:
            self._state.nominate(task, self._state.numbers[pod.nominated])
        self._add(task)

    def _add(self, task: TaskState) -> _Group:
        known = self._turns.known.get(_key(task))
        if known is None:
            came_s = task.ready_s + (self._restart_s if task.piece else 0.0)
            before_s = self._turns.created_s.get(_key(task)[:2], came_s)
            self._turns.created_s[_key(task)[:2]] = came_s
            known = self._turns.round, _NEW, came_s, before_s, self._rejection(task)
            self._turns.known[_key(task)] = known
        turn, place, came_s, before_s, rejection = known
        group = self._group(self._group_key(task), rejection, task)
        entry = -task.job.job.priority, turn, place, came_s, before_s, task.order, task.piece, task
        heappush(group.heap, entry)
        if group.heap[0] is entry and not self._blocked[group.number]:
            heappush(self._active, (*entry[:7], group.number))
        self._unsettled |= not rejection.by_pods
        return group

    def _group_key(self, task: TaskState) -> object:
        key = (task.job.job.priority, task.demand, _pod(task))
        return key if self._state.snapshot.nomination(_key(task)) is None else (key, _key(task))

    def _group(self, key: object, rejection: _Rejection, task: TaskState) -> _Group:
        group = self._groups.get((key, rejection))
        if group is None:
            pod, snapshot = _pod(task), self._state.snapshot
            group = self._groups[key, rejection] = _Group(len(self._by_number), key, rejection, [])
            self._by_number.append(group)
            if len(self._blocked) < len(self._by_number):
                self._grow()
            self._asks[group.number] = snapshot.needs(pod)[0]
            self._priorities[group.number] = task.job.job.priority
            self._depends[group.number] = pod.needs or bool(pod.service_labels)
        return group

    def _rejection(self, task: TaskState) -> _Rejection:
        """Return the reasons why nodes reject the task now. Its pod must not fit anywhere."""
        nodes_now = self._machines.downs, self._machines.returned_s
        if nodes_now != self._nodes_seen:
            self._rejections.clear()
            self._up = np.array([machine.up for machine in self._machines.list], bool)
            self._nodes_seen = nodes_now
        pod, demand = _pod(task), task.demand
        rejection = self._rejections.get((pod, demand))
        if rejection is None:
            static, opened = self._state.cycle.filters.static(pod), self._up
            cordoned = static == 1
            if demand.nodes != ALL:
                closed = np.array([not demand.nodes >> node & 1 for node in range(len(opened))])
                cordoned, opened = cordoned | closed, opened & ~closed
            rejection = self._rejections[pod, demand] = _Rejection(
                bool((opened & (static == 0)).any()), bool((~self._up | (static == 2)).any()), bool(cordoned.any())
            )
        return rejection

    def _grow(self) -> None:
        more = max(64, len(self._blocked))
        self._asks = np.concatenate([self._asks, np.zeros((more, self._asks.shape[1]), np.int64)])
        self._blocked = np.concatenate([self._blocked, np.zeros(more, bool)])
        self._priorities = np.concatenate([self._priorities, np.zeros(more)])
        self._depends = np.concatenate([self._depends, np.zeros(more, bool)])

    def first(self, now: float) -> TaskState | None:
        """Return the first task for which there may be a node."""
        while self._later and self._later[0][0] <= now:
            self._add(heappop(self._later)[3])
        while self._active:
            *entry, number = self._active[0]
            group = self._by_number[number]
            task = group.first()
            if not self._blocked[number] and task is not None:
                if list(group.heap[0][:7]) == entry:
                    return task
                heappop(self._active)
                heappush(self._active, (*group.heap[0][:7], number))
            else:
                heappop(self._active)
        return None

    def next_s(self) -> float:
        """Return the time at which the next task will come back."""
        return self._later[0][0] if self._later else inf

    def tried(self, view: ClusterView, task: TaskState, started: bool) -> None:
        """Record the outcome of the attempt to place the first task. If no node was found, the task
        is set aside together with its group. If the task has just been nominated for a node, it
        waits separately."""
        if not started:
            group = self._by_number[heappop(self._active)[7]]
            if self._state.snapshot.nomination(_key(task)) is not None:
                heappop(group.heap)
                if group.heap:
                    heappush(self._active, (*group.heap[0][:7], group.number))
                group = self._add(task)
            self._blocked[group.number] = True
        self.release(view)

    def release(self, view: ClusterView) -> None:
        """Try those groups again that may fit now because pods have ended or started."""
        state, released = self._state, view.machines.released
        if released == self.seen and state.starts == self._starts and not state.freed:
            return
        self._reorder(view)
        blocked = self._blocked[: len(self._by_number)]
        again = np.zeros(len(blocked), bool)
        if released != self.seen or state.freed:
            # A waiting pod can become feasible on a node that no pod has left only if its rejection
            # was due to the labels of other pods.
            local = released - self.seen == len(state.freed) and not state.snapshot.has_anti_affinity
            if self.seen >= 0 and local:
                for node in set(state.freed):
                    again |= self._fit(node)
            else:
                again[:] = True
            self.seen = released
        state.freed.clear()
        if state.starts != self._starts:
            self._starts = state.starts
            again |= self._depends[: len(again)]
        for number in np.flatnonzero(again & blocked).tolist():
            self._unblock(self._by_number[number])

    def _unblock(self, group: _Group) -> None:
        self._blocked[group.number] = False
        if group.first() is not None:
            heappush(self._active, (*group.heap[0][:7], group.number))

    def _reorder(self, view: ClusterView) -> None:
        """Move each pod that kube-scheduler has tried again behind the other pods of its
        priority."""
        state, machines = self._state, self._machines
        nodes_now = machines.downs, machines.returned_s
        if state.freed and (self._unsettled or nodes_now != self._nodes_judged):
            self._unsettled, self._nodes_judged = False, nodes_now
            first = self._wake(lambda rejection: rejection.by_pods)
            if first is not None and max(state.lost.values(), default=0) > 1:
                self._overtake(view, first)
        state.lost.clear()
        if machines.returned_s != self._returned_s:
            self._returned_s = machines.returned_s
            up = {machine.index for machine in machines.list if machine.up}
            if up <= self._were_up:  # no node has come up, so a cordon must have ended
                self._wake(lambda rejection: rejection.by_taints or rejection.by_cordons)
            else:
                self._wake(lambda rejection: rejection.by_taints)
            self._were_up = up

    def _wake(self, concerns: Callable[[_Rejection], bool]) -> TaskState | None:
        """Move each pod that an event concerns behind the other pods of its priority, and evaluate
        it again. Return the first of these pods.
        """
        waiting = [group for group in self._by_number if group.first() is not None]
        others = {group.heap[0][0] for group in waiting if not concerns(group.rejection)}
        woken = [group for group in waiting if concerns(group.rejection)]
        entries = []
        for group in woken:
            if group.heap[0][0] in others or self._rejection(group.heap[0][-1]) != group.rejection:
                entries += [(entry, bool(self._blocked[group.number])) for entry in group.heap if entry[-1].waiting]
        first = min([group.heap[0] for group in woken], default=None)
        for group in woken:
            if group.heap[0][0] in others or self._rejection(group.heap[0][-1]) != group.rejection:
                group.heap.clear()
        self._turns.round += bool(others)
        for place, (entry, blocked) in enumerate(sorted(entries)):
            turn = (self._turns.round, place) if entry[0] in others else entry[1:3]
            self._turns.known[_key(entry[-1])] = *turn, *entry[3:5], self._rejection(entry[-1])
            group = self._add(entry[-1])
            if self._blocked[group.number] and not blocked:
                self._unblock(group)
        return None if first is None else first[-1]

    def _overtake(self, view: ClusterView, first: TaskState) -> None:
        """Let the other pods with the same priority overtake the first pod, if there is no node for
        it.

        The pods of a failed node are deleted in turn. kube-scheduler tries the first waiting pod
        after the first deletion, and later deletions send it back to the queue, where it is now the
        pod that was tried last.
        """
        rejection = self._rejection(first)
        if not rejection.by_pods or self._state.place(view, first) or self._state.victims(view, first):
            return
        heap = self._group(self._group_key(first), rejection, first).heap
        entry = next(entry for entry in heap if entry[-1] is first)
        heap.remove(entry)
        heapify(heap)
        self._turns.round += 1
        self._turns.known[_key(first)] = self._turns.round, 0, *entry[3:5], rejection
        self._add(first)

    def _fit(self, node: int) -> np.ndarray:
        """Return True for each group whose pods would have enough of every resource on the node if
        all pods of lower priority were stopped there. Also return True for groups that depend on
        pods on other nodes.
        """
        snapshot, groups = self._state.snapshot, len(self._by_number)
        free = snapshot.allocatable[:, node] - snapshot.requested[:, node]
        levels = np.array(sorted(snapshot.by_priority))
        freed = np.zeros((len(levels) + 1, len(free)), np.int64)
        if self._state.cycle.profile.preempts:
            for place, priority in enumerate(levels.tolist()):
                freed[place + 1] = freed[place] + snapshot.by_priority[priority][:-1, node]
        room = free + freed[np.searchsorted(levels, self._priorities[:groups])]
        enough = ((self._asks[:groups] <= room) | (self._asks[:groups] == 0)).all(axis=1)
        result: np.ndarray = enough | self._depends[:groups]
        return result

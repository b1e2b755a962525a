"""The queue of kube-scheduler: which of the waiting pods it tries next."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from dagsim.families.kubernetes.kube.kube_state import KubeState, PieceKey, task_key, task_pod
from dagsim.families.kubernetes.kube.objects import Pod
from dagsim.systems.cluster.api import ALL, ClusterView, DemandClass, TaskState


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


class Turns:
    """The order in which pods were last tried, stored only for pods for which this differs from the
    order of arrival. The policy stores it instead of the queue, because a fork gets a new queue."""

    def __init__(self) -> None:
        self.round = 0
        """Number of times that pods have moved behind others."""
        self.turn_of: dict[PieceKey, tuple[int, int, float, float, _Rejection]] = {}
        """Five facts about each waiting pod: the round in which it last moved, its place among the
        pods that moved in this round, the times at which it and the task's previous pod were
        created, and its rejection."""
        self.created_s: dict[tuple[int, int], float] = {}
        """The time at which the latest pod of each task was created, by job and index."""


class _Group(NamedTuple):
    """Waiting tasks with the same template, priority and reason for rejection. If the first
    task does not fit on any node, neither do the others.
    """

    number: int
    key: object
    rejection: _Rejection
    heap: list[tuple[float, int, int, float, float, int, int, TaskState]]
    """Entries that consist of: negative priority, round, place, arrival time of the task, arrival
    time of its previous pod, order, piece."""

    def first(self) -> TaskState | None:
        """Drop the tasks that no longer wait, and return the first remaining one."""
        while self.heap and not self.heap[0][-1].waiting:
            heappop(self.heap)
        return self.heap[0][-1] if self.heap else None


_NEW = 1 << 62
"""Place of a pod that has not moved, which is behind all pods that moved in the same round."""


class PodQueue:
    """The waiting tasks, ordered by priority and then by the time when a node for them was last
    searched. A task without a node is set aside until departing pods free a node on which it might
    fit.

    kube-scheduler tries a pod again only after events that could help it, and then puts it behind
    the other pods of its priority. An event that concerns all waiting pods does not change their
    order, so only other events are handled here.
    """

    def __init__(self, view: ClusterView, state: KubeState, turns: Turns, restart_s: float) -> None:
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
        """Add a waiting task to the queue."""
        if task.piece and self._restart_s:
            heappush(self._later, (task.ready_s + self._restart_s, task.order, task.piece, task))
            return
        pod = task_pod(task)
        if pod.nominated in self._state.numbers and not task.piece:
            self._state.nominate(task, self._state.numbers[pod.nominated])
        self._add(task)

    def _add(self, task: TaskState) -> _Group:
        facts = self._turns.turn_of.get(task_key(task))
        if facts is None:
            came_s = task.ready_s + (self._restart_s if task.piece else 0.0)
            before_s = self._turns.created_s.get(task_key(task)[:2], came_s)
            self._turns.created_s[task_key(task)[:2]] = came_s
            facts = self._turns.round, _NEW, came_s, before_s, self._rejection(task)
            self._turns.turn_of[task_key(task)] = facts
        turn, place, came_s, before_s, rejection = facts
        group = self._group(self._group_key(task), rejection, task)
        entry = -task.job.job.priority, turn, place, came_s, before_s, task.order, task.piece, task
        heappush(group.heap, entry)
        if group.heap[0] is entry and not self._blocked[group.number]:
            heappush(self._active, (*entry[:7], group.number))
        self._unsettled |= not rejection.by_pods
        return group

    def _group_key(self, task: TaskState) -> object:
        key = (task.job.job.priority, task.demand, task_pod(task))
        return key if self._state.snapshot.nomination(task_key(task)) is None else (key, task_key(task))

    def _group(self, key: object, rejection: _Rejection, task: TaskState) -> _Group:
        group = self._groups.get((key, rejection))
        if group is None:
            pod, snapshot = task_pod(task), self._state.snapshot
            group = self._groups[key, rejection] = _Group(len(self._by_number), key, rejection, [])
            self._by_number.append(group)
            if len(self._blocked) < len(self._by_number):
                self._grow()
            self._asks[group.number] = snapshot.needs(pod)[0]
            self._priorities[group.number] = task.job.job.priority
            self._depends[group.number] = pod.needs or bool(pod.service_labels)
        return group

    def _rejection(self, task: TaskState) -> _Rejection:
        """Return why nodes reject a task whose pod fits on no node now."""
        nodes_now = self._machines.downs, self._machines.returned_s
        if nodes_now != self._nodes_seen:
            self._rejections.clear()
            self._up = np.array([machine.up for machine in self._machines.list], bool)
            self._nodes_seen = nodes_now
        pod, demand = task_pod(task), task.demand
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
            if self._state.snapshot.nomination(task_key(task)) is not None:
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
            # On a node that no pod has left, a waiting pod can become feasible only if other pods'
            # labels caused its rejection.
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
            self._turns.turn_of[task_key(entry[-1])] = *turn, *entry[3:5], self._rejection(entry[-1])
            group = self._add(entry[-1])
            if self._blocked[group.number] and not blocked:
                self._unblock(group)
        return None if first is None else first[-1]

    def _overtake(self, view: ClusterView, first: TaskState) -> None:
        """Move the first pod behind the other pods with the same priority if no node can run it.

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
        self._turns.turn_of[task_key(first)] = self._turns.round, 0, *entry[3:5], rejection
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

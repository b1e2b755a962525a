"""The policy ``kube-default``, which decides as kube-scheduler does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import numpy as np

from dagsim.errors import require
from dagsim.families.kubernetes.api.terms import WHOLE_GPUS
from dagsim.families.kubernetes.kube.kube_state import (
    KubeState,
    Leaving,
    run_pod_key,
    state_of,
    task_key,
    task_pod,
)
from dagsim.families.kubernetes.kube.node_columns import PodKey
from dagsim.families.kubernetes.kube.objects import GPUS
from dagsim.families.kubernetes.kube.pod_queue import PodQueue, Turns
from dagsim.families.kubernetes.kube.profile import Profile, fit_arguments, read_profile
from dagsim.model import Decision, Kill, Placement, Preempt, RejectReason, Start, Wait
from dagsim.systems.cluster.api import ALL, ClusterView, NextStep, Standing, TaskState, WaitRules
from dagsim.systems.cluster.policies.preemption import make_room


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
    find a node for them. Unless nodes fail or are closed, this is the order in which the pods
    arrived or came back. A pod for which no node is found is set aside and does not block any other
    pod. A pod is assigned to the feasible node with the highest score, or to the first of them if
    several have the same score (kube-scheduler picks one at random). The filters, the scores and
    preemption are the same as in kube-scheduler 1.35 if all nodes are scored (see
    ``docs/kubernetes.md``).

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
        self._leaving: dict[int, Leaving] = {}
        """Pods of preempted runs that still hold their nodes, by run."""
        self._nominated: dict[PodKey, int] = {}
        """The nodes for which tasks are nominated."""
        self.nominations: dict[str, int] = {}
        """For each job with a nominated pod, the number of the node that is promised to it."""
        self._turns = Turns()
        self._now = inf

    def wait_rules(self, view: ClusterView) -> KubeWaits:
        """Return the nodes that pods may use, so that waits can be explained."""
        return KubeWaits(KubeState(view, self._profile))

    def outlook(self, view: ClusterView) -> tuple[KubeWaits, list[Standing]]:
        """Return the nodes that pods may use, and the waiting tasks in the order of the queue. If
        no node passes the filters for a task, its outcome states how many nodes were rejected for
        which reason, in the words of kube-scheduler. No decisions are made.
        """
        state = state_of(view, self._profile)
        rules, standings = KubeWaits(state), []
        for task in sorted(view.ready, key=lambda task: (-task.job.job.priority, task.job.job.arrival_s, task.order)):
            priority, outcome = float(task.job.job.priority), None
            verdict, counts = state.cycle.filters.verdicts(task_pod(task))
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
            self._turns = Turns()
        self._now = view.now
        state = state_of(view, self._profile)
        make = partial(PodQueue, view, state, self._turns, self._restart_s)
        queue = view.index((PodQueue, self._profile, self._restart_s), make)
        self._repeat(view, state)
        queue.release(view)
        while (task := queue.first(view.now)) is not None:
            placement = state.place(view, task)
            if placement is None:
                yield from self._preempt(view, state, task)
                placement = state.place(view, task) if view.machines.released != queue.seen else None
            if placement is not None:
                state.snapshot.withdraw(task_key(task))
                self._nominated.pop(task_key(task), None)
                self._turns.turn_of.pop(task_key(task), None)
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

    def _repeat(self, view: ClusterView, state: KubeState) -> None:
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
            if task_key(task) in lacking:
                state.nominate(task, self._nominated[task_key(task)])

    def _preempt(self, view: ClusterView, state: KubeState, task: TaskState) -> Iterator[Preempt]:
        """Stop runs of lower priority, or tell them to terminate, if the task would then fit."""
        if not self._profile.preempts:
            return
        if task.demand.gang:
            yield from map(Preempt, make_room(view, task, state.lower(view, task)))
            return
        victims = state.victims(view, task)
        if victims is None:
            return
        key, snapshot = task_key(task), state.snapshot
        for other in list(snapshot.nominated.get(victims.node, {}).values()):
            if other.priority < task.job.job.priority:
                snapshot.withdraw(other.key)
                self._nominated.pop(other.key, None)
        snapshot.withdraw(key)
        state.nominate(task, victims.node)
        for run in dict.fromkeys([run_pod_key(bound).run for bound in victims.pods if not bound.leaving]):
            if self._grace_s:
                self._nominated[key] = victims.node
                pods = state.pods_of(view.running[run])
                self._leaving[run] = Leaving(view.now + self._grace_s, pods)
                yield Preempt(run)
                state.linger(self._leaving[run])
            else:
                yield Preempt(run)


class NodeScorer:
    """Places the pods of a task in the same way as ``KubeDefault``, regardless of the order in
    which tasks are placed. The parameters are the same as for ``KubeDefault``."""

    def __init__(
        self, scoring: str = "least", cpu: float = 1, memory: float = 1, gpu: float = 0, config: str = ""
    ) -> None:
        self._profile = profile_from(scoring, cpu, memory, gpu, config)

    def place(self, view: ClusterView, task: TaskState, type_: int | None = None) -> Placement | None:
        """Place one pod of the task, or a whole gang. If ``type_`` is set, only nodes of this type
        are used."""
        return state_of(view, self._profile).place(view, task, type_)


class KubeWaits(WaitRules):
    """Determines which nodes pods may use because of taints, cordons and labels. Rules about other
    pods are not included, because their effect changes with these pods."""

    elsewhere = "it would have fitted, but only on nodes that its selectors and tolerations do not allow"

    def __init__(self, state: KubeState) -> None:
        self._filters = state.cycle.filters

    def never(self, task: TaskState) -> Iterator[str]:
        """Explain why the pod cannot be placed, if no node allows it."""
        if not self.nodes(task):
            counts = self._filters.verdicts(task_pod(task))[1]
            yield "no node: " + ", ".join(f"{count} {reason}" for reason, count in counts.items())

    def nodes(self, task: TaskState) -> int:
        """Return the nodes whose taints, cordons and labels allow the pod, as a bit set."""
        return sum(1 << node for node in np.flatnonzero(self._filters.static(task_pod(task)) == 0).tolist())

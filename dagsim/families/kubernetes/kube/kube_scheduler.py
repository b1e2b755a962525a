"""The real kube-scheduler as a policy that runs in simulated time (docs/kubernetes.md).

dagsim takes the place of the API server, on the loopback interface. The simulated clock stands
still until kube-scheduler is idle. Its bindings and deletions are then carried out as decisions.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias
from weakref import finalize

import yaml

from dagsim.errors import ConfigError, PolicyFailed, require
from dagsim.families.kubernetes.api.pod_context import PodContext
from dagsim.families.kubernetes.kube.idleness import Idleness
from dagsim.families.kubernetes.kube.scheduler_objects import (
    SchedulerObjects,
    node_manifest,
    stated_manifest,
    valid_name,
)
from dagsim.families.kubernetes.server.api_resources import NODES, PODS, resource
from dagsim.families.kubernetes.server.api_server import admitted
from dagsim.families.kubernetes.server.object_store import ObjectChange, ObjectKey, stamp
from dagsim.families.kubernetes.server.patches import Manifest
from dagsim.families.kubernetes.server.patches import field as value_at
from dagsim.families.kubernetes.server.program import Beside, checked_program, kubeconfig
from dagsim.model import Decision, Kill, Preempt, RejectReason, Share, Start, Wait
from dagsim.systems.cluster.api import ClusterView, Run, TaskState

_NO_BACKOFF_S = 2**55
"""A value that overflows to 0 when kube-scheduler converts it to nanoseconds, which means no
back-off. (kube-scheduler rejects the value 0 itself.) Back-off is measured in real seconds, and
hundreds of simulated seconds pass in each of them.
"""
_OPTIONAL = {
    # Another process may take the port before the program does, so allow the program to share it.
    "--permit-port-sharing": "true",
    # The default would retry every pod after 5 minutes of real time.
    "--pod-max-in-unschedulable-pods-duration": "10000h",
    # dagsim reads the metrics endpoint to see whether the scheduler is idle. These metrics, which
    # dagsim does not need, make up 90% of the response.
    "--disabled-metrics": "scheduler_plugin_execution_duration_seconds,scheduler_plugin_evaluation_total,"
    "scheduler_framework_extension_point_duration_seconds,scheduler_pod_scheduling_sli_duration_seconds,"
    "kubernetes_feature_enabled,rest_client_rate_limiter_duration_seconds,rest_client_request_duration_seconds,"
    "rest_client_response_size_bytes,rest_client_request_size_bytes",
}
"""Options that some versions do not have."""
_LATER_S = 1e-3
"""A pod that has to leave at the moment at which it starts is stopped this many simulated seconds
later."""
_NOT_READY = [{"key": "node.kubernetes.io/not-ready", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
_CORDONED = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
_OWN_TAINTS = [taint["key"] for taint in (*_NOT_READY, *_CORDONED)]
"""Taints that the node controller of a cluster sets."""
_BUDGETS, _SERVICES = resource("poddisruptionbudgets", "policy"), resource("services")
_NAMESPACES = resource("namespaces")

_TaskKey: TypeAlias = tuple[int, int, int]


class KubeScheduler:
    """An unmodified kube-scheduler, which dagsim starts anew for every simulation. ``binary`` is
    its path, ``config`` is a KubeSchedulerConfiguration (profiles, plugins, extenders), and
    ``arguments`` are additional command-line arguments.

    Each instance of a task is represented by a pod. A gang starts when its last pod is bound; until
    then, the pods that are already bound occupy their nodes, as in a cluster without a gang
    scheduling plug-in. A preempted or lost pod comes back as a new pod after ``restart_s`` seconds,
    and a victim occupies its node for another ``grace_s`` seconds. ``timeout_s`` limits the real
    time that the scheduler may take at each moment of the simulation. If a scheduler does not serve
    the metrics of kube-scheduler, it is considered idle after ``still_s`` seconds of real time
    without a request.

    kube-scheduler chooses at random among equally good nodes, so two runs may differ if the cluster
    has identical nodes.

    Raises:
        ConfigError: ``config`` cannot be read or uvicorn is not installed.
        UnknownName: The program does not exist.
    """

    def __init__(
        self,
        binary: str = "",
        config: str = "",
        arguments: str = "",
        restart_s: float = 0.0,
        grace_s: float = 0.0,
        timeout_s: float = 60.0,
        still_s: float = 0.1,
        command: str = "",
        endpoint: str = "",
    ) -> None:
        self.name = "kube-scheduler"
        self._binary = checked_program(self.name, binary or command, timeout_s)
        for name, seconds in (("restart_s", restart_s), ("grace_s", grace_s), ("still_s", still_s)):
            require(0 <= seconds < inf, f"{self.name}: {name} must be 0 or more", seconds)
        self._still_s = still_s
        self._configuration = read_configuration(Path(config)) if config else {}
        self._arguments = shlex.split(arguments)
        self._restart_s, self._grace_s, self._timeout_s = restart_s, grace_s, timeout_s
        self._session: _Session | None = None
        self.notes = [
            "kube-scheduler chooses at random among equally good nodes, so another run may place jobs elsewhere"
        ]

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise PolicyFailed(f"policy {self.name!r} cannot be forked: the state of another program cannot be copied")

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        """Yield the decisions that kube-scheduler makes at the current time.

        Raises:
            PolicyFailed: The program ended, it was not idle in time, or a task cannot be expressed
                as a pod.
        """
        if self._session is None:
            beside = Beside(self.name, self._timeout_s)
            try:
                self._session = _Session(view, beside, self._command, self._configuration, self._still_s)
            except BaseException:
                beside.close()
                raise
            self._session.restart_s = self._restart_s
            beside.store.grace_s = self._grace_s
            finalize(self, beside.close)
        view.follow(self._session)
        return self._session.decisions(view)

    def _command(self, configuration: str, port: int) -> list[str]:
        known = self._help()
        return [
            self._binary,
            f"--config={configuration}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--authentication-skip-lookup=true",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            *[f"{name}={value}" for name, value in _OPTIONAL.items() if name in known],
            *self._arguments,
        ]

    def _help(self) -> str:
        """Return the options that the program supports."""
        try:
            known = subprocess.run([self._binary, "--help"], capture_output=True, timeout=min(5.0, self._timeout_s))
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return (known.stdout + known.stderr).decode("utf-8", "replace")


def read_configuration(path: Path) -> Manifest:
    """Read a KubeSchedulerConfiguration.

    Raises:
        ConfigError: The file cannot be read or contains something else.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"kube-scheduler: config {path}: cannot be read: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise ConfigError(f"kube-scheduler: config {path}: expected kind: KubeSchedulerConfiguration")
    return document


@dataclass(slots=True)
class _Waiting:
    """The pods of a task that has not started. Some pods of a gang may already be bound. They wait
    until the others are bound as well.
    """

    task: TaskState
    pods: list[ObjectKey] = field(default_factory=list)
    bound: dict[ObjectKey, int] = field(default_factory=dict)
    """The node of each bound pod."""


class _Event(NamedTuple):
    """An action of kube-scheduler on a pod. It is ``bind``, with the name of the node, or
    ``delete``."""

    what: str
    pod: ObjectKey
    node: str = ""


class _Session:
    """A simulation as it appears to kube-scheduler."""

    def __init__(
        self,
        view: ClusterView,
        beside: Beside,
        command: Callable[[str, int], list[str]],
        configuration: Manifest,
        still_s: float,
    ) -> None:
        self.restart_s = 0.0
        self._beside, self._store = beside, beside.store
        self._nodes = [machine.node for machine in view.machines.list]
        self._numbers = {node.name: number for number, node in enumerate(self._nodes)}
        self._state = [(True, False)] * len(self._nodes)
        """For each node, whether it is up, and whether it is drained."""
        self._carried = [
            bool(value_at(json.loads(node.manifest), "spec.unschedulable")) if node.manifest else False
            for node in self._nodes
        ]
        profiles = configuration.get("profiles") or [{}]
        scheduler = str(profiles[0].get("schedulerName") or "default-scheduler")
        types = [machine.type for machine in view.machines.list]
        self._objects = SchedulerObjects(self._nodes, types, scheduler, beside.fail)
        self._waiting: dict[_TaskKey, _Waiting] = {}
        self._tasks: dict[ObjectKey, _TaskKey] = {}
        """The task of each pod that waits."""
        self._pods_of: dict[int, list[ObjectKey]] = {}
        """Pods by run."""
        self._run_of: dict[ObjectKey, int] = {}
        self._ended: list[Run] = []
        self._new: list[TaskState] = []
        self._later: list[tuple[float, TaskState]] = []
        self._past: list[Run] = []
        self._placed: list[ObjectKey] | None = None
        """The pods of the start that is being carried out."""
        self._leaving: dict[ObjectKey, float] = {}
        """The times at which deleted pods are gone."""
        self._stops: list[int] = []
        """Runs to be stopped that had only just started."""
        self._events: list[_Event] = []
        self._undecided: set[ObjectKey] = set()
        self._serial = 0
        self._kept: set[tuple[object, ObjectKey]] = set()
        self._idleness = Idleness(beside, still_s)
        self._store.listeners.append(self._changed)
        port = beside.held_port()
        self._idleness.metrics = beside.metrics(port)
        beside.store.now_s = view.now
        beside.call(self._begin(view))
        beside.start(
            lambda document, url: command(document("config", self._settings(configuration, document, url)), port)
        )
        beside.call(self._ready())

    @staticmethod
    def _settings(configuration: Manifest, document: Callable[[str, Any], str], url: str) -> Manifest:
        client = {
            "kubeconfig": document("kubeconfig", kubeconfig(url)),
            "contentType": "application/json",
            "acceptContentTypes": "application/json",
            "qps": 5000,
            "burst": 10000,
        }
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            **configuration,
            "clientConnection": client,
            "leaderElection": {"leaderElect": False},
            "podInitialBackoffSeconds": _NO_BACKOFF_S,
            "podMaxBackoffSeconds": _NO_BACKOFF_S,
        }

    # The kernel calls the methods below.

    def push(self, task: TaskState) -> None:
        """Record that a task has become ready."""
        if task.piece and self.restart_s:
            self._later.append((task.ready_s + self.restart_s, task))
        else:
            self._new.append(task)

    def started(self, run: Run, now: float) -> None:
        """Record which pods belong to a run. A run that the policy did not start gets new pods."""
        if run.id in self._pods_of:
            return
        if self._placed is None:
            self._pods_of[run.id] = []
            self._past.append(run)
            return
        self._pods_of[run.id] = self._placed
        self._run_of.update(dict.fromkeys(self._placed, run.id))

    def ended(self, run: Run, now: float) -> None:
        """Record that a run has ended or was stopped."""
        self._ended.append(run)

    # Decisions.

    def decisions(self, view: ClusterView) -> Iterator[Decision]:
        """Yield the decisions that kube-scheduler makes at the current time."""
        now = view.now
        due = [run for run in self._stops if run in view.running and view.running[run].started_s < now]
        self._stops = [run for run in self._stops if run in view.running and run not in due]
        for run in due:
            yield Preempt(run)
        self._beside.call(self._instant(view))
        events, self._events = self._events, []
        for event in events:
            yield from self._bound(view, event) if event.what == "bind" else self._deleted(view, event)
        if events or due:
            return  # the kernel calls the policy again after these decisions
        wakes = [*self._leaving.values(), *[when for when, _ in self._later]]
        if self._stops:
            wakes.append(now + _LATER_S)
        if wakes:
            yield Wait(min(wakes))
        elif not (view.running or view.pending):
            yield from self._give_up(view)

    def _bound(self, view: ClusterView, event: _Event) -> Iterator[Decision]:
        key = self._tasks.pop(event.pod, None)
        waiting = None if key is None else self._waiting.get(key)
        if waiting is None:
            return  # the job has already left the system
        if event.node not in self._numbers:
            self._beside.fail(f"bound the pod {event.pod[1]} to the node {event.node!r}, which does not exist")
        task, node = waiting.task, self._numbers[event.node]
        if task.demand.nodes != -1 and not task.demand.nodes >> node & 1:
            self._beside.fail(
                f"bound {task.name} to {event.node}, which a reservation or another rule of the site closes to it; "
                "pods know no such rules"
            )
        taken = 1 + sum(other == node for other in waiting.bound.values())
        if view.machines.list[node].room(task.demand) < taken:
            why = "which has no room for it" if view.machines.list[node].up else "which is down"
            self._beside.fail(f"bound the pod {event.pod[1]} to the node {event.node!r}, {why}")
        if not task.demand.gang:
            self._placed = [event.pod]
            yield Start(task, (Share(node),))
            self._placed = None
            waiting.pods.remove(event.pod)
            return
        waiting.bound[event.pod] = node
        if len(waiting.bound) == len(waiting.pods):
            counts = Counter(waiting.bound.values())
            self._placed = waiting.pods
            self._store.held.update(waiting.pods)
            yield Start(task, tuple([Share(*pair) for pair in sorted(counts.items())]))
            self._placed = None
            del self._waiting[key]  # type: ignore[arg-type]

    def _deleted(self, view: ClusterView, event: _Event) -> Iterator[Decision]:
        """Stop the run of a pod that kube-scheduler has deleted. If the pod was bound but its gang
        has not started yet, the pod waits again.
        """
        run = self._run_of.get(event.pod)
        if run is None:
            for key, waiting in self._waiting.items():
                if waiting.bound.pop(event.pod, None) is not None:
                    waiting.pods.remove(event.pod)
                    self._beside.call(self._add_pods(key, 1))
                    return
            return
        if run not in view.running or run in self._stops:
            return
        if view.running[run].started_s < view.now:
            yield Preempt(run)
        else:
            self._stops.append(run)

    @staticmethod
    def _give_up(view: ClusterView) -> Iterator[Decision]:
        """Cancel the tasks that would wait forever because nothing changes any more."""
        for number in dict.fromkeys([task.job.number for task in view.ready]):
            yield Kill(number, RejectReason.CANCELLED)

    # The methods below run in the server's thread.

    async def _begin(self, view: ClusterView) -> None:
        store = self._store
        self._namespace("default")
        for machine in view.machines.list:
            store.create(
                NODES, admitted(NODES, node_manifest(machine.node, machine.type, self._objects.gpu_name), store)
            )

    async def _ready(self) -> None:
        deadline = time.monotonic() + self._beside.timeout_s
        await self._beside.ready((PODS, NODES), deadline)
        await self._beside.still(0.2, deadline)
        await self._idleness.reset()

    def _namespace(self, name: str) -> None:
        if ("", name) not in self._store.objects[_NAMESPACES]:
            object = {"metadata": {"name": name}}
            self._store.create(_NAMESPACES, admitted(_NAMESPACES, object, self._store))

    async def _instant(self, view: ClusterView) -> None:
        """Publish what has changed, and wait until kube-scheduler is idle."""
        store, now = self._store, view.now
        if now > store.now_s:
            store.held.clear()
        store.now_s = now
        before = store.version
        # Close nodes before the resources of their lost pods are released. Otherwise, the scheduler
        # could bind a pod to a node that is gone.
        await self._change_nodes(view, closing=True)
        for key in [key for key, when in self._leaving.items() if when <= now]:
            self._remove(key)
        self._forget(view)
        await self._change_nodes(view, closing=False)
        for run in self._past:
            self._add_past(run)
        self._past.clear()
        came = [task for when, task in self._later if when <= now]
        self._later = [(when, task) for when, task in self._later if when > now]
        # Send pods in order of priority, so that the scheduler binds no pod before it has seen the
        # more important ones.
        for task in sorted([*came, *self._new], key=lambda task: (-task.job.job.priority, task.ready_s, task.order)):
            self._submit(task)
        self._new.clear()
        if self._tasks and store.version != before:
            await self._idleness.wait(self._undecided)

    def _remove(self, key: ObjectKey) -> None:
        self._leaving.pop(key, None)
        self._undecided.discard(key)
        if key in self._store.objects[PODS]:
            self._store.delete(PODS, key)

    def _forget(self, view: ClusterView) -> None:
        """Remove the pods of runs that have ended and of tasks that no longer exist."""
        for run in self._ended:
            for key in self._pods_of.pop(run.id, ()):
                self._run_of.pop(key, None)
                if key not in self._leaving:
                    self._remove(key)
        self._ended.clear()
        for place, waiting in list(self._waiting.items()):
            if place[0] not in view.jobs or not waiting.task.waiting:
                for pod in waiting.pods:
                    self._tasks.pop(pod, None)
                    self._remove(pod)
                del self._waiting[place]

    async def _change_nodes(self, view: ClusterView, *, closing: bool) -> None:
        """Taint nodes that are down, cordon nodes that are being drained (``closing``), and reopen
        nodes that are available again. Then wait until kube-scheduler has noticed.
        """
        drained, before = self._closed(), self._store.version
        for number, machine in enumerate(view.machines.list):
            state = (machine.up, bool(drained >> number & 1))
            was_up, was_drained = self._state[number]
            closes = (was_up and not state[0]) or (state[1] and not was_drained)
            if state == self._state[number] or closes != closing:
                continue
            self._state[number] = state
            self._write_node(machine.node.name, *state, self._carried[number])
        if self._store.version != before:
            await self._idleness.wait(self._undecided)

    def _write_node(self, name: str, up: bool, drained: bool, cordoned: bool) -> None:
        node = self._store.get(NODES, ("", name))
        closed = drained or cordoned
        taints = [taint for taint in value_at(node, "spec.taints") or () if taint.get("key") not in _OWN_TAINTS]
        taints += ([] if up else _NOT_READY) + (_CORDONED if closed else [])
        # The annotation changes with every update, so kube-scheduler counts each update as exactly
        # one event.
        note = {"annotations": {"dagsim/version": node["metadata"]["resourceVersion"]}}
        ready = {"type": "Ready", "status": "True" if up else "False"}
        spec = {"taints": taints, "unschedulable": closed}
        new = {
            **node,
            "metadata": {**node["metadata"], **note},
            "spec": {**node["spec"], **spec},
            "status": {**node["status"], "conditions": [ready]},
        }
        self._store.assign(NODES, ("", name), new)

    def _closed(self) -> int:
        """Return the nodes that are currently closed to every waiting task that could otherwise use
        them. The result is a bit set.
        """
        demands = {id(one.demand): one.demand for one in [*[w.task for w in self._waiting.values()], *self._new]}
        terms = [(demand.terms.nodes, demand.opened) for demand in demands.values() if demand.terms is not None]
        if not terms or len(terms) < len(demands):
            return 0
        usable = closed = 0
        for allowed, opened in terms:
            usable |= allowed
            closed |= opened
        return usable & ~closed

    def _submit(self, task: TaskState) -> None:
        if not task.waiting:
            return
        key = task.job.number, task.index, task.piece
        self._waiting[key] = _Waiting(task)
        self._create(key, task.waiting)

    async def _add_pods(self, key: _TaskKey, count: int) -> None:
        self._create(key, count)

    def _create(self, key: _TaskKey, count: int) -> None:
        waiting = self._waiting[key]
        task = waiting.task
        manifest = self._pod(task, key)
        namespace = manifest["metadata"]["namespace"]
        for _ in range(count):
            self._serial += 1
            name = f"{valid_name(task.job.job.id)}-{key[1]}-{key[2]}-{self._serial}"
            pod = {**manifest, "metadata": {**manifest["metadata"], "name": name}}
            waiting.pods.append((namespace, name))
            self._tasks[namespace, name] = key
            self._undecided.add((namespace, name))
            self._store.create(PODS, admitted(PODS, json.loads(json.dumps(pod)), self._store))

    def _add_past(self, run: Run) -> None:
        """Create the pods of a run that was already in progress when the simulation began."""
        key = run.task.job.number, run.task.index, run.task.piece
        manifest = self._pod(run.task, key)
        for machine, count, *_ in run.held:
            for _ in range(count):
                self._serial += 1
                name = f"{valid_name(run.job.job.id)}-{key[1]}-{key[2]}-{self._serial}"
                pod = {
                    **manifest,
                    "metadata": {**manifest["metadata"], "name": name},
                    "spec": {**manifest["spec"], "nodeName": machine.node.name},
                    "status": {"phase": "Running", "startTime": stamp(run.started_s)},
                }
                self._store.create(PODS, admitted(PODS, json.loads(json.dumps(pod)), self._store))
                place = (manifest["metadata"]["namespace"], name)
                self._pods_of[run.id].append(place)
                self._run_of[place] = run.id

    def _pod(self, task: TaskState, key: _TaskKey) -> Manifest:
        """Return the pod for an instance of a task. Some properties of a pod follow from other
        objects, so this function also creates these objects."""
        pod = self._objects.pod(task, key)
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"]["labels"]
        self._namespace(namespace)
        self._surround(PodContext.of(stated_manifest(task)), labels, namespace)
        return pod

    def _surround(self, context: PodContext, labels: dict[str, str], namespace: str) -> None:
        """Create the Service that selects the pod and the budgets that protect it."""
        if selector := context.services:
            name = "service-" + "-".join(sorted(f"{key}.{value}" for key, value in selector.items()))
            self._keep(_SERVICES, namespace, valid_name(name), {"spec": {"selector": selector}})
        for budget, allowed in context.budgets.items():
            label = f"dagsim/budget-{valid_name(budget)}"[:63]
            labels[label] = "true"
            protected = {"selector": {"matchLabels": {label: "true"}}}
            object = {"spec": protected, "status": {"disruptionsAllowed": allowed}}
            self._keep(_BUDGETS, namespace, valid_name(budget), object)

    def _keep(self, kind: Any, namespace: str, name: str, object: Manifest) -> None:
        if (kind, (namespace, name)) not in self._kept:
            self._kept.add((kind, (namespace, name)))
            self._store.create(kind, {**object, "metadata": {"name": name}}, namespace)

    def _changed(self, change: ObjectChange) -> None:
        """Record an action of kube-scheduler on a pod."""
        self._idleness.sent(change)
        if change.resource != PODS or not change.source:
            return
        metadata, status = change.object["metadata"], change.object.get("status") or {}
        key = (metadata["namespace"], metadata["name"])
        was = change.old or {}
        if change.event == "DELETED" or ("deletionTimestamp" in metadata and not _is_leaving(was)):
            self._undecided.discard(key)
            if change.event != "DELETED":
                # The API allows only whole seconds, so it states a grace_s of 2.5 s as 3 s.
                whole_s = float(metadata["deletionGracePeriodSeconds"])
                held_s = _LATER_S if key in self._store.held else 0.0
                self._leaving[key] = self._store.now_s + max(min(whole_s, self._store.grace_s), held_s)
            if value_at(was, "spec.nodeName"):
                self._events.append(_Event("delete", key))
        elif value_at(change.object, "spec.nodeName") and not value_at(was, "spec.nodeName"):
            self._undecided.discard(key)
            # If the pod is deleted immediately, the deletion is delayed, because the kernel cannot
            # stop a run at the moment when it starts.
            self._store.held.add(key)
            self._events.append(_Event("bind", key, change.object["spec"]["nodeName"]))
        elif any(one.get("type") == "PodScheduled" for one in status.get("conditions") or ()):
            self._undecided.discard(key)


def _is_leaving(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in (pod.get("metadata") or {})

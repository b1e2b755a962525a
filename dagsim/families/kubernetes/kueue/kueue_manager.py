"""The real manager of Kueue as a policy that runs in simulated time (docs/kubernetes.md).

dagsim takes the place of the API server and of the job controllers. The simulated clock stands
still until the manager is idle. Pods of admitted workloads are placed on nodes as with the policy
``kueue``.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any, NoReturn

from dagsim.errors import ConfigError, PolicyFailed, TraceError, require
from dagsim.families.kubernetes.kueue.engine import Cycle, Preempted
from dagsim.families.kubernetes.kueue.kueue_objects import (
    KueueObjects,
    PodSetAssignment,
    Workload,
)
from dagsim.families.kubernetes.kueue.kueue_policy import Kueue
from dagsim.families.kubernetes.kueue.manifests import kueue_workload_object
from dagsim.families.kubernetes.kueue.workloads import WorkloadState
from dagsim.families.kubernetes.kueue.written_manifests import KUEUE_GROUP, manifests_of, plain_name, workload_manifest
from dagsim.families.kubernetes.server.api_resources import resource
from dagsim.families.kubernetes.server.api_server import admitted
from dagsim.families.kubernetes.server.object_store import ObjectChange, ObjectKey, is_true, stamp
from dagsim.families.kubernetes.server.program import Beside, checked_program, kubeconfig
from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView

_WORKLOADS, _QUEUES = resource("workloads", KUEUE_GROUP), resource("clusterqueues", KUEUE_GROUP)
_VERSIONS = ("v1beta2", "v1beta1")
_BY = re.compile(r"UID: ([\w-]+)")


class KueueManager(Kueue):
    """An unmodified manager of Kueue, which dagsim starts anew for every simulation; Kueue's own
    ``minimalkueue`` can be used. ``binary`` is its path, ``arguments`` are additional command-line
    arguments, and ``version`` is the version of the API that it uses. Objects, workloads and the
    placement of pods are the same as with the policy ``kueue``.

    The manager is considered idle when it has sent no request for ``still_s`` seconds of real time.
    If quota was released while workloads are waiting, ``return_s`` seconds are required instead,
    because the manager brings those workloads back after a second. ``timeout_s`` limits the real
    time that the manager may take at each moment of the simulation.

    Raises:
        ConfigError: ``version`` is not a version of Kueue's API, or uvicorn is not installed.
        UnknownName: The program does not exist.
    """

    forgets = "which workloads the manager had set aside"

    def __init__(
        self,
        binary: str = "",
        arguments: str = "",
        version: str = "v1beta2",
        scoring: str = "least",
        cpu: float = 1.0,
        memory: float = 1.0,
        gpu: float = 0.0,
        checks_s: float = 0.0,
        timeout_s: float = 60.0,
        still_s: float = 0.2,
        return_s: float = 1.2,
        command: str = "",
        endpoint: str = "",
    ) -> None:
        super().__init__(scoring, cpu, memory, gpu, checks_s=checks_s)
        self.name = "kueue-manager"
        for name, seconds in (("still_s", still_s), ("return_s", return_s)):
            require(0 < seconds < 60, f"{self.name}: {name} must be a number of seconds above 0", seconds)
        if version not in _VERSIONS:
            raise ConfigError(f"{self.name}: version must be one of {', '.join(_VERSIONS)}, got {version!r}")
        self._binary = checked_program(self.name, binary or command, timeout_s)
        self._arguments, self._version = shlex.split(arguments), version
        self._timeout_s, self._still_s, self._return_s = timeout_s, still_s, return_s
        self._beside: Beside | None = None

    outlook = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise PolicyFailed(f"policy {self.name!r} cannot be forked: the state of another program cannot be copied")

    def _engine(self, objects: KueueObjects) -> Any:
        if self._beside is not None:
            self._beside.close()
        self._beside = Beside(self.name, self._timeout_s)
        if objects.fair_sharing is not None or objects.admission_fair_sharing is not None:
            self._note("fair sharing is part of the manager's own configuration, so it was not passed on")
        return ManagedAdmission(objects, self._beside, self._command, self._version, self._still_s, self._return_s)

    def _name_of(self, spec: Workload) -> str:
        return plain_name(spec.name)

    def _command(self, kubeconfig: str) -> list[str]:
        return [self._binary, f"--kubeconfig={kubeconfig}", *self._arguments]

    def _give_up(self, view: ClusterView, tasks: Any) -> Iterator[Decision]:
        admission: ManagedAdmission = self._admission  # type: ignore[assignment]
        for message in admission.messages():
            self._note(message)
        yield from self._cancel(task for task in tasks.ready.values() if task.waiting)


class ManagedAdmission:
    """The same interface as ``Admission``, for a manager that runs in another process."""

    def __init__(
        self,
        objects: KueueObjects,
        beside: Beside,
        command: Callable[[str], list[str]],
        version: str,
        still_s: float,
        return_s: float,
    ) -> None:
        self.objects = objects
        self.workloads: dict[str, WorkloadState] = {}
        self._locals = {local.name: local for local in objects.local_queues}
        self._beside, self._store = beside, beside.store
        self._version, self._still_s, self._return_s = version, still_s, return_s
        self._writes: list[Callable[[], None]] = []
        self._events: list[tuple[str, str, str]] = []
        """Workloads that were admitted or evicted: what, name, message."""
        self._released = False
        self._store.listeners.append(self._changed)
        try:
            beside.call(self._begin())
            beside.start(lambda document, url: command(document("kubeconfig", kubeconfig(url))))
            beside.call(self._ready())
        except BaseException:
            beside.close()
            raise

    async def _begin(self) -> None:
        for group, plural, object in manifests_of(self.objects, self._version):
            kind = resource(plural, group)
            self._store.create(kind, admitted(kind, object, self._store))

    async def _ready(self) -> None:
        deadline = time.monotonic() + self._beside.timeout_s
        await self._beside.ready((_WORKLOADS, _QUEUES), deadline)
        await self._beside.still(max(1.0, self._still_s), deadline)

    # The methods below have the same interface as ``Admission``.

    def submit(self, spec: Workload) -> WorkloadState:
        """Add a workload that is waiting, or one that already holds quota (with
        ``assignments``)."""
        local = self._locals[spec.queue]
        workload = WorkloadState(spec, spec.cluster_queue or local.cluster_queue, 0)
        workload.where = "admitted" if spec.assignments else "heap"
        self.workloads[spec.name] = workload
        object = workload_manifest(spec, self._version)
        created = stamp(spec.created_s)

        def write() -> None:
            new = self._store.create(_WORKLOADS, object)
            if new["metadata"]["creationTimestamp"] != created:
                dated = {**new, "metadata": {**new["metadata"], "creationTimestamp": created}}
                self._store.assign(_WORKLOADS, _key(spec), dated)

        self._writes.append(write)
        return workload

    def finish(self, workload: WorkloadState, now: float) -> None:
        """Remove a workload that has ended or was withdrawn by its user."""
        if self.workloads.pop(workload.name, None) is None:
            return
        self._released |= workload.where == "admitted"
        workload.where = ""
        key = _key(workload.spec)
        self._writes.append(lambda: key in self._store.objects[_WORKLOADS] and self._store.delete(_WORKLOADS, key))  # type: ignore[arg-type]

    def bring_back(self, now: float) -> None:
        """Do nothing, because the manager itself brings workloads back."""

    def next_return(self) -> float:
        """Return infinity, because no workload comes back at a later simulated time."""
        return inf

    def cycles(self, now: float) -> Iterator[Cycle]:
        """Run the manager until it is idle. Yield the workloads that it has admitted and
        evicted, one at a time."""
        if not self._writes:
            return
        self._beside.call(self._settle(now))
        events, self._events = self._events, []
        uids = {field["metadata"]["uid"]: name for (_, name), field in self._store.objects[_WORKLOADS].items()}
        for what, name, message in events:
            workload = self.workloads.get(name)
            if workload is None:
                continue
            if what == "admitted":
                self._check(workload)
                workload.where, workload.reserved = "admitted", now
                yield Cycle(admitted=[workload], advances=True)
            else:
                workload.where = "heap"
                match = _BY.search(message)
                by = uids.get(match[1], "") if match else ""
                yield Cycle(preempted=[Preempted(workload, by, message)], advances=True)

    def _check(self, workload: WorkloadState) -> None:
        """Raise an error if the manager has admitted a workload with an impossible assignment."""
        try:
            assignments = self.assignments(workload)
        except TraceError as error:
            self._beside.fail(f"admitted a workload that cannot be read: {error}")
        admitted = f"admitted the workload {workload.name} of the ClusterQueue {workload.cluster_queue}"
        if not assignments:
            self._beside.fail(f"{admitted} without status.admission.podSetAssignments")
        pods = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
        flavors = {flavor.name for flavor in self.objects.resource_flavors}
        for one in assignments:
            if unknown := sorted(set(one.flavors.values()) - flavors):
                self._beside.fail(f"{admitted} to the ResourceFlavor {unknown[0]!r}, which does not exist")
            if one.count > pods.get(one.name, 0):
                self._beside.fail(f"{admitted} with {one.count} pods of {one.name!r}; it has {pods.get(one.name, 0)}")

    def assignments(self, workload: WorkloadState) -> tuple[PodSetAssignment, ...]:
        """Return what was assigned to an admitted workload."""
        object = self._store.objects[_WORKLOADS].get(_key(workload.spec))
        read = None if object is None else kueue_workload_object(object)
        return () if read is None else read.assignments

    def messages(self) -> Iterator[str]:
        """Yield the reasons why workloads are waiting, in the words of the manager."""
        for object in self._store.listed(_WORKLOADS):
            for condition in (object.get("status") or {}).get("conditions") or ():
                if condition.get("type") == "QuotaReserved" and condition.get("status") == "False":
                    yield f"{object['spec']['queueName']}: a workload waits forever: {condition.get('message', '')}"

    # The methods below run in the server's thread.

    async def _settle(self, now: float) -> None:
        self._store.now_s = now
        for write in self._writes:
            write()
        self._writes.clear()
        deadline = time.monotonic() + self._beside.timeout_s
        while True:
            waits = any(workload.where != "admitted" for workload in self.workloads.values())
            pause = self._return_s if self._released and waits else self._still_s
            version = self._store.version
            await self._beside.still(self._still_s, deadline)
            self._release_evicted()
            if self._store.version == version and pause > self._still_s:
                self._released = False
                await self._beside.still(pause, deadline)
                self._release_evicted()
            if self._store.version == version:
                return

    def _changed(self, change: ObjectChange) -> None:
        if change.resource != _WORKLOADS or not change.source or change.event != "MODIFIED":
            return
        name = change.object["metadata"]["name"]
        old = change.old or {}
        if is_true(change.object, "Evicted") and not is_true(old, "Evicted"):
            self._events.append(("evicted", name, _message(change.object, "Evicted")))
        elif is_true(change.object, "Admitted") and not is_true(old, "Admitted"):
            self._events.append(("admitted", name, ""))
            if (workload := self.workloads.get(name)) is not None:
                workload.where = "admitted"

    def _release_evicted(self) -> None:
        """Do what a job controller does: stop the pods of an evicted workload immediately, release
        its quota, and let the workload wait again.
        """
        for object in list(self._store.objects[_WORKLOADS].values()):
            if not (is_true(object, "Evicted") and is_true(object, "QuotaReserved")):
                continue
            at = {
                "lastTransitionTime": stamp(self._store.now_s),
                "observedGeneration": object["metadata"]["generation"],
            }
            news = {
                "QuotaReserved": {"status": "False", "reason": "Pending", "message": "The workload was evicted", **at},
                "Admitted": {"status": "False", "reason": "NoReservation", "message": "No quota is reserved", **at},
                "Requeued": {"status": "True", "reason": "Preempted", "message": "The workload waits again", **at},
            }
            kept = [one for one in object["status"]["conditions"] if one.get("type") not in news]
            status = {key: value for key, value in object["status"].items() if key != "admission"}
            status["conditions"] = [*kept, *[{"type": kind, **rest} for kind, rest in news.items()]]
            new = {**object, "metadata": dict(object["metadata"]), "status": status}
            self._store.assign(_WORKLOADS, ("default", object["metadata"]["name"]), new)
            self._released = True


def _key(spec: Workload) -> ObjectKey:
    return "default", spec.name


def _message(object: Mapping[str, Any], kind: str) -> str:
    return next((str(one.get("message", "")) for one in object["status"]["conditions"] if one.get("type") == kind), "")

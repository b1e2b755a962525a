"""The kinds of objects that the API server serves, and the paths that refer to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dagsim.families.kubernetes.server.object_store import Resource
from dagsim.families.kubernetes.server.patches import Manifest


def _resources(group: str, text: str) -> Iterator[Resource]:
    """Parse kinds from words such as ``Node!:no/status``. A ``!`` marks a kind without a namespace,
    ``:`` introduces the short name, and ``/`` introduces each subresource.
    """
    for word in text.split():
        kind, cluster, short, subresources = re.fullmatch(r"(\w+)(!?)(?::(\w+))?((?:/\w+)*)", word).groups()  # type: ignore[union-attr]
        name = kind.lower()
        ending = "ies" if name.endswith("y") else "es" if name.endswith("s") else "s"
        plural = (name[:-1] if name.endswith("y") else name) + ending
        yield Resource(group, plural, kind, not cluster, short or "", tuple(subresources.split("/")[1:]))


class ServedVersion(NamedTuple):
    """One version of an API group, with its kinds by plural name."""

    group: str
    version: str
    resources: dict[str, Resource]

    @property
    def name(self) -> str:
        """Return the group and version in the form used in objects (``apps/v1``)."""
        return f"{self.group}/{self.version}" if self.group else self.version


_DEVICES = "DeviceClass! DeviceTaintRule! ResourceClaim/status ResourceClaimTemplate ResourceSlice!"
_QUEUES = (
    "Workload:wl/status LocalQueue:lq/status ClusterQueue!:cq/status ResourceFlavor!:rf Cohort!/status "
    "WorkloadPriorityClass! AdmissionCheck!/status Topology! MultiKueueCluster!/status MultiKueueConfig! "
    "ProvisioningRequestConfig!"
)
_CATALOGUE = (
    (
        "",
        ("v1",),
        "Pod:po/status/binding/eviction Node!:no/status Namespace!:ns/status PersistentVolume!:pv/status "
        "PersistentVolumeClaim:pvc/status Event:ev ReplicationController:rc/status Service:svc/status ConfigMap:cm "
        "Secret ServiceAccount:sa Binding LimitRange",
    ),
    ("apps", ("v1",), "ReplicaSet:rs/status StatefulSet:sts/status Deployment:deploy/status DaemonSet:ds/status"),
    ("batch", ("v1",), "Job/status CronJob:cj/status"),
    ("policy", ("v1", "v1beta1"), "PodDisruptionBudget:pdb/status"),
    ("storage.k8s.io", ("v1", "v1beta1"), "StorageClass! CSINode! CSIDriver! CSIStorageCapacity VolumeAttachment!"),
    ("resource.k8s.io", ("v1", "v1beta2", "v1beta1"), _DEVICES),
    ("scheduling.k8s.io", ("v1",), "PriorityClass!:pc"),
    ("node.k8s.io", ("v1",), "RuntimeClass!"),
    ("coordination.k8s.io", ("v1",), "Lease"),
    ("events.k8s.io", ("v1",), "Event:ev"),
    ("authentication.k8s.io", ("v1",), "TokenReview!"),
    ("authorization.k8s.io", ("v1",), "SubjectAccessReview! SelfSubjectAccessReview!"),
    ("kueue.x-k8s.io", ("v1beta2", "v1beta1"), _QUEUES),
)
"""Groups, their versions (an object has the same fields in each), and kinds."""
GROUPS: dict[str, tuple[ServedVersion, ...]] = {
    group: tuple(
        [ServedVersion(group, version, {one.plural: one for one in _resources(group, kinds)}) for version in versions]
    )
    for group, versions, kinds in _CATALOGUE
}
_VERSIONS = {served.name: served for versions in GROUPS.values() for served in versions}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def resource(name: str, group: str = "") -> Resource:
    """Return a kind by its plural name and group."""
    return GROUPS[group][0].resources[name]


PODS, NODES = resource("pods"), resource("nodes")


class ApiTarget(NamedTuple):
    """The object or the list to which a path refers."""

    served: ServedVersion
    resource: Resource
    namespace: str
    name: str
    part: str
    """The subresource to which the path refers."""


def locate(path: str) -> ApiTarget | Manifest | str | None:
    """Return what a path refers to: objects, a constant response (discovery), or None if the path
    refers to nothing.
    """
    match path.strip("/").split("/"):
        case ["healthz" | "readyz" | "livez", *_]:
            return "ok"
        case ["version"]:
            return {"major": "1", "minor": "35", "gitVersion": "v1.35.0+dagsim", "platform": "linux/amd64"}
        case ["openapi", "v3"]:
            return {"paths": {}}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(name) for name in GROUPS if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name] if name in GROUPS and name:
            return _group(name)
        case ["api", "v1", *rest]:
            return _within(_VERSIONS["v1"], rest)
        case ["apis", group, version, *rest] if f"{group}/{version}" in _VERSIONS:
            return _within(_VERSIONS[f"{group}/{version}"], rest)
    return None


def _group(name: str) -> Manifest:
    versions = [{"groupVersion": served.name, "version": served.version} for served in GROUPS[name]]
    head = {"kind": "APIGroup", "apiVersion": "v1", "name": name}
    return {**head, "versions": versions, "preferredVersion": versions[0]}


def _within(served: ServedVersion, rest: list[str]) -> ApiTarget | Manifest | None:
    """Return what the last part of a path refers to within a group and version."""
    if not rest or rest == [""]:
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": served.name,
                "resources": [entry for one in served.resources.values() for entry in _entries(one)]}  # fmt: skip
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] in served.resources:
        namespace, rest = rest[1], rest[2:]
    kind = served.resources.get(rest[0])
    name, part = (*rest[1:], "", "")[:2]
    if kind is None or len(rest) > 3 or (part and part not in kind.subresources):
        return None
    return ApiTarget(served, kind, namespace, name, part)


def _entries(kind: Resource) -> Iterator[Manifest]:
    about = {"namespaced": kind.namespaced, "kind": kind.kind, "verbs": _VERBS}
    short = {"shortNames": [kind.short]} if kind.short else {}
    yield {"name": kind.plural, "singularName": kind.kind.lower(), **about, **short}
    for part in kind.subresources:
        yield {"name": f"{kind.plural}/{part}", "singularName": "", **about}

"""Kueue's workloads in a log: their pod sets, and the times at which they ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dagsim.errors import TraceError
from dagsim.families.kubernetes.api.cluster_objects import ClusterObjects, stated_priority
from dagsim.families.kubernetes.api.pods import (
    PodFate,
    PodRecord,
    condition_holds,
    condition_since_s,
    created_s_of,
    pod_demand,
    positive_s,
    requested_topology,
    wanted_type,
)
from dagsim.families.kubernetes.kueue.manifests import MOST_PODS, kueue_workload_object
from dagsim.model.arithmetic import whole_sum
from dagsim.traces.documents import list_in, object_in, text_in
from dagsim.traces.fields import Dirty, InvalidValue

_FIELDS = ("required", "preferred", "podSetSliceRequiredTopology", "podSetSliceSize")
_OF_POD_SETS = ("name", "count", "minCount", "topologyRequest")
_OF_CONDITIONS = ("type", "status", "lastTransitionTime")


def kueue_workload(object: Any, around: ClusterObjects | None = None, *, now: bool = False) -> Iterator[PodRecord]:
    """Extract the required data about a Kueue workload, as one record per pod set. ``around``
    contains the objects that affect how its pods are scheduled. The manifest of each record
    contains the whole workload and, with ``now``, also the quota that the workload holds.

    Raises:
        Dirty: The workload is malformed.
    """
    spec, status = object_in(object, "spec"), object_in(object, "status")
    namespace = text_in(object, "metadata", "namespace")
    around = around or ClusterObjects()
    owner: Any = next(iter(list_in(object, "metadata", "ownerReferences")), {})
    name = text_in(owner, "name") or text_in(object, "metadata", "name")
    if not name:
        raise Dirty("without a name")
    admitted_s, finished_s = condition_since_s(status, "Admitted"), condition_since_s(status, "Finished")
    runs = condition_holds(status, "Admitted") and not condition_holds(status, "Evicted")
    if admitted_s is None:
        fate = PodFate.WAITS if finished_s is None else PodFate.NEVER_RAN
    else:
        fate = PodFate.OVER if finished_s is not None else PodFate.RUNS if runs else PodFate.WAITS
    flavours = {
        text_in(assignment, "name"): next(
            (text for key, text in object_in(assignment, "flavors").items() if "gpu" in key and isinstance(text, str)),
            "",
        )
        for assignment in list_in(status, "admission", "podSetAssignments")
    }
    carried = _carried(object, around, now=now)
    workload = kueue_workload_object(carried)
    hosts = {one.name: _hosts(one.domains or ()) for one in (workload.assignments if workload is not None else ())}
    for pod_set in list_in(spec, "podSets"):
        count, template = object_in(pod_set).get("count"), object_in(pod_set, "template", "spec")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_PODS:
            raise Dirty(InvalidValue("with an invalid count"))
        yield PodRecord(
            whole=text_in(owner, "uid") or text_in(object, "metadata", "uid") or f"{namespace}/{name}",
            name=f"{namespace}/{name}",
            namespace=namespace,
            queue=text_in(spec, "queueName"),
            priority=stated_priority(spec),
            gang=True,
            index=text_in(pod_set, "name"),
            count=count,
            demand=pod_demand(template),
            wanted=wanted_type(template),
            ran_on=flavours.get(text_in(pod_set, "name"), ""),
            created_s=created_s_of(object),
            bound_s=admitted_s,
            started_s=admitted_s,
            ended_s=finished_s,
            fate=fate,
            is_workload=True,
            nodes=hosts.get(text_in(pod_set, "name"), ()),
            limit_s=positive_s(object_in(spec).get("maximumExecutionTimeSeconds")),
            manifest=around.pod_manifest(_pod_of_template(pod_set, namespace))
            | {"podSet": text_in(pod_set, "name"), "workload": carried},
            **requested_topology(object_in(pod_set, "topologyRequest"), _FIELDS),
        )


def _carried(object: Any, around: ClusterObjects, *, now: bool) -> dict[str, Any]:
    """Return those parts of a workload that affect Kueue's decisions, in the form of the workload's
    manifest."""
    metadata, spec, status = (object_in(object, name) for name in ("metadata", "spec", "status"))
    pod_sets = [
        {name: pod_set[name] for name in _OF_POD_SETS if object_in(pod_set).get(name) is not None}
        | {"template": {"spec": around.pod_manifest({"spec": object_in(pod_set, "template", "spec")})["spec"]}}
        for pod_set in list_in(spec, "podSets")
    ]
    names = ("namespace", "name", "uid", "creationTimestamp")
    carried: dict[str, Any] = {
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"queueName": text_in(spec, "queueName"), "podSets": pod_sets},
    }
    if now:
        carried["spec"]["active"] = spec.get("active") is not False
        true = [one for one in list_in(status, "conditions") if text_in(one, "status") == "True"]
        conditions = [{name: one[name] for name in _OF_CONDITIONS if name in one} for one in true]
        carried["status"] = {"conditions": conditions} | (
            {"admission": status["admission"]} if status.get("admission") else {}
        )
    try:
        kueue_workload_object(carried)
    except TraceError:
        raise Dirty(InvalidValue("with an invalid quantity, count or time")) from None
    return carried


def _hosts(domains: Sequence[tuple[tuple[str, ...], int]]) -> tuple[str, ...]:
    """Return the node of each pod that Kueue's topology has placed."""
    if whole_sum(count for _, count in domains) > MOST_PODS:
        raise Dirty(InvalidValue("with an invalid count"))
    return tuple([address[-1] for address, count in domains for _ in range(count) if address])


def _pod_of_template(pod_set: Any, namespace: str) -> dict[str, Any]:
    template = object_in(pod_set, "template")
    metadata = {"namespace": namespace, "labels": object_in(template, "metadata", "labels")}
    return {"metadata": metadata, "spec": object_in(template, "spec")}

"""Decisions of Kueue: the cycles of a state until rest, and timelines of arrivals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dagsim.config.schema import load_config
from dagsim.errors import DagsimError
from dagsim.families.forecast.question import Question
from dagsim.families.forecast.queue_state import QueueState
from dagsim.families.kubernetes.kueue.amounts import text, whole
from dagsim.families.kubernetes.kueue.engine import Admission, Cycle, EndlessPreemption
from dagsim.families.kubernetes.kueue.kueue_objects import PodSetAssignment
from dagsim.families.kubernetes.kueue.kueue_site import read_kueue_site
from dagsim.families.kubernetes.kueue.workloads import WorkloadState
from dagsim.families.site.cluster_file import import_site
from kubernetes_golden import Part, Verdict, Ways

NAMESPACE = "research"
_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
_EPOCH_S = _EPOCH.timestamp()


def holds(document: Any) -> bool:
    """Return True if the document lists states or scenarios with what was decided."""
    return isinstance(document, list) and bool(document) and all(_is_case(case) for case in document)


def _is_case(case: Any) -> bool:
    return isinstance(case, dict) and ({"state", "decisions"} <= case.keys() or {"scenario", "events"} <= case.keys())


def verdicts(file: Path, document: Any, part: Part, ways: Ways) -> Iterator[Verdict]:
    """Yield a verdict for each state, and for each workload of a timeline, in this part of the document."""
    family = file.parent.name
    for case in document[part.first :: part.step]:
        if ways.answers:
            yield from _answers(family, case) if "state" in case else ()
        elif "state" in case:
            yield _state_verdict(family, case)
        else:
            yield from _timeline_verdicts(family, case)


# Manifests.


def manifests(state: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Write the objects of Kueue and the nodes of a state as ``kubectl get -o json`` would."""
    objects: list[dict[str, Any]] = []

    def add(
        kind: str, one: Mapping[str, Any], spec: dict[str, Any], *, group: str = "kueue.x-k8s.io", **rest: Any
    ) -> None:
        metadata = {"name": one.get("name", "configuration"), **rest.pop("metadata", {})}
        objects.append({"apiVersion": f"{group}/v1beta2", "kind": kind, "metadata": metadata, "spec": spec, **rest})

    for kind, key in (("ResourceFlavor", "resourceFlavors"), ("Cohort", "cohorts"), ("ClusterQueue", "clusterQueues")):
        for one in state.get(key, ()):
            add(kind, one, {name: value for name, value in one.items() if name != "name"})
    for one in state.get("topologies", ()):
        add("Topology", one, {"levels": [{"nodeLabel": level} for level in one["levels"]]})
    for one in state["localQueues"]:
        spec = {name: value for name, value in one.items() if name not in ("name", "consumedResources")}
        past = {"admissionFairSharingStatus": {"consumedResources": one.get("consumedResources", {})}}
        add("LocalQueue", one, spec, metadata={"namespace": NAMESPACE}, status={"fairSharing": past})
    for one in state["workloads"]:
        add("Workload", one, _spec(one), metadata=_metadata(one), status=_status(one, state))
    objects.append(_configuration(state["configuration"]))
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node["name"], "labels": node["labels"]},
            "spec": {"taints": node.get("taints", [])},
            "status": {
                "allocatable": node["allocatable"],
                "capacity": node["allocatable"],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for node in state.get("nodes", ())
    ]
    return objects, nodes


def _configuration(configuration: Mapping[str, Any]) -> dict[str, Any]:
    sections = {key: dict(value) for key, value in configuration.items()}
    for key in ("usageHalfLifeTime", "usageSamplingInterval"):
        if key in sections.get("admissionFairSharing", {}):
            sections["admissionFairSharing"][key] = f"{sections['admissionFairSharing'][key]}s"
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "metadata": {"name": "kueue-manager-config"},
        **sections,
    }


def _metadata(workload: Mapping[str, Any]) -> dict[str, Any]:
    created = _time(workload["creationTimestamp"])
    return {"namespace": NAMESPACE, "uid": workload["uid"], "creationTimestamp": created}


def _time(seconds: float) -> str:
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.isoformat().replace("+00:00", "Z")


def _spec(workload: Mapping[str, Any]) -> dict[str, Any]:
    pod_sets = []
    for one in workload["podSets"]:
        pod = {key: one[key] for key in ("nodeSelector", "affinity", "tolerations") if key in one}
        pod["containers"] = [{"name": "main", "resources": {"requests": one["requests"]}}]
        kept = {key: one[key] for key in ("name", "count", "minCount", "topologyRequest") if key in one}
        pod_sets.append({**kept, "template": {"spec": pod}})
    return {"queueName": workload["queueName"], "priority": workload["priority"], "podSets": pod_sets}


def _status(workload: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    if "admission" not in workload:
        return {}
    assignments = []
    levels = {one["name"]: one["levels"] for one in state.get("topologies", ())}
    for one in workload["admission"]["podSetAssignments"]:
        assignment = dict(one)
        if "topologyAssignment" in one:
            assignment["topologyAssignment"] = _columns(one["topologyAssignment"], next(iter(levels.values())))
        assignments.append(assignment)
    reserved = {"status": "True", "lastTransitionTime": _time(workload["quotaReservedAt"])}
    return {
        "admission": {**workload["admission"], "podSetAssignments": assignments},
        "conditions": [{"type": "QuotaReserved", **reserved}, {"type": "Admitted", **reserved}],
    }


def _columns(domains: list[dict[str, Any]], levels: list[str]) -> dict[str, Any]:
    depth = len(domains[0]["values"]) if domains else 1
    values = [{"individual": {"roots": [domain["values"][at] for domain in domains]}} for at in range(depth)]
    counts = {"individual": [domain["count"] for domain in domains]}
    part = {"domainCount": len(domains), "valuesPerLevel": values, "podCounts": counts}
    return {"levels": levels[-depth:], "slices": [part] if domains else []}


def admission_of(state: Mapping[str, Any], *, requeue_s: float = 0.0) -> tuple[Admission, list[Any]]:
    """Build the admission engine from the state's manifests, and return it with the workloads read."""
    objects, nodes = manifests(state)
    with TemporaryDirectory() as folder:
        files = []
        for name, items in (("kueue.json", objects), ("nodes.json", nodes)):
            if items:
                files.append(Path(folder, name))
                files[-1].write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        site = read_kueue_site(files)
    return Admission(site.kueue_objects(), requeue_s=requeue_s), site.workloads()


# States.


def _state_verdict(family: str, case: Mapping[str, Any]) -> Verdict:
    gates = case["state"]["configuration"].get("featureGates", {})
    if gates:
        return Verdict(family, case["name"], "not_expressible", f"feature gate {', '.join(gates)}", 0.0)
    try:
        cause = _difference(case["state"], case["decisions"])
    except DagsimError as error:
        return Verdict(family, case["name"], "not_expressible", str(error))
    return Verdict(family, case["name"], "wrong" if cause else "right", cause)


def _difference(state: Mapping[str, Any], decisions: Mapping[str, Any]) -> str:
    """Return where the decisions differ; empty if they do not."""
    admission, workloads = admission_of(state)
    for workload in workloads:
        admission.submit(workload)
    now = _EPOCH_S + state["now"]
    drained = {_short(workload) for workload in admission.drain(now)}
    if drained != {one["name"] for one in decisions.get("drained", ())}:
        return "drained workloads"
    cycles = admission.cycles(now)
    try:
        for recorded in decisions["cycles"]:
            cycle = next(cycles, None)
            if cycle is None:
                return "a cycle is missing"
            if cause := _cycle_difference(admission, cycle, recorded):
                return cause
        if not decisions.get("truncated") and any(cycle.admitted or cycle.preempted for cycle in cycles):
            return "decisions after the last cycle"
    except EndlessPreemption:
        return "" if decisions.get("truncated") else "no rest"
    return ""


def _cycle_difference(admission: Admission, cycle: Cycle, recorded: Mapping[str, Any]) -> str:
    admitted: list[dict[str, Any]] = [
        {"name": _short(one), "admission": _admission(admission, one)} for one in cycle.admitted
    ]
    expected = [{**one, "admission": _canonical(one["admission"])} for one in recorded.get("admitted", ())]
    if recorded.get("anyOrder") or admission.objects.fair_sharing is not None:
        # The order of trees of cohorts is left open; within a tree it is compared unless it varied, too.
        for listed in (admitted, expected):
            listed.sort(key=lambda one: _root(admission, one["admission"]["clusterQueue"]))
            if recorded.get("anyOrder"):
                listed.sort(key=lambda one: str(one["name"]))
    if [one["name"] for one in admitted] != [one["name"] for one in expected]:
        same = {one["name"] for one in admitted} == {one["name"] for one in expected}
        return "order of admissions" if same else "admitted workloads"
    if admitted != expected:
        return "what is assigned"
    preempted = sorted((_short(one.workload), _plain(one.by), one.reason) for one in cycle.preempted)
    targets = sorted((one["name"], one["by"], one["reason"]) for one in recorded.get("preempted", ()))
    if preempted != targets:
        return "preempted workloads"
    pending = {_short(workload): message for workload, message in cycle.pending}
    heads = {one["name"]: one["message"] for one in recorded.get("pending", ())}
    if pending.keys() != heads.keys():
        return "heads that stay"
    return ""


def _answers(family: str, case: Mapping[str, Any]) -> Iterator[Verdict]:
    """Yield a verdict for each waiting workload of a state: what ``dagsim eta`` and ``why`` say about the objects as
    ``kubectl`` gives them, against what Kueue did until rest, and its last message.
    """
    state, decisions = case["state"], case["decisions"]
    waiting = [one["name"] for one in state["workloads"] if "admission" not in one]
    if state["configuration"].get("featureGates") or decisions.get("truncated") or not waiting:
        return
    admitted, messages = outcomes(decisions)
    objects, nodes = manifests(state)
    with TemporaryDirectory() as folder:
        snapshot, site = Path(folder, "now.json"), Path(folder, "site.yaml")
        snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects, *nodes]}))
        try:
            import_site([snapshot], site)
            workload = {"kind": "trace", "path": str(snapshot), "format": "kubernetes-now"}
            config = load_config(site).changed("check", {"workload": workload})
            question = Question.read(config, snapshot, None, None, 1, 0)
            present = QueueState.at(question.log, question.t)
            said = {_plain(name): outcome for name, outcome in question.forecaster.player.said(present).items()}
            starts_s = {_plain(row.job): row.quantiles_s[-1] for answer in question.answers() for row in answer.rows}
        except DagsimError as error:
            for name in waiting:
                yield Verdict(family, f"{case['name']} {name}", "not_expressible", str(error).replace(folder, "..."))
            return
    for name in waiting:
        # a pod set that fits on no nodes is not in the queue, but the other pod sets are
        outcome = next((one for key, one in said.items() if key == name or key.startswith(f"{name}/")), None)
        if outcome is None:
            cause = "no answer"
        elif name in admitted:
            starts = starts_s.get(name) == 0
            cause = "" if outcome.reason in ("None", "Preempting") and starts else f"admitted, but {outcome.reason}"
        elif outcome.reason in ("None", "Preempting"):
            cause = "not admitted"
        elif name in messages:
            message = messages[name]
            cause = "" if message is None or message in outcome.words else "another message"
        else:
            behind = outcome.never or outcome.reason in ("Priority", "Inadmissible")
            cause = "" if behind else "a message, but it was never a head"
        yield Verdict(family, f"{case['name']} {name}", "wrong" if cause else "right", cause)


def outcomes(decisions: Mapping[str, Any]) -> tuple[set[str], dict[str, str | None]]:
    """Return the workloads that Kueue admits until it rests, and its last message about each head that stays."""
    admitted: set[str] = set()
    messages: dict[str, str | None] = {}
    for cycle in decisions["cycles"]:
        admitted |= {one["name"] for one in cycle.get("admitted", ())}
        admitted -= {one["name"] for one in cycle.get("preempted", ())}
        messages |= {one["name"]: one["message"] for one in cycle.get("pending", ())}
    return admitted, messages


def _root(admission: Admission, queue: str) -> str:
    return admission.snapshot.queues[queue].node.root.name


def _short(workload: WorkloadState) -> str:
    return _plain(workload.name)


def _plain(name: str) -> str:
    return name.removeprefix(f"{NAMESPACE}/")


def _admission(admission: Admission, workload: WorkloadState) -> dict[str, Any]:
    assignments = admission.assignments(workload)
    return {"clusterQueue": workload.cluster_queue, "podSetAssignments": [_written(one) for one in assignments]}


def _written(one: PodSetAssignment) -> dict[str, Any]:
    usage = {name: text(name, whole(name, amount)) for name, amount in one.usage.items()}
    written: dict[str, Any] = {
        "name": one.name,
        "flavors": dict(one.flavors),
        "resourceUsage": usage,
        "count": one.count,
    }
    if one.domains:
        written["topologyAssignment"] = [{"values": list(values), "count": count} for values, count in one.domains]
    return written


def _canonical(admission: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, list) else value for key, value in admission.items()}


# Timelines.


def _timeline_verdicts(family: str, case: Mapping[str, Any]) -> Iterator[Verdict]:
    scenario = case["scenario"]
    exact = 1.0 if "classes" in case else 0.99
    names = [workload["name"] for workload in scenario["workloads"]]
    try:
        played = play(scenario)
    except DagsimError as error:
        for name in names:
            yield Verdict(family, f"{case['name']} {name}", "not_expressible", str(error), exact)
        return
    recorded = _by_workload(case["events"])
    for name in names:
        mine, theirs = played.get(name, []), recorded.get(name, [])
        cause = ""
        if [event[:2] for event in mine] != [event[:2] for event in theirs]:
            cause = "other times"
        elif mine != theirs and all(len(event) > 2 for event in theirs):
            cause = "other assignments or preemptors"
        yield Verdict(family, f"{case['name']} {name}", "wrong" if cause else "right", cause, exact)


def _by_workload(events: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[Any, ...]]]:
    """Return what happened to each workload: time, event, and details where there are any."""
    by_name: dict[str, list[tuple[Any, ...]]] = {}
    for event in events:
        details: tuple[Any, ...] = ()
        if "admission" in event:
            details = (event["admission"],)
        elif "by" in event:
            details = (event["by"], event["reason"])
        by_name.setdefault(event["workload"], []).append((event["time"], event["event"], *details))
    return by_name


def play(scenario: Mapping[str, Any]) -> dict[str, list[tuple[Any, ...]]]:
    """Play a scenario: at each instant workloads come back that were set aside, then others end, then
    others arrive, then cycles run until rest.
    """
    admission, workloads = admission_of(scenario, requeue_s=scenario.get("requeueBatchPeriod", 0.0))
    runs = {workload["name"]: workload["runSeconds"] for workload in scenario["workloads"]}
    ends: list[tuple[float, int, str, int]] = []
    arrivals = sorted(workloads, key=lambda workload: workload.created_s, reverse=True)
    there: dict[str, WorkloadState] = {}
    lives: dict[str, int] = {}
    happened: dict[str, list[tuple[Any, ...]]] = {}
    order = 0

    def log(name: str, *event: Any) -> None:
        happened.setdefault(_plain(name), []).append(event)

    while arrivals or ends or admission.next_return() < inf:
        now = min(arrivals[-1].created_s if arrivals else inf, ends[0][0] if ends else inf, admission.next_return())
        at = now - _EPOCH_S
        at = round(at) if abs(at - round(at)) < 1e-6 else round(at, 6)
        admission.bring_back(now)
        while ends and ends[0][0] <= now:
            _, _, name, life = heappop(ends)
            if lives[name] == life:
                log(name, at, "finished")
                lives[name] += 1
                admission.finish(there.pop(name), now)
        while arrivals and arrivals[-1].created_s <= now:
            workload = arrivals.pop()
            there[workload.name] = admission.submit(workload)
            lives[workload.name] = 0
        for cycle in admission.cycles(now):
            for one in cycle.admitted:
                log(one.name, at, "admitted", _admission(admission, one))
                lives[one.name] += 1
                order += 1
                heappush(ends, (now + runs[_short(one)], order, one.name, lives[one.name]))
            for gone in cycle.preempted:
                log(gone.workload.name, at, "preempted", _plain(gone.by), gone.reason)
                lives[gone.workload.name] += 1
    return happened

"""Decisions of kube-scheduler, one pod at a time, and timelines of the starts of pods.

Before each decision the recorded state becomes lists of nodes and pods, with the Services, budgets and
PriorityClasses around them. The site import reads the nodes, the trace reader the rest, and
``kube-default`` with the recorded configuration decides in a simulation that begins there.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from dagsim.config.schema import Config, load_config
from dagsim.errors import DagsimError, Stalled
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import make_policy
from dagsim.families.kubernetes.kube.kube_default import KubeDefault
from dagsim.families.site.cluster_file import import_site
from dagsim.model import Decision, Job, Kind, NodeOutage, Preempt, QueueTree, Start
from dagsim.systems.cluster.api import ClusterView
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from kubernetes_golden import Outcome, Part, Verdict, Ways

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_NOT_MODELLED = "not modelled"


def holds(document: Any) -> bool:
    """Return True if the document has nodes and events that follow each other, or is a timeline."""
    parts = document.keys() if isinstance(document, dict) else set()
    return {"family", "nodes", "events"} <= parts or {"timeline", "scenario", "pods"} <= parts


def verdicts(file: Path, document: Any, part: Part, ways: Ways) -> Iterator[Verdict]:
    """Yield a verdict for each decision in this part of the document, or for each pod of a timeline."""
    with tempfile.TemporaryDirectory() as folder:
        if "timeline" not in document:
            yield from () if ways.binary else _decisions(file, document, part, Path(folder))
        elif part.first == 0:
            yield from _timeline(file, document, Path(folder), ways.binary)


@dataclass(slots=True)
class _State:
    """What runs where, who waits, and who leaves, before a decision."""

    nodes: dict[str, Any]
    pods: dict[str, Any] = field(default_factory=dict)
    """All pods that have arrived, by name."""
    arrived_s: dict[str, float] = field(default_factory=dict)
    running: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The node of each running pod, and when it started."""
    nominated: dict[str, str] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)

    def apply(self, event: Any, lingers: bool) -> None:
        """Follow an event, and the decision in it."""
        match event["do"]:
            case "arrive" | "retry":
                name, decision = _name(event), event["decision"]
                if decision["node"]:
                    self.nominated.pop(name, None)
                    self.running[name] = decision["node"], event["t"]
                elif "nominated" in decision:
                    self.nominated[name] = decision["nominated"]
                    self.leaving |= set(decision["victims"])
                    if not lingers:
                        self.end(decision["victims"])
            case "node":
                self.nodes[event["node"]["metadata"]["name"]] = event["node"]
            case "end":
                self.end([event["pod"]])
            case "gone":
                self.end(event["pods"])
            case "withdraw" | "denominate":
                self.nominated.pop(event["pod"], None)

    def end(self, names: Iterable[str]) -> None:
        """Take pods off their nodes."""
        for name in names:
            del self.running[name]
            self.leaving.discard(name)

    def manifests(self, asked: str, now_s: float) -> Iterator[Any]:
        """The pods as ``kubectl get pods -o json`` lists them at ``now_s``."""
        for name in dict.fromkeys([*self.running, *self.nominated, asked]):
            pod = self.pods[name]
            node, start_s = self.running.get(name, ("", now_s))
            metadata = pod["metadata"] | {"uid": name, "creationTimestamp": _stamp(self.arrived_s[name])}
            status: dict[str, Any] = {"phase": "Running" if node else "Pending"}
            spec = pod["spec"] | ({"nodeName": node} if node else {})
            if node:
                since = _stamp(start_s)
                status["startTime"] = since
                status["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]
                status["containerStatuses"] = [{"name": "main", "state": {"running": {"startedAt": since}}}]
            elif name in self.nominated:
                status["nominatedNodeName"] = self.nominated[name]
            if name in self.leaving:
                metadata["deletionTimestamp"] = _stamp(now_s + 30)
            yield {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _stamp(seconds: float) -> str:
    return (_BEGAN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _name(event: Any) -> str:
    pod = event["pod"]
    return str(pod if isinstance(pod, str) else pod["metadata"]["name"])


class _Site:
    """A folder with the files that an operator would have, and what dagsim reads from them."""

    def __init__(self, folder: Path, configuration: Any) -> None:
        self._folder = folder
        profile = folder / "profile.yaml"
        profile.write_text(json.dumps({"kind": "KubeSchedulerConfiguration"} | dict(configuration)))
        self.policy = f"kube-default[config={profile}]"
        self._nodes: list[Any] = []
        self._config: Config | None = None

    def scenario(self, nodes: Sequence[Any], pods: Sequence[Any], objects: Sequence[Any]) -> ClusterScenario:
        """The scenario of these objects, with the pods that run and wait."""
        if self._config is None or nodes != self._nodes:
            listed, out = self._folder / "nodes.json", self._folder / "site.yaml"
            listed.write_text(json.dumps({"kind": "List", "items": [node | {"kind": "Node"} for node in nodes]}))
            import_site([listed], out)
            self._config, self._nodes = load_config(out), list(nodes)
        path = self._folder / "pods.json"
        path.write_text(json.dumps({"kind": "List", "items": [*objects, *pods]}))
        workload = {"kind": "trace", "path": str(path), "format": "kubernetes-now"}
        scenario = scenario_of(self._config.changed("check", {"workload": workload}))
        assert isinstance(scenario, ClusterScenario)
        return scenario


def _decisions(file: Path, document: Any, part: Part, folder: Path) -> Iterator[Verdict]:
    """Follow the recorded choices, and ask before each that belongs to the part."""
    scheduler = document["scheduler"]
    site = _Site(folder, scheduler.get("configuration", {}))
    state = _State({node["metadata"]["name"]: node for node in document["nodes"]})
    number = -1
    for event in document["events"]:
        if event["do"] == "arrive":
            state.pods[_name(event)], state.arrived_s[_name(event)] = event["pod"], event["t"]
        number += "decision" in event
        if "decision" in event and part.holds(number):
            name = _name(event)
            verdict = partial(Verdict, str(document["family"]), f"{file.name} at {event['t']}, pod {name}")
            try:
                pods = list(state.manifests(name, event["t"]))
                scenario = site.scenario(list(state.nodes.values()), pods, document.get("objects", ()))
                yield verdict(*_judged(event["decision"], _answer(scenario, site.policy, state.pods[name])))
            except DagsimError as error:
                text = str(error).replace(str(folder), "...")
                yield verdict("not_expressible" if _NOT_MODELLED in text else "wrong", text[:200])
        state.apply(event, bool(scheduler.get("victims_linger_s")))


@dataclass(slots=True)
class _Answer:
    """What dagsim decides for one pod."""

    node: str | None = None
    victims: list[str] = field(default_factory=list)
    nominated: str | None = None


def _answer(scenario: ClusterScenario, spec: str, pod: Any) -> _Answer:
    """Decide until the pod starts, or nothing more happens now."""
    kernel, policy = scenario.kernel(0), POLICIES.create(spec)
    assert isinstance(policy, KubeDefault)
    metadata = pod["metadata"]
    job, answer = f"{metadata.get('namespace', '')}/{metadata['name']}", _Answer()
    rounds = kernel.decisions()
    view = next(rounds, None)
    if view is None:  # every pod is more than any node has
        return answer

    stopped: list[tuple[int, str]] = []

    def decided(view: ClusterView) -> Iterator[Decision]:
        victims: list[str] = []
        for decision in policy.decide(view):
            if isinstance(decision, Preempt):
                run = view.running[decision.run]
                victims.append(run.job.job.id.rpartition("/")[2])
                stopped.append((min(run.nodes), victims[-1]))
            elif isinstance(decision, Start):
                if decision.task.job.job.id == job:  # type: ignore[attr-defined]
                    (share,) = decision.placement
                    answer.node, answer.victims = view.cluster.nodes[share.node].name, victims
                victims = []
            yield decision

    with suppress(Stalled):  # a pod that never fits is no error here
        rounds.send(decided(view))
    rounds.close()
    nominated = policy.nominations.get(job)
    if nominated is not None:
        answer.nominated = view.cluster.nodes[nominated].name
        if answer.node is None:  # other pods there are still leaving, so that the pod has not started
            answer.victims = [name for node, name in stopped if node == nominated]
    return answer


def _judged(decision: Any, answer: _Answer) -> tuple[Outcome, str]:
    """The outcome, and how it is wrong."""
    if decision["node"]:
        if answer.victims:
            return "wrong", "preempts although there is room"
        if answer.node in decision["best"]:
            return "right", ""
        if answer.node is None:
            return "wrong", "no node"
        return "wrong", "not the best" if answer.node in decision.get("scores", ()) else "not feasible"
    if "nominated" in decision:
        node, victims = answer.node or answer.nominated, sorted(answer.victims)
        there = decision.get("candidates", {}).get(decision["nominated"], decision["victims"])
        if victims in (sorted(decision["victims"]), sorted(there)) and (victims or node == decision["nominated"]):
            return "right", ""
        return "wrong", "other victims" if victims else "does not preempt"
    if answer.victims:
        return "wrong", "preempts in vain"
    return ("right", "") if answer.node is None else ("wrong", "a node where there is none")


_FAMILY = "timeline"


def _timeline(file: Path, document: Any, folder: Path, binary: str) -> Iterator[Verdict]:
    """Play all pods, and compare when each starts. Where two plays of the real scheduler differ, no share is
    demanded.
    """
    scenario, configuration = document["scenario"], document["scheduler"].get("configuration", {})
    site = _Site(folder, configuration)
    family = f"{_FAMILY} {document['timeline']}"
    verdict = partial(Verdict, family, gate=1.0 if document.get("plays_agree") else 0.0)
    pods = [_pod_of_timeline(pod) for pod in document["pods"]]
    described = site.scenario([one for node in scenario["nodes"] for one in _nodes_of_timeline(node)], pods, ())
    runs = {f"default/{pod['name']}": (pod["arrives_s"], pod["runs_s"]) for pod in document["pods"]}
    jobs = sorted((_timed(job, *runs[job.id]) for job in described.jobs(0)), key=lambda job: job.arrival_s)
    outages = list(_outages(scenario.get("node_events", ())))
    played = replace(
        described,
        workload=jobs,
        queues=QueueTree(outages=tuple(outages)) if outages else None,
        preemption=Preemption(on_resume="restart"),
    )
    restart_s, grace_s = scenario.get("restart_delay_s", 0), scenario.get("terminate_s", 0)
    policy = site.policy.replace("]", f",restart_s={restart_s},grace_s={grace_s}]")
    if binary:
        policy = policy.replace("kube-default[", f"kube-scheduler[binary={binary},")
    schedule = played.kernel(0).run(make_policy(played, policy))
    starts_s: dict[str, list[float]] = {}
    for row in schedule.log:
        if row.kind == Kind.STARTED:
            starts_s.setdefault(schedule.jobs[row.job].id, []).append(row.time_s)
    for pod in document["pods"]:
        real = [life["start_s"] for life in pod["lives"] if life["start_s"] is not None]
        own = starts_s.get(f"default/{pod['name']}", [])
        equal = len(own) == len(real) and all(abs(a - b) < 1e-5 for a, b in zip(own, real, strict=True))
        cause = "" if equal else "other starts" if len(own) == len(real) else "another number of starts"
        yield verdict(f"{file.name}, pod {pod['name']}", "right" if equal else "wrong", cause)


def _nodes_of_timeline(node: Any) -> Iterator[Any]:
    allocatable = {"cpu": node["cpu"], "memory": node["memory"], "pods": "110"}
    if node.get("gpu"):
        allocatable["nvidia.com/gpu"] = str(node["gpu"])
    count = node.get("count")
    for name in [node["name"]] if count is None else [f"{node['name']}-{number}" for number in range(count)]:
        labels = {"kubernetes.io/hostname": name, **node.get("labels", {})}
        yield {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": allocatable}}


def _pod_of_timeline(pod: Any) -> Any:
    requests = {"cpu": pod["cpu"], "memory": pod["memory"]}
    if pod.get("gpu"):
        requests["nvidia.com/gpu"] = str(pod["gpu"])
    metadata = {"name": pod["name"], "namespace": "default", "uid": pod["name"]}
    spec = pod["spec"] | {"containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}]}
    return {
        "kind": "Pod",
        "metadata": metadata | {"creationTimestamp": _stamp(pod["arrives_s"])},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def _timed(job: Job, arrives_s: float, runs_s: float) -> Job:
    """The job with the arrival and the run time of the timeline; manifests state whole seconds at best."""
    graph = replace(job.graph, tasks=tuple([replace(task, work=runs_s) for task in job.tasks]))
    return replace(job, arrival_s=arrives_s, graph=graph, eligible_s=None)


def _outages(events: Iterable[Any]) -> Iterator[NodeOutage]:
    """The times at which nodes are down or cordoned."""
    since: dict[tuple[str, str], float] = {}
    kinds = {"down": "down", "up": "down", "cordon": "drain", "uncordon": "drain"}
    for event in events:
        kind = kinds[event["do"]]
        if event["do"] in ("down", "cordon"):
            since[event["node"], kind] = event["at_s"]
        else:
            yield NodeOutage((event["node"],), since.pop((event["node"], kind)), event["at_s"], kind)  # type: ignore[arg-type]
    for (node, kind), start_s in since.items():
        yield NodeOutage((node,), start_s, None, kind)  # type: ignore[arg-type]

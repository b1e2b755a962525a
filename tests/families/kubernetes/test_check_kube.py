"""The half of ``scripts/check_kubernetes.py`` for kube-scheduler: decisions and timelines of its format."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from check_kubernetes import count
from kubernetes_golden import Part, Verdict, Ways, kube

REAL = os.environ.get("DAGSIM_KUBE_SCHEDULER")
SAMPLE = 15
"""Decisions of each file that the sample asks for."""


def node(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name}
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}}


def arrival(at_s: float, name: str, cpu: str, priority: int, **decision: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": "1Gi"}
    spec = {"containers": [{"name": "main", "resources": {"requests": requests}}], "priority": priority}
    pod = {"metadata": {"name": name, "namespace": "default", "labels": {"app": name}}, "spec": spec}
    return {"t": at_s, "do": "arrive", "pod": pod, "decision": {"node": None} | decision}


TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
EVENTS = [
    arrival(1, "low", "6", 0, node="big", best=["big"]),
    arrival(2, "young", "2", 0, node="big", best=["big"]),
    arrival(3, "same", "4", 0),
    {"t": 3, "do": "withdraw", "pod": "same"},
    arrival(4, "urgent", "2", 10, nominated="big", victims=["young"], candidates={"big": ["young"]}),
    {"t": 5, "do": "retry", "pod": "urgent", "decision": {"node": "big", "best": ["big"]}},
    {"t": 6, "do": "node", "node": node("small", "4")},
    arrival(7, "next", "4", 0, node="small", best=["small"]),
]


def document(*events: Any) -> dict[str, Any]:
    nodes = [node("small", "4", taints=[TAINT]), node("big", "8")]
    return {"family": "own", "scheduler": {}, "objects": [], "nodes": nodes, "events": list(events)}


def written(folder: Path, content: Any) -> Path:
    (folder / "own.json").write_text(json.dumps(content))
    return folder


def test_decisions_known_by_hand_are_right(tmp_path: Path) -> None:
    family = count([written(tmp_path, document(*EVENTS))])["kube"]["own"]
    assert dict(family.outcomes) == {"right": 6}, family.causes


def test_several_workers_and_sampling_count_the_same_decisions(tmp_path: Path) -> None:
    folder = written(tmp_path, document(*EVENTS, arrival(8, "last", "4", 0, node="big", best=["big"])))
    whole = count([folder])["kube"]["own"]
    shared = count([folder], workers=3)["kube"]["own"]
    assert (shared.outcomes, shared.causes) == (whole.outcomes, whole.causes)
    assert dict(whole.outcomes) == {"right": 6, "wrong": 1}
    assert dict(count([folder], every=3)["kube"]["own"].outcomes) == {"right": 2, "wrong": 1}  # numbers 0, 3 and 6
    assert dict(count([folder], every=2, workers=2)["kube"]["own"].outcomes) == {"right": 3, "wrong": 1}


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (arrival(1, "p", "6", 0, node="small", best=["small"]), "not feasible"),
        (arrival(1, "p", "6", 0), "a node where there is none"),
        (arrival(1, "p", "9", 0, node="big", best=["big"]), "no node"),
        (arrival(1, "p", "9", 10, nominated="big", victims=[]), "does not preempt"),
    ],
)
def test_another_decision_is_wrong_with_its_cause(event: Any, cause: str, tmp_path: Path) -> None:
    family = count([written(tmp_path, document(event))])["kube"]["own"]
    assert dict(family.causes) == {f"wrong: {cause}": 1}


def test_a_timeline_is_compared_start_by_start(tmp_path: Path) -> None:
    def pod(name: str, arrives_s: float, starts_s: list[float], priority: int = 0) -> dict[str, Any]:
        lives = [{"start_s": start_s} for start_s in starts_s]
        own = {"name": name, "arrives_s": arrives_s, "runs_s": 10, "cpu": "4", "memory": "1Gi", "lives": lives}
        return own | {"spec": {"priority": priority}}

    pods = [pod("low", 0, [0, 16]), pod("high", 2, [2], 5), pod("later", 3, [12])]
    nodes = [{"name": "n", "cpu": "4", "memory": "8Gi"}]
    scenario = {"nodes": nodes, "restart_delay_s": 4}
    played = {"timeline": "own", "plays_agree": True, "scheduler": {}, "scenario": scenario, "pods": pods}
    family = count([written(tmp_path, played)])["kube"]["timeline own"]
    assert dict(family.outcomes) == {"right": 2, "wrong": 1}  # low comes back at 6 s, but high and later run until 22 s
    pods[0]["lives"][1]["start_s"] = 22
    assert dict(count([written(tmp_path, played)])["kube"]["timeline own"].outcomes) == {"right": 3}


@pytest.mark.data
def test_a_sample_of_the_real_decisions_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    if "DAGSIM_DATA" not in os.environ:
        pytest.skip("needs DAGSIM_DATA")
    verdicts = kube.verdicts

    def some(file: Path, content: Any, part: Part, ways: Ways) -> Any:
        asked = 0
        for event in content.get("events", ()):
            asked += "decision" in event
            if asked > SAMPLE:
                content["events"] = content["events"][: content["events"].index(event)]
                break
        for verdict in verdicts(file, content, part, ways):
            assert isinstance(verdict, Verdict)
            yield verdict

    monkeypatch.setattr(kube, "verdicts", some)
    counts = count([Path(os.environ["DAGSIM_DATA"]) / "golden" / "kube"], "-1.json.gz")["kube"]
    assert len(counts) == 10
    assert {family: one.causes for family, one in counts.items() if one.share < one.gate} == {}


@pytest.mark.skipif(not REAL, reason="DAGSIM_KUBE_SCHEDULER names no kube-scheduler")
@pytest.mark.data
@pytest.mark.parametrize("name", ["fifo-1", "preempt-one-1"])
def test_the_real_scheduler_plays_its_recorded_timelines_again(name: str) -> None:
    file = Path(os.environ["DAGSIM_DATA"], "golden/kube/timelines", f"{name}.json")
    verdicts = list(kube.verdicts(file, json.loads(file.read_text()), Part(), Ways(binary=REAL)))
    assert len(verdicts) >= 80
    assert {verdict.outcome for verdict in verdicts} == {"right"}

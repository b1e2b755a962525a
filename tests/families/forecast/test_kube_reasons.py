"""``dagsim why --state`` on pods that a real kube-scheduler refused, against its own message."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import fine, json_of

NEVER = ("node(s) didn't match Pod's node affinity/selector", "node(s) had untolerated taint(s)", "unschedulable")


def refused(file: Path, most: int) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """The first refused pods of a recording: name, message, and all objects at that moment."""
    recording = json.loads(gzip.decompress(file.read_bytes()))
    nodes = {node["metadata"]["name"]: node for node in recording["nodes"]}
    pods: dict[str, dict[str, Any]] = {}

    def dumped(pod: dict[str, Any], status: dict[str, Any], node: str = "") -> dict[str, Any]:
        own = {"namespace": "default", "uid": pod["metadata"]["name"], "creationTimestamp": "2026-04-01T08:59:00Z"}
        spec = pod["spec"] | {"activeDeadlineSeconds": 7200} | ({"nodeName": node} if node else {})
        return {"kind": "Pod", "metadata": own | pod["metadata"], "spec": spec, "status": status}

    for event in recording["events"]:
        match event["do"]:
            case "node":
                nodes[event["node"]["metadata"]["name"]] = event["node"]
            case "end":
                pods.pop(event["pod"])
            case "arrive":
                pod, decision = event["pod"], event["decision"]
                name = pod["metadata"]["name"]
                if decision.get("node"):
                    running = {"phase": "Running", "startTime": "2026-04-01T09:00:00Z"}
                    pods[name] = dumped(pod, running, decision["node"])
                elif "unschedulable" in decision:
                    message = decision["unschedulable"]["message"]
                    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                    waiting = dumped(pod, {"phase": "Pending", "conditions": [condition | {"message": message}]})
                    listed = [{"kind": "Node"} | node for node in nodes.values()]
                    yield name, message, [*listed, *pods.values(), waiting, *recording["objects"]]
                    most -= 1
                    if not most:
                        return


@pytest.mark.data
@pytest.mark.family("kubernetes")
@pytest.mark.parametrize("family", ["affinity", "nodes", "shapes"])
def test_the_reason_of_a_refused_pod_is_that_of_the_real_scheduler(data: Path, family: str, tmp_path: Path) -> None:
    file = min((data / "golden/kube" / family).glob("*.json.gz"))
    for name, message, objects in refused(file, 3):
        state, site = tmp_path / "now.json", tmp_path / "site.yaml"
        items = [{"apiVersion": "v1"} | one for one in objects]
        state.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        fine("site", "import", state, "-o", site, "--overwrite")
        answer = json_of("why", f"default/{name}", "--state", state, "--config", site, "--samples", 1)
        stated = message.partition(". ")[0].removesuffix(".")
        if answer["found_reason"] == "Unschedulable":
            assert answer["found"] == f"waits for room: {stated}"
        else:  # no node allows it at all, or has as much even when it is empty
            assert answer["kind"] == "never"
            reasons = [part.partition(" ")[2] for part in stated.partition(": ")[2].split(", ")]
            never = all(reason.endswith(NEVER) for reason in reasons)
            assert never == ("no node: " in answer["found"])
            if never:
                assert sorted(answer["found"].partition("no node: ")[2].split(", ")) == sorted(
                    stated.partition(": ")[2].split(", ")
                )

"""Finished pods of Kubernetes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from log_writers.jobs import Known, Part, Written, draw_jobs


def write_pods(rng: Random, folder: Path) -> Written:
    """Finished pods of Kubernetes: of Jobs and on their own, with sidecars and init containers, in lists or lines."""
    items, known = [], []
    for job in draw_jobs(rng, again=False):
        attempt, part = job.attempts[-1], job.parts[0]
        if not part.gpus:
            continue
        job = replace(job, parts=(part,), attempts=(attempt,), suspended_s=0, user="")
        name = f"j{job.id.replace('_', '-')}"
        for index in range(len(part.nodes)):
            metadata: dict[str, Any] = {
                "name": f"{name}-{index}", "namespace": job.account or "default", "uid": f"{name}-{index}",
                "creationTimestamp": _zulu(job.arrival_s),
            }  # fmt: skip
            if len(part.nodes) > 1 or rng.random() < 0.5:
                kind = "Job" if len(part.nodes) == 1 else "PyTorchJob"
                owner = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": name, "controller": True}
                metadata |= {"ownerReferences": [owner]}
            status = {
                "phase": "Succeeded",
                "conditions": [
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": _zulu(attempt.start_s)}
                ],
                "containerStatuses": [
                    {"name": "main", "state": {"terminated": {
                        "exitCode": 0, "startedAt": _zulu(attempt.start_s), "finishedAt": _zulu(attempt.end_s)}}}
                ],
            }  # fmt: skip
            spec = _pod_spec(rng, part)
            items.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
        known.append(Known.of(job))
    path = folder / "pods.json"
    if rng.random() < 0.3:
        path.write_text("\n".join(map(json.dumps, items)))
    else:
        kind = rng.choice(("List", "PodList"))
        path.write_text(json.dumps({"apiVersion": "v1", "kind": kind, "items": items}, indent=rng.choice((None, 2))))
    return Written(path, known)


def _zulu(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _pod_spec(rng: Random, part: Part) -> dict[str, Any]:
    """Containers that together hold the GPUs and cores of a node's part."""
    gpus = {rng.choice(("nvidia.com/gpu", "amd.com/gpu")): str(part.gpus)}
    beside = rng.choice((0, 250)) if part.cpus > 1 else 0  # a second container's millicores
    cpu = (
        rng.choice((f"{1000 * part.cpus - beside}m", str(part.cpus))) if not beside else f"{1000 * part.cpus - beside}m"
    )
    main: dict[str, Any] = {"limits": gpus | {"cpu": cpu, "memory": f"{part.memory_mb}Mi"}}
    if rng.random() < 0.5:
        main = {"limits": gpus, "requests": gpus | {"cpu": cpu, "memory": f"{part.memory_mb}Mi"}}
    containers = [{"name": "main", "resources": main}]
    spec: dict[str, Any] = {"containers": containers}
    if beside and rng.random() < 0.5:
        containers.append({"name": "log", "resources": {"requests": {"cpu": f"{beside}m"}}})
    elif beside:
        proxy = {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": f"{beside}m"}}}
        spec["initContainers"] = [proxy]
    if rng.random() < 0.3:
        fetch = {"name": "fetch", "resources": {"requests": {"cpu": "100m"}}}
        spec["initContainers"] = [*spec.get("initContainers", []), fetch]
    return spec

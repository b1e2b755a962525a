"""Decisions of kube-scheduler, one pod at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes_golden import Verdict


def holds(document: Any) -> bool:
    """Return True if the document has nodes and events that follow each other."""
    return isinstance(document, dict) and {"family", "nodes", "events"} <= document.keys()


def verdicts(file: Path, document: Any) -> Iterator[Verdict]:
    """Yield a verdict for each decision of the document."""
    family = str(document["family"])
    for event in document["events"]:
        if "decision" in event:
            yield Verdict(family, f"{file.name} at {event['t']}", "not_expressible", "pods are not asked yet")

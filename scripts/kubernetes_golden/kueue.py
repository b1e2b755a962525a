"""Decisions of Kueue: the cycles of a state until rest, and timelines of arrivals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes_golden import Verdict


def holds(document: Any) -> bool:
    """Return True if the document lists states or scenarios with what was decided."""
    return isinstance(document, list) and bool(document) and all(_is_case(case) for case in document)


def _is_case(case: Any) -> bool:
    return isinstance(case, dict) and ({"state", "decisions"} <= case.keys() or {"scenario", "events"} <= case.keys())


def verdicts(file: Path, document: Any) -> Iterator[Verdict]:
    """Yield a verdict for each state, and for each workload of a timeline."""
    for case in document:
        yield Verdict(file.parent.name, case["name"], "not_expressible", "cycles are not asked yet")

"""The tables of ``docs/policies.md`` and ``docs/traces.md``, made from the registries and the docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping

from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES
from dagsim.traces import READERS, reader

__all__ = ["placement_table", "policy_table", "reader_table"]


_SOURCE = re.compile(r"\(([^()]*[A-Z][^()]*\b(?:19|20)\d\d[^()]*)\)")


def policy_table(cost_us: Mapping[str, float]) -> Iterator[str]:
    """The lines of a Markdown table; ``cost_us`` are measured microseconds per decision."""
    yield "| `--algo` | rule | uses estimates | preemptive | µs per decision | source |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for entry in POLICIES.describe():
        marks = ["yes" if tag in entry.tags else "" for tag in ("estimates", "preemptive")]
        cost = _cost(cost_us.get(entry.name)) + (" (by definition)" if "costly" in entry.tags else "")
        cells = [f"`{entry.name}`", entry.summary, *marks, cost, _source(entry.name)]
        yield f"| {' | '.join(cells)} |"


def placement_table() -> Iterator[str]:
    """The lines of a Markdown table of all placements."""
    yield "| placement | where tasks go |"
    yield "| --- | --- |"
    for entry in PLACEMENT_RULES.describe():
        yield f"| `{entry.name}` | {entry.summary} |"


def reader_table() -> Iterator[str]:
    """The lines of a Markdown table of all trace formats."""
    yield "| `--format` | what it reads | its own options |"
    yield "| --- | --- | --- |"
    for name in sorted(READERS.names()):
        made = reader(name)
        options = ", ".join(f"`{option}`" for option in sorted(made.uses))
        yield f"| `{name}` | {made.summary} | {options} |"


def _cost(microseconds: float | None) -> str:
    return "not measured" if microseconds is None else f"{microseconds:,.0f}"


def _source(name: str) -> str:
    """The papers that its docstring names, in brackets with a year."""
    text = " ".join((inspect.getdoc(POLICIES.get(name)) or "").split())
    return "; ".join(dict.fromkeys(_SOURCE.findall(text))).replace("|", "/")

"""Tests in an installation that lacks a family: those that ask for something of it are skipped.

A test asks for a family if it imports its modules, or if a name of it was refused and stands in the text of the
test's module. A refused name that no test mentions is the core's own need, so that test fails. With all families,
nothing here has an effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dagsim import family
from dagsim.registry import Registry

LACKING = frozenset(family.all_names()) - family.families().keys()
"""Families that this installation lacks."""

_refused: dict[str, set[str]] = {}
"""Names that were refused, by the test module that ran then."""
_running = ""
_missing_family = family.missing_family


def _noted(group: str, name: str) -> str:
    if missing := _missing_family(group, name):
        _refused.setdefault(_running, set()).add(name)
    return missing


if LACKING:
    family.missing_family = _noted


def begin(module: str) -> None:
    """Note which module's test runs."""
    global _running
    _running = module


def asked_for(module: Path) -> str:
    """Return a refused name that the test module mentions; empty if there is none."""
    text = module.read_text(encoding="utf-8")
    names = sorted(_refused.get(str(module), ()))
    return next((name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)), "")


def imported(text: str) -> str:
    """Return the missing family in an error of a module's import; empty if there is none."""
    return next((name for name in re.findall(r"No module named 'dagsim\.families\.(\w+)", text) if name in LACKING), "")


def needed(text: str) -> str:
    """Return the missing family that a test module asks for when it is imported; empty if there is none."""
    named = re.findall(r"belongs to the family (\w+), which this installation lacks", text)
    return imported(text) or next((name for name in named if name in LACKING), "")


def skipped(report: pytest.TestReport | pytest.CollectReport, module: Path, why: str) -> None:
    """Turn the report of a failure into that of a skipped test."""
    report.outcome, report.longrepr = "skipped", (str(module), 1, f"Skipped: {why}")


@pytest.fixture
def without_families(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the installation lack families, and ``registries`` what these add, until the end of the test."""

    def lack(*names: str, registries: tuple[Registry, ...] = ()) -> None:
        rest = {name: one for name, one in family.families().items() if name not in names}
        monkeypatch.setattr(family, "families", lambda: rest)
        for registry in registries:
            monkeypatch.setitem(vars(registry), "_entries", Registry._entries.func(registry))

    return lack

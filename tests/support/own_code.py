"""Modules that leave a file when they are imported, and commands beside them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

MARK = "from pathlib import Path\nPath(__file__).with_suffix('.imported').touch()\n"
"""The first lines of a module that leaves a file when it is imported."""


NETWORK = (
    MARK
    + """
from dataclasses import dataclass
from dagsim.systems.cluster.network.base import UniformNetwork

@dataclass(frozen=True)
class Slow(UniformNetwork):
    latency_s: float = 1
"""
)


POLICY = (
    MARK
    + """
class Mine:
    def decide(self, view):
        return [view.start(task) for task in ()]

class Fifo:
    def __init__(self):
        from dagsim.systems.cluster.policies import POLICIES
        self.rule = POLICIES.create("fifo")

    def decide(self, view):
        return self.rule.decide(view)

def ready() -> Mine:
    return Mine()

def bare():
    return Mine()
"""
)


def begin_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make ``tmp_path`` the current folder, put it on the search path, with modules that notice their import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("evil_net", NETWORK), ("evil_policy", POLICY)):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "own_world", raising=False)
    return tmp_path


def imported(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.imported"))


SHORT = ("--set", "workload.count=5", "--seeds", "1", "--no-plots", "--workers", "1")

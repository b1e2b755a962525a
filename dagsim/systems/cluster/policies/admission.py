"""Admission of jobs for policies that leave it to others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dagsim.model import Admit
from dagsim.systems.cluster.api import ClusterPolicy, ClusterView

__all__ = ["AdmitAll"]


class AdmitAll:
    """Admits every job at once, and leaves all other decisions to ``policy``."""

    admits = True

    def __init__(self, policy: ClusterPolicy) -> None:
        self.policy = policy

    def __getattr__(self, name: str) -> Any:
        """Everything else is the policy's: its name, its need of true durations, its facts."""
        if name == "policy":  # a copy is made without attributes
            raise AttributeError(name)
        return getattr(self.policy, name)

    def decide(self, view: ClusterView) -> Iterator[Any]:
        """Admit the jobs that wait for it; if there are none, ask the policy."""
        if view.applicants:
            yield from [Admit(number) for number in view.applicants]
        else:
            yield from self.policy.decide(view) or ()

"""Decisions of the real Kubernetes schedulers, and what dagsim decides in the same states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

Outcome = Literal["right", "wrong", "not_expressible"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one recorded decision (a state, or one workload or pod of a timeline).

    ``cause`` says in a few words why the decision is not right, so that equal causes can be counted.
    ``gate`` is the share of right decisions that the family of the case must reach.
    """

    family: str
    case: str
    outcome: Outcome
    cause: str = ""
    gate: float = 0.995


class Part(NamedTuple):
    """The decisions of a file at ``first``, ``first + step``, ...; each of them can be judged without the others."""

    first: int = 0
    step: int = 1

    def holds(self, number: int) -> bool:
        """Return True if the part contains the decision with this number."""
        return number % self.step == self.first


class Ways(NamedTuple):
    """The scheduler that makes the decisions, and the part of them that is judged."""

    binary: str = ""
    """A kube-scheduler that plays the timelines in the place of ``kube-default``."""
    answers: bool = False
    """True to judge the answers of ``eta`` and ``why`` about each waiting workload of Kueue, not the cycles of the
    engine."""


OWN = Ways()
"""The decisions of dagsim's own policies."""


class Format(Protocol):
    """A module that reads one format of recorded decisions."""

    def holds(self, document: Any) -> bool:
        """Return True if the parsed JSON has this format."""
        ...

    def verdicts(self, file: Path, document: Any, part: Part, ways: Ways) -> Iterator[Verdict]:
        """Yield a verdict for each decision in this part of the document."""
        ...

"""What can keep a job from starting, and the seam by which a policy tells of its limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

from dagsim.systems.cluster.state import TaskState

__all__ = ["Cause", "CauseKind", "Causes", "Stretch", "WaitRules", "causes_by_time"]


class CauseKind(StrEnum):
    """A kind of cause."""

    LIMIT = "limit"
    """A limit or a quota of the policy was used up."""
    GPUS = "gpus"
    """Too few GPUs were free, of the types and on the nodes that it may use."""
    SCATTERED = "scattered"
    """Enough GPUs were free, but too few together on a node."""
    FRAGMENTED = "fragmented"
    """Enough was free, but in parts of GPUs that are too small."""
    CPUS = "cpus"
    MEMORY = "memory"
    WHOLE_NODES = "whole_nodes"
    """Nodes with room were not to be shared."""
    DOWN = "down"
    """Nodes that were down would have had room."""
    ELSEWHERE = "elsewhere"
    """There was room, but only where the rules do not let the job go."""
    ORDER = "order"
    """The job would have fitted: the policy's order kept it waiting."""


class Cause(NamedTuple):
    """A reason why a job could not start; ``what`` says it in words."""

    kind: CauseKind
    what: str


Causes: TypeAlias = tuple[Cause, ...]
"""All that kept a job waiting at one time."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a wait with the same causes throughout."""

    from_s: float
    until_s: float
    causes: Causes

    def to_dict(self) -> dict[str, Any]:
        """Plain values, safe for JSON."""
        causes = [{"kind": str(cause.kind), "what": cause.what} for cause in self.causes]
        return {"from_s": self.from_s, "until_s": self.until_s, "causes": causes}


class WaitRules(Protocol):
    """The limits and partitions of a policy, told of the starts and ends of a log.

    A policy that has some gives them by a method ``wait_rules(view)``, where ``view`` is of an empty simulation of the
    same cluster and queues.
    """

    elsewhere: str
    """Words for room on nodes that are not among ``nodes``."""

    def started(self, run: int, task: TaskState, instances: int, type_: int) -> None:
        """Take in a run."""
        ...

    def ended(self, run: int) -> None:
        """Let go of a run."""
        ...

    def limits(self, task: TaskState) -> Iterable[str]:
        """The limits that leave no room for a start of the task now, in words."""
        ...

    def nodes(self, task: TaskState) -> int:
        """The nodes that the task may use now, as a bit set."""
        ...

    def alone(self, task: TaskState) -> bool:
        """True if the task shares its nodes with nobody."""
        ...

    def distinct(self, task: TaskState) -> bool:
        """True if each instance needs a node of its own."""
        ...


def causes_by_time(stretches: Iterable[Stretch]) -> list[tuple[Causes, float]]:
    """The seconds of each set of causes, the longest first."""
    found: dict[Causes, float] = {}
    for each in stretches:
        found[each.causes] = found.get(each.causes, 0.0) + each.until_s - each.from_s
    return sorted(found.items(), key=lambda pair: -pair[1])

"""The rules and limits that make tasks wait, as policies state them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from dagsim.errors import CodeNotAllowed
from dagsim.systems.cluster.resources.nodes import ALL
from dagsim.systems.cluster.state import TaskState
from dagsim.systems.cluster.view import ClusterView
from dagsim.systems.policy_spec import PolicyKind, PolicySpec
from dagsim.systems.seam import stated


class ReachedLimit(NamedTuple):
    """A limit that would be exceeded if the task started now."""

    reason: str
    """The scheduler's name for it."""
    owner: str
    """The holder of the limit, such as ``the account bio``."""
    unit: str
    limit: float
    held: float
    """The amount that is in use."""
    asked: float
    """The amount that a start of the job takes."""
    detail: str = ""
    """The scheduler's own words."""
    runs: tuple[int, ...] = ()
    """The runs that are counted, by id."""

    @property
    def excess(self) -> float:
        """The amount by which a start would exceed the limit."""
        return self.held + self.asked - self.limit

    @property
    def words(self) -> str:
        """The limit, the amount in use and the excess, as a text that completes a sentence."""
        held = f"{self.held:,.10g} are in use" if self.held else "none are in use"
        if self.unit.endswith("minutes"):
            return (
                f"{self.owner} may use {self.limit:,.0f} {self.unit}, {self.held:,.0f} are used or needed by running "
                f"jobs, and the job takes up to {self.asked:,.0f}: {self.excess:,.0f} too many"
            )
        return (
            f"{self.owner} may hold {self.limit:,.10g} {self.unit} at a time, {held}, and the job takes "
            f"{self.asked:,.10g}: {self.excess:,.10g} too many"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that are safe for JSON."""
        return {name: value for name, value in self._asdict().items() if name != "runs"} | {"excess": self.excess}


class Excess(str):
    """A reason why a task can never start, which states the amount that the task requests, as in
    ``QOSMaxCpuPerJob (8) < 12: the QOS low``. ``around`` is the text before and after the amount.
    """

    around: tuple[str, str]
    asked: float

    @classmethod
    def of(cls, before: str, asked: float, after: str) -> Self:
        """Create the reason from its amount and the text around it."""
        reason = cls(f"{before}{asked:,g}{after}")
        reason.around, reason.asked = (before, after), asked
        return reason

    def to(self, highest: Excess) -> str:
        """Return the reason with a range of amounts, from this one to ``highest``."""
        return str(self) if self == highest else f"{self.asked:,g} to {highest.asked:,g}".join(self.around)


def as_one_reason(reasons: Sequence[str]) -> str:
    """Return several reasons as one. If exactly one of them states an amount, so does the result."""
    at = [place for place, reason in enumerate(reasons) if isinstance(reason, Excess)]
    if len(at) != 1:
        return "; ".join(reasons)
    reason = reasons[at[0]]
    assert isinstance(reason, Excess)
    before, after = reason.around
    return Excess.of("; ".join([*reasons[: at[0]], before]), reason.asked, "; ".join([after, *reasons[at[0] + 1 :]]))


class NextStep(NamedTuple):
    """The next step of a scheduler for a waiting task, in the scheduler's own words."""

    reason: str
    """Its name for the cause; ``None`` if the task starts."""
    words: str
    """The rest of a sentence that begins with the job."""
    brief: str
    """The cause in a few words."""
    limits: tuple[ReachedLimit, ...] = ()
    never: bool = False
    """True if the task can never start under the present rules."""
    outside: bool = False
    """True if the task waits for a person."""


class Standing(NamedTuple):
    """The place of a waiting task in the queue of a policy. The task with the highest tier and,
    within this tier, the highest priority comes first.
    """

    task: TaskState
    group: str
    """Its partition or queue."""
    tier: int
    priority: float
    parts: Mapping[str, float]
    """The parts that add up to the priority, by name."""
    nodes: int
    """The nodes of the group, as a bit set."""
    outcome: NextStep | None = None
    """What the policy does with the task, if this does not depend on the nodes."""


class WaitRules:
    """The interface for a policy's limits and partitions, which are updated with the starts and
    ends in a log. This base class has no limits.

    A policy with limits has a method ``wait_rules(view)`` that returns them. ``view`` is the view
    of an empty simulation with the same cluster and queues.
    """

    elsewhere = ""
    """Describes nodes outside ``nodes`` on which the job would have fitted."""
    judges_demands = False
    """True if ``never`` also includes tasks that no node could hold."""

    def started(self, run: int, task: TaskState, instances: int, type_: int) -> None:
        """Add a run that has started."""

    def ended(self, run: int) -> None:
        """Remove a run that has ended."""

    def limits(self, task: TaskState) -> Iterable[str]:
        """Describe the limits that prevent the task from starting now."""
        return ()

    def reached(self, task: TaskState) -> Iterable[ReachedLimit]:
        """Return, as numbers, the limits that prevent the task from starting now. If the task may
        start in several ways, these are the limits for the first way.
        """
        return ()

    def never(self, task: TaskState) -> Iterable[str]:
        """Describe the rules that would prevent the task from starting even if nothing else were
        running. A reason that states how much the task requests is an ``Excess``.
        """
        return ()

    def nodes(self, task: TaskState) -> int:
        """Return the nodes that the task may use now, as a bit set."""
        return ALL

    def alone(self, task: TaskState) -> bool:
        """Return True if the task does not share its nodes with other tasks."""
        return False

    def distinct(self, task: TaskState) -> bool:
        """Return True if each instance needs its own node."""
        return False


def rules_of(policy: object, view: ClusterView) -> WaitRules:
    """Return the rules of a policy. If it has none, there are no limits."""
    give = stated(policy, "wait_rules")
    return WaitRules() if give is None else give(view)


def rules_of_named(policy: str, view: ClusterView) -> WaitRules:
    """Return the rules of a policy given by name. Agents and programs have none, and those of a
    user's own code are left out if this process must not import it (docs/security.md)."""
    from dagsim.systems.cluster.policies import POLICIES

    spec = PolicySpec.parse(policy)
    if spec.kind is not PolicyKind.OWN and spec.name not in POLICIES.names():
        return WaitRules()
    try:
        return rules_of(POLICIES.create(spec.call, seed=0), view)
    except CodeNotAllowed:
        return WaitRules()

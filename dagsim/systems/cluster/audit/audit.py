"""The contradictions in an input, and the sentences in which every command prints them.

Contradictions that affect more than ``URGENT`` of the jobs or of the resource-hours are shown
before any result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagsim.errors import TraceError
from dagsim.text import on_one_line
from dagsim.traces.fields import is_no_number_of_seconds
from dagsim.traces.report import CONTRADICTIONS, NO_HOURS, OF_ROWS, Contradiction, Hours
from dagsim.workload.records import clipped

URGENT = 0.01
"""Share of jobs or of resource-hours above which a contradiction comes before any result."""
NAMED = 4
"""Maximum number of reasons, or of names (of nodes, partitions and so on), in one sentence."""
_SINGULAR = {"are": "is", "were": "was", "have": "has", "belong": "belongs", "mention": "mentions"}
_KEPT = 50
"""Maximum number of reasons that a run folder stores for each kind of contradiction. The most
frequent ones are stored."""


class ContradictoryInput(TraceError):
    """The error that is raised with ``--strict`` if the log and the site contradict each other.
    Without this option, the contradictions are only reported.
    """


@dataclass(slots=True)
class Audit:
    """The contradictions in an input, by kind, and the total numbers of jobs and hours in the
    input.
    """

    jobs: int = 0
    rows: int = 0
    """Number of rows of these jobs, including dropped rows."""
    hours: Hours = NO_HOURS
    contradictions: dict[str, Contradiction] = field(default_factory=dict)
    unused: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """For nodes, partitions and so on: the number of those at the site that no job in the log uses,
    and the names of the first few."""
    hint: str = ""
    """Remedies for a log with jobs that can never run here."""
    doubts: tuple[str, ...] = ()
    """Other sentences that must precede any result, such as one about an invented cluster."""

    def shares(self, kind: str) -> tuple[float, float, float]:
        """Return the shares of jobs (or rows), GPU-hours and core-hours that a contradiction
        affects.
        """
        of = self.contradictions[kind]
        pairs = ((of.count, self._whole(kind)), (of.hours.gpus, self.hours.gpus), (of.hours.cores, self.hours.cores))
        jobs, gpus, cores = (part / whole if whole else 0.0 for part, whole in pairs)
        return jobs, gpus, cores

    def is_urgent(self, kind: str) -> bool:
        """Return True if the contradiction affects more than ``URGENT`` of the jobs or hours."""
        return max(self.shares(kind)) > URGENT

    def worst(self) -> float:
        """Return the largest share of jobs or hours that any contradiction affects."""
        return max((max(self.shares(kind)) for kind in self.contradictions), default=0.0)

    def sentences(self, urgent: bool = True) -> list[str]:
        """Describe the urgent contradictions. If ``urgent`` is False, describe the other
        contradictions and list the names that occur only in the site.
        """
        kinds = [kind for kind in self._kinds() if self.is_urgent(kind) is urgent]
        sentences = [f"{'warning: ' * urgent}{self._sentence(kind)}" for kind in kinds]
        sentences += [f"warning: {doubt}" for doubt in self.doubts if urgent]
        if not urgent:
            parts = [f"{count:,} {what} ({listed(names, count)})" for what, (count, names) in self.unused.items()]
            sentences += [f"in the site, but not in the log: {', '.join(parts)}"] if parts else []
        return sentences

    def refuse(self, what: str) -> None:
        """Reject an input with urgent contradictions.

        Raises:
            ContradictoryInput: There are urgent contradictions.
        """
        if sentences := self.sentences():
            text = "; ".join(sentence.removeprefix("warning: ") for sentence in sentences)
            raise ContradictoryInput(f"{what}: {text} (--strict allows at most {URGENT:.0%} of the jobs or hours)")

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as plain data."""
        kinds = self._kinds()
        of = {kind: self.contradictions[kind] for kind in kinds}
        most = {kind: sorted(of[kind].reasons.items(), key=lambda told: -told[1][0])[:_KEPT] for kind in kinds}
        return {
            "urgent": any(map(self.is_urgent, kinds)),
            "jobs": self.jobs,
            "rows": self.rows,
            "gpu_hours": self.hours.gpus,
            "core_hours": self.hours.cores,
            "contradictions": [
                {
                    "kind": kind,
                    "urgent": self.is_urgent(kind),
                    "count": of[kind].count,
                    "gpu_hours": of[kind].hours.gpus,
                    "core_hours": of[kind].hours.cores,
                    "text": self._sentence(kind),
                    "reasons": {reason: {"count": count, "first": list(ids)} for reason, (count, ids) in most[kind]},
                }
                for kind in kinds
            ],
            "unused": {what: {"count": count, "first": list(names)} for what, (count, names) in self.unused.items()},
            "hint": self.hint,
            **({"doubts": list(self.doubts)} if self.doubts else {}),
        }

    @classmethod
    def of_dict(cls, facts: Mapping[str, Any]) -> Audit:
        """Create an audit from the result of ``to_dict``."""
        kinds = {
            of["kind"]: Contradiction(
                of["count"],
                Hours(of["gpu_hours"], of["core_hours"]),
                {reason: (told["count"], tuple(told["first"])) for reason, told in of["reasons"].items()},
            )
            for of in facts["contradictions"]
        }
        unused = {what: (of["count"], tuple(of["first"])) for what, of in facts["unused"].items()}
        hours = Hours(facts["gpu_hours"], facts["core_hours"])
        doubts = tuple(facts.get("doubts", ()))
        return cls(facts["jobs"], facts["rows"], hours, kinds, unused, facts["hint"], doubts)

    def _kinds(self) -> list[str]:
        """Return the kinds of contradictions in this input, in the order of ``CONTRADICTIONS``."""
        return sorted(self.contradictions, key=list(CONTRADICTIONS).index)

    def _whole(self, kind: str) -> int:
        """Return the total number of jobs, or of rows if the contradiction is between rows."""
        return self.rows if kind in OF_ROWS else self.jobs

    def _sentence(self, kind: str) -> str:
        of = self.contradictions[kind]
        jobs, gpus, cores = self.shares(kind)
        shares = [f"{100 * jobs:.2g}%" if jobs < URGENT else f"{jobs:.0%}"]
        hours = ("GPU-hours", gpus) if self.hours.gpus else ("core-hours", cores)
        shares += [f"{hours[1]:.0%} of the {hours[0]}"] if hours[1] or max(gpus, cores) else []
        if self.hours.gpus and cores > URGENT and not gpus:
            shares[-1] = f"{cores:.0%} of the core-hours"
        most_first = sorted(of.reasons.items(), key=lambda told: -told[1][0])
        unit = "row" if kind in OF_ROWS else "job"
        first = [
            f"{re.sub('^with an? ', '', reason)} ({_named(count, ids, unit)})"
            for reason, (count, ids) in most_first[:NAMED]
        ]
        more = f"; and {len(of.reasons) - NAMED:,} more reasons" if len(of.reasons) > NAMED else ""
        hint = f" ({self.hint})" if self.hint and kind == "impossible" else ""
        if any(map(is_no_number_of_seconds, of.reasons)):
            hint = "; times must be numbers of seconds, such as 7200 for two hours"
        who = f"{of.count:,} of {self._whole(kind):,} {unit}s ({', '.join(shares)})"
        verb, _, rest = CONTRADICTIONS[kind].partition(" ")
        does = f"{_SINGULAR.get(verb, verb) if of.count == 1 else verb} {rest}"
        text = f"{who} {does}: {'; '.join(map(clipped, first))}{more}{hint}"
        return on_one_line(text)


def _named(count: int, ids: tuple[str, ...], unit: str) -> str:
    """Format a number of jobs or rows, followed by the ids of the first few."""
    what = f"1 {unit}: " if count == 1 else f"{count:,} {unit}s{', first' * (count > len(ids))}: "
    return what + ", ".join(ids)


def listed(names: Sequence[str], count: int) -> str:
    return ", ".join(names[:NAMED]) + (" ..." if count > len(names[:NAMED]) else "")

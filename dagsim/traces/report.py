"""The result of reading a trace: rows read, rows dropped, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from dagsim.errors import ModelError, TraceError
from dagsim.text import count_of
from dagsim.traces.fields import Contradictory, Dirty, InvalidValue
from dagsim.workload.records import clipped

_DETAILS = 100
SHOWN = 3
"""Maximum number of jobs to name for each reason."""


class Hours(NamedTuple):
    """GPU-hours and core-hours."""

    gpus: float = 0.0
    cores: float = 0.0

    def plus(self, other: Hours) -> Hours:
        """Return the sum of two amounts."""
        return Hours(self.gpus + other.gpus, self.cores + other.cores)


NO_HOURS = Hours()


@dataclass(slots=True)
class Contradiction:
    """Jobs or rows with the same kind of contradiction: within themselves, with each other, or with
    the description of the site. ``kind`` is a key of ``CONTRADICTIONS``.
    """

    count: int = 0
    """The number of jobs or, for the kinds in ``OF_ROWS``, of rows."""
    hours: Hours = NO_HOURS
    reasons: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """For each reason, the number of jobs or rows, and the first few of them: ids, or
    ``file:line``.
    """

    def add(self, reason: str, first: Iterable[str], count: int = 1) -> None:
        """Add ``count`` jobs or rows with the same reason. ``first`` contains the names of the first few."""
        before, named = self.reasons.get(reason, (0, ()))
        self.reasons[reason] = before + count, (*named, *first)[:SHOWN]


CONTRADICTIONS: Mapping[str, str] = {
    "impossible": "ran in the log but can never run here",
    "stuck": "are waiting but can never run here",
    "rules": "ran in the log although the rules of the site would never let them start",
    "smaller nodes": "used more of a node's resources than it has here",
    "nodes": "ran on nodes that the cluster lacks",
    "other nodes": "ran on nodes that their partition lacks here",
    "gpu types": "ran on other GPU types than their nodes have here",
    "partitions": "ran in partitions that the site lacks",
    "accounts": "belong to accounts that the site lacks",
    "qos": "ran under a QOS that the site lacks",
    "users": "belong to users that their account lacks at the site",
    "reservations": "ran in reservations that the site lacks",
    "values": "were left out because a value cannot be read",
    "columns": "have contradictory columns",
    "times": "have impossible times",
    "ids": "have the same id as another row",
    "text": "mention their GPUs only in free text",
}
"""Kinds of contradictions, each with the words that describe such jobs or rows in a report."""
OF_ROWS = ("values", "columns", "times", "ids", "text")
"""The kinds that readers find from the rows of a log alone."""


class Disagreement(Contradictory):
    """A reason for rows whose columns disagree."""

    kind = "columns"


class ImpossibleTimes(Contradictory):
    """A reason for rows whose times are impossible."""

    kind = "times"


class RepeatedId(Contradictory):
    """A reason for rows that have the id of another row."""

    kind = "ids"


class OnlyInText(Contradictory):
    """A reason for rows that mention their GPUs only in a text."""

    kind = "text"


@dataclass(slots=True)
class ReadReport:
    """Counts that are updated while a trace is being read. At the end of the trace, every row has
    been kept, dropped or skipped.

    - A *dropped* row is faulty.
    - A *noted* row is kept although it has a fault that is tolerated.
    - A *skipped* row is valid but was not requested (for example, because it is outside the window,
      or is not a job).

    Dropped and noted rows that contradict themselves or each other are also listed by kind
    (``contradictions``).
    """

    strict: bool = False
    full: bool = False
    """True if every detail is kept, instead of only the first hundred."""
    rows: int = 0
    kept: int = 0
    jobs: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    """The details in the form ``file:line: reason``, in order of occurrence."""
    contradictions: dict[str, Contradiction] = field(default_factory=dict)
    """The contradictions in the rows, by kind."""

    def drop(self, reason: str, where: str, rows: int = 1, detail: str = "") -> None:
        """Count ``rows`` faulty rows under ``reason``. The reason is a phrase that can follow "3
        rows", such as ``without end``.

        ``where`` is the ``file:line`` of the first of these rows, and ``detail`` adds information
        about that row, such as ``got '2h'``.

        Raises:
            TraceError: Always, in strict mode.
        """
        text = f"{reason}: {clipped(detail)}" if detail else reason
        if self.strict:
            stop = f"{where}: strict reading stops at the first faulty row: {reason}"
            raise TraceError(stop + (f" ({clipped(detail)})" if detail else ""))
        self.dropped[reason] += rows
        self._contradict(reason, f"{where}: {detail}" if detail.startswith("got ") else where, rows)
        self._detail(f"{where}: dropped, {text}")

    def dropping(
        self,
        *places: str | Callable[[], str],
        rows: int = 1,
        detail: object = "",
        impossible: str = "that describe an impossible job",
    ) -> Dropping:
        """Return a context that drops rows if its body raises ``Dirty`` or ``ModelError``. The
        reason is the text of the ``Dirty`` error (with the beginning of ``detail``) or, for a
        ``ModelError``, ``impossible``. Each entry of ``places`` (a ``file:line``, or a function
        that returns one) counts as ``rows`` rows.
        """
        return Dropping(self, places, rows, detail, impossible)

    def note(self, reason: str, where: str, times: int = 1) -> None:
        """Count an irregularity that is tolerated."""
        self.noted[reason] += times
        self._contradict(reason, where, times)
        self._detail(f"{where}: {reason}")

    def count(self, reason: str, *, drops: bool, rows: int) -> None:
        """Count additional rows that are dropped or noted for a reason, without their positions."""
        (self.dropped if drops else self.noted)[reason] += rows
        self._contradict(reason, "", rows)

    def once(self, kind: str, again: int, hours: Hours) -> None:
        """Count a row only once for each kind of contradiction, however many faults of that kind it
        has. ``again`` is the number of surplus counts, which are removed. Add ``hours``, the hours
        of the jobs in these rows.
        """
        contradiction = self.contradictions[kind]
        contradiction.count -= again
        contradiction.hours = contradiction.hours.plus(hours)

    def skip(self, reason: str, rows: int = 1) -> None:
        """Count rows that are valid but were not requested."""
        self.skipped[reason] += rows

    def adopt(self, other: ReadReport) -> None:
        """Replace all counts and details with copies of those in another report."""
        for part in fields(self):
            if part.name not in ("strict", "full"):
                setattr(self, part.name, copy(getattr(other, part.name)))

    @property
    def lists_more(self) -> bool:
        """True if the report still has space for another detail."""
        return self.full or len(self.details) < _DETAILS

    @property
    def open(self) -> int:
        """Number of rows that have been read but not yet kept, dropped or skipped."""
        return self.rows - self.kept - self.dropped.total() - self.skipped.total()

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data for JSON."""
        return {
            "rows": self.rows,
            "kept": self.kept,
            "jobs": self.jobs,
            "dropped": dict(self.dropped.most_common()),
            "noted": dict(self.noted.most_common()),
            "skipped": dict(self.skipped.most_common()),
        }

    def __str__(self) -> str:
        parts = [f"kept {self.kept:,}"]
        for verb, counts in (("dropped", self.dropped), ("skipped", self.skipped), ("noted", self.noted)):
            if counts:
                parts.append(f"{verb} " + ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common()))
        return f"read {count_of(self.rows, 'row')}: " + "; ".join(parts)

    def _contradict(self, reason: str, where: str, rows: int) -> None:
        if isinstance(reason, Contradictory):
            of = self.contradictions.setdefault(reason.kind, Contradiction())
            of.count += rows
            of.add(reason, [where] if where else [], rows)

    def _detail(self, text: str) -> None:
        if self.lists_more:
            self.details.append(text)


class Dropping:
    """The context of ``ReadReport.dropping``. It must be cheap to create, because it is entered once per row."""

    __slots__ = ("_detail", "_impossible", "_places", "_report", "_rows")

    def __init__(
        self,
        report: ReadReport,
        places: tuple[str | Callable[[], str], ...],
        rows: int,
        detail: object,
        impossible: str,
    ) -> None:
        self._report, self._places, self._rows = report, places, rows
        self._detail, self._impossible = detail, impossible

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None or not isinstance(error, (Dirty, ModelError)):
            return False
        dirty = isinstance(error, Dirty)
        reason, detail = (str(error), str(self._detail)[:80]) if dirty else (InvalidValue(self._impossible), str(error))
        for place in self._places:
            self._report.drop(reason, place if isinstance(place, str) else place(), self._rows, detail)
        return True

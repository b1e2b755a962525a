"""Report of a reading: rows read, rows left out, and the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dagsim.errors import ModelError, TraceError
from dagsim.traces.fields import Dirty
from dagsim.workload.records import clipped

_DETAILS = 100


@dataclass(slots=True)
class ReadReport:
    """Counts that are updated while a trace is read. At the end of the trace, every row is kept,
    dropped or skipped.

    - A *dropped* row is faulty.
    - A *noted* row is kept, but something about it had to be tolerated.
    - A *skipped* row is valid but was not requested (outside the window, another kind of record).
    """

    strict: bool = False
    full: bool = False
    """Keep every detail instead of the first hundred."""
    rows: int = 0
    kept: int = 0
    jobs: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    """``file:line: reason``, in order of occurrence."""

    def drop(self, reason: str, where: str, rows: int = 1, detail: str = "") -> None:
        """Count ``rows`` faulty rows under ``reason``, a phrase that follows a number (``cyclic``,
        ``without end``).

        ``where`` is the ``file:line`` of the first of them; ``detail`` adds information about this
        particular row.

        Raises:
            TraceError: Always, in strict mode.
        """
        text = f"{reason}: {clipped(detail)}" if detail else reason
        if self.strict:
            raise TraceError(f"{where}: {text} (strict reading stops at the first row that would be dropped)")
        self.dropped[reason] += rows
        self._detail(f"{where}: dropped, {text}")

    def dropping(
        self,
        *places: str | Callable[[], str],
        rows: int = 1,
        detail: object = "",
        impossible: str = "that describe an impossible job",
    ) -> Dropping:
        """Drop rows if the body of the ``with`` statement raises ``Dirty`` (for its reason, with
        the start of ``detail``) or ``ModelError`` (as ``impossible``). Each of ``places``, a ``file:line`` or a
        function that returns one, stands for ``rows`` of them.
        """
        return Dropping(self, places, rows, detail, impossible)

    def note(self, reason: str, where: str, times: int = 1) -> None:
        """Count a tolerated irregularity."""
        self.noted[reason] += times
        self._detail(f"{where}: {reason}")

    def skip(self, reason: str, rows: int = 1) -> None:
        """Count rows that are valid but were not requested."""
        self.skipped[reason] += rows

    @property
    def lists_more(self) -> bool:
        """True if the next detail will be kept."""
        return self.full or len(self.details) < _DETAILS

    @property
    def open(self) -> int:
        """Number of rows that were read but are neither kept, dropped nor skipped yet."""
        return self.rows - self.kept - self.dropped.total() - self.skipped.total()

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain data, for ``run.json``."""
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
        return f"read {self.rows:,} rows: " + "; ".join(parts)

    def _detail(self, text: str) -> None:
        if self.lists_more:
            self.details.append(text)


class Dropping:
    """The context of ``ReadReport.dropping``; entered once per row, so cheap."""

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
        reason, detail = (str(error), str(self._detail)[:80]) if dirty else (self._impossible, str(error))
        for place in self._places:
            self._report.drop(reason, place if isinstance(place, str) else place(), self._rows, detail)
        return True

"""Record forecasts and their later outcomes, and compute coverage."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, log1p, nan
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.errors import InputError
from dagsim.families.forecast.time_spans import HOUR_S, WEEK_S, WITHIN_S
from dagsim.files import append
from dagsim.text import count_of

HORIZONS = {"under 10 min": 600.0, "10 min to 1 h": 3600.0, "1 h to 4 h": 14400.0, "over 4 h": inf}
"""Ranges of the median forecast, and the end of each in s."""
STATED = "slurm"
"""The name of the scheduler's own estimates among the baselines."""
BASELINES = (STATED, "history", "history_account", "qbets")
"""Baselines that need no simulation; their medians are recorded."""
_METHODS = ("forecast", *BASELINES)


class Watched(NamedTuple):
    """A waiting job with its forecast, in the form used in JSON."""

    job: str
    user: str
    partition: str
    waits_for: str
    scored: bool
    q05_s: float
    median_s: float
    q90_s: float
    q95_s: float
    baselines_s: Mapping[str, float] = {}
    """The medians of simple forecasts for comparison, by their names in ``BASELINES``."""


class Figures(NamedTuple):
    """The number of forecasts in the last week (or in one group of them), and the shares of jobs
    that started near the median."""

    n: int
    within: tuple[float, ...]
    """The shares of starts within the times of ``WITHIN_S``."""

    def to_dict(self) -> dict[str, float | int]:
        """Return the shares as a dictionary for JSON."""
        return {"n": self.n, **dict(zip(WITHIN_S, self.within, strict=True))}


class _Tally:
    """Counts over the forecasts of one method whose jobs have started."""

    __slots__ = ("counts", "loss")

    def __init__(self) -> None:
        self.counts = [0] * (2 + len(WITHIN_S))
        """Number of forecasts, of those whose interval held, and of those near the start (``WITHIN_S``)."""
        self.loss = 0.0
        """Sum of the absolute errors of the logarithm of the wait."""

    def add(self, wait_s: float, median_s: float, *, held: bool) -> None:
        off_s = abs(wait_s - median_s)
        for place, more in enumerate((True, held, *[off_s <= most_s for most_s in WITHIN_S.values()])):
            self.counts[place] += more
        self.loss += abs(log1p(max(wait_s, 0.0)) - log1p(max(median_s, 0.0)))

    def join(self, other: _Tally) -> None:
        self.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        self.loss += other.loss


class Journal:
    """A file with forecasts and their later outcomes (``forecasts.jsonl``). Each entry is a line of
    JSON, and lines are only ever appended.

    All lines are complete, because an incomplete line that a killed process left is removed when
    the file is opened again. Only the last week is kept in memory. Only one process may write.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "forecasts.jsonl"
        self._size = 0
        self._open: dict[str, tuple[str, array[float]]] = {}
        """For each waiting job its partition and its forecasts of the last week, in ``_STRIDE``
        numbers each: instant, the 0.05, 0.5 and 0.95 quantiles, and the medians of the baselines
        (NaN if missing)."""
        self._scored: dict[int, dict[tuple[str, str, str], _Tally]] = {}
        """The forecasts whose jobs have started since, counted by the hour of the forecast, and then by
        partition, horizon and method, so that memory does not grow with the number of forecasts."""
        self.latest_s = 0.0
        """The latest instant that was forecast."""
        self.latest: list[Any] = []
        """The time, name and size of the latest snapshot."""
        self.skipped = 0
        """Snapshots without a forecast."""
        folder.mkdir(parents=True, exist_ok=True)
        for entry in self._read():
            self._take(entry)

    def _read(self) -> Iterator[dict[str, Any]]:
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            for line in stream:
                try:
                    entry = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    entry = None
                if not isinstance(entry, dict):
                    return  # the last line is not completely written yet
                self._size += len(line)
                yield entry

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append an entry.

        Raises:
            InputError: The file cannot be written.
        """
        try:
            self._size = append(self.path, json.dumps(entry).encode() + b"\n", self._size)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        self._take(entry)

    def seen(
        self, t: float, rows: list[Watched], running: Mapping[str, tuple[float, ...]], snapshot: Sequence[Any] = ()
    ) -> None:
        """Add the starts recorded in a snapshot, then its forecasts. Nothing is added for a snapshot
        that is not newer than the last one.
        """
        if t <= self.latest_s:
            self.skip(t, "it is not newer than the one before", snapshot)
            return
        waiting = {row.job for row in rows}
        # Starts since the last snapshot. An array counts as started when one of its tasks starts.
        new = {
            job: min([s for s in running[job] if s > self.latest_s], default=inf)
            for job in self._open
            if job in running
        }
        starts = {job: start_s for job, start_s in new.items() if start_s < inf}
        gone = [job for job in self._open if job not in starts and job not in waiting]
        scored = [
            [row.job, row.q05_s, row.median_s, row.q95_s, row.partition, {**row.baselines_s}]
            for row in rows
            if row.scored
        ]
        self.add({"t": t, "snapshot": [*snapshot], "starts": starts, "gone": gone, "forecasts": scored})

    def skip(self, t: float, why: str, snapshot: Sequence[Any] = ()) -> None:
        """Record a snapshot without a forecast, and the reason."""
        self.add({"t": t, "snapshot": [*snapshot], "skipped": why})

    def _take(self, entry: Mapping[str, Any]) -> None:
        t, self.latest = float(entry["t"]), list(entry.get("snapshot") or self.latest)
        if "skipped" in entry:
            self.skipped += 1
            return
        self.latest_s = t
        for job, start_s in entry["starts"].items():
            partition, numbers = self._open.pop(job, ("", array("d")))
            self._score(partition, numbers, float(start_s))
        for job in entry["gone"]:
            self._open.pop(job, None)
        for job, *quantiles_s, partition, baselines_s in map(_with_baselines, entry["forecasts"]):
            numbers = self._open.get(job, ("", array("d")))[1]
            numbers.extend([t, *quantiles_s, *[baselines_s.get(name, nan) for name in BASELINES]])
            self._open[job] = partition, numbers
        first_s = t - WEEK_S
        if any((hour + 1) * HOUR_S <= first_s for hour in self._scored):
            self._scored = {hour: tallies for hour, tallies in self._scored.items() if (hour + 1) * HOUR_S > first_s}
            for job, (partition, numbers) in list(self._open.items()):
                old = sum(at_s < first_s for at_s in numbers[::_STRIDE])
                self._open[job] = partition, numbers[old * _STRIDE :]

    def _score(self, partition: str, numbers: Sequence[float], start_s: float) -> None:
        """Count the forecasts of a job that has started."""
        for place in range(0, len(numbers), _STRIDE):
            at_s, low_s, median_s, high_s, *baselines_s = numbers[place : place + _STRIDE]
            held = at_s + low_s - 1.0 <= start_s <= at_s + high_s + 1.0
            horizon = next(name for name, most_s in HORIZONS.items() if median_s < most_s or most_s == inf)
            tallies = self._scored.setdefault(int(at_s // HOUR_S), {})
            for method, middle_s in zip(_METHODS, (median_s, *baselines_s), strict=True):
                if middle_s == middle_s:
                    tally = tallies.setdefault((partition, horizon, method), _Tally())
                    tally.add(start_s - at_s, middle_s, held=held)

    def _tallies(self, key: Callable[[str, str], str]) -> dict[str, dict[str, _Tally]]:
        """Return the last week's counts by ``key(partition, horizon)``, and then by method."""
        sums: dict[str, dict[str, _Tally]] = {}
        for hour, tallies in self._scored.items():
            if (hour + 1) * HOUR_S > self.latest_s - WEEK_S:
                for (partition, horizon, method), tally in tallies.items():
                    own = sums.setdefault(key(partition, horizon), {})
                    own.setdefault(method, _Tally()).join(tally)
        return sums

    def coverage(self) -> tuple[float, int]:
        """Return the share of the last week's forecasts whose jobs started within the 90% interval,
        and the number of these forecasts. The week begins at a full hour.
        """
        count, held, *_ = self._tallies(lambda *_: "").get("", {}).get("forecast", _Tally()).counts
        return (held / count if count else 0.0), count

    @property
    def best_baseline(self) -> str | None:
        """The simple baseline whose medians had the smallest error in the last week, or None if
        there is none. Errors are differences between logarithms. Only the baselines with the
        largest number of forecasts are compared.
        """
        sums = self._tallies(lambda *_: "").get("", {})
        simple = {name: tally for name, tally in sums.items() if name not in ("forecast", STATED)}
        most = max((tally.counts[0] for tally in simple.values()), default=0)
        losses = {name: tally.loss for name, tally in simple.items() if tally.counts[0] == most}
        return min(losses, key=losses.__getitem__, default=None)

    def figures(self) -> dict[str, dict[str, dict[str, Figures]]]:
        """Return how many of the last week's starts were near the medians, ``by_partition`` and
        ``by_horizon``. Each part contains the shares for the forecast, for the scheduler's own
        estimates, and for the best simple baseline.
        """
        shown = [name for name in ("forecast", STATED, self.best_baseline) if name is not None]
        parts = {}
        for name, key in (("by_partition", _partition_of), ("by_horizon", _horizon_of)):
            sums = self._tallies(key)
            parts[name] = {
                part: {method: _figures(sums[part][method]) for method in shown if method in sums[part]}
                for part in (sorted(sums) if key is _partition_of else [one for one in HORIZONS if one in sums])
            }
        return parts

    def outcomes(self) -> list[tuple[dict[str, str], _Tally]]:
        """Return the counts of ``figures`` by partition, horizon and method, with these as labels."""
        shown = [name for name in ("forecast", STATED, self.best_baseline) if name is not None]
        sums = self._tallies(lambda partition, horizon: f"{horizon}\0{partition}")
        rows = []
        for key in sorted(sums):
            horizon, _, partition = key.partition("\0")
            rows += [
                ({"partition": partition, "horizon": horizon, "of": of}, sums[key][of])
                for of in shown
                if of in sums[key]
            ]
        return rows

    def sentence(self) -> str:
        """Describe the coverage in words."""
        share, count = self.coverage()
        if not count:
            return "No job with a forecast has started yet, so the coverage of the forecasts is not known."
        return (
            f"Of the last week's {count_of(count, 'forecast')} whose jobs have started, "
            f"{100 * share:.0f}% had a 90% interval that contained the start."
        )


_STRIDE = 4 + len(BASELINES)


def _with_baselines(row: Sequence[Any]) -> Sequence[Any]:
    """Return a row of a journal with all fields, because rows in older journals have neither a
    partition nor baselines.
    """
    return row if len(row) > 4 else [*row, "", {}]


def _partition_of(partition: str, horizon: str) -> str:
    return partition


def _horizon_of(partition: str, horizon: str) -> str:
    return horizon


def _figures(tally: _Tally) -> Figures:
    count, _, *near = tally.counts
    return Figures(count, tuple(number / count for number in near))

"""Watch a queue: run the site's own command, record forecasts and their later outcomes, and compute
coverage and metrics.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf, log1p, nan
from pathlib import Path
from time import monotonic, time
from typing import Any, NamedTuple

from dagsim.errors import InputError
from dagsim.files import append, write_text
from dagsim.text import count_of, printable

_WEEK_S = 7 * 86400.0
_LARGEST = 1 << 28
"""Most bytes that a command may print."""
_KEPT_SNAPSHOTS = 3


WITHIN_S = {"within_1_min": 60.0, "within_10_min": 600.0, "within_1_h": 3600.0}
"""Scores that are shares of starts, with the largest allowed difference from the median forecast,
in s."""
HORIZONS = {"under 10 min": 600.0, "10 min to 1 h": 3600.0, "1 h to 4 h": 14400.0, "over 4 h": inf}
"""Ranges of the median forecast, and the end of each in s."""
STATED = "slurm"
"""The name of the scheduler's own estimates among the baselines."""
BASELINES = (STATED, "history", "history_account", "qbets")
"""Baselines that need no simulation; their medians are recorded."""
_METHODS = ("forecast", *BASELINES)
_HOUR_S = 3600.0


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
    """Counts of the last week's forecasts, or of a part of them, that had jobs that started near the
    median.
    """

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
    """A file with forecasts and their later outcomes (``forecasts.jsonl``). Each is a line of JSON,
    and lines are only ever appended.

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
        # For an array, this is the first task that has started since the last forecast of its next
        # task.
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
        first_s = t - _WEEK_S
        if any((hour + 1) * _HOUR_S <= first_s for hour in self._scored):
            self._scored = {hour: tallies for hour, tallies in self._scored.items() if (hour + 1) * _HOUR_S > first_s}
            for job, (partition, numbers) in list(self._open.items()):
                old = sum(at_s < first_s for at_s in numbers[::_STRIDE])
                self._open[job] = partition, numbers[old * _STRIDE :]

    def _score(self, partition: str, numbers: Sequence[float], start_s: float) -> None:
        """Count the forecasts of a job that has started."""
        for place in range(0, len(numbers), _STRIDE):
            at_s, low_s, median_s, high_s, *baselines_s = numbers[place : place + _STRIDE]
            held = at_s + low_s - 1.0 <= start_s <= at_s + high_s + 1.0
            horizon = next(name for name, most_s in HORIZONS.items() if median_s < most_s or most_s == inf)
            tallies = self._scored.setdefault(int(at_s // _HOUR_S), {})
            for method, middle_s in zip(_METHODS, (median_s, *baselines_s), strict=True):
                if middle_s == middle_s:
                    tally = tallies.setdefault((partition, horizon, method), _Tally())
                    tally.add(start_s - at_s, middle_s, held=held)

    def _tallies(self, key: Callable[[str, str], str]) -> dict[str, dict[str, _Tally]]:
        """Return the last week's counts by ``key(partition, horizon)``, and then by method."""
        sums: dict[str, dict[str, _Tally]] = {}
        for hour, tallies in self._scored.items():
            if (hour + 1) * _HOUR_S > self.latest_s - _WEEK_S:
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


class StateCommand:
    """An object that runs the site's own command at regular intervals, without a shell. The output
    becomes the newest snapshot.
    """

    def __init__(self, command: str, every_s: float, folder: Path) -> None:
        """Split the command into words.

        Raises:
            InputError: The command is empty, or a quote is open.
        """
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"--command: {command!r} cannot be split into words: {error}") from None
        if not self._words:
            raise InputError("--command: the command is empty; example: --command 'squeue --json'")
        self._every_s, self._folder = every_s, folder
        self.error = ""
        """The reason that the last call gave no snapshot. It is empty if it gave one."""
        self.failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def start(self) -> None:
        """Run the command now and at regular intervals."""
        self._thread.start()

    def stop(self) -> None:
        """Stop running the command. Wait at most a second for a call in progress."""
        self._stop.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            began_s = monotonic()
            self.call()
            self._stop.wait(max(0.0, self._every_s - (monotonic() - began_s)))

    def call(self) -> None:
        """Run the command once, for at most one interval, and keep its output if it is JSON."""
        name = self._words[0]
        try:
            done = subprocess.run(self._words, capture_output=True, timeout=self._every_s, stdin=subprocess.DEVNULL)
            text = done.stdout.decode("utf-8", "replace")
            if done.returncode:
                said = done.stderr.decode("utf-8", "replace").strip().splitlines()
                problem = f"{name} ended with {done.returncode}{f': {said[-1][:200]}' if said else ''}"
            elif len(text) > _LARGEST:
                problem = f"{name} printed more than {_LARGEST:,} characters"
            else:
                problem = "" if isinstance(json.loads(text), dict) else f"{name} printed JSON that is not an object"
        except subprocess.TimeoutExpired:
            problem = f"{name} took longer than {self._every_s:g} s and was ended"
        except OSError as error:
            problem = f"{name} cannot be run: {error.strerror or error}"
        except ValueError:
            problem = f"{name} printed no JSON"
        if not problem:
            try:
                write_text(self._folder / f"{int(time() * 1000)}.json", text)
                self._forget()
            except InputError as error:
                problem = str(error)
        self.failures += bool(problem)
        self.error = problem

    def _forget(self) -> None:
        """Remove all but the last snapshots that this object has written."""
        own = sorted(path for path in self._folder.glob("*.json") if path.stem.isdigit() and len(path.stem) == 13)
        for path in own[:-_KEPT_SNAPSHOTS]:
            with suppress(OSError):
                path.unlink()


def metrics(rows: list[Watched], journal: Journal, t: float, failures: int) -> str:
    """Return the metrics in the text format of Prometheus (0.0.4)."""
    share, count = journal.coverage()
    parts: dict[str, list[Watched]] = {}
    for row in rows:
        parts.setdefault(row.partition, []).append(row)

    def labelled(name: str, value: float, **labels: str) -> str:
        pairs = [f'{key}="{_escaped(text)}"' for key, text in labels.items()]
        return f"{name}{{{','.join(pairs)}}} {value:g}" if pairs else f"{name} {value:g}"

    def of_parts(name: str, quantile: str) -> list[str]:
        return [
            labelled(name, sorted(getattr(row, quantile) for row in part)[len(part) // 2], partition=key)
            for key, part in sorted(parts.items())
        ]

    outcomes = journal.outcomes()
    families = [
        ("dagsim_waiting_jobs", "gauge", "Waiting jobs.",
         [labelled("dagsim_waiting_jobs", len(part), partition=key) for key, part in sorted(parts.items())]),
        ("dagsim_forecast_median_seconds", "gauge", "Median over jobs of the median forecast until the start.",
         of_parts("dagsim_forecast_median_seconds", "median_s")),
        ("dagsim_forecast_p90_seconds", "gauge", "Median over jobs of the 0.9 quantile until the start.",
         of_parts("dagsim_forecast_p90_seconds", "q90_s")),
        ("dagsim_forecast_coverage_ratio", "gauge", "Share of the last week's 90% intervals that contained the start.",
         [labelled("dagsim_forecast_coverage_ratio", share)] if count else []),
        ("dagsim_forecasts_scored", "gauge", "Forecasts of the last week whose jobs have started.",
         [labelled("dagsim_forecasts_scored", count)]),
        ("dagsim_starts_scored", "gauge", "Forecasts of the last week whose jobs have started, by method.",
         [labelled("dagsim_starts_scored", tally.counts[0], **labels) for labels, tally in outcomes]),
        ("dagsim_starts_within", "gauge", "Those whose jobs started within this many seconds of the median.",
         [labelled("dagsim_starts_within", number, **labels, within=f"{most_s:g}")
          for labels, tally in outcomes
          for number, most_s in zip(tally.counts[2:], WITHIN_S.values(), strict=True)]),
        ("dagsim_snapshots_skipped_total", "counter", "Snapshots without a forecast.",
         [labelled("dagsim_snapshots_skipped_total", journal.skipped)]),
        ("dagsim_command_failures_total", "counter", "Calls of the command without a snapshot.",
         [labelled("dagsim_command_failures_total", failures)]),
        ("dagsim_snapshot_age_seconds", "gauge", "Age of the snapshot that was forecast last.",
         [labelled("dagsim_snapshot_age_seconds", max(time() - t, 0.0))] if t else []),
    ]  # fmt: skip
    lines = []
    for name, kind, words, samples in families:
        if samples:
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

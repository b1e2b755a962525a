"""Watching a queue: the site's own command, forecasts with their later outcomes, coverage, and
metrics.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic, time
from typing import Any, NamedTuple

from dagsim.errors import InputError
from dagsim.files import append, write_text

_WEEK_S = 7 * 86400.0
_LARGEST = 1 << 28
"""Most bytes that a command may print."""
_KEPT_SNAPSHOTS = 3


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


class Journal:
    """Forecasts and their later outcomes as lines of JSON, which are only ever appended
    (``forecasts.jsonl``).

    A line is on disk either as a whole or not at all: what a killed process has left of a line is
    cut off when the file is opened again. Only the last week is kept in memory. Only one process
    may write.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "forecasts.jsonl"
        self._size = 0
        self._open: dict[str, list[tuple[float, float, float, float]]] = {}
        """For each waiting job the forecasts of the last week: instant, and the .05, .5 and .95 quantiles."""
        self._scored: list[tuple[float, bool]] = []
        """Instant of each forecast whose job has started since, and whether it did within the interval."""
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
                    return  # the rest was not written completely
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
        scored = [[row.job, row.q05_s, row.median_s, row.q95_s] for row in rows if row.scored]
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
            for at_s, low_s, _, high_s in self._open.pop(job, ()):
                self._scored.append((at_s, at_s + low_s - 1.0 <= start_s <= at_s + high_s + 1.0))
        for job in entry["gone"]:
            self._open.pop(job, None)
        for job, *quantiles_s in entry["forecasts"]:
            self._open.setdefault(job, []).append((t, *quantiles_s))
        first_s = t - _WEEK_S
        if self._scored and self._scored[0][0] < first_s - 3600:
            self._scored = [row for row in self._scored if row[0] >= first_s]
            for job, rows in list(self._open.items()):
                self._open[job] = [row for row in rows if row[0] >= first_s]

    def coverage(self) -> tuple[float, int]:
        """Return the share of the last week's forecasts whose jobs started within the 90% interval,
        and the number of these forecasts.
        """
        inside = [hit for at_s, hit in self._scored if at_s >= self.latest_s - _WEEK_S]
        return (sum(inside) / len(inside) if inside else 0.0), len(inside)

    def sentence(self) -> str:
        """Describe the coverage in words."""
        share, count = self.coverage()
        if not count:
            return "No job with a forecast has started yet, so that nothing is known of the forecasts' coverage."
        return f"Of the last week's {count:,} forecasts whose jobs have started, {100 * share:.0f}% held (of 90%)."


class Source:
    """Runs the site's own command at regular intervals, without a shell; its output becomes the newest
    snapshot.
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
        """The reason that the last call gave no snapshot; empty if it gave one."""
        self.failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def start(self) -> None:
        """Run the command now and at regular intervals."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; wait for a call in progress for at most a second."""
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

    families = [
        ("dagsim_waiting_jobs", "gauge", "Jobs that wait.",
         [labelled("dagsim_waiting_jobs", len(part), partition=key) for key, part in sorted(parts.items())]),
        ("dagsim_forecast_median_seconds", "gauge", "Median over jobs of the median forecast until the start.",
         of_parts("dagsim_forecast_median_seconds", "median_s")),
        ("dagsim_forecast_p90_seconds", "gauge", "Median over jobs of the 0.9 quantile until the start.",
         of_parts("dagsim_forecast_p90_seconds", "q90_s")),
        ("dagsim_forecast_coverage_ratio", "gauge", "Share of the last week's intervals of 90% that held.",
         [labelled("dagsim_forecast_coverage_ratio", share)] if count else []),
        ("dagsim_forecasts_scored", "gauge", "Forecasts of the last week whose jobs have started.",
         [labelled("dagsim_forecasts_scored", count)]),
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
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

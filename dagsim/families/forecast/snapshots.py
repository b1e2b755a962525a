"""A folder with snapshots of a queue. Forecasts are made from the newest snapshot, in a separate
process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from math import inf
from multiprocessing import get_context
from pathlib import Path
from time import monotonic, time
from typing import Any, NamedTuple, TypeAlias

from dagsim.errors import InputError
from dagsim.families.forecast.journal import Figures, Journal, Watched
from dagsim.families.forecast.prometheus import metrics
from dagsim.families.forecast.state_command import StateCommand
from dagsim.workers import end_with_parent, kill_workers, leave_to_workers, starting

QUEUE = "queue"
"""Id of the queue among the runs."""
_SUFFIXES = (".json", ".json.gz")
_EMPTY = "no snapshot yet; write the output of squeue --json, or kubectl get pods -o json, there as NAME.json"
_LOOK_S = 1.0
"""Seconds between two checks for a new snapshot while the queue is watched."""
_WAIT_S = 0.05
"""Seconds between two checks while a forecast is being made."""
FIRST = 5
"""Number of futures for the first page of a snapshot."""
_BEGINNING = 10
"""Number of intervals that a process may take for its first forecast, for which it also simulates
earlier times."""


FileStamp: TypeAlias = tuple[int, str, int]
"""The time of a file in nanoseconds, its name and its size."""


class ForecastSettings(NamedTuple):
    """Settings of the forecasts: the arguments of ``dagsim eta --state``."""

    config: Path
    history: Path | None = None
    policy: str | None = None
    futures: int = 25
    remark: str = ""
    """A sentence for the page."""
    outcomes: dict[str, dict[str, dict[str, Figures]]] | None = None
    """How earlier forecasts turned out (``Journal.figures``), if the queue is watched."""
    since_s: float = inf
    """The time of the last forecast for a watched queue. Jobs that have started and ended since
    then are returned with their starts."""


class Forecasted(NamedTuple):
    """A page of forecasts, or the reason why there is none."""

    page: str
    instant: str
    summary: str
    error: str = ""
    t: float = 0.0
    """The instant in seconds since 1970."""
    rows: tuple[Watched, ...] = ()
    running: Mapping[str, tuple[float, ...]] = {}
    """The submissions that are running, or that ended since the last forecast, and the starts of their
    tasks in ascending order."""


class Snapshots:
    """The newest snapshot below ``root`` and its page. A first page, from five futures and without
    calibration, is available early. It is later replaced by the page from all futures.

    A watched queue gets a forecast for each snapshot, in the order in which the snapshots were
    written. There are no pauses, so a folder of recorded snapshots is processed as fast as
    possible.
    """

    id = QUEUE

    def __init__(
        self, root: Path, settings: ForecastSettings, journal: Journal | None = None, every_s: float = inf,
        source: StateCommand | None = None,
    ) -> None:  # fmt: skip
        self._root = root
        self.journal, self.source = journal, source
        """The record of forecasts and their truth, and the writer of snapshots, if the queue is watched."""
        self._every_s, self._asked_s, self._unrecorded = every_s, 0.0, ""
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._settings = settings
        self._guard = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._is_ready = False
        """True once the process has made a forecast."""
        self._asked: tuple[FileStamp, bool] | None = None
        self._pending: Future[Forecasted] | None = None
        self.made = 0
        """Number of forecasts made."""
        self.latest = Forecasted("", "", "")

    def watch(self) -> None:
        """Look for new snapshots continuously, even while nobody views the page."""
        if self.source is not None:
            self.source.start()
        self._watcher.start()

    def _watch(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            self.look()
            pause_s = _LOOK_S if self._pending is None or self._unrecorded else _WAIT_S

    @property
    def problem(self) -> str:
        """Description of the last problem. It is empty if there is none."""
        return (self.source.error if self.source is not None else "") or self.latest.error or self._unrecorded

    @property
    def policy(self) -> str:
        """Name of the policy that simulates the futures, if it was specified."""
        return self._settings.policy or "of the site"

    def as_metrics(self) -> str | None:
        """Return the metrics in the text format of Prometheus, or None if the queue is not watched."""
        if self.journal is None:
            return None
        failures = 0 if self.source is None else self.source.failures
        return metrics(list(self.latest.rows), self.journal, self.latest.t, failures)

    def look(self) -> None:
        """Fetch a finished forecast, and request the next one: for a new snapshot, or for the same
        snapshot with all futures."""
        watched = self.journal is not None
        with self._guard:
            if self._pending is not None:
                if not self._pending.done():
                    self._end_late()
                    return
                try:
                    answer = self._pending.result()
                    self._is_ready = self._is_ready or not answer.error
                except BrokenProcessPool:
                    self._pool, answer = None, Forecasted("", "", "", "the process that forecasts was killed")
                self.latest = answer if answer.page else self.latest._replace(error=answer.error)
                try:
                    self._note(answer)
                except InputError as error:
                    # The forecast stays pending, so that it is recorded as soon as the disk allows.
                    self._unrecorded = f"the last forecast is not recorded yet: {error}"
                    return
                self._pending, self._unrecorded = None, ""
                self.made += 1
            newest = self._next()
            if newest is None:
                if not self.latest.page and not (watched and self._asked):
                    self.latest = Forecasted("", "", "", f"{self._root}: {_EMPTY}")
                return
            path, stamp = newest
            better = self._settings.history is not None or self._settings.futures > FIRST
            if self._asked is None or self._asked[0] != stamp:
                self._ask(path, stamp, whole=watched)
            elif not watched and better and not self._asked[1] and not self.latest.error:
                self._ask(path, stamp, whole=True)

    def _ask(self, path: Path, stamp: FileStamp, *, whole: bool) -> None:
        from dagsim.families.forecast.forecast_page import forecast_snapshot  # the module imports the settings above

        with starting():
            if self._pool is None:
                self._pool, self._is_ready = ProcessPoolExecutor(1, get_context("spawn"), end_with_parent), False
            self._asked, self._asked_s = (stamp, whole), monotonic()
            settings = self._settings
            if self.journal is not None:
                settings = settings._replace(
                    remark=self.journal.sentence(), outcomes=self.journal.figures(), since_s=self.journal.latest_s
                )
            self._pending = self._pool.submit(forecast_snapshot, settings, path, whole)
        leave_to_workers(self._pool)

    def _end_late(self) -> None:
        """End a forecast that takes longer than the interval, so that the next snapshot can be
        forecast. The first forecast of a process may take ``_BEGINNING`` intervals. Without this
        exception, a process that takes longer than an interval to start would be ended again and
        again."""
        most_s = self._every_s * (1 if self._is_ready else _BEGINNING)
        if self._pool is None or monotonic() - self._asked_s <= most_s:
            return
        kill_workers(self._pool)
        self._pool, self._pending = None, Future()
        late = f"a forecast took longer than {most_s:g} s and was ended, so its snapshot was skipped"
        self._pending.set_result(Forecasted("", "", "", late))

    def _note(self, answer: Forecasted) -> None:
        """Keep a forecast, and the starts recorded in its snapshot."""
        if self.journal is None:
            return
        if answer.error:
            self.journal.skip(time(), answer.error, self._name)
        else:
            self.journal.seen(answer.t, list(answer.rows), answer.running, self._name)

    @property
    def _name(self) -> list[Any]:
        """The name of the requested snapshot, with its time in nanoseconds as a prefix."""
        return [] if self._asked is None else list(self._asked[0])

    def _next(self) -> tuple[Path, FileStamp] | None:
        """Return the snapshot to forecast, and a value that changes with it. For a watched queue,
        this is the first snapshot written after that of the last forecast. Otherwise, it is the
        snapshot written last. Links are not followed.
        """
        listed = []
        with suppress(OSError), os.scandir(self._root) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIXES) and not entry.name.startswith("."):
                    with suppress(OSError):
                        if entry.is_file(follow_symlinks=False):
                            facts = entry.stat(follow_symlinks=False)
                            listed.append((facts.st_mtime_ns, entry.name, facts.st_size))
        if self.journal is not None:
            done = self._name or self.journal.latest
            listed = [stamp for stamp in listed if list(stamp) > done]
        if not listed:
            return None
        stamp = max(listed) if self.journal is None else min(listed)
        return self._root / stamp[1], stamp

    def close(self) -> None:
        """End the forecasting process and the watched command."""
        self._closing.set()
        if self.source is not None:
            self.source.stop()
        if self._pool is not None:
            kill_workers(self._pool)
        if self._watcher.is_alive():
            self._watcher.join(1.0)  # gives the thread time to finish what it is writing


def queue_snapshots(
    root: Path, config: Path, history: Path | None, policy: str | None, futures: int,
    watch: tuple[str | None, float] | None,
) -> Snapshots:  # fmt: skip
    """Return the snapshots of a queue in a folder, and the forecasts made from them on request. If
    ``watch`` is given, they are watched continuously. It contains a command that prints snapshots
    (or None), and the seconds between two snapshots.
    """
    settings = ForecastSettings(config, history, policy, futures)
    if watch is None:
        return Snapshots(root, settings)
    command, every_s = watch
    root.mkdir(parents=True, exist_ok=True)
    source = None if command is None else StateCommand(command, every_s, root)
    return Snapshots(root, settings, Journal(root), every_s, source)

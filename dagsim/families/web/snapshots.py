"""A folder with snapshots of a queue: forecasts from the newest one, made in a separate process."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from dagsim.family import service
from dagsim.processes import end_with_parent, kill_workers, starting

QUEUE = "queue"
"""Id of the queue among the runs."""
_SUFFIXES = (".json", ".json.gz")
_EMPTY = "no snapshot yet; write the output of squeue --json, or kubectl get pods -o json, there as NAME.json"
FIRST = 5
"""Number of futures for the first page of a snapshot."""


class ForecastSettings(NamedTuple):
    """Settings of the forecasts: the arguments of ``dagsim eta --state``."""

    config: Path
    history: Path | None = None
    policy: str | None = None
    futures: int = 25


class Forecasted(NamedTuple):
    """A page of forecasts, or the reason why there is none."""

    page: str
    instant: str
    summary: str
    error: str = ""


class Snapshots:
    """The newest snapshot below ``root`` and its page. A first page, from five futures and without
    calibration, is available early; the page from all futures replaces it."""

    def __init__(self, root: Path, settings: ForecastSettings) -> None:
        self._root = root
        self._settings = settings
        self._guard = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._asked: tuple[object, bool] | None = None
        self._pending: Future[Forecasted] | None = None
        self.made = 0
        """Number of forecasts made."""
        self.latest = Forecasted("", "", "")

    @property
    def policy(self) -> str:
        """The policy that simulates the futures, if it was named."""
        return self._settings.policy or "of the site"

    def look(self) -> None:
        """Fetch a finished forecast, and request the next one: for a new snapshot, or from all
        futures."""
        with self._guard:
            if self._pending is not None:
                if not self._pending.done():
                    return
                try:
                    answer = self._pending.result()
                except BrokenProcessPool:
                    self._pool, answer = None, Forecasted("", "", "", "the process that forecasts was killed")
                self._pending = None
                self.latest = answer if answer.page else self.latest._replace(error=answer.error)
                self.made += 1
            newest = self._newest()
            if newest is None:
                if not self.latest.page:
                    self.latest = Forecasted("", "", "", f"{self._root}: {_EMPTY}")
                return
            path, stamp = newest
            better = self._settings.history is not None or self._settings.futures > FIRST
            if self._asked is None or self._asked[0] != stamp:
                self._ask(path, stamp, whole=False)
            elif better and not self._asked[1] and not self.latest.error:
                self._ask(path, stamp, whole=True)

    def _ask(self, path: Path, stamp: object, *, whole: bool) -> None:
        with starting():
            if self._pool is None:
                self._pool = ProcessPoolExecutor(1, get_context("spawn"), end_with_parent)
            self._asked = stamp, whole
            self._pending = self._pool.submit(service("forecast_snapshot"), self._settings, path, whole)

    def _newest(self) -> tuple[Path, object] | None:
        """Return the snapshot that was written last, and a value that changes with it. Links are
        not followed."""
        listed = []
        with suppress(OSError), os.scandir(self._root) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIXES) and not entry.name.startswith("."):
                    with suppress(OSError):
                        if entry.is_file(follow_symlinks=False):
                            facts = entry.stat(follow_symlinks=False)
                            listed.append((facts.st_mtime_ns, entry.name, facts.st_size))
        if not listed:
            return None
        stamp = max(listed)
        return self._root / stamp[1], stamp

    def close(self) -> None:
        """End the forecasting process."""
        if self._pool is not None:
            kill_workers(self._pool)

"""The log of a training run: a CSV file to which a resumed training run appends, TensorBoard events
if TensorBoard is installed, and a tracker if the user supplies one.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from dagsim import services
from dagsim.errors import RunFolderError
from dagsim.files import write_text

COLUMNS = (
    "iteration", "samples", "seconds", "samples_per_s", "reward", "ratio", "best_ratio", "entropy", "kl", "clipped",
    "explained_variance", "loss", "temperature", "exploration", "lr",
)  # fmt: skip
"""Columns of ``progress.csv``. ``ratio`` is the mean completion time on validation seeds, divided
by the reference's mean completion time.
"""


class Tracker(Protocol):
    """A tracker of training runs that a user supplies (``train.tracker``), for example a client of
    a service that tracks experiments. Its arguments are the path of the run folder (``folder``),
    the configuration as plain values (``config``), and the number of iterations that are already
    recorded (``iterations``).
    """

    def add(self, row: Mapping[str, float]) -> None:
        """Record one iteration: the columns of ``progress.csv``, and further values from the
        algorithm.
        """
        ...

    def close(self) -> None:
        """End the record. This is also called when the training run is stopped."""
        ...


class TrainingLog:
    """A log that appends one row per iteration to ``progress.csv``."""

    def __init__(self, folder: Path, iterations: int = 0, tracker: Tracker | None = None) -> None:
        """Keep the first ``iterations`` rows and append further ones. Drop any later rows, because
        they belong to iterations that are not in the checkpoint.
        """
        self._tracker = tracker
        self._path = folder / "progress.csv"
        rows: list[str] = []
        if iterations:
            read_log(folder, iterations)
            rows = self._path.read_text(encoding="utf-8").splitlines()[1 : iterations + 1]
        write_text(self._path, "\n".join([",".join(COLUMNS), *rows, ""]))
        self._events = _events(folder)

    def add(self, row: Mapping[str, float]) -> None:
        """Write one row. Names without a column are only sent to TensorBoard and to the tracker."""
        with self._path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
            writer.writerow({name: f"{value:.9g}" for name, value in row.items()})
        if self._events is not None:
            for name, value in row.items():
                self._events.add_scalar(name, value, int(row["iteration"]))
        if self._tracker is not None:
            self._tracker.add(row)

    def close(self) -> None:
        """Close the log."""
        if self._events is not None:
            self._events.close()
        if self._tracker is not None:
            self._tracker.close()


def has_rows(folder: Path) -> bool:
    """Return True if at least one iteration was logged."""
    path = folder / "progress.csv"
    return path.exists() and path.read_bytes().count(b"\n") > 1


def read_log(folder: Path, iterations: int | None = None) -> list[dict[str, float | None]]:
    """Return the rows of ``progress.csv``, or only the first ``iterations`` rows. Missing values
    are ``None``.

    Raises:
        RunFolderError: The file is missing or damaged.
    """
    path = folder / "progress.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = islice(csv.DictReader(file), iterations)
            return [{name: float(row[name]) if row[name] else None for name in COLUMNS} for row in rows]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path}: not the log of a training run ({error})") from None


def _events(folder: Path) -> Any:
    """Open a TensorBoard writer, or return ``None`` if TensorBoard is not installed (``pip install
    -e ".[tensorboard]"``)."""
    return services.training_events(folder / "tensorboard")

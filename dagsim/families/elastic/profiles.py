"""Read measurements of training applications (times, gradients and progress) from files in Pollux's
layout (OSDI 2021).

An application consists of three kinds of CSV files, plain or gzip, as ``APP/NAME.csv`` or
``APP__NAME.csv``:

- ``placements.csv``: ``placement`` (digits: replicas on each node), ``local_bsz, step_time,
  sync_time``
- ``scalability.csv``: ``num_nodes, num_replicas, local_bsz, step_time, sync_time``
- ``validation-BATCH.csv``: a row per epoch with ``progress, iteration, metric, grad_sqr, grad_var``

Sia (SOSP 2023) adds ``placements-CLUSTER.csv`` and ``scalability-CLUSTER.csv`` for other GPUs
(``aws``: T4, ``azure``: V100, ``dgx`` and ``dgx-ext``: A100, ``quad``: RTX 6000, ``rtx``: RTX 2080
Ti).

Nothing is extrapolated. A query outside the measured range raises ``ModelError``.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import ModelError, TraceError
from dagsim.families.elastic.goodput import BatchLimits, GradientNoise, StepMeasurement
from dagsim.model.arithmetic import whole_sum

_MOST_NODES = 16
"""Largest number of nodes that was measured; more nodes take as long as this number."""


class Application(NamedTuple):
    """Properties of an application that its files do not contain. They come from the simulators of
    Pollux and Sia.
    """

    limits: BatchLimits
    epochs: int
    restart_s: float
    """Seconds of a checkpoint and restart in Sia's simulator. Pollux's simulator takes 30 s for all
    applications."""


APPLICATIONS = {
    "bert": Application(BatchLimits(12, 384, 4, 12), 2, 120.0),
    "cifar10": Application(BatchLimits(128, 4_096, 32, 1_024), 100, 50.0),
    "deepspeech2": Application(BatchLimits(20, 640, 10, 80), 80, 25.0),
    "imagenet": Application(BatchLimits(200, 12_800, 20, 200), 90, 250.0),
    "ncf": Application(BatchLimits(256, 32_768, 32, 32_768), 10, 15.0),
    "yolov3": Application(BatchLimits(8, 512, 4, 8), 50, 80.0),
}


class IterationTime(NamedTuple):
    """The duration of an iteration without accumulation, and the part of it spent on
    synchronisation, in seconds."""

    step_s: float
    sync_s: float


class TrainingProfile:
    """Measurements of one application.

    Args:
        name: A key of ``APPLICATIONS``, for messages.
        placements: Rows (placement, times, local batch).
        scalability: Rows (nodes, replicas, local batch, step s, sync s).
        epochs: By validated batch, a row per epoch: progress at its end, iterations until then, and
            the gradient's squared norm and variance.
        application: Limits of the batch, number of epochs and restart time.
    """

    def __init__(
        self,
        name: str,
        placements: Sequence[tuple[tuple[int, ...], IterationTime, float]],
        scalability: Sequence[tuple[float, ...]],
        epochs: Mapping[int, np.ndarray],
        application: Application,
    ) -> None:
        self.name = name
        self.application = application
        self._scalability = list(scalability)
        self._epochs = {batch: np.asarray(epochs[batch], float) for batch in sorted(epochs)}
        self._by_placement: dict[tuple[int, ...], list[tuple[float, float, float]]] = defaultdict(list)
        for placement, times, local in placements:
            self._by_placement[placement].append((local, *times))
        self._curves: dict[tuple[int, ...], np.ndarray] = {}
        self._times: dict[tuple[tuple[int, ...], int], IterationTime] = {}
        self._noise: dict[tuple[int, int], GradientNoise] = {}

    @property
    def limits(self) -> BatchLimits:
        """Batch sizes that the application may use."""
        return self.application.limits

    @property
    def validated(self) -> list[int]:
        """Batches whose gradients were measured."""
        return list(self._epochs)

    @cached_property
    def per_node(self) -> int:
        """Largest number of replicas per node in the measured placements."""
        return max([count for placement in self._by_placement for count in placement], default=1)

    @property
    def measurements(self) -> list[StepMeasurement]:
        """All measured iterations."""
        placements = [
            StepMeasurement(len(placement), whole_sum(placement), int(local), step_s, sync_s)
            for placement, rows in self._by_placement.items()
            for local, step_s, sync_s in rows
        ]
        return placements + [StepMeasurement(*map(int, row[:3]), *row[3:]) for row in self._scalability]

    def times(self, placement: Sequence[int], local_batch: int) -> IterationTime:
        """Return the times of an iteration. ``placement`` contains the number of replicas on each
        node, in the order of the ring.

        For a measured placement (or a rotation of one), times are interpolated in the local batch.
        For any other placement, they are interpolated in nodes, replicas and local batch.

        Raises:
            ModelError: The placement or batch is outside the measured range.
        """
        key = _rotated(placement), local_batch
        if key not in self._times:
            self._times[key] = self._interpolate(*key)
        return self._times[key]

    def noise(self, batch: int, epoch: int) -> GradientNoise:
        """Return the noise of the gradient in epoch ``epoch`` (from 0), interpolated linearly between
        validated batches.

        Raises:
            ModelError: The batch or epoch is outside the measured range.
        """
        if (batch, epoch) not in self._noise:
            square, variance = self._row(batch, epoch)[2:4]
            self._noise[batch, epoch] = GradientNoise(float(square), float(variance))
        return self._noise[batch, epoch]

    def progress_at(self, epochs: int) -> float:
        """Return the progress after ``epochs`` epochs, in iterations of the initial batch."""
        return self._progress[epochs]

    def iterations(self, batch: int, epochs: int) -> float:
        """Return how many iterations of ``batch`` samples it takes to complete ``epochs`` epochs.

        Raises:
            ModelError: The batch or number of epochs is outside the measured range.
        """
        return float(self._row(batch, epochs - 1)[1]) if epochs else 0.0

    @cached_property
    def _progress(self) -> list[float]:
        rows = min(len(table) for table in self._epochs.values())
        return [0.0, *(min(float(table[row, 0]) for table in self._epochs.values()) for row in range(rows))]

    def _row(self, batch: int, epoch: int) -> np.ndarray:
        """Return the values for an epoch, interpolated between the nearest validated batches."""
        if not 0 <= epoch < len(self._progress) - 1:
            raise ModelError(
                f"{self.name}: no measurement of epoch {epoch}; the profile has epochs 0 to {len(self._progress) - 2}"
            )
        if batch in self._epochs:
            row: np.ndarray = self._epochs[batch][epoch]
            return row
        below = max((size for size in self._epochs if size < batch), default=None)
        above = min((size for size in self._epochs if size > batch), default=None)
        if below is None or above is None:
            least, most = min(self._epochs), max(self._epochs)
            raise ModelError(
                f"{self.name}: no measurement covers a batch of {batch} samples; validated batches: {least} to {most}"
            )
        share = (batch - below) / (above - below)
        low, high = self._epochs[below][epoch], self._epochs[above][epoch]
        mixed: np.ndarray = low + share * (high - low)
        return mixed

    def _interpolate(self, placement: tuple[int, ...], local_batch: int) -> IterationTime:
        if placement in self._by_placement:
            curve = self._curve(placement)
            if not curve[0, 0] <= local_batch <= curve[-1, 0]:
                raise ModelError(
                    f"{self.name}: no measurement covers a local batch of {local_batch} samples on "
                    f"{_shown(placement)} GPUs per node; measured: {curve[0, 0]:g} to {curve[-1, 0]:g}"
                )
            step_s, sync_s = (np.interp(local_batch, curve[:, 0], curve[:, column]) for column in (1, 2))
        else:
            nodes = min(len(placement), _MOST_NODES)
            step_s, sync_s = self._volume(nodes, whole_sum(placement), local_batch)
        if isnan(step_s) or isnan(sync_s):
            raise ModelError(
                f"{self.name}: no measurement covers {whole_sum(placement)} replicas on {len(placement)} nodes with a "
                f"local batch of {local_batch} samples"
            )
        return IterationTime(float(step_s), float(sync_s))

    def _curve(self, placement: tuple[int, ...]) -> np.ndarray:
        """Return the rows (local batch, step s, sync s) of a measured placement, sorted by local
        batch.
        """
        if placement not in self._curves:
            self._curves[placement] = np.array(sorted(self._by_placement[placement], key=lambda row: row[0]))
        return self._curves[placement]

    @cached_property
    def _volume(self) -> Any:
        """A linear interpolation over (nodes, replicas, local batch), which is NaN outside the
        convex hull of the measurements."""
        from scipy.interpolate import LinearNDInterpolator

        groups: dict[tuple[float, float, float], list[tuple[float, float]]] = defaultdict(list)
        for placement, rows in self._by_placement.items():
            for local, step_s, sync_s in rows:
                groups[len(placement), whole_sum(placement), local].append((step_s, sync_s))
        means = [(*key, *np.mean(groups[key], axis=0)) for key in sorted(groups)]
        # Do not change the order of the points. If they form a regular grid, as they often do,
        # their order determines how the grid is divided into tetrahedra.
        points = np.array([*means, *self._scalability], float)
        return LinearNDInterpolator(points[:, :3], points[:, 3:])


def read_applications(
    folders: Path | str | Sequence[Path | str], names: Sequence[str] | None = None, cluster: str | None = None
) -> dict[str, TrainingProfile]:
    """Read the applications whose files are anywhere below the folders.

    Args:
        folders: One or several folders, which are searched recursively. Files in a later folder
            replace those in an earlier folder.
        names: The applications to read (default: all of ``APPLICATIONS`` with placements).
        cluster: Sia's name for the measured cluster, such as ``azure`` (default: Pollux's cluster
            with T4s).

    Raises:
        TraceError: A named application is missing or incomplete, or a file is malformed.
    """
    folders = [folders] if isinstance(folders, Path | str) else folders
    shown, files = ", ".join(map(str, folders)), _files(folders)
    ending = "" if cluster is None else f"-{cluster}"
    if not any(f"placements{ending}" in parts for parts in files.values()):
        raise TraceError(
            f"{shown}: no profiles found (expected APP__placements{ending}.csv or APP/placements{ending}.csv)"
        )
    profiles = {}
    for name in names if names is not None else APPLICATIONS:
        if name not in APPLICATIONS:
            raise TraceError(f"{shown}: unknown application {name!r}; known: {', '.join(APPLICATIONS)}")
        if names is not None or f"placements{ending}" in files.get(name, {}):
            profiles[name] = _profile(shown, name, files.get(name, {}), ending)
    return profiles


def _files(folders: Sequence[Path | str]) -> dict[str, dict[str, Path]]:
    """Return the path of each file by application and by the name of the file without its
    extension.
    """
    files: dict[str, dict[str, Path]] = defaultdict(dict)
    for folder in folders:
        for path in sorted(Path(folder).rglob("*.csv*")):
            stem = path.name.removesuffix(".gz").removesuffix(".csv")
            application, separator, part = stem.partition("__")
            if not separator:
                application, part = path.parent.name, stem
            if part.partition("-")[0] in ("placements", "scalability", "validation"):
                files[application][part] = path
    return files


def _profile(folder: str, name: str, files: Mapping[str, Path], ending: str) -> TrainingProfile:
    for part in ("placements", "scalability"):
        if part + ending not in files:
            raise TraceError(f"{folder}: the profile of {name} lacks {part}{ending}.csv")
    times = ("local_bsz", "step_time", "sync_time")
    placements = [
        (_digits(digits, where), IterationTime(step_s, sync_s), local)
        for where, [digits], (local, step_s, sync_s) in table_rows(files[f"placements{ending}"], ["placement"], times)
    ]
    columns: tuple[str, ...] = ("num_nodes", "num_replicas", *times)
    scalability = [row for *_, row in table_rows(files[f"scalability{ending}"], [], columns)]
    columns = ("progress", "iteration", "grad_sqr", "grad_var")
    epochs = {
        int(part.partition("-")[2]): np.array([row for *_, row in table_rows(path, [], columns)])
        for part, path in files.items()
        if part.startswith("validation-")
    }
    if not epochs:
        raise TraceError(f"{folder}: the profile of {name} lacks validation-BATCH.csv")
    return TrainingProfile(name, placements, scalability, epochs, APPLICATIONS[name])


def table_rows(
    path: Path, texts: Sequence[str], numbers: Sequence[str]
) -> Iterator[tuple[str, list[str], tuple[float, ...]]]:
    """Yield ``file:line``, the named texts and the named numbers of each row of a CSV file, which
    may end in ``.gz``.

    Raises:
        TraceError: The file cannot be read, a column is missing, or a value is not a number.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            for column in (*texts, *numbers):
                if column not in (reader.fieldnames or ()):
                    raise TraceError(f"{path}:1: no column {column!r}")
            for row in reader:
                where = f"{path}:{reader.line_num}"
                values = tuple([_number(row[column], column, where) for column in numbers])
                yield where, [row[column] or "" for column in texts], values
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read ({error})") from None


def _number(text: str | None, column: str, where: str) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise TraceError(f"{where}: {column} is not a number: {text!r}") from None


def _digits(text: str, where: str) -> tuple[int, ...]:
    if not text.isdecimal() or not int(text):
        raise TraceError(
            f"{where}: placement must be one digit per node, its number of replicas (such as 44), got {text!r}"
        )
    return tuple(map(int, text))


def _rotated(placement: Sequence[int]) -> tuple[int, ...]:
    """Remove the empty nodes from a placement, and return its smallest rotation. All rotations are
    equivalent, because a ring has no first node."""
    counts = [count for count in placement if count]
    if not counts:
        raise ModelError("a placement needs at least one replica on at least one node")
    return min(tuple(counts[first:] + counts[:first]) for first in range(len(counts)))


def _shown(placement: Sequence[int]) -> str:
    return "-".join(map(str, placement))

"""Schedules of large runs on disk: the log and the jobs as compressed columns in one NumPy ``.npz`` file.

``np.load`` reads it: the columns of the log bear the names of the fields of ``Record``, those of the jobs are
``job_arrival_s`` and so on; texts are JSON in bytes (``job_id``), names of tasks are places (``task_name``) in a
list (``names``), as many for each job as ``job_tasks`` says; so are
the parents of its tasks (``graph``, ``graphs``). NaN is no deadline.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import RunFolderError
from dagsim.model import Cluster
from dagsim.model.facts import NUMBERS, FactColumns
from dagsim.model.log import ROW, Schedule, ScheduleLog

__all__ = ["LARGE_ROWS", "packed_schedule", "unpacked_schedule"]

LARGE_ROWS = 500_000
"""Rows of a log from which a run is large."""

_LEVEL = 1
"""The default, 6, takes four times as long and saves a fifth."""
_WHEN = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that equal schedules give equal bytes."""


def packed_schedule(schedule: Schedule) -> bytes:
    """The log, the jobs, the seed and the end of a schedule."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, column in _columns(schedule):
            file = io.BytesIO()
            np.lib.format.write_array(file, np.ascontiguousarray(column), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _WHEN)
            # ZipFile's own level is for names; for a ZipInfo it has to be said each time.
            archive.writestr(info, file.getbuffer(), zipfile.ZIP_DEFLATED, _LEVEL)
    return buffer.getvalue()


def unpacked_schedule(path: Path, cluster: Cluster) -> Schedule:
    """The schedule that ``packed_schedule`` packed.

    Raises:
        RunFolderError: ``path`` is missing, damaged, or of another version.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            rows = np.empty(len(file["kind"]), ROW)
            for name in ROW.names or ():
                rows[name] = file[name]
            jobs = _jobs(file)
            seed, ended_s = int(file["seed"].item()), float(file["ended_s"].item())
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RunFolderError(f"{path}: not a readable schedule ({error})") from None
    return Schedule(cluster, jobs, ScheduleLog.of(rows), seed, ended_s=ended_s)


def _columns(schedule: Schedule) -> Iterator[tuple[str, np.ndarray]]:
    rows, jobs = schedule.log.rows(), FactColumns.of(schedule.jobs)
    yield "seed", np.array(schedule.seed)
    yield "ended_s", np.array(schedule.ended_s)
    for name in ROW.names or ():
        yield name, rows[name]
    for name in NUMBERS:
        yield f"job_{name}", jobs.numbers[name]
    yield "job_id", _text(jobs.id.tolist())
    yield "tenant", jobs.tenant.astype(np.int32)
    yield "tenants", _text(jobs.tenants)
    yield "task_name", jobs.name.astype(np.int32)
    yield "names", _text(jobs.names)
    yield "graph", jobs.graph.astype(np.int32)
    yield "graphs", _text(jobs.graphs)
    yield "job_tasks", np.diff(jobs.first)


def _text(texts: Sequence[object]) -> np.ndarray:
    return np.frombuffer(json.dumps(texts).encode(), np.uint8)


def _texts(column: np.ndarray) -> list[Any]:
    return list(json.loads(column.tobytes()))


def _jobs(file: Any) -> FactColumns:
    listed = _texts(file["job_id"])
    ids = np.empty(len(listed), object)
    ids[:] = listed
    return FactColumns(
        ids,
        {name: file[f"job_{name}"] for name in NUMBERS},
        file["tenant"],
        tuple(_texts(file["tenants"])),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(file["job_tasks"])]),
        file["task_name"],
        tuple(_texts(file["names"])),
        file["graph"],
        tuple([tuple(map(tuple, parents)) for parents in _texts(file["graphs"])]),
    )

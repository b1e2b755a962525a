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
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import RunFolderError
from dagsim.model import Cluster, JobFacts
from dagsim.model.log import ROW, ScheduleLog
from dagsim.model.schedule import Schedule

__all__ = ["LARGE_ROWS", "packed_schedule", "unpacked_schedule"]

LARGE_ROWS = 500_000
"""Rows of a log from which a run is large."""

_LEVEL = 1
"""The default, 6, takes four times as long and saves a fifth."""
_WHEN = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that equal schedules give equal bytes."""
_NUMBERS = ("arrival_s", "priority", "deadline_s", "weight", "ideal_s", "ideal_gpu_s", "gpus")


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
    rows, jobs = schedule.log.rows(), schedule.jobs
    yield "seed", np.array(schedule.seed)
    yield "ended_s", np.array(schedule.ended_s)
    for name in ROW.names or ():
        yield name, rows[name]
    for name in _NUMBERS:
        yield f"job_{name}", np.array([getattr(job, name) for job in jobs], np.float64)  # None becomes NaN
    yield "job_id", _text([job.id for job in jobs])
    tenants = dict.fromkeys(job.tenant for job in jobs)
    yield from _coded("tenant", "tenants", (job.tenant for job in jobs), tenants)
    names = dict.fromkeys(chain.from_iterable(job.tasks for job in jobs))
    yield from _coded("task_name", "names", chain.from_iterable(job.tasks for job in jobs), names)
    graphs = {parents: place for place, parents in enumerate(dict.fromkeys(job.parents for job in jobs))}
    yield "graph", np.array([graphs[job.parents] for job in jobs], np.int32)
    yield "graphs", _text(list(graphs))
    yield "job_tasks", np.array([len(job.tasks) for job in jobs], np.int64)


def _coded(name: str, list_: str, texts: Iterable[str], known: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Texts as places in a list of those that differ."""
    places = {text: place for place, text in enumerate(known)}
    yield name, np.fromiter((places[text] for text in texts), np.int32)
    yield list_, _text(list(places))


def _text(texts: list[Any]) -> np.ndarray:
    return np.frombuffer(json.dumps(texts).encode(), np.uint8)


def _texts(column: np.ndarray) -> list[Any]:
    return list(json.loads(column.tobytes()))


def _jobs(file: Any) -> list[JobFacts]:
    numbers = {name: file[f"job_{name}"].tolist() for name in _NUMBERS}
    numbers["deadline_s"] = [None if each != each else each for each in numbers["deadline_s"]]
    tenants, names = _texts(file["tenants"]), _texts(file["names"])
    task_names = np.array([*names, ""], object)[file["task_name"]].tolist()
    places = pairwise(accumulate(file["job_tasks"].tolist(), initial=0))
    columns = {"id": _texts(file["job_id"]), "tenant": [tenants[place] for place in file["tenant"].tolist()], **numbers}
    graphs = [tuple(map(tuple, parents)) for parents in _texts(file["graphs"])]
    columns["parents"] = [graphs[place] for place in file["graph"].tolist()]
    columns["tasks"] = [tuple(task_names[begin:end]) for begin, end in places]
    return [JobFacts(*fact) for fact in zip(*[columns[name] for name in JobFacts._fields], strict=True)]

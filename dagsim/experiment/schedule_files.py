"""The files with the schedule of a run: its log and its jobs, or both in columns for a large run."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import RunFolderError
from dagsim.files import parsed_json
from dagsim.model import Cluster, JobFacts
from dagsim.model.arithmetic import numbered
from dagsim.model.log import NUMBERS, ROW, FactColumns, Schedule, ScheduleLog

LARGE_ROWS = 500_000
"""A run whose log has at least this many rows counts as large."""


def is_large(schedule: Schedule) -> bool:
    """Return True if the log has at least ``LARGE_ROWS`` rows."""
    return len(schedule.log) >= LARGE_ROWS


def log_files(schedule: Schedule) -> dict[str, bytes]:
    """Return the files with the schedule, by file name extension."""
    return {"npz": packed_schedule(schedule)} if is_large(schedule) else _small_files(schedule)


def _small_files(schedule: Schedule) -> dict[str, bytes]:
    log = io.BytesIO()
    schedule.log.write(log)
    return {"npy": log.getvalue(), "json.gz": gzipped(jobs_text(schedule))}


def gzipped(text: str) -> bytes:
    """Compress a text as a gzip member that contains no name and no time stamp, so that equal texts
    give equal bytes.
    """
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


FACTS = tuple(name for name in JobFacts._fields if name != "parents")
"""The fields of each job, in the order in which they are written."""

_ALONE: tuple[tuple[int, ...], ...] = ((),)


def jobs_text(schedule: Schedule) -> str:
    """Return the seed, the end time and the jobs as JSON. Each distinct graph with several tasks is
    written once.
    """
    content: dict[str, Any] = {
        "fields": FACTS,
        "seed": schedule.seed,
        "ended_s": schedule.ended_s,
        **({"begins_s": schedule.begins_s} if schedule.begins_s else {}),
        "jobs": [job[: len(FACTS)] for job in schedule.jobs],
    }
    if any(len(job.parents) > 1 for job in schedule.jobs):
        places: dict[tuple[tuple[int, ...], ...], int] = {}
        shape = [places.setdefault(job.parents, len(places)) for job in schedule.jobs]
        content["graphs"] = {"parents": list(places), "of": shape}
    return json.dumps(content)


def jobs_from(content: dict[str, Any]) -> list[JobFacts]:
    """Read the jobs from the content of a schedule file. If an older version of dagsim wrote the
    file, the tasks' parents are unknown.

    Raises:
        KeyError, TypeError, ValueError, IndexError: The content has an unexpected structure.
    """
    graphs = content.get("graphs")
    if graphs is None:
        parents = [_ALONE if len(fact[-1]) == 1 else () for fact in content["jobs"]]
    else:
        shapes = [tuple(map(tuple, shape)) for shape in graphs["parents"]]
        parents = [shapes[place] for place in graphs["of"]]
    facts = zip(content["jobs"], parents, strict=True)
    return [JobFacts._make((*fact[:-1], tuple(fact[-1]), of_job)) for fact, of_job in facts]


def read_schedule(stem: Path, cluster: Cluster) -> Schedule:
    """Read the files of a schedule, whose names begin with ``stem``.

    Raises:
        RunFolderError: A file is missing, damaged, or from another version.
    """
    if (columns := stem.with_name(f"{stem.name}.npz")).exists():
        return _unpacked_schedule(columns, cluster)
    path = stem.with_name(f"{stem.name}.json.gz")
    try:
        facts = parsed_json(gzip.decompress(path.read_bytes()))
        if tuple(facts["fields"]) != FACTS:
            raise RunFolderError(
                f"{path}: was written by another version of dagsim (its fields are {', '.join(facts['fields'])})"
            )
        jobs = jobs_from(facts)
        seed, ended_s, begins_s = facts["seed"], facts["ended_s"], facts.get("begins_s", 0.0)
    except RunFolderError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, TypeError, LookupError) as error:
        raise RunFolderError(f"{path}: cannot be read as a list of jobs ({error})") from None
    log = ScheduleLog.load(stem.with_name(f"{stem.name}.npy"))
    return _checked(Schedule(cluster, jobs, log, seed, ended_s=ended_s, begins_s=begins_s), stem)


def _checked(schedule: Schedule, path: Path) -> Schedule:
    """Return a schedule that was read from a file, after checking it.

    Raises:
        RunFolderError: No simulation can have written the schedule.
    """
    try:
        schedule.check()
    except (ValueError, TypeError) as error:
        raise RunFolderError(
            f"{path}: not a schedule from a simulation of this cluster ({error}); the files have been changed, so "
            "restore them, or run the command in command.txt again"
        ) from None
    return schedule


_LEVEL = 1
"""The compression level. The default level, 6, takes four times as long and saves only 20% of the
size.
"""
_WHEN = (1980, 1, 1, 0, 0, 0)
"""The constant time stamp of every file, so that equal schedules give equal bytes."""


def packed_schedule(schedule: Schedule) -> bytes:
    """Pack the log, the jobs, the seed and the end time of a schedule into an ``.npz`` archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, column in _columns(schedule):
            info = zipfile.ZipInfo(f"{name}.npy", _WHEN)
            # ZipFile does not apply its own compression level to a ZipInfo, so pass the level here
            # as well.
            archive.writestr(info, _npy(column), zipfile.ZIP_DEFLATED, _LEVEL)
    return buffer.getvalue()


def _npy(column: np.ndarray) -> memoryview:
    """Return the content of the ``.npy`` file that NumPy writes for a column, after copying it once."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(column))
    file = np.empty(head.tell() + column.nbytes, np.uint8)
    file[: head.tell()] = np.frombuffer(head.getbuffer(), np.uint8)
    file[head.tell() :].view(column.dtype).reshape(column.shape)[...] = column
    return file.data


def _unpacked_schedule(path: Path, cluster: Cluster) -> Schedule:
    """Read a schedule from an archive that ``packed_schedule`` wrote."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            rows = np.empty(len(file["kind"]), ROW)
            for name in ROW.names or ():
                rows[name] = file[name]
            jobs = _fact_columns(file)
            seed, ended_s = int(file["seed"].item()), float(file["ended_s"].item())
            begins_s = float(file["begins_s"].item()) if "begins_s" in file else 0.0
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RunFolderError(f"{path}: cannot be read as a schedule ({error})") from None
    return _checked(Schedule(cluster, jobs, ScheduleLog.of(rows), seed, ended_s=ended_s, begins_s=begins_s), path)


def _columns(schedule: Schedule) -> Iterator[tuple[str, np.ndarray]]:
    rows, jobs = schedule.log.rows(), FactColumns.of(schedule.jobs)
    yield "seed", np.array(schedule.seed)
    yield "ended_s", np.array(schedule.ended_s)
    if schedule.begins_s:
        yield "begins_s", np.array(schedule.begins_s)
    for name in ROW.names or ():
        yield name, _narrow(rows[name])
    for name in NUMBERS:
        yield f"job_{name}", getattr(jobs, name)
    yield "job_id", _text(jobs.ids)
    tenant, tenants = numbered(jobs.tenant)
    yield "tenant", tenant
    yield "tenants", _text(tenants)
    yield "task_name", jobs.name.astype(np.int32)
    yield "names", _text(jobs.names)
    yield "graph", jobs.graph.astype(np.int32)
    yield "graphs", _text(jobs.graphs)
    yield "job_tasks", np.diff(jobs.first)


def _narrow(column: np.ndarray) -> np.ndarray:
    """Return whole numbers in the smallest signed type that holds them, because each byte takes time to
    compress. Reading widens them again.
    """
    column = np.ascontiguousarray(column)
    if column.dtype.kind != "i" or not len(column):
        return column
    ends = int(column.min()), int(column.max())
    return column.astype(next(of for of in map(np.dtype, ("i1", "i2", "i4", "i8")) if _holds(of, *ends)))


def _holds(of: np.dtype[Any], least: int, most: int) -> bool:
    """Return True if an integer type can represent both numbers."""
    return bool(np.iinfo(of).min <= least and most <= np.iinfo(of).max)


def _text(texts: Sequence[object]) -> np.ndarray:
    return np.frombuffer(json.dumps(texts).encode(), np.uint8)


def _texts(column: np.ndarray) -> list[Any]:
    return list(parsed_json(column.tobytes()))


def _fact_columns(file: Any) -> FactColumns:
    tenants = _texts(file["tenants"])
    return FactColumns(
        ids=tuple(_texts(file["job_id"])),
        **{name: file[f"job_{name}"] for name in NUMBERS},
        tenant=tuple([tenants[place] for place in file["tenant"].tolist()]),
        first=np.concatenate([np.zeros(1, np.int64), np.cumsum(file["job_tasks"])]),
        name=file["task_name"],
        names=tuple(_texts(file["names"])),
        graph=file["graph"],
        graphs=tuple([tuple(map(tuple, parents)) for parents in _texts(file["graphs"])]),
    )

"""A finished run as files: write its tables and its schedule as bytes, and read them back."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from dagsim.errors import RunFolderError
from dagsim.experiment.simulate import Outcome
from dagsim.files import parsed_json
from dagsim.metrics import jobs_table, runs_table, to_csv
from dagsim.metrics.series import JobSeries
from dagsim.model import Cluster, JobFacts
from dagsim.model.arithmetic import numbered
from dagsim.model.log import NUMBERS, ROW, FactColumns, Schedule, ScheduleLog

__all__ = [
    "CLOCKED",
    "FACTS",
    "LARGE_ROWS",
    "TABLES",
    "CellRun",
    "Keep",
    "jobs_from",
    "jobs_text",
    "packed_schedule",
    "read_schedule",
    "run_of",
]


CLOCKED = "scheduler_us"
"""The only metric that a clock measures. It differs in every run, so it is stored apart from the
others.
"""

Keep: TypeAlias = Literal["summary", "series", "jobs", "log"]
"""Files kept of each run besides its metrics: ``summary`` none, ``series`` values of each job for
intervals (``metrics.series``), ``jobs`` its table of jobs, ``log`` both tables and its schedule.
"""

TABLES = ("jobs.csv.gz", "tasks.csv.gz")
"""The tables that hold the rows of all runs, each run as a gzip member of its own. Large runs have
no rows here: ``metrics.jobs_table`` and ``metrics.runs_table`` compute them from the schedule.
"""


@dataclass(frozen=True, slots=True)
class CellRun:
    """One cell, finished or failed: its line in the store and, until it is written, its files.

    Any process can make it; a single process writes it.
    """

    policy: str
    """Its name in tables; for a cell of a grid that is not yet listed, the policy."""
    seed: int
    workload: dict[str, Any] = field(default_factory=dict)
    """Facts about its jobs, and under ``decider`` about its policy (``Outcome.decider``), if there are any."""
    metrics: dict[str, Any] = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)
    """The label of its value on each axis of a grid."""
    id: str = ""
    """The id of its cell in a grid."""
    error: str = ""
    """The reason why it failed; empty if it did not."""
    timing: Mapping[str, Any] = field(default_factory=dict)
    """Its line of ``timing.jsonl``."""
    tables: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """The first line and the rows of each of ``TABLES``, compressed separately."""
    schedule: Mapping[str, bytes] = field(default_factory=dict)
    """The files of its schedule, by file name extension."""

    @property
    def line(self) -> dict[str, Any]:
        """Policy, seed, workload and metrics, as in ``runs.jsonl``."""
        return {"policy": self.policy, "seed": self.seed, "workload": self.workload, "metrics": self.metrics}

    def named_files(self) -> Iterator[tuple[str, bytes]]:
        """Its tables and its schedule, each as a separate file."""
        for name, (head, rows) in self.tables.items():
            yield name, head + rows
        yield from self.schedule.items()


def run_of(outcome: Outcome, keep: Keep = "log") -> CellRun:
    """Convert an outcome to a run with the files that ``keep`` selects. Apart from times, equal
    outcomes give equal bytes.
    """
    schedule, who = outcome.schedule, {"policy": outcome.policy, "seed": outcome.seed}
    metrics = outcome.summary.to_dict()
    timing = {
        **who,
        "wall_s": outcome.wall_s,
        "decision_s": schedule.decision_s,
        "decisions": schedule.decisions,
        **({} if outcome.engine is None else {"engine": outcome.engine._asdict()}),
        CLOCKED: metrics.pop(CLOCKED),
    }
    tables: dict[str, tuple[bytes, bytes]] = {}
    files: dict[str, bytes] = {}
    if keep == "series":
        files = {"npz": JobSeries.of(schedule).to_bytes()}
    elif keep != "summary":
        large = len(schedule.log) >= LARGE_ROWS
        shown = Schedule(schedule.cluster) if large else schedule
        makers = (jobs_table, runs_table) if keep == "log" else (jobs_table,)
        tables = {name: _packed_table(who, make(shown)) for name, make in zip(TABLES, makers, strict=False)}
        if keep == "log":
            files = {"npz": packed_schedule(schedule)} if large else _small_files(schedule)
    facts = dict(outcome.workload) | ({"decider": dict(outcome.decider)} if outcome.decider else {})
    run = CellRun(outcome.policy, outcome.seed, facts, metrics)
    return replace(run, timing=timing, tables=tables, schedule=files)


def _packed_table(who: dict[str, Any], table: dict[str, Any]) -> tuple[bytes, bytes]:
    """The first line of the table as CSV, and its rows, compressed separately."""
    rows = len(next(iter(table.values())))
    head, _, rest = to_csv({key: [value] * rows for key, value in who.items()} | table).partition("\n")
    return _packed(f"{head}\n"), _packed(rest)


def _small_files(schedule: Schedule) -> dict[str, bytes]:
    log = io.BytesIO()
    schedule.log.write(log)
    return {"npy": log.getvalue(), "json.gz": _packed(jobs_text(schedule))}


def _packed(text: str) -> bytes:
    """A gzip member without name and time, so that equal texts give equal bytes."""
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


FACTS = tuple(name for name in JobFacts._fields if name != "parents")
"""The facts of each job, in order."""

_ALONE: tuple[tuple[int, ...], ...] = ((),)


def jobs_text(schedule: Schedule) -> str:
    """Seed, end and jobs. Equal graphs are written once, and only for jobs with several tasks."""
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
    """Read the jobs back. The parents of tasks are unknown if an older dagsim wrote them.

    Raises:
        KeyError, TypeError, ValueError, IndexError: The value has another structure.
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
        RunFolderError: One is missing, damaged, or of another version.
    """
    if (columns := stem.with_name(f"{stem.name}.npz")).exists():
        return _unpacked_schedule(columns, cluster)
    path = stem.with_name(f"{stem.name}.json.gz")
    try:
        facts = parsed_json(gzip.decompress(path.read_bytes()))
        if tuple(facts["fields"]) != FACTS:
            raise RunFolderError(f"{path}: of another version (its fields are {', '.join(facts['fields'])})")
        jobs = jobs_from(facts)
        seed, ended_s, begins_s = facts["seed"], facts["ended_s"], facts.get("begins_s", 0.0)
    except RunFolderError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, TypeError, LookupError) as error:
        raise RunFolderError(f"{path}: not a readable list of jobs ({error})") from None
    log = ScheduleLog.load(stem.with_name(f"{stem.name}.npy"))
    return Schedule(cluster, jobs, log, seed, ended_s=ended_s, begins_s=begins_s)


LARGE_ROWS = 500_000
"""Number of rows in a log from which a run counts as large."""

_LEVEL = 1
"""The default level, 6, takes four times as long and saves 20 %."""
_WHEN = (1980, 1, 1, 0, 0, 0)
"""Constant time stamp of every file, so that equal schedules give equal bytes."""


def packed_schedule(schedule: Schedule) -> bytes:
    """Pack the log, the jobs, the seed and the end of a schedule."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, column in _columns(schedule):
            file = io.BytesIO()
            np.lib.format.write_array(file, np.ascontiguousarray(column), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _WHEN)
            # ZipFile's own level is for names; for a ZipInfo it has to be passed each time.
            archive.writestr(info, file.getbuffer(), zipfile.ZIP_DEFLATED, _LEVEL)
    return buffer.getvalue()


def _unpacked_schedule(path: Path, cluster: Cluster) -> Schedule:
    """Read a schedule that ``packed_schedule`` packed."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            rows = np.empty(len(file["kind"]), ROW)
            for name in ROW.names or ():
                rows[name] = file[name]
            jobs = _fact_columns(file)
            seed, ended_s = int(file["seed"].item()), float(file["ended_s"].item())
            begins_s = float(file["begins_s"].item()) if "begins_s" in file else 0.0
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RunFolderError(f"{path}: not a readable schedule ({error})") from None
    return Schedule(cluster, jobs, ScheduleLog.of(rows), seed, ended_s=ended_s, begins_s=begins_s)


def _columns(schedule: Schedule) -> Iterator[tuple[str, np.ndarray]]:
    rows, jobs = schedule.log.rows(), FactColumns.of(schedule.jobs)
    yield "seed", np.array(schedule.seed)
    yield "ended_s", np.array(schedule.ended_s)
    if schedule.begins_s:
        yield "begins_s", np.array(schedule.begins_s)
    for name in ROW.names or ():
        yield name, rows[name]
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

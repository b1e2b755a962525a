"""Read and write the files in a run folder: tables and schedules of finished runs, JSON files,
files that grow line by line, and summaries of all runs.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from dagsim.errors import RunFolderError
from dagsim.experiment.simulate import Outcome, Played
from dagsim.files import parsed_json, replaced, why_unreadable, why_unwritable
from dagsim.metrics import jobs_table, runs_table, to_csv
from dagsim.metrics.series import JobSeries
from dagsim.model import Cluster, JobFacts
from dagsim.model.arithmetic import numbered, ordered_sum
from dagsim.model.log import NUMBERS, ROW, FactColumns, Schedule, ScheduleLog
from dagsim.systems.seam import EngineUse

CLOCKED = "decision_time_us"
"""The only metric that is measured with a clock. It differs each time, so it is stored separately."""

Keep: TypeAlias = Literal["summary", "series", "jobs", "log"]
"""The files of each run that are kept besides its metrics: with ``summary`` none, with ``series``
the values per job that intervals need (``metrics.series``), with ``jobs`` the table of jobs, and
with ``log`` both tables and the schedule.
"""

TABLES = ("jobs.csv.gz", "tasks.csv.gz")
"""The tables with the rows of all runs. Each run is a separate gzip member. Large runs have no rows
in the tables: ``metrics.jobs_table`` and ``metrics.runs_table`` compute them from the schedule.
"""


FACTS_OF_LOG = ".facts.json"
"""Suffix of the file that describes a run whose log was set aside."""


@dataclass(frozen=True, slots=True)
class CellRun:
    """A finished or failed cell: its line in the store and, until they are written, its files. Any
    process may create a ``CellRun``, but a single process writes them all.
    """

    policy: str
    """The name of the run in tables. For a cell of a grid that is not listed yet, this is the
    policy.
    """
    seed: int
    workload: dict[str, Any] = field(default_factory=dict)
    """Facts about the jobs and, under ``decider``, any facts about the policy
    (``Outcome.decider``)."""
    metrics: dict[str, Any] = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)
    """The label of the cell's value on each axis of a grid."""
    id: str = ""
    """The id of the run's cell in a grid."""
    error: str = ""
    """The reason why the run failed. It is empty if the run did not fail."""
    timing: Mapping[str, Any] = field(default_factory=dict)
    """The run's line in ``timing.jsonl``."""
    tables: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """The first line and the rows of each of ``TABLES``, compressed separately."""
    schedule: Mapping[str, bytes] = field(default_factory=dict)
    """The files with the schedule of the run, by file name extension."""

    @property
    def line(self) -> dict[str, Any]:
        """The policy, seed, workload and metrics, as in ``runs.jsonl``."""
        return {"policy": self.policy, "seed": self.seed, "workload": self.workload, "metrics": self.metrics}

    def named_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the tables and the schedule of the run, each as a separate file."""
        for name, (head, rows) in self.tables.items():
            yield name, head + rows
        yield from self.schedule.items()


def run_of(outcome: Outcome, keep: Keep = "log") -> CellRun:
    """Convert an outcome to a run with the files that ``keep`` selects. Equal outcomes give files
    with equal bytes, except for times.
    """
    schedule, who = outcome.schedule, {"policy": outcome.policy, "seed": outcome.seed}
    metrics = outcome.summary.to_dict()
    timing = {**_timing(outcome), CLOCKED: metrics.pop(CLOCKED)}
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
            files = _log_files(schedule)
    run = CellRun(outcome.policy, outcome.seed, _facts(outcome), metrics)
    return replace(run, timing=timing, tables=tables, schedule=files)


def log_of(played: Played | Outcome) -> CellRun:
    """Return the log of a simulation and the facts about its run, from which ``played_from`` can
    restore it."""
    run = CellRun(played.policy, played.seed, _facts(played))
    return replace(run, timing=_timing(played), schedule=_log_files(played.schedule))


def played_from(stem: Path, cluster: Cluster) -> Played | None:
    """Read a simulation from the files that ``log_of`` wrote, whose names begin with ``stem``.
    Return None if there are no such files or they cannot be used.
    """
    facts = stem.with_name(f"{stem.name}{FACTS_OF_LOG}")
    if not facts.exists():
        return None
    try:
        run = read_json_file(facts)
        timing, schedule = run["timing"], read_schedule(stem, cluster)
        schedule.decision_s, schedule.decisions = timing["decision_s"], timing["decisions"]
        engine = EngineUse(**timing["engine"]) if "engine" in timing else None
        decider = run["workload"].pop("decider", {})
        return Played(schedule, run["policy"], run["seed"], run["workload"], timing["wall_s"], decider, engine)
    except (RunFolderError, KeyError, TypeError, AttributeError):
        return None


def _facts(played: Played | Outcome) -> dict[str, Any]:
    return dict(played.workload) | ({"decider": dict(played.decider)} if played.decider else {})


def _timing(played: Played | Outcome) -> dict[str, Any]:
    return {
        "policy": played.policy,
        "seed": played.seed,
        "wall_s": played.wall_s,
        "decision_s": played.schedule.decision_s,
        "decisions": played.schedule.decisions,
        **({} if played.engine is None else {"engine": played.engine._asdict()}),
    }


def _log_files(schedule: Schedule) -> dict[str, bytes]:
    large = len(schedule.log) >= LARGE_ROWS
    return {"npz": packed_schedule(schedule)} if large else _small_files(schedule)


def _packed_table(who: dict[str, Any], table: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return the table as CSV with the values in ``who`` in front of each row. The header and the
    rows are compressed separately.
    """
    rows = len(next(iter(table.values())))
    head, _, rest = to_csv({key: [value] * rows for key, value in who.items()} | table).partition("\n")
    return _packed(f"{head}\n"), _packed(rest)


def _small_files(schedule: Schedule) -> dict[str, bytes]:
    log = io.BytesIO()
    schedule.log.write(log)
    return {"npy": log.getvalue(), "json.gz": _packed(jobs_text(schedule))}


def _packed(text: str) -> bytes:
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


LARGE_ROWS = 500_000
"""A run whose log has at least this many rows counts as large."""

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


def engine_of(used: Mapping[str, EngineUse]) -> dict[str, str]:
    """Return the manifest's entry for engines: the requested engine and, by policy, the engine used
    and the reason.
    """
    asked = next(iter(used.values())).asked
    reasons: dict[tuple[str, str], list[str]] = {}
    for policy, use in used.items():
        reasons.setdefault((use.used, use.reason), []).append(policy)
    if len(reasons) == 1:
        ((engine, reason),) = reasons
        return {"asked": asked, "used": engine, "reason": reason}
    by_policy = [f"{engine} for {', '.join(policies)}: {reason}" for (engine, reason), policies in reasons.items()]
    engines = ", ".join(dict.fromkeys(use.used for use in used.values()))
    return {"asked": asked, "used": engines, "reason": "; ".join(by_policy)}


def summary_of(runs: Iterable[CellRun]) -> dict[str, dict[str, Any]]:
    """Return the number of seeds and the mean of every numeric metric, for each policy. The mean is
    None if any seed has no value.
    """
    by_policy: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run.metrics)
    return {policy: {"seeds": len(rows), **_means(rows)} for policy, rows in by_policy.items()}


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    names = dict.fromkeys(name for row in rows for name in row)
    means: dict[str, float | None] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name == CLOCKED or any(isinstance(value, str) for value in values):
            continue
        numbers = [value for value in values if isinstance(value, int | float)]
        means[name] = ordered_sum(numbers) / len(numbers) if len(numbers) == len(values) else None
    return means


def cells_table(runs: Sequence[CellRun]) -> str:
    """Return a CSV table with one row for each cell, sorted by id. If a cell has no value for a
    metric, the field is empty."""
    ordered = sorted(runs, key=lambda run: run.id)
    keys = list(dict.fromkeys(key for run in ordered for key in run.at))
    names = list(dict.fromkeys(name for run in ordered for name in run.metrics))
    table: dict[str, list[Any]] = {"id": [run.id for run in ordered]}
    table |= {key: [run.at.get(key) for run in ordered] for key in keys}
    table |= {"policy": [run.policy for run in ordered], "seed": [run.seed for run in ordered]}
    return to_csv(table | {name: [run.metrics.get(name) for run in ordered] for name in names})


def rename_free(folder: Path, wanted: Path, *, numbered: bool) -> Path | None:
    """Rename the folder to ``wanted``, and return its new path. If that name is taken, use the
    first free name of the form ``wanted-N`` if ``numbered`` is True. Otherwise, return None.
    """
    number = 1
    while True:
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            if not path.exists() or not numbered:
                folder.rename(path)
                return path
        except OSError as error:  # another process has created ``path`` in the meantime
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not numbered:
                return None
        number += 1


def slug(text: str, most: int = 40) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:most] or "run"


def value_in(line: Mapping[str, Any], key: str, file: str) -> Any:
    """Return the value of ``key`` in a line of ``file``, which is in a run folder.

    Raises:
        RunFolderError: The line has no such key.
    """
    if key not in line:
        raise RunFolderError(f"{file}: a line has no {key!r}, so another version of dagsim must have written the file")
    return line[key]


def check_shape(value: Any, shape: Any, where: object, *, inner: bool = False) -> None:
    """Check the types in a JSON file. A shape is a type, a list with one shape for all elements, or
    a mapping from keys to shapes, in which the key ``None`` represents every key. Null is allowed
    everywhere except in lists. Keys may be missing, except in an ``inner`` object.

    Raises:
        RunFolderError: A value has another type.
    """
    if isinstance(shape, type):
        right = isinstance(value, shape) and not (shape is int and isinstance(value, bool))
    else:
        right = isinstance(value, type(shape))
    if not right:
        raise RunFolderError(f"{where}: damaged: expected {_expected(shape)}, got {value!r:.60}")
    if isinstance(shape, list):
        for item in value:
            check_shape(item, shape[0], where)
    elif isinstance(shape, dict):
        for key in shape if inner else ():
            if key is not None:
                value_in(value, key, str(where))
        for key, part in value.items():
            of = shape.get(key, shape.get(None))
            if part is not None and of is not None:
                check_shape(part, of, f"{where}: {key}", inner=True)


def _expected(shape: Any) -> str:
    return {str: "a text", int: "a whole number", dict: "an object", list: "a list"}[
        shape if isinstance(shape, type) else type(shape)
    ]


def whole_lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file, with line ends. An incomplete last line, which a stopped
    writer may have left, is omitted."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFolderError(f"{path}: {why_unreadable(error)}") from None
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects in a file that has one per line, ignoring an incomplete last line.

    Raises:
        RunFolderError: A line is not a JSON object. The message gives the number of the line.
    """
    values = []
    for number, line in enumerate(whole_lines(path), 1):
        try:
            value = parsed_json(line)
            if not isinstance(value, dict):
                raise ValueError(f"expected an object, got {value!r:.60}")
        except ValueError as error:  # this includes UnicodeDecodeError, a subclass of ValueError
            raise RunFolderError(
                f"{path}:{number}: damaged: this line is not valid JSON ({error}); restore the file, or run the "
                "command in command.txt again"
            ) from None
        values.append(value)
    return values


def json_line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def json_text(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def read_json_file(path: Path) -> Any:
    try:
        return parsed_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: cannot be read as JSON ({error})") from None


def write_whole(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace the file atomically, so that readers see either the old or the new text."""
    with replaced(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def overwrite(path: Path, text: str) -> None:
    """Overwrite the file in place. This works even on a full disk, which has no space for a second
    file.
    """
    with path.open("r+b") as file:
        file.write(text.encode())
        file.truncate()


def unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"{error.filename or path}: {why_unwritable(error)}")

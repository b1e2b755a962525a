"""Google ClusterData2019 (v3): ``instance_events``, with ``collection_events`` and
``machine_events`` next to them.

The reader accepts exports of the BigQuery tables, each as one file or as shards. They are CSV with
a header (nested fields are called ``resource_request.cpus`` or ``resource_request_cpus``) or JSON
Lines (numbers may be strings, and default values are left out). Event types are numbers or names.
The numbers differ from those used in 2011. The trace is the directory with the tables, or the file
with the instance events. ``google`` groups and interprets the events.

This module also reads exports that do not contain the history of tasks: the Kaggle sample,
requests, and machine shapes.

- Kaggle's ``borg_traces_data.csv`` joins a random event of a random task with a random window of
  its usage: 34 columns with a header, demands as Python dictionaries, line ends inside quotes.
- Requests (``*_user_requests.csv``): ``time, user, collection_id, instance_index, cpus, ram,
  collection_type``.
- Shapes (``*_host_resource.csv``): ``cpus, ram, machine_count``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from dagsim.families.formats.google import (
    AFTER_US,
    COLUMNS,
    USES,
    Event,
    Events,
    impossible_tasks,
    jobs_of_tasks,
    kinds_of_tasks,
    late_rows,
    machines,
    requested_amount,
    seconds,
    work_text,
)
from dagsim.files import parsed_json
from dagsim.model import Cluster, Edge, Node, Task, TaskGraph
from dagsim.traces.chunks import read_rows, read_tables
from dagsim.traces.fields import Dirty, FaultsAt, count, finite_number
from dagsim.traces.grouping import in_parts, repeated, rows_by_job
from dagsim.traces.reader import Downtime, JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.rows import Checks, JobBatch, job_blocks
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.text_forms import Form, csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.arrays import Labels, combinations, objects, optional, renumbered
from dagsim.workload.records import clipped_repr

_NUMBERS = (
    "SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST", "UPDATE_PENDING",
    "UPDATE_RUNNING",
)  # fmt: skip
_EVENTS = {
    "SUBMIT": Event.SUBMIT,
    "SCHEDULE": Event.SCHEDULE,
    **dict.fromkeys(("EVICT", "FAIL", "FINISH", "KILL", "LOST"), Event.END),
    **dict.fromkeys(("QUEUE", "ENABLE", "UPDATE_PENDING", "UPDATE_RUNNING"), Event.UPDATE),
}
_EVENTS |= {str(code): _EVENTS[name] for code, name in enumerate(_NUMBERS)}
_MACHINE_EVENTS = {"ADD": Event.SUBMIT, "REMOVE": Event.END, "UPDATE": Event.UPDATE}
_MACHINE_EVENTS |= {"1": Event.SUBMIT, "2": Event.END, "3": Event.UPDATE}
_ALLOC_SETS = ("1", "ALLOC_SET")
_REQUEST = ("resource_request.cpus", "resource_request.memory")
_EVENT = ("time", "type", "collection_id", "instance_index")
_EVENT_MORE = ("collection_type", "priority", "alloc_collection_id", *_REQUEST)
_COLLECTION = ("time", "type", "collection_id")
_COLLECTION_MORE = ("collection_type", "user", "start_after_collection_ids")
_MACHINE_MORE = ("capacity.cpus", "capacity.memory")
_WIDTH = len(_EVENT) + len(_EVENT_MORE)
_JOB_SUBMISSION = "J"
_JSON_DEFAULTS = {"time": "0", "type": "0", "instance_index": "0", "priority": "0"}


class Google2019(Reader):
    """Builds one job per collection (or group of collections that start after each other), and one
    task per instance.

    A collection that starts after others waits for all their tasks. If both have many tasks, an
    intermediate task without work reduces the number of edges. Alloc sets are left out, and tasks
    inside them are treated as ordinary tasks.
    """

    name = "google2019"
    summary = "Google ClusterData2019: instance, collection and machine events; Kaggle sample; requests and shapes"
    uses = USES

    def recognises(self, source: Source) -> bool:
        if recognises_google_list(source):
            return True
        return any("collection_id" in line and "instance_index" in line for line in _instances(source).head())

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        if recognises_google_list(source):
            return _list_blocks(source, options, report, most)
        workflows, instances = _Workflows(), _instances(source)

        codes = _EVENTS | {_JOB_SUBMISSION: Event.JOB}
        tables = partial(_tables, source, instances, workflows)
        return Events(options, band, codes, workflows).blocks(tables, report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Read the machines from ``machine_events``, or from a list of shapes
        (``*host_resource*``). Return None if there is neither, or if tasks need GPUs."""
        if options.gpus_per_task is not None:
            return None
        machine_data = _machines(source)
        return machine_data[0] if machine_data else shapes_beside(source)

    def downtimes(self, source: Source, options: TraceOptions) -> tuple[Downtime, ...]:
        machine_data = None if options.gpus_per_task is not None else _machines(source)
        return machine_data[1] if machine_data else ()

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("its request: fractions of the cores and memory of the largest machine"),
            "work": list_work_text(source) or work_text(options),
            "priority": "0 free (to 99), 1 batch (to 115), 2 mid (to 119), 3 production (to 359), 4 monitoring",
            "alloc sets": "left out; the tasks inside them have their own requests",
        }


class _Workflows:
    """Collections that start after others. Each group of linked collections becomes one job."""

    def __init__(self) -> None:
        self._after: dict[str, tuple[str, ...]] = {}
        self._up: dict[str, str] = {}

    def add(self, collection: str, after: Sequence[str]) -> None:
        """Record that ``collection`` starts when those in ``after`` have ended."""
        self._after[collection] = tuple(dict.fromkeys(after))
        for parent in after:
            root = self.job(parent)
            self._up[root] = root
            self._up[self.job(collection)] = root

    def __bool__(self) -> bool:
        return bool(self._up)

    def __contains__(self, job: str) -> bool:
        return job in self._up

    def job(self, collection: str) -> str:
        """Return the collection that represents the group to which this collection belongs."""
        root = collection
        while self._up.get(root, root) != root:
            root = self._up[root]
        while self._up.get(collection, root) != root:  # shorten the path, which speeds up later calls
            self._up[collection], collection = root, self._up[collection]
        return root

    def task(self, collection: str, instance: str) -> str:
        """Return the name of a task within its job."""
        return f"{collection}/{instance}" if collection in self._up else instance

    def graph(self, tasks: list[Task], note: Callable[[str], None]) -> TaskGraph:
        """Build the graph of a job: every task in a collection waits for all tasks in the
        collections after which it starts."""
        places: dict[str, list[int]] = {}
        for place, task in enumerate(tasks):
            collection, joined, _ = task.name.partition("/")
            if joined:
                places.setdefault(collection, []).append(place)
        edges: list[Edge] = []
        for collection, children in places.items():
            after = self._after.get(collection, ())
            if not all(parent in places for parent in after):
                note("jobs that start after a missing job (which is taken as ended)")
            parents = [place for parent in after for place in places.get(parent, ())]
            if len(parents) > 1 and len(children) > 1:
                edges += [Edge(parent, len(tasks)) for parent in parents]
                parents = [len(tasks)]
                tasks.append(Task(f"{collection}/start", 0.0, gpus=0.0))
            edges += [Edge(parent, child) for parent in parents for child in children]
        return TaskGraph(tuple(tasks), tuple(edges))


def _tables(source: Source, instances: Source, workflows: _Workflows, report: ReadReport) -> Iterator[Table]:
    """Yield the submissions of collections if they are known, and then the events of tasks."""
    collections = source.beside("collection_events*", "collection_events/*")
    for _, row in _records(collections, _COLLECTION, _COLLECTION_MORE, report):
        report.skip("joined from the collection events")
        if after := re.findall(r"\d+", row["start_after_collection_ids"]):
            workflows.add(row["collection_id"], after)
    # The groups of collections are complete only after all collection events have been read.
    yield from tables_of(instances, len(COLUMNS), _submissions(collections, workflows))
    for table in _events(instances, _EVENT, _EVENT_MORE, report):
        checks, texts = Checks(table), dict(zip((*_EVENT, *_EVENT_MORE), map(table.texts, range(_WIDTH)), strict=True))
        kinds, ids = table.words(_EVENT.index("type")), texts["collection_id"]
        checks.skip(np.isin(texts["collection_type"], _ALLOC_SETS), "of alloc sets", report)
        checks.drop(ids == "", "without collection_id")
        checks.drop(~np.array([word in _EVENTS for word in kinds.words])[kinds.place], "with an unknown event type")
        checks.skip(late_rows(checks, texts["time"]), "after the end of the trace", report)
        is_submission = np.array([_EVENTS.get(word) is Event.SUBMIT for word in kinds.words])[kinds.place]
        inside = is_submission & ~np.isin(texts["alloc_collection_id"], ("", "0"))
        checks.note(inside, "tasks inside alloc sets (treated as ordinary tasks)")
        checks.findings.tell(report, table, np.arange(len(table)), len(table))
        jobs, tasks = ids, texts["instance_index"]
        if workflows:
            jobs, tasks = (
                objects(map(name, *columns))
                for name, columns in ((workflows.job, [ids]), (workflows.task, [ids, tasks]))
            )
        asked = [texts[name] for name in ("priority", *_REQUEST)]
        columns = (texts["time"], jobs, tasks, texts["type"], objects([""] * len(table)), *asked)
        rows = replace(table, values={}, words_of=dict(enumerate(columns)), raw=np.empty(len(table), object), blocks=())
        yield rows.chosen(np.flatnonzero(checks.usable))


def _submissions(collections: Source, workflows: _Workflows) -> Iterator[NumberedRow]:
    for place, row in _records(collections, _COLLECTION, _COLLECTION_MORE, ReadReport()):
        time, is_submission = row["time"], _EVENTS.get(row["type"]) is Event.SUBMIT
        if is_submission and time.isdecimal() and len(time) < 20 and int(time) < AFTER_US:
            yield place, (time, workflows.job(row["collection_id"]), "", _JOB_SUBMISSION, row["user"], "", "", "")


def _records(
    source: Source, required: Sequence[str], optional: Sequence[str], report: ReadReport
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the rows of ``_events`` as texts by column."""
    names = (*required, *optional)
    for table in _events(source, required, optional, report):
        for line, *texts in zip(table.line.tolist(), *map(table.texts, range(len(names))), strict=True):
            yield line, dict(zip(names, texts, strict=True))


def _events(source: Source, required: Sequence[str], optional: Sequence[str], report: ReadReport) -> Iterator[Table]:
    """Yield a table of the trace with these columns, all as texts. Names of nested columns contain
    a dot, or an underscore in CSV. Missing columns are empty."""
    names = (*required, *optional)
    if not source.files:
        return
    if source.head(1)[0].startswith("{"):
        yield from tables_of(source, len(names), _objects(source, names, report))
        return
    nested = {name: len(names) + place for place, name in enumerate(name for name in optional if "." in name)}
    more = (*optional, *[name.replace(".", "_") for name in nested])
    form = csv_form(required, more, numbers=(), texts=range(len(required) + len(more)), header=True)
    for table in read_tables(source, form, report):
        for name, alias in nested.items():
            texts = table.words_of[names.index(name)]
            table.words_of[names.index(name)] = np.where(texts == "", table.words_of[alias], texts)
        yield table


def _objects(source: Source, names: Sequence[str], report: ReadReport) -> Iterator[NumberedRow]:
    """Yield the fields of each line of JSON."""
    defaults = [(name, _JSON_DEFAULTS.get(name, "")) for name in names]
    for place, line in source.lines():
        if not line.strip():
            continue
        report.rows += 1
        try:
            row = _flat(parsed_json(line))
            # unlike a generator, tuple([...]) leaves no object that the garbage collector has to
            # track
            yield place, tuple([row.get(name, default) for name, default in defaults])
        except ValueError:
            report.drop("that is not a JSON object", source.where(place))


def _flat(row: Any) -> dict[str, str]:
    """Flatten a JSON object. The name of a value in a nested object contains a dot.

    Raises:
        ValueError: The text is not a JSON object.
    """
    if not isinstance(row, dict):
        raise ValueError("no object")
    flat = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": str(of) for inner, of in value.items()})
        elif value is not None:
            flat[name] = str(value)
    return flat


def _instances(source: Source) -> Source:
    """Return the shards of instance events."""
    return source.select_in_folder("instance_events*", "instance_events/*")


def _machines(source: Source) -> tuple[Cluster, tuple[Downtime, ...]] | None:
    tables = source.beside("machine_events*", "machine_events/*")
    if not tables.files:
        return None

    def events() -> Iterator[tuple[str, Event, float, float, float]]:
        for place, row in _records(tables, ("time", "machine_id", "type"), _MACHINE_MORE, ReadReport(strict=True)):
            with FaultsAt(tables.where(place), "a machine event"):
                if row["type"] not in _MACHINE_EVENTS:
                    raise Dirty(f"with the unknown type {clipped_repr(row['type'])}")
                size = (
                    finite_number(row["capacity.cpus"] or "0", "cpus"),
                    finite_number(row["capacity.memory"] or "0", "memory"),
                )
                yield (
                    row["machine_id"],
                    _MACHINE_EVENTS[row["type"]],
                    float(seconds(finite_number(row["time"], "time"))),
                    *size,
                )

    with FaultsAt(f"{tables.files[0]}:1"):
        return machines("google2019", events())


_COMMON = ("time", "collection_id", "instance_index", "collection_type", "user")
_KAGGLE = (*_COMMON, "resource_request", "priority", "alloc_collection_id", "start_time", "end_time")
_TIME, _COLLECTION_ID, _INSTANCE, _KIND, _USER = range(len(_COMMON))
_REQUESTED, _PRIORITY, _ALLOC, _START, _END = range(len(_COMMON), len(_KAGGLE))
_KAGGLE_ONLY = {"instance_events_type", "collections_events_type", "start_time", "end_time"}
_REQUESTS = (*_COMMON, "cpus", "ram")
_CPUS, _RAM = range(len(_COMMON), len(_REQUESTS))
_TEXTS = (_COLLECTION_ID, _INSTANCE, _KIND, _USER)
_SAMPLE_FORM = csv_form(
    _KAGGLE, numbers=(_TIME, _START, _END), texts=(*_TEXTS, _REQUESTED, _PRIORITY, _ALLOC), header=True
)
_REQUESTS_FORM = csv_form(_REQUESTS, numbers=(_TIME, _CPUS, _RAM), texts=_TEXTS, header=True)
_LISTED_SETS = ("1", "1.0", "ALLOC_SET")
_SHAPES = ("cpus", "ram", "machine_count")
_MOST_MACHINES = 1_000_000


def recognises_google_list(source: Source) -> bool:
    """Return True if the source is the Kaggle sample or a list of requests."""
    names = _names(source)
    return not source.path.is_dir() and (names >= _KAGGLE_ONLY or (names >= set(_REQUESTS) and "type" not in names))


def list_work_text(source: Source) -> str:
    """Describe how the work of a task is measured. The text is empty for any other source."""
    if not recognises_google_list(source):
        return ""
    if _names(source) >= _KAGGLE_ONLY:
        return "the time covered by the usage windows of the task in the sample: a lower bound of its life"
    return "0 (or floor_s): requests have no end"


def _list_blocks(source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
    """Yield the jobs in a list: one per collection, with the tasks that the list contains."""
    is_sample = _names(source) >= _KAGGLE_ONLY
    parts = in_parts(partial(_listed, source, _SAMPLE_FORM if is_sample else _REQUESTS_FORM), _keys, report)
    return job_blocks((_batch(table, options, is_sample) for table in parts), report, most)


def shapes_beside(source: Source) -> Cluster | None:
    """Return the cluster from the list of shapes next to ``source`` for the same cell, or from the
    only list of shapes there.
    """
    cell = source.name.partition("_user_requests")[0]
    tables = source.beside(f"{cell}_host_resource.csv*")
    if len(tables.files) != 1:
        tables = source.beside("*host_resource.csv*")
    if len(tables.files) != 1:
        return None
    nodes = []
    for place, (cpus, ram, machine_count) in read_rows(tables, ReadReport(strict=True), _SHAPES, header=True):
        with FaultsAt(tables.where(place), "a machine shape"):
            size = finite_number(cpus, "cpus"), finite_number(ram, "ram")
            if (many := count(machine_count, "machine_count", 0)) > _MOST_MACHINES:
                raise Dirty(f"with more than {_MOST_MACHINES:,} machines")
            for nth in range(many):
                nodes.append(Node(f"{cpus}-{ram}-{nth}", None, 0, *size))
    with FaultsAt(f"{tables.files[0]}:1"):
        return Cluster(tuple(nodes), "google2019")


def band(priority: str) -> float:
    """Return the priority band: 0 for free, 1 for best-effort batch, 2 for mid, 3 for production, 4
    for monitoring."""
    try:
        value = float(priority or 0)
    except ValueError:
        return 0.0
    return float(sum(value >= least for least in (100, 116, 120, 360)))


def _listed(source: Source, form: Form, report: ReadReport) -> Iterator[Table]:
    """Yield the rows of a list that belong to a collection."""
    for table in read_tables(source, form, report):
        checks = Checks(table)
        checks.skip(np.isin(table.texts(_KIND), _LISTED_SETS), "of alloc sets", report)
        checks.drop(table.texts(_COLLECTION_ID) == "", "without collection_id")
        checks.findings.tell(report, table, np.arange(len(table)), len(table))
        yield table.chosen(np.flatnonzero(checks.usable))


def _keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the collection of each row, and its time in seconds."""
    time_us = table.numbers(_TIME)
    return table.texts(_COLLECTION_ID), seconds(np.where(np.isfinite(time_us), time_us, inf))


def _batch(table: Table, options: TraceOptions, is_sample: bool) -> JobBatch:
    """Convert a list to jobs. If a task in the sample has several rows, these are separate usage
    windows.
    """
    checks, groups, names = Checks(table), rows_by_job(*_keys(table)), table.words(_INSTANCE)
    job, count = groups.job_of_row(), len(groups.ids)
    time_us = checks.number(_TIME, "time")
    checks.drop(~((time_us >= 0) & (time_us < AFTER_US)), "with a time outside the trace")
    checks.drop(np.array([not word.strip() for word in names.words])[names.place], "without instance_index")
    if is_sample:
        amounts = _requests(checks)
        start, end = checks.number(_START, "start_time"), checks.number(_END, "end_time")
        checks.drop(end < start, ImpossibleTimes("with an end before the start"))
        inside = table.words(_ALLOC)
        checks.note(
            np.array([word not in ("", "0", "0.0") for word in inside.words])[inside.place],
            "tasks inside alloc sets (treated as ordinary tasks)",
        )
    else:
        amounts = [checks.number(column, "request", 0) for column in (_CPUS, _RAM)]
        again = checks.usable.copy()
        again[again] = repeated(job[again] * np.int64(len(table)) + names.place[again])
        checks.drop(again, RepeatedId("with the same instance as another row"))

    rows = groups.row[checks.usable[groups.row]]  # rows grouped by job, each group in the order of the file
    number, firsts = combinations((job[rows], names.place[rows]))
    lead, sizes = rows[firsts], np.bincount(number, minlength=len(firsts))
    covered_s = _covered_s(number, start[rows], end[rows], len(lead)) if is_sample else np.zeros(len(lead))
    work = np.where(covered_s < options.floor_s, options.floor_s, covered_s)
    kind, kinds = kinds_of_tasks(np.ones(len(lead), bool), [column[lead] for column in amounts], options)
    errors = impossible_tasks(np.ones(len(lead), bool), table.texts(_INSTANCE)[lead], work, kind, kinds)
    wrong = np.array(list(errors), np.int64)
    details = {int(lead[task]): text for task, text in errors.items()}
    checks.findings.drop(lead[wrong], "that describe an impossible job", stage=1, counts=sizes[wrong], details=details)
    tasks = np.delete(np.arange(len(lead)), wrong)
    kept_rows = np.bincount(job[lead[tasks]], sizes[tasks], count).astype(np.int64)
    last = np.zeros(count, np.int64)
    last[job[rows]] = rows  # later rows overwrite earlier ones, so this is the last usable row of each job
    columns: dict[str, Any] = {"tenant": table.words(_USER).chosen(last)}
    if is_sample:
        priority = table.words(_PRIORITY).chosen(last)
        columns["priority"] = optional(np.array([band(word) for word in priority.words])[priority.place], 0.0)
    every = jobs_of_tasks(
        groups, job[lead[tasks]], names.chosen(lead[tasks]), work[tasks], *renumbered(kind[tasks], kinds), **columns
    )
    return JobBatch(table, every, kept_rows > 0, kept_rows, job, checks.findings)


def _requests(checks: Checks) -> list[np.ndarray]:
    """Return the CPUs and the memory that each row of the Kaggle sample requests. The sample writes
    requests as Python dictionaries."""
    requests, amounts = checks.table.words(_REQUESTED), []
    for name in ("cpus", "memory"):
        texts = [re.search(rf"'{name}': *([^,}}]*)", word) for word in requests.words]
        stated = ["" if match is None or match[1] == "None" else match[1] for match in texts]
        values, reasons = zip(*[requested_amount(text, "request") for text in stated], strict=True)
        checks.drop_for(Labels(requests.place, reasons))
        amounts.append(np.array(values)[requests.place])
    return amounts


def _covered_s(task: np.ndarray, start: np.ndarray, end: np.ndarray, count: int) -> np.ndarray:
    """Return how long each of T tasks was covered by at least one of its windows, in seconds, (T,)
    float64. The windows are in microseconds."""
    order, by_end = np.lexsort((end, start, task)), np.lexsort((end, task))
    rank = np.empty(len(task), np.int64)
    rank[by_end] = np.arange(len(task))
    task, start = task[order], start[order]
    # ranks grow from task to task, so the running maximum stays within a task
    latest = end[by_end[np.maximum.accumulate(rank[order])]]
    reached = np.where(np.diff(task, prepend=-1) > 0, -inf, np.roll(latest, 1))
    covered: np.ndarray = np.bincount(task, np.maximum(0.0, end[order] - np.maximum(start, reached)), count) / 1e6
    return covered


def _names(source: Source) -> set[str]:
    return set(source.head(1)[0].split(","))

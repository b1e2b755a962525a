"""Google ClusterData2019 (v3): ``instance_events``, with ``collection_events`` and
``machine_events`` beside them.

Exports of the BigQuery tables, each a file or shards: CSV with a header (nested fields as
``resource_request.cpus`` or ``resource_request_cpus``), or JSON Lines (numbers possibly as strings,
defaults left out). Event types are numbers or names; the numbers differ from those of 2011. The
trace is the directory of the tables or the file of instance events. ``google`` groups and interprets
the events.

Also reads exports without the lives of tasks: the Kaggle sample, requests, and machine shapes. Rows
are grouped by collection, externally beyond 262,144 rows (see ``gather``).

- Kaggle's ``borg_traces_data.csv`` joins a random event of a random task with a random window of
  its usage: 34 columns with a header, demands as Python dictionaries, line ends inside quotes.
- Requests (``*_user_requests.csv``): ``time, user, collection_id, instance_index, cpus, ram,
  collection_type``.
- Shapes (``*_host_resource.csv``): ``cpus, ram, machine_count``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph
from dagsim.traces.chunks import FileLayout, Form, Table, tables_of
from dagsim.traces.fields import Dirty, FaultsAt, count, finite_number
from dagsim.traces.formats.google import AFTER_US, CODES, COLUMNS, USES, Event, Events, machines, seconds, work_text
from dagsim.traces.gather import Gathered, gather, pack, unpack
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Block, Downtime, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Row, Source
from dagsim.workload.records import clipped_repr

_NUMBERS = (
    "SUBMIT",
    "QUEUE",
    "ENABLE",
    "SCHEDULE",
    "EVICT",
    "FAIL",
    "FINISH",
    "KILL",
    "LOST",
    "UPDATE_PENDING",
    "UPDATE_RUNNING",
)
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
_JOB_SUBMISSION = str(int(Event.JOB))
_FORM = Form((), range(len(COLUMNS)), lambda first, where: FileLayout(range(len(COLUMNS)), len(COLUMNS), False))
_JSON_DEFAULTS = {"time": "0", "type": "0", "instance_index": "0", "priority": "0"}


class Google2019(Reader):
    """One job per collection (or group of collections that start after each other), one task per
    instance.

    A collection that starts after others waits for all their tasks. If both have many tasks, a task
    without work joins them. Alloc sets are left out; tasks inside them are ordinary tasks.
    """

    name = "google2019"
    summary = "Google ClusterData2019: instance, collection and machine events; Kaggle sample; requests and shapes"
    uses = USES

    def recognises(self, source: Source) -> bool:
        if recognises_google_list(source):
            return True
        return any("collection_id" in line and "instance_index" in line for line in _instances(source).head())

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        if recognises_google_list(source):
            return super().blocks(source, options, report, most)
        workflows, instances = _Workflows(), _instances(source)

        def tables(report: ReadReport) -> Iterator[Table]:
            return tables_of(instances, _FORM, len(COLUMNS), _rows(source, instances, workflows, report))

        return Events(options, band, CODES, workflows).blocks(tables, report, most)

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        return read_google_list(source, options, report)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """The machines of ``machine_events``, or of a list of shapes (``*host_resource*``), if
        tasks need no GPUs.
        """
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
            "alloc sets": "left out; the tasks inside them ask for their own request",
        }


class _Workflows:
    """Collections that start after others, and the groups of linked collections, one job each."""

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
        """The collection that represents the group of this one."""
        root = collection
        while self._up.get(root, root) != root:
            root = self._up[root]
        while self._up.get(collection, root) != root:  # path compression, for later calls
            self._up[collection], collection = root, self._up[collection]
        return root

    def task(self, collection: str, instance: str) -> str:
        """Name of a task in its job."""
        return f"{collection}/{instance}" if collection in self._up else instance

    def graph(self, tasks: list[Task], note: Callable[[str], None]) -> TaskGraph:
        """Graph of a job: every task of a collection waits for all tasks of the collections it
        starts after.
        """
        places: dict[str, list[int]] = {}
        for place, task in enumerate(tasks):
            collection, joined, _ = task.name.partition("/")
            if joined:
                places.setdefault(collection, []).append(place)
        edges: list[Edge] = []
        for collection, children in places.items():
            after = self._after.get(collection, ())
            if not all(parent in places for parent in after):
                note("jobs that start after one that is not there (taken as ended)")
            parents = [place for parent in after for place in places.get(parent, ())]
            if len(parents) > 1 and len(children) > 1:
                edges += [Edge(parent, len(tasks)) for parent in parents]
                parents = [len(tasks)]
                tasks.append(Task(f"{collection}/start", 0.0, gpus=0.0))
            edges += [Edge(parent, child) for parent in parents for child in children]
        return TaskGraph(tuple(tasks), tuple(edges))


def _rows(source: Source, instances: Source, workflows: _Workflows, report: ReadReport) -> Iterator[Row]:
    """Events of tasks, preceded by the submissions of collections if known."""
    collections = source.beside("collection_events*", "collection_events/*")
    for _, row in _table(collections, _COLLECTION, _COLLECTION_MORE, report):
        report.skip("joined from the collection events")
        if after := re.findall(r"\d+", row["start_after_collection_ids"]):
            workflows.add(row["collection_id"], after)
    for place, row in _table(collections, _COLLECTION, _COLLECTION_MORE, ReadReport()):  # the groups are known only now
        time, is_submission = row["time"], _EVENTS.get(row["type"]) is Event.SUBMIT
        if is_submission and time.isdecimal() and len(time) < 20 and int(time) < AFTER_US:
            yield place, (time, workflows.job(row["collection_id"]), "", _JOB_SUBMISSION, row["user"], "", "", "")
    for place, row in _table(instances, _EVENT, _EVENT_MORE, report):
        if row["collection_type"] in _ALLOC_SETS:
            report.skip("of alloc sets")
            continue
        time, event, collection = row["time"], _EVENTS.get(row["type"]), row["collection_id"]
        if not collection:
            report.drop("without collection_id", instances.where(place))
        elif event is None:
            report.drop("of an unknown event type", instances.where(place))
        elif not (time.isdecimal() and len(time) < 20):
            report.drop("whose time is not a number", instances.where(place))
        elif int(time) >= AFTER_US:
            report.skip("after the end of the trace")
        else:
            if event is Event.SUBMIT and row["alloc_collection_id"] not in ("", "0"):
                report.note("tasks inside alloc sets (taken as tasks of their own)", instances.where(place))
            job, task = workflows.job(collection), workflows.task(collection, row["instance_index"])
            asked = row["resource_request.cpus"], row["resource_request.memory"]
            yield place, (time, job, task, str(int(event)), "", row["priority"], *asked)


def _table(
    source: Source, required: Sequence[str], optional: Sequence[str], report: ReadReport
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Rows of a table as texts by column. Names of nested columns have a dot; missing columns are
    empty.
    """
    if not source.files:
        return
    if source.head(1)[0].startswith("{"):
        blank = dict.fromkeys((*required, *optional), "")
        for place, line in source.lines():
            if not line.strip():
                continue
            report.rows += 1
            try:
                yield place, blank | _JSON_DEFAULTS | _flat(json.loads(line))
            except (ValueError, RecursionError):
                report.drop("that is not a JSON object", source.where(place))
        return
    aliases = [name.replace(".", "_") for name in optional if "." in name]
    for place, fields in source.rows(report, required, (*optional, *aliases), header=True):
        row = dict(zip((*required, *optional, *aliases), fields, strict=True))
        for name in optional:
            row[name] = row[name] or row.get(name.replace(".", "_"), "")
        yield place, row


def _flat(row: Any) -> dict[str, str]:
    """Flatten a JSON object: values of nested objects get names with a dot.

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
    """The shards of instance events."""
    return source.select_in_folder("instance_events*", "instance_events/*")


def _machines(source: Source) -> tuple[Cluster, tuple[Downtime, ...]] | None:
    tables = source.beside("machine_events*", "machine_events/*")
    if not tables.files:
        return None

    def events() -> Iterator[tuple[str, Event, float, float, float]]:
        for place, row in _table(tables, ("time", "machine_id", "type"), _MACHINE_MORE, ReadReport(strict=True)):
            with FaultsAt(tables.where(place), "a machine event"):
                if row["type"] not in _MACHINE_EVENTS:
                    raise Dirty(f"of the unknown type {clipped_repr(row['type'])}")
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
_KAGGLE_ONLY = {"instance_events_type", "collections_events_type", "start_time", "end_time"}
_REQUESTS = (*_COMMON, "cpus", "ram")
_SHAPES = ("cpus", "ram", "machine_count")
_MOST_MACHINES = 1_000_000


def recognises_google_list(source: Source) -> bool:
    """True if the source is the Kaggle sample or a list of requests."""
    names = _names(source)
    return not source.path.is_dir() and (names >= _KAGGLE_ONLY or (names >= set(_REQUESTS) and "type" not in names))


def list_work_text(source: Source) -> str:
    """Work of a task, in words; empty for another source."""
    if not recognises_google_list(source):
        return ""
    if _names(source) >= _KAGGLE_ONLY:
        return "the time covered by the usage windows of the task in the sample: a lower bound of its life"
    return "0 (or floor_s): requests have no end"


def read_google_list(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
    """Jobs of a list: one per collection, with the tasks that the list contains."""
    if _names(source) >= _KAGGLE_ONLY:
        rows = _sampled(source.rows(report, _KAGGLE, header=True))
    else:
        rows = source.rows(report, _REQUESTS, header=True)
    for group in gather(_by_collection(rows, source, report)):
        job = _job(group, source, options, report)
        if job is not None:
            yield job


def shapes_beside(source: Source) -> Cluster | None:
    """The cluster of the list of shapes of the same cell, beside ``source``, or of the only such
    list.
    """
    cell = source.name.partition("_user_requests")[0]
    tables = source.beside(f"{cell}_host_resource.csv*")
    if len(tables.files) != 1:
        tables = source.beside("*host_resource.csv*")
    if len(tables.files) != 1:
        return None
    nodes = []
    for place, (cpus, ram, machine_count) in tables.rows(ReadReport(strict=True), _SHAPES, header=True):
        with FaultsAt(tables.where(place), "a machine shape"):
            size = finite_number(cpus, "cpus"), finite_number(ram, "ram")
            if (many := count(machine_count, "machine_count", 0)) > _MOST_MACHINES:
                raise Dirty(f"of more than {_MOST_MACHINES:,} machines")
            for nth in range(many):
                nodes.append(Node(f"{cpus}-{ram}-{nth}", None, 0, *size))
    with FaultsAt(f"{tables.files[0]}:1"):
        return Cluster(tuple(nodes), "google2019")


def band(priority: str) -> float:
    """0 free, 1 best-effort batch, 2 mid, 3 production, 4 monitoring."""
    try:
        value = float(priority or 0)
    except ValueError:
        return 0.0
    return float(sum(value >= least for least in (100, 116, 120, 360)))


@dataclass(slots=True)
class _Instance:
    """Collected rows of one task."""

    cpus: float
    memory: float
    rows: int = 0
    windows: list[tuple[float, float]] = field(default_factory=list)

    def covered_s(self) -> float:
        """Seconds covered by the union of its windows."""
        covered, reached = 0.0, -inf
        for start, end in sorted(self.windows):
            covered += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return covered / 1e6


def _sampled(rows: Iterator[Row]) -> Iterator[Row]:
    """Convert Kaggle's rows: the CPUs and the memory of the request become fields of their own."""
    for place, (time, collection, instance, kind, user, request, *rest) in rows:
        numbers = [re.search(rf"'{name}': *([^,}}]*)", request) for name in ("cpus", "memory")]
        cpus, memory = ["" if match is None or match[1] == "None" else match[1] for match in numbers]
        yield place, (time, collection, instance, kind, user, cpus, memory, *rest)


def _by_collection(rows: Iterator[Row], source: Source, report: ReadReport) -> Iterator[tuple[str, float, str]]:
    for place, row in rows:
        if row[3] in ("1", "1.0", "ALLOC_SET"):
            report.skip("of alloc sets")
            continue
        if not row[1]:
            report.drop("without collection_id", source.where(place))
            continue
        try:
            time_us = finite_number(row[0], "time")
        except Dirty:
            time_us = inf  # the row is dropped together with its job
        yield row[1], seconds(time_us), pack(place, row)


def _job(group: Gathered, source: Source, options: TraceOptions, report: ReadReport) -> Job | None:
    instances: dict[str, _Instance] = {}
    first: dict[str, int] = {}
    user, priority = "", ""
    for place, row in map(unpack, group.rows):
        with report.dropping(partial(source.where, place)):
            instance = _read(row)
            first_instance = instances.setdefault(row[2], instance)
            if first_instance is not instance and not instance.windows:
                raise Dirty("whose instance another row has")
            first_instance.rows += 1
            first_instance.windows += [] if first_instance is instance else instance.windows
            first.setdefault(row[2], place)
            user, priority = row[4], row[7] if len(row) > 7 else ""
            if len(row) > 8 and row[8] not in ("", "0", "0.0"):
                report.note("tasks inside alloc sets (taken as tasks of their own)", source.where(place))
    tasks = []
    kept = 0
    for name, instance in instances.items():
        with report.dropping(partial(source.where, first[name]), rows=instance.rows):
            work = max(instance.covered_s(), options.floor_s)
            tasks.append(Task(name, work, 1, False, *options.cpu_demand(instance.cpus, instance.memory)))
            kept += instance.rows
    if not tasks:
        return None
    report.kept += kept
    return Job(group.job, TaskGraph(tuple(tasks)), group.time, band(priority), user)


def _read(row: Sequence[str]) -> _Instance:
    """Parse one row.

    Raises:
        Dirty: The row is unusable.
    """
    time, _, name, _, _, cpus, memory, *more = row
    if not 0 <= finite_number(time, "time") < AFTER_US:
        raise Dirty("whose time lies outside the trace")
    if not name.strip():
        raise Dirty("without instance_index")
    instance = _Instance(finite_number(cpus or "0", "request"), finite_number(memory or "0", "request"))
    if more:
        start, end = finite_number(more[2], "start_time"), finite_number(more[3], "end_time")
        if end < start:
            raise Dirty("with an end before the start")
        instance.windows.append((start, end))
    return instance


def _names(source: Source) -> set[str]:
    return set(source.head(1)[0].split(","))

"""Google ClusterData2019 (v3): ``instance_events``, with ``collection_events`` and
``machine_events`` next to them.

The reader accepts exports of the BigQuery tables, each as one file or as shards. They are CSV with
a header (nested fields are called ``resource_request.cpus`` or ``resource_request_cpus``) or JSON
Lines (numbers may be strings, and default values are left out). Event types are numbers or names.
The numbers differ from those used in 2011. The trace is the directory with the tables, or the file
with the instance events. ``google`` groups and interprets the events.

Exports that do not contain the history of tasks are read by ``google2019_lists``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dagsim.families.formats.google import (
    AFTER_US,
    COLUMNS,
    USES,
    Event,
    Events,
    late_rows,
    machines,
    seconds,
    work_text,
)
from dagsim.families.formats.google2019_lists import (
    band,
    list_blocks,
    list_work_text,
    recognises_google_list,
    shapes_beside,
)
from dagsim.files import parsed_json
from dagsim.model import Cluster, Edge, Task, TaskGraph
from dagsim.traces.chunks import read_tables
from dagsim.traces.fields import Dirty, FaultsAt, finite_number
from dagsim.traces.reader import Downtime, JobBlock, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import Checks
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.array_tools import objects
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
            return list_blocks(source, options, report, most)
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

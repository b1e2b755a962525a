"""Google ClusterData2019 (v3): ``instance_events``, with ``collection_events`` and ``machine_events`` beside them.

Exports of the BigQuery tables, each a file or shards: CSV with a header (nested fields as ``resource_request.cpus`` or
``resource_request_cpus``), or JSON Lines (numbers perhaps as strings, defaults left out). Event types are numbers or
names; the numbers are not those of 2011. The trace is the directory of the tables or the file of instance events. Rows
are gathered by job, externally beyond 262,144 rows (see ``gather``); what events mean is in ``google``. Exports without
the lives of tasks are read by ``google2019_lists``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dagsim.errors import ModelError, TraceError
from dagsim.model import Cluster, Edge, Job, Task, TaskGraph
from dagsim.traces.attempts import Event
from dagsim.traces.fields import Dirty, finite_number
from dagsim.traces.formats import google2019_lists as lists
from dagsim.traces.formats.google import AFTER_US, USES, Happened, jobs_of_events, machines, seconds, work_text
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Downtime, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.workload.records import clipped, clipped_repr

__all__ = ["Google2019"]

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
_JSON_DEFAULTS = {"time": "0", "type": "0", "instance_index": "0", "priority": "0"}


class Google2019(Reader):
    """One job per collection (or group of collections), one task per instance. Collections of a group start after each
    other.

    A collection that starts after others waits for all their tasks; where both have many, through a task of no work.
    Alloc sets are left out; tasks inside them are tasks of their own.
    """

    name = "google2019"
    summary = "Google ClusterData2019: instance, collection and machine events; Kaggle sample; requests and shapes"
    uses = USES

    def recognises(self, source: Source) -> bool:
        if lists.recognises_google_list(source):
            return True
        return any("collection_id" in line and "instance_index" in line for line in _instances(source).head())

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        if lists.recognises_google_list(source):
            return lists.read_google_list(source, options, report)
        happened, workflows = Happened(), _Workflows()
        instances = _instances(source)
        rows = _rows(source, instances, workflows, happened, report)
        return jobs_of_events(rows, happened, instances.where, lists.band, options, report, workflows.graph)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """The machines of ``machine_events``, or of a list of shapes (``*host_resource*``), if tasks need no GPUs."""
        if options.gpus_per_task is not None:
            return None
        found = _machines(source)
        return found[0] if found else lists.shapes_beside(source)

    def downtimes(self, source: Source, options: TraceOptions) -> tuple[Downtime, ...]:
        found = None if options.gpus_per_task is not None else _machines(source)
        return found[1] if found else ()

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("its request: fractions of the cores and memory of the largest machine"),
            "work": lists.list_work_text(source) or work_text(options),
            "priority": "0 free (to 99), 1 batch (to 115), 2 mid (to 119), 3 production (to 359), 4 monitoring",
            "alloc sets": "left out; the tasks inside them ask for their own request",
        }


class _Workflows:
    """Collections that start after others, and the groups, one job each, that this joins them to."""

    def __init__(self) -> None:
        self._after: dict[str, tuple[str, ...]] = {}
        self._up: dict[str, str] = {}

    def add(self, collection: str, after: Sequence[str]) -> None:
        """``collection`` starts when those in ``after`` have ended."""
        self._after[collection] = tuple(dict.fromkeys(after))
        for parent in after:
            root = self.job(parent)
            self._up[root] = root
            self._up[self.job(collection)] = root

    def job(self, collection: str) -> str:
        """The collection that stands for the group of this one."""
        root = collection
        while self._up.get(root, root) != root:
            root = self._up[root]
        while self._up.get(collection, root) != root:  # shorten the way for the next who asks
            self._up[collection], collection = root, self._up[collection]
        return root

    def task(self, collection: str, instance: str) -> str:
        """The name of a task in its job."""
        return f"{collection}/{instance}" if collection in self._up else instance

    def graph(self, tasks: list[Task], note: Callable[[str], None]) -> TaskGraph:
        """The graph of a job: every task of a collection waits for all tasks of those it starts after."""
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


def _rows(
    source: Source, instances: Source, workflows: _Workflows, happened: Happened, report: ReadReport
) -> Iterator[tuple[str, float, str]]:
    """The events of tasks, and before them the submissions of the collections where those are known."""
    collections = source.beside("collection_events*", "collection_events/*")
    for _, row in _table(collections, _COLLECTION, _COLLECTION_MORE, report):
        report.skip("joined from the collection events")
        if after := re.findall(r"\d+", row["start_after_collection_ids"]):
            workflows.add(row["collection_id"], after)
    for place, row in _table(collections, _COLLECTION, _COLLECTION_MORE, ReadReport()):  # the jobs are known only now
        time, is_submission = row["time"], _EVENTS.get(row["type"]) is Event.SUBMIT
        if is_submission and time.isdecimal() and len(time) < 20 and int(time) < AFTER_US:
            yield happened.submission(place, int(time), workflows.job(row["collection_id"]), row["user"])
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
            report.drop("whose time is no number", instances.where(place))
        elif int(time) >= AFTER_US:
            report.skip("after the end of the trace")
        else:
            if event is Event.SUBMIT and row["alloc_collection_id"] not in ("", "0"):
                report.note("tasks inside alloc sets (taken as tasks of their own)", instances.where(place))
            asked = (row["resource_request.cpus"], row["resource_request.memory"])
            job, task = workflows.job(collection), workflows.task(collection, row["instance_index"])
            yield happened.row(place, int(time), job, task, event, "", row["priority"], asked)


def _table(
    source: Source, required: Sequence[str], optional: Sequence[str], report: ReadReport
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The rows of a table as texts by column. Nested ones have a dot, missing ones are empty."""
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
                report.drop("that is no JSON object", source.where(place))
        return
    aliases = [name.replace(".", "_") for name in optional if "." in name]
    for place, fields in source.rows(report, required, (*optional, *aliases), header=True):
        row = dict(zip((*required, *optional, *aliases), fields, strict=True))
        for name in optional:
            row[name] = row[name] or row.get(name.replace(".", "_"), "")
        yield place, row


def _flat(row: Any) -> dict[str, str]:
    """A JSON object with its nested objects' values under names with a dot.

    Raises:
        ValueError: It is no object.
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
    if not source.path.is_dir():
        return source
    inside = source.select("instance_events*", "instance_events/*")
    return inside if inside.files else source


def _machines(source: Source) -> tuple[Cluster, tuple[Downtime, ...]] | None:
    found = source.beside("machine_events*", "machine_events/*")
    if not found.files:
        return None

    def events() -> Iterator[tuple[str, Event, float, float, float]]:
        for place, row in _table(found, ("time", "machine_id", "type"), _MACHINE_MORE, ReadReport(strict=True)):
            try:
                if row["type"] not in _MACHINE_EVENTS:
                    raise Dirty(f"of the unknown type {clipped_repr(row['type'])}")
                size = (
                    finite_number(row["capacity.cpus"] or "0", "cpus"),
                    finite_number(row["capacity.memory"] or "0", "memory"),
                )
                yield (
                    row["machine_id"],
                    _MACHINE_EVENTS[row["type"]],
                    seconds(finite_number(row["time"], "time")),
                    *size,
                )
            except Dirty as reason:
                raise TraceError(f"{found.where(place)}: a machine event {reason}") from None

    try:
        return machines("google2019", events())
    except ModelError as error:
        raise TraceError(f"{found.files[0]}:1: {clipped(error)}") from None

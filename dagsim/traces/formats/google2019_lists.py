"""Exports of Google ClusterData2019 that do not hold the lives of tasks: the Kaggle sample, requests, machine shapes.

Kaggle's ``borg_traces_data.csv`` joins a random event of a random task with a random window of its usage: 34 columns
with a header, demands as Python dictionaries, line ends inside quotes. Requests (``*_user_requests.csv``): ``time,
user, collection_id, instance_index, cpus, ram, collection_type``. Shapes (``*_host_resource.csv``): ``cpus, ram,
machine_count``. Rows are gathered by collection, externally beyond 262,144 rows (see ``gather``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from dagsim.errors import ModelError, TraceError
from dagsim.model import Cluster, Job, Node, Task, TaskGraph
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.formats.google import AFTER_US, seconds
from dagsim.traces.gather import Gathered, gather, pack, unpack
from dagsim.traces.options import TraceOptions
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Row, Source
from dagsim.workload.records import clipped

__all__ = ["band", "list_work_text", "read_google_list", "recognises_google_list", "shapes_beside"]

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
    """The work of a task, in words; nothing for another source."""
    if not recognises_google_list(source):
        return ""
    if _names(source) >= _KAGGLE_ONLY:
        return "the time covered by the usage windows of the task in the sample: a lower bound of its life"
    return "0 (or floor_s): requests have no end"


def read_google_list(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
    """The jobs of a list: one per collection, with those of its tasks that the list holds."""
    if _names(source) >= _KAGGLE_ONLY:
        rows = _sampled(source.rows(report, _KAGGLE, header=True))
    else:
        rows = source.rows(report, _REQUESTS, header=True)
    for group in gather(_by_collection(rows, source, report)):
        job = _job(group, source, options, report)
        if job is not None:
            yield job


def shapes_beside(source: Source) -> Cluster | None:
    """The cluster of the list of shapes of the same cell, beside ``source``. It may be the only such list."""
    cell = source.name.partition("_user_requests")[0]
    found = source.beside(f"{cell}_host_resource.csv*")
    if len(found.files) != 1:
        found = source.beside("*host_resource.csv*")
    if len(found.files) != 1:
        return None
    nodes = []
    for place, (cpus, ram, machines) in found.rows(ReadReport(strict=True), _SHAPES, header=True):
        try:
            size = finite_number(cpus, "cpus"), finite_number(ram, "ram")
            if (many := count(machines, "machine_count", 0)) > _MOST_MACHINES:
                raise Dirty(f"of more than {_MOST_MACHINES:,} machines")
            for nth in range(many):
                nodes.append(Node(f"{cpus}-{ram}-{nth}", None, 0, *size))
        except (Dirty, ModelError) as error:
            raise TraceError(f"{found.where(place)}: a machine shape {clipped(error)}") from None
    try:
        return Cluster(tuple(nodes), "google2019")
    except ModelError as error:
        raise TraceError(f"{found.files[0]}:1: {clipped(error)}") from None


def band(priority: str) -> float:
    """0 free, 1 best-effort batch, 2 mid, 3 production, 4 monitoring."""
    try:
        value = float(priority or 0)
    except ValueError:
        return 0.0
    return float(sum(value >= least for least in (100, 116, 120, 360)))


@dataclass(slots=True)
class _Instance:
    """The rows of one task, gathered."""

    cpus: float
    memory: float
    rows: int = 0
    windows: list[tuple[float, float]] = field(default_factory=list)

    def covered_s(self) -> float:
        """The seconds that its windows cover together."""
        covered, reached = 0.0, -inf
        for start, end in sorted(self.windows):
            covered += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return covered / 1e6


def _sampled(rows: Iterator[Row]) -> Iterator[Row]:
    """Kaggle's rows with the two numbers of the request as fields. They are like those of a list of requests."""
    for place, (time, collection, instance, kind, user, request, *rest) in rows:
        numbers = [re.search(rf"'{name}': *([^,}}]*)", request) for name in ("cpus", "memory")]
        cpus, memory = ["" if found is None or found[1] == "None" else found[1] for found in numbers]
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
            time_us = inf  # the row meets its fate with its job
        yield row[1], seconds(time_us), pack(place, row)


def _job(group: Gathered, source: Source, options: TraceOptions, report: ReadReport) -> Job | None:
    instances: dict[str, _Instance] = {}
    first: dict[str, int] = {}
    user, priority = "", ""
    for place, row in map(unpack, group.rows):
        try:
            instance = _read(row)
            known = instances.setdefault(row[2], instance)
            if known is not instance and not instance.windows:
                raise Dirty("whose instance another row has")
        except Dirty as reason:
            report.drop(str(reason), source.where(place))
            continue
        known.rows += 1
        known.windows += [] if known is instance else instance.windows
        first.setdefault(row[2], place)
        user, priority = row[4], row[7] if len(row) > 7 else ""
        if len(row) > 8 and row[8] not in ("", "0", "0.0"):
            report.note("tasks inside alloc sets (taken as tasks of their own)", source.where(place))
    tasks = []
    kept = 0
    for name, instance in instances.items():
        try:
            work = max(instance.covered_s(), options.floor_s)
            tasks.append(Task(name, work, 1, False, *options.cpu_demand(instance.cpus, instance.memory)))
            kept += instance.rows
        except ModelError as error:
            report.drop("that ask for what cannot be", source.where(first[name]), instance.rows, str(error))
    if not tasks:
        return None
    report.kept += kept
    return Job(group.job, TaskGraph(tuple(tasks)), group.time, band(priority), user)


def _read(row: Sequence[str]) -> _Instance:
    """The contents of one row.

    Raises:
        Dirty: It cannot be used.
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

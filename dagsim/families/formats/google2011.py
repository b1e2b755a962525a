"""Google ClusterData2011_2: ``task_events`` shards, with ``job_events`` and ``machine_events``
next to them.

Columns, without headers:

- ``task_events``: time, missing info, job id, task index, machine id, event type, user, scheduling
  class, priority, CPU, memory and disk request, different machines
- ``job_events``: time, missing info, job id, event type, user, and more
- ``machine_events``: time, machine id, event type, platform, CPUs, memory

The trace is the directory that contains ``task_events``, ``task_events`` itself, or a single shard.
Events are in order of time. ``google`` groups and interprets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from dagsim.families.formats.google import (
    COLUMNS,
    EVENT,
    JOB,
    TIME,
    USES,
    Event,
    Events,
    late_rows,
    machines,
    seconds,
    work_text,
)
from dagsim.model import Cluster
from dagsim.traces.chunks import read_rows, read_tables
from dagsim.traces.fields import Dirty, FaultsAt, finite_number
from dagsim.traces.reader import Downtime, JobBlock, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import Checks
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.text_forms import FileLayout, Form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.records import clipped_repr

_TASK_FIELDS = 13
_PLACES = (0, 2, 3, 5, 6, 8, 9, 10)
_FORM = Form((), range(len(COLUMNS)), lambda first, where: FileLayout(_PLACES, _TASK_FIELDS, False), quoted=False)
_JOB_SUBMISSION = "J"
_EVENTS = {
    "0": Event.SUBMIT,
    "1": Event.SCHEDULE,
    **dict.fromkeys("23456", Event.END),
    **dict.fromkeys("78", Event.UPDATE),
}
_MACHINE_EVENTS = {"0": Event.SUBMIT, "1": Event.END, "2": Event.UPDATE}
_MACHINE_COLUMNS = ("time", "machine_id", "event_type", "platform", "cpus", "memory")


class Google2011(Reader):
    """Builds one job per job id and one task per task index (see ``google.Events``)."""

    name = "google2011"
    summary = "Google ClusterData2011_2: task, job and machine events"
    uses = USES

    def recognises(self, source: Source) -> bool:
        rows = [line.split(",") for line in _tasks(source).head()]
        return bool(rows) and all(
            len(row) == _TASK_FIELDS and row[5] in _EVENTS and row[0].isdigit() for row in rows[:-1] or rows
        )

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        events = Events(options, _band, _EVENTS | {_JOB_SUBMISSION: Event.JOB})
        return events.blocks(partial(_tables, source, _tasks(source)), report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Read the machines from ``machine_events`` next to the tasks. Return None if there are
        none, or if tasks need GPUs."""
        machine_data = None if options.gpus_per_task is not None else _machines(source)
        return machine_data and machine_data[0]

    def downtimes(self, source: Source, options: TraceOptions) -> tuple[Downtime, ...]:
        machine_data = None if options.gpus_per_task is not None else _machines(source)
        return machine_data[1] if machine_data else ()

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("its request: fractions of the cores and memory of the largest machine"),
            "work": work_text(options),
            "priority": "0 free (0-1), 1 batch (2-8), 2 production (9, 11), 3 monitoring (10)",
            "constraints": "machine attributes and different-machine constraints are left out",
        }


def _tables(source: Source, tasks: Source, report: ReadReport) -> Iterator[Table]:
    """Yield the events of tasks, and then the submissions of jobs if they are known."""
    for table in read_tables(tasks, _FORM, report):
        checks = Checks(table)
        events = table.words(EVENT)
        checks.drop(~np.array([word in _EVENTS for word in events.words])[events.place], "with an unknown event type")
        late = late_rows(checks, table.texts(TIME))
        checks.drop(table.texts(JOB) == "", "without job id")
        checks.findings.tell(report, table, np.arange(len(table)), len(table))
        checks.skip(late, "after the end of the trace", report)
        yield table.chosen(np.flatnonzero(checks.usable))
    jobs = source.select("job_events/*", "job_events.csv*") if source.path.is_dir() else None
    if jobs and jobs.files:
        yield from tables_of(tasks, len(COLUMNS), _submissions(jobs, report))


def _submissions(jobs: Source, report: ReadReport) -> Iterator[NumberedRow]:
    for place, line in jobs.lines():
        time, _, job, event, user, *_ = [*line.split(","), "", "", "", "", ""]
        report.rows += 1
        report.skip("joined from the job events")
        if event == "0" and time.isdecimal() and len(time) < 20:
            yield place, (time, job, "", _JOB_SUBMISSION, user, "", "", "")


def _tasks(source: Source) -> Source:
    """Return the shards of task events."""
    return source.select_in_folder("task_events/*", "task_events.csv*")


def _machines(source: Source) -> tuple[Cluster, tuple[Downtime, ...]] | None:
    tables = source.beside("machine_events/*", "machine_events*.csv*")
    if not tables.files:
        return None

    def events() -> Iterable[tuple[str, Event, float, float, float]]:
        for place, (time, machine, event, _, cpus, memory) in read_rows(
            tables, ReadReport(strict=True), _MACHINE_COLUMNS
        ):
            with FaultsAt(tables.where(place), "a machine event"):
                if event not in _MACHINE_EVENTS:
                    raise Dirty(f"with the unknown event type {clipped_repr(event)}")
                at = float(seconds(finite_number(time, "time")))
                yield (
                    machine,
                    _MACHINE_EVENTS[event],
                    at,
                    finite_number(cpus or "0", "cpus"),
                    finite_number(memory or "0", "memory"),
                )

    with FaultsAt(f"{tables}:1"):
        return machines("google2011", events())


def _band(priority: str) -> float:
    """Return the priority band: 0 for free, 1 for batch, 2 for production, 3 for monitoring."""
    return {"0": 0.0, "1": 0.0, "9": 2.0, "10": 3.0, "11": 2.0}.get(priority, 1.0)

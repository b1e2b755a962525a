"""Spark TPC-H queries as profiled for Decima (SIGCOMM 2019): stages, edges and task durations, in JSON.

A list of ``{query, size, edges: [[parent, child]], stages: [{id, num_tasks, mean_ms, ...}]}``. The
durations by number of executors and wave (``first_wave_ms``, ``rest_wave_ms``, ``fresh_ms``) are
not used here. The file is read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dagsim.errors import ModelError, TraceError
from dagsim.model import Job, Task
from dagsim.traces.fields import Dirty, InvalidValue, count
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport, RepeatedId
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.workflow import read_json, value, workflow

_HEAD = 4096


class Tpch(Reader):
    """Builds one job per query and input size, and all jobs arrive at time 0; each stage is a task,
    and each instance takes a GPU."""

    name = "tpch"
    summary = "Decima's TPC-H profiles (JSON): 154 Spark queries as stages"
    uses = frozenset({"floor_s"})

    def recognises(self, source: Source) -> bool:
        start = source.head(1)[0][:_HEAD] + "".join(source.head(16)[1:])[:_HEAD]
        return '"query"' in start and ('"stages"' in start or '"edges"' in start)

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        where = f"{source}:1"
        document = read_json(source)
        if not isinstance(document, list):
            raise TraceError(f"{where}: not a list of queries")
        for query in document:
            job = _job(query, options, report, where)
            if job is not None:
                yield job

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "a stage's mean task duration, over all numbers of executors and waves",
            "demand": "an executor is a GPU: one per instance",
            "arrival": "the profiles have none: every query arrives at 0",
        }


def _job(entry: Any, options: TraceOptions, report: ReadReport, where: str) -> Job | None:
    stages = entry.get("stages") if isinstance(entry, dict) else None
    if not isinstance(stages, list) or not stages:
        report.rows += 1
        report.drop("that are not queries with stages", where)
        return None
    id = f"tpch-{entry.get('query')}-{entry.get('size')}"
    tasks: dict[str, Task] = {}
    for stage in stages:
        report.rows += 1
        try:
            task = _task(stage, options)
            if task.name in tasks:
                raise Dirty(RepeatedId("with the same id as another stage"))
            tasks[task.name] = task
        except Dirty as reason:
            report.drop(str(reason), where, detail=id)
        except ModelError as error:
            report.drop("that describe an impossible job", where, detail=f"{id}: {error}")
    if len(tasks) < len(stages):
        if tasks:
            report.drop("of queries from which another stage was dropped", where, len(tasks), id)
        return None
    edges = entry.get("edges")
    pairs = [edge for edge in edges if isinstance(edge, list) and len(edge) == 2] if isinstance(edges, list) else []
    named = ((f"stage-{parent}", f"stage-{child}", 0.0) for parent, child in pairs)
    return workflow(id, list(tasks.values()), named, report, where)


def _task(stage: Any, options: TraceOptions) -> Task:
    if not isinstance(stage, dict):
        raise Dirty("that are not objects")
    seconds = value(stage.get("mean_ms"), "mean_ms") / 1000
    if seconds < 0:
        raise Dirty(InvalidValue("with a negative mean_ms"))
    instances = count(str(stage.get("num_tasks", "")), "num_tasks")
    return Task(f"stage-{stage.get('id')}", max(seconds, options.floor_s), instances)

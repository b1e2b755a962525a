"""WfCommons WfFormat 1.0 to 1.5: one recorded workflow execution per JSON file.

Version 1.5 separates ``workflow.specification.tasks`` (names, parents, files) from
``workflow.execution.tasks`` (runtimes). Versions 1.3 and 1.4 have everything in ``workflow.tasks``,
and earlier versions in ``workflow.jobs``. Parents and children are given by id or, in 1.4 files
written by Pegasus, by name. Each file is read as a whole, and the files in a directory or archive
are read one at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from dagsim.errors import TraceError
from dagsim.model import Job, Task
from dagsim.traces.fields import Dirty
from dagsim.traces.reader import Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.workflow import read_json, shared_bytes, stem, value, workflow

_UNVERSIONED = re.compile(r'"workflow"\s*:\s*\{[^{}\[]{0,2000}"(tasks|jobs|specification)"\s*:\s*[\[{]')
"""Found in a document that does not state its version."""
_Files = dict[str, dict[str, float]]
"""For each task, the files that it reads or writes, with their bytes."""


class WfCommons(Reader):
    """Builds one job per file, and all jobs arrive at time 0; a task takes ``coreCount`` cores (by
    default 1) for its measured runtime."""

    name = "wfcommons"
    summary = "WfCommons WfFormat 1.0 to 1.5 (.json): recorded workflow executions"
    uses = frozenset({"gpus_per_task", "floor_s"})

    def recognises(self, source: Source) -> bool:
        if (
            not source.matches("*.json", "*.json.gz")
            and source.path.is_file()
            and not source.files[0].matches("*.json*")
        ):
            return False
        head = source.head(200)
        text = "\n".join(head)
        is_workflow = '"schemaVersion"' in text or _UNVERSIONED.search(text) is not None
        return is_workflow and not any('"$schema"' in line for line in head[:8])

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        files = source.files if len(source.files) == 1 else source.select("*.json", "*.json.gz").files
        for file in files:
            job = _job(file, options, report)
            if job is not None:
                yield job

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("coreCount cores, or one if it is not given"),
            "work": "runtimeInSeconds on whichever machine ran it; staging and queueing are left out",
            "arrival": "the trace has none: every workflow arrives at 0",
        }


def _job(file: Source, options: TraceOptions, report: ReadReport) -> Job | None:
    where = f"{file}:1"
    document = read_json(file)
    parts = _section(document, "workflow", where)
    listed, execution = parts.get("tasks", parts.get("jobs")), {}
    sizes: dict[str, float] = {}
    if "specification" in parts:
        specification = _section(parts, "specification", where)
        listed = specification.get("tasks")
        sizes = {str(file.get("id")): _bytes(file.get("sizeInBytes")) for file in _dicts(specification.get("files"))}
        ran = parts.get("execution")
        execution = {str(task.get("id")): task for task in _dicts(ran.get("tasks") if isinstance(ran, dict) else None)}
    if not isinstance(listed, list) or not listed:
        raise TraceError(f"{where}: the workflow has no tasks")
    tasks, edges, written, read = _tasks(listed, execution, sizes, options, report, where)
    if len(tasks) < len(listed):
        if tasks:
            report.drop("of jobs from which another task was dropped", where, len(tasks))
        return None
    sized = ((parent, child, shared_bytes(parent, child, written, read)) for parent, child in edges)
    return workflow(stem(file), tasks, sized, report, where)


def _tasks(
    listed: list[Any],
    execution: dict[str, dict[str, Any]],
    sizes: dict[str, float],
    options: TraceOptions,
    report: ReadReport,
    where: str,
) -> tuple[list[Task], list[tuple[str, str]], _Files, _Files]:
    tasks: dict[str, Task] = {}
    edges: dict[tuple[str, str], None] = {}
    ids = _ids_by_reference(listed)
    written: _Files = {}
    read: _Files = {}
    for item in listed:
        report.rows += 1
        with report.dropping(where, detail=item):
            if not isinstance(item, dict):
                raise Dirty("that are not objects")
            name = str(item.get("id") or item.get("name") or "")
            if not name or name in tasks:
                raise Dirty(RepeatedId("with the same id as another task") if name else "without an id")
            tasks[name] = _task(name, {**item, **execution.get(name, {})}, options)
            parents, children = ([str(other) for other in _list(item.get(of))] for of in ("parents", "children"))
            edges.update(dict.fromkeys((ids.get(parent, parent), name) for parent in parents))
            edges.update(dict.fromkeys((name, ids.get(child, child)) for child in children))
            _files(item, sizes, written.setdefault(name, {}), read.setdefault(name, {}))
    return list(tasks.values()), list(edges), written, read


def _ids_by_reference(listed: list[Any]) -> dict[str, str]:
    """If most references to parents and children are names rather than ids, return a mapping from
    the unique names to the ids of the tasks. Otherwise, return an empty dictionary."""
    items = _dicts(listed)
    names = Counter(str(item.get("name")) for item in items)
    ids = {str(item.get("name")): str(item.get("id") or item.get("name")) for item in items}
    ids = {name: id for name, id in ids.items() if names[name] == 1}
    called = [str(other) for item in items for of in ("parents", "children") for other in _list(item.get(of))]
    known = {str(item.get("id") or item.get("name")) for item in items}
    return ids if sum(other in ids for other in called) > sum(other in known for other in called) else {}


def _task(name: str, facts: dict[str, Any], options: TraceOptions) -> Task:
    seconds = value(facts.get("runtimeInSeconds", facts.get("runtime")), "runtime")
    if seconds < 0:
        raise Dirty(ImpossibleTimes("with a negative runtime"))
    cores = facts.get("coreCount", facts.get("cores"))
    gpus, cpus, _ = options.cpu_demand(value(cores, "coreCount") if cores is not None else 1.0, 0.0)
    return Task(name, max(seconds, options.floor_s), gpus=gpus, cpus=cpus)


def _files(task: dict[str, Any], sizes: dict[str, float], written: dict[str, float], read: dict[str, float]) -> None:
    for name in _list(task.get("outputFiles")):
        written[str(name)] = sizes.get(str(name), 0.0)
    for name in _list(task.get("inputFiles")):
        read[str(name)] = sizes.get(str(name), 0.0)
    for file in _dicts(task.get("files")):  # this is the layout of versions 1.3 and 1.4
        into = written if file.get("link") == "output" else read
        into[str(file.get("name", file.get("id")))] = _bytes(file.get("sizeInBytes", file.get("size")))


def _bytes(size: Any) -> float:
    """Return the size of a file in bytes, or 0 if it is unknown."""
    try:
        return max(0.0, value(size, "size"))
    except Dirty:
        return 0.0


def _section(document: Any, name: str, where: str) -> dict[str, Any]:
    section = document.get(name) if isinstance(document, dict) else None
    if not isinstance(section, dict):
        raise TraceError(f"{where}: not a WfFormat workflow, because there is no object {name!r}")
    return section


def _list(item: Any) -> list[Any]:
    return item if isinstance(item, list) else []


def _dicts(item: Any) -> list[dict[str, Any]]:
    return [part for part in _list(item) if isinstance(part, dict)]

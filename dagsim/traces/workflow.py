"""Functions shared by the readers for workflow files: they load a document, and create a job from
named tasks and edges.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagsim.errors import GraphError, TraceError
from dagsim.files import parsed_json
from dagsim.model import Edge, Job, Task, TaskGraph
from dagsim.model.arithmetic import ordered_sum
from dagsim.traces.fields import finite_number
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source


def stem(file: Source) -> str:
    """Return the file name without its endings, which serves as the id of the job in the file."""
    return file.name.split(".")[0] or file.name


def read_json(file: Source) -> Any:
    """Load a JSON document, reading the file as a whole.

    Raises:
        TraceError: The file cannot be read or is not JSON.
    """
    try:
        return parsed_json(file.read_bytes().decode("utf-8-sig"), unique=True)
    except UnicodeDecodeError:
        raise TraceError(f"{file}:1: the text is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise TraceError(f"{file}:{error.lineno}: invalid JSON ({error.msg})") from None
    except ValueError as error:
        raise TraceError(f"{file}:1: the JSON cannot be read ({error})") from None


def value(raw: Any, field: str) -> float:
    """Return a finite number from a document, which may contain it as a number or as text.

    Raises:
        Dirty: There is no such number.
    """
    if raw is None or isinstance(raw, (bool, list, dict)):
        return finite_number("" if raw is None else "?", field)
    return finite_number(str(raw), field)


def shared_bytes(
    parent: str, child: str, written: Mapping[str, Mapping[str, float]], read: Mapping[str, Mapping[str, float]]
) -> float:
    """Return the total bytes of the files that ``parent`` writes and ``child`` reads."""
    inputs = read.get(child, {})
    return ordered_sum(size for name, size in written.get(parent, {}).items() if name in inputs)


def workflow(
    id: str,
    tasks: Sequence[Task],
    edges: Iterable[tuple[str, str, float]],
    report: ReadReport,
    where: str,
    rows: int | None = None,
) -> Job | None:
    """Return the job in one workflow file. It arrives at 0 s. ``edges`` contains tuples ``(parent,
    child, bytes)`` with the names of tasks. The job counts as ``rows`` rows, by default one per
    task.

    Edges to missing tasks count as satisfied, and duplicate edges count once. Both are noted. A job
    that is not a DAG is dropped, and ``None`` is returned.
    """
    rows = len(tasks) if rows is None else rows
    place = {task.name: index for index, task in enumerate(tasks)}
    sizes: dict[tuple[int, int], float] = {}
    for parent, child, size in edges:
        if parent not in place or child not in place:
            report.note("edges to missing tasks (taken as satisfied)", where)
        elif (place[parent], place[child]) in sizes:
            report.note("edges given twice", where)
        else:
            sizes[place[parent], place[child]] = size
    try:
        graph = TaskGraph(tuple(tasks), tuple([Edge(parent, child, size) for (parent, child), size in sizes.items()]))
    except GraphError as error:
        report.drop("of jobs that are not a DAG", where, rows, str(error))
        return None
    report.kept += rows
    return Job(id, graph)

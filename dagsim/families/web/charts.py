"""Build the parts of a page. Text and tables become HTML, in which everything from a log or a
configuration is escaped. The data of charts (bars, curves, distributions, job graphs, learning
curves) is packed.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from dagsim.metrics.columns import Floats, Ints, ScheduleColumns
from dagsim.metrics.jct import jct, queueing
from dagsim.metrics.lanes import TaskColumns, bars_of, lanes_of, task_columns
from dagsim.metrics.utilization import Steps, node_types
from dagsim.model import Kind
from dagsim.model.log import Schedule
from dagsim.report.grid import Grid
from dagsim.report.panels import FIGURES, Panel, TrainingRow, jobs_over_time, jobs_within, learning_panels


def element(tag: str, text: str, **attributes: str) -> str:
    """Return an element with escaped text. ``class_`` sets ``class``, and ``aria_live`` sets
    ``aria-live``."""
    pairs = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
    return f"<{tag}{pairs}>{escape(text)}</{tag}>"


def table(grid: Grid) -> str:
    """Return a table with its title as caption and its notes below. The element around it scrolls
    sideways and can receive the focus. Without rows, only the title and the notes are returned."""
    heads = "".join(_cell("th", head, place in grid.texts, scope="col") for place, head in enumerate(grid.heads))
    rows = "".join(f"<tr>{_row(row, grid.texts)}</tr>" for row in grid.rows)
    label = escape(grid.title or "table")
    if not grid.rows:
        return element("p", grid.title, class_="empty") + notes(grid.notes)
    caption = element("caption", grid.title) if grid.title else ""
    whole = f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{whole}</div>'
    return box + notes(grid.notes)


def notes(lines: Iterable[str]) -> str:
    """Return the lines as HTML paragraphs in small type."""
    return "".join(element("p", line, class_="note") for line in lines)


def details(summary: str, text: str) -> str:
    """Return a long text in an element that is collapsed at first."""
    return f'<details><summary>{escape(summary)}</summary><pre tabindex="0">{escape(text)}</pre></details>'


_SHORT = 20
"""Length of the longest text in a cell that is kept on one line."""


def _row(cells: Sequence[str], texts: Sequence[int]) -> str:
    first, *rest = cells
    head = _cell("th", first, 0 in texts, scope="row")
    return head + "".join(_cell("td", cell, place in texts) for place, cell in enumerate(rest, 1))


def _cell(tag: str, text: str, is_text: bool, **attributes: str) -> str:
    lines = "<br>".join(escape(line) for line in text.split("\n"))
    if not is_text:
        attributes["class"] = "number"
    elif attributes.get("scope") != "col":
        attributes["class"] = "short" if max(map(len, text.split("\n"))) <= _SHORT else "long"
    pairs = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    return f"<{tag}{pairs}>{lines}</{tag}>"


_BINS = 1000
"""Number of points on a curve over time. Each point is the average of its bin."""
_POINTS = 300
"""Number of points in a distribution."""
_SHORTEST_S = 0.1
"""Lower bound of the logarithmic axis, in seconds. Shorter times are drawn at this bound."""
_LEAST_SPAN = 10.0
"""Smallest ratio between the ends of the logarithmic axis, so that the curve of equal values can be
seen."""
_OUTCOMES = {int(Kind.FINISHED): 0, int(Kind.PREEMPTED): 1, int(Kind.FAILED): 2, -1: 3}


def chart_of(cols: ScheduleColumns, schedule: Schedule, packer: Packer, more: Sequence[Panel] = ()) -> dict[str, Any]:
    """Return the facts that the Gantt chart and the curves of one run show, and the additional
    facts ``more``. The arrays are stored in ``packer``.
    """
    types, _ = node_types(cols.cluster)
    return {
        "start_s": cols.start_s,
        "end_s": max(cols.end_s, cols.start_s),
        "nodes": _nodes(cols, packer),
        "types": [gpu.name for gpu in types],
        "jobs": _jobs(cols, packer),
        "bars": _bars(cols, schedule, packer),
        "outages": _outages(cols, packer),
        "curves": _curves(cols, [*jobs_over_time(cols), *more], packer),
    }


def distributions(runs: Mapping[str, ScheduleColumns], packer: Packer) -> dict[str, Any]:
    """For each quantity in ``FIGURES``, compute one curve per named run: the share of the accepted
    jobs at or below each value.

    Unfinished jobs are never counted as within a value, so the curve of a run with unfinished jobs
    ends below 1.
    """
    return {key: {"label": label, **_shares(key, runs, packer)} for key, label in FIGURES.items()}


def _shares(figure: str, runs: Mapping[str, ScheduleColumns], packer: Packer) -> dict[str, Any]:
    shortest = 0.0 if figure == "slowdown" else _SHORTEST_S
    distributions = {name: jobs_within(cols, figure, shortest) for name, cols in runs.items()}
    every = np.concatenate([values for values, _ in distributions.values()])
    if not len(every):
        return {"x": packer.add([], "f4"), "series": []}
    x = np.geomspace(every.min(), max(float(every.max()), float(every.min()) * _LEAST_SPAN), _POINTS)
    x[-1] = max(x[-1], every.max())
    series = []
    for name, (values, shares) in distributions.items():
        within = np.append(0.0, shares)[np.searchsorted(values, x * (1 + 1e-12), "right")]
        series.append([name, packer.add(within, "f4")])
    return {"x": packer.add(x, "f8"), "series": series}


def _nodes(cols: ScheduleColumns, packer: Packer) -> dict[str, Any]:
    lanes, (_, type_of) = lanes_of(cols), node_types(cols.cluster)
    return {
        "names": [node.name for node in cols.cluster.nodes],
        "first": packer.add(lanes.first, "f4"),
        "count": packer.add(lanes.count, "i4"),
        "type": packer.add(type_of, "i4"),
        "height": lanes.height,
        "gpus": bool(cols.cluster.gpus),
    }


def _jobs(cols: ScheduleColumns, packer: Packer) -> dict[str, Any]:
    jobs = cols.jobs
    tenants = sorted(set(jobs.tenant))
    place = {name: index for index, name in enumerate(tenants)}
    priorities, priority = np.unique(jobs.priority, return_inverse=True)
    at_end = cols.at_horizon()
    return {
        "ids": list(jobs.ids),
        "tenants": tenants,
        "tenant": packer.add([place[name] for name in jobs.tenant], "i4"),
        "priorities": [f"{value:g}" for value in priorities.tolist()],
        "priority": packer.add(priority, "i4"),
        "arrival_s": packer.add(jobs.arrival_s, "f8"),
        "queueing_s": packer.add(np.nan_to_num(queueing(at_end), nan=-1.0), "f4"),
    }


def _bars(cols: ScheduleColumns, schedule: Schedule, packer: Packer) -> dict[str, Any]:
    runs, bars = cols.runs, bars_of(cols, lanes_of(cols))
    order = np.argsort(runs.start_s[bars.run], kind="stable")
    entry, top, bottom = bars.run[order], bars.top[order], bars.bottom[order]
    names, task = _task_names(schedule, runs.job[entry].tolist(), runs.task[entry].tolist())
    outcome = np.vectorize(_OUTCOMES.get, otypes=[np.int64])(runs.outcome[entry]) if len(entry) else []
    start_s, set_up_s = runs.start_s[entry], np.nan_to_num(runs.computing_s[entry] - runs.start_s[entry])
    return {
        "start": packer.add(start_s, "f8"),
        "length": packer.add(runs.end_s[entry] - start_s, "f4"),
        "top": packer.add(top, "f4"),
        "height": packer.add(bottom - top, "f4"),
        "job": packer.add(runs.job[entry], "i4"),
        "task": packer.add(task, "i4"),
        "tasks": names,
        "node": packer.add(runs.node[entry], "i4"),
        "outcome": packer.add(outcome, "u1"),
        "set_up": packer.add(set_up_s, "f4"),
    }


def _task_names(schedule: Schedule, job: list[int], task: list[int]) -> tuple[list[str], list[int]]:
    """Return the distinct task names, and for each run the index of its task's name."""
    places: dict[str, int] = {}
    indices = []
    for whose, which in zip(job, task, strict=True):
        tasks = schedule.jobs[whose].tasks
        name = tasks[which] if 0 <= which < len(tasks) else str(which)
        indices.append(places.setdefault(name, len(places)))
    return list(places), indices


def _outages(cols: ScheduleColumns, packer: Packer) -> dict[str, Any]:
    outages = cols.outages
    return {
        "node": packer.add(outages.node, "i4"),
        "start": packer.add(outages.start_s, "f8"),
        "end": packer.add(outages.end_s, "f8"),
    }


def _curves(cols: ScheduleColumns, panels: Sequence[Panel], packer: Packer) -> list[dict[str, Any]]:
    if not panels or not cols.horizon_s > 0:
        return []
    edges_s = np.linspace(cols.start_s, cols.end_s, _BINS + 1)
    x = packer.add((edges_s[1:] + edges_s[:-1]) / 2, "f8")
    return [
        {"title": panel.title, "unit": panel.unit, "x": x, "series": _series(panel.steps, edges_s, packer)}
        for panel in panels
    ]


def _series(steps_by_name: Mapping[str, Steps], edges_s: Floats, packer: Packer) -> list[tuple[str, int]]:
    return [(name, packer.add(steps.binned(edges_s), "f4")) for name, steps in steps_by_name.items()]


def graphs(cols: ScheduleColumns, schedule: Schedule, packer: Packer, most_tasks: int) -> dict[str, Any] | None:
    """Pack the jobs with several tasks, longest time in the system first, up to ``most_tasks``
    tasks.

    Return None if no job has several tasks. Times are seconds since the job's arrival, or -1 if
    they are unknown. ``edges`` and ``blocker`` are task numbers within the job.
    """
    tasks = task_columns(schedule.jobs, cols)
    with_graph = np.flatnonzero(tasks.first >= 0)
    if not len(with_graph):
        return None
    count = np.bincount(tasks.job, minlength=len(cols.jobs))
    longest = with_graph[np.argsort(-np.nan_to_num(jct(cols.at_horizon())[with_graph]), kind="stable")]
    jobs = longest[np.cumsum(count[longest]) <= most_tasks]
    if not len(jobs):
        jobs = longest[:1]
    entry = np.concatenate([np.arange(tasks.first[job], tasks.first[job] + count[job]) for job in jobs.tolist()])
    edges, edge_count = _edges_of(tasks, jobs)
    blocker = tasks.blocker[entry]
    base = cols.jobs.arrival_s[tasks.job[entry]]
    names: dict[str, int] = {}
    named = [
        names.setdefault(schedule.jobs[job].tasks[task], len(names))
        for job, task in zip(tasks.job[entry].tolist(), tasks.task[entry].tolist(), strict=True)
    ]
    return {
        "of": len(with_graph),
        "job": packer.add(jobs, "i4"),
        "tasks": packer.add(count[jobs], "i4"),
        "edge_count": packer.add(edge_count, "i4"),
        "edges": packer.add(edges.ravel(), "i4"),
        "names": list(names),
        "name": packer.add(named, "i4"),
        "ready": packer.add(np.nan_to_num(tasks.ready_s[entry] - base, nan=-1.0), "f4"),
        "start": packer.add(np.nan_to_num(tasks.start_s[entry] - base, nan=-1.0), "f4"),
        "end": packer.add(np.nan_to_num(tasks.end_s[entry] - base, nan=-1.0), "f4"),
        "blocker": packer.add(np.where(blocker >= 0, tasks.task[blocker], -1), "i4"),
    }


def _edges_of(tasks: TaskColumns, jobs: Ints) -> tuple[Ints, Ints]:
    """Return the edges of ``jobs`` as pairs of parent and child, (m, 2), in the order of the jobs,
    and the number of edges of each job.

    Parents and children are task numbers within their job.
    """
    whose = tasks.job[tasks.edges[:, 1]]
    place = np.full(len(tasks.first), -1, np.int64)
    place[jobs] = np.arange(len(jobs))
    mine = place[whose] >= 0
    order = np.argsort(place[whose[mine]], kind="stable")
    counted = np.bincount(place[whose[mine]], minlength=len(jobs))
    parents: Ints = tasks.task[tasks.edges[mine][order]]
    return parents, counted


_SHOWN = ("ratio", "reward", "entropy")


def learning(logs: Mapping[str, Sequence[TrainingRow]], packer: Packer) -> list[dict[str, Any]]:
    """Return one chart for each measure. It has a curve for each training run and, if there are
    several, their mean and range.
    """
    charts = []
    for panel in learning_panels(logs):
        x = np.unique(np.concatenate([samples for samples, _ in panel.runs.values()] + [panel.samples]))
        if panel.name not in _SHOWN:
            continue
        series: list[tuple[Any, ...]] = []
        if len(panel.samples):
            band = (_on(x, panel.samples, values) for values in (panel.mean, panel.low, panel.high))
            series.append(("mean", *(packer.add(values, "f4") for values in band)))
        series += [(run, packer.add(_on(x, *points), "f4")) for run, points in panel.runs.items()]
        charts.append({"title": panel.title, "unit": panel.unit, "x": packer.add(x, "f8"), "series": series})
    return charts


def _on(x: np.ndarray, samples: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Interpolate ``values``, which belong to ``samples``, at the points ``x``. The result is NaN
    outside the range of ``samples``.
    """
    interpolated: np.ndarray = np.interp(x, samples, values, left=np.nan, right=np.nan)
    return interpolated


_TYPES = {"f8": "Float64Array", "f4": "Float32Array", "i4": "Int32Array", "u1": "Uint8Array"}
_LEVEL = 6


class Packer:
    """A collection of numbered arrays. Facts refer to the arrays by their numbers."""

    def __init__(self) -> None:
        self._arrays: list[tuple[str, bytes, int]] = []
        self._places: dict[tuple[str, bytes], int] = {}

    def add(self, values: Any, dtype: str) -> int:
        """Store an array as f8, f4, i4 or u1 and return its number. Equal arrays are stored once."""
        array = np.asarray(values, f"<{dtype}")
        data = array.tobytes()
        place = self._places.setdefault((dtype, data), len(self._arrays))
        if place == len(self._arrays):
            self._arrays.append((_TYPES[dtype], data, len(array)))
        return place

    def packed(self, facts: dict[str, Any]) -> str:
        """Compress everything with gzip, and encode it in base64. Equal facts and arrays give equal
        text."""
        listed, offset = [], 0
        for kind, data, length in self._arrays:
            listed.append([kind, offset, length])
            offset += _padded(len(data))
        header = json.dumps({"facts": facts, "arrays": listed}, separators=(",", ":"), allow_nan=False).encode()
        header += b" " * (_padded(len(header) + 4) - len(header) - 4)
        body = b"".join(data + bytes(_padded(len(data)) - len(data)) for _, data, _ in self._arrays)
        whole = len(header).to_bytes(4, "little") + header + body
        return base64.b64encode(gzip.compress(whole, _LEVEL, mtime=0)).decode("ascii")


def _padded(length: int) -> int:
    return -(-length // 8) * 8

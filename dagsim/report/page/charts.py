"""Columns of a run that the page draws: bars, curves over time and distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dagsim.metrics.columns import Floats, ScheduleColumns
from dagsim.metrics.jct import wait
from dagsim.metrics.lanes import bars_of, lanes_of
from dagsim.metrics.steps import Steps
from dagsim.metrics.utilization import node_types
from dagsim.model import Kind
from dagsim.model.log import Schedule
from dagsim.report.page.packing import Packer
from dagsim.report.series import FIGURES, jobs_over_time, jobs_within

__all__ = ["chart_of", "distributions"]

_BINS = 1000
"""Points of a curve over time; each is the average of its bin."""
_POINTS = 300
"""Points of a distribution."""
_SHORTEST_S = 0.1
"""Shorter times are drawn as this on a logarithmic axis."""
_ENDS = {int(Kind.FINISHED): 0, int(Kind.PREEMPTED): 1, int(Kind.FAILED): 2, -1: 3}


def chart_of(made: ScheduleColumns, schedule: Schedule, packer: Packer) -> dict[str, Any]:
    """The facts of the Gantt chart and the curves of one run; its arrays go to the packer."""
    types, _ = node_types(made.cluster)
    return {
        "start_s": made.start_s,
        "end_s": max(made.end_s, made.start_s),
        "nodes": _nodes(made, packer),
        "types": [gpu.name for gpu in types],
        "jobs": _jobs(made, packer),
        "bars": _bars(made, schedule, packer),
        "outages": _outages(made, packer),
        "curves": _curves(made, packer),
    }


def distributions(runs: Mapping[str, ScheduleColumns], packer: Packer) -> dict[str, Any]:
    """Per figure the share of the jobs let in that stay within some values. Each named run has a curve.

    A job that is unfinished stays within none, so that its curve ends below 1.
    """
    return {key: {"label": label, **_shares(key, runs, packer)} for key, label in FIGURES.items()}


def _shares(figure: str, runs: Mapping[str, ScheduleColumns], packer: Packer) -> dict[str, Any]:
    shortest = 0.0 if figure == "slowdown" else _SHORTEST_S
    known = {name: jobs_within(made, figure, shortest) for name, made in runs.items()}
    every = np.concatenate([values for values, _ in known.values()])
    if not len(every):
        return {"x": packer.add([], "f4"), "series": []}
    x = np.geomspace(every.min(), max(float(every.max()), float(every.min()) * 1.01), _POINTS)
    x[-1] = max(x[-1], every.max())
    series = []
    for name, (values, shares) in known.items():
        within = np.append(0.0, shares)[np.searchsorted(values, x * (1 + 1e-12), "right")]
        series.append([name, packer.add(within, "f4")])
    return {"x": packer.add(x, "f8"), "series": series}


def _nodes(made: ScheduleColumns, packer: Packer) -> dict[str, Any]:
    lanes, (_, type_of) = lanes_of(made), node_types(made.cluster)
    return {
        "names": [node.name for node in made.cluster.nodes],
        "first": packer.add(lanes.first, "f4"),
        "count": packer.add(lanes.count, "i4"),
        "type": packer.add(type_of, "i4"),
        "height": lanes.height,
        "gpus": bool(made.cluster.gpus),
    }


def _jobs(made: ScheduleColumns, packer: Packer) -> dict[str, Any]:
    jobs = made.jobs
    tenants = sorted(set(jobs.tenant))
    place = {name: index for index, name in enumerate(tenants)}
    priorities, priority = np.unique(jobs.priority, return_inverse=True)
    at_end = made.at_horizon()
    return {
        "ids": list(jobs.ids),
        "tenants": tenants,
        "tenant": packer.add([place[name] for name in jobs.tenant], "i4"),
        "priorities": [f"{value:g}" for value in priorities.tolist()],
        "priority": packer.add(priority, "i4"),
        "arrival_s": packer.add(jobs.arrival_s, "f8"),
        "wait_s": packer.add(np.nan_to_num(wait(at_end), nan=-1.0), "f4"),
    }


def _bars(made: ScheduleColumns, schedule: Schedule, packer: Packer) -> dict[str, Any]:
    runs, bars = made.runs, bars_of(made, lanes_of(made))
    order = np.argsort(runs.start_s[bars.run], kind="stable")
    entry, top, bottom = bars.run[order], bars.top[order], bars.bottom[order]
    names, task = _task_names(schedule, runs.job[entry].tolist(), runs.task[entry].tolist())
    outcome = np.vectorize(_ENDS.get, otypes=[np.int64])(runs.outcome[entry]) if len(entry) else []
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
    """The distinct names of tasks, and the place of each run's among them."""
    places: dict[str, int] = {}
    found = []
    for whose, which in zip(job, task, strict=True):
        tasks = schedule.jobs[whose].tasks
        name = tasks[which] if 0 <= which < len(tasks) else str(which)
        found.append(places.setdefault(name, len(places)))
    return list(places), found


def _outages(made: ScheduleColumns, packer: Packer) -> dict[str, Any]:
    outages = made.outages
    return {
        "node": packer.add(outages.node, "i4"),
        "start": packer.add(outages.start_s, "f8"),
        "end": packer.add(outages.end_s, "f8"),
    }


def _curves(made: ScheduleColumns, packer: Packer) -> list[dict[str, Any]]:
    panels = jobs_over_time(made)
    if not panels:
        return []
    edges_s = np.linspace(made.start_s, made.end_s, _BINS + 1)
    x = packer.add((edges_s[1:] + edges_s[:-1]) / 2, "f8")
    return [
        {
            "title": panel.title,
            "unit": panel.unit,
            "x": x,
            "series": _series(panel.steps, edges_s, packer),
        }
        for panel in panels
    ]


def _series(found: Mapping[str, Steps], edges_s: Floats, packer: Packer) -> list[tuple[str, int]]:
    return [(name, packer.add(steps.binned(edges_s), "f4")) for name, steps in found.items()]

"""Results as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from dagsim.metrics import glossary
from dagsim.metrics.standings import SECONDARY_METRICS, Mean, RunMetrics, mean, standings
from dagsim.traces import reader
from dagsim.traces.options import COMMON_OPTIONS

if TYPE_CHECKING:
    from rich.table import Table

    from dagsim.experiment.trace_info import TraceInfo
    from dagsim.workload.info import Spread, WorkloadInfo

__all__ = [
    "comparison_table",
    "info_tables",
    "number",
    "observed_table",
    "published_table",
    "summary_table",
    "trace_notes",
    "workload_notes",
]

_TENANTS = 8
"""So many tenants are shown, those with the most jobs; ``runs.jsonl`` has them all."""
_SHOWN = (
    "jct_s.mean",
    "jct_s.p50",
    "jct_s.p95",
    "jct_s.p99",
    "wait_s.mean",
    "bounded_slowdown.mean",
    "makespan_s",
    "throughput_per_h",
    "utilization",
    "queue_mean",
    "energy_kwh",
    "joules_per_job",
    "jain",
    "slo_attainment",
    "scheduler_us",
)
"""The metrics of the table; the run folder has all."""

_IF_ANY = (
    "jobs_unfinished",
    "rejected_too_large",
    "rejected_no_such_gpu",
    "rejected_by_policy",
    "preemptions",
    "failures",
    "node_failures",
)
"""Shown where one is not 0."""

_SPREADS = ("tasks_per_job", "depth", "width", "work", "critical_path_s", "instances_per_task", "gpus_per_job")

_HEADS = {
    "jct_s.p99": "p99 JCT\n(s)",
    "wait_s.mean": "wait\n(s)",
    "bounded_slowdown.mean": "bounded\nslowdown",
    "utilization": "GPUs\nheld",
    "energy_kwh": "energy\n(kWh)",
    "jain": "Jain\n",
    "rho_worst": "worst\nrho",
    "scheduler_us": "µs per\ndecision",
}


def summary_table(lines: Sequence[RunMetrics]) -> Table:
    """One policy over its seeds: each metric's mean, its 95 % interval, and its range."""
    from rich.markup import escape
    from rich.table import Table

    counts = [sum(int(line.metrics[name]) for line in lines) for name in ("jobs_arrived", "jobs_completed")]
    many = len(lines) > 1
    table = Table(
        title=f"{escape(lines[0].policy)}: {counts[1]:,} of {counts[0]:,} jobs completed, {_seeds(lines)}",
        title_justify="left",
    )
    table.add_column("metric")
    for head in ("mean", "95 % interval", "least", "most") if many else ("value",):
        table.add_column(head, justify="right")
    table.add_column("unit")
    units = {term.name: term.unit for term in glossary()}
    for name in _SHOWN + _IF_ANY:
        values = [value for line in lines if (value := line.metrics.get(name)) is not None]
        if values and (any(values) or name not in _IF_ANY):
            spread = (*_interval(mean(lines, name)), number(min(values)), number(max(values)))
            table.add_row(name, *(spread if many else spread[:1]), units[name])
    return table


def comparison_table(lines: Sequence[RunMetrics], reference: str | None = None, metric: str = "jct_s.mean") -> Table:
    """Policies on the same seeds, least ``metric`` first; ``*`` is the best, ``=`` what cannot be told from it."""
    from rich.markup import escape
    from rich.table import Table

    ranked = standings(lines, metric, reference)
    first, name = reference or lines[0].policy, "mean JCT" if metric == "jct_s.mean" else metric
    table = Table(title=f"{len(ranked)} policies, {_seeds(lines)}, least {name} first", title_justify="left")
    table.caption = "* best   = not told apart from the best (the 95 % interval of the paired ratio holds 1)"
    table.caption_justify = "left"
    for head in ("", "policy"):
        table.add_column(head)
    unit = {term.name: term.unit for term in glossary()}.get(metric, "")
    heads = [
        f"{name}\n({unit or '-'})",
        f"ratio to\n{escape(first)}",
        "95 %\ninterval",
        "wins\n(%)",
        *(_HEADS[beside] for beside in SECONDARY_METRICS),
    ]
    left = any(standing.not_done for standing in ranked)
    for head in [*heads, "jobs\nnot done"] if left else heads:
        table.add_column(head, justify="right")
    for standing in ranked:
        mark = "*" if standing.best else "=" if standing.tied else ""
        beside = [number(100 * standing.wins), *(number(standing.beside[name]) for name in SECONDARY_METRICS)]
        ratio = _interval(Mean(*standing.ratio))
        if left:
            beside.append(f"{standing.not_done:,}")
        table.add_row(mark, escape(standing.policy), number(standing.mean.value), *ratio, *beside)
    return table


def observed_table(policy: str, waits: Mapping[str, Any]) -> Table:
    """Waits on the real cluster against those of a simulation, in all, by tenant and by size (``ObservedWaits``)."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"{escape(policy)}: observed and simulated waits in s", title_justify="left")
    for head in ("", "jobs", "observed\nmean / median / p95", "simulated\nmean / median / p95", "difference\nof means"):
        table.add_column(head, justify="right" if head else "left")
    groups = {"all": waits["total"]} | waits["by_size"]
    if len(waits["by_tenant"]) > 1:
        most_first = sorted(waits["by_tenant"].items(), key=lambda group: -group[1]["jobs"])
        groups |= {f"tenant {name or '(none)'}": pair for name, pair in most_first[:_TENANTS]}
    for name, pair in groups.items():
        spreads = [" / ".join(number(each) for each in pair[side].values()) for side in ("observed_s", "simulated_s")]
        table.add_row(escape(name), f"{pair['jobs']:,}", *spreads, number(pair["difference_s"]))
    if waits["left_out"]:
        table.caption = f"{waits['left_out']:,} jobs left out: not observed, or not started here"
        table.caption_justify = "left"
    return table


def info_tables(info: WorkloadInfo) -> list[Table]:
    """Statistics of a workload: spreads over jobs and tasks, and counts."""
    from rich.table import Table

    spreads, counts = Table("", title=f"{info.jobs:,} jobs", title_justify="left"), Table("", "", show_header=False)
    for head in ("mean", "median", "75 %", "90 %", "95 %", "99 %", "most"):
        spreads.add_column(head, justify="right")
    for name in _SPREADS:
        spread: Spread | None = getattr(info, name)
        if spread is not None:
            spreads.add_row(name, *map(number, astuple(spread)))
    for name in ("tasks", "edges", "instances", "gangs"):
        counts.add_row(name, f"{getattr(info, name):,}")
    for name in ("gpus_per_instance", "models", "priorities", "tenants"):
        parts = [f"{key or '(none)'}: {count:,}" for key, count in getattr(info, name).items()]
        counts.add_row(name, ", ".join(parts[:12]) + (", ..." if len(parts) > 12 else ""))
    counts.add_row("arrivals by hour", " ".join(map(str, info.arrivals_by_hour)))
    counts.add_row("span", f"{info.span_s / 3600:.2f} h")
    return [spreads, counts]


def workload_notes(workloads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes on the jobs of some runs: their load, and what was read of a trace."""
    loads = [max(of["gpu_load"] or 0.0, of["cpu_load"] or 0.0) for of in workloads]
    least, most = number(min(loads)), number(max(loads))
    notes = [f"cluster: {of}" for of in dict.fromkeys(of["cluster"] for of in workloads if "cluster" in of)]
    notes += [f"offered load: {least if least == most else f'{least} .. {most}'}"]
    notes += [f"warning: {text}" for text in dict.fromkeys(of["warning"] for of in workloads if of["warning"])][:1]
    if (trace := workloads[0].get("trace")) is not None:
        notes += [f"trace ({trace['format']}): {trace['read']}"]
        heeded = COMMON_OPTIONS | reader(trace["format"]).uses
        chosen = [f"{name} {_told(value)}" for name, value in trace["options"].items() if name in heeded]
        notes += [f"options: {', '.join(chosen)}"]
        notes += [f"assumed {question}: {answer}" for question, answer in trace["assumptions"].items()]
    return notes


def trace_notes(info: TraceInfo) -> list[str]:
    """Notes on a trace beside its statistics: what was read, its load, and what was published of it."""
    busy = ", ".join(f"{number(value)} {name}" for name, value in info.mean_busy().items() if value)
    load = info.workload.load
    notes = [f"trace ({info.trace.format}): {info.trace.report}"]
    notes += [f"assumed {question}: {answer}" for question, answer in info.trace.assumptions.items()]
    if busy:
        notes.append(f"busy on average, had nothing to wait: {busy}")
    if info.own and load is not None:
        notes.append(f"its own machines: {info.cluster}; offered load: {number(load.offered)}")
    else:
        notes.append(f"it lists no machines; for an offered load of 0.9: {info.cluster}")
    return notes


def published_table(info: TraceInfo) -> Table:
    """Published figures of a whole trace, beside the same of what was read."""
    from rich.table import Table

    table = Table("", title="published of the whole trace", title_justify="left")
    table.add_column("here", justify="right")
    table.add_column("published", justify="right")
    table.add_column("source")
    for each, here in info.comparison:
        table.add_row(each.statistic, number(here), number(each.value), each.source)
    return table


def _told(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """Four digits, more only before the point; ``-`` where there is no number."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _interval(of: Mean) -> tuple[str, str]:
    known = math.isfinite(of.low) and math.isfinite(of.high)
    return number(of.value), f"{number(of.low)} .. {number(of.high)}" if known else "-"


def _seeds(lines: Sequence[RunMetrics]) -> str:
    count = len({line.seed for line in lines})
    return f"{count} seed{'s' * (count > 1)}"

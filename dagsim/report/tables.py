"""Build tables for the terminal that describe a run, a workload or a trace, or the reasons why a
job waited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple
from math import exp, log
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dagsim.metrics import glossary
from dagsim.metrics.incomplete import incomplete_sentence
from dagsim.metrics.intervals import enough_seeds, samples_needed, seeds_for_mean
from dagsim.metrics.paired import ENOUGH_SEEDS
from dagsim.metrics.standings import RunMetrics, Sample, largest_share, mean
from dagsim.metrics.why import waits_in_words
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.report.grid import Grid, interval, number, plain_text, short
from dagsim.text import count_of, on_one_line

if TYPE_CHECKING:
    from rich.table import Table

    from dagsim.experiment.cell_run import CellRun
    from dagsim.experiment.trace_info import TraceInfo
    from dagsim.metrics.why import WaitReasons
    from dagsim.systems.cluster.knowledge import Knowledge
    from dagsim.systems.cluster.waits.causes import Stretch
    from dagsim.workload.info import Percentiles, WorkloadInfo

_FEW_WAITS = 30
"""A group needs at least this many jobs for its error to be shown as the worst."""
_TENANTS, _PARTS = 8, 12
"""Maximum number of tenants to show. The ones with the most jobs are shown, and ``runs.jsonl`` has
all of them.
"""
_SHOWN = (
    "jct_s.mean", "jct_s.p50", "jct_s.p95", "jct_s.p99", "wait_s.mean", "queueing_s.mean", "bounded_slowdown.mean",
    "makespan_s", "throughput_per_h", "utilization", "mean_queue_length", "energy_kwh", "joules_per_job",
    "jain_fairness_index", "deadline_hit_rate", "jobs_unfinished", "rejected_too_large", "rejected_no_such_gpu",
    "rejected_by_policy", "preemptions", "failures", "node_failures", "on_demand.node_hours", "on_demand.boots",
    "on_demand.cost",
)  # fmt: skip
"""Metrics in the table. The run folder has all metrics."""

_IF_ANY = (
    "energy_kwh", "joules_per_job", "jobs_unfinished", "rejected_too_large", "rejected_no_such_gpu",
    "rejected_by_policy", "jobs_killed", "preemptions", "failures", "node_failures",
)  # fmt: skip
"""Metrics that are shown only if one of them is not 0."""

_LOAD = "arriving work / capacity of all GPUs; utilization: share of GPUs in use"
_CPU_LOAD = "arriving work / capacity of all CPU cores"
"""Definitions of the offered load (``workload.load``) for GPUs, and for CPU cores, which are used
if their load is higher. A policy reaches the offered load if it keeps all of them busy.
"""

_SPREADS = ("tasks_per_job", "depth", "width", "work", "critical_path_s", "instances_per_task", "gpus_per_job")


def summary_table(lines: Sequence[RunMetrics], *, workload: str = "", sample: Sample = Sample.SEED) -> Grid:
    """Summarise one policy over its seeds: the mean of each metric, with a 95% interval, and the
    range of its values.
    """
    counts = [sum(int(line.metrics[name]) for line in lines) for name in ("jobs_arrived", "jobs_completed")]
    n = len({line.seed for line in lines})
    units = f"{n:,} {'seed' if sample is Sample.TRACE else sample}{'' if n == 1 else 's'}"
    title = ", ".join(
        [f"{lines[0].policy}: {counts[1]:,} of {counts[0]:,} jobs completed", *([workload] if workload else []), units]
    )
    units_of = {term.name: term.unit for term in glossary()}
    rows = []
    own = [name for name in lines[0].metrics if name not in units_of and "[" not in name]
    for name in (*_SHOWN, *own):
        values = [value for line in lines if (value := line.metrics.get(name)) is not None]
        if values and (any(values) or name not in _IF_ANY) and _tells_something(name, lines):
            average = mean(lines, name)
            bounds = "-" if sample is Sample.TRACE else interval(average.low, average.high)
            spread = (short(average.value), bounds, short(min(values)), short(max(values)))
            unit = units_of.get(name, "").replace("microseconds", "µs")
            rows.append((name, *(spread if n > 1 else spread[:1]), unit))
    heads = ("metric", *(("mean", "95% interval", "min", "max") if n > 1 else ("value",)), "unit")
    notes = tuple(_summary_notes(n, sample, largest_share(lines, "jct_s.mean")))
    return Grid(title, heads, rows, notes, (0, len(heads) - 1))


def _tells_something(name: str, lines: Sequence[RunMetrics]) -> bool:
    """Return False for a metric that carries no information, such as the fairness between jobs if
    there is only one tenant, or queueing times that are equal to the waits.
    """
    if name == "jain_fairness_index":
        return any(
            whole_sum(key.startswith("tenant[") and key.endswith(".arrived") for key in line.metrics) > 1
            for line in lines
        )
    return name != "queueing_s.mean" or any(line.metrics[name] != line.metrics.get("wait_s.mean") for line in lines)


def _summary_notes(n: int, sample: Sample, largest_job: float) -> Iterator[str]:
    if sample is Sample.TRACE:
        yield "One log is only one sample, so there are no intervals."
    elif 1 < n < ENOUGH_SEEDS:
        yield f"Too few {sample}s for intervals: {n} of {ENOUGH_SEEDS}."
    elif n > 1:
        needed = samples_needed(seeds_for_mean(n, largest_job), n, sample)
        approximate = f" They are approximate: {enough_seeds(needed, sample)}." if needed else ""
        yield f"Intervals are for the mean (Student's t on its logarithm).{approximate}"


def observed_table(policy: str, waits: Mapping[str, Any], tenants: int = _TENANTS) -> Grid:
    """Return a table that compares waits on the real cluster with simulated ones (``ObservedWaits``):
    overall, by size, and for the ``tenants`` tenants with the most jobs.
    """
    sides = ("observed", "simulated")
    others = ("\nmedian", "\np95")
    heads = ("", "jobs", "observed\nmean", *others, "simulated\nmean", *others, "gap of\nmeans")
    groups = {"all": waits["total"]} | waits["by_size"]
    if len(waits["by_tenant"]) > 1:
        most_first = sorted(waits["by_tenant"].items(), key=lambda group: -group[1]["jobs"])
        groups |= {f"tenant {name or '(none)'}": pair for name, pair in most_first[:tenants]}
    rows = [
        (
            name,
            f"{pair['jobs']:,}",
            *(short(seconds) for side in sides for seconds in pair[f"{side}_s"].values()),
            short(pair["difference_s"]),
        )
        for name, pair in groups.items()
    ]
    left_out, missed, unlisted = waits["left_out"], waits.get("missed", 0), len(waits["by_tenant"]) - tenants
    notes = [f"{count_of(missed, 'job')} missed: started in the log, but never here"] if missed else []
    notes += [f"{count_of(left_out, 'job')} left out: not observed"] if left_out else []
    notes += [f"{unlisted:,} tenants with fewer jobs are in runs.jsonl"] if unlisted > 0 else []
    notes.append(f"wait: {waits_in_words(waits.get('from_eligible', False))}")
    return Grid(f"{policy}: observed and simulated waits in s", heads, rows, tuple(notes))


def fidelity_lines(policy: str, waits: Mapping[str, Any]) -> list[str]:
    """Return lines that state how far the simulated waits are from the observed waits. They contain
    the errors of the mean and the p95, overall and for the worst account, partition and size, and
    the number of jobs that start too early.
    """

    def errors(pair: Mapping[str, Any]) -> str:
        return ", ".join(
            f"{what} {_relative(pair['observed_s'][what], pair['simulated_s'][what])}" for what in ("mean", "p95")
        )

    missed, both = waits.get("missed", 0), waits["total"]["jobs"]
    sentence = f"{missed:,} of {missed + both:,} jobs that started in the log never start here; of the others, "
    lines = [
        f"{policy}: waits against the log: {sentence if missed else ''}{errors(waits['total'])}; half of the jobs are "
        f"within a factor of {exp(waits['median_abs_log_ratio']):.2f} (of wait + 10 s)"
    ]
    for kind, key in (("account", "by_tenant"), ("partition", "by_partition"), ("size", "by_size")):
        groups = {name: pair for name, pair in waits[key].items() if pair["jobs"] >= _FEW_WAITS}
        if len(groups) > 1:
            name, pair = max(groups.items(), key=lambda group: abs(_gap(group[1])))
            lines.append(f"  worst {kind} {name or '(none)'} ({pair['jobs']:,} jobs): {errors(pair)}")
    if waits["early"]:
        lines.append(f"  {waits['early']:,} jobs start before the log says that they were eligible")
    return lines


def _gap(pair: Mapping[str, Any]) -> float:
    """Add 10 s to both mean waits, and return the logarithm of the ratio of the simulated to the
    observed mean wait.
    """
    return log((pair["simulated_s"]["mean"] + 10) / (pair["observed_s"]["mean"] + 10))


def _relative(observed_s: float, simulated_s: float) -> str:
    if not observed_s:
        return f"{simulated_s:,.0f} s instead of 0 s"
    return f"{simulated_s / observed_s - 1:+.0%} ({simulated_s:,.0f} s, log {observed_s:,.0f} s)"


def info_tables(info: WorkloadInfo) -> list[Table | Grid]:
    """Return the statistics of a workload: distributions over jobs and tasks, and counts."""
    from rich.markup import escape
    from rich.table import Table

    counts = Table("", "", show_header=False)
    heads = ("", "mean", "median", "75%", "90%", "95%", "99%", "max")
    spreads_by_name: list[tuple[str, Percentiles | None]] = [(name, getattr(info, name)) for name in _SPREADS]
    rows = [(name, *map(short, astuple(spread))) for name, spread in spreads_by_name if spread is not None]
    spreads = Grid(count_of(info.jobs, "job"), heads, rows)
    for name in ("tasks", "edges", "instances", "gangs"):
        counts.add_row(name, f"{getattr(info, name):,}")
    for name in ("gpus_per_instance", "models", "priorities", "tenants"):
        parts = [f"{key or '(none)'}: {count:,}" for key, count in getattr(info, name).items()]
        more = f", and {len(parts) - _PARTS:,} more" if len(parts) > _PARTS else ""
        # escape the text, because names may contain any character
        counts.add_row(name, escape(on_one_line(", ".join(parts[:_PARTS]) + more)))
    counts.add_row("arrivals by hour", " ".join(map(str, info.arrivals_by_hour)))
    counts.add_row("span", f"{info.span_s / 3600:.2f} h")
    return [spreads, counts]


_OWNERS = 20
"""Maximum number of accounts, of users and of partitions to show. JSON has all of them."""


def hours_tables(info: TraceInfo) -> list[Grid]:
    """Return tables of the GPU-hours by account, user and partition, or of the core-hours if the
    log has no GPUs.
    """
    every = [row for rows in info.hours.values() for row in rows.values()]
    kind = "gpu" if any(row.gpu_hours for row in every) else "core"
    unit = "GPU-hours" if kind == "gpu" else "core-hours"
    tables = []
    for owner, rows in info.hours.items():
        used = {name: float(getattr(row, f"{kind}_hours")) for name, row in rows.items()}
        claimed = {name: float(getattr(row, f"{kind}_hours_claimed")) for name, row in rows.items()}
        names = sorted(rows, key=lambda name: (-used[name], name))
        total = ordered_sum(used.values()) or 1.0
        cells = [
            (
                name or "(none)",
                f"{rows[name].jobs:,}",
                f"{used[name]:,.1f}",
                f"{used[name] / total:.1%}",
                f"{claimed[name]:,.1f}" if claimed[name] else "",
            )
            for name in names[:_OWNERS]
        ]
        rest = names[_OWNERS:]
        theirs = ordered_sum(used[name] for name in rest)
        notes = [f"{len(rest):,} more have {theirs:,.1f} {unit} together (--json has all)"] if rest else []
        heads = (owner, "jobs", unit, "share", "by their time limits")
        tables.append(Grid(f"{unit} by {owner}: {ordered_sum(used.values()):,.1f}", heads, cells, tuple(notes)))
    return tables


_MOST_NOTES = 5

OUTSIDE = 0.01
"""If at least this share of an agent's input values lies outside the range seen in training, there
is a warning. For shipped agents, the share is at most 0.05% on their own workload, even at other
loads, 1.4% on clusters ten times as large, and 10 to 16% on presets based on real traces.
"""


def workload_notes(workloads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes about the jobs in these runs: their load, and which part of a trace was read."""
    loads = [max(of.get("gpu_load") or 0.0, of.get("cpu_load") or 0.0) for of in workloads]
    low, high = number(min(loads)), number(max(loads))
    clusters = dict.fromkeys(of["cluster"] for of in workloads if "cluster" in of)
    named = re.compile(r"cluster \((.*)\)")  # remove the word "cluster" from the default name
    notes = [on_one_line(f"cluster: {match[1] if (match := named.fullmatch(of)) else of}") for of in clusters]
    if any(loads):
        on_gpus = any((of.get("gpu_load") or 0.0) >= (of.get("cpu_load") or 0.0) for of in workloads)
        notes += [f"offered load: {low if low == high else f'{low} to {high}'} ({_LOAD if on_gpus else _CPU_LOAD})"]
    if (told := knowledge_of(workloads)) is not None and not told.is_hindsight:
        notes.append(str(told))
    notes += _beginnings(workloads)
    if len(by_types := {tuple(of.get("gpu_load_by_types", ())) for of in workloads}) == 1:
        notes += [f"demand of jobs that may use only {text}" for text in by_types.pop()[:-1]]
    notes += [f"warning: {text}" for text in dict.fromkeys(of["warning"] for of in workloads if of.get("warning"))][:1]
    notes += contradictions(workloads, urgent=False)
    if (trace := workloads[0].get("trace")) is not None:
        notes += [f"trace ({trace['format']}): {trace['read']}"]
        from dagsim.traces import reader
        from dagsim.traces.trace_options import COMMON_OPTIONS, TraceOptions

        heeded = COMMON_OPTIONS | reader(trace["format"]).uses
        usual, values = asdict(TraceOptions()), trace["options"].items()
        chosen = [
            f"{name} {plain_text(value)}" for name, value in values if name in heeded and value != usual.get(name)
        ]
        notes += [f"options: {', '.join(chosen)}"] if chosen else []
        notes += _assumed(trace["assumptions"])
    return notes


_SUBJECTS = {
    "work": "run times",
    "demand": "requested resources",
    "gang": "gangs",
    "tenant": "tenants",
    "arrival": "arrival times",
    "estimate": "time limits",
    "limits": "time limits",
    "priority": "priorities",
    "terms": "constraints and dependencies",
    "not listed": "missing jobs",
    "survivors": "missing jobs",
    "instant": "the time of the snapshot",
    "start": "start times",
    "gpu type": "GPU types",
    "gpu types": "GPU types",
    "gpus": "GPUs",
}
"""The subjects of a reader's assumptions as they appear in sentences, if they differ from the words
in JSON.
"""


def _assumed(assumptions: Mapping[str, str]) -> list[str]:
    return [f"assumption about {_SUBJECTS.get(subject, subject)}: {text}" for subject, text in assumptions.items()]


def _beginnings(workloads: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield notes on the jobs that are running and waiting at the beginning of a run that simulates
    a part or windows of a log.
    """
    states = [of["state"] for of in workloads if "state" in of]
    first = states[:1] if len({state["begins_s"] for state in states}) == 1 else states
    running, waiting, lost = (
        whole_sum(state[key] for state in first) for key in ("running", "waiting", "without_room")
    )
    more = f", {lost:,} of which were running in the log but do not fit here" if lost else ""
    counted = "later arrivals" if any(of.get("jobs") for of in workloads) else "the jobs waiting at that time"
    if len(first) == 1:
        yield (
            f"begins {first[0]['begins_s']:,.0f} s after the first job of the log, with "
            f"{count_of(running, 'job')} running "
            f"and {waiting:,} waiting{more}; metrics count {counted}"
        )
    elif first:
        yield (
            f"windows begin with the jobs running and waiting at that time, on average {running / len(first):,.1f} and "
            f"{waiting / len(first):,.1f}{more}; metrics count later arrivals"
        )
    if strange := whole_sum(state.get("elsewhere", 0) for state in first):
        names = ", ".join(next(state["unknown_nodes"] for state in first if state.get("elsewhere")))
        yield (
            f"warning: {count_of(strange, 'job that ran then was', 'jobs that ran then were')} on nodes that the "
            f"cluster lacks ({names}), as in a log of "
            "another cluster: they run on other nodes here, or wait"
        )
    if unplaced := whole_sum(state.get("unplaced", 0) for state in first):
        yield f"the log does not state the nodes of {unplaced:,} running jobs, so they are placed by best fit"
    if reasons := [reason for of in workloads if (reason := of.get("empty"))]:
        yield f"windows begin on an empty cluster: {reasons[0]}"


def contradictions(workloads: Iterable[Mapping[str, Any]], *, urgent: bool = True) -> list[str]:
    """Return sentences about policies that use information from the log in hindsight, and about
    contradictions within the input or with the site. If ``urgent`` is True, return the sentences
    that must precede any result. Otherwise, return the other sentences. If there are several
    windows, the sentences describe the worst one.
    """
    from dagsim.systems.cluster.audit.audit import Audit

    workloads = list(workloads)
    knowledge = knowledge_of(workloads) if urgent else None
    audits = [Audit.of_dict(of["audit"]) for of in workloads if "audit" in of]
    sentences = max(audits, key=Audit.worst).sentences(urgent) if audits else []
    return [str(knowledge), *sentences] if knowledge is not None and knowledge.is_hindsight else sentences


def knowledge_of(workloads: Iterable[Mapping[str, Any]]) -> Knowledge | None:
    """State what information about run times the policies had in these runs. Return None for
    systems that do not record this.
    """
    from dagsim.systems.cluster.knowledge import Knowledge

    return Knowledge.joined([of["knowledge"] for of in workloads if "knowledge" in of])


def run_notes(lines: Iterable[CellRun]) -> list[str]:
    """Return notes about policies that read true durations, agents that run on jobs or clusters
    unlike those in their training, jobs that request other GPU types, and nodes that fail faster
    than jobs finish.
    """
    outside: dict[str, float] = {}
    clairvoyant = []
    stopped = 0.0
    lines = list(lines)
    for line in lines:
        stopped = max(stopped, (line.metrics.get("failures") or 0) / max(line.metrics.get("jobs_completed") or 0, 1))
        facts = line.workload.get("decider", {})
        outside[line.policy] = max(outside.get(line.policy, 0.0), facts.get("outside_training", 0.0))
        clairvoyant += [line.policy] if facts.get("clairvoyant") else []
    names = ", ".join(dict.fromkeys(clairvoyant))
    notes = [f"clairvoyant (reads true durations, which no scheduler knows): {names}"] if names else []
    notes += losses(lines)
    if stopped > 1:
        notes.append(
            f"warning: failing nodes stopped up to {stopped:.1f} runs per completed job: nodes stay up (mean_up_s) for "
            "less time than jobs take"
        )
    return notes + [
        f"warning: {name}: up to {100 * share:.0f}% of the values it saw in a run lay outside the range of its "
        "training; it was not validated on such jobs or such a cluster"
        for name, share in outside.items()
        if share >= OUTSIDE
    ]


def losses(lines: Iterable[CellRun]) -> list[str]:
    """Return the sentences that must precede the results, because the numbers do not show what they
    state. For each policy, they state which jobs did not complete and why (only once if this is
    equal for all policies), and what the policy notes about its runs.
    """
    lines = list(lines)
    by_policy: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        by_policy.setdefault(line.policy, []).append(line.workload)
    sentences = {policy: sentence for policy, of in by_policy.items() if (sentence := incomplete_sentence(of))}
    alike = len(sentences) == len(by_policy) and len(set(sentences.values())) == 1
    notes = [*sentences.values()][:1] if alike else [f"{policy}: {sentence}" for policy, sentence in sentences.items()]
    noted = {
        f"warning: {line.policy}: {note}": None
        for line in lines
        for note in line.workload.get("decider", {}).get("notes", ())
    }
    strange = any(
        (line.metrics.get("rejected_no_such_gpu") or 0) for line in lines if "audit" not in line.workload
    )  # an audit already contains this hint
    hint = "warning: to rename a GPU type in the log, give --read gpu_names=SITE=TYPE (dagsim list gpus)"
    return [*_most(notes, "policies"), *([hint] if strange else []), *_most(list(noted), "notes of policies")]


def _most(sentences: list[str], what: str) -> list[str]:
    more = len(sentences) - _MOST_NOTES
    return [*sentences[:_MOST_NOTES], *([f"and {more:,} more {what}"] if more > 0 else [])]


def trace_notes(info: TraceInfo) -> list[str]:
    """Return notes on the statistics of a trace: which part was read, the load, and published
    figures.
    """
    busy = ", ".join(f"{number(value)} {name}" for name, value in info.mean_busy().items() if value)
    load = info.workload.load
    notes = [*info.audit.sentences(urgent=False), f"trace ({info.trace.format}): {info.trace.report}"]
    notes += _assumed(info.trace.assumptions)
    if busy:
        notes.append(f"average demand if no job had to wait: {busy}")
    if info.own and load is not None:
        notes.append(f"its own machines: {info.cluster}; offered load: {number(load.offered)}")
    else:
        notes.append(f"it lists no machines; for an offered load of 0.9: {info.cluster}")
    return notes


def published_table(info: TraceInfo) -> Table:
    """Return a table that compares published values for a whole trace with the values for the part
    that was read.
    """
    from rich.table import Table

    table = Table("", title="published values for the whole trace", title_justify="left")
    table.add_column("here", justify="right")
    table.add_column("published", justify="right")
    table.add_column("source", overflow="fold")
    for published, here in info.comparison:
        table.add_row(published.statistic, number(here), number(published.value), published.source)
    return table


_WIDTH = 80


def why_lines(wait: WaitReasons, run: str, bound: Sequence[Stretch] | None = None, unknown: str = "") -> Iterator[str]:
    """Yield sentences about the wait of a job: how long it was, and why.

    If ``bound`` is None, only GPUs and outages are reported, because the log contains nothing else.
    ``unknown`` is the reason why ``bound`` is None.
    """
    for line in _lines(wait, run, bound, unknown):
        yield from wrap(on_one_line(line), _WIDTH, subsequent_indent="  ") or [""]


def _lines(wait: WaitReasons, run: str, bound: Sequence[Stretch] | None, unknown: str) -> Iterator[str]:
    who = f" of {wait.tenant}" if wait.tenant else ""
    gpus = f"{number(wait.gpus)} GPU{'s' * (wait.gpus != 1)}"
    yield f"{run}: job {wait.job}{who}, {gpus}, arrived at {number(wait.arrival_s)} s"
    if wait.start_s is None:
        yield f"It never started; it waited {number(wait.queueing_s)} s to the end of the log."
    elif not wait.queueing_s:
        yield f"It started at {number(wait.start_s)} s and never waited."
    else:
        first = wait.start_s - wait.arrival_s
        text = f"It started at {number(wait.start_s)} s, after {number(first)} s"
        rest = wait.queueing_s - first
        yield text + (f", and waited {number(rest)} s between its runs." if rest > 0 else ".")
    if wait.stopped:
        yield f"Its runs were stopped {wait.stopped} times."
    if bound is not None:
        yield from _shares(causes_in_words(bound), wait.queueing_s)
        return
    yield from _shares([(cause.what, seconds) for cause, seconds in wait.blocked_s.items()], wait.queueing_s)
    if wait.queueing_s:
        why = f": {unknown}" if unknown else ""
        yield f"(on {', '.join(wait.types)}: where it ran; CPUs, memory and limits are not known here{why})"


def _shares(parts: Iterable[tuple[str, float]], wait_s: float) -> Iterator[str]:
    for what, seconds in parts:
        yield f"{100 * seconds / wait_s:5.1f}% of the wait ({number(seconds)} s): {what}"


def causes_in_words(bound: Sequence[Stretch]) -> list[tuple[str, float]]:
    """Describe each set of causes of a wait in words. Return the descriptions with their seconds,
    longest first.
    """
    from dagsim.systems.cluster.waits.causes import causes_by_time

    return [("; and ".join(cause.what for cause in causes), seconds) for causes, seconds in causes_by_time(bound)]


def why_tables(wait: WaitReasons, count: int) -> Iterator[Grid]:
    """Yield tables of the jobs that held the GPUs during the wait and of the jobs that overtook the
    waiting job, with at most ``count`` rows each.
    """
    if wait.holders:
        total = ordered_sum(holder.gpu_s for holder in wait.holders)
        rows = [
            (
                holder.job,
                holder.tenant or "-",
                number(holder.gpus),
                number(holder.gpu_s),
                f"{100 * holder.gpu_s / total:.1f}%",
                "later" if holder.arrived_later else "before",
            )
            for holder in wait.holders[:count]
        ]
        heads = ("job", "tenant", "GPUs", "GPU-seconds\nmeanwhile", "share", "arrived")
        yield Grid(_counted("Jobs that held the GPUs meanwhile", len(wait.holders), count), heads, rows, (), (0, 1, 5))
    if wait.overtakers:
        later = [
            (
                overtaker.job,
                overtaker.tenant or "-",
                number(overtaker.gpus),
                number(overtaker.arrival_s),
                number(overtaker.start_s),
            )
            for overtaker in wait.overtakers[:count]
        ]
        names = ("job", "tenant", "GPUs", "arrived\n(s)", "started\n(s)")
        yield Grid(
            _counted("Jobs that arrived later and went first", len(wait.overtakers), count), names, later, (), (0, 1)
        )


def _counted(what: str, there: int, shown: int) -> str:
    return f"{what}: {there:,}" + (f", the first {shown}" if there > shown else "")

"""The table ``workloads/judged``: fitted presets on what they were not fitted to, and on how they rank ten policies.

Beside the trace and its preset stands ``plain``: the same sizes, one job after the other as a Poisson process, as most
studies draw them. Traces are the publishers' files below ``$DAGSIM_DATA/traces`` (``scripts/fit_workloads.py``).

Statistics come from all jobs of the trace but its first 1 %, and from as many drawn ones (up to 20,000), in the real
cluster's own time. For the ranking, disjoint windows of the trace, spread over all of it, and as many drawn sequences
of as many jobs run at load 0.9 on the V100s of ``TRIALS``; Kendall's tau compares the orders by geometric mean of the
mean job completion times. ``ceiling`` is tau between the odd and the even windows of the trace: no model can be
expected to do better. ``--draw`` takes the windows and sequences on which every policy has run by now; the page says
where these are fewer.

Writes ``statistics.csv``, ``ranking.csv``, ``judged.md`` and ``judged.png`` below ``results/workloads``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import command
import numpy as np
from command import markdown
from fit_workloads import SOURCES
from sweeps import finished, origin

from dagsim.config.bundled import WORKLOADS
from dagsim.config.dumping import plain
from dagsim.config.schema import load_config
from dagsim.config.yaml import Setting
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.ledger import Spending
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.files import write_text
from dagsim.model import Cluster, Job
from dagsim.seeds import WINDOWS, seeds_of
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.traces import open_trace
from dagsim.workload.arrivals import Rates
from dagsim.workload.distributions import Quantiles
from dagsim.workload.sessions import Sessions

SEEDS = range(3_010_000, 3_010_012)
POLICIES = ("fifo", "fifo-fit", "easy", "sjf", "srtf", "srsf", "ljf", "saf", "hrrn", "wfp3")
NODE = {"name": "node", "gpu": "V100-16", "gpus": 8, "cpus": 96, "memory_gb": 768}
TRIALS = {"like-philly": (8, 300), "like-itp": (8, 300), "like-openb": (1, 120), "like-alibaba": (1, 60)}
"""Presets that can be judged (there are no logs of Helios and PAI here): nodes of 8 GPUs and 96 cores, and jobs of a
window.

There are only as many nodes as the widest jobs need: a few long jobs hold most of the work, and on
a large cluster no job would wait. Windows of openb and Alibaba have few jobs, as shares of GPUs and
thousands of instances take long to simulate.
"""
SCALES = tuple(2**power for power in range(2, 12))
"""Windows of the index of dispersion, in mean gaps."""
MOST = 20_000
ALONE = Quantiles(((0.0, 1.0), (1.0, 1.0)), whole=True)


def plainly(fitted: Sessions) -> Sessions:
    """Return the preset without sessions, cycles and swings."""
    grid = (np.arange(20_000) + 0.5) / 20_000
    lengths = [float(kind.jobs.at(grid).mean()) for kind in fitted.kinds]
    kinds = tuple(
        replace(kind, share=kind.share * length, jobs=ALONE) for kind, length in zip(fitted.kinds, lengths, strict=True)
    )
    total = sum(kind.share for kind in fitted.kinds)
    return replace(
        fitted, kinds=kinds, rates=Rates(fitted.rates.per_hour * sum(k.share for k in kinds) / total), alike=0
    )


def statistics(jobs: Sequence[Job]) -> dict[str, float]:
    """Statistics that the presets were not fitted to. Times are in hours unless stated otherwise."""
    time_s = np.array([job.arrival_s for job in jobs]) - jobs[0].arrival_s
    gpus = np.array([_widest(job) for job in jobs])
    held = np.array([_held(job) for job in jobs])
    length = np.array([max(sum(task.work for task in job.tasks), 1.0) for job in jobs])
    gaps = np.diff(time_s)
    hourly = np.bincount((time_s // 3600).astype(int), held)
    capped = np.minimum(hourly, np.quantile(hourly, 0.99))
    top = np.sort(held)[::-1][: max(len(held) // 100, 10)]
    values = {
        "jobs": float(len(jobs)),
        "coefficient of variation of gaps": float(gaps.std() / gaps.mean()),
        "index of dispersion, 20 gaps": dispersion(time_s, 20),
        "index of dispersion, 500 gaps": dispersion(time_s, 500),
        "autocorrelation of hourly GPU-time, 1 h": _lagged(capped, 1),
        "autocorrelation of hourly GPU-time, 24 h": _lagged(capped, 24),
        "tail index of GPU-time (Hill, top 1 %)": float(1 / np.log(top / top[-1])[:-1].mean()),
        "GPU-time of the top 1 % of jobs": float(top.sum() / held.sum()),
        "correlation of log length and log GPUs": _correlation(np.log(length), np.log(np.maximum(gpus, 0.01))),
        "median gap of the same tenant, of the mean gap": float("nan"),
    }
    tenants = [job.tenant for job in jobs]
    if len(set(tenants)) > 1:
        last: dict[str, float] = {}
        own = []
        for tenant, time in zip(tenants, time_s.tolist(), strict=True):
            if tenant in last:
                own.append(time - last[tenant])
            last[tenant] = time
        values["median gap of the same tenant, of the mean gap"] = float(np.median(own) / gaps.mean())
    return values


def dispersion(time_s: np.ndarray, gaps: float) -> float:
    """Variance over mean of the arrivals in windows of this many mean gaps; 1 for a Poisson
    process.
    """
    width = gaps * time_s[-1] / len(time_s)
    counts = np.bincount((time_s // width).astype(int))[:-1]
    return float(counts.var() / counts.mean()) if len(counts) > 5 else float("nan")


def drawn(workload: Sessions, jobs: int, seed: int) -> list[Job]:
    """Draw jobs in the real cluster's own time, so the load is the natural one."""
    cluster = Cluster.of({"V100-16": 64}, per_node=8, cpus_per_gpu=12.0, memory_gb_per_gpu=96.0)
    natural = workload.natural_load(cluster, Recorded())
    return list(replace(workload, count=jobs, measure=None, load=natural).jobs(cluster, Recorded(), seed))


def grids(name: str, data: Path, seeds: Sequence[int]) -> dict[str, SweepGrid]:
    """Return the experiments of a preset: windows of its trace, the preset, and its plain variant."""
    nodes, jobs = TRIALS[name]
    common = {"cluster.groups": [NODE | {"count": nodes}], "runtime": {"kind": "recorded"}}
    trace = {"kind": "trace", "path": str(data / SOURCES[name][0]), "window": jobs, "windows": len(seeds)}
    preset = {"preset": name, "count": jobs, "load_mode": "exact", "measure": None}
    config = load_config(None, [Setting("preset", "workload", preset)])
    assert isinstance(config.workload, Sessions)
    poisson = plain(config.model_copy(update={"workload": plainly(config.workload)}))["workload"]
    workloads = {"trace": trace | {"options": {"load": 0.9}}, name: preset, "plain": poisson}
    axis = Axis("policy", POLICIES, POLICIES)
    return {
        source: SweepGrid(
            f"workloads-{name}-{source}",
            None,
            (axis,),
            common | {"workload": workload},
            seeds_of(WINDOWS, len(seeds)) if source == "trace" else seeds,
        )
        for source, workload in workloads.items()
    }


def rank(name: str, data: Path, seeds: Sequence[int], options: command.Options) -> dict[str, dict[str, np.ndarray]]:
    """For each source and policy, the mean completion time of every window or sequence that all
    policies have run on.
    """
    means_s = {}
    for source, grid in grids(name, data, seeds).items():
        runs = finished(grid, options)
        counts = Counter(run.seed for run in runs)
        lines = [run for run in runs if counts[run.seed] == len(POLICIES)]
        means_s[source] = {policy: _column(lines, policy, "jct_s.mean") for policy in POLICIES}
        means_s[source]["wait of fifo-fit"] = _column(lines, "fifo-fit", "queueing_s.mean")
    return means_s


def tau(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """Kendall's tau between two rankings of the policies, by geometric mean."""
    a, b = (np.array([np.log(means_s[policy]).mean() for policy in POLICIES]) for means_s in (one, other))
    upper = np.triu_indices(len(POLICIES), 1)
    signs = np.sign(np.subtract.outer(a, a)[upper]) * np.sign(np.subtract.outer(b, b)[upper])
    return float(signs.mean())


def judge(name: str, data: Path, seeds: Sequence[int], options: command.Options) -> dict[str, Any]:
    """Judge one preset."""
    every = list(open_trace(data / SOURCES[name][0]).jobs())
    real = every[round(0.01 * len(every)) :]
    fitted = WORKLOADS[name].workload
    assert isinstance(fitted, Sessions)
    count = min(len(real), MOST)
    sources = {
        "trace": [real],
        name: [drawn(fitted, count, seed) for seed in seeds[:5]],
        "plain": [drawn(plainly(fitted), count, seed) for seed in seeds[:5]],
    }
    stats = {}
    for source, several in sources.items():
        drawn_stats = [statistics(jobs) for jobs in several]
        stats[source] = {title: float(np.median([of[title] for of in drawn_stats])) for title in drawn_stats[0]}
    curves = {
        source: np.median([[dispersion(_times(jobs), scale) for scale in SCALES] for jobs in several], axis=0)
        for source, several in sources.items()
    }
    ranked = rank(name, data, seeds, options)
    odd, even = ({policy: values[part::2] for policy, values in ranked["trace"].items()} for part in (0, 1))
    return {
        "statistics": stats,
        "dispersion": curves,
        "ranked": ranked,
        "tau": {source: tau(ranked["trace"], ranked[source]) for source in (name, "plain")}
        | {"ceiling": tau(odd, even)},
    }


def page(presets: Mapping[str, dict[str, Any]], spending: Spending) -> Iterator[str]:
    """Return the Markdown page."""
    trials = ", ".join(
        f"{name}: {jobs} jobs, {8 * nodes} GPUs, {96 * nodes} cores" for name, (nodes, jobs) in TRIALS.items()
    )
    method = (
        f"windows and sequences at load 0.9 ({trials}); statistics of drawn jobs are medians over 5 seeds; tau by "
        "geometric mean of mean JCTs"
    )
    yield "# Fitted presets beside their traces\n"
    yield origin(spending, method, "drawn sequences, and as many disjoint windows of each trace") + "\n"
    yield "`plain` has the same sizes without sessions, cycles and swings, as a Poisson process. None of these"
    yield "figures was fitted. `ceiling`: tau between the odd and the even windows of the trace itself. There are no"
    yield "logs here to judge `like-helios` and `like-pai` by.\n"
    yield "## Ranking of ten policies (Kendall's tau with the trace's own windows)\n"
    taus = (
        (f"`{name}`", *(f"{judged['tau'][source]:.2f}" for source in (name, "plain", "ceiling")))
        for name, judged in presets.items()
    )
    yield from markdown(("preset", "preset", "plain", "ceiling"), taus, numbers=(1, 2, 3))
    yield from fewer(presets, len(spending.seeds))
    for name, judged in presets.items():
        yield f"\n## `{name}`\n"
        sources, stats, ranked = ("trace", name, "plain"), judged["statistics"], judged["ranked"]
        rows = [(title, *(_cell(stats[source][title]) for source in sources)) for title in stats["trace"]]
        waits = (_cell(float(np.median(ranked[source]["wait of fifo-fit"]))) for source in sources)
        rows.append(("mean wait under fifo-fit at load 0.9, median (s)", *waits))
        yield from markdown(("statistic", "trace", "preset", "plain"), rows, numbers=(1, 2, 3))


def fewer(presets: Mapping[str, dict[str, Any]], windows: int) -> Iterator[str]:
    """Return a line for every source with fewer windows or sequences than the rest."""
    for name, preset in presets.items():
        for source, values in preset["ranked"].items():
            if (n := len(values[POLICIES[0]])) < windows:
                yield f"\nOf `{name}` the ranking has n = {n} for *{_as(source, name).replace('fitted', 'preset')}*."


def draw(presets: Mapping[str, dict[str, Any]], path: Path) -> None:
    """Draw the index of dispersion by scale, and the policies against fifo, for trace, preset and
    plain.
    """
    from dagsim.report.plots.style import figure, save

    drawn = figure(10.0, 2.6 * len(presets))
    axes = drawn.subplots(len(presets), 2, squeeze=False)
    for (left, right), (name, judged) in zip(axes, presets.items(), strict=True):
        for source, look in (("trace", "k-"), (name, "C0-"), ("plain", "C1--")):
            left.loglog(SCALES, judged["dispersion"][source], look, label=source)
            relative = [_relative(judged["ranked"][source], policy) for policy in POLICIES]
            right.semilogy(range(len(POLICIES)), relative, look[:-1] + "o" if source != "plain" else "C1x")
        left.set_xlabel("window, in mean gaps", fontsize=8)
        left.set_ylabel("index of dispersion", fontsize=8)
        left.legend(fontsize=7)
        right.set_xticks(range(len(POLICIES)), POLICIES, rotation=45, fontsize=7)
        right.set_ylabel("mean JCT / that of fifo", fontsize=8)
        right.set_title(f"tau {judged['tau'][name]:.2f} ({name}), {judged['tau']['plain']:.2f} (plain)", fontsize=8)
    save(drawn, path)


def tables(presets: Mapping[str, dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return statistics and rankings as rows."""
    stats, ranks = [], []
    for name, judged in presets.items():
        of, ranked = judged["statistics"], judged["ranked"]
        taus = {f"tau_{_as(key, name)}": value for key, value in judged["tau"].items()}
        for statistic in of["trace"]:
            values = {_as(source, name): by[statistic] for source, by in of.items()}
            stats.append({"preset": name, "statistic": statistic, **values})
        for policy in POLICIES:
            ratios = {_as(source, name): _relative(ranked[source], policy) for source in ("trace", name, "plain")}
            ranks.append({"preset": name, "policy": policy, **ratios, **taus})
    return stats, ranks


def _as(source: str, name: str) -> str:
    return "fitted" if source == name else source


def _relative(by: Mapping[str, np.ndarray], policy: str) -> float:
    return float(np.exp(np.log(by[policy] / by["fifo"]).mean()))


def _column(lines: Sequence[CellRun], policy: str, metric: str) -> np.ndarray:
    return np.array([line.metrics[metric] for line in lines if line.policy == policy], float)


def _times(jobs: Sequence[Job]) -> np.ndarray:
    return np.array([job.arrival_s for job in jobs]) - jobs[0].arrival_s


def _widest(job: Job) -> float:
    return max(task.instances * (task.gpus or task.cpus) for task in job.tasks)


def _held(job: Job) -> float:
    return sum(task.work * task.instances * (task.gpus or task.cpus) for task in job.tasks)


def _lagged(values: np.ndarray, lag: int) -> float:
    return _correlation(values[lag:], values[:-lag])


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if one.std() > 0 and other.std() > 0 else float("nan")


def _cell(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def write(spending: Spending, options: command.Options, say: command.Say) -> None:
    """Write statistics, rankings, the page and the picture."""
    data, judged = Path(os.environ.get("DAGSIM_DATA", ".")) / "traces", {}
    for name in TRIALS:
        judged[name] = judge(name, data, spending.seeds, options)
        say(f"{name} {judged[name]['tau']}")
    stats, ranks = tables(judged)
    folder = options.folder / "workloads"
    command.write_rows(folder / "statistics.csv", stats)
    command.write_rows(folder / "ranking.csv", ranks)
    write_text(folder / "judged.md", "\n".join(page(judged, spending)) + "\n")
    draw(judged, folder / "judged.png")

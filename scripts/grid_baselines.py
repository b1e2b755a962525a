"""Every policy on a grid of workloads: which to use when.

    python scripts/grid_baselines.py [--seeds 5] [--workers 2] [--policy NAME ...] [--out results/baselines] [--draw]

Loads 0.5 to 1.1, a homogeneous and a heterogeneous cluster of 32 GPUs, independent and DAG jobs, exact and noisy
durations: 32 cells. Each policy sees the same jobs on the same report seeds. Runs are kept as they end
(``grid.jsonl``), so that a stopped grid goes on where it was; ``grid.csv`` has per cell and policy the mean completion
time and its ratio to SJF (geometric mean over seeds) with a 95 % interval, ``grid.png`` draws the ratios. ``--draw``
only makes the table and the figure anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import track

from dagsim.config.schema import Config, load_config
from dagsim.experiment.run import simulate
from dagsim.metrics import to_csv
from dagsim.metrics.standings import standings
from dagsim.seeds import REPORT, seeds_of
from dagsim.systems.cluster.policies import POLICIES

LOADS = (0.5, 0.7, 0.9, 1.1)
CLUSTERS = {
    "homogeneous": "[{name: v100, count: 4, gpu: V100-16, gpus: 8, cpus: 96, memory_gb: 768}]",
    "heterogeneous": None,
}
SHAPES = {"independent": "heterogeneous", "dag": "heterogeneous-dag"}
ESTIMATES = ("exact", "noisy")
KEPT = ("jct_s.mean", "jct_s.p99", "bounded_slowdown.mean", "rho_worst", "energy_kwh", "jobs_arrived", "jobs_completed")
REFERENCE = "sjf"
NAMES = ("policy", "mean", "ratio", "ratio_low", "ratio_high", "wins", "jct_s.p99", "energy_kwh")
TUNED = ("eft-wait[theta=0.85,order=work]", "weighted-fair[alpha=-1]")
"""Variants that ``dagsim tune`` found, beside the policies as they are."""
SLOW = ("rollout", "plan-ahead")
"""Policies that take seconds per run; they come last."""


class Cell(NamedTuple):
    """One workload on one cluster."""

    cluster: str
    shape: str
    load: float
    estimates: str

    def __str__(self) -> str:
        return f"{self.cluster} {self.shape} {self.load} {self.estimates}"

    def config(self) -> Config:
        """As an experiment."""
        groups = CLUSTERS[self.cluster]
        settings = [f"workload={SHAPES[self.shape]}", f"workload.load={self.load}", f"estimates.kind={self.estimates}"]
        return load_config(None, [*settings, *([f"cluster.groups={groups}"] if groups else [])])


CELLS = [Cell(*each) for each in product(CLUSTERS, SHAPES, LOADS, ESTIMATES)]


class RunMetrics(NamedTuple):
    """What ``standings`` compares."""

    policy: str
    seed: int
    metrics: dict[str, Any]


def run(cell: Cell, policy: str, seed: int) -> dict[str, Any]:
    """One run, as a line of ``grid.jsonl``."""
    metrics = simulate(cell.config(), policy, seed).summary.to_dict()
    return {"cell": list(cell), "policy": policy, "seed": seed, "metrics": {name: metrics[name] for name in KEPT}}


def table(runs: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Per cell and policy the mean, and the ratio to SJF; only what ran on every seed."""
    rows: list[dict[str, Any]] = []
    for cell in CELLS:
        lines = [
            RunMetrics(each["policy"], each["seed"], each["metrics"]) for each in runs if each["cell"] == list(cell)
        ]
        seeds = {line.seed for line in lines if line.policy == REFERENCE}
        ran: dict[frozenset[int], set[str]] = {}
        for policy in {line.policy for line in lines}:
            ran.setdefault(frozenset(line.seed for line in lines if line.policy == policy) & seeds, set()).add(policy)
        for on, policies in sorted(ran.items(), key=lambda each: -len(each[0])):
            mine = [line for line in lines if line.seed in on and line.policy in {*policies, REFERENCE}]
            for standing in standings(mine, reference=REFERENCE):
                if standing.policy in policies:
                    told = standing.to_dict()
                    rows.append({**cell._asdict(), "seeds": len(on), **{name: told[name] for name in NAMES}})
    return {name: [row[name] for row in rows] for name in rows[0]}


def draw(made: dict[str, list[Any]], path: Path) -> None:
    """The ratios as a heat map: policies down, cells across."""
    from dagsim.report.plots.style import figure, save

    ratio = {(r[0], tuple(r[1:])): v for r, v in zip(_keys(made), made["ratio"], strict=True) if v is not None}
    policies = list(dict.fromkeys(made["policy"]))
    mean = {p: float(np.mean([v for (name, _), v in ratio.items() if name == p] or [np.inf])) for p in policies}
    policies.sort(key=lambda policy: mean[policy])
    grid = np.array([[ratio.get((policy, tuple(cell)), np.nan) for cell in CELLS] for policy in policies])
    drawn = figure(13.0, 1.8 + 0.24 * len(policies))
    axes = drawn.add_subplot()
    image = axes.imshow(np.log2(grid), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for row, column in np.ndindex(*grid.shape):
        value = grid[row, column]
        if np.isfinite(value):
            colour = "white" if abs(np.log2(value)) > 0.7 else "#222222"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=5.5, color=colour)
    axes.set_yticks(range(len(policies)), policies, fontsize=7)
    names = [f"{cell.load} {cell.estimates}" for cell in CELLS]
    axes.set_xticks(range(len(CELLS)), names, rotation=90, fontsize=6.5)
    for block, (cluster, shape) in enumerate(product(CLUSTERS, SHAPES)):
        wide = len(CELLS) // 4
        axes.text(wide * (block + 0.5) - 0.5, -1.0, f"{cluster}, {shape}", ha="center", fontsize=8)
        axes.axvline(wide * block - 0.5, color="white", linewidth=3)
    bar = drawn.colorbar(image, ax=axes, ticks=[-1, -0.5, 0, 0.5, 1], fraction=0.02, pad=0.01)
    bar.ax.set_yticklabels(["0.5", "0.71", "1", "1.41", "2"], fontsize=7)
    bar.set_label("mean completion time / that of SJF", fontsize=7)
    save(drawn, path)


def _keys(made: dict[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(*(made[name] for name in ("policy", *Cell._fields)), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--policy", action="append", help="only this one, beside the reference; repeatable")
    parser.add_argument("--out", type=Path, default=Path("results/baselines"))
    parser.add_argument("--draw", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "grid.jsonl"
    runs = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(tuple(each["cell"]), each["policy"], each["seed"]) for each in runs}
    policies = [REFERENCE, *given.policy] if given.policy else [*POLICIES.names(), *TUNED]
    if not given.draw:
        todo = [
            (cell, policy, seed)
            for seed in seeds_of(REPORT, given.seeds)
            for policy in policies
            for cell in CELLS
            if (tuple(cell), policy, seed) not in done
        ]
        todo.sort(key=lambda each: each[1] in SLOW)
        with ProcessPoolExecutor(given.workers) as pool, kept.open("a") as file:
            for future in track(as_completed([pool.submit(run, *each) for each in todo]), "runs", total=len(todo)):
                runs.append(future.result())
                file.write(json.dumps(runs[-1]) + "\n")
                file.flush()
    made = table(runs)
    (given.out / "grid.csv").write_text(to_csv(made), encoding="utf-8")
    draw(made, given.out / "grid.png")


if __name__ == "__main__":
    main()

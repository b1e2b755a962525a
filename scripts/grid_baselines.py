"""Every policy on a grid of workloads: which to use when.

    python scripts/grid_baselines.py [--seeds 30] [--policy NAME ...] [--out results/baselines] [--fresh | --again]
    python scripts/grid_baselines.py --draw

Loads 0.5 to 1.1, a homogeneous and a heterogeneous cluster of 32 GPUs, independent and DAG jobs, exact and noisy
durations: 32 cells. Each policy sees the same jobs on the same report seeds, which the ledger gives once
(``results/seeds.yaml``). Runs are kept as they end (``grid.jsonl``), seed after seed, so that a stopped grid goes on
where it was; ``SLOW`` policies, which take seconds a run, run last, and on the first ``SLOW_SEEDS`` seeds only.
``grid.csv`` has per cell and policy the mean completion time, its ratio to SJF with interval and verdict, and n;
``grid.md`` says how it was made; ``grid.png`` draws the ratios. ``--draw`` makes these of the seeds that all cells have
by now.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from kept import KeptRuns

from dagsim.config.schema import Config, load_config
from dagsim.errors import ConfigError
from dagsim.experiment.ledger import Ledger
from dagsim.files import write_text
from dagsim.metrics import to_csv
from dagsim.metrics.standings import METHOD, standings
from dagsim.systems.cluster.policies import POLICIES

ROOT = Path(__file__).parent.parent
LOADS = (0.5, 0.7, 0.9, 1.1)
CLUSTERS = {
    "homogeneous": "[{name: v100, count: 4, gpu: V100-16, gpus: 8, cpus: 96, memory_gb: 768}]",
    "heterogeneous": None,
}
SHAPES = {"independent": "heterogeneous", "dag": "heterogeneous-dag"}
ESTIMATES = ("exact", "noisy")
REFERENCE = "sjf"
COLUMNS = ("policy", "mean", "ratio", "ratio_low", "ratio_high", "wins", "verdict", "jct_s.p99", "energy_kwh")
TUNED = ("eft-wait[theta=0.85,order=work]", "weighted-fair[alpha=-1]")
"""Variants that ``dagsim tune`` found, beside the policies as they are."""
SLOW = ("gavel", "plan-ahead", "rollout")
"""Policies that take seconds per run."""
SLOW_SEEDS = 5


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


def table(kept: KeptRuns, seeds: Sequence[int]) -> dict[str, list[Any]]:
    """Per cell and policy the mean, and the ratio to SJF; slow policies on the first seeds, by themselves."""
    rows: list[dict[str, Any]] = []
    for cell in CELLS:
        for names, on in ((fast(), seeds), (SLOW, seeds[:SLOW_SEEDS])):
            lines = kept.of(str(cell), tuple(dict.fromkeys((REFERENCE, *names))), on)
            there = {policy: sum(line.policy == policy for line in lines) for policy in names}
            lines = [line for line in lines if line.policy == REFERENCE or there[line.policy] == len(on)]
            for standing in standings(lines, reference=REFERENCE):
                if standing.policy in names:
                    told = standing.to_dict()
                    rows.append({**cell._asdict(), "n": len(on), **{name: told[name] for name in COLUMNS}})
    return {name: [row[name] for row in rows] for name in rows[0]}


def fast() -> tuple[str, ...]:
    """The policies that run on all seeds."""
    return tuple(name for name in (*POLICIES.names(), *TUNED) if name not in SLOW)


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


def run(kept: KeptRuns, policies: Sequence[str], seeds: Sequence[int]) -> None:
    """Run what is missing, seed after seed."""
    for seed in seeds:
        for cell in CELLS:
            kept.run(str(cell), cell.config(), {name: name for name in policies}, [seed])
        print(f"seed {seed}: {len(policies)} policies on {len(CELLS)} cells", flush=True)


def complete(kept: KeptRuns, seeds: Sequence[int]) -> Sequence[int]:
    """The seeds, from the first on, on which every fast policy has run in every cell."""
    names = fast()
    whole = [all(len(kept.of(str(cell), names, [seed])) == len(names) for cell in CELLS) for seed in seeds]
    return seeds[: whole.index(False) if False in whole else len(seeds)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--policy", action="append", help="only this one, beside the reference; repeatable")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "baselines")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--fresh", action="store_true", help="report seeds of the pool that were not spent yet")
    parser.add_argument("--again", action="store_true", help="the same report seeds again; the table says so")
    given = parser.parse_args()
    ledger = Ledger(ROOT / "results" / "seeds.yaml")
    try:
        spending = ledger.spend(
            "baselines/grid", given.seeds, "python scripts/grid_baselines.py", fresh=given.fresh, again=given.again
        )
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    kept = KeptRuns(given.out / "grid.jsonl")
    if not given.draw:
        chosen = [REFERENCE, *given.policy] if given.policy else fast()
        run(kept, chosen, spending.seeds)
        if not given.policy:
            run(kept, (REFERENCE, *SLOW), spending.seeds[:SLOW_SEEDS])
    seeds = complete(kept, spending.seeds)
    made = table(kept, seeds)
    write_text(given.out / "grid.csv", to_csv(made))
    draw(made, given.out / "grid.png")
    slow = ", ".join(f"`{name}`" for name in SLOW)
    made_by = f"{spending.sentence(METHOD, n=len(seeds))} {slow} ran on the first {SLOW_SEEDS} of these only."
    write_text(given.out / "grid.md", f"# The grid of baselines (`grid.csv`)\n\n{made_by}\n")
    if seeds == spending.seeds:
        ledger.close(spending)
    return 0


if __name__ == "__main__":
    sys.exit(main())

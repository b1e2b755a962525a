"""Train agents on four workloads with three seeds each, and judge them once: the table of ``results/agents/``.

    python scripts/train_grid.py train [--runs results/agents/runs] [--workers 2] [--only NAME ...]
    python scripts/train_grid.py report [--runs results/agents/runs] [--out results/agents]
    python scripts/train_grid.py transfer [--out results/agents] [--trace batch_task.csv.gz]

The cells are independent and DAG jobs at load 0.9 and 1.1 on the default heterogeneous cluster. ``train`` runs ``dagsim
train`` for every cell and seed, then the other algorithms and the ablations (on independent jobs at load 1.1, one seed,
short trainings), some at a time, and leaves out what is there already. ``report`` chooses the best cheap non-preemptive
heuristic, tuned ones included, on validation seeds, then runs it and every agent on the 200 report seeds, and writes
``report.csv``, ``report.md``, learning curves and the best agent of each cell. ``transfer`` puts the agents of two
cells, as they are, on loads, clusters, estimates and a trace (Alibaba 2018, its tasks given a GPU each) that they were
not trained on.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from dagsim.config.schema import Config, load_config
from dagsim.experiment.carry_out import write_comparison
from dagsim.experiment.kept_files import CellRun
from dagsim.experiment.training.log import read_log
from dagsim.experiment.training.report import PolicyRuns, best_heuristic
from dagsim.metrics.standings import PolicyResult, standings
from dagsim.report.plots import comparison, save
from dagsim.report.plots.curves import learning_curves
from dagsim.seeds import REPORT, VALIDATION, seeds_of

ROOT = Path(__file__).parent.parent
LOADS = (0.9, 1.1)
SEEDS = (1, 2, 3)
ABLATED = "independent-1.1"
ABLATION_ITERATIONS = 40
"""Length of the training of the ablations and of their base, ``short``."""


class Run(NamedTuple):
    """One training: its name, and its differences from the configuration of its cell."""

    name: str
    cell: str
    settings: tuple[str, ...]
    seed: int


def runs() -> Iterator[Run]:
    """The grid, most important first."""
    for seed in SEEDS:
        for cell in cells():
            yield Run(f"{cell}-ppo-{seed}", cell, (), seed)
    short = f"train.iterations={ABLATION_ITERATIONS}"
    variants = {
        "short": (),
        "reinforce": ("train.algorithm={kind: reinforce, discount_jcts: [10.0, 40.0]}",),
        "d3qn": ("train.algorithm={kind: d3qn}",),
        "sac": ("train.algorithm={kind: sac}",),
        "mlp": ("train.net.kind=mlp",),
        "unshaped": ("train.reward={job_seconds: 1.0}",),
        "look-ahead-off": ("train.codec.look_ahead=off",),
        "critic": ("train.algorithm.advantage=critic", "train.algorithm.sequences=32", "train.algorithm.replicas=1"),
        "attention": ("train.net.kind=attention",),
        "linear": ("train.net.kind=linear",),
        "look-ahead-cdf": ("train.codec.look_ahead=cdf",),
        "look-ahead-per-gpu": ("train.codec.look_ahead=per_gpu",),
        "undiscounted": ("train.algorithm.discount_jcts=[1000.0, 1000.0]",),
        "cloned": ("train.warm_start=eft-wait",),
    }
    for name, settings in variants.items():
        half = () if any("train.algorithm" in each for each in settings) else ("train.algorithm.sequences=4",)
        yield Run(f"{ABLATED}-{name}-1", ABLATED, (short, *half, *settings), 1)


def cells() -> Iterator[str]:
    """Names of the workloads."""
    for shape in ("independent", "dag"):
        for load in LOADS:
            yield f"{shape}-{load}"


def arguments(run: Run) -> tuple[str, list[str]]:
    """Return configuration and settings of a run."""
    shape, load = run.cell.rsplit("-", 1)
    config = "train/ppo-dag" if shape == "dag" else "train/ppo"
    return config, [f"workload.load={load}", *run.settings]


def train(run: Run, root: Path) -> str:
    """Train it, unless its folder exists."""
    out = root / run.name
    if any(out.glob("*/best.pt")) and any('"done"' in path.read_text() for path in out.glob("*/status.json")):
        return f"{run.name}: there already"
    shutil.rmtree(out, ignore_errors=True)
    config, settings = arguments(run)
    command = [sys.executable, "-m", "dagsim", "train", "--config", config, "--seed", str(run.seed), "--no-report"]
    for setting in ("train.reference=eft-wait", *settings):
        command += ["--set", setting]
    done = subprocess.run([*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, check=False)
    return f"{run.name}: {done.stdout.strip().splitlines()[0] if done.returncode == 0 else done.stderr.strip()}"


def judge(cell: str, root: Path, out: Path) -> list[PolicyResult]:
    """Run every agent of a cell and the best heuristics on the report seeds."""
    torch.set_num_threads(1)
    mine = [run for run in runs() if run.cell == cell and any((root / run.name).glob("*/best.pt"))]
    folders = {run.name.removeprefix(f"{cell}-"): next((root / run.name).glob("*/best.pt")).parent for run in mine}
    config, settings = arguments(Run("", cell, (), 0))
    chosen: Config = load_config(ROOT / "configs" / f"{config}.yaml", settings)
    best, _ = best_heuristic(PolicyRuns(root / "trials" / cell, chosen), seeds_of(VALIDATION, 100))
    agents = {name: folder / "best.pt" for name, folder in folders.items()}
    heuristics = tuple(dict.fromkeys((best, "eft-wait", "sjf", "fifo")))
    lines = judged(root / "trials" / cell, chosen, agents, heuristics, seeds_of(REPORT, 200))
    ranked = standings(lines, reference=best)
    write_comparison(ranked, out / f"{cell}.csv")
    ppo = {name: read_log(folder) for name, folder in folders.items() if name.startswith("ppo")}
    save(learning_curves(ppo), out / f"{cell}.png")
    first = min((standing for standing in ranked if standing.policy in ppo), key=lambda each: each.mean.value)
    shutil.copy(folders[first.policy] / "best.pt", out / f"{cell}.pt")
    if cell == ABLATED:
        save(comparison({each.policy: each.ratio for each in ranked}, best), out / "ablations.png")
    return ranked


def judged(
    folder: Path, config: Config, agents: dict[str, Path], heuristics: Sequence[str], seeds: Sequence[int]
) -> list[CellRun]:
    """Run heuristics, then the agents of checkpoint files, on the seeds, and keep the runs in ``folder``."""
    policies = {name: name for name in heuristics}
    policies |= {name: f'agent[checkpoint="{file}"]' for name, file in agents.items()}
    return PolicyRuns(folder, config).run("report", policies, seeds)


def table(cell: str, ranked: list[PolicyResult]) -> Iterator[str]:
    """Markdown lines: ratios to the best heuristic with their intervals."""
    reference = next(each.policy for each in ranked if each.ratio == (1.0, 1.0, 1.0))
    yield f"\n## {cell}: against `{reference}`\n"
    yield "| policy | mean JCT (s) | ratio | 95 % interval | wins | p99 JCT (s) |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for each in ranked:
        low, high = each.ratio.low, each.ratio.high
        mark = " *" if each.best else ""
        yield (
            f"| {each.policy}{mark} | {each.mean.value:,.0f} | {each.ratio.value:.4f} | {low:.4f} .. {high:.4f} "
            f"| {100 * each.wins:.0f} % | {each.beside['jct_s.p99']:,.0f} |"
        )


TRANSFERS: dict[str, tuple[str, ...]] = {
    "load 0.7": ("workload.load=0.7",),
    "load 1.3": ("workload.load=1.3",),
    "4 A100, 24 T4": ("cluster.groups=[{name: a, gpu: A100-40, gpus: 4}, {name: t, count: 3, gpu: T4, gpus: 8}]",),
    "16 A100, 16 V100, 32 T4": (
        "cluster.groups=[{name: a, count: 2, gpu: A100-40, gpus: 8}, {name: v, count: 2, gpu: V100-16, gpus: 8},"
        " {name: t, count: 4, gpu: T4, gpus: 8}]",
    ),
    "noisy estimates": ("estimates.kind=noisy",),
    "three times as many jobs": ("workload.count=300",),
}


def transfer(out: Path, trace: Path | None) -> Iterator[str]:
    """Markdown lines: the agents in settings they were not trained for, compared with heuristics."""
    yield "# Agents where they were not trained\n"
    yield "Ratios of mean completion times to `eft-wait` as it is, with 95 % intervals. Made by"
    yield "`python scripts/train_grid.py transfer`; 60 report seeds each, of the trace 20 windows of 100 jobs.\n"
    yield "| agent | workload | PPO | `eft-wait[theta=0.85,order=work]` | `sjf` |"
    yield "| --- | --- | --- | --- | --- |"
    heuristics = ("eft-wait", "eft-wait[theta=0.85,order=work]", "sjf")
    for cell in ("independent-1.1", "dag-0.9"):
        agents = {"ppo": out / f"{cell}.pt"}
        config, settings = arguments(Run("", cell, (), 0))
        for name, changes in TRANSFERS.items():
            chosen = load_config(ROOT / "configs" / f"{config}.yaml", [*settings, *changes])
            with TemporaryDirectory() as folder:
                lines = judged(Path(folder), chosen, agents, heuristics, seeds_of(REPORT, 60))
            yield table_row(cell, name, lines)
        if trace is not None:
            lines = []
            for window in range(20):
                options = f"{{start: {300 * window}, limit: 100, gpus_per_task: 1, load: 0.9}}"
                chosen = load_config(None, [f"workload={{kind: trace, path: {trace}, options: {options}}}"])
                with TemporaryDirectory() as folder:
                    lines += judged(Path(folder), chosen, agents, heuristics, [window])
            yield table_row(cell, trace.name, lines)


def table_row(cell: str, name: str, lines: list[CellRun]) -> str:
    """One row of the table of transfers."""
    ranked = {each.policy: each.ratio for each in standings(lines, reference="eft-wait")}
    cells = [
        f"{ranked[policy].value:.3f} [{ranked[policy].low:.3f}, {ranked[policy].high:.3f}]"
        for policy in ("ppo", "eft-wait[theta=0.85,order=work]", "sjf")
    ]
    print(cell, name, *cells, flush=True)
    return f"| {cell} | {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "report", "transfer"])
    parser.add_argument("--runs", type=Path, default=ROOT / "results" / "agents" / "runs")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "agents")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="names of runs (train) or cells (report)")
    parser.add_argument("--trace", type=Path, help="transfer: a batch_task.csv of Alibaba 2018")
    options = parser.parse_args()
    if options.what == "transfer":
        torch.set_num_threads(1)
        text = "\n".join(transfer(options.out, options.trace)) + "\n"
        (options.out / "transfer.md").write_text(text, encoding="utf-8")
        return
    if options.what == "train":
        todo = [run for run in runs() if not options.only or run.name in options.only]
        with ThreadPoolExecutor(options.workers) as pool:
            for line in pool.map(lambda run: train(run, options.runs), todo):
                print(line, flush=True)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for cell in options.only or cells():
        lines = list(table(cell, judge(cell, options.runs, options.out)))
        (options.out / f"{cell}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(*lines, sep="\n", flush=True)
    there = [path for cell in cells() if (path := options.out / f"{cell}.md").exists()]
    parts = [path.read_text(encoding="utf-8") for path in there]
    head = (
        "# All trainings, on report seeds that other tables use, too\n\nMade by `train_grid.py train` and `report`.\n"
    )
    (options.out / "trainings.md").write_text(head + "".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()

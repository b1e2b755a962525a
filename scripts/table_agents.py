"""The tables ``agents/cells`` and ``agents/itp``: agents of one workload beside references, with exact and noisy
estimates.

The four cells are independent and DAG jobs at load 0.9 and 1.1; ``itp`` are disjoint windows of the last fifth of
Microsoft's ITP trace. ``results/agents/references.yaml`` names the references of each cell, which were chosen on
validation seeds (``dagsim sweep results/agents/choice.yaml``). The agent of a cell is ``results/agents/CELL.pt``, a
copy of the ``best.pt`` of its training run, unless it ships. Preemptive policies pay ``RESTART_S`` seconds of set-up
for every return. The roll-out simulates the jobs that are there before each decision, which takes hundreds of times as
long, so it runs on the first ``FEW`` seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from os.path import expandvars

import command
import torch
from sweeps import RESULTS, ROOT, finished, origin

from dagsim.config import yaml
from dagsim.config.bundled import find_config
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.ledger import Spending
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.files import write_text
from dagsim.metrics.paired import ENOUGH_SEEDS
from dagsim.metrics.standings import METHOD, Sample, standings
from dagsim.report.comparison import comparison_table
from dagsim.seeds import REPORT

OUT = RESULTS / "agents"
SHIPPED = ROOT / "dagsim" / "families" / "learning"
SEEDS = range(3_011_020, 3_011_040)
WINDOWS = REPORT[:69]
WINDOWS_OF = "Microsoft ITP, last fifth"
FEW = {"agents/cells": 6, "agents/itp": 20}
CELLS = {"agents/cells": ("independent-0.9", "independent-1.1", "dag-0.9", "dag-1.1"), "agents/itp": ("itp",)}
ESTIMATES = ("exact", "noisy")
RESTART_S = 100.0
"""Cost of a restart in seconds, within the 25 to 250 s measured for real models (Sia, SOSP 2023)."""
TRACE = "$DAGSIM_DATA/traces/microsoft-itp-2021/raw-traces.tar.gz"
TITLES = {"cheap": "best cheap non-preemptive heuristic", "preemptive": "best preemptive", "rollout": "roll-out"}


def grid_of(cell: str, estimates: str, seeds: range, *, rollout: bool) -> SweepGrid:
    """Return the policies of one table of a cell, under their names there. The first is the reference."""
    chosen = yaml.read_yaml(OUT / "references.yaml").value[cell][estimates]
    agent = next((path for folder in (SHIPPED, OUT) if (path := folder / f"{cell}.pt").exists()), OUT / f"{cell}.pt")
    kinds = ("cheap", "rollout") if rollout else ("cheap", "preemptive")
    policies = {f"{TITLES[kind]} ({chosen[kind]})": chosen[kind] for kind in kinds}
    policies[f"agent ({agent.name})"] = f'ppo[checkpoint="{agent}"]'
    if not rollout:
        policies |= {name: name for name in ("eft-wait", "sjf", "fifo") if name != chosen["cheap"]}
    shape, _, load = cell.partition("-")
    base = OUT / "itp.yaml" if cell == "itp" else find_config("train/ppo-dag" if shape == "dag" else "train/ppo")
    settings = {"preemption.restart_s": RESTART_S, "estimates": {"kind": estimates, "sigma": 0.5}}
    settings |= {"workload.path": expandvars(TRACE)} if cell == "itp" else {"workload.load": float(load)}
    axis = Axis("policy", tuple(policies), tuple(policies.values()))
    return SweepGrid(f"{cell}-{estimates}{'-rollout' if rollout else ''}", base, (axis,), settings, seeds)


def write(spending: Spending, options: command.Options, say: command.Say) -> None:
    """Write the standings of all cells as CSV, and as a page: ``cells.csv`` and ``report.md``, or ``itp.csv`` and
    ``itp.md``.
    """
    torch.set_num_threads(1)
    name = spending.table.removeprefix("agents/")
    sample = Sample.WINDOW if name == "itp" else Sample.SEED
    sentence = origin(spending, METHOD, "disjoint report windows" if name == "itp" else "report seeds")
    page, rows, last = [HEAD + (ITP if name == "itp" else "") + sentence], [], ""
    for cell, estimates, grid, lines in _tables(spending, options):
        title, reference = f"{cell} {estimates}", grid.axes[0].labels[0]
        if title != last:
            page += [f"\n## {cell}\n"] * (not last.startswith(f"{cell} ")) + [f"### {title} estimates\n"]
            last = title
        ranked = standings(lines, reference=reference, sample=sample)
        page.append(comparison_table(ranked, workload=title).markdown() + "\n")
        rows += [{"cell": cell, "estimates": estimates, **standing.to_dict()} for standing in ranked]
    folder = options.folder / "agents"
    write_text(folder / ("itp.md" if name == "itp" else "report.md"), "\n".join(page))
    command.write_rows(folder / f"{name}.csv", rows)
    say(sentence)


def _tables(spending: Spending, options: command.Options) -> Iterator[tuple[str, str, SweepGrid, list[CellRun]]]:
    """Yield each table with its runs on the seeds that all of its policies have, if there are enough."""
    for cell, estimates, rollout in product(CELLS[spending.table], ESTIMATES, (False, True)):
        seeds = spending.seeds[: FEW[spending.table]] if rollout else spending.seeds
        grid = grid_of(cell, estimates, seeds, rollout=rollout)
        runs_of: dict[int, list[CellRun]] = {}
        for run in finished(grid, options):
            runs_of.setdefault(run.seed, []).append(replace(run, policy=run.at["policy"]))
        whole = [run for runs in runs_of.values() if len(runs) == grid.count() for run in runs]
        if len(whole) >= ENOUGH_SEEDS * grid.count():
            yield cell, estimates, grid, whole


HEAD = f"""# Agents beside references, on report seeds

Mean job completion times (JCT); the reference of each table is the best cheap non-preemptive heuristic, tuned ones
included. Preemptive policies pay {RESTART_S:g} s of set-up for every return. The roll-out simulates the jobs that are
there before each decision, which takes hundreds of times as long; it runs on fewer seeds. References were chosen on
validation seeds (`references.yaml`). Noisy estimates are the truth times a log-normal factor (sigma 0.5), for every
policy alike.

"""

ITP = """Windows of 200 jobs of Microsoft's ITP trace, spread over its last fifth, on 16 A100, 16 V100 and 32 T4 at
load 1.0. **The windows are disjoint, but not unseen:** an earlier table had 200 overlapping ones of the same jobs, and
of three agents the one that was best there ships.

"""

"""Make published tables from their sweep files, on report seeds of their own.

    python scripts/tables.py baselines/grid decima/synthetic [--fresh | --again] [--on local:2]
    python scripts/tables.py baselines/grid --draw

A table is called as its pool of report seeds (``results/seeds.yaml``); its grid stands in ``scripts/tables/NAME.yaml``,
which ``dagsim sweep`` runs as well. The ledger gives the seeds of a table once. Cells are kept in ``results/table-*``
as they end, so that the same command continues a table that was stopped. ``--draw`` makes the files from the cells
that are there. Decima's tables need ``DAGSIM_DATA``, but for ``decima/synthetic``.

``baselines/grid`` writes ``grid.csv`` (per cell and policy the mean completion time, its ratio to SJF with interval and
verdict, and n), ``grid.md`` (how it was made) and ``grid.png`` (the ratios). Policies that take seconds a run have a
second file, ``grid-slow.yaml``, and run on the first seeds only. ``decima/NAME`` writes ``held-out-NAME.json``: mean
completion times by seed, the reference first.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import command
import numpy as np
from command import Say

from dagsim.experiment.carry_out import carry_out, raise_failures
from dagsim.experiment.executors import executor_for
from dagsim.experiment.kept_files import CellRun
from dagsim.experiment.ledger import Ledger, Spending
from dagsim.experiment.plan import Plan, SweepGrid, read_grid
from dagsim.experiment.store import Store
from dagsim.files import write_text
from dagsim.metrics import to_csv
from dagsim.metrics.standings import METHOD, standings
from dagsim.report.terminal import progress

__all__ = ["FILES", "finished", "grid_rows", "sweep_of", "tables"]

ROOT = Path(__file__).parent.parent
FILES = Path(__file__).parent / "tables"
CELL = ("cluster", "shape", "load", "estimates")
"""The columns of the grid's axes, in the order of the file, after the policy."""
COLUMNS = ("policy", "mean", "ratio", "ratio_low", "ratio_high", "wins", "verdict", "jct_s.p99", "energy_kwh")
REFERENCE = "sjf"


def tables() -> list[str]:
    """Tables that have a sweep file."""
    names = (path.relative_to(FILES).with_suffix("").as_posix() for path in sorted(FILES.rglob("*.yaml")))
    return [name for name in names if not name.endswith("-slow")]


def sweep_of(name: str, seeds: range | None = None) -> SweepGrid:
    """Return the sweep of a table's file, on as many of the ``seeds`` as the file has."""
    sweep = read_grid(FILES / f"{name}.yaml", name.replace("/", "-"))
    assert isinstance(sweep.seeds, range)
    return sweep if seeds is None else replace(sweep, seeds=seeds[: len(sweep.seeds)])


def finished(sweep: SweepGrid, on: str, out: Path, draw: bool = False) -> list[CellRun]:
    """Return the cells of the sweep in the order of the grid. With ``draw``, only those that are
    finished.

    Raises:
        SimulationError: A cell failed.
    """
    plan = Plan.of_grid(sweep, "table")
    folder = Store.begin(out, plan, argv=sys.argv)
    if draw:
        runs = folder.done(plan.cells)
    else:
        with progress(wanted=True) as watch:
            runs = carry_out(folder, plan, executor_for(on), watch)
        raise_failures(runs)
    return [runs[cell] for cell in plan.cells if cell in runs]


def grid_rows(lines: Sequence[CellRun]) -> list[dict[str, Any]]:
    """For each cell of the grid, the policies that ran on all its seeds, best first, compared with
    SJF.
    """
    axes = [key for key in lines[0].at if key != "policy"]
    rows = []
    for place in dict.fromkeys(tuple(line.at[axis] for axis in axes) for line in lines):
        mine = [line for line in lines if tuple(line.at[axis] for axis in axes) == place]
        seeds = {line.seed for line in mine if line.policy == REFERENCE}
        whole = [line for line in mine if {other.seed for other in mine if other.policy == line.policy} == seeds]
        for standing in standings(whole, reference=REFERENCE):
            figures = standing.to_dict()
            row = dict(zip(CELL, place, strict=True)) | {"n": len(seeds)}
            rows.append(row | {column: figures[column] for column in COLUMNS})
    return rows


def write_grid(spending: Spending, options: Namespace, say: Say) -> None:
    """Write ``grid.csv``, ``grid.md`` and ``grid.png``."""
    fast, slow = (
        grid_rows(finished(sweep_of(name, spending.seeds), options.on, options.folder, options.draw))
        for name in ("baselines/grid", "baselines/grid-slow")
    )
    rows = [
        row
        for cell in dict.fromkeys(tuple(row[key] for key in CELL) for row in fast)
        for row in (*fast, *(row for row in slow if row["policy"] != REFERENCE))
        if tuple(row[key] for key in CELL) == cell
    ]
    folder = options.folder / "baselines"
    write_text(folder / "grid.csv", to_csv({name: [row[name] for row in rows] for name in rows[0]}))
    draw(rows, folder / "grid.png")
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(row["policy"] for row in slow) if name != REFERENCE)
    made = f"{spending.sentence(METHOD, n=fast[0]['n'])} {names} ran on the first {slow[0]['n']} of these only."
    write_text(folder / "grid.md", f"# The grid of baselines (`grid.csv`)\n\n{made}\n")
    say(made)


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the ratios as a heat map: policies down, cells across."""
    from dagsim.report.plots.style import figure, save

    cells = list(dict.fromkeys(tuple(row[key] for key in CELL) for row in rows))
    ratio = {(row["policy"], tuple(row[key] for key in CELL)): row["ratio"] for row in rows if row["ratio"] is not None}
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    mean = {policy: fmean([v for (name, _), v in ratio.items() if name == policy] or [np.inf]) for policy in policies}
    policies.sort(key=lambda policy: mean[policy])
    values = np.array([[ratio.get((policy, cell), np.nan) for cell in cells] for policy in policies])
    drawn = figure(13.0, 1.8 + 0.24 * len(policies))
    axes = drawn.add_subplot()
    image = axes.imshow(np.log2(values), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for row, column in np.ndindex(*values.shape):
        value = values[row, column]
        if np.isfinite(value):
            colour = "white" if abs(np.log2(value)) > 0.7 else "#222222"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=5.5, color=colour)
    axes.set_yticks(range(len(policies)), policies, fontsize=7)
    names = [f"{load} {estimates}" for *_, load, estimates in cells]
    axes.set_xticks(range(len(cells)), names, rotation=90, fontsize=6.5)
    blocks = list(dict.fromkeys(cell[:2] for cell in cells))
    wide = len(cells) // len(blocks)
    for place, (cluster, shape) in enumerate(blocks):
        axes.text(wide * (place + 0.5) - 0.5, -1.0, f"{cluster}, {shape}", ha="center", fontsize=8)
        axes.axvline(wide * place - 0.5, color="white", linewidth=3)
    bar = drawn.colorbar(image, ax=axes, ticks=[-1, -0.5, 0, 0.5, 1], fraction=0.02, pad=0.01)
    bar.ax.set_yticklabels(["0.5", "0.71", "1", "1.41", "2"], fontsize=7)
    bar.set_label("mean completion time / that of SJF", fontsize=7)
    save(drawn, path)


def write_decima(spending: Spending, options: Namespace, say: Say) -> None:
    """Write ``held-out-NAME.json``."""
    sweep = sweep_of(spending.table, spending.seeds)
    lines = finished(sweep, options.on, options.folder, options.draw)
    by_policy: dict[str, list[float]] = {}
    for line in lines:
        by_policy.setdefault(line.policy.replace('"', ""), []).append(line.metrics["jct_s.mean"])
    system = {key.removeprefix("system."): value for key, value in sweep.settings.items() if key != "system.kind"}
    made = spending.sentence(METHOD)
    rows = [{"policy": name, "mean_s": fmean(by_seed), "by_seed_s": by_seed} for name, by_seed in by_policy.items()]
    content = {"made": made, "system": system, "seeds": list(spending.seeds), "lines": rows}
    name = spending.table.removeprefix("decima/")
    write_text(options.folder / "decima" / f"held-out-{name}.json", json.dumps(content, indent=1) + "\n")
    say(made)


def _work(options: Namespace, say: Say) -> None:
    os.chdir(ROOT)
    ledger = Ledger(ROOT / "results" / "seeds.yaml")
    for name in options.table:
        count = len(sweep_of(name).seeds)
        text = f"python scripts/tables.py {name}"
        spending = ledger.spend(name, count, text, fresh=options.fresh, again=options.again)
        (write_grid if name == "baselines/grid" else write_decima)(spending, options, say)
        if not options.draw:
            ledger.close(spending)


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("table", nargs="+", choices=tables())
    parser.add_argument("--on", default="local", help="where cells run, as `dagsim sweep --on` (default: local)")
    parser.add_argument("--folder", type=Path, default=ROOT / "results", help="instead of results/")
    parser.add_argument("--draw", action="store_true", help="run nothing: only write the files")
    parser.add_argument("--fresh", action="store_true", help="report seeds of the pool that were not spent yet")
    parser.add_argument("--again", action="store_true", help="the same report seeds again; the table says so")
    return command.run(parser, _work)


if __name__ == "__main__":
    sys.exit(main())

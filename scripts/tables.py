"""Make published tables from their sweep files.

    python scripts/tables.py baselines/grid decima/synthetic [--fresh | --again] [--on local:2]
    python scripts/tables.py baselines/grid --draw
    python scripts/tables.py baselines/grid --again --only kueue --only kube-default

The grid of a table stands in a file of its name below ``scripts/tables/``, which ``dagsim sweep`` runs as well; those
of the agents, ``workloads/judged`` and ``ramp/SETTING-BETA`` are put together by ``table_*.py``. Most tables have
report seeds of their own, which the ledger (``results/seeds.yaml``) gives once, in the pool of their name. Cells are
kept in ``results/table-*`` as they end, so that the same command continues a table that was stopped. ``--draw`` makes
the files from the cells that are there. Tables of real traces need ``DAGSIM_DATA``.

``baselines/grid`` writes ``grid.csv`` (per cell and policy the mean completion time, its ratio to SJF with interval and
verdict, and n), ``grid.md`` (how it was made) and ``grid.png`` (the ratios). Policies that take seconds a run have a
second file, ``grid-slow.yaml``, and run on the first seeds only. ``--only`` makes the rows of some policies again, when
their rules have changed, and leaves all others as they are. ``decima/NAME`` writes mean completion times by seed,
the reference first: ``held-out-NAME.json``, or ``NAME.json`` where the sequences were looked at before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isclose, log
from pathlib import Path
from statistics import fmean
from typing import Any

import command
import numpy as np
import table_agents
import table_ramp
import table_workloads
from sweeps import FILES, RESULTS, ROOT, finished, origin, spend, sweep_of

from dagsim.errors import InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.ledger import Ledger, Spending
from dagsim.files import write_text
from dagsim.metrics.paired import holm, words
from dagsim.metrics.standings import METHOD, standings
from dagsim.metrics.student import t_quantile, two_sided_p
from dagsim.seeds import REPORT

CELL = ("cluster", "shape", "load", "estimates")
"""The columns of the grid's axes, in the order of the file, after the policy."""
COLUMNS = ("policy", "mean", "ratio", "ratio_low", "ratio_high", "wins", "verdict", "jct_s.p99", "energy_kwh")
REFERENCE = "sjf"


def sweep_files() -> list[str]:
    """Tables that have a sweep file."""
    names = (path.relative_to(FILES).with_suffix("").as_posix() for path in sorted(FILES.rglob("*.yaml")))
    return [name for name in names if not name.endswith("-slow")]


def by_cell(lines: Sequence[CellRun]) -> dict[tuple[str, ...], list[CellRun]]:
    """Return the runs of each cell of the grid."""
    cells: dict[tuple[str, ...], list[CellRun]] = {}
    for line in lines:
        cells.setdefault(tuple([line.at[axis] for axis in line.at if axis != "policy"]), []).append(line)
    return cells


def grid_rows(lines: Sequence[CellRun]) -> list[dict[str, Any]]:
    """For each cell of the grid, the policies that ran on all its seeds, best first, compared with
    SJF.
    """
    rows = []
    for place, mine in by_cell(lines).items():
        seeds = {line.seed for line in mine if line.policy == REFERENCE}
        whole = [line for line in mine if {other.seed for other in mine if other.policy == line.policy} == seeds]
        for standing in standings(whole, reference=REFERENCE):
            figures = standing.to_dict()
            row: dict[str, Any] = {**dict(zip(CELL, place, strict=True)), "n": len(seeds)}
            rows.append(row | {column: figures[column] for column in COLUMNS})
    return rows


def write_grid(spending: Spending, options: command.Options, say: command.Say) -> None:
    """Write ``grid.csv``, ``grid.md`` and ``grid.png``."""
    folder, only = options.folder / "baselines", getattr(options, "only", None)
    if only:
        sweep = sweep_of("baselines/grid", spending.seeds)
        kept = (REFERENCE, *only)
        axes = [replace(axis, labels=kept, values=kept) if axis.key == "policy" else axis for axis in sweep.axes]
        some = replace(sweep, axes=tuple(axes), name="-".join((sweep.name, *only)))
        rows = again_rows(finished(some, options), command.read_rows(RESULTS / "baselines" / "grid.csv"))
        names, commit = " and ".join(f"`{name}`" for name in only), (spending.last_commit or spending.commit)[:12]
        sentence = f"{names} ran again on the same seeds at commit {commit} on {spending.on} (`{spending.command}`)."
        before = (RESULTS / "baselines" / "grid.md").read_text(encoding="utf-8").rstrip()
        write_text(folder / "grid.md", f"{before} {sentence}\n")
    else:
        fast, slow = (
            grid_rows(finished(sweep_of(name, spending.seeds), options))
            for name in ("baselines/grid", "baselines/grid-slow")
        )
        rows = [
            row
            for cell in dict.fromkeys(tuple(row[key] for key in CELL) for row in fast)
            for row in (*fast, *(row for row in slow if row["policy"] != REFERENCE))
            if tuple(row[key] for key in CELL) == cell
        ]
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(row["policy"] for row in slow) if name != REFERENCE)
        made = origin(spending, METHOD, n=fast[0]["n"])
        sentence = f"{made} {names} ran on the first {slow[0]['n']} of these only."
        write_text(folder / "grid.md", f"# The grid of baselines (`grid.csv`)\n\n{sentence}\n")
    command.write_rows(folder / "grid.csv", rows)
    draw(rows, folder / "grid.png")
    say(sentence)


def again_rows(lines: Sequence[CellRun], published: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the published rows of the grid with those of the policies in ``lines`` made again, in their new order.
    Holm's method counts all rows of a cell: the p of a row that stays follows from its interval.

    Raises:
        InputError: The reference does not have its published mean, so the whole table has to be made again.
    """
    rows: list[dict[str, Any]] = []
    for place, mine in by_cell(lines).items():
        here = [dict(row) for row in published if tuple(row[key] for key in CELL) == place]
        fresh = {standing.policy: standing for standing in standings(mine, reference=REFERENCE)}
        old = next(row for row in here if row["policy"] == REFERENCE)
        if not isclose(fresh[REFERENCE].mean.value, float(old["mean"])):
            raise InputError(f"{place}: {REFERENCE} took {old['mean']} s when the table was made: make it all again")
        del fresh[REFERENCE]
        whole = [row for row in here if row["n"] == old["n"] and row["policy"] not in fresh]
        p_of = {_interval(row): _p(row) for row in whole if row["ratio_low"] != ""}
        changed = [standing.to_dict() for standing in fresh.values()]
        p_of |= {_interval(row): _p(row) for row in changed if row["ratio_low"] is not None}
        adjusted = dict(zip(p_of, holm(list(p_of.values())), strict=True))
        for row, standing in zip(changed, fresh.values(), strict=True):
            assert standing.pair is not None
            row |= {
                **dict(zip(CELL, place, strict=True)),
                "verdict": words(standing.pair, adjusted.get(_interval(row))),
            }
        whole = sorted([*whole, *changed], key=lambda row: round(log(float(row["ratio"])), 9))
        rows += [{key: row[key] for key in old} for row in whole] + [row for row in here if row["n"] != old["n"]]
    return rows


def _interval(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row's figures, which are equal if two policies do the same on every seed."""
    return tuple([f"{float(row[name] or 'nan'):.9g}" for name in ("ratio", "ratio_low", "ratio_high")])


def _p(row: Mapping[str, Any]) -> float:
    """Return the p of a row's ratio, from its interval."""
    low, high = log(float(row["ratio_low"])), log(float(row["ratio_high"]))
    df = int(row["n"]) - 1
    return float(two_sided_p(log(float(row["ratio"])) / ((high - low) / 2 / t_quantile(0.95, df)), df))


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the ratios as a heat map: policies down, cells across."""
    from dagsim.report.plots.style import figure, save

    cells = list(dict.fromkeys(tuple(row[key] for key in CELL) for row in rows))
    known = [row for row in rows if row["ratio"] not in (None, "")]
    ratio = {(row["policy"], tuple(row[key] for key in CELL)): float(row["ratio"]) for row in known}
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


def write_decima(spending: Spending, options: command.Options, say: command.Say) -> None:
    """Write the mean completion times of each policy by seed and, if the sweep has several, by
    system.
    """
    sweep = sweep_of(spending.table, spending.seeds)
    by_point: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for line in finished(sweep, options):
        at = {key: label.replace('"', "") for key, label in line.at.items()}
        by_point.setdefault(tuple(at.items()), []).append(line.metrics["jct_s.mean"])
    system = {key.removeprefix("system."): value for key, value in sweep.settings.items() if key != "system.kind"}
    sentence = origin(spending, METHOD)
    rows = [{**dict(at), "mean_s": fmean(by_seed), "by_seed_s": by_seed} for at, by_seed in by_point.items()]
    content = {"made": sentence, "system": system, "seeds": list(spending.seeds), "lines": rows}
    name = spending.table.removeprefix("decima/")
    file = f"held-out-{name}.json" if spending.seeds[0] in REPORT else f"{name}.json"
    write_text(options.folder / "decima" / file, json.dumps(content, indent=1) + "\n")
    say(sentence)


Writer = Callable[[Spending, command.Options, command.Say], None]


def _seeds_of(name: str) -> Sequence[int]:
    seeds = sweep_of(name).seeds
    assert isinstance(seeds, Sequence)
    return seeds


WRITERS: dict[str, Writer] = {"baselines": write_grid, "decima": write_decima, "ramp": table_ramp.write_compared}
TABLES: dict[str, tuple[Sequence[int], Writer]] = {
    **{name: (_seeds_of(name), WRITERS[name.partition("/")[0]]) for name in sweep_files()},
    **dict.fromkeys(table_ramp.JUDGED, (table_ramp.SEEDS, table_ramp.write_judged)),
    "agents/cells": (table_agents.SEEDS, table_agents.write),
    "agents/itp": (table_agents.WINDOWS, table_agents.write),
    "workloads/judged": (table_workloads.SEEDS, table_workloads.write),
}
"""Seeds and writer of each table."""


def _work(options: command.Options, say: command.Say) -> None:
    os.chdir(ROOT)
    if options.only and options.table != ["baselines/grid"]:
        raise InputError(f"--only can only be used with baselines/grid, got {', '.join(options.table)}")
    for name in options.table:
        seeds, write = TABLES[name]
        windows_of = table_agents.WINDOWS_OF if name == "agents/itp" else None
        spending = spend(name, seeds, options, windows_of)
        write(spending, options, say)
        if not options.draw and seeds[0] in REPORT:
            Ledger(RESULTS / "seeds.yaml").close(spending)


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("table", nargs="+", choices=TABLES, metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--on", default="local", help="where cells run, as `dagsim sweep --on` (default: local)")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="instead of results/")
    parser.add_argument("--only", action="append", metavar="POLICY", help="only its rows of baselines/grid; repeatable")
    parser.add_argument("--draw", action="store_true", help="run nothing: only write the files")
    parser.add_argument("--fresh", action="store_true", help="report seeds of the pool that were not spent yet")
    parser.add_argument("--again", action="store_true", help="the same report seeds again; the table says so")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

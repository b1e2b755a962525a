"""The general agent beside the best tuned heuristic of each of ten cells, and how these heuristics were chosen.

    python scripts/make_cells.py --data $DAGSIM_DATA --cells $DAGSIM_CELLS
    dagsim sweep results/agents/matrix.yaml
    python scripts/table_general.py matrix results/sweep-matrix      # writes matrix.csv
    python scripts/table_general.py search --fresh [--windows N] [--bounds M]   # writes search.csv, search.md
    python scripts/table_general.py report --again [--others FILE...]  # writes general.csv, general.md, general.png

``matrix`` writes, for each cell and policy of the sweep, the geometric mean over validation seeds of its mean
completion time over that of the first policy. The least is the reference of the cell. ``report`` compares the agent
and other policies with it on report seeds, each used once (``results/seeds.yaml``), or on as many disjoint windows of
the last fifth of a trace as there are, up to 40; ``--others`` are agents of further training seeds. Its cells are kept
in ``results/table-general-*`` as they end, so that the same command continues a table that was stopped.
``search`` compares ``search`` over the reference of each cell with that reference, and with the agent by the share of
the way to the lower bound (``dagsim bound``) on the first M windows. It goes from window to window over all cells,
adds a row to ``search.csv`` after each, and continues there when it is started again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import command
import numpy as np
import torch
from clock import timed
from command import markdown
from sweeps import RESULTS, ROOT, finished

from dagsim.config.schema import Config, load_config
from dagsim.experiment.ledger import Ledger, Spending
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import Timed, make_policy, run_policy
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.families.bounds.bound import bound_of
from dagsim.families.episodes.lookout import ArrivedJob
from dagsim.families.episodes.search import Search, SearchMemory
from dagsim.files import write_text
from dagsim.metrics import summarize
from dagsim.metrics.paired import Paired, paired
from dagsim.seeds import REPORT, part_of
from dagsim.systems.cluster.api import ClusterView
from dagsim.systems.seam import Conversation, drive
from dagsim.workload.windows import most_windows

OUT = RESULTS / "agents"
AGENT, FORMER = (ROOT / "dagsim" / "families" / "learning" / name for name in ("ppo.pt", "independent-0.9.pt"))
DRAWN = ("ind-0.9", "ind-1.1", "dag-0.9", "dag-1.1")
SEEN = ("itp", "philly")
CELLS = (*DRAWN, *SEEN, "pai", "openb", "gavel", "ali40")
"""Cells of the kinds that the agent was trained on, traces whose earlier part it has seen, and unseen traces."""
MOST, FEW = 40, 15
"""Seeds or windows of a cell, and of the former agent, which takes longer."""
SIGMA = 0.5
DEFAULT = "eft-wait"
HEURISTICS = (DEFAULT, "srpt-work", "sjf", "easy", "fifo-fit")
TRUE_ARRIVALS = 30
"""Number of arrivals that are known in hindsight."""
VALIDATION = 2_000_000


class Line(NamedTuple):
    """One row of the table."""

    cell: str
    estimates: str
    policy: str
    reference: str
    pair: Paired
    way: float
    """Share of the way from the reference to the lower bound, NaN where no seed has a bound."""
    cpu_us: float
    """CPU microseconds per decision, NaN where not measured."""

    def to_dict(self) -> dict[str, Any]:
        """The row of the CSV file."""
        own = self._asdict()
        pair = own.pop("pair")
        bounds = {"ratio": pair.ratio, "low": pair.low, "high": pair.high, "of_means": pair.of_means}
        return own | {"n": pair.n, "wins": pair.wins} | bounds

    def cells(self) -> tuple[object, ...]:
        """The row of the page."""
        pair, cost = self.pair, (_cell(self.way, ".2f"), _cell(self.cpu_us, ",.0f"))
        return self.cell, _shown(self.policy), pair.n, f"{pair.ratio:.3f}", _interval(pair), pair.wins, *cost


def choose(folder: Path, say: command.Say) -> None:
    """Write ``matrix.csv`` from the sweep in ``folder``."""
    times: dict[tuple[str, str], dict[int, float]] = {}
    for row in command.read_rows(folder / "results.csv"):
        if row["jct_s.mean"]:
            times.setdefault((row["base"], row["policy"]), {})[int(row["seed"])] = float(row["jct_s.mean"])
    policies = list(dict.fromkeys(policy for _, policy in times))
    rows: list[dict[str, Any]] = [{"policy": policy} for policy in policies]
    for cell in CELLS:
        ratios = [_geometric(times[cell, policy], times[cell, policies[0]]) for policy in policies]
        for line, ratio in zip(rows, ratios, strict=True):
            line[cell] = round(ratio / min(ratios), 4)
    for line in rows:
        across = [line[cell] for cell in CELLS]
        line |= {"mean": round(float(np.exp(np.log(across).mean())), 4), "worst": max(across)}
    rows.sort(key=lambda row: row["mean"])
    command.write_rows(OUT / "matrix.csv", rows)
    say(f"{len(rows)} policies on {len(CELLS)} cells; best on average: {rows[0]['policy']}")


def _geometric(values: Mapping[int, float], first: Mapping[int, float]) -> float:
    return float(np.exp(np.mean([np.log(values[seed] / first[seed]) for seed in first])))


def references() -> dict[str, str]:
    """The best heuristic of each cell on validation seeds."""
    rows = command.read_rows(OUT / "matrix.csv")
    return {cell: min(rows, key=lambda row: float(row[cell]))["policy"] for cell in CELLS}


def spend(table: str, cell: str, most: int, text: str, options: command.Options) -> Spending:
    """Take ``most`` report seeds of a cell from the ledger. For a trace, they are the windows of its last fifth, up to
    ``most``.
    """
    fresh, again, pool, windows_of = options.fresh, options.again, None, None
    if (trace := load_config(OUT / "cells" / f"{cell}.yaml").trace_file) is not None:
        assert trace.window is not None
        most = min(most, most_windows(len(trace.whole()), trace.window, part_of(REPORT.start)))
        pool, windows_of = REPORT[:most], f"{cell}, last fifth"
        fresh, again = False, again or fresh
    ledger = Ledger(RESULTS / "seeds.yaml")
    return ledger.spend(table, most, text, fresh=fresh, again=again, pool=pool, windows_of=windows_of)


def report_seeds(cell: str, options: command.Options) -> Sequence[int]:
    """Take the report seeds of a cell from the ledger."""
    spending = spend(f"agents/general-{cell}", cell, MOST, "python scripts/table_general.py report", options)
    Ledger(RESULTS / "seeds.yaml").close(spending)
    return spending.seeds


def grid_of(cell: str, estimates: str, policies: Mapping[str, str], seeds: Sequence[int]) -> SweepGrid:
    """The policies of a cell, under their names in the table."""
    axis = Axis("policy", tuple(policies), tuple(policies.values()))
    settings = {"estimates": {"kind": estimates, "sigma": SIGMA}}
    return SweepGrid(f"general-{cell}-{estimates}", OUT / "cells" / f"{cell}.yaml", (axis,), settings, seeds)


def means_s(grid: SweepGrid, on: str) -> dict[str, dict[int, float]]:
    """Mean completion times by policy and seed."""
    means: dict[str, dict[int, float]] = {}
    for run in finished(grid, command.Options(on=on, folder=RESULTS, draw=False)):
        means.setdefault(run.at["policy"], {})[run.seed] = run.metrics["jct_s.mean"]
    return means


def _jct_s(schedule: Any) -> float:
    return float(summarize(schedule).jct_s.mean)


def cpu_us(config: Config, policy: str, seed: int) -> float:
    """CPU microseconds of a policy per decision, on the SimPy kernel."""
    scenario = scenario_of(config)
    timed = Timed(make_policy(scenario, policy), policy)
    Conversation(scenario.kernel(seed)).follow(timed)
    return 1e6 * timed.decision_s / timed.decisions


def lower_bounds() -> dict[tuple[str, int], float]:
    """The lower bounds of mean completion times in ``search.csv``, by cell and seed."""
    path = OUT / "search.csv"
    rows = command.read_rows(path) if path.exists() else []
    return {(row["cell"], int(row["seed"])): float(row["bound_s"]) for row in rows if row["bound_s"] != ""}


def _agent(path: Path) -> str:
    return f'ppo[checkpoint="{path}"]'


def _report(options: command.Options, say: command.Say) -> dict[str, Any]:
    best, bounds, lines = references(), lower_bounds(), []
    played_by = {"agent": _agent(AGENT), FORMER.stem: _agent(FORMER)}
    agents = {"agent": _agent(AGENT), **{path.stem: _agent(path) for path in options.others}}
    for cell in CELLS:
        path = OUT / "cells" / f"{cell}.yaml"
        seeds = report_seeds(cell, options)
        for estimates in ("exact", "noisy"):
            config = load_config(path, [f"estimates={{kind: {estimates}, sigma: {SIGMA}}}"])
            heuristics = {name: name for name in (*HEURISTICS, best[cell])}
            policies = means_s(grid_of(cell, estimates, agents | heuristics, seeds), options.on)
            reference = policies[best[cell]]
            if estimates == "exact":
                grid = grid_of(cell, estimates, {FORMER.stem: _agent(FORMER)}, seeds[:FEW])
                policies |= means_s(replace(grid, name=f"general-{cell}-former"), options.on)
            if best[cell] not in HEURISTICS:
                del policies[best[cell]]
            bounded = [seed for seed in seeds if estimates == "exact" and (cell, seed) in bounds]
            for policy, values in policies.items():
                pair = paired(list(values.values()), [reference[seed] for seed in values])
                here = [seed for seed in bounded if seed in values]
                own, other = ([of[seed] for seed in here] for of in (values, reference))
                way = share_of_way(own, other, [bounds[cell, seed] for seed in here])
                timed = policy in (*HEURISTICS, *played_by) and estimates == "exact"
                us = cpu_us(config, played_by.get(policy, policy), seeds[0]) if timed else float("nan")
                lines.append(Line(cell, estimates, policy, best[cell], pair, way, us))
                say(f"{cell:8s} {estimates} {policy:32s} {pair.ratio:.3f} [{pair.low:.3f}, {pair.high:.3f}] n={pair.n}")
    write(lines, say)
    return {f"{line.cell} {line.estimates} {line.policy}": line.pair.ratio for line in lines}


def write(lines: Sequence[Line], say: command.Say) -> None:
    """Write the table as CSV, as a page and as a picture."""
    command.write_rows(OUT / "general.csv", [line.to_dict() for line in lines])
    at = {(line.cell, line.estimates, line.policy): line for line in lines}
    policies = list(dict.fromkeys(line.policy for line in lines))
    groups = [(estimates, cells) for estimates in ("exact", "noisy") for cells in (CELLS, DRAWN, CELLS[-4:])]
    heads = ("policy", "all ten", "home", "zero-shot", "noisy: all ten", "home", "zero-shot")
    rows = [
        (_shown(policy), *(_cell(_mean(at, cells, estimates, policy), ".3f") for estimates, cells in groups))
        for policy in policies
    ]
    page = ["## Geometric means over cells", "", *markdown(heads, rows, range(1, 7)), ""]
    best = ((cell, f"`{at[cell, 'exact', 'agent'].reference}`") for cell in CELLS)
    page += markdown(("cell", "best tuned heuristic"), best)
    columns = ("cell", "policy", "n", "ratio", "95 % interval", "better on", "way to the bound", "us per decision")
    for estimates in ("exact", "noisy"):
        shown = [line for line in lines if line.estimates == estimates and line.policy != line.reference]
        page += [
            "",
            f"## Cells, {estimates} estimates",
            "",
            *markdown(columns, map(Line.cells, shown), (2, 3, 5, 6, 7)),
        ]
    write_text(OUT / "general.md", HEAD + "\n".join(page) + "\n")
    for row in rows:
        say(" | ".join(row))
    draw(at, policies, OUT / "general.png")


def _shown(policy: str) -> str:
    return "**general agent**" if policy == "agent" else f"`{policy}`"


def _cell(value: float, digits: str) -> str:
    """The number as text; empty if it is NaN."""
    return "" if np.isnan(value) else format(value, digits)


def _interval(pair: Paired) -> str:
    return "" if np.isnan(pair.low) else f"{pair.low:.3f} to {pair.high:.3f}"


def _mean(at: Mapping[tuple[str, str, str], Line], cells: Sequence[str], estimates: str, policy: str) -> float:
    """The geometric mean of a policy's ratios, NaN if a cell lacks one."""
    if any((cell, estimates, policy) not in at for cell in cells):
        return float("nan")
    return float(np.exp(np.mean([np.log(at[cell, estimates, policy].pair.ratio) for cell in cells])))


def draw(at: Mapping[tuple[str, str, str], Line], policies: Sequence[str], path: Path) -> None:
    """Draw the ratios with exact estimates as a matrix of policies and cells."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    drawn = [policy for policy in policies if policy in ("agent", FORMER.stem, *HEURISTICS)]
    ratios = np.array([[at[cell, "exact", policy].pair.ratio for cell in CELLS] for policy in drawn])
    ratios = np.column_stack([ratios, np.exp(np.log(ratios).mean(axis=1))])
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    most = np.log(1.5)
    axes.imshow(np.log(ratios), cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    for row, column in np.ndindex(ratios.shape):
        ratio = ratios[row, column]
        dark = abs(np.log(ratio)) > 0.7 * most
        axes.text(column, row, f"{ratio:.2f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axes.axvline(len(CELLS) - 0.5, color="white", lw=3)
    axes.set_xticks(range(len(CELLS) + 1), [*CELLS, "mean"], fontsize=8)
    names = {"agent": "general agent", FORMER.stem: "agent of ind-0.9"}
    axes.set_yticks(range(len(drawn)), [names.get(policy, policy) for policy in drawn], fontsize=8)
    axes.tick_params(length=0)
    axes.set_title("mean completion time / that of the best tuned heuristic of each workload", fontsize=9)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.savefig(path, dpi=150)


def _search(options: command.Options, say: command.Say) -> dict[str, Any]:
    """Measure the windows that ``search.csv`` lacks, and write the page."""
    path, best = OUT / "search.csv", references()
    rows: list[dict[str, Any]] = list(command.read_rows(path)) if path.exists() else []
    done = {(row["cell"], int(row["seed"])) for row in rows}
    configs = {cell: load_config(OUT / "cells" / f"{cell}.yaml") for cell in CELLS}
    again = command.Options(again=not options.fresh, fresh=options.fresh)
    seeds = {cell: report_seeds(cell, again) for cell in CELLS}
    _searched(configs["ind-0.9"], best["ind-0.9"], VALIDATION)  # so that no window pays for loading code
    for window in range(options.windows):
        for cell, config in configs.items():
            if window >= len(seeds[cell]):
                continue
            seed = seeds[cell][window]
            if (cell, seed) not in done:
                searched = _searched(config, best[cell], seed)
                rows.append({"cell": cell, "seed": seed, "reference": best[cell], **searched, "bound_s": ""})
                say(f"{cell:8s} {seed} {searched['search_s'] / searched['reference_s']:.3f}")
            row = next(row for row in rows if (row["cell"], int(row["seed"])) == (cell, seed))
            if window < options.bounds and cell in options.cells and row["bound_s"] == "":
                least = bound_of(config, seed)
                row["bound_s"] = least.bound_s / least.jobs
                say(f"{cell:8s} {seed} bound {float(row['bound_s']) / float(row['reference_s']):.3f} of the reference")
            command.write_rows(path, rows)
    write_text(OUT / "search.md", SEARCH_HEAD + "\n".join(search_page(rows)) + "\n")
    return {cell: _pair_of(rows, cell).ratio for cell in CELLS}


class Hindsight(Search):
    """A search with the true next arrivals, those of ``jobs``, in its futures."""

    def __init__(self, base: str, jobs: Sequence[ArrivedJob]) -> None:
        super().__init__(base, budget=3000, futures=2)
        self.jobs = sorted(jobs, key=lambda job: job.arrival_s)

    def memory(self) -> SearchMemory:
        return _HindsightMemory(self)


class _HindsightMemory(SearchMemory):
    def __init__(self, search: Hindsight) -> None:
        super().__init__(search)
        self._jobs = search.jobs

    def futures(self, view: ClusterView) -> tuple[list[ArrivedJob], list[np.ndarray]]:
        coming = [job for job in self._jobs if job.arrival_s > view.now and job.kind.max() < len(view.machines.classes)]
        arrivals = np.array([job.arrival_s for job in coming[:TRUE_ARRIVALS]])
        return coming[:TRUE_ARRIVALS], [arrivals, arrivals]


def _searched(config: Config, reference: str, seed: int) -> dict[str, float]:
    """Mean completion times of the search, also in hindsight, of the reference and of the agent, and the CPU seconds of
    the kernels.
    """
    base = reference if reference.startswith("eft-wait") else DEFAULT
    search = Search(base)
    memory = SearchMemory(search)
    search.memory = lambda: memory  # type: ignore[method-assign]
    row = {}
    for name in ("reference", "search", "hindsight"):
        decider = make_policy(scenario_of(config), reference) if name == "reference" else search
        if name == "hindsight":
            decider = Hindsight(base, list(memory.columns.values()))
        schedule, row[f"{name}_cpu_s"] = timed(partial(drive, scenario_of(config).kernel(seed), decider))
        row[f"{name}_s"] = _jct_s(schedule)
    return row | {"agent_s": _jct_s(run_policy(config, _agent(AGENT), seed).schedule)}


def _pair_of(rows: Sequence[Mapping[str, Any]], cell: str, of: str = "search", to: str = "reference") -> Paired:
    """Two policies on the windows of a cell."""
    here = [row for row in rows if row["cell"] == cell]
    return paired([float(row[f"{of}_s"]) for row in here], [float(row[f"{to}_s"]) for row in here])


def share_of_way(values: Sequence[float], references: Sequence[float], bounds: Sequence[float]) -> float:
    """The part of the way from the reference to the lower bound that a policy goes: of the sums of the mean times
    relative to the reference. NaN without a bound.
    """
    if not bounds:
        return float("nan")
    gained, most = ([1 - of / at for of, at in zip(times, references, strict=True)] for times in (values, bounds))
    return float(np.sum(gained) / np.sum(most))


def _way(rows: Sequence[Mapping[str, Any]], policy: str) -> float:
    """The share of the way that a column of ``search.csv`` goes."""
    rows = [row for row in rows if row["bound_s"] != ""]
    return share_of_way(*([float(row[head]) for row in rows] for head in (f"{policy}_s", "reference_s", "bound_s")))


def search_page(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of ``search.md``."""
    table, ratios = [], []
    for cell in CELLS:
        here = [row for row in rows if row["cell"] == cell]
        pairs = [_pair_of(rows, cell), _pair_of(rows, cell, to="agent"), _pair_of(rows, cell, of="hindsight")]
        search, agent, hindsight = (f"{pair.ratio:.3f} ({_interval(pair)})" for pair in pairs)
        ratios.append([pair.ratio for pair in pairs])
        spent = [sum(float(row[f"{name}_cpu_s"]) for row in here) for name in ("search", "reference")]
        bounds = sum(row["bound_s"] != "" for row in here) or ""
        cells = [_cell(_way(here, policy), ".2f") for policy in ("search", "agent")]
        name = f"{cell}, `{here[0]['reference']}`"
        table.append((name, len(here), search, agent, hindsight, f"{spent[0] / spent[1]:.0f}", bounds, *cells))
    heads = ("cell, reference", "n", "search", "search to agent", "hindsight", "CPU", "bounds", "way", "way of agent")
    means, most = np.exp(np.log(ratios).mean(axis=0)), np.max(ratios, axis=0)[0]
    ways = [_way(rows, policy) for policy in ("search", "agent", "hindsight")]
    return [
        *markdown(heads, table, (1, 5, 6, 7, 8)),
        "",
        f"Geometric means over the ten cells: search **{means[0]:.3f}** of the reference (largest {most:.3f}) and "
        f"{means[1]:.3f} of the agent, hindsight {means[2]:.3f} of the reference. Share of the way to the bound, over "
        f"all windows with one: search {ways[0]:.2f}, agent alone {ways[1]:.2f}, hindsight {ways[2]:.2f}.",
    ]


HEAD = f"""# The general agent beside the best tuned heuristic of each cell

Mean job completion times over those of the best of 26 heuristics of the cell, which 30 validation seeds chose
([matrix.csv](matrix.csv)): geometric means of per-seed ratios with Student's t on their logs, on report seeds or on
disjoint windows of the last fifth of a trace (`python scripts/table_general.py report`, `results/seeds.yaml`). Noisy
estimates have sigma 0.5. The agent has seen the first three fifths of itp and philly, and none of pai, openb, gavel and
ali40. The arrivals of pai are made up; all GPU types of ali40 are equally fast. `{FORMER.stem}` is an agent that was
trained on one workload, on the first {FEW} seeds. *Way to the bound* is the share of the way from the best heuristic to
a lower bound (`dagsim bound`), on the few seeds of search.csv that have one. CPU times per decision are those of the
first seed, on a shared machine.

"""


SEARCH_HEAD = f"""# Search beside the best tuned heuristic of each cell

Ratios of mean job completion times, with 95 % intervals: geometric means over windows, Student's t on logarithms
(`python scripts/table_general.py search`; all windows are in [search.csv](search.csv)). *Search* is
`search[base=REFERENCE]` over the reference, the best of 26 heuristics of the cell on validation seeds
([matrix.csv](matrix.csv); where it is `srpt-work`, the base is `eft-wait`). It knows estimates and draws arrivals from
the recent past; the general agent is in its portfolio. *Hindsight* is that search with the true next {TRUE_ARRIVALS}
arrivals in its futures, which no scheduler knows, also over the reference. *CPU* is the CPU time of the search over
that of the reference. *Bounds* is the number of windows with a lower bound (`dagsim bound`), and *way* the share of the
way from the reference to it.

"""


def _work(options: command.Options, say: command.Say) -> Any:
    torch.set_num_threads(1)
    if options.what != "matrix":
        return _report(options, say) if options.what == "report" else _search(options, say)
    return choose(ROOT / options.folder, say)


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("what", choices=("matrix", "report", "search"))
    parser.add_argument("folder", nargs="?", type=Path, default=RESULTS / "sweep-matrix", help="of the sweep")
    parser.add_argument("--again", action="store_true", help="the same report seeds again")
    parser.add_argument("--fresh", action="store_true", help="new report seeds, and the same windows of traces again")
    parser.add_argument("--on", default="local", help="of report: where cells run, as `dagsim sweep --on`")
    parser.add_argument("--others", nargs="*", default=(), type=Path, help="of report: agents of other training seeds")
    parser.add_argument("--windows", type=int, default=MOST, help="of search: seeds or windows of a cell")
    parser.add_argument("--bounds", type=int, default=0, help="of search: windows of a cell with a lower bound")
    parser.add_argument(
        "--cells", nargs="*", default=CELLS, help="of search: the cells with lower bounds (default: all)"
    )
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

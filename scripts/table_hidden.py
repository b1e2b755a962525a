"""Agents for hidden, noisy or limited durations beside the best tuned heuristics, by the price of a preemption.

    python scripts/make_cells.py --data $DAGSIM_DATA --cells $DAGSIM_CELLS
    python scripts/table_hidden.py choose [--kind KIND...] [--cell CELL...]    # on validation seeds: hidden-choice.csv
    python scripts/table_hidden.py report --fresh|--again     # writes hidden.csv, hidden.md
    python scripts/table_hidden.py beliefs --fresh|--again    # writes hidden-beliefs.csv, a section of hidden.md
    python scripts/table_hidden.py seeds --agents FILE... --fresh|--again    # writes hidden-seeds.csv, another section

``choose`` runs every heuristic with several parameters and keeps, for each cell, each kind of estimates and each
price, the best that never stops a run and the best that may. On the four cells whose jobs are drawn, ``report``
compares the agent that ships with dagsim, with and without expected durations, with both on report seeds, and
``beliefs`` compares it with the best heuristics of both kinds that see the same expected durations. ``seeds`` compares
agents that differ in their training seed with the best heuristics of all cells, on report seeds or on windows of the
last fifth of a trace; with ``--validation``, it runs on validation seeds and only prints. Runs are kept in
``results/table-*`` as they end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, NamedTuple

import command
import numpy as np
import torch
from command import markdown
from scipy.stats import trim_mean
from sweeps import RESULTS, finished
from table_general import CELLS as TEN
from table_general import DRAWN, OUT, spend

from dagsim.config.schema import load_config
from dagsim.experiment.ledger import Ledger, Spending
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.files import write_text
from dagsim.metrics.paired import paired

CELLS = (*TEN, "like-helios")
ESTIMATES: Mapping[str, Mapping[str, Any]] = {
    "hidden": {"kind": "hidden"},
    "noisy": {"kind": "noisy", "sigma": 1.0},
    "limits": {"kind": "predicted"},
}
LIMITS = {"kind": "log_normal", "median": 2.72, "sigma": 0.8, "low": 1.0, "high": 20.0}
"""Time limits over true durations, where jobs are drawn. Traces have the limits of ``make_cells.py``."""
PRICES_S = (0, 30, 60)
"""Seconds that it takes to resume a stopped run."""
SEEDS, BELIEVING_SEEDS, TRAINED_SEEDS = 16, 8, 16
"""Number of report seeds: for the shipped agent, for heuristics with expected durations, for training seeds."""
TRIED, CHECKED = range(2_000_000, 2_000_008), range(2_000_008, 2_000_024)
"""Validation seeds: those on which heuristics are chosen, and those on which new agents are judged first."""
PLAIN = (
    *[f"eft-wait[theta={theta},order={order}]" for theta in (0.7, 0.85, 1.0) for order in ("work", "task")],
    *[f"qssf[memory={memory}]" for memory in (0.5, 0.8, 0.95)],
    *("easy", "srpt-work", "fifo-fit"),
)
"""Heuristics that never stop a run, so that the price does not matter."""
PREEMPTIVE = (
    *[f"2d-las[quantum_s={quantum},lead={lead}]" for quantum in (90, 300) for lead in (0, 0.3, 0.6)],
    *[f"2d-gittins[quantum_s={quantum}]" for quantum in (90, 300, 900)],
    *[f"tiresias[quantum_s={q},thresholds={levels}]" for q in (90, 600) for levels in ("600.0", "3600.0", "14400.0")],
    "tiresias[quantum_s=90,thresholds=[1800.0,14400.0]]",
)
INFORMED = ("srtf", "srsf")
"""Further preemptive heuristics where there are estimates."""
BELIEVING = tuple(
    [f"believing[policy={policy}]" for policy in (*PLAIN[:6], "easy", "easy-sjf", "sjf", "srpt-work", *INFORMED)]
)
"""Heuristics that see the same expected durations as the agent. The last two may stop runs."""
WITH_BELIEFS = {"plain": "believing", "preemptive": "believing preemptive"}
"""The kind of heuristics with expected durations for each kind of heuristics without."""
KINDS = (*WITH_BELIEFS, *WITH_BELIEFS.values())
AGENTS = ("ppo[beliefs=true]", "ppo")
ALL = "all seeds"
"""The agent whose mean completion time is the geometric mean over the training seeds."""
HOW = "geometric means of ratios by seed, Student's t on their logarithms"
Means = dict[str, dict[int, float]]
"""Mean completion times by policy and seed."""


class Place(NamedTuple):
    """A cell, what schedulers know about durations, and the price of a preemption."""

    cell: str
    known: str
    price_s: int


class Row(NamedTuple):
    """An agent beside the best heuristic of a kind."""

    cell: str
    known: str
    price_s: int
    agent: str
    against: str
    """``plain``, ``preemptive``, or the ``agent`` without expected durations."""
    heuristic: str
    n: int
    ratio: float
    low: float
    high: float


PLACES = [Place(cell, known, price_s) for known in ESTIMATES for cell in CELLS for price_s in PRICES_S]
FOUR = [place for place in PLACES if place.cell in DRAWN and (place.known == "hidden" or place[1:] == ("noisy", 30))]
"""The places of ``report`` and ``beliefs``."""


def means_s(place: Place, policies: Sequence[str], seeds: Sequence[int], on: str) -> Means:
    """Run policies."""
    axis = Axis("policy", tuple(policies), tuple(policies))
    settings: dict[str, Any] = {"estimates": dict(ESTIMATES[place.known]), "preemption": {"restart_s": place.price_s}}
    if place.known == "limits":
        settings |= limits(place.cell)
    name = "-".join(["hidden", *map(str, place), str(seeds[0]), sha256(" ".join(policies).encode()).hexdigest()[:8]])
    grid = SweepGrid(name, OUT / "cells" / f"{place.cell}.yaml", (axis,), settings, seeds)
    means: Means = {}
    for run in finished(grid, command.Options(on=on, folder=RESULTS, draw=False)):
        means.setdefault(run.at["policy"], {})[run.seed] = run.metrics["jct_s.mean"]
    return means


def limits(cell: str) -> dict[str, Any]:
    """The settings with which the jobs of a cell have time limits."""
    if cell in DRAWN:
        return {"workload.sizes.requested_factor": LIMITS}
    trace = load_config(OUT / "cells" / f"{cell}.yaml").trace_file
    assert trace is not None
    limited = {"path": f"$DAGSIM_CELLS/limited/{cell}.jsonl.gz", "window": trace.window}
    return {"workload": {"kind": "trace", **limited, "options": {"load": trace.options.load}}}


def kinds_of(place: Place) -> dict[str, tuple[str, ...]]:
    """The kinds of heuristics that are tried at a place, with the heuristics of each. Those whose runs do not depend on
    the place are tried at the first one only.
    """
    plain = {"plain": PLAIN} if place == first_of(place) else {}
    preemptive = {"preemptive": PREEMPTIVE if place.known == "hidden" else (*PREEMPTIVE, *INFORMED)}
    if place not in FOUR or place.known != "hidden":
        return plain | preemptive
    return (
        plain | ({"believing": BELIEVING[:-2]} if plain else {}) | preemptive | {"believing preemptive": BELIEVING[-2:]}
    )


def choose(options: command.Options, say: command.Say) -> list[dict[str, Any]]:
    """Write each heuristic's geometric mean over the best of its kind, by place. With ``--kind`` or ``--cell``, run
    only these, and keep the other rows."""
    path = OUT / "hidden-choice.csv"
    kept = list(command.read_rows(path)) if options.kind or options.cell else []
    rows: list[dict[str, Any]] = []
    for place in PLACES:
        for against, kind in kinds_of(place).items():
            if (options.kind and against not in options.kind) or (options.cell and place.cell not in options.cell):
                at = {name: str(value) for name, value in place._asdict().items()} | {"against": against}
                rows += [dict(row) for row in kept if at.items() <= dict(row).items()]
                continue
            means = means_s(place, kind, TRIED, options.on)
            logs = {policy: fmean(np.log(list(means[policy].values()))) for policy in kind}
            least = min(logs.values())
            for policy in sorted(kind, key=lambda policy: logs[policy]):
                ratio = round(float(np.exp(logs[policy] - least)), 4)
                rows.append(place._asdict() | {"against": against, "heuristic": policy, "ratio": ratio})
        say(f"{place}: done")
    command.write_rows(path, rows)
    return rows


def first_of(place: Place) -> Place:
    """The place with the lowest price, for policies that never stop a run."""
    return next(other for other in PLACES if other[:2] == place[:2])


def chosen() -> dict[tuple[Place, str], str]:
    """The best heuristics on validation seeds, by place and kind."""
    best: dict[tuple[Place, str], str] = {}
    for line in command.read_rows(OUT / "hidden-choice.csv"):
        place = Place(line["cell"], line["known"], int(line["price_s"]))
        best.setdefault((place, line["against"]), line["heuristic"])
    return best


def report(options: command.Options, say: command.Say) -> list[Row]:
    """Write ``hidden.csv`` and ``hidden.md``."""
    best, rows = chosen(), []
    ledger = Ledger(RESULTS / "seeds.yaml")
    text = "python scripts/table_hidden.py report"
    spending = ledger.spend("agents/hidden", SEEDS, text, fresh=options.fresh, again=options.again)
    for place in FOUR:
        priced, plain = best[place, "preemptive"], best[first_of(place), "plain"]
        means = means_s(place, (priced,), spending.seeds, options.on)
        for policies in (AGENTS, (plain,)):  # which never stop a run
            means |= means_s(first_of(place), policies, spending.seeds, options.on)
        for agent in AGENTS:
            for against, heuristic in (("plain", plain), ("preemptive", priced), ("agent", AGENTS[1])):
                if agent != heuristic:
                    own, than = ([means[name][seed] for seed in spending.seeds] for name in (agent, heuristic))
                    pair = paired(own, than)
                    rows.append(Row(*place, agent, against, heuristic, pair.n, pair.ratio, pair.low, pair.high))
        say(f"{place}: {', '.join(f'{row.agent} {row.ratio:.3f}' for row in rows if row[:3] == place)}")
    ledger.close(spending)
    command.write_rows(OUT / "hidden.csv", [row._asdict() for row in rows])
    put("\n".join([HEAD, *page(rows), "", spending.sentence(HOW)]))
    return rows


def beliefs(options: command.Options, say: command.Say) -> list[dict[str, Any]]:
    """Write ``hidden-beliefs.csv`` and the end of ``hidden.md``."""
    best = chosen()
    rows: list[dict[str, Any]] = []
    ledger = Ledger(RESULTS / "seeds.yaml")
    text = "python scripts/table_hidden.py beliefs"
    spending = ledger.spend("agents/hidden", BELIEVING_SEEDS, text, fresh=options.fresh, again=options.again)
    for place, kind in [(place, kind) for kind in WITH_BELIEFS for place in FOUR if place.known == "hidden"]:
        if (place, WITH_BELIEFS[kind]) not in best:
            continue
        agent, believing, without = AGENTS[0], best[place, WITH_BELIEFS[kind]], best[place, kind]
        means = means_s(first_of(place), (agent,), spending.seeds, options.on)  # it never stops a run
        means |= means_s(place, (believing,), spending.seeds, options.on)
        means |= means_s(place, (without,), spending.seeds, options.on)
        for policy, other in ((agent, believing), (agent, without), (believing, without)):
            own, than = ([means[name][seed] for seed in spending.seeds] for name in (policy, other))
            pair = paired(own, than)
            at = {"cell": place.cell, "price_s": place.price_s, "against": kind}
            row: dict[str, Any] = at | {"policy": policy, "compared_with": other, "n": pair.n}
            rows.append(row | {"ratio": pair.ratio, "low": pair.low, "high": pair.high})
        say(f"{place}, {kind}: {', '.join(f'{ratio:.3f}' for ratio in [row['ratio'] for row in rows[-3:]])}")
    ledger.close(spending)
    command.write_rows(OUT / "hidden-beliefs.csv", rows)
    put("\n".join([BELIEFS, *beliefs_table(rows), "", spending.sentence(HOW)]))
    return rows


def seeds(options: command.Options, say: command.Say) -> list[Row]:
    """Write ``hidden-seeds.csv`` and its section of ``hidden.md``. On validation seeds, only print the table."""
    trained = {f"seed {number}": path for number, path in enumerate(options.agents, 1)}
    best: dict[tuple[Place, str], str] = chosen()
    rows: list[Row] = []
    cells, text = options.cell or CELLS, "python scripts/table_hidden.py seeds"
    spent: dict[str, Spending] = {}
    for cell in () if options.validation else cells:
        table = "agents/hidden" if cell in DRAWN else f"agents/hidden-{cell}"
        spent[cell] = spend(table, cell, TRAINED_SEEDS, text, options)
    for place in [place for place in PLACES if place.cell in cells]:
        judged = spent[place.cell].seeds if spent else CHECKED
        rivals = {kind: name for kind in (options.kind or WITH_BELIEFS) if (name := best.get((place, kind)))}
        beliefs = ["beliefs=true"] * (place.known == "hidden")
        agents = {name: f"ppo[{','.join([f'checkpoint={path}', *beliefs])}]" for name, path in trained.items()}
        agents["shipped"] = AGENTS[not beliefs]
        means = means_s(place, tuple(rivals.values()), judged, options.on)
        means |= means_s(first_of(place), tuple(agents.values()), judged, options.on)  # which never stop a run
        jct_s = {name: np.array([means[policy][seed] for seed in judged]) for name, policy in agents.items()}
        jct_s[ALL] = np.exp(np.mean([np.log(jct_s[name]) for name in trained], axis=0))
        for kind, heuristic in rivals.items():
            than = [means[heuristic][seed] for seed in judged]
            for name, own in jct_s.items():
                pair = paired(own.tolist(), than)
                rows.append(Row(*place, name, kind, heuristic, pair.n, pair.ratio, pair.low, pair.high))
        say(f"{place}: {', '.join(f'{row.against} {row.ratio:.3f}' for row in rows if row[:4] == (*place, ALL))}")
    shown = seeds_table(rows)
    if not spent:
        say("\n".join(shown))
        return rows
    ledger = Ledger(RESULTS / "seeds.yaml")
    for spending in spent.values():
        ledger.close(spending)
    command.write_rows(OUT / "hidden-seeds.csv", [row._asdict() for row in rows])
    drawn = next((spent[cell] for cell in DRAWN if cell in spent), next(iter(spent.values())))
    windows = ", ".join(f"{cell} {len(spent[cell].seeds)}" for cell in spent if cell not in DRAWN)
    put("\n".join([TRAINED, *summaries(rows), *shown, "", drawn.sentence(f"{HOW}. Windows of traces: {windows}")]))
    return rows


def seeds_table(rows: Sequence[Row]) -> list[str]:
    """The table of training seeds, with the geometric means over cells and prices."""
    agents = [name for name in dict.fromkeys(row.agent for row in rows) if name not in (ALL, "shipped")]
    table: list[tuple[object, ...]] = []
    groups = {
        (row.known, row.against): [other for other in rows if (other[1], other[4]) == (row[1], row[4])] for row in rows
    }
    for (known, against), group in groups.items():
        places = dict.fromkeys(row[:3] for row in group)
        ratios = np.array([[row.ratio for row in group if row.agent == name] for name in agents])
        for number, place in enumerate(places):
            of = {row.agent: row for row in group if row[:3] == place}
            price, every = f"{place[2]} s" if "preemptive" in against else "any", of[ALL]
            figures = [f"{of[name].ratio:.3f}" for name in agents]
            overall = _with_interval(every)
            spread = interquartile_mean(ratios[:, [number]])
            names = (*place[:2], price, against, f"`{every.heuristic}`")
            table.append((*names, *figures, spread, overall, f"{of['shipped'].ratio:.3f}"))
        means = [
            geometric_mean([row.ratio for row in group if row.agent == name]) for name in (*agents, ALL, "shipped")
        ]
        *own, overall, shipped = [f"{mean:.3f}" for mean in means]
        table.append(("geometric mean", known, "", against, "", *own, interquartile_mean(ratios), overall, shipped))
    head = (
        "cell",
        "estimates",
        "price",
        "kind",
        "compared with",
        *agents,
        "interquartile mean",
        ALL,
        "shipped",
    )
    return list(markdown(head, table))


def _with_interval(row: Row) -> str:
    """The ratio with its interval, if there is one."""
    return f"{row.ratio:.3f}" if np.isnan(row.low) else f"{row.ratio:.3f} ({row.low:.3f} to {row.high:.3f})"


def summaries(rows: Sequence[Row]) -> list[str]:
    """The geometric means over the workloads, by estimates and price, and the shipped agent by workload."""
    agents = [name for name in dict.fromkeys(row.agent for row in rows) if name not in (ALL, "shipped")]
    table: list[tuple[object, ...]] = []
    for known, against, price_s in dict.fromkeys((row.known, row.against, row.price_s) for row in rows):
        of = [row for row in rows if (row.known, row.against, row.price_s) == (known, against, price_s)]
        ratios = {name: np.array([row.ratio for row in of if row.agent == name]) for name in (*agents, "shipped")}
        means = [f"{geometric_mean(ratios[name]):.3f}" for name in ratios]
        spread = interquartile_mean(np.array([ratios[name] for name in agents]))
        price = f"{price_s} s" if "preemptive" in against else "any"
        table.append((known, against, price, *means[:-1], spread, means[-1], f"{ratios['shipped'].max():.3f}"))
    head = ("estimates", "kind", "price", *agents, "interquartile mean", "shipped", "shipped, largest ratio")
    places = dict.fromkeys((row.known, row.against) for row in rows)
    shown = {
        (row.cell, row.known, row.against): _with_interval(row)
        for row in rows
        if row.agent == "shipped" and row.price_s == (30 if "preemptive" in row.against else 0)
    }
    by_cell = [
        (cell, *[shown.get((cell, *at), "") for at in places]) for cell in dict.fromkeys(row.cell for row in rows)
    ]
    return [
        "Geometric means over the workloads:",
        "",
        *markdown(head, table),
        "",
        "The shipped agent by workload, at a price of 30 s:",
        "",
        *markdown(("cell", *[", ".join(at) for at in places]), by_cell),
        "",
        "All rows:",
        "",
    ]


def interquartile_mean(ratios: np.ndarray, resamples: int = 5000) -> str:
    """The mean of the middle half of all ratios, (training seeds, tasks), and its 95 % interval from a bootstrap that
    draws training seeds for each task separately (Agarwal et al., NeurIPS 2021; rliable).
    """
    runs, tasks = ratios.shape
    drawn = np.random.default_rng(0).integers(runs, size=(resamples, runs, tasks))
    every = np.concatenate([ratios.reshape(1, -1), ratios[drawn, np.arange(tasks)].reshape(resamples, -1)])
    mean, *means = trim_mean(every, 0.25, axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


def put(section: str) -> None:
    """Replace the section of ``hidden.md`` that has the same heading, or add it at the end."""
    path = OUT / "hidden.md"
    there = re.split(r"^(?=##? )", path.read_text(), flags=re.MULTILINE)[1:] if path.exists() else []
    sections = {part.partition("\n")[0]: part.strip() for part in [*there, section]}
    write_text(path, "\n\n".join(sections.values()) + "\n")


def beliefs_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of heuristics with expected durations, with the geometric means over the cells."""
    table: list[tuple[object, ...]] = []
    for kind, price_s in dict.fromkeys((row["against"], row["price_s"]) for row in rows):
        of = [row for row in rows if (row["against"], row["price_s"]) == (kind, price_s)]
        price = f"{price_s} s" if kind == "preemptive" else "any"
        for three in zip(of[::3], of[1::3], of[2::3], strict=True):
            names = [f"`{row['compared_with']}`" for row in three[:2]]
            figures = [f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})" for row in three]
            table.append((three[0]["cell"], price, *names, *figures))
        means = [geometric_mean([row["ratio"] for row in of[number::3]]) for number in range(3)]
        table.append(("geometric mean", price, "", "", *[f"{mean:.3f}" for mean in means]))
    heads = ("heuristic with beliefs", "heuristic without", "agent / with", "agent / without", "with / without")
    return list(markdown(("cell", "price", *heads), table))


BELIEFS = """## Heuristics with the same expected durations

The policy `believing` shows a heuristic the expected durations that `ppo[beliefs=true]` sees. Durations are hidden.
Rows without a price compare heuristics that never stop a run, and the other rows those that may. Each row has the
heuristics that were best on the validation seeds ([hidden-choice.csv](hidden-choice.csv)): with expected durations,
from ten that never stop a run, or from `srtf` and `srsf`. `2d-las`, `2d-gittins` and `tiresias` use no estimates, so
expected durations would change nothing for them.
"""


TRAINED = """## Five training seeds

Five agents that differ only in their training seed
([how they were trained](README.md#training-where-only-the-typical-duration-is-known)), and the agent that ships with
dagsim (*shipped*), over the best heuristic that never stops a run (*plain*) and over the best one that may
(*preemptive*). The workloads are [those of the general agent](cells) and `like-helios`. Durations are hidden, estimates
are noisy (sigma 1), or policies know the time limits that users state: 1 to 20 times the true duration, drawn at
random. The heuristics have the parameters that were best on 8 validation seeds, for the workload, the estimates and the
price ([hidden-choice.csv](hidden-choice.csv)). Where durations are hidden, the agents get expected durations
(`beliefs=true`). They never stop a run. For traces, the seeds are windows of the last fifth. They were used before in
the table of the general agent, but not to choose an agent or a heuristic.

The *interquartile mean* is the mean of the middle half of the ratios of all training seeds. In rows of geometric means,
these are the ratios of all training seeds on all workloads. Its 95% interval comes from a bootstrap over training
seeds, as in rliable. *All seeds* is the geometric mean over the training seeds, with an interval over the report seeds.
A ratio without an interval is the same for every seed.
"""


HEAD = f"""# The agent where durations are hidden or noisy

Mean job completion times with the agent that ships with dagsim (`ppo`), over those with the best heuristic that never
stops a run (*plain*), and with the best one that may (*preemptive*). The agent never stops a run. The heuristics have
the parameters that were best on {len(TRIED)} validation seeds, for the cell, the estimates and the price of resuming a
stopped run ([hidden-choice.csv](hidden-choice.csv)). *Noisy* estimates have sigma 1. `beliefs=true` gives the
agent expected durations where they are hidden. The agent was not trained on hidden durations. Rows of the kind
*agent* compare it with the same agent without expected durations.
"""


def page(rows: Sequence[Row]) -> list[str]:
    """The table of ``hidden.md``, and the geometric means over its places."""
    table: list[tuple[object, ...]] = []
    lowest = {row[:2]: row.price_s for row in reversed(rows)}
    for key in dict.fromkeys((*row[:3], row.against, row.heuristic) for row in rows):
        if key[3] != "preemptive" and key[2] != lowest[key[:2]]:
            continue
        price = f"{key[2]} s" if key[3] == "preemptive" else "any"
        of = [row for row in rows if (*row[:3], row.against, row.heuristic) == key]
        figures = [_with_interval(row) for row in of]
        table.append((*key[:2], price, key[3], f"`{key[4]}`", *figures, *[""] * (len(AGENTS) - len(of))))
    for known in dict.fromkeys(row.known for row in rows):
        for against in ("plain", "preemptive"):
            of = [row for row in rows if (row.known, row.against) == (known, against)]
            means = [geometric_mean([row.ratio for row in of if row.agent == agent]) for agent in AGENTS]
            table.append(("geometric mean", known, "", against, "", *[f"{mean:.3f}" for mean in means]))
    head = ("cell", "estimates", "price", "kind", "compared with", *[f"`{agent}`" for agent in AGENTS])
    return list(markdown(head, table))


def _work(options: command.Options, say: command.Say) -> Any:
    torch.set_num_threads(1)
    if options.what == "choose":
        return choose(options, say)
    if options.what == "beliefs":
        return beliefs(options, say)
    return [row._asdict() for row in (seeds if options.what == "seeds" else report)(options, say)]


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("what", choices=("choose", "report", "beliefs", "seeds"))
    parser.add_argument("--kind", nargs="+", default=[], choices=KINDS, help="choose only heuristics of these kinds")
    parser.add_argument("--cell", nargs="+", default=[], choices=CELLS, help="only these cells")
    parser.add_argument("--agents", nargs="+", type=Path, default=[], help="agents that differ in their training seed")
    parser.add_argument("--validation", action="store_true", help="judge agents on validation seeds")
    parser.add_argument("--again", action="store_true", help="the same report seeds again")
    parser.add_argument("--fresh", action="store_true", help="new report seeds")
    parser.add_argument("--on", default="local:1", help="where runs take place, as `dagsim sweep --on`")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

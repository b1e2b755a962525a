"""Write the tables of the pages between their markers, from the registries and from the files below ``results/``.

    python scripts/make_pages.py [--check]

Pages are README and those below ``docs/`` and ``results/``. ``--check`` changes nothing; it names the pages that are
out of date, and exits with 1 if there are any. ``TABLES`` has each table by the name in its markers.
"""

from __future__ import annotations

import csv
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import product
from math import exp
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import command
import reference
from command import markdown

from dagsim.config.bundled import opening_of
from dagsim.config.bundled import shipped as shipped_files
from dagsim.config.schema import load_config
from dagsim.families.benchmark.entries import read_entry
from dagsim.families.benchmark.page import leaderboards
from dagsim.families.benchmark.suite import suite
from dagsim.metrics.paired import ComparedRow, Paired, Verdict, compared, holm, paired, verdict
from dagsim.model import Cluster
from dagsim.model.arithmetic import rounded
from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES
from dagsim.traces import READERS, reader

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
MARKED = re.compile(r"(<!-- ([\w-]+): made by scripts/make_pages\.py -->\n).*?(\n<!-- end of \2 -->)", re.DOTALL)


# Reading results


def read_text(file: str) -> str:
    """A file below ``results/``."""
    return (RESULTS / file).read_text(encoding="utf-8")


def read_json(file: str) -> Any:
    """A JSON file below ``results/``."""
    return json.loads(read_text(file))


def read_rows(file: str) -> list[dict[str, str]]:
    """The rows of a CSV file below ``results/``."""
    return list(csv.DictReader(read_text(file).splitlines()))


def search(pattern: str, file: str) -> re.Match[str]:
    """Return the first match in a file below ``results/``.

    Raises:
        ValueError: There is no match.
    """
    match = re.search(pattern, read_text(file), re.MULTILINE)
    if match is None:
        raise ValueError(f"results/{file}: nothing matches {pattern!r}")
    return match


def made_by(file: str) -> Iterator[str]:
    """Return the line of a file below ``results/`` with command, commit, seeds, n and method."""
    yield from ("", f"*{search(r'^Made .*$', file).group()}*")


def filled(template: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Fill in the cells of a row, ``{name} | {value:.2f}``, for each of the rows. Numbers are ``rounded`` first, so
    that one between two roundings is shown alike on every processor.
    """
    for row in rows:
        numbers = {name: rounded(value) for name, value in row.items() if isinstance(value, float)}
        yield template.format_map({**row, **numbers}).split(" | ")


def interval(low: float | str, high: float | str) -> str:
    """``0.960 to 0.982``."""
    return f"{float(low):.3f} to {float(high):.3f}"


# Registries


def policies() -> Iterator[str]:
    """Policies of the GPU cluster with measured microseconds per decision."""
    costs = read_json("baselines/cost.json")["us_per_decision"]
    head = ("`--policy`", "rule", "uses estimates", "preemptive", "µs per decision", "source")
    yield from markdown(head, (_policy(entry, costs.get(entry.name)) for entry in POLICIES.describe()))


def _policy(entry: Any, cost_us: float | None) -> Iterator[str]:
    yield from (f"`{entry.name}`", entry.summary)
    yield from ("yes" if tag in entry.tags else "" for tag in ("estimates", "preemptive"))
    cost = "not measured" if cost_us is None else f"{rounded(cost_us):,.0f}"
    yield cost + (" (by definition)" if "costly" in entry.tags else "")
    text = " ".join((inspect.getdoc(POLICIES.get(entry.name)) or "").split())
    sources = re.findall(r"\(([^()]*[A-Z][^()]*\b(?:19|20)\d\d[^()]*)\)", text)  # brackets with a year
    yield "; ".join(dict.fromkeys(sources)).replace("|", "/").replace("``", "`")


def placements() -> Iterator[str]:
    """Placement rules."""
    rows = ((f"`{entry.name}`", entry.summary) for entry in PLACEMENT_RULES.describe())
    yield from markdown(("placement", "where tasks go"), rows)


def readers() -> Iterator[str]:
    """Trace formats."""
    formats = ((name, reader(name)) for name in sorted(READERS.names()))
    yield from markdown(
        ("`--format`", "what it reads", "its own options"),
        ((f"`{name}`", it.summary, ", ".join(f"`{option}`" for option in sorted(it.uses))) for name, it in formats),
    )


# Decima and Spark


def decima(*files: str) -> Iterator[str]:
    """For each file and policy, the mean and the ratio to the first policy, the best heuristic."""
    yield from markdown(
        ("file", "n", "policy", "mean [s]", "ratio", "95 % interval", "verdict"),
        (cells for file in files for cells in _judged(file)),
        numbers=(1, 3, 4),
    )
    for file in files:
        if origin := read_json(f"decima/{file}.json").get("made"):
            yield from ("", f"*{file}: {origin}*")


def _judged(file: str) -> Iterator[list[str]]:
    for policy, (mean, row) in decima_rows(file).items():
        cells = [file, str(row.pair.n), f"`{policy}`", f"{mean:.1f}", f"{row.pair.ratio:.3f}"]
        is_reference = policy == next(iter(decima_rows(file)))
        yield [*cells, *(("-", "reference") if is_reference else _ratio_cells(row))]


def _ratio_cells(row: ComparedRow) -> tuple[str, str]:
    return interval(row.pair.low, row.pair.high), str(verdict(row.pair, row.p))


@cache
def decima_rows(file: str) -> dict[str, tuple[float, ComparedRow]]:
    """For each policy of a file of ``results/decima``, the mean, and the comparison with the first
    policy.
    """
    values = {line["policy"]: line["by_seed_s"] for line in read_json(f"decima/{file}.json")["lines"]}
    first = next(iter(values))
    rows = compared(values, first) | {first: compared({"a": values[first], "b": values[first]}, "a")["b"]}
    return {policy: (fmean(by_seed), rows[policy]) for policy, by_seed in values.items()}


GAINS = (
    ("W1", "learned-w1", "weighted-fair[alpha=-0.75]", "srpt-cp[cap=5]", "decima[checkpoint=results/decima/w1.pt]"),
    ("W2", "learned-w2", "weighted-fair", "srpt-cp[cap=16]", "decima[checkpoint=dagsim/families/decima/w2.pt]"),
    (
        "20 jobs at once",
        "held-out-batch",
        "weighted-fair[alpha=-1,total=true]",
        "srpt-cp[cap=8]",
        "decima[checkpoint=results/decima/batch.pt]",
    ),
)
"""Setting, file, tuned weighted fair share as in the paper, capped SRPT, and network."""


def gains() -> Iterator[str]:
    """What a capped SRPT and Decima gain over the tuned weighted fair share, the baseline of Decima's paper."""
    rows = []
    for setting, file, fair, capped, network in GAINS:
        lines = read_json(f"decima/{file}.json")["lines"]
        times = {line["policy"]: line["by_seed_s"] for line in lines}
        pairs = [paired(times[policy], times[fair]) for policy in (capped, network)]
        ratios = [f"{pair.ratio:.3f} ({interval(pair.low, pair.high)})" for pair in pairs]
        share = (1 - pairs[0].ratio) / (1 - pairs[1].ratio)
        cells = (setting, str(pairs[0].n), f"`{fair}`", f"`{capped}`", *ratios)
        rows.append([*cells, f"{share:.0%}" if pairs[0].ratio < 1 else "none"])
    head = "setting", "n", "weighted fair share", "capped SRPT", "SRPT's ratio", "Decima's ratio", "share of the gain"
    yield from markdown(head, rows, numbers=(1, 6))


def transfer() -> Iterator[str]:
    """For each network and cell, the ratio of mean completion times to the best heuristic of the cell on validation."""
    yield from _on_cells("transfer", r"(?:transfer-)?(\w+)\.pt", "trained on", "transfer-heuristics")


def balanced() -> Iterator[str]:
    """The same for networks that were trained on the balanced mixture, by training seed."""
    yield from _on_cells("balanced", r"balanced-(\d+)(?:-(\d+))?\.pt", "training seed", "transfer-heuristics")


def decima_network() -> Iterator[str]:
    """The same for the network that ships as ``decima``, and for the one for W2."""
    yield from _on_cells("shipped", r"(w2|balanced-5-84)\.pt", "network", "transfer-heuristics")


def alibaba_large() -> Iterator[str]:
    """The same for networks on all jobs of Alibaba 2018."""
    pattern = r"(?:alibaba-large-)?(w2|\d)\.pt"
    yield from _on_cells("alibaba-large", pattern, "training seed", "alibaba-large-heuristics")


def _on_cells(name: str, pattern: str, head: str, heuristics: str) -> Iterator[str]:
    file = read_json(f"decima/held-out-{name}.json")
    times = {(line["policy"], line["system"]): line["by_seed_s"] for line in file["lines"]}
    networks = {policy: match for policy, _ in times if (match := re.search(pattern, policy))}
    longer = {
        policy: f", {match[2]} iterations" if match.re.groups > 1 and match[2] else ""
        for policy, match in networks.items()
    }
    cells = list(dict.fromkeys(cell for _, cell in times))
    best = {cell: _best_on_validation(cell, heuristics) for cell in cells}
    rows = [["best heuristic", *(f"`{best[cell]}`, {fmean(times[best[cell], cell]):.1f} s" for cell in cells), ""]]
    pairs = {at: paired(times[at], times[best[at[1]], at[1]]) for at in product(networks, cells)}
    ps = dict(zip(pairs, holm([pair.p for pair in pairs.values()]), strict=True))
    means = {policy: geometric_mean([pairs[policy, cell].ratio for cell in cells]) for policy in networks}
    for policy, match in networks.items():
        ratios = (_ratio(pairs[policy, cell], ps[policy, cell]) for cell in cells)
        rows.append([f"`{match[1]}`{longer[policy]}", *ratios, f"{means[policy]:.3f}"])
    for length in dict.fromkeys(longer.values()):
        alike = [policy for policy, match in networks.items() if match[1].isdigit() and longer[policy] == length]
        columns = [*([pairs[policy, cell].ratio for policy in alike] for cell in cells), [means[one] for one in alike]]
        if len(alike) > 1:
            spread = (f"{min(ratios):.3f} to {max(ratios):.3f}" for ratios in columns)
            rows.append([f"smallest to largest{length}", *spread])
    yield from markdown((head, *cells, "mean"), rows)
    yield from ("", f"*held-out-{name}: {file['made']}*")


def _ratio(pair: Paired, p: float) -> str:
    """The ratio with its interval, bold if it is better."""
    ratio = f"{pair.ratio:.3f}"
    mark = f"**{ratio}**" if verdict(pair, p) is Verdict.BETTER else ratio
    return f"{mark} ({interval(pair.low, pair.high)})"


def _best_on_validation(cell: str, heuristics: str) -> str:
    """The heuristic of the least geometric mean in a cell of the table ``heuristics``."""
    lines = [line for line in read_json(f"decima/{heuristics}.json")["lines"] if line["system"] == cell]
    best: str = min(lines, key=lambda line: rounded(geometric_mean(line["by_seed_s"])))["policy"]
    return best


def trained() -> Iterator[str]:
    """For each network of the transfer matrix, its training time, and its ratio to the heuristic that it imitated."""
    rows = []
    for path in sorted(RESULTS.glob("decima/transfer-*.progress.csv")):
        progress = read_rows(f"decima/{path.name}")
        name = path.name.removeprefix("transfer-").removesuffix(".progress.csv")
        ratios = [float(progress[place]["best_ratio"]) for place in (0, -1)]
        minutes = float(progress[-1]["seconds"]) / 60
        rows.append((f"`{name}`", f"{minutes:.0f}", progress[-1]["iteration"], *(f"{ratio:.3f}" for ratio in ratios)))
    head = ("trained on", "minutes", "iterations", "ratio after imitation", "best ratio")
    yield from markdown(head, rows, numbers=range(1, 5))


def trainings() -> Iterator[str]:
    """For each network of ``results/decima``, its training time, and its first and best mean JCT on
    validation.
    """
    head = ("network", "minutes", "iterations", "validation before [s]", "best validation [s]")
    yield from markdown(head, filter(None, map(_training, sorted(RESULTS.glob("decima/*.log.jsonl")))), range(1, 5))


def _training(log: Path) -> tuple[str, ...] | None:
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    values = [row["validation_s"] for row in rows if "validation_s" in row]
    if any("stage" in row for row in rows) or not values:
        return None
    minutes, iterations = rows[-1]["minutes"], rows[-1]["iteration"]
    name = log.name.removesuffix(".log.jsonl")
    return f"`{name}`", f"{minutes:.0f}", str(iterations), f"{values[0]:.1f}", f"{min(values):.1f}"


def heuristics() -> Iterator[str]:
    """Mean completion times of the Spark heuristics, by workload and set of rules."""
    columns = ("W1 parity", "W2 parity", "W1 default", "W2 default")
    means = {(line["policy"], line["system"]): line["mean_s"] for line in read_json("decima/heuristics.json")["lines"]}
    names = dict.fromkeys(policy for policy, _ in means)
    rows = ((f"`{policy}`", *(f"{means[policy, column]:.1f}" for column in columns)) for policy in names)
    yield from markdown(("policy", *columns), rows)


def ramp() -> Iterator[str]:
    """Blocking, completion times and speed-ups on RAMP by ddls' rules."""
    results = read_json("ramp/ddls.json")
    chosen = {
        "first_fit": ["max", "acceptable_jct", "constant[degree=4]"],
        "best_fit": [f"on_time[least={least}]" for least in (2, 4, 8)],
    }
    names = [f"{policy}, {placer}" for placer, policies in chosen.items() for policy in policies]

    def cell(row: dict[str, float]) -> str:
        return f"{row['mean_blocking']:.4f} / {row['jct_s']:,.0f} / {row['speedup']:.1f}"

    head = ("policy, placer", *(f"beta {beta}" for beta in "ABCD"))
    yield from markdown(head, ((f"`{name}`", *(cell(results[beta][name]) for beta in "ABCD")) for name in names))


# Agents


@cache
def agents() -> list[dict[str, str]]:
    """The standings of the agents: the four cells, and the trace of ITP."""
    return read_rows("agents/cells.csv") + read_rows("agents/itp.csv")


def shipped() -> Iterator[str]:
    """Shipped agents, roll-outs and preemptive policies, compared with the best cheap heuristic of
    their cell.
    """
    rows = (
        (
            *(row["cell"], row["estimates"], _coded(row["policy"]), row["n"], f"{float(row['ratio']):.3f}"),
            *(interval(row["ratio_low"], row["ratio_high"]), row["verdict"].split(";")[0]),
        )
        for row in agents()
        if row["verdict"] != "reference" and row["policy"].startswith(("agent ", "roll-out ", "best "))
    )
    heads = ("cell", "estimates", "policy", "n", "ratio", "95 % interval", "verdict")
    yield from markdown(heads, rows, numbers=(3, 4))
    for page in ("report", "itp"):
        yield from made_by(f"agents/{page}.md")


def _coded(policy: str) -> str:
    """Format ``best preemptive (srsf)`` with the name of the policy as code."""
    return re.sub(r"\((.+)\)$", r"(`\1`)", policy)


_ABLATIONS = {
    "short": "nothing: the same settings at this length",
    "unshaped": "the shaped reward",
    "undiscounted": "discounting",
    "look-ahead-off": "the look-ahead",
    "look-ahead-per-gpu": "`per_gpu` instead of `sorted` look-ahead",
    "look-ahead-cdf": "`cdf` instead of `sorted` look-ahead",
    "critic": "the baseline of replicas (a critic instead)",
    "attention": "the candidate scorer (cross-attention instead)",
    "linear": "the candidate scorer (a linear score instead)",
    "mlp": "the candidate scorer (a flat MLP instead)",
    "cloned": "nothing: a warm start from `eft-wait`",
    "reinforce": "PPO (REINFORCE instead)",
    "sac": "PPO (SAC instead)",
    "d3qn": "PPO (D3QN instead)",
}


def ablations() -> Iterator[str]:
    """Ratios of the ablations to ``eft-wait``."""
    measured = {row["policy"]: row for row in read_rows("agents/independent-1.1.csv")}
    chosen = ((text, measured[f"{name}-1"]) for name, text in _ABLATIONS.items())
    rows = ((text, f"{float(row['ratio']):.3f}", interval(row["ratio_low"], row["ratio_high"])) for text, row in chosen)
    yield from markdown(("left out", "ratio to `eft-wait`", "95 % interval"), rows, numbers=(1,))


# Baselines, statistics

GRID = (
    "eft-wait[theta=1.0,order=task]",
    "eft-wait[theta=0.85,order=work]",
    "rollout",
    "min-min",
    "srsf",
    "srpt-work",
    "2d-las",
    "qssf",
    "themis",
    "hrrn",
    "fifo-fit",
    "fifo",
    "conservative",
    "heft",
    "cpop",
    "tetris",
)


def grid() -> Iterator[str]:
    """Ratios to SJF, means over the loads of the grid of baselines, for exact and noisy durations."""
    rows = read_rows("baselines/grid.csv")
    names = {"heterogeneous": "mixed GPUs", "homogeneous": "equal GPUs", "independent": "independent", "dag": "DAGs"}
    blocks = list(product(("heterogeneous", "homogeneous"), ("independent", "dag")))

    def cell(*place: str) -> str:
        here = [row for row in rows if (row["policy"], row["cluster"], row["shape"]) == place]
        return " / ".join(
            f"{fmean(float(row['ratio']) for row in here if row['estimates'] == estimates):.2f}"
            for estimates in ("exact", "noisy")
        )

    measured = {row["policy"] for row in rows}
    yield from markdown(
        ("exact / noisy", *(f"{names[cluster]}, {names[shape]}" for cluster, shape in blocks)),
        ((f"`{policy}`", *(cell(policy, *block) for block in blocks)) for policy in GRID if policy in measured),
    )
    yield from made_by("baselines/grid.md")


METHODS = {"t_log": "ratio", "median": "median ratio", "ratio_of_means": "of all job-seconds"}


def coverage() -> Iterator[str]:
    """For each population and method, the coverage by n (mean over the pairs, worst pair), and
    false verdicts.
    """
    populations = read_json("statistics/coverage.json")
    sizes = next(iter(populations.values()))
    yield from markdown(("population", "figure", *(f"n = {n}" for n in sizes)), _coverage_rows(populations))


def _coverage_rows(populations: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    for name, by_n in populations.items():
        for method, figure in () if name.startswith("equal") else METHODS.items():
            shares = (row.get(method) for row in by_n.values())
            yield [name, figure, *(_shares(s["coverage"], s["worst"]) if s else "none" for s in shares)]
        plain = ((row.get("plain"), row.get("plain_worst")) for row in by_n.values())
        shares = (_shares(mean, worst) if mean and worst else "none" for mean, worst in plain)
        yield [name, "ratio, not marked approximate", *shares]
        own = (f"{rounded(row['own']):.3f}{'~' if row['own_approximate'] else ''}" for row in by_n.values())
        yield [name, "a policy's own mean", *own]
        yield [name, "marked approximate", *(f"{rounded(100 * row['approximate']):.1f} %" for row in by_n.values())]
        false = (f"{rounded(100 * row['false_verdicts']):.1f} %" for row in by_n.values())
        yield [name, "equal policies with p < 0.05", *false]


def _shares(mean: float, worst: float) -> str:
    return f"{rounded(mean):.3f} [{rounded(worst):.3f}]"


def rules() -> Iterator[str]:
    """The figures of ``scripts/measure_rules.py``."""
    measured = read_json("statistics/rules.json")
    power, tables, steady = measured["power"], measured["tables"], measured["steady"]
    shares = {way: [100 * share for by_n in tables[way].values() for share in by_n.values()] for way in tables}
    at = ", ".join(f"{100 * power[n]:.0f} % (n = {n})" for n in ("10", "20", "30"))
    held, offered = (sorted(steady[name]) for name in ("held", "offered"))
    sizes = sorted(measured["populations"].values())
    alike = measured["alike"]["jobs"] / measured["alike"]["worth"]
    yield from markdown(
        ("figure", "measured"),
        (
            ("number of seeds in a population", f"{sizes[0]} to {sizes[-1]}"),
            ("power: share of samples that show a difference of 5 % (`fifo-fit`, `sjf`, default workload)", at),
            ("tables of equal policies with a false verdict, plain p-values", _range(shares["plain"])),
            ("the same with Holm's method", _range(shares["holm"])),
            ("coverage of the precision rule's intervals, worst pair", f"{measured['precision']['worst']:.3f}"),
            (
                "traces without drift for which `--blocks` prints no interval",
                f"{100 * measured['blocks']['stopped']:.0f} %",
            ),
            ("jobs of one run at load 0.9 that carry as much information as one independent job", f"{alike:.0f}"),
            ("`steady`: offered load", f"{offered[0]:.2f} to {offered[-1]:.2f}"),
            ("`steady`: share of the GPUs that `sjf` holds", _range([100 * share for share in held])),
        ),
    )
    yield from ("", f"*Made by `{measured['command']}`.*")


def _range(percent: list[float]) -> str:
    return f"{min(percent):.0f} to {max(percent):.0f} %"


def peers() -> Iterator[str]:
    """For each simulator, the CPU time of a job, also as a multiple of the bare loop."""
    measured = read_json("peers/peers.json")
    costs = {name: cost for name, cost in measured["us_per_job"].items() if not isinstance(cost, str)}
    bare = costs["bare heapq loop"]
    yield from markdown(
        (f"{measured['jobs']:,} jobs, first come, first served", "µs per job", "times bare"),
        (
            (name, f"{rounded(cost):,.2f}", f"{rounded(cost / bare):,.1f}")
            for name, cost in sorted(costs.items(), key=lambda it: it[1])
        ),
    )


# Speed and validations


def kernel(name: str) -> float:
    """A figure of ``results/kernel/bench.txt``."""
    return float(search(rf"^{re.escape(name)}\s+([\d.]+)", "kernel/bench.txt").group(1))


def speeds() -> Iterator[str]:
    """The speed of the kernel and of the compiled engine."""
    yield from markdown(("measurement", "value"), _speeds())


def _speeds() -> Iterator[tuple[str, str]]:
    for size, suffix in (("100,000", ""), ("1,000,000", "_10x")):
        cost_us, ratio = kernel(f"dag_fifo{suffix}_kernel_us"), kernel(f"dag_fifo{suffix}_ratio")
        figures = f"{cost_us:.1f} µs per task, {ratio:.1f} times a bare `heapq` loop"
        yield f"replay of DAGs with {size} single-GPU tasks, full records", figures
    lane = f"{kernel('engine_us'):.2f} µs per task, {kernel('engine_us') / kernel('bare_us'):.2f} of the bare loop"
    many = f"{kernel('engine_4000_nodes_us'):.2f} µs on 4,000 nodes"
    yield "100,000 tasks in the compiled engine, full records", f"{lane}; {many}"
    yield "tasks of 20 identical instances", f"{kernel('instances20_us_per_instance'):.1f} µs per instance"
    replays = re.findall(r"^now +([\d.]+) user \+ ([\d.]+) sys", read_text("kernel/replay.txt"), re.MULTILINE)
    spent_s = [float(user) + float(system) for user, system in replays]
    parts = "reading, simulation, metrics and run folder ([commands](kernel/replay.txt))"
    yield f"replay of 1,000,000 tasks from a file: {parts}", f"{min(spent_s):.1f} to {max(spent_s):.1f} CPU-s"
    slurm_s = re.search(r"^([\d.]+) and ([\d.]+) CPU-s", read_text("kernel/slurm.txt"), re.MULTILINE)
    assert slurm_s is not None
    log = "`slurm-multifactor` on a log of 200,000 jobs ([commands](kernel/slurm.txt))"
    yield log, f"{float(slurm_s[1]):.0f} to {float(slurm_s[2]):.0f} CPU-s"
    pending = " / ".join(f"{kernel(f'pending_{name}_us'):.1f}" for name in ("fifo", "sjf", "srtf"))
    yield "100,000 tasks pending, FIFO / SJF / SRTF", f"{pending} µs per task"
    models = " / ".join(f"{kernel(f'{name}_us'):.1f}" for name in ("setup", "network", "failures"))
    yield "with set-up delays / a network / failing nodes", f"{models} µs per task"
    yield "memory", f"{kernel('bytes_per_task'):.0f} bytes per task, jobs included"


def validations() -> Iterator[str]:
    """The validations of ``validate_all.py``, with the number of figures that each compares."""
    rows = re.findall(r"^│ (\w+) .*│ +(MISS)? *│$", read_text("validation/all.txt"), re.MULTILINE)
    counts, missed = Counter(name for name, _ in rows), Counter(name for name, miss in rows if miss)
    cells = ((f"`{name}`", count, missed[name]) for name, count in counts.items())
    yield from markdown(("validation", "figures", "missed"), cells, numbers=(1, 2))


def plans() -> Iterator[str]:
    """The answers of ``dagsim plan`` on M/M/c queues beside the truth, from ``validate_plan.py``."""
    rows = [row | _queue(row) | {"interval": _interval(row)} for row in read_json("validation/plan.json")]
    cells = (
        "{servers} | {load} | {per_node} | {today_p95:,.0f} | {log_p95:,.0f} | {planned} | {least} | {interval} | "
        "{erlang_p95:,.0f}"
    )
    heads = (
        *QUEUE,
        "p95 wait today (s)",
        "in the log (s)",
        "GPUs by `plan`",
        "GPUs needed",
        "95% interval at that size (s)",
        "Erlang's formula (s)",
    )
    yield from markdown(heads, filled(cells, rows), numbers=range(9))


QUEUE = "servers", "load", "servers per node"


def _queue(row: dict[str, Any]) -> dict[str, Any]:
    """Split the name of a queue, such as ``8x0.7/1``."""
    return dict(zip(("servers", "load", "per_node"), re.split("[x/]", row["queue"]), strict=True))


def _interval(row: dict[str, Any]) -> str:
    return "none" if row["low"] is None else f"{row['low']:,.0f} to {row['high']:,.0f}"


def held_periods() -> Iterator[str]:
    """How often intervals of the p95 held the next period of M/M/c queues, from ``validate_plan.py``."""
    heads = *QUEUE, "contains the next period", "contains Erlang's value", "no interval", "upper end"
    cells = "{servers} | {load} | {per_node} | {next:.1%} | {erlang:.1%} | {too_short:.1%} | {reach:.2f}"
    rows = [row | _queue(row) for row in read_json("validation/coverage.json")]
    yield from markdown(heads, filled(cells, rows), numbers=range(7))


def site() -> Iterator[str]:
    """Errors of imported Slurm sites against their logs, from ``validate_site.py --json``."""

    def error(pair: dict[str, Any]) -> float:
        return float(pair["simulated_s"]["mean"] / pair["observed_s"]["mean"] - 1)

    rows = []
    for name, waits in read_json("validation/site.json").items():
        accounts = {name: pair for name, pair in waits["by_tenant"].items() if pair["jobs"] > 100}
        far_first = sorted(accounts, key=lambda account: -abs(error(accounts[account])))
        far = [account for account in far_first if abs(error(accounts[account])) > 0.25] or far_first[:1]
        cells = (
            f"{waits['total']['jobs']:,}",
            f"{waits['total']['observed_s']['mean']:,.0f}",
            f"{error(waits['total']):+.1%}",
        )
        named = ", ".join(f"{account} {error(accounts[account]):+.0%}" for account in far)
        judged = named, f"{waits['median_abs_log_ratio']:.2f}", str(waits["early"])
        rows.append((f"`{name}`", *cells, *judged))
    heads = "run of Slurm", "jobs", "mean wait, log (s)", "simulated mean", "worst accounts", "median error", "early"
    yield from markdown(heads, rows, numbers=(1, 2, 3, 5, 6))


def sample() -> Iterator[str]:
    """Waits of the sample log under several schedulers, from ``dagsim whatif --json``."""
    facts = read_json("validation/sample.json")
    waits = [("the log", facts["fit"]["mean_s"], facts["fit"]["p95_s"])]
    waits += [(f"`{choice['policy']}`", choice["wait_s"], choice["wait_p95_s"]) for choice in facts["choices"]]
    rows = [(name, f"{mean:,.0f}", f"{p95:,.0f}") for name, mean, p95 in waits]  # as whatif prints them
    yield from markdown(("short sample log", "mean wait (s)", "p95 wait (s)"), rows, numbers=(1, 2))


def forecasts() -> Iterator[str]:
    """Errors of forecasts on each log, as factors, beside the best simple forecast."""
    rows = []
    for name, row in read_json("forecast/backtests.json").items():
        simple = [raw for raw, _ in row.get("baselines", {}).values()]
        best = f"{exp(min(simple)):.2f}" if simple else "-"
        held = f"{row['coverage_90']:.0%}" if simple else "-"
        rows.append((name, f"{row['n']:,}", held, f"{exp(row['crps_log']):.2f}", best))
    heads = "log", "forecasts", "within the 90% interval", "error (factor)", "error of the best baseline (factor)"
    yield from markdown(heads, rows, numbers=(1, 2, 3, 4))


def forecast_near() -> Iterator[str]:
    """Shares of starts near the forecasts on site-A, for all of them and for parts of them."""
    rows = [
        (part, f"{row['n']:,}", method, *(f"{share:.2f}" for share in row[method]))
        for part, row in read_json("forecast/backtests.json")["site-A"]["near"].items()
        for method in row
        if method != "n"
    ]
    yield from markdown(
        ("site-A", "rows", "forecast of", "within 1 min", "within 10 min", "within 1 h"), rows, numbers=(1, 3, 4, 5)
    )


def cirrus() -> Iterator[str]:
    """Waits on Cirrus as measured, by ElastiSim and by dagsim."""
    waits_s = read_json("validation/cirrus.json")["waits_s"]
    rows = [(name, *(f"{value:,.0f}" for value in row.values())) for name, row in waits_s.items()]
    yield from markdown(("waits (s)", "mean", "median", "p90", "p95"), rows, numbers=(1, 2, 3, 4))


def forecast_costs() -> Iterator[str]:
    """CPU time of forecasts of long queues."""
    cells = "{waiting:,} jobs on {nodes:,} nodes, {what} | {cpu_s:.1f} | {most_s:g}"
    rows = filled(cells, read_json("forecast/costs.json").values())
    yield from markdown(("queue", "CPU-s", "at most"), rows, numbers=(1, 2))


def bench_tasks() -> Iterator[str]:
    """The tasks of the benchmark's suite."""
    rows = ((f"`{task.name}`", task.summary, f"`{task.config.policy}`", f"`{task.metric}`") for task in suite())
    yield from markdown(("task", "what it is", "reference", "metric"), rows)


def systems() -> Iterator[str]:
    """The machines that ship as configurations, with the pages that their figures come from."""
    rows = []
    for name, path in shipped_files("configs").items():
        if not name.startswith("systems/"):
            continue
        config, head = load_config(path), path.read_text(encoding="utf-8").partition("\ncluster:")[0]
        cluster = config.build_cluster()
        partitions = () if config.queues is None else config.queues.partitions
        named = ", ".join(f"`{part.name}`" for part in partitions) or "none"
        links = ", ".join(re.findall(r"https://[^\s,)]+", head))
        gpus = ", ".join(f"{count:,} {gpu}" for gpu, count in gpu_counts(cluster).items())
        rows.append((f"`{name}`", opening_of(path).partition(":")[0], f"{len(cluster.nodes):,}", gpus, named, links))
    yield from markdown(("config", "machine", "nodes", "GPUs", "partitions", "sources"), rows, numbers=(2,))


def gpu_counts(cluster: Cluster) -> dict[str, int]:
    """Count the GPUs of each type."""
    counts: Counter[str] = Counter()
    for node in cluster.nodes:
        if node.gpu is not None:
            counts[node.gpu.name] += node.gpus
    return dict(counts)


def leaderboard() -> Iterator[str]:
    """The leaderboards of the entries in ``results/bench``."""
    entries = [read_entry(path) for path in sorted((RESULTS / "bench").glob("*.json"))]
    for grid in leaderboards(entries):
        yield from ("", *grid.markdown().splitlines())


_NAMED = (
    *(
        bench_tasks,
        systems,
        leaderboard,
        cirrus,
        forecasts,
        forecast_near,
        forecast_costs,
        speeds,
        validations,
        peers,
        trainings,
        ablations,
        grid,
    ),
    *(
        policies,
        placements,
        heuristics,
        gains,
        coverage,
        ramp,
        rules,
        readers,
        plans,
        sample,
        site,
        trained,
        transfer,
        balanced,
        decima_network,
        alibaba_large,
    ),
)
TABLES: dict[str, Callable[[], Iterator[str]]] = {
    **{make.__name__.replace("_", "-"): make for make in _NAMED},
    "tpch": partial(decima, "learned-w1", "held-out-w1-parity", "learned-w2", "held-out-parity", "held-out-default"),
    "batch": partial(decima, "held-out-batch"),
    "synthetic": partial(decima, "held-out-synthetic"),
    "alibaba": partial(decima, "held-out-alibaba"),
    "agents": shipped,
    "periods": held_periods,
    "server-view": partial(reference.excerpt, "class Serve(", "class ServerKernel"),
    "server-kernel": partial(reference.excerpt, "    def decisions", "    def _finish"),
    "server-policy": partial(reference.excerpt, "class InOrder", "class SameModel"),
    "server-scenario": partial(reference.excerpt, "POLICIES", "if __name__"),
    "commands": reference.options,
    "configuration-keys": reference.configuration,
    "metrics": reference.metrics,
    "parameters": reference.parameters,
    "python-api": reference.python_api,
}


# Pages


def pages(root: Path = ROOT) -> dict[Path, list[str]]:
    """Pages with tables, and the names of these tables."""
    paths = [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "results").rglob("*.md"))]
    names = {path: [name for _, name, _ in MARKED.findall(path.read_text(encoding="utf-8"))] for path in paths}
    return {path: tables for path, tables in names.items() if tables}


def renewed(page: str) -> str:
    """Return the text of a page with its tables written again.

    Raises:
        KeyError: The page has a marker of a table that ``TABLES`` lacks.
    """
    return MARKED.sub(lambda match: "\n".join([match[1], *TABLES[match[2]](), match[3]]), page)


def _work(options: command.Options, say: command.Say) -> bool:
    stale = [path for path in pages() if renewed(text := path.read_text(encoding="utf-8")) != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if options.check else 'renewed'}", file=sys.stderr)
        if not options.check:
            path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
    return not (options.check and stale)


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    return command.run(parser, _work, holds=bool)


if __name__ == "__main__":
    raise SystemExit(main())

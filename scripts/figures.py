"""The tables of README and ``docs/``: from the registries, and from the files below ``results/``.

``TABLES`` has each table by the name in its markers; ``make_pages.py`` writes them, and a test compares.
"""

from __future__ import annotations

import csv
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from dagsim.metrics.compare import Row, compared, verdict
from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES
from dagsim.traces import READERS, reader

__all__ = ["TABLES"]

RESULTS = Path(__file__).parent.parent / "results"


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


def markdown(head: Iterable[str], rows: Iterable[Iterable[object]], numbers: Iterable[int] = ()) -> Iterator[str]:
    """Format the lines of a Markdown table. The columns ``numbers`` are aligned right."""
    head, right = list(head), set(numbers)
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---:' if place in right else '---' for place in range(len(head)))} |"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def made_by(file: str) -> Iterator[str]:
    """Return the line of a file below ``results/`` with command, commit, seeds, n and method."""
    yield from ("", f"*{search(r'^Made .*$', file).group()}*")


def interval(low: float | str, high: float | str) -> str:
    """``0.960 to 0.982``."""
    return f"{float(low):.3f} to {float(high):.3f}"


# Registries


def policies() -> Iterator[str]:
    """Policies of the GPU cluster with measured microseconds per decision."""
    costs = read_json("baselines/cost.json")["us_per_decision"]
    head = ("`--algo`", "rule", "uses estimates", "preemptive", "µs per decision", "source")
    yield from markdown(head, (_policy(entry, costs.get(entry.name)) for entry in POLICIES.describe()))


def _policy(entry: Any, cost_us: float | None) -> Iterator[str]:
    yield from (f"`{entry.name}`", entry.summary)
    yield from ("yes" if tag in entry.tags else "" for tag in ("estimates", "preemptive"))
    cost = "not measured" if cost_us is None else f"{cost_us:,.0f}"
    yield cost + (" (by definition)" if "costly" in entry.tags else "")
    text = " ".join((inspect.getdoc(POLICIES.get(entry.name)) or "").split())
    sources = re.findall(r"\(([^()]*[A-Z][^()]*\b(?:19|20)\d\d[^()]*)\)", text)  # brackets with a year
    yield "; ".join(dict.fromkeys(sources)).replace("|", "/")


def placements() -> Iterator[str]:
    """Placement rules."""
    yield from markdown(
        ("placement", "where tasks go"), ((f"`{e.name}`", e.summary) for e in PLACEMENT_RULES.describe())
    )


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
        if made := read_json(f"decima/{file}.json").get("made"):
            yield from ("", f"*{file}: {made}*")


def _judged(file: str) -> Iterator[list[str]]:
    for policy, (mean, row) in decima_rows(file).items():
        cells = [file, str(row.pair.n), f"`{policy}`", f"{mean:.1f}", f"{row.pair.ratio:.3f}"]
        is_reference = policy == next(iter(decima_rows(file)))
        yield [*cells, *(("-", "reference") if is_reference else _ratio_cells(row))]


def _ratio_cells(row: Row) -> tuple[str, str]:
    return interval(row.pair.low, row.pair.high), str(verdict(row.pair, row.p))


@cache
def decima_rows(file: str) -> dict[str, tuple[float, Row]]:
    """For each policy of a file of ``results/decima``, the mean, and the comparison with the first
    policy.
    """
    values = {line["policy"]: line["by_seed_s"] for line in read_json(f"decima/{file}.json")["lines"]}
    first = next(iter(values))
    rows = compared(values, first) | {first: compared({"a": values[first], "b": values[first]}, "a")["b"]}
    return {policy: (fmean(by_seed), rows[policy]) for policy, by_seed in values.items()}


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
    yield from markdown(
        ("policy", *columns),
        (
            (f"`{policy}`", *(f"{means[policy, column]:.1f}" for column in columns))
            for policy in dict.fromkeys(policy for policy, _ in means)
        ),
    )


def ramp() -> Iterator[str]:
    """Blocking, completion times and speed-ups on RAMP by ddls' rules."""
    results = read_json("ramp/ddls.json")
    chosen = {"first_fit": ("max", "acceptable_jct", "constant[degree=4]")}
    chosen["best_fit"] = tuple(f"on_time[least={least}]" for least in (2, 4, 8))
    names = [f"{policy}, {placer}" for placer, policies in chosen.items() for policy in policies]

    def cell(row: dict[str, float]) -> str:
        return f"{row['mean_blocking']:.4f} / {row['jct_s']:,.0f} / {row['speedup']:.1f}"

    head = ("policy, placer", *(f"beta {beta}" for beta in "ABCD"))
    yield from markdown(head, ((f"`{name}`", *(cell(results[beta][name]) for beta in "ABCD")) for name in names))


_SPEEDS = {
    "fair": "`fair`",
    "fifo": "`fifo`",
    "fair through the environment": "`fair` through `dagsim/Decima-v0`, with observations",
    "fifo through the environment": "`fifo` through it",
    "decima": "Decima's network acting",
}


def spark_speed() -> Iterator[str]:
    """Thousands of tasks and decisions per CPU-second, of two workloads."""
    row = r"^([a-z ]+): ([\d,]+) tasks and ([\d,]+) decisions"
    parts = [re.findall(row, part, re.MULTILINE) for part in read_text("decima/bench.txt").split("\n\n")]
    yield from markdown(
        ("thousands per CPU-second", "W1 tasks", "W2 tasks", "W1 decisions", "W2 decisions"),
        (
            (
                _SPEEDS[w1[0]],
                *(f"{_whole(w[1]) / 1000:,.0f}" for w in (w1, w2)),
                *(f"{_whole(w[2]) / 1000:.1f}" for w in (w1, w2)),
            )
            for w1, w2 in zip(*filter(None, parts), strict=True)
        ),
        numbers=range(1, 5),
    )


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


# Agents


@cache
def agents() -> list[dict[str, str]]:
    """The standings of the agents: the four cells, and the trace of ITP."""
    return read_rows("agents/cells.csv") + read_rows("agents/itp.csv")


def shipped() -> Iterator[str]:
    """Shipped agents, roll-outs and preemptive policies, compared with the best cheap heuristic of
    their cell.
    """
    chosen = (
        row
        for row in agents()
        if row["verdict"] != "reference" and row["policy"].split(" ")[0] in ("agent", "roll-out", "best")
    )
    yield from markdown(
        ("cell", "estimates", "policy", "n", "ratio", "95 % interval", "verdict"),
        (
            (
                *(row["cell"], row["estimates"], _coded(row["policy"]), row["n"], f"{float(row['ratio']):.3f}"),
                *(interval(row["ratio_low"], row["ratio_high"]), row["verdict"].split(";")[0]),
            )
            for row in chosen
        ),
        numbers=(3, 4),
    )
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
    rows = {row["policy"]: row for row in read_rows("agents/independent-1.1.csv")}
    chosen = ((text, rows[f"{name}-1"]) for name, text in _ABLATIONS.items())
    yield from markdown(
        ("left out", "ratio to `eft-wait`", "95 % interval"),
        ((text, f"{float(row['ratio']):.3f}", interval(row["ratio_low"], row["ratio_high"])) for text, row in chosen),
        numbers=(1,),
    )


# Baselines, traces, workloads, statistics

GRID = ("eft-wait", "eft-wait[theta=0.85,order=work]", "rollout", "min-min", "srsf", "srpt-work", "2d-las", "qssf")
GRID += ("themis", "hrrn", "fifo-fit", "fifo", "conservative", "heft", "cpop", "tetris")


def grid() -> Iterator[str]:
    """Ratios to SJF, means over the loads of the grid of baselines, for exact and noisy durations."""
    rows = read_rows("baselines/grid.csv")
    names = {"heterogeneous": "mixed GPUs", "homogeneous": "equal GPUs", "independent": "independent", "dag": "DAGs"}
    blocks = list(product(("heterogeneous", "homogeneous"), ("independent", "dag")))

    def cell(policy: str, cluster: str, shape: str) -> str:
        wanted = (policy, cluster, shape)
        ratios = {
            estimates: [
                float(row["ratio"])
                for row in rows
                if (row["policy"], row["cluster"], row["shape"]) == wanted and row["estimates"] == estimates
            ]
            for estimates in ("exact", "noisy")
        }
        return " / ".join(f"{fmean(values):.2f}" for values in ratios.values())

    measured = {row["policy"] for row in rows}
    yield from markdown(
        ("exact / noisy", *(f"{names[cluster]}, {names[shape]}" for cluster, shape in blocks)),
        ((f"`{policy}`", *(cell(policy, *block) for block in blocks)) for policy in GRID if policy in measured),
    )
    yield from made_by("baselines/grid.md")


def files() -> Iterator[str]:
    """The traces of ``results/validation/traces.md`` by folder and format."""
    table = read_text("validation/traces.md").partition("| file |")
    lines = [line for line in "".join(table[1:]).splitlines() if line.startswith("|")]
    names, _, *rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    traces = [dict(zip(names, row, strict=True)) for row in rows]
    kinds = sorted({(row["file"].split("/")[0], row["format"]) for row in traces})

    def cells(folder: str, format: str) -> Iterator[str]:
        mine = [row for row in traces if (row["file"].split("/")[0], row["format"]) == (folder, format)]
        yield from (folder, f"`{format}`", str(len(mine)))
        yield from (f"{sum(_whole(row[name]) for row in mine):,}" for name in ("rows", "kept", "jobs"))
        yield from (_dropped(mine), f"{sum(float(row['seconds']) for row in mine):.1f}")

    head = ("data", "format", "files", "rows", "kept", "jobs", "dropped", "seconds")
    yield from markdown(head, (cells(*kind) for kind in kinds), numbers=(2, 3, 4, 5, 7))


def _dropped(rows: list[dict[str, str]]) -> str:
    """Add up the reasons of several files, the most frequent first."""
    counts = Counter[str]()
    for row in rows:
        for number, reason in re.findall(r"(\d[\d,]*) (.+?)(?=, \d[\d,]* |$)", row["dropped"]):
            counts[reason] += _whole(number)
    return ", ".join(f"{number:,} {reason}" for reason, number in counts.most_common()) or "-"


_SHOWN = (
    "coefficient of variation of gaps",
    "index of dispersion, 20 gaps",
    "index of dispersion, 500 gaps",
    "autocorrelation of hourly GPU-time, 1 h",
    "tail index of GPU-time (Hill, top 1 %)",
    "GPU-time of the top 1 % of jobs",
    "correlation of log length and log GPUs",
    "median gap of the same tenant, of the mean gap",
)


def presets() -> Iterator[str]:
    """Kendall's tau and some statistics of the fitted presets, next to those of their traces."""
    yield from markdown(("preset", "figure", "trace", "preset", "plain"), _preset_rows(), numbers=(2, 3, 4))
    yield from made_by("workloads/judged.md")
    yield from re.findall(r"^Of `.* has n = \d+ for .*$", read_text("workloads/judged.md"), re.MULTILINE)


def _preset_rows() -> Iterator[list[str]]:
    ranks = {row["preset"]: row for row in reversed(read_rows("workloads/ranking.csv"))}
    for name, rank in reversed(ranks.items()):
        taus = (float(rank[f"tau_{source}"]) for source in ("ceiling", "fitted", "plain"))
        yield [f"`{name}`", "order of ten policies (tau)", *(f"{tau:.2f}" for tau in taus)]
        for row in read_rows("workloads/statistics.csv"):
            if row["preset"] == name and row["statistic"] in _SHOWN:
                yield ["", row["statistic"], *(_short(row[source]) for source in ("trace", "fitted", "plain"))]


def _short(text: str) -> str:
    return "-" if text in ("", "nan") else f"{float(text):.3g}"


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
            yield [name, figure, *(f"{s['coverage']:.3f} [{s['worst']:.3f}]" if s else "none" for s in shares)]
        plain = ((row.get("plain"), row.get("plain_worst")) for row in by_n.values())
        shares = (f"{mean:.3f} [{worst:.3f}]" if mean and worst else "none" for mean, worst in plain)
        yield [name, "ratio, not marked approximate", *shares]
        yield [name, "marked approximate", *(f"{100 * row['approximate']:.1f} %" for row in by_n.values())]
        own = (f"{row['own']:.3f}{'~' if row['own_approximate'] else ''}" for row in by_n.values())
        yield [name, "a policy's own mean", *own]
        false = (f"{100 * row['false_verdicts']:.1f} %" for row in by_n.values())
        yield [name, "equal policies with p < 0.05", *false]


def rules() -> Iterator[str]:
    """The figures of ``scripts/measure_rules.py``."""
    measured = read_json("statistics/rules.json")
    power, tables, steady = measured["power"], measured["tables"], measured["steady"]
    shares = {way: [100 * share for by_n in tables[way].values() for share in by_n.values()] for way in tables}
    at = ", ".join(f"{100 * power[n]:.0f} % (n = {n})" for n in ("10", "20", "30"))
    held, offered = (sorted(steady[name]) for name in ("held", "offered"))
    sizes = sorted(measured["populations"].values())
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
            (
                "jobs of one run at load 0.9 that carry as much information as one independent job",
                _alike(measured["alike"]),
            ),
            ("`steady`: offered load", f"{offered[0]:.2f} to {offered[-1]:.2f}"),
            ("`steady`: share of the GPUs that `sjf` holds", _range([100 * share for share in held])),
        ),
    )
    yield from ("", f"*Made by `{measured['command']}`.*")


def _range(percent: list[float]) -> str:
    return f"{min(percent):.0f} to {max(percent):.0f} %"


def _alike(alike: dict[str, float]) -> str:
    return f"{alike['jobs'] / alike['worth']:.0f}"


def peers() -> Iterator[str]:
    """For each simulator, the CPU time of a job, also as a multiple of the bare loop."""
    measured = read_json("peers/peers.json")
    costs = {name: cost for name, cost in measured["us_per_job"].items() if not isinstance(cost, str)}
    bare = costs["bare heapq loop"]
    yield from markdown(
        (f"{measured['jobs']:,} jobs, first come, first served", "µs per job", "times bare"),
        ((name, f"{cost:,.2f}", f"{cost / bare:,.1f}") for name, cost in sorted(costs.items(), key=lambda it: it[1])),
    )


# README: what is measured


def measured() -> Iterator[str]:
    """Speed, validations and agents, one row each."""
    yield from markdown(("measurement", "value", "command"), (*_speeds(), *_validations(), *_learned()))


def kernel(name: str) -> float:
    """A figure of ``results/kernel/bench.txt``."""
    return float(search(rf"^{re.escape(name)}\s+([\d.]+)", "kernel/bench.txt").group(1))


def _speeds() -> Iterator[tuple[str, str, str]]:
    yield (
        "replay of DAGs with 100,000 single-GPU tasks, full records",
        f"{kernel('dag_fifo_kernel_us'):.1f} µs per task, {kernel('dag_fifo_ratio'):.1f} times a bare `heapq` loop",
        "`python scripts/bench_kernel.py --large`",
    )
    more = f"{kernel('dag_fifo_10x_kernel_us'):.1f} µs per task, {kernel('dag_fifo_10x_ratio'):.1f} times"
    yield "the same, 1,000,000 tasks", more, ""
    lane = f"{kernel('lane_us'):.2f} µs per task, {kernel('lane_us') / kernel('bare_us'):.2f} of the bare loop"
    many = f"{kernel('lane_4000_nodes_us'):.2f} µs on 4,000 nodes"
    yield "100,000 tasks in the compiled engine, full records", f"{lane}; {many}", ""
    yield "tasks of 20 identical instances", f"{kernel('instances20_us_per_instance'):.1f} µs per instance", ""
    replays = re.findall(r"^now +([\d.]+) user \+ ([\d.]+) sys", read_text("kernel/replay.txt"), re.MULTILINE)
    seconds = [float(user) + float(system) for user, system in replays]
    yield (
        "replay of 1,000,000 tasks from a file: reading, simulation, metrics and run folder",
        f"{min(seconds):.1f} to {max(seconds):.1f} CPU-s (`results/kernel/replay.txt`)",
        "`dagsim replay --trace FILE --format alibaba2018 --algo sjf`",
    )
    pending = " / ".join(f"{kernel(f'pending_{name}_us'):.1f}" for name in ("fifo", "sjf", "srtf"))
    yield "100,000 tasks pending, FIFO / SJF / SRTF", f"{pending} µs per task", ""
    models = " / ".join(f"{kernel(f'{name}_us'):.1f}" for name in ("setup", "network", "failures"))
    yield "with set-up delays / a network / failing nodes", f"{models} µs per task", ""
    yield "memory", f"{kernel('bytes_per_task'):.0f} bytes per task, jobs included", ""


def validated(pattern: str, file: str) -> str:
    """Return the group that ``pattern`` matches in a file of ``results/validation``."""
    return search(pattern, f"validation/{file}.txt").group(1)


def _validations() -> Iterator[tuple[str, str, str]]:
    span, jobs = validated(r"mean span ([\d.]+) s", "span"), validated(r"^([\d,]+) jobs", "span")
    what = f"mean span of {jobs} Alibaba 2018 jobs on an infinite cluster"
    yield what, f"{span} s", "`python scripts/validate_span.py --trace FILE`"
    jobs = validated(r"read ([\d,]+) rows", "swf")
    fcfs, easy = (float(validated(rf"^{name}: mean wait ([\d.]+) s", "swf")) for name in ("fcfs", "easy"))
    yield (
        f"FCFS on KTH-SP2, all {jobs} jobs",
        f"mean wait {fcfs:,.6f} s, equal to an independent simulator in every digit",
        "`python scripts/validate_swf.py --trace FILE --processors 100`",
    )
    yield "EASY on KTH-SP2, a pass at every event", f"mean wait {easy:,.6f} s, also equal in every digit", ""
    yield (
        "RLScheduler's Lublin-1: FCFS, SJF, F1, without and with its backfilling",
        f"{_equal_digits()} of the six published figures equal in every digit",
        "`python scripts/validate_rlscheduler.py --trace FILE --processors 256`",
    )
    golden = "every job's completion time, difference 0 s"
    command = "`python scripts/validate_decima.py --workload FILE --expected FILE`"
    yield "spark-sched-sim's golden workloads, fair and FIFO", golden, command
    row = r"^(\w+)\s+([\d.]+)\s+deviation [\d.]+\s+paper ([\d.]+)"
    placed = re.findall(row, read_text("validation/fgd.txt"), re.MULTILINE)
    others = [f"{name} {ours} % (paper: {theirs} %)" for name, ours, theirs in placed if ours != theirs]
    yield (
        "the FGD paper's table: GPU allocation under six placements, ten seeds",
        "; ".join([f"{len(placed) - len(others)} equal in every digit", *others]),
        "`python scripts/validate_fgd.py --pods FILE --nodes FILE`",
    )
    count, missed = search(r"(\d+) figures, (\d+) missed", "validation/all.txt").groups()
    yield (
        f"all {count} validations of the project against other programs, tables and counts",
        f"{'none' if missed == '0' else missed} missed (`results/validation/all.txt`)",
        "`python scripts/validate_all.py --data DIR`",
    )
    stg = search(r"50 tasks,  2 cores: mean ratio ([\d.]+), (\d+) of 180 optimal, 0 below", "validation/stg.txt")
    yield (
        "highest level first on 180 Standard Task Graphs, 2 cores",
        f"{stg.group(1)} times the optimum, {stg.group(2)} optimal, none below",
        "`python scripts/validate_stg.py --graphs TAR --optimal DIR`",
    )


def _equal_digits() -> int:
    """Count the figures of RLScheduler's first table that equal the published ones."""
    published, *ours = read_text("validation/rlscheduler.txt").splitlines()[:3]
    pairs = zip(re.findall(r"\d+\.\d+", published), re.findall(r"\d+\.\d+", " ".join(ours)), strict=True)
    return sum(one == other for one, other in pairs)


def _learned() -> Iterator[tuple[str, str, str]]:
    for cell, text in {
        "independent": "shipped PPO agent against the best cheap non-preemptive heuristic, independent jobs",
        "dag": "the same, DAG jobs",
        "itp": "the agent for Microsoft's ITP trace, on disjoint windows of jobs that also decided which agent ships",
    }.items():
        if result := "; ".join(_agent(row) for row in agents() if row["cell"].startswith(cell) and _is_headline(row)):
            yield text, result, "`python scripts/tables.py agents/cells agents/itp`"
    pairs = (decima_rows(f"learned-{name}")[f"decima[checkpoint=results/decima/{name}.pt]"][1].pair for name in _W)
    ratios = (
        f"{name.upper()}: {it.ratio:.3f} ({interval(it.low, it.high)})" for name, it in zip(_W, pairs, strict=True)
    )
    text = "Decima's network against the best tuned heuristic, spark-sched-sim's ten sequences"
    yield text, ", ".join(ratios), "see `results/decima/README.md`"


_W = ("w1", "w2")


def _is_headline(row: dict[str, str]) -> bool:
    """True for an agent's row in the table with the most seeds. Tables with roll-outs have fewer."""
    return row["policy"].startswith("agent") and row["n"] == max((other["n"] for other in _of_cell(row)), key=int)


def _of_cell(row: dict[str, str]) -> list[dict[str, str]]:
    """Return the rows of all tables of the same cell and estimates."""
    return [other for other in agents() if (other["cell"], other["estimates"]) == (row["cell"], row["estimates"])]


def _agent(row: dict[str, str]) -> str:
    """Return load, estimates, ratio, interval, caveats of the verdict, and a preemptive policy that
    is better.
    """
    load = row["cell"].partition("-")[2]
    notes = [interval(row["ratio_low"], row["ratio_high"]), f"n = {row['n']}"]
    if "a few seeds decide" in row["verdict"]:
        notes.append("a few seeds decide")
    best = (other for other in _of_cell(row) if other["policy"].startswith("best preemptive"))
    notes += [
        f"{_coded(o['policy'])}: {float(o['ratio']):.3f}" for o in best if float(o["ratio"]) < float(row["ratio"])
    ]
    name = f"{f'load {load}, ' if load else ''}{row['estimates']} estimates"
    return f"{name}: {float(row['ratio']):.3f} ({'; '.join(notes)})"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "measured": measured,
    "peers": peers,
    "tpch": partial(decima, "learned-w1", "held-out-w1-parity", "learned-w2", "held-out-parity", "held-out-default"),
    "batch": partial(decima, "held-out-batch"),
    "synthetic": partial(decima, "held-out-synthetic"),
    "alibaba": partial(decima, "held-out-alibaba"),
    "trainings": trainings,
    "agents": shipped,
    "ablations": ablations,
    "grid": grid,
    "policies": policies,
    "placements": placements,
    "heuristics": heuristics,
    "speed": spark_speed,
    "coverage": coverage,
    "ramp": ramp,
    "rules": rules,
    "readers": readers,
    "files": files,
    "presets": presets,
}

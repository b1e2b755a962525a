"""Tables of README and docs, read from the files below ``results/``; ``make_pages.py`` writes them, a test compares.

``TABLES`` are whole tables between markers; ``sentences.py`` has the figures of running text.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dagsim.metrics.compare import Paired
from dagsim.metrics.verdict import Row, compared, verdict

__all__ = [
    "RESULTS",
    "TABLES",
    "decima",
    "found_in",
    "network",
    "ratio_of",
    "read_json",
    "read_traces",
    "rows_of",
    "spark_means",
]

RESULTS = Path(__file__).parent.parent / "results"


def kernel(name: str) -> float:
    """A figure of ``results/kernel/bench.txt``."""
    return _number(rf"^{re.escape(name)}\s+([\d.]+)", "kernel/bench.txt")


def validated(pattern: str, file: str) -> str:
    """The group that ``pattern`` finds in a file of ``results/validation``."""
    return found_in(pattern, f"validation/{file}.txt").group(1)


def decima(file: str, policy: str) -> Paired:
    """A policy beside the best heuristic of a file of ``results/decima``, the first line there."""
    return decima_rows(file)[policy][1].pair


def network(file: str, of: str, beside: str | None = None) -> float:
    """The ratio of a network of ``results/decima`` to the best heuristic, or to the one ``beside`` it."""
    mine = 1.0 if not of else decima(file, of if "[" in of else f"decima[checkpoint=results/decima/{of}.pt]").ratio
    return mine if beside is None else mine / decima(file, beside).ratio


@cache
def decima_rows(file: str) -> dict[str, tuple[float, Row]]:
    """Per policy of a file the mean and the comparison with the first; of the first with itself, too."""
    lines = read_json(f"decima/{file}.json")["lines"]
    values = {line["policy"]: line["by_seed_s"] for line in lines}
    first = next(iter(values))
    rows = compared(values, first) | {first: compared({"a": values[first], "b": values[first]}, "a")["b"]}
    return {policy: (sum(each) / len(each), rows[policy]) for policy, each in values.items()}


def decima_table(*files: str) -> Iterator[str]:
    """Markdown: per file and policy the mean and the ratio to the best heuristic there."""
    yield "| file | n | policy | mean [s] | ratio | 95 % interval | verdict |"
    yield "| --- | ---: | --- | ---: | ---: | --- | --- |"
    for file in files:
        lines = read_json(f"decima/{file}.json")["lines"]
        for place, line in enumerate(lines):
            mean, row = decima_rows(file)[line["policy"]]
            cells = [file, str(row.pair.n), f"`{line['policy']}`", f"{mean:.1f}", f"{row.pair.ratio:.3f}"]
            cells += [f"{row.pair.low:.3f} to {row.pair.high:.3f}", str(verdict(row.pair, row.p))]
            yield f"| {' | '.join(cells if place else [*cells[:-2], '-', 'reference'])} |"


def spark_means() -> dict[str, Any]:
    """Per set of rules, workload and Spark heuristic its figures."""
    rules = {"parity": "heuristics", "default": "heuristics-default"}
    return {name: read_json(f"decima/{file}.json") for name, file in rules.items()}


def spark_table() -> Iterator[str]:
    """Markdown: mean completion times of the Spark heuristics, by set of rules and workload."""
    found = spark_means()
    columns = [(workload, name) for name in found for workload in ("W1", "W2")]
    yield f"| policy | {' | '.join(f'{workload} {name}' for workload, name in columns)} |"
    yield "| --- |" + " --- |" * len(columns)
    for policy in found["parity"]["W1"]:
        cells = [f"{found[name][workload][policy]['mean_s']:.1f}" for workload, name in columns]
        yield f"| `{policy}` | {' | '.join(cells)} |"


def spark_speed_table() -> Iterator[str]:
    """Markdown: thousands of tasks and decisions per CPU-second, of two workloads."""
    text = (RESULTS / "decima" / "bench.txt").read_text(encoding="utf-8")
    row = r"^([a-z ]+): ([\d,]+) tasks and ([\d,]+) decisions"
    found = [re.findall(row, part, re.MULTILINE) for part in text.split("\n\n") if part.strip()]
    yield "| thousands per CPU-second | W1 tasks | W2 tasks | W1 decisions | W2 decisions |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for w1, w2 in zip(*found, strict=True):
        tasks, decisions = ([int(each[part].replace(",", "")) / 1000 for each in (w1, w2)] for part in (1, 2))
        cells = [f"{value:,.0f}" for value in tasks] + [f"{value:.1f}" for value in decisions]
        yield f"| {_SPEEDS[w1[0]]} | {' | '.join(cells)} |"


_SPEEDS = {
    "fair": "`fair`",
    "fifo": "`fifo`",
    "fair through the environment": "`fair` through `dagsim/Decima-v0`, with observations",
    "fifo through the environment": "`fifo` through it",
    "decima": "Decima's network acting",
}


def agents_table() -> Iterator[str]:
    """Markdown: the shipped agents, roll-outs and preemptive policies beside the best cheap heuristic of their cell."""
    yield "| cell | estimates | policy | n | ratio | 95 % interval | verdict |"
    yield "| --- | --- | --- | ---: | ---: | --- | --- |"
    for row in agents():
        if row["verdict"] != "reference" and row["policy"].split(" ")[0] in ("agent", "roll-out", "best"):
            interval = f"{float(row['ratio_low']):.3f} to {float(row['ratio_high']):.3f}"
            yield (
                f"| {row['cell']} | {row['estimates']} | {_coded(row['policy'])} | {row['n']} | "
                f"{float(row['ratio']):.3f} | {interval} | {row['verdict'].split(';')[0]} |"
            )
    if not_judged():
        yield ""
        yield from earlier_agents()


CELLS = ("independent-0.9", "independent-1.1", "dag-0.9", "dag-1.1")


def earlier_agents() -> Iterator[str]:
    """Markdown: the shipped agents of cells that were judged before there was a ledger of seeds, and not since."""
    yield "| cell (exact estimates) | reference | n | agent that ships | others of its training |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for cell in not_judged():
        first, *others = (f"{ratio:.3f}" for ratio in earlier_ratios(cell))
        yield f"| {cell} | `{_rows(cell)[1]}` | 200 | {first} | {' and '.join(others)} |"
    yield ""
    yield "*Judged before `results/seeds.yaml`: the agent that ships is the best of three on these very seeds, so its"
    yield "ratio flatters it; `python scripts/judge_agents.py` judges it on seeds of its own.*"


def not_judged() -> list[str]:
    """The cells without a table on seeds of their own."""
    return [cell for cell in CELLS if cell not in {row["cell"] for row in agents()}]


def earlier_ratios(cell: str) -> list[float]:
    """The ratios of a cell's three agents, the best first."""
    return sorted(float(row["ratio"]) for row in _rows(cell)[0] if row["policy"].startswith("ppo-"))


def _rows(cell: str) -> tuple[list[dict[str, str]], str]:
    """The earlier table of a cell, and its reference."""
    rows = rows_of(f"agents/{cell}.csv")
    return rows, next(row["policy"] for row in rows if float(row["ratio"]) == 1.0)


@cache
def agents() -> list[dict[str, str]]:
    """The rows of ``cells.csv`` and ``itp.csv``, where they are there."""
    paths = [path for path in (RESULTS / "agents" / f"{name}.csv" for name in ("cells", "itp")) if path.exists()]
    return [row for path in paths for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())]


GRID = ("eft-wait", "eft-wait[theta=0.85,order=work]", "rollout", "min-min", "srsf", "srpt-work", "2d-las", "qssf")
GRID_WORSE = ("themis", "hrrn", "fifo-fit", "fifo", "conservative", "heft", "cpop", "tetris")


def grid_table() -> Iterator[str]:
    """Markdown: means over the loads of the grid of baselines, exact and noisy durations."""
    rows = rows_of("baselines/grid.csv")
    blocks = [(cluster, shape) for cluster in ("heterogeneous", "homogeneous") for shape in ("independent", "dag")]
    names = {"heterogeneous": "unlike GPUs", "homogeneous": "equal GPUs", "independent": "independent", "dag": "DAGs"}
    yield f"| exact / noisy | {' | '.join(f'{names[cluster]}, {names[shape]}' for cluster, shape in blocks)} |"
    yield "| --- |" + " --- |" * len(blocks)
    for policy in GRID + GRID_WORSE:
        cells = []
        for block in blocks:
            mine = [row for row in rows if row["policy"] == policy and (row["cluster"], row["shape"]) == block]
            by = {e: [float(row["ratio"]) for row in mine if row["estimates"] == e] for e in ("exact", "noisy")}
            cells.append(" / ".join(f"{sum(ratios) / len(ratios):.2f}" for ratios in by.values()))
        yield f"| `{policy}` | {' | '.join(cells)} |"


def read_traces() -> list[dict[str, str]]:
    """The rows of ``results/validation/traces.md``: every trace at hand."""
    lines = (RESULTS / "validation" / "traces.md").read_text(encoding="utf-8").splitlines()
    heads = next(number for number, line in enumerate(lines) if line.startswith("| file |"))
    names = _cells(lines[heads])
    return [dict(zip(names, _cells(line), strict=True)) for line in lines[heads + 2 :] if line.startswith("|")]


def traces_table() -> Iterator[str]:
    """Markdown: the traces at hand by folder and format."""
    yield "| data | format | files | rows | kept | jobs | dropped | seconds |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- | ---: |"
    rows = read_traces()
    kinds = sorted({(row["file"].split("/")[0], row["format"]) for row in rows})
    for folder, format in kinds:
        mine = [row for row in rows if (row["file"].split("/")[0], row["format"]) == (folder, format)]
        sums = [f"{sum(_whole(row[name]) for row in mine):,}" for name in ("rows", "kept", "jobs")]
        seconds = f"{sum(float(row['seconds']) for row in mine):.1f}"
        cells = [folder, f"`{format}`", str(len(mine)), *sums, _dropped(mine), seconds]
        yield f"| {' | '.join(cells)} |"


def _dropped(rows: list[dict[str, str]]) -> str:
    """The reasons of several files with their numbers added up, the most frequent first."""
    found: dict[str, int] = {}
    for row in rows:
        for number, reason in re.findall(r"(\d[\d,]*) (.+?)(?=, \d[\d,]* |$)", row["dropped"]):
            found[reason] = found.get(reason, 0) + _whole(number)
    ordered = sorted(found.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{number:,} {reason}" for reason, number in ordered) or "-"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


def presets_table() -> Iterator[str]:
    """Markdown: Kendall's tau and some statistics of the fitted presets beside their traces."""
    ranks = rows_of("workloads/ranking.csv")
    stats = rows_of("workloads/statistics.csv")
    yield "| preset | figure | trace | preset | plain |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for name in dict.fromkeys(row["preset"] for row in ranks):
        row = next(each for each in ranks if each["preset"] == name)
        taus = [float(row[f"tau_{each}"]) for each in ("ceiling", "fitted", "plain")]
        yield f"| `{name}` | order of ten policies (tau) | {' | '.join(f'{tau:.2f}' for tau in taus)} |"
        for row in stats:
            if row["preset"] == name and row["statistic"] in _SHOWN:
                cells = [_short(row[source]) for source in ("trace", "fitted", "plain")]
                yield f"| | {row['statistic']} | {' | '.join(cells)} |"


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


def measured_table() -> Iterator[str]:
    """Markdown: README's table of what is measured."""
    yield "| what | value | command |"
    yield "| --- | --- | --- |"
    for what, value, command in _measured():
        yield f"| {what} | {value} | {command} |"


def _measured() -> Iterator[tuple[str, str, str]]:
    yield (
        "DAG replay of 100,000 single-GPU tasks, full records",
        f"{kernel('dag_fifo_kernel_us'):.1f} µs per task, {kernel('dag_fifo_ratio'):.1f} times a bare `heapq` loop",
        "`python scripts/bench_kernel.py --large`",
    )
    more = f"{kernel('dag_fifo_10x_kernel_us'):.1f} µs per task, {kernel('dag_fifo_10x_ratio'):.1f} times"
    yield "the same, 1,000,000 tasks", more, ""
    yield "tasks of 20 identical instances", f"{kernel('instances20_us_per_instance'):.1f} µs per instance", ""
    pending = " / ".join(f"{kernel(f'pending_{name}_us'):.1f}" for name in ("fifo", "sjf", "srtf"))
    yield "100,000 tasks pending, FIFO / SJF / SRTF", f"{pending} µs per task", ""
    models = " / ".join(f"{kernel(f'{name}_us'):.1f}" for name in ("setup", "network", "failures"))
    yield "with set-up delays / a network / failing nodes", f"{models} µs per task", ""
    yield "memory", f"{kernel('bytes_per_task'):.0f} bytes per task, the jobs included", ""
    span, jobs = validated(r"mean span ([\d.]+) s", "span"), validated(r"^([\d,]+) jobs", "span")
    yield (
        f"mean span of {jobs} Alibaba 2018 jobs on an infinite cluster",
        f"{span} s",
        "`python scripts/validate_span.py --trace FILE`",
    )
    fcfs, easy = (float(validated(rf"^{each}: mean wait ([\d.]+) s", "swf")) for each in ("fcfs", "easy"))
    read = validated(r"read ([\d,]+) rows", "swf")
    yield (
        f"FCFS on KTH-SP2, all {read} jobs",
        f"mean wait {fcfs:,.6f} s, as an independent simulator to the digit",
        "`python scripts/validate_swf.py --trace FILE --processors 100`",
    )
    yield "EASY on KTH-SP2, a pass at every event", f"mean wait {easy:,.6f} s, to the digit as well", ""
    yield (
        "RLScheduler's Lublin-1: FCFS, SJF, F1, without and with its backfilling",
        f"{_equal_digits()} of the six published figures to the digit",
        "`python scripts/validate_rlscheduler.py --trace FILE --processors 256`",
    )
    for cell, text in {
        "independent": "shipped PPO agent against the best cheap non-preemptive heuristic, independent jobs",
        "dag": "the same, DAG jobs",
        "itp": "the agent of Microsoft's ITP trace, on disjoint windows of its last fifth",
    }.items():
        if told := _told(cell):
            yield text, told, "`python scripts/judge_agents.py report`"
    if waiting := not_judged():
        ratios, names = [ratio for cell in waiting for ratio in earlier_ratios(cell)], ", ".join(waiting)
        yield (
            f"PPO against the best cheap non-preemptive heuristic, three trainings each, 200 seeds: {names}",
            f"{min(ratios):.3f} to {max(ratios):.3f} (seeds that other tables used, too)",
            "`python scripts/train_grid.py train`, `report`",
        )
    w1, w2 = (decima(f"learned-{each}", f"decima[checkpoint=results/decima/{each}.pt]") for each in ("w1", "w2"))
    yield (
        "Decima's network against the best tuned heuristic, spark-sched-sim's ten sequences",
        f"W1: {ratio_of(w1)}, W2: {ratio_of(w2)}",
        "see `docs/decima.md`",
    )
    yield (
        "spark-sched-sim's golden workloads, fair and FIFO",
        "every job's completion time, difference 0 s",
        "`python scripts/validate_decima.py --workload FILE --expected FILE`",
    )
    ours, theirs = _fgd()
    others = [f"{name} {ours[name]} % (paper: {theirs[name]} %)" for name in ours if ours[name] != theirs[name]]
    yield (
        "the FGD paper's table: GPU allocation under six placements, ten seeds",
        "; ".join([f"{len(ours) - len(others)} to the digit", *others]),
        "`python scripts/validate_fgd.py --pods FILE --nodes FILE`",
    )
    whole = found_in(r"(\d+) figures, (\d+) missed", "validation/all.txt")
    yield (
        f"all {whole.group(1)} validations of the project against other programs, tables and counts",
        f"{'none' if whole.group(2) == '0' else whole.group(2)} missed (`results/validation/all.txt`)",
        "`python scripts/validate_all.py --data DIR`",
    )
    stg = found_in(r"50 tasks,  2 cores: mean ratio ([\d.]+), (\d+) of 180 optimal, 0 below", "validation/stg.txt")
    yield (
        "highest level first on 180 Standard Task Graphs, 2 cores",
        f"{stg.group(1)} times the optimum, {stg.group(2)} optimal, none below",
        "`python scripts/validate_stg.py --graphs TAR --optimal DIR`",
    )


def _equal_digits() -> int:
    """The figures of RLScheduler's first table that are as published."""
    text = (RESULTS / "validation" / "rlscheduler.txt").read_text(encoding="utf-8")
    published, *ours = text.splitlines()[:3]
    pairs = zip(re.findall(r"\d+\.\d+", published), re.findall(r"\d+\.\d+", " ".join(ours)), strict=True)
    return sum(one == other for one, other in pairs)


def _fgd() -> tuple[dict[str, str], dict[str, str]]:
    """Per placement the share of GPUs that was allocated, here and in the paper."""
    text = (RESULTS / "validation" / "fgd.txt").read_text(encoding="utf-8")
    rows = re.findall(r"^(\w+)\s+([\d.]+)\s+deviation [\d.]+\s+paper ([\d.]+)", text, re.MULTILINE)
    return {name: ours for name, ours, _ in rows}, {name: theirs for name, _, theirs in rows}


def _told(shape: str) -> str:
    """The agents of some cells: estimates, ratio, interval; and a preemptive policy that does better."""
    parts = []
    for row in agents():
        if row["cell"].startswith(shape) and row["policy"].startswith("agent") and row["n"] == _most(row):
            interval = f"{float(row['ratio_low']):.3f} to {float(row['ratio_high']):.3f}"
            load = row["cell"].partition("-")[2]
            name = f"{f'load {load}, ' if load else ''}{row['estimates']} estimates"
            parts.append(f"{name}: {float(row['ratio']):.3f} ({interval}; n = {row['n']}{_overtaken(row)})")
    return "; ".join(parts)


def _beside(row: dict[str, str]) -> list[dict[str, str]]:
    """The rows of all tables of the same cell and estimates."""
    return [each for each in agents() if (each["cell"], each["estimates"]) == (row["cell"], row["estimates"])]


def _most(row: dict[str, str]) -> str:
    """The largest n of the tables of its cell: those with roll-outs have fewer."""
    return max((each["n"] for each in _beside(row)), key=int)


def _overtaken(row: dict[str, str]) -> str:
    """The best preemptive policy, where its ratio is below the agent's."""
    for each in _beside(row):
        if each["policy"].startswith("best preemptive") and float(each["ratio"]) < float(row["ratio"]):
            return f"; {_coded(each['policy'])}: {float(each['ratio']):.3f}"
    return ""


def ratio_of(pair: Paired) -> str:
    return f"{pair.ratio:.3f} ({pair.low:.3f} to {pair.high:.3f})"


def _coded(policy: str) -> str:
    """``best preemptive (srsf)`` with the name of the policy as code."""
    return re.sub(r"\((.+)\)$", r"(`\1`)", policy)


def _short(text: str) -> str:
    return "-" if text in ("", "nan") else f"{float(text):.3g}"


def read_json(file: str) -> Any:
    """A file below ``results/``."""
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))


def rows_of(file: str) -> list[dict[str, str]]:
    """The rows of a CSV file below ``results/``."""
    return list(csv.DictReader((RESULTS / file).read_text(encoding="utf-8").splitlines()))


def _number(pattern: str, file: str) -> float:
    return float(found_in(pattern, file).group(1))


def found_in(pattern: str, file: str) -> re.Match[str]:
    found = re.search(pattern, (RESULTS / file).read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"results/{file}: there is no {pattern!r}")
    return found


def peers_table() -> Iterator[str]:
    """Per simulator the CPU time of a job, in multiples of the bare loop too."""
    told = read_json("peers/peers.json")
    figures = {name: each for name, each in told["us_per_job"].items() if not isinstance(each, str)}
    bare = figures["bare heapq loop"]
    yield f"| {told['jobs']:,} jobs, first come, first served | µs per job | times bare |"
    yield "| --- | --- | --- |"
    for name, each in sorted(figures.items(), key=lambda pair: pair[1]):
        yield f"| {name} | {each:,.2f} | {each / bare:,.1f} |"


TABLES: dict[str, dict[str, Callable[[], Iterator[str]]]] = {
    "README.md": {"measured": measured_table, "peers": peers_table},
    "docs/decima.md": {
        "tpch": lambda: decima_table(
            "learned-w1", "held-out-w1-parity", "learned-w2", "held-out-parity", "held-out-default"
        ),
        "batch": lambda: decima_table("held-out-batch"),
        "synthetic": lambda: decima_table("held-out-synthetic"),
        "alibaba": lambda: decima_table("held-out-alibaba"),
    },
    "docs/learning.md": {"agents": agents_table},
    "docs/policies.md": {"grid": grid_table},
    "docs/spark.md": {"heuristics": spark_table, "speed": spark_speed_table},
    "docs/traces.md": {"files": traces_table},
    "docs/workloads.md": {"presets": presets_table},
}
"""Per page the tables that come from results, by the name in their markers."""

"""Tables of README and docs, read from the files below ``results/``; ``make_pages.py`` writes them, a test compares.

``TABLES`` are whole tables between markers; ``sentences.py`` has the figures of running text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kept_figures import RESULTS, agents, coded, decima_rows, made_by, read_json, read_traces, rows_of, spark_means
from measured import measured_table

from dagsim.metrics.compare import verdict

__all__ = ["TABLES"]


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
    for file in files:
        if made := read_json(f"decima/{file}.json").get("made"):
            yield ""
            yield f"*{file}: {made}*"


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
                f"| {row['cell']} | {row['estimates']} | {coded(row['policy'])} | {row['n']} | "
                f"{float(row['ratio']):.3f} | {interval} | {row['verdict'].split(';')[0]} |"
            )
    for page in ("report", "itp"):
        yield from ("", made_by(f"agents/{page}.md"))


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
        if not any(row["policy"] == policy for row in rows):
            continue
        cells = []
        for block in blocks:
            mine = [row for row in rows if row["policy"] == policy and (row["cluster"], row["shape"]) == block]
            by = {e: [float(row["ratio"]) for row in mine if row["estimates"] == e] for e in ("exact", "noisy")}
            cells.append(" / ".join(f"{sum(ratios) / len(ratios):.2f}" for ratios in by.values()))
        yield f"| `{policy}` | {' | '.join(cells)} |"
    yield from ("", made_by("baselines/grid.md"))


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
    yield from ("", made_by("workloads/judged.md"))
    page = (RESULTS / "workloads" / "judged.md").read_text(encoding="utf-8")
    yield from re.findall(r"^Of `.* has n = \d+ for .*$", page, re.MULTILINE)


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


def _short(text: str) -> str:
    return "-" if text in ("", "nan") else f"{float(text):.3g}"


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

"""README's table of what is measured, read from the files below ``results/``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kept_figures import RESULTS, agents, coded, decima, found_in, ratio_of

__all__ = ["measured_table"]


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
    lane = f"{kernel('lane_us'):.2f} µs per task, {kernel('lane_us') / kernel('bare_us'):.2f} of the bare loop"
    yield (
        "100,000 tasks in the compiled engine, full records",
        f"{lane}; {kernel('lane_4000_nodes_us'):.2f} µs on 4,000 nodes",
        "",
    )
    yield "tasks of 20 identical instances", f"{kernel('instances20_us_per_instance'):.1f} µs per instance", ""
    seconds = _replays()
    yield (
        "replay of 1,000,000 tasks from a file: reading, simulation, metrics and run folder",
        f"{min(seconds):.1f} to {max(seconds):.1f} CPU-s (`results/kernel/replay.txt`)",
        "`dagsim replay --trace FILE --format alibaba2018 --algo sjf`",
    )
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
        "itp": "the agent of Microsoft's ITP trace, on disjoint windows of jobs that it was chosen on",
    }.items():
        if told := _told(cell):
            yield text, told, "`python scripts/judge_agents.py report`"
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


def kernel(name: str) -> float:
    """A figure of ``results/kernel/bench.txt``."""
    return float(found_in(rf"^{re.escape(name)}\s+([\d.]+)", "kernel/bench.txt").group(1))


def _replays() -> list[float]:
    """CPU seconds of the replays of today's code in ``results/kernel/replay.txt``."""
    text = (RESULTS / "kernel" / "replay.txt").read_text(encoding="utf-8")
    return [
        float(user) + float(own) for user, own in re.findall(r"^now +([\d.]+) user \+ ([\d.]+) sys", text, re.MULTILINE)
    ]


def validated(pattern: str, file: str) -> str:
    """The group that ``pattern`` finds in a file of ``results/validation``."""
    return found_in(pattern, f"validation/{file}.txt").group(1)


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
            return f"; {coded(each['policy'])}: {float(each['ratio']):.3f}"
    return ""

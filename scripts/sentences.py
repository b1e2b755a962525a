"""Figures in the running text of README and docs, filled in from the files below ``results/``.

``SENTENCES`` has pieces of text and the figures that belong in them; ``make_pages.py`` says which a page lacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from statistics import fmean
from typing import Any

from kept_figures import RESULTS, decima, found_in, network, ratio_of, read_json, read_traces, rows_of, spark_means

from dagsim.metrics.compare import Paired

__all__ = ["SENTENCES"]


def _rules(*path: str) -> Any:
    """A value of ``results/statistics/rules.json`` (``scripts/measure_rules.py``)."""
    found = read_json("statistics/rules.json")
    for key in path:
        found = found[key]
    return found


def _percent(*path: str) -> str:
    return f"{100 * _rules(*path):.0f}"


def _tables(way: str) -> list[float]:
    """The shares of tables with an error, of all populations and n."""
    return [share for shares in _rules("tables", way).values() for share in shares.values()]


def _steady() -> tuple[str, ...]:
    """GPUs held and loads offered, from the smaller to the larger."""
    held, offered = _rules("steady", "held"), _rules("steady", "offered")
    return (*(f"{100 * each(held):.0f}" for each in (min, max)), *(f"{each(offered):.2f}" for each in (min, max)))


def _jobs_of(file: str) -> str:
    """The jobs that ``results/validation/traces.md`` has of a file."""
    return next(row["jobs"] for row in read_traces() if row["file"].endswith(file))


def _validation(name: str) -> dict[int, float]:
    """Validation means of a network of ``results/decima`` by iteration."""
    lines = (RESULTS / "decima" / f"{name}.log.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["iteration"]: row["validation_s"] for row in map(json.loads, lines) if "validation_s" in row}


def _minutes(name: str) -> str:
    """Minutes of a training, as its log counts them."""
    lines = (RESULTS / "decima" / f"{name}.log.jsonl").read_text(encoding="utf-8").splitlines()
    return f"{json.loads(lines[-1])['minutes']:.0f}"


def _against_teacher(beta: str) -> str:
    """The agents' blocking rate less that of their teacher, with its interval."""
    against = read_json("ramp/agents.json")[beta]["against"]
    mean, low, high = next(row["difference"] for name, row in against.items() if "tuned" in name)
    return f"{mean:.4f}, {low:.4f} to {high:.4f}"


def _roomy(setting: str, policy: str) -> str:
    """The mean blocking rate of a policy of ``results/ramp/roomy.json``."""
    return f"{fmean(read_json('ramp/roomy.json')[setting][policy]['blocking']):.4f}"


def _compared(pattern: str) -> list[int]:
    """The numbers that ``pattern`` finds in ``results/validation/all.txt``, whose cells are broken into lines."""
    text = (RESULTS / "validation" / "all.txt").read_text(encoding="utf-8")
    names = " ".join(line.split("│")[2].strip() for line in text.splitlines() if line.count("│") > 3)
    return [int(number) for number in re.findall(pattern, names)]


def _classic_fair_share() -> str:
    """The worst difference of a classic fair share from Slurm's."""
    return found_in(r"│\s+0 │ ([\d.]+) │[^│]*│[^│]*│\n(?:.*\n){1,3}?.*worst classic", "validation/all.txt").group(1)


def _limits() -> tuple[str, ...]:
    """The limits of ``scripts/check_page.py``: seconds, contrast, MB."""
    text = (RESULTS.parent / "scripts" / "check_page.py").read_text(encoding="utf-8")
    found = re.search(r"^LIMIT_MS, LIMIT_BYTES, AA = (\d+), (\d+)e6, ([\d.]+)$", text, re.MULTILINE)
    assert found is not None
    return str(int(found[1]) // 1000), found[3], found[2]


def _milder() -> tuple[float, float]:
    """The smallest and largest ratio of a trace's dispersion over 500 gaps to that of its preset."""
    rows = [row for row in rows_of("workloads/statistics.csv") if row["statistic"] == "index of dispersion, 500 gaps"]
    ratios = [float(row["trace"]) / float(row["fitted"]) for row in rows]
    return min(ratios), max(ratios)


def _below_fair() -> str:
    """The share that ``weighted-fair[alpha=0.25,order=shortest]`` is below fair sharing on W2 by parity's rules."""
    means = spark_means()["parity"]["W2"]
    return _below(means["weighted-fair[alpha=0.25,order=shortest]"]["mean_s"] / means["fair"]["mean_s"])


def _better_on_unlike_gpus(policy: str) -> tuple[int, int]:
    """The cells of the grid with unlike GPUs in which a policy is better than the reference, and all of them."""
    rows = [
        row for row in rows_of("baselines/grid.csv") if row["policy"] == policy and row["cluster"] == "heterogeneous"
    ]
    return sum(row["verdict"].startswith("better;") for row in rows), len(rows)


def _cost(policy: str, beside: str) -> str:
    """The costs of a decision in multiples of those of another policy."""
    costs = read_json("baselines/cost.json")["us_per_decision"]
    return f"{costs[policy] / costs[beside]:.0f}"


def _below(ratio: float) -> str:
    return f"{100 * (1 - ratio):.0f}"


def _ablated(*names: str) -> tuple[str, ...]:
    """Ratios of the ablations to ``eft-wait``."""
    rows = {row["policy"]: float(row["ratio"]) for row in rows_of("agents/independent-1.1.csv")}
    return tuple(f"{rows[f'{name}-1']:.3f}" for name in names)


def _on_alibaba() -> tuple[float, ...]:
    """Both agents and the tuned heuristic on Alibaba's trace, beside plain ``eft-wait``."""
    row = r"^\| {} \| batch_task_random6600.csv.gz \| ([\d.]+) .*?\| ([\d.]+)"
    found = [found_in(row.format(agent), "agents/transfer.md") for agent in (r"independent-1\.1", r"dag-0\.9")]
    return float(found[0].group(1)), float(found[1].group(1)), float(found[0].group(2))


def _w1() -> Paired:
    return decima("held-out-w1-parity", "decima[checkpoint=results/decima/w1.pt]")


_BATCH = "weighted-fair[alpha=-1,total=true]"
_TRAININGS = ("w2", "synthetic-ppo", "synthetic-reinforce", "synthetic-limit", "batch", "alibaba")
SENTENCES: dict[str, tuple[tuple[str, Callable[[], tuple[Any, ...]]], ...]] = {
    "docs/decima.md": (
        (
            "With 50 executors the network has {:.3f} of the best tuned weighted fair share on the ten sequences; on "
            "60 held-out ones {:.3f} by parity's rules and {:.3f} by the default ones",
            lambda: tuple(network(file, "w2") for file in ("learned-w2", "held-out-parity", "held-out-default")),
        ),
        (
            "With 10 executors it has {:.3f} of `srpt-cp[cap=5]` on the ten (not told apart there), and {} on 60",
            lambda: (network("learned-w1", "w1"), ratio_of(_w1())),
        ),
        (
            "(W1: {} % below `weighted-fair[alpha=-0.75]`), but `srpt-cp[cap=5]`, which learns nothing, is {} % below",
            lambda: tuple(_below(network("learned-w1", of, "weighted-fair[alpha=-0.75]")) for of in ("w1", "")),
        ),
        (
            "where it is not overloaded (W2) {} % are left below `weighted-fair` and {} % below the best",
            lambda: (
                _below(network("learned-w2", "w2", "weighted-fair")),
                _below(network("learned-w2", "w2")),
            ),
        ),
        (
            "20 jobs at once, the best heuristic is {} % below tuned weighted fair",
            lambda: (_below(network("held-out-batch", "", "weighted-fair[alpha=-1,total=true]")),),
        ),
        (
            "the network of W2, which never saw a batch, {} % above it, and a network that was trained for batches {} "
            "% below it.",
            lambda: (
                f"{100 * (network('held-out-batch', 'w2', _BATCH) - 1):.0f}",
                _below(network("held-out-batch", "batch", _BATCH)),
            ),
        ),
        (
            "in 15 iterations (of PPO as many took from {:.1f} to {:.1f} s on validation) nothing was gained",
            lambda: (_validation("synthetic-ppo")[0], _validation("synthetic-ppo")[15]),
        ),
        (
            "6 iterations of PPO made the latter no better ({:.1f} s after 6, from {:.1f}, on validation)",
            lambda: (_validation("alibaba")[6], _validation("alibaba")[0]),
        ),
        (
            "{} minutes for W2, {} for made-up queries by PPO, {} by REINFORCE, {} with limits, {} for batches and {} "
            "for Alibaba",
            lambda: tuple(map(_minutes, _TRAININGS)),
        ),
        (
            "PPO and the network of W2 have {:.3f} and {:.3f} of the best heuristic, limits, trained for half as many "
            "iterations, {:.3f}.",
            lambda: tuple(network("held-out-synthetic", of) for of in ("synthetic-ppo", "w2", "synthetic-limit")),
        ),
    ),
    "docs/learning.md": (
        (
            "below plain EFT-wait, but not below the tuned one: {:.2f} and {:.2f} against {:.2f}.",
            _on_alibaba,
        ),
        (
            "which alone gives {} of `eft-wait`): the shaped reward {}; discounting {}; the look-ahead {} "
            "(`per_gpu` {}, `cdf` {} instead of `sorted`); the baseline of replicas for a critic {}; the candidate "
            "scorer for cross-attention {}, for a linear score {}, for a flat MLP {}. A warm start from EFT-wait gives "
            "nothing ({}).",
            lambda: _ablated(
                "short",
                "unshaped",
                "undiscounted",
                "look-ahead-off",
                "look-ahead-per-gpu",
                "look-ahead-cdf",
                "critic",
                "attention",
                "linear",
                "mlp",
                "cloned",
            ),
        ),
        (
            "REINFORCE, SAC and D3QN stay behind the heuristic at this length ({}, {}, {}).",
            lambda: _ablated("reinforce", "sac", "d3qn"),
        ),
    ),
    "docs/pages.md": (
        (
            "They check that a page is drawn within {} s and every chart has ink, zoom and search work, Tab reaches "
            "every control, no text has less contrast than {}, nothing is wider than the window, the heap stays below "
            "{} MB",
            _limits,
        ),
    ),
    "docs/policies.md": (
        (
            "it is better than `sjf` in {} of the {} cells.",
            lambda: _better_on_unlike_gpus("eft-wait"),
        ),
        (
            "`min-min` is as good, and costs {} times as much with 10,000 tasks pending.",
            lambda: (_cost("min-min", "eft-wait"),),
        ),
    ),
    "docs/ramp.md": (
        (
            "server and dependency time of the {} recorded look-aheads is equal to 1e-9, every completion time to "
            "1e-6; every mask, status and cause of the three recorded episodes ({:,} decisions) is equal",
            lambda: (
                len(_compared(r"lookahead_\S+ (\d+) compared")),
                sum(_compared(r"episode_\S+ (\d+) compared")),
            ),
        ),
        (
            "and blocks a little more for C (by {}) and D (by {}).",
            lambda: (_against_teacher("C"), _against_teacher("D")),
        ),
        (
            "`roomy[least=4]` blocks {} of the jobs there, `on_time[least=4]` with `same_type` {}; with one type and "
            "right units `roomy[least=2]` blocks {}.",
            lambda: (
                _roomy("mixed-A", "roomy[least=4], best_fit"),
                _roomy("mixed-A", "on_time[least=4], same_type"),
                _roomy("plain-A", "roomy[least=2], best_fit"),
            ),
        ),
        (
            "splitting 16 ways speeds a job up {:.1f} times, not 16",
            lambda: (read_json("ramp/plain.json")["A"]["max, first_fit"]["speedup"],),
        ),
    ),
    "docs/schedulers.md": (
        (
            "{} priorities with factors within 5e-7 and every total exact (classic fair share within {:.2f})",
            lambda: (sum(_compared(r"(\d+) priorities: wrong totals")), float(_classic_fair_share())),
        ),
    ),
    "docs/spark.md": (
        ("reads the {} profiled TPC-H queries", lambda: (_jobs_of("tpch_dags.json.gz"),)),
        ("shares that are taken back go {} % below it", lambda: (_below_fair(),)),
    ),
    "docs/statistics.md": (
        (
            "at a load of 0.9 5,000 of them were found to tell as much as {:.0f} independent ones.",
            lambda: (_rules("alike", "worth"),),
        ),
        (
            "with plain p-values {:.0f} to {:.0f} % of the tables of equal schedulers have at least one error. Holm's "
            "method keeps this at {:.0f} % or less.",
            lambda: (
                *(100 * each(_tables("plain")) for each in (min, max)),
                100 * max(_tables("holm")),
            ),
        ),
        (
            "20 seeds would show it in {} % of the cases, 10 seeds in {} %, 30 in {} %.",
            lambda: tuple(_percent("power", n) for n in ("20", "10", "30")),
        ),
        (
            "it also stops {} % of traces without any drift.",
            lambda: (_percent("blocks", "stopped"),),
        ),
        ("`sjf` holds {} to {} % of the GPUs at an offered load of {} to {} (two seeds).", _steady),
        (
            "Samples of n seeds were drawn from populations of {} to {} measured seeds",
            lambda: (min(_rules("populations").values()), max(_rules("populations").values())),
        ),
        ("`itp-windows` are {} windows of 200 jobs", lambda: (_rules("populations", "itp-windows"),)),
        (
            "that rule ends with intervals that hold in {:.3f} of the cases for the worst of {} drawn pairs.",
            lambda: (_rules("precision", "worst"), _rules("precision", "pairs")),
        ),
    ),
    "docs/traces.md": (
        (
            "lists {} files of {} formats",
            lambda: (len(read_traces()), len({row["format"] for row in read_traces()})),
        ),
    ),
    "docs/workloads.md": (
        ("bursts over hundreds of gaps are {:.1f} to {:.1f} times milder than in the traces", _milder),
        ("| {} jobs of the list that Pollux published", lambda: (_jobs_of("philly_pollux.csv.gz"),)),
        ("| all {} jobs; no tenants in the trace", lambda: (_jobs_of("raw-traces.tar.gz"),)),
        ("| {} pods; priorities", lambda: (_jobs_of("openb_pod_list_default.csv"),)),
        ("| a random sample: {} DAG jobs that ended;", lambda: (_jobs_of("batch_task_random6600.csv.gz"),)),
        ("durations of {} jobs; arrivals are those of openb", lambda: (_jobs_of("hydra_20_ddl.csv.gz"),)),
    ),
}
"""Per page, pieces of text and the figures that belong in them."""

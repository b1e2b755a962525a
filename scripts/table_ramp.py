"""The tables ``ramp/SETTING`` and ``ramp/SETTING-BETA``: policies and placers on RAMP, and agents beside the best.

Settings, each on 32 servers (RAMP 4x4x2) with the five models of PAC-ML, 1,001 jobs and 50 training steps, are the
sweep files ``tables/ramp/ddls.yaml``, ``plain.yaml``, ``mixed.yaml`` and ``degree.yaml`` (only the degree is chosen).
Their cells keep ddls' figures (completion time, speed-up, utilisation, share of communication), which are not among a
run's metrics (``system.figures``).

``ramp/SETTING`` writes for each distribution of beta, policy and placer the blocking rate by seed, and its ratio to
that of ``max`` with ``first_fit``. ``ramp/SETTING-BETA`` plays the agents ``results/ramp/agents/SETTING-BETA-*.pt``,
which are copies of the ``best.pt`` of their training runs, and the best heuristics (with ``degree``, all constants) on
report seeds. Intervals are 95%: Student's t over the seeds, paired; for ratios by the delta method. A job that runs at
the end counts as blocked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

import command
import numpy as np
from numpy.typing import NDArray
from sweeps import RESULTS, finished, origin, sweep_of

from dagsim.errors import InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.ledger import Spending
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.families.ramp.policies import tuned_weights
from dagsim.files import write_text
from dagsim.metrics.intervals import ratio_of_means
from dagsim.metrics.student import t_quantile

SEEDS = range(3_012_000, 3_012_008)
"""As many report seeds as a table of agents has. The ledger gives each its own."""
CHOSEN = {
    "ddls": {"A": (4, 8), "B": (16, 8), "C": (4, 4), "D": (4, 2)},
    "plain": {"A": (4, 2), "B": (8, 8), "C": (4, 4), "D": (4, 2)},
    "mixed": {"A": (4, 4), "B": (8, 4), "C": (4, 4), "D": (4, 2)},
}
"""By setting and beta, the best constant degree (with ddls' rules that of PAC-ML's paper, except for D) and the best
smallest degree of ``on_time``, as the tables of the settings have them."""
FOLLOWS = {"A": 4, "B": 8, "C": 4, "D": 2}
"""By beta, the constant degree that follows in the futures of ``teach_ramp.py``, chosen on validation seeds."""
JUDGED = tuple(f"ramp/{setting}-{beta}" for setting, beta in product((*CHOSEN, "degree"), "ABCD"))
MEANS = {
    "jct_s": "job_completion_time",
    "speedup": "job_completion_time_speedup",
    "utilisation": "mean_cluster_worker_utilisation_frac",
    "communication": "mean_communication_overhead_frac",
}
CAUSES = ("declined", "no_place", "too_slow", "unfinished")
Figures = dict[str, dict[str, list[dict[str, float]]]]
"""By beta, and by policy with placer: the figures of an episode for each seed."""


def figures_of(runs: Iterable[CellRun]) -> Figures:
    """Collect the figures of a grid over placers, policies and distributions of beta."""
    figures: Figures = {}
    for run in runs:
        name = f"{run.at['policy']}, {run.at['system.placer']}"
        figures.setdefault(run.at["system.beta"], {}).setdefault(name, []).append(run.workload["figures"])
    return figures


def rows_of(figures: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, Any]]:
    """For each policy with its placer: blocking by seed, means, and the ratio to ``max`` with ``first_fit``."""
    rows: dict[str, dict[str, Any]] = {}
    for name, runs in figures.items():
        rows[name] = {"blocking": [run["blocking_rate"] for run in runs]}
        for key, kpi in MEANS.items():
            values = [run[kpi] for run in runs if kpi in run]  # seeds in which any job was completed
            rows[name][key] = fmean(values) if values else None
        rows[name]["mean_blocking"] = fmean(rows[name]["blocking"])
    if reference := rows.get("max, first_fit"):
        for row in rows.values():
            bounds = ratio_of_means(np.array(row["blocking"]), np.array(reference["blocking"]))
            row["ratio"] = [float(bound) if np.isfinite(bound) else None for bound in bounds]
    return rows


def write_compared(spending: Spending, options: command.Options, say: command.Say) -> None:
    """Write ``ramp/SETTING.json``."""
    figures = figures_of(finished(sweep_of(spending.table, spending.seeds), options))
    content: dict[str, Any] = {"setting": spending.table.removeprefix("ramp/"), "seeds": list(spending.seeds)}
    rows_by_beta = {beta: rows_of(rows) for beta, rows in figures.items()}
    content |= {"made": origin(spending, "ratios of means"), **rows_by_beta}
    write_text(options.folder / f"{spending.table}.json", json.dumps(content, indent=1) + "\n")
    for beta, rows in rows_by_beta.items():
        for name, row in rows.items():
            say(f"beta {beta}  {name:34s} blocking {row['mean_blocking']:.4f}")


def grids_of(table: str, seeds: Sequence[int]) -> list[SweepGrid]:
    """Return the agents with the setting's own placer, and the heuristics: the published ones, and the best."""
    setting, beta = table.removeprefix("ramp/").split("-")
    own = {"mixed": "same_type", "degree": "first_fit"}.get(setting, "best_fit")
    if not (agents := sorted((RESULTS / "ramp" / "agents").glob(f"{setting}-{beta}-*.pt"))):
        raise InputError(f"results/ramp/agents: {setting}-{beta}-1.pt is missing; train it (results/ramp/README.md)")
    policies = {own: {f"agent {place}": f'ppo[checkpoint="{path}"]' for place, path in enumerate(agents, 1)}}
    constant, least = CHOSEN.get(setting, {}).get(beta, (0, 0))
    constants = (constant,) if constant else (2, 4, 8, 16)
    names = ["max", *(f"constant[degree={degree}]" for degree in constants)]
    policies.setdefault("first_fit", {}).update({name: name for name in names})
    if setting == "degree":
        policies["first_fit"]["futures"] = f"teach_ramp:Futures[beta={beta},constant={FOLLOWS[beta]},futures=128]"
    for placer in dict.fromkeys(("best_fit", own)) if constant else ():
        names = [f"constant[degree={constant}]", f"on_time[least={least}]"]
        if placer == "best_fit":
            tuned = f"{setting}-{beta}"
            names += [f"roomy[least={least}]", *([f"roomy[tuned={tuned}]"] if tuned in tuned_weights() else [])]
        policies.setdefault(placer, {}).update({name: name for name in names})
    return [
        replace(
            sweep_of(f"ramp/{setting}"),
            name=f"ramp-{setting}-{beta}-{placer}",
            axes=(
                Axis("system.placer", (placer,), (placer,)),
                Axis("policy", tuple(specs), tuple(specs.values())),
                Axis("system.beta", (beta,), (beta,)),
            ),
            seeds=seeds,
        )
        for placer, specs in policies.items()
    ]


def write_judged(spending: Spending, options: command.Options, say: command.Say) -> None:
    """Write ``ramp/judged/SETTING-BETA.json``."""
    setting, beta = spending.table.removeprefix("ramp/").split("-")
    policies: dict[str, Any] = {}
    for grid in grids_of(spending.table, spending.seeds):
        for name, runs in figures_of(finished(grid, options)).get(beta, {}).items():
            policies[name.partition(",")[0] if name.startswith("agent ") else name] = {
                "blocking": [run["blocking_rate"] for run in runs],
                "jct_s": [run.get("job_completion_time") for run in runs],
                "speedup": [run.get("job_completion_time_speedup") for run in runs],
                "degree": [run.get("jobs_completed_max_partitions_per_op") for run in runs],
                "by_cause": {cause: fmean(run[f"blocking_rate_{cause}"] for run in runs) for cause in CAUSES},
            }
    sentence = origin(spending, "1,001 jobs, what runs at the end is blocked; 95 %, Student's t over the seeds, paired")
    content = {"made": sentence, "setting": setting, "beta": beta, "seeds": list(spending.seeds), "policies": policies}
    content["agents"] = compared(policies)
    write_text(options.folder / "ramp" / "judged" / f"{setting}-{beta}.json", json.dumps(content, indent=1) + "\n")
    for name, row in sorted(policies.items(), key=lambda pair: fmean(pair[1]["blocking"])):
        say(f"{setting} {beta}  {name:34s} {fmean(row['blocking']):.4f}")


def compared(policies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Mean blocking of the agents, and its paired difference and ratio to each heuristic, with intervals."""
    mine = [row["blocking"] for name, row in policies.items() if name.startswith("agent ")]
    if not mine:
        return {}
    values = np.mean(mine, axis=0)
    others = {name: np.array(row["blocking"]) for name, row in policies.items() if not name.startswith("agent ")}
    against = {
        name: {
            "blocking": fmean(other),
            "difference": _interval(values - other),
            "ratio": [float(bound) for bound in ratio_of_means(values, other)],
        }
        for name, other in others.items()
    }
    return {"blocking": _interval(values), "against": against}


def _interval(values: NDArray[np.float64]) -> list[float]:
    """Mean and bounds of its interval; with fewer than two values, only the mean."""
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return [mean]
    half = t_quantile(0.95, count - 1) * float(values.std(ddof=1)) / count**0.5
    return [mean, mean - half, mean + half]

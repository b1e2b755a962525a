"""Policies and placers on RAMP: blocking, completion time and speed-up by distribution of beta, with paired intervals.

    python scripts/compare_ramp.py --graphs DIR [--setting ddls] [--betas A,B,C,D] [--policies "max;on_time[least=4]"]
        [--placers "first_fit;best_fit"] [--seeds 101,102,103,104,105] [--out FILE]

Settings, each on 32 servers (RAMP 4x4x2) with the five models of PAC-ML, 1,001 jobs and 50 training steps:

ddls   ddls' rules, milliseconds taken as seconds, a job every 1,000 s
plain  dagsim's rules, milliseconds as they are, a job every second
mixed  as plain, on 16 A100, 8 V100 and 8 T4, whose times are estimated from the profiles' (``systems/ramp/gpus.py``)

Each row is a policy with a placer; the ratio is its blocking rate over that of ``max`` with ``first_fit`` on the same
seeds, with a 95 % interval (paired t by the delta method).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from dagsim.errors import DagsimError, InputError
from dagsim.files import write_text
from dagsim.metrics.intervals import ratio_of_means
from dagsim.model import gpu_type
from dagsim.systems.ramp import (
    RAMP_POLICIES,
    ComputationGraph,
    read_graphs,
)
from dagsim.systems.ramp.graph import costed
from dagsim.systems.ramp.kpis import kpis
from dagsim.systems.ramp.scenario import RampScenario

__all__ = ["compare", "made"]

MODELS = ("alexnet", "gnmt", "resnet18", "squeezenet1_0", "vgg16")
POLICIES = (
    "max",
    "acceptable_jct",
    "constant[degree=2]",
    "constant[degree=4]",
    "constant[degree=8]",
    "constant[degree=16]",
    "on_time[least=2]",
    "on_time[least=4]",
    "on_time[least=8]",
)
PLACERS = ("first_fit", "packed", "best_fit")
SEEDS = (101, 102, 103, 104, 105)
MIXED = ("A100-80",) * 16 + ("V100-32",) * 8 + ("T4",) * 8
"""Two communication groups of A100s, one of V100s and one of T4s."""


def made(setting: str, graphs: dict[str, ComputationGraph], beta: str, placer: str) -> RampScenario:
    """Return the scenario of the setting ``name``.

    Raises:
        InputError: There is no such setting.
    """
    known = tuple(graphs.values())
    common: dict[str, Any] = {"jobs": 1001, "beta": beta, "placer": placer}
    match setting:
        case "ddls":
            scenario = RampScenario(ddls=True, rules={"remembered": False}, gap_s=1000.0, horizon_s=1e6, **common)
        case "plain":
            scenario = RampScenario(horizon_s=1000.0, **common)
        case "mixed":
            distinct = tuple(map(gpu_type, dict.fromkeys(MIXED)))
            known = tuple(costed(graph, distinct[0], distinct) for graph in known)
            scenario = RampScenario(gpus=MIXED, horizon_s=1000.0, **common)
        case _:
            raise InputError(f"unknown setting {setting!r}; allowed: ddls, plain, mixed")
    return scenario.drawing_from(known)


def compare(
    setting: str,
    graphs: dict[str, ComputationGraph],
    beta: str,
    policies: list[str],
    placers: list[str],
    seeds: list[int],
) -> dict[str, dict[str, Any]]:
    """For each policy and placer: the figures of every seed, their means, and the ratio to ``max``
    with ``first_fit``.
    """
    by_policy: dict[str, dict[str, Any]] = {}
    for placer in placers:
        world = made(setting, graphs, beta, placer)
        for policy in policies:
            runs = []
            for seed in seeds:
                kernel = world.kernel(seed)
                kernel.run(RAMP_POLICIES.create(policy))
                runs.append(kpis(kernel))
            by_policy[f"{policy}, {placer}"] = {
                "blocking": [run["blocking_rate"] for run in runs],
                "jct_s": _mean(runs, "job_completion_time"),
                "speedup": _mean(runs, "job_completion_time_speedup"),
                "utilisation": _mean(runs, "mean_cluster_worker_utilisation_frac"),
                "communication": _mean(runs, "mean_communication_overhead_frac"),
            }
    reference = by_policy.get("max, first_fit")
    for row in by_policy.values():
        row["mean_blocking"] = fmean(row["blocking"])
        if reference is not None:
            row["ratio"] = _against(row["blocking"], reference["blocking"])
    return by_policy


def _against(values: list[float], reference: list[float]) -> list[float | None]:
    """Ratio of means on the same seeds, and its interval; None if there is none."""
    bounds = ratio_of_means(np.array(values), np.array(reference))
    return [float(each) if np.isfinite(each) else None for each in bounds]


def _mean(runs: list[dict[str, float]], name: str) -> float | None:
    """Mean over the seeds in which any job was completed."""
    values = [run[name] for run in runs if name in run]
    return fmean(values) if values else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, required=True, help="the folder with PipeDream's profiles")
    parser.add_argument("--setting", choices=("ddls", "plain", "mixed"), default="ddls")
    parser.add_argument("--betas", default="A,B,C,D", help="letters of the paper, or a distribution by name")
    parser.add_argument("--policies", default=";".join(POLICIES), help="separated by semicolons")
    parser.add_argument("--placers", default=";".join(PLACERS), help="separated by semicolons")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="as 1,2,3")
    parser.add_argument("--out", type=Path, help="also write everything as JSON")
    args = parser.parse_args()
    report: dict[str, Any] = {"setting": args.setting}
    try:
        seeds = report["seeds"] = [int(each) for each in args.seeds.split(",")]
        graphs = read_graphs(args.graphs, MODELS, "s" if args.setting == "ddls" else "ms")
        for beta in args.betas.split(","):
            rows = compare(args.setting, graphs, beta, args.policies.split(";"), args.placers.split(";"), seeds)
            report[beta] = rows
            for name, row in rows.items():
                print(f"beta {beta}  {name:34s} blocking {row['mean_blocking']:.4f}{_ratio(row)}", flush=True)
    except (DagsimError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except ValueError as error:
        parser.error(f"{error} (seeds are whole numbers)")
    if args.out is not None:
        write_text(args.out, json.dumps(report, indent=1) + "\n")
    return 0


def _ratio(row: dict[str, Any]) -> str:
    said = f"  JCT {row['jct_s']:.5g} s  speed-up {row['speedup']:.3g}" if row["jct_s"] is not None else ""
    if row.get("ratio", [None])[0] is not None:
        value, low, high = row["ratio"]
        said += f"  {value:.3f} of max, first_fit" + (f" ({low:.3f} to {high:.3f})" if low is not None else "")
    return said


if __name__ == "__main__":
    sys.exit(main())

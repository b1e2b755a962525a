"""How fast RAMP is: look-aheads, cold decisions, and decisions per CPU-second over whole episodes.

    python scripts/bench_ramp.py --graphs DIR [--streams FILE] [--repeats 7] [--json]

``--graphs`` holds PipeDream's profiles. Look-aheads are timed at degree 16 from a placed job on (run times of all
dependencies, orders, the walk), by ddls' rules on an empty 4x4x2 fabric: median and minimum of the repeats. A cold
decision does everything anew: it splits, places, orders and looks ahead, with nothing remembered of the fabric or of
other jobs. Episodes have 1,000 jobs of the five models of PAC-ML: an arrival stream (``arrivals_paper_*.json``), or
one drawn from a seed; each policy plays with an empty memo, and again with the memo it left.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dagsim.errors import DagsimError
from dagsim.systems.ramp import (
    DDLS,
    RAMP_POLICIES,
    ComputationGraph,
    Fabric,
    Memo,
    Planner,
    Ramp,
    RampJob,
    read_graph,
)
from dagsim.systems.ramp.scenario import RampScenario

__all__ = ["cold_decisions", "episodes", "look_aheads"]

MODELS = ("alexnet", "gnmt", "resnet18", "squeezenet1_0", "vgg16")
POLICIES = ("max", "random", "acceptable_jct", "constant[degree=4]", "sip_ml", "min", "no")
JOBS = 1000


def fresh(memo: Memo | None = None) -> Planner:
    """A planner that remembers nothing."""
    return Planner(Fabric(Ramp(4, 4, 2, ddls=True)), DDLS, memo=Memo() if memo is None else memo)


def spent_s(work: Callable[[], object]) -> float:
    """CPU-seconds of ``work``."""
    gc.collect()
    begun = time.process_time()
    work()
    return time.process_time() - begun


def look_aheads(graphs: dict[str, ComputationGraph], repeats: int) -> dict[str, dict[str, float]]:
    """Per model CPU-milliseconds of a look-ahead at degree 16, and what it went through."""
    found = {}
    for name, graph in graphs.items():
        planner = fresh()
        parts = planner.parts(graph, 16)
        placement = planner.place(parts, 0)
        if placement is None:
            continue
        times = [spent_s(lambda: planner.look_ahead(parts, placement)) for _ in range(repeats)]  # noqa: B023
        step = planner.look_ahead(parts, placement)
        found[name] = {
            "ms": 1e3 * median(times),
            "min_ms": 1e3 * min(times),
            "ops": parts.ops,
            "deps": parts.deps,
            "ticks": step.ticks,
        }
    return found


def cold_decisions(graphs: dict[str, ComputationGraph], repeats: int) -> dict[str, float]:
    """Per model CPU-seconds of a decision at degree 16 with nothing remembered: median of the repeats."""

    def decide(graph: ComputationGraph) -> None:
        planner = fresh()
        parts = planner.parts(graph, 16)
        placement = planner.place(parts, 0)
        if placement is not None:
            planner.step(parts, placement)

    return {
        name: median(spent_s(lambda: decide(graph)) for _ in range(repeats))  # noqa: B023
        for name, graph in graphs.items()
    }


def episodes(jobs: list[RampJob], repeats: int) -> dict[str, dict[str, float]]:
    """Per policy decisions per CPU-second: with an empty memo, and with the memo of an episode before."""
    found = {}
    for policy in POLICIES:
        cold, warm, blocked = [], [], 0
        for _ in range(repeats):
            memo = Memo()
            for times in (cold, warm):
                kernel = RampScenario(horizon_s=1e6).planned_by(fresh(memo)).kernel(0, jobs=jobs)
                times.append(spent_s(lambda: kernel.run(RAMP_POLICIES.create(policy))))  # noqa: B023
            blocked = sum(outcome.completed_s is None for outcome in kernel.outcomes)
        found[policy] = {
            "decisions": kernel.schedule.decisions,
            "cold_per_cpu_s": kernel.schedule.decisions / median(cold),
            "warm_per_cpu_s": kernel.schedule.decisions / median(warm),
            "blocking": blocked / len(kernel.outcomes),
        }
    return found


def stream(graphs: dict[str, ComputationGraph], path: Path | None) -> list[RampJob]:
    """Jobs of the five models: from a stream, or one a thousand seconds, with beta drawn from .1 to 1."""
    if path is not None:
        rows = json.loads(path.read_text(encoding="utf-8"))["jobs"]
    else:
        rng = np.random.default_rng(0)
        rows = [
            (1000.0 * number, MODELS[rng.integers(len(MODELS))], round(float(rng.uniform(0.1, 1.0)), 2))
            for number in range(JOBS)
        ]
    return [RampJob(str(number), graphs[model], at, beta) for number, (at, model, beta) in enumerate(rows)]


def measure(folder: Path, path: Path | None, repeats: int) -> dict[str, Any]:
    """All figures."""
    known = sorted(one for one in folder.glob("*.txt") if one.stem not in ("README", "LICENSE"))
    graphs = {one.stem: read_graph(one, "s") for one in known}
    cold = cold_decisions(graphs, min(repeats, 3))
    return {
        "look_ahead": look_aheads({name: graphs[name] for name in MODELS}, repeats),
        "cold_decision_s": cold,
        "cold_decision_max_s": max(cold.values()),
        "episode": episodes(stream(graphs, path), min(repeats, 3)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, required=True, help="the folder with PipeDream's profiles")
    parser.add_argument("--streams", type=Path, help="an arrival stream (arrivals_paper_*.json)")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each look-ahead (default 7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats must be at least 1")
    try:
        found = measure(args.graphs, args.streams, args.repeats)
    except (DagsimError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(found))
        return 0
    for name, row in found["look_ahead"].items():
        print(
            f"{name} at degree 16: {row['ms']:.1f} ms a look-ahead (min {row['min_ms']:.1f}; {row['ops']:,} operations,"
            f" {row['deps']:,} dependencies, {row['ticks']} ticks)"
        )
    slowest = max(found["cold_decision_s"], key=found["cold_decision_s"].get)
    print(f"slowest cold decision: {found['cold_decision_max_s']:.3f} CPU-s ({slowest})")
    for policy, row in found["episode"].items():
        print(
            f"{policy}: {row['cold_per_cpu_s']:,.0f} decisions per CPU-second with an empty memo,"
            f" {row['warm_per_cpu_s']:,.0f} with a full one ({row['decisions']:,} decisions)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

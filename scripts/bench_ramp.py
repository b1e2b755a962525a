"""How fast RAMP is: look-aheads, cold decisions, and decisions per CPU-second over whole episodes.

    python scripts/bench_ramp.py --graphs DIR [--streams FILE] [--repeats 7] [--json]

``--graphs`` holds PipeDream's profiles. Look-aheads are timed at degree 16 from a placed job on (run times of all
dependencies, orders, the walk), by ddls' rules on an empty 4x4x2 fabric: median and minimum of the repeats. A cold
decision splits, places, orders and looks ahead, with nothing remembered of the fabric or of other jobs. Episodes have
1,000 jobs of the five models of PAC-ML: an arrival stream (``arrivals_paper_*.json``), or one drawn from a seed; each
policy plays with an empty memo, and again with the memo it left.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import command
import numpy as np
from clock import cpu_s, median_s

from dagsim.families.ramp.api import (
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
from dagsim.families.ramp.scenario import RampScenario

MODELS = ("alexnet", "gnmt", "resnet18", "squeezenet1_0", "vgg16")
POLICIES = ("max", "random", "acceptable_jct", "constant[degree=4]", "sip_ml", "min", "no")
JOBS = 1000


def fresh(memo: Memo | None = None) -> Planner:
    """Return a planner with an empty memo."""
    return Planner(Fabric(Ramp(4, 4, 2, ddls=True)), DDLS, memo=Memo() if memo is None else memo)


def look_aheads(graphs: dict[str, ComputationGraph], repeats: int) -> dict[str, dict[str, float]]:
    """For each model, CPU-milliseconds of a look-ahead at degree 16, and its size."""
    figures = {}
    for name, graph in graphs.items():
        planner = fresh()
        parts = planner.parts(graph, 16)
        placement = planner.place(parts, 0)
        if placement is None:
            continue
        times = [cpu_s(lambda: planner.look_ahead(parts, placement)) for _ in range(repeats)]  # noqa: B023
        step = planner.look_ahead(parts, placement)
        figures[name] = {
            "ms": 1e3 * median(times),
            "min_ms": 1e3 * min(times),
            "ops": parts.ops,
            "deps": parts.deps,
            "ticks": step.ticks,
        }
    return figures


def cold_decisions(graphs: dict[str, ComputationGraph], repeats: int) -> dict[str, float]:
    """For each model, CPU-seconds of a decision at degree 16 with an empty memo: median of the
    repeats.
    """

    def decide(graph: ComputationGraph) -> None:
        planner = fresh()
        parts = planner.parts(graph, 16)
        placement = planner.place(parts, 0)
        if placement is not None:
            planner.step(parts, placement)

    return {name: median_s(partial(decide, graph), repeats) for name, graph in graphs.items()}


def episodes(jobs: list[RampJob], repeats: int) -> dict[str, dict[str, float]]:
    """For each policy, decisions per CPU-second with an empty memo, and with the memo of a previous
    episode.
    """
    rates = {}
    for policy in POLICIES:
        cold: list[float] = []
        warm: list[float] = []
        blocked = 0
        for _ in range(repeats):
            memo = Memo()
            for times in (cold, warm):
                kernel = RampScenario(horizon_s=1e6).planned_by(fresh(memo)).kernel(0, jobs=jobs)
                times.append(cpu_s(lambda: kernel.run(RAMP_POLICIES.create(policy))))  # noqa: B023
            blocked = sum(outcome.completed_s is None for outcome in kernel.outcomes)
        rates[policy] = {
            "decisions": kernel.schedule.decisions,
            "cold_per_cpu_s": kernel.schedule.decisions / median(cold),
            "warm_per_cpu_s": kernel.schedule.decisions / median(warm),
            "blocking": blocked / len(kernel.outcomes),
        }
    return rates


def stream(graphs: dict[str, ComputationGraph], path: Path | None) -> list[RampJob]:
    """Jobs of the five models: from a stream, or one per 1,000 s with beta drawn from .1 to 1."""
    if path is not None:
        rows = command.read_json(path)["jobs"]
    else:
        rng = np.random.default_rng(0)
        rows = [
            (1000.0 * number, MODELS[rng.integers(len(MODELS))], round(float(rng.uniform(0.1, 1.0)), 2))
            for number in range(JOBS)
        ]
    return [RampJob(str(number), graphs[model], at, beta) for number, (at, model, beta) in enumerate(rows)]


def measure(folder: Path, path: Path | None, repeats: int) -> dict[str, Any]:
    """Return all figures."""
    paths = sorted(path for path in folder.glob("*.txt") if path.stem not in ("README", "LICENSE"))
    graphs = {path.stem: read_graph(path, "s") for path in paths}
    cold = cold_decisions(graphs, min(repeats, 3))
    return {
        "look_ahead": look_aheads({name: graphs[name] for name in MODELS}, repeats),
        "cold_decision_s": cold,
        "cold_decision_max_s": max(cold.values()),
        "episode": episodes(stream(graphs, path), min(repeats, 3)),
    }


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    figures = measure(options.graphs, options.streams, options.repeats)
    say(figures)
    return figures


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--graphs", type=Path, required=True, help="the folder with PipeDream's profiles")
    parser.add_argument("--streams", type=Path, help="an arrival stream (arrivals_paper_*.json)")
    parser.add_argument("--repeats", type=command.at_least_one, default=7, help="runs of each look-ahead (default 7)")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

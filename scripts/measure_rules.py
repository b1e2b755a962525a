"""Measure the rules of ``results/statistics/README.md``: power, tables, stopping, similar jobs.

    python scripts/measure_rules.py --data DIR [--draws N] [--streams N] [--out FILE]

``DIR`` holds the populations of ``scripts/validate_intervals.py``. Per section of the JSON that is written:

    power      how often t on the logs tells ``fifo-fit`` and ``sjf`` apart (population heterogeneous, its logs centred)
               if the first truly takes ``DIFFERENCE`` longer
    tables     how often a table of 54 equal rows calls one different: with plain p-values, and with Holm's
    precision  the coverage of the intervals at which ``--precision 2%`` ends: the worst pair of the drawn populations
    blocks     how often the test for a drift over five blocks stops a trace that has none
    alike      the independent jobs that 5,000 jobs of one stream are worth: the variance of a job's part in the ratio
               of means of ``sjf`` to ``easy``, over that of the mean of 5,000 jobs in a row; 64 equal GPUs, load 0.9
    steady     the share of the GPUs that ``sjf`` holds on the preset ``steady``, and the load that its jobs offer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import command
import numpy as np
from validate_intervals import SIZES, Population, populations, sequential, table_errors

from dagsim.config.schema import load_config
from dagsim.experiment.simulate import run_policy
from dagsim.metrics.intervals import t_of_mean
from dagsim.metrics.jct import jct
from dagsim.metrics.ratio_over_time import FEWEST_JOBS, over_time
from dagsim.metrics.student import two_sided_p
from dagsim.workload.synthetic import Synthetic

OUT = Path(__file__).parent.parent / "results" / "statistics" / "rules.json"
DIFFERENCE = 0.05
STREAM, WARM, PIECE = 30_000, 2_000, 5_000
"""Jobs of a stream, warm-up jobs at its start, and consecutive jobs in a mean."""
EQUAL = "cluster.groups=[{name: v100, count: 8, gpu: V100-16, gpus: 8, cpus: 96, memory_gb: 768}]"


def power(population: Population, pair: tuple[str, str], draws: int, seed: int) -> dict[str, float]:
    """For each n, the share of samples that distinguish the two if the first takes ``DIFFERENCE``
    longer.
    """
    one, other = (np.log(population.values[:, population.policies.index(name)]) for name in pair)
    logs = one - other - (one - other).mean() + log(1 + DIFFERENCE)
    rng = np.random.default_rng([seed, 3])
    picks = {n: rng.integers(0, len(logs), (draws, n), np.int32) for n in SIZES}
    return {str(n): float(np.mean(two_sided_p(t_of_mean(logs[pick]), n - 1) < 0.05)) for n, pick in picks.items()}


def tables(drawn: Sequence[Population], draws: int, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """For each method and population, the share of tables with an error, by n."""
    return {
        name: {
            population.name: {str(n): table_errors(population, n, draws, seed, **way) for n in (5, 10, 20, 30)}
            for population in drawn
        }
        for name, way in {"plain": {"adjusted": list}, "holm": {}}.items()
    }


def precision(drawn: Sequence[Population], draws: int, seed: int) -> dict[str, Any]:
    """Return the worst pair of all populations, its coverage, and the number of pairs."""
    held = {
        f"{population.name}: {pair}": share
        for population in drawn
        for pair, share in sequential(population, draws, seed)[0].items()
    }
    worst = min(held, key=lambda pair: held[pair])
    return {"pairs": len(held), "worst_pair": worst, "worst": held[worst]}


def blocks(traces: int, seed: int) -> dict[str, float]:
    """Share of traces of independent log-normal jobs that the test for a drift stops."""
    rng = np.random.default_rng([seed, 4])
    drawn = (rng.lognormal(size=(2, FEWEST_JOBS)) for _ in range(traces))
    return {"traces": traces, "stopped": float(np.mean([over_time(ours, theirs).drifts for ours, theirs in drawn]))}


def alike(streams: int) -> dict[str, float]:
    """Number of independent jobs that ``PIECE`` consecutive jobs are worth."""
    config = load_config(None, ["workload=steady", "workload.measure=null", EQUAL])
    assert isinstance(config.workload, Synthetic)
    config = config.model_copy(update={"workload": replace(config.workload, count=STREAM)})
    both = [
        [jct(run_policy(config, name, seed).schedule)[WARM:] for name in ("sjf", "easy")] for seed in range(streams)
    ]
    ratio = np.mean([ours.mean() for ours, _ in both]) / np.mean([theirs.mean() for _, theirs in both])
    parts = np.array([ours - ratio * theirs for ours, theirs in both])  # (streams, jobs)
    pieces = parts[:, : parts.shape[1] // PIECE * PIECE].reshape(streams, -1, PIECE).mean(axis=2)
    return {"streams": streams, "pieces": pieces.size, "jobs": PIECE, "worth": float(parts.var() / pieces.var())}


def steady(seeds: int) -> dict[str, Any]:
    """GPUs held and load offered, of each seed."""
    runs = [run_policy(load_config(None, ["workload=steady"]), "sjf", seed) for seed in range(1, seeds + 1)]
    return {
        "seeds": seeds,
        "held": [run.summary.utilization for run in runs],
        "offered": [run.workload["gpu_load"] for run in runs],
    }


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    every = populations(options.data, "mean")
    drawn = [population for population in every if population.kind == "drawn"]
    heterogeneous = next(population for population in drawn if population.name == "heterogeneous")
    return {
        "command": f"python scripts/measure_rules.py --data DIR --draws {options.draws} --streams {options.streams}",
        "populations": {population.name: len(population.values) for population in every},
        "power": power(heterogeneous, ("fifo-fit", "sjf"), options.draws, options.seed),
        "tables": tables(drawn, max(options.draws // 5, 10), options.seed),
        "precision": precision(drawn, max(options.draws // 20, 10), options.seed),
        "blocks": blocks(max(options.draws // 5, 10), options.seed),
        "alike": alike(options.streams),
        "steady": steady(2),
    }


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the populations, *.npz")
    parser.add_argument("--draws", type=int, default=10_000, help="samples per n, and a fifth as many tables (10,000)")
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

"""CPU seconds of forecasts of starts, for queues of growing size.

    python scripts/bench_forecast.py [--case NAME ...] [--policy NAME] [--json] [--out FILE]

Each case is a full cluster of nodes with 8 GPUs, jobs of 20 users in 4 accounts that wait there, and 2,000 ended jobs
for run times. ``first`` is an answer from the first three futures; ``dagsim eta --state`` shows its first one after a
second. Gates: 500 jobs on 100 nodes take at most 60 CPU-s with 100 futures, 5,000 on 1,000 nodes 600 CPU-s with 25
futures, and the first answer for 500 jobs comes within 3 s.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import command
import numpy as np
from clock import timed

from dagsim.families.forecast.futures import Player
from dagsim.families.forecast.job_log import JobLog
from dagsim.families.forecast.live import expected
from dagsim.families.forecast.members import Forecaster
from dagsim.model import Cluster, Demand, NodePartition, QueueNode, QueueTree
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.workload.array_tools import objects
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

GPUS = 8
"""Number of GPUs of a node."""
ENDED = 2000
HOUR_S = 3600.0
FIRST = 3
"""Number of futures of a first answer."""


class Case(NamedTuple):
    """A queue, and the most that its forecast may cost."""

    waiting: int
    nodes: int
    futures: int
    most_s: float
    first: bool = False


CASES = {
    "first": Case(500, 100, 100, 3.0, first=True),
    "500": Case(500, 100, 100, 60.0),
    "5000": Case(5000, 1000, 25, 600.0),
}


def queue(waiting: int, nodes: int) -> tuple[ClusterScenario, JobLog, float]:
    """A full cluster with a queue, the log that led to it, and the instant."""
    rng = np.random.default_rng(waiting)
    sizes = (1, 2, 4, 8, 16)
    running = int(nodes * GPUS / (sum(sizes) / len(sizes)) * 1.2)
    count = ENDED + running + waiting
    size, limit_s = rng.choice(sizes, count), rng.choice([1, 4, 12, 24], count) * HOUR_S
    run_s = np.maximum(60.0, np.round(limit_s * rng.uniform(0.02, 1.0, count) ** 2))
    t = 400 * HOUR_S
    start_s = np.full(count, np.nan)
    start_s[:ENDED] = np.sort(rng.uniform(0.0, t - 25 * HOUR_S, ENDED))
    submit_s = np.where(np.isnan(start_s), np.nan, start_s - rng.exponential(HOUR_S, count)).clip(0.0)
    left, held = nodes * GPUS, []
    for job in range(ENDED, ENDED + running):
        if size[job] <= left:
            left -= int(size[job])
            held.append(job)
    start_s[held] = t - limit_s[held] * rng.uniform(0.0, 0.9, len(held))
    run_s[held] = limit_s[held]
    submit_s[held] = start_s[held] - 600.0
    others = np.isnan(submit_s)
    submit_s[others] = t - rng.uniform(0.0, 24 * HOUR_S, int(others.sum()))
    order = np.argsort(submit_s, kind="stable")
    user = rng.integers(20, size=count)
    kinds = tuple([TaskKind(Demand(float(min(gpus, GPUS)), 4.0 * min(gpus, GPUS), 0.0, None), True) for gpus in sizes])
    jobs = JobArrays.of_single_tasks(
        objects([str(job) for job in range(count)]),
        submit_s,
        "job",
        work=run_s,
        estimate=limit_s,
        instances=np.maximum(1, size // GPUS),
        kind=np.searchsorted(sizes, size).astype(np.int32),
        kinds=kinds,
        user=Labels.numbered([f"user{number}" for number in user]),
        account=Labels.numbered([f"account{number % 4}" for number in user]),
        partition=Labels.numbered(["gpu"] * count),
    )
    log = JobLog.of(jobs.chosen(order), 0.0, start_s[order])
    cluster = Cluster.of({"A100-80": nodes * GPUS}, per_node=GPUS)
    queues = QueueTree(
        tuple([QueueNode(f"account{number}", weight=1.0 + number) for number in range(4)]),
        (NodePartition("gpu", max_time_s=48 * HOUR_S),),
        scheduler={"half_life_s": 7 * 24 * HOUR_S},
    )
    return ClusterScenario(cluster, (), runtime=Recorded(), estimates=Estimates("predicted"), queues=queues), log, t


def measured(case: Case, policy: str) -> tuple[float, int]:
    """CPU seconds of a forecast, and the number of rows that it has."""
    scenario, log, t = queue(case.waiting, case.nodes)
    forecaster = Forecaster(Player(scenario, policy, log), case.futures, baselines=False)
    answers = expected(log, forecaster, t, 0, early=(lambda count: count == FIRST) if case.first else None)
    first, spent_s = timed(lambda: next(answers))
    return spent_s, len(first.rows)


def _work(options: command.Options, say: command.Say) -> dict[str, dict[str, Any]]:
    rows = {}
    for name in options.case or CASES:
        case = CASES[name]
        spent_s, count = measured(case, options.policy)
        rows[name] = {
            **case._asdict(),
            "what": f"first answer, {FIRST} futures" if case.first else f"{case.futures} futures",
            "policy": options.policy,
            "rows": count,
            "cpu_s": round(spent_s, 2),
            "met": spent_s <= case.most_s,
        }
        say({name: rows[name]})
    return rows


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; repeatable")
    parser.add_argument("--policy", default="slurm-multifactor")
    return command.run(parser, _work, lambda rows: all(row["met"] for row in rows.values()))


if __name__ == "__main__":
    raise SystemExit(main())

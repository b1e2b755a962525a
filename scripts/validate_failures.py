"""Effective training time under failures, against closed forms: ``python scripts/validate_failures.py [--json]``.

Gangs train one after the other on a cluster whose nodes fail at random and are replaced at once. They write a
checkpoint at each interval of work; a failure costs the work since the last checkpoint, and a restart. The ratio of
training to elapsed time is compared with two expectations: that of Kokolis et al. (2024), in first order,
1 - rate x (restart + interval / 2), less the writes; and the exact one for memoryless failures. Then the ratio at
Young and Daly's interval, sqrt(2 x write x MTTF), is compared with the best of 20 intervals on the same failures. The
exit status is 1 if an expectation is more than 1 % away, or the best interval more than .1 percentage points better.
"""

from __future__ import annotations

from math import ceil, exp, expm1, sqrt
from typing import Any, NamedTuple

import command

from dagsim import simulate
from dagsim.model import Cluster, Job, Task
from dagsim.systems.cluster import NodeFailures, Preemption

DAY_S = 86_400.0
REPLACED_S = 1e-3
"""Mean time until another node takes the place of one that failed."""
INTERVALS = 20
SPREAD = 4.0
"""The intervals reach from Young and Daly's over this number to that times it."""
TOLERANCE, TOLERANCE_POINTS = 0.01, 0.1


class Setting(NamedTuple):
    """A kind of job and its cluster; times in seconds."""

    gpus: int
    gpus_per_node: int
    node_mttf_s: float
    interval_s: float
    write_s: float
    restart_s: float
    work_s: float

    @property
    def nodes(self) -> int:
        """Number of nodes of the gang."""
        return ceil(self.gpus / self.gpus_per_node)

    @property
    def rate(self) -> float:
        """Failures of the gang per second."""
        return self.nodes / self.node_mttf_s


def first_order(setting: Setting) -> float:
    """Expected ratio for rare failures (Kokolis et al. 2024), with the time of the writes."""
    lost = setting.rate * (setting.restart_s + setting.interval_s / 2)
    return (1 - lost) / (1 + setting.write_s / setting.interval_s)


def exact(setting: Setting) -> float:
    """Expected ratio for memoryless failures, which also hit restarts and writes."""
    whole, rest_s = divmod(setting.work_s, setting.interval_s)
    spans = [setting.interval_s + setting.write_s] * int(whole) + [rest_s] * bool(rest_s)
    if not rest_s:
        spans[-1] = setting.interval_s  # no checkpoint at the end
    elapsed_s = sum(expm1(setting.rate * span) for span in spans) * exp(setting.rate * setting.restart_s) / setting.rate
    return setting.work_s / elapsed_s


def young_daly(setting: Setting) -> float:
    """The interval after Young (1974) and Daly (2006)."""
    return sqrt(2 * setting.write_s / setting.rate)


def simulated(setting: Setting, jobs: int, seed: int) -> float:
    """Ratio of training to elapsed time of ``jobs`` jobs, one after the other."""
    cluster = Cluster.of({"A100-80": setting.nodes * setting.gpus_per_node}, per_node=setting.gpus_per_node)
    task = Task("train", setting.work_s, setting.gpus, gang=True)
    schedule = simulate(
        [Job.single(str(number), task) for number in range(jobs)],
        cluster,
        seed=seed,
        preemption=Preemption(
            restart_s=setting.restart_s,
            checkpoint_interval_s=setting.interval_s,
            checkpoint_write_s=setting.write_s,
        ),
        failures=(NodeFailures(setting.node_mttf_s, REPLACED_S),),
    ).schedule
    return jobs * setting.work_s / schedule.ended_s


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    setting = Setting(
        options.gpus,
        options.gpus_per_node,
        options.mttf_days * DAY_S,
        options.interval_s,
        options.write_s,
        options.restart_s,
        options.work_h * 3600,
    )
    ratio, rough, precise = simulated(setting, options.jobs, options.seed), first_order(setting), exact(setting)
    costly = setting._replace(write_s=options.write_s or 60.0)
    best_s = young_daly(costly)
    intervals = [best_s * SPREAD ** (2 * place / (INTERVALS - 1) - 1) for place in range(INTERVALS)]
    jobs = max(options.jobs // 2, 1)
    ratios = [[each_s, simulated(costly._replace(interval_s=each_s), jobs, options.seed)] for each_s in intervals]
    at_best = simulated(costly._replace(interval_s=best_s), jobs, options.seed)
    points = 100 * (max(value for _, value in ratios) - at_best)
    result = {
        "ratio": ratio,
        "first_order": rough,
        "exact": precise,
        "young_daly_s": best_s,
        "young_daly_ratio": at_best,
        "ratios": ratios,
        "points": points,
    }
    say(result)
    return result


def _holds(result: dict[str, Any]) -> bool:
    off = [abs(result["ratio"] / result[name] - 1) for name in ("first_order", "exact")]
    return bool(max(off) <= TOLERANCE and result["points"] <= TOLERANCE_POINTS)


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="number of jobs")
    parser.add_argument("--gpus", type=int, default=64, help="GPUs of a job")
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--mttf-days", type=float, default=10.0, help="mean time to failure of a node")
    parser.add_argument("--interval-s", type=float, default=3600.0, help="work between two checkpoints")
    parser.add_argument("--write-s", type=float, default=0.0, help="time of a checkpoint")
    parser.add_argument("--restart-s", type=float, default=300.0)
    parser.add_argument("--work-h", type=float, default=24.0, help="hours of training of a job")
    parser.add_argument("--seed", type=int, default=0)
    return command.run(parser, _work, _holds)


if __name__ == "__main__":
    raise SystemExit(main())

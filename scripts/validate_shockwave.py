"""Jobs of a real cluster: ``python scripts/validate_shockwave.py --inputs DIR [--measured DIR] [--json]``.

Shockwave's authors (NSDI 2023) ran 120 training jobs on 32 GPUs, under several policies. This script plays the jobs of
``DIR/shockwave/tacc_120.trace.gz`` on dagsim's kernel, with Gavel as it works on a real cluster. With
``--measured``, a folder of measured completion times (``golden/elastic/shockwave``), it prints the error of each mean
and of each job. The exit status is 1 if the mean absolute error of the means is not below that of the authors' own
simulator on the same policies, or if two policies whose measured means differ by more than 3 % come in the wrong order.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import command

from dagsim.families.elastic.batches import EpochTraining
from dagsim.families.gavel.deployed import DeployedGavel
from dagsim.model import Cluster, Elastic, Job, Task, gpu_type
from dagsim.model.log import Kind
from dagsim.systems.cluster.scenario import ClusterScenario

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from families.elastic.shockwave_jobs import SAMPLES, batch_schedule, epoch_table

POLICIES = {
    "allox": "allox_gangs",
    "finish_time_fairness": "finish_time_fairness",
    "max_min_fairness": "max_min_fairness",
    "min_total_duration": "min_total_duration",
}
"""Policies whose runs on the cluster are at hand, and their names in ``gavel``."""
NODES, GPUS_PER_NODE = 8, 4
ROUND_S = 120.0
"""Length of a round on the cluster."""
GAP_S = 1000.0
"""Least time between two resets of the counts of time on the cluster."""
RESTART_S = 20.0
"""Seconds that a restart takes with its checkpoint: the estimate of the authors' simulator."""
CHECKPOINTS_S = [
    *[0] * 6, 1, *[2] * 26, *[4] * 14, 5, 5, *[6] * 6, *[7] * 4, 8, *[9] * 5, 10, 10, 11, 12, 12, 13, 13, 13, 14, 15,
    16, 16, 16, 18, 18, 19, 19, 21, 21, 22.56, 23, 24, 26, 26, 27, 29, 29, 31, 32, 35, 36, 38, 40, 43, 47, 60,
]  # fmt: skip
"""Seconds to write and read a checkpoint on the cluster: the percentiles in the authors' scheduler.py."""
STOP_S = [seconds / 2 for seconds in CHECKPOINTS_S]
START_S = RESTART_S - fmean(STOP_S)
RUNS = 3
"""Runs whose means are compared: seconds to stop are drawn at random."""
CHANGE_S = 2 * ROUND_S
"""A job whose batch changes waits until its policy starts it again, at the latest with the next round."""
TOLERANCE = 0.0499
"""Mean absolute error of the authors' simulator on these policies."""
CLEAR = 0.03
"""Difference of two means from which their order counts."""
_TRACE, _TABLE, _GPU = "tacc_120.trace.gz", "tacc_throughputs.json.gz", "v100"
_TYPE = re.compile(r"(.+) \(batch size (\d+)\)")


class Comparison(NamedTuple):
    """Completion times of a policy here and on the cluster, in seconds by job."""

    here: Mapping[str, float]
    measured: Mapping[str, float]

    @property
    def error(self) -> float:
        """Relative error of the mean."""
        return fmean(self.here.values()) / fmean(self.measured.values()) - 1

    def job_errors(self) -> dict[str, float]:
        """Relative error of each job."""
        return {job: self.here[job] / jct_s - 1 for job, jct_s in self.measured.items()}


def jobs_of(inputs: Path) -> list[Job]:
    """The jobs of the trace, as tasks whose rate changes with their batch.

    Raises:
        InputError: A file is missing or malformed.
    """
    folder = inputs / "shockwave"
    rates, name = command.read_json(folder / _TABLE)[_GPU], gpu_type(_GPU.upper()).name
    jobs = []
    with command.reading(folder / _TRACE, "a trace of Shockwave"):
        for number, line in enumerate(command.lines(folder / _TRACE)):
            fields = line.rstrip("\n").split("\t")
            model, batch = _TYPE.fullmatch(fields[0]).groups()  # type: ignore[union-attr]
            steps, gpus, mode, arrival_s = int(fields[5]), int(fields[6]), fields[7], float(fields[11])
            epochs = steps / ceil(SAMPLES[model] / int(batch))
            schedule = batch_schedule(model, int(batch), gpus, mode, ceil(epochs))
            training = EpochTraining(epochs, schedule, {name: epoch_table(rates, model, gpus)}, CHANGE_S)
            elastic = Elastic(gpus, gpus, training, START_S)
            task = Task("train", training.alone_s(name), gpus, gang=True, model=model, elastic=elastic)
            jobs.append(Job.single(str(number), task, arrival_s))
    return jobs


def completed(jobs: Sequence[Job], policy: str) -> dict[str, float]:
    """Play the jobs under a policy of the cluster; return their mean completion times in seconds."""
    cluster = Cluster.of({_GPU.upper(): NODES * GPUS_PER_NODE}, per_node=GPUS_PER_NODE)
    times: dict[str, list[float]] = {job.id: [] for job in jobs}
    for seed in range(RUNS):
        gavel = DeployedGavel(POLICIES[policy], ROUND_S, GAP_S, STOP_S, seed, window=len(jobs))
        for row in ClusterScenario(cluster, list(jobs)).kernel(0).run(gavel).log:
            if row.kind == Kind.COMPLETED:  # the last checkpoint is still to be written
                times[jobs[row.job].id].append(row.time_s - jobs[row.job].arrival_s + fmean(STOP_S))
    return {job: fmean(seconds) for job, seconds in times.items()}


def measured(folder: Path, policy: str) -> dict[str, float]:
    path = folder / f"tacc_32gpus_comparison__{policy}__physical.csv.gz"
    with command.reading(path, "completion times of jobs"):
        return {row["job"]: float(row["jct_s"]) for row in command.read_rows(path)}


def _in_order(means: Mapping[str, tuple[float, float]]) -> bool:
    """True if all pairs of policies whose measured means (second) differ clearly come in their order."""
    return all(
        (one[0] < other[0]) == (one[1] < other[1])
        for one, other in combinations(means.values(), 2)
        if abs(one[1] - other[1]) > CLEAR * min(one[1], other[1])
    )


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    jobs = jobs_of(options.inputs)
    result: dict[str, Any] = {"policies": {}}
    means, errors = {}, []
    for policy in options.policy or POLICIES:
        here = completed(jobs, policy)
        entry = result["policies"][policy] = {"mean_jct_s": fmean(here.values()), "jobs": here}
        if options.measured is not None:
            compared = Comparison(here, measured(options.measured, policy))
            means[policy] = fmean(here.values()), fmean(compared.measured.values())
            errors.append(abs(compared.error))
            entry |= {"measured_mean_jct_s": means[policy][1], "error": compared.error}
            entry["job_errors"] = compared.job_errors()
        say({policy: {name: value for name, value in entry.items() if isinstance(value, float)}})
    if errors:
        result |= {"mean_absolute_error": fmean(errors), "in_order": _in_order(means)}
        say(f"mean absolute error: {fmean(errors):.2%} (the authors' simulator: {TOLERANCE:.2%})")
        say(f"policies in the measured order: {'yes' if result['in_order'] else 'no'}")
    return result


def _holds(result: Mapping[str, Any]) -> bool:
    return bool(result.get("mean_absolute_error", 0.0) < TOLERANCE and result.get("in_order", True))


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--inputs", type=Path, required=True, metavar="DIR", help="a folder with shockwave/ in it")
    parser.add_argument("--measured", type=Path, metavar="DIR", help="a folder of measured completion times")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only this policy (may be repeated)")
    return command.run(parser, _work, _holds)


if __name__ == "__main__":
    raise SystemExit(main())

"""Waits on EPCC's Cirrus (first quarter of 2024) as measured, by ElastiSim and by dagsim.

    python scripts/validate_cirrus.py --checkout DIR [--json] [--out FILE]
    python scripts/validate_cirrus.py --log FILE --elastisim FILE [--json] [--out FILE]

``DIR`` is a clone of https://github.com/EPCCed/mira-cirrus-elastisim at 938f4d0: its jobs as measured
(cirrus-cpu-raw-job-data/job_statistics.csv) and as ElastiSim played them, first come, first served, on 13,249 cores
that all jobs share (cirrus-cpu-simple-rigid/data/output/job_statistics.csv). With the authors' sacct log instead, only
its jobs of 100 s or more are there, since ElastiSim got times in whole units of 100 s and no shorter jobs. The log has
no time limits: policies know the true run times. Exits with 1 if a start of ``fifo`` differs from ElastiSim's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import command
import numpy as np

from dagsim.metrics import wait
from dagsim.model import Cluster, Job, Kind, Node, Task
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

CORES = 13_249
UNIT_S = 100
POLICIES_PLAYED = ("fifo", "easy", "conservative", "slurm-multifactor")
MEASURED = "cirrus-cpu-raw-job-data/job_statistics.csv"
PLAYED = "cirrus-cpu-simple-rigid/data/output/job_statistics.csv"


class Played(NamedTuple):
    """Jobs in whole units of 100 s, with their measured waits and ElastiSim's starts."""

    jobs: list[Job]
    measured_s: list[float]
    elastisim_s: list[float]


def of_checkout(folder: Path) -> Played:
    """Read all jobs of ElastiSim's run from a clone of the authors' repository.

    Raises:
        InputError: A file cannot be read, or the jobs of both files differ.
    """
    with command.reading(folder, "a clone of mira-cirrus-elastisim"):
        measured, played = (command.read_rows(folder / name) for name in (MEASURED, PLAYED))
        cores = [int(row["Nodes"]) for row in measured]
        return _paired(cores, [UNIT_S * float(row["Wait Time"]) for row in measured], measured, played)


def of_log(log: Path, elastisim: Path) -> Played:
    """Read the jobs of a sacct log that ElastiSim played, too: the first ones.

    Raises:
        InputError: A file cannot be read, or the jobs of both files differ.
    """
    with command.reading(log, "a log of Cirrus and ElastiSim's statistics of its jobs"):
        ran = [row for row in command.read_rows(log) if row["Start"] != "None" and int(row["ElapsedRaw"]) >= UNIT_S]
        first_s = int(ran[0]["Submit"])
        units = [
            {"Submit Time": (int(row["Submit"]) - first_s) // UNIT_S, "Makespan": int(row["ElapsedRaw"]) // UNIT_S}
            for row in ran
        ]
        waits_s = [float(row["Start"]) - float(row["Submit"]) for row in ran]
        return _paired([int(row["NCPUS"]) for row in ran], waits_s, units, command.read_rows(elastisim))


def _paired(
    cores: Sequence[int],
    waits_s: list[float],
    submitted: Sequence[Mapping[str, Any]],
    played: Sequence[Mapping[str, str]],
) -> Played:
    jobs, starts_s = [], []
    for number, (count, one, other) in enumerate(zip(cores, submitted, played, strict=False)):
        times = [UNIT_S * float(one[name]) for name in ("Submit Time", "Makespan")]
        if times != [UNIT_S * float(other[name]) for name in ("Submit Time", "Makespan")]:
            raise ValueError(f"job {number} differs from ElastiSim's")
        jobs.append(Job.single(str(number), Task("job", times[1], gpus=0, cpus=count), times[0]))
        starts_s.append(UNIT_S * float(other["Start Time"]))
    return Played(jobs, waits_s, starts_s)


def measured(played: Played) -> dict[str, Any]:
    """Return the waits by source, and the number of starts of ``fifo`` that differ from ElastiSim's."""
    jobs = played.jobs
    waits_s = {
        "measured": np.array(played.measured_s),
        "ElastiSim, FCFS": np.array(played.elastisim_s) - np.array([job.arrival_s for job in jobs]),
    }
    scenario, differing = ClusterScenario(Cluster((Node("cirrus", cpus=CORES),)), jobs, engine="simpy"), 0
    for policy in POLICIES_PLAYED:
        schedule = scenario.kernel(0).run(POLICIES.create(policy))
        waits_s[policy] = wait(schedule)
        if policy == "fifo":
            starts_s = {row.job: row.time_s for row in schedule.log if row.kind == Kind.STARTED}
            differing = sum(starts_s.get(job) != start_s for job, start_s in enumerate(played.elastisim_s))
    return {
        "jobs": len(jobs),
        "starts_that_differ": differing,
        "waits_s": {name: _statistics(values_s) for name, values_s in waits_s.items()},
    }


def _statistics(waits_s: np.ndarray) -> dict[str, float]:
    quantiles = np.quantile(waits_s, (0.5, 0.9, 0.95)).round().tolist()
    return {"mean": round(float(waits_s.mean())), **dict(zip(("p50", "p90", "p95"), quantiles, strict=True))}


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    played = of_log(options.log, options.elastisim) if options.log else of_checkout(options.checkout)
    rows = measured(played)
    say(f"{rows['jobs']:,} jobs; starts of fifo that differ from ElastiSim's: {rows['starts_that_differ']:,}")
    heads = ("waits (s)", "mean", "p50", "p90", "p95")
    cells = [(name, *(f"{value:,.0f}" for value in row.values())) for name, row in rows["waits_s"].items()]
    say("\n".join(command.markdown(heads, cells, (1, 2, 3, 4))))
    return rows


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkout", type=Path, help="a clone of the authors' repository")
    source.add_argument("--log", type=Path, help="the authors' sacct log")
    parser.add_argument("--elastisim", type=Path, help="ElastiSim's job_statistics.csv of the jobs of --log")
    return command.run(parser, _work, lambda rows: not rows["starts_that_differ"])


if __name__ == "__main__":
    raise SystemExit(main())

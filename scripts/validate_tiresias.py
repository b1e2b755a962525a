"""Tiresias' own simulator, job by job, on dagsim's kernel.

    python scripts/validate_tiresias.py --jobs FILE --cluster FILE --schedule NAME [--inputs DIR] [--expected FILE]

``--jobs`` is a CSV with job_id, num_gpu, submit_time and duration, ``--cluster`` one with num_switch, num_node_p_switch
and num_gpu_p_node. ``NAME`` is fifo, fjf, sjf, shortest, shortest-gpu, dlas, dlas-gpu, one of the last two with a
factor of promotion (dlas-gpu-8), or dlas-gpu-gittins, which needs tiresias/yarn-gput1000.csv in the folder
``--inputs``. With ``--json``: ``{"jobs": {id: {"start", "end", "preemptions", "promotions"}}}``.
With ``--expected``, the simulator's own job.csv, the exit status is 1 if any of these differs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import command

from dagsim.errors import InputError
from dagsim.families.tiresias.simulator import TiresiasEvents
from dagsim.model import Cluster
from dagsim.model.log import Kind
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.traces import open_trace

CELLS = {"out": "60_job.csv", "x20": "60_job_x20.csv"}
"""Job list by the first part of the name of a file of results (``out_4_dlas.csv``)."""


SAMPLES = "tiresias/yarn-gput1000.csv"


def played(jobs: Path, cluster: Path, schedule: str, inputs: Path | None = None) -> dict[str, dict[str, int]]:
    """Play the jobs; return start, end, preemptions and promotions of each.

    Raises:
        InputError: A file lacks a column, or has a field that is not a whole number; or the schedule
            needs ``inputs``.
        ConfigError: The schedule is unknown.
    """
    policy = TiresiasEvents(schedule, samples=_samples(inputs) if schedule.endswith("gittins") else ())
    work = list(open_trace(jobs, "tiresias").jobs())
    with command.reading(cluster, "a cluster of Tiresias"):
        (shape,) = command.read_rows(cluster)
        nodes, per_node = int(shape["num_switch"]) * int(shape["num_node_p_switch"]), int(shape["num_gpu_p_node"])
    most = nodes * per_node
    if too_large := [job for job in work if job.tasks[0].instances > most]:
        name, asked = too_large[0].id, too_large[0].tasks[0].instances
        raise InputError(f"{jobs}: job {name!r} asks for {asked} GPUs, and {cluster} has {most}")
    log = ClusterScenario(Cluster.of({"P100": most}, per_node=per_node), work).kernel(0).run(policy).log
    starts: dict[int, int] = {}
    for row in log:
        if row.kind == Kind.STARTED:
            starts.setdefault(row.job, round(row.time_s))
    ends = {row.job: round(row.time_s) for row in log if row.kind == Kind.COMPLETED}
    stops = {(row.job, row.time_s) for row in log if row.kind == Kind.PREEMPTED}  # one row for each node of a gang
    preempted = Counter(job for job, _ in stops)
    return {
        job.id: {
            "start": starts[number],
            "end": ends[number],
            "preemptions": preempted[number],
            "promotions": policy.promotions.get(number << 32, 0),
        }
        for number, job in enumerate(work)
    }


def _samples(inputs: Path | None) -> tuple[int, ...]:
    """GPU-seconds of earlier jobs."""
    if inputs is None:
        raise InputError(f"dlas-gpu-gittins needs --inputs, the folder of {SAMPLES}")
    with command.reading(inputs / SAMPLES, "GPU-seconds of jobs in a column duration"):
        return tuple(int(row["duration"]) for row in command.read_rows(inputs / SAMPLES))


def different(jobs: dict[str, dict[str, int]], expected: Path) -> list[str]:
    """The jobs that differ from the simulator's job.csv."""
    columns = {"start": "start_time", "end": "end_time", "preemptions": "preempt", "promotions": "promote"}
    recorded = {
        row["job_id"]: {name: int(row[column]) for name, column in columns.items()}
        for row in command.read_rows(expected)
    }
    return [id_ for id_ in recorded.keys() | jobs.keys() if recorded.get(id_) != jobs.get(id_)]


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    jobs = played(options.jobs, options.cluster, options.schedule, options.inputs)
    stops = sum(job["preemptions"] for job in jobs.values())
    say({"jobs": len(jobs), "mean end (s)": sum(job["end"] for job in jobs.values()) / len(jobs), "preemptions": stops})
    wrong = different(jobs, options.expected) if options.expected else []
    if options.expected:
        say(f"{len(wrong)} jobs differ{': ' if wrong else ''}{', '.join(sorted(wrong))}")
    return {"jobs": jobs, "differ": wrong}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--jobs", type=Path, required=True, metavar="FILE", help="jobs as CSV")
    parser.add_argument("--cluster", type=Path, required=True, metavar="FILE", help="the cluster as CSV")
    parser.add_argument("--schedule", required=True, metavar="NAME", help="such as dlas-gpu")
    parser.add_argument("--inputs", type=Path, metavar="DIR", help="folder with tiresias/, for dlas-gpu-gittins")
    parser.add_argument("--expected", type=Path, metavar="FILE", help="compare with this job.csv")
    return command.run(parser, _work, lambda result: not result["differ"], lambda result: {"jobs": result["jobs"]})


if __name__ == "__main__":
    raise SystemExit(main())

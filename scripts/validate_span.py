"""The mean span of a trace's jobs on an infinite cluster: ``python scripts/validate_span.py --trace FILE [--json]``.

Every task starts the moment its parents are done, so a job's span is the critical path of its DAG. Compared with the
spans observed in the trace, it checks the reader, the DAGs and the kernel at once: for the Alibaba 2018 sample
``batch_task_random6600.csv.gz`` the mean is 95.4 s over the 6,535 jobs all of whose tasks terminated (95.6 s observed).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import command

from dagsim import simulate
from dagsim.metrics import jct
from dagsim.model import Cluster, Job, Node, Task, TaskGraph
from dagsim.traces import open_trace

INFINITE = Cluster((Node("infinite", None, 0, 2.0**40, 2.0**40),))


def spans(jobs: Iterator[Job]) -> list[float]:
    """Seconds from arrival to completion of every job if none ever waits for room."""
    schedule = simulate(map(_free, jobs), INFINITE, engine="simpy").schedule
    return [float(seconds) for seconds in jct(schedule)]


def _free(job: Job) -> Job:
    """Return a job with the same DAG and work that asks for no resources."""
    tasks = tuple([Task(task.name, task.work, task.instances, gpus=0) for task in job.tasks])
    return Job(job.id, TaskGraph(tasks, job.graph.edges), job.arrival_s)


def measured(seconds: list[float]) -> dict[str, float]:
    """Number of jobs, mean and median of their spans."""
    return {"jobs": len(seconds), "mean_s": mean(seconds), "median_s": median(seconds)}


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    trace = open_trace(options.trace)
    row = measured(spans(trace.jobs()))
    say(f"{row['jobs']:,} jobs: mean span {row['mean_s']:.1f} s, median {row['median_s']:.1f} s")
    say(trace.report)
    return {"trace": str(options.trace), **row}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="a file in any format that dagsim reads")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

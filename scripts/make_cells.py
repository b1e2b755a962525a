"""Prepare the traces of three cells of results/agents/cells, which their published files do not hold as needed.

    python scripts/make_cells.py --data DIR --cells CELLS    # then DAGSIM_CELLS=CELLS for the configurations

``philly``: the jobs of up to 8 GPUs, each with one of five measured models, by the hash of its number (the trace names
none). ``pai``: the list of 5,000 jobs with their seconds on three GPU types. The list has no arrivals: they are drawn
as a Poisson process, and mean nothing by themselves. ``gavel``: links to the trace and to Gavel's measured throughputs,
which the reader looks for beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import command
import numpy as np

from dagsim.model import Job, TaskGraph
from dagsim.traces import open_trace
from dagsim.workload.records import write_jobs
from dagsim.workload.sizes import MEASURED_MODELS

WIDEST = 8
SEED = 20_261_126


def philly(jobs: Iterable[Job]) -> Iterator[Job]:
    """Jobs of up to 8 GPUs with models."""
    for number, job in enumerate(jobs):
        if all(task.gpus * task.instances <= WIDEST for task in job.graph.tasks):
            model = MEASURED_MODELS[crc32(str(number).encode()) % len(MEASURED_MODELS)]
            tasks = tuple([replace(task, model=model) for task in job.graph.tasks])
            yield replace(job, graph=TaskGraph(tasks, job.graph.edges))


def pai(jobs: Iterable[Job]) -> Iterator[Job]:
    """The jobs with drawn arrivals, one a second on average, and without deadlines."""
    rng, now = np.random.default_rng(SEED), 0.0
    for job in jobs:
        now += float(rng.exponential())
        yield replace(job, arrival_s=now, deadline_s=None)


def _work(options: command.Options, say: command.Say) -> dict[str, int]:
    options.cells.mkdir(parents=True, exist_ok=True)
    traces, counts = options.data / "traces", {}
    for name, file, change in (
        ("philly", "philly/philly_pollux.csv.gz", philly),
        ("pai", "alibaba-gpu-v2020/hydra_20_ddl.csv.gz", pai),
    ):
        jobs = change(open_trace(traces / file).jobs())
        counts[name] = write_jobs(options.cells / f"{name}.jsonl.gz", jobs)
        say(f"{name}: {counts[name]:,} jobs")
    folder = options.cells / "gavel"
    folder.mkdir(exist_ok=True)
    links = [*sorted((traces / "philly/gavel_msr_seed0").glob("*.trace.gz"))]
    links.append(traces / "gpu-throughputs/gavel_simulation_throughputs.json.gz")
    for link in links:
        (folder / link.name).unlink(missing_ok=True)
        (folder / link.name).symlink_to(link.resolve())
    say(f"gavel: {len(links)} links")
    return counts


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the traces (DAGSIM_DATA)")
    parser.add_argument("--cells", type=Path, required=True, help="folder for the prepared traces")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

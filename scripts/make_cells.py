"""Prepare the traces of four cells of results/agents/cells, which their published files do not hold as needed.

    python scripts/make_cells.py --data DIR --cells CELLS    # then DAGSIM_CELLS=CELLS for the configurations

``philly``: the jobs of up to 8 GPUs, each with one of five measured models, by the hash of its number (the trace names
none). ``like-helios``: 20,000 jobs drawn from this preset, prepared in the same way. ``pai``: the list of 5,000 jobs
with their seconds on three GPU types. The list has no arrivals: they are drawn as a Poisson process, and mean nothing
by themselves. ``gavel``: links to the trace and to Gavel's measured throughputs, which the reader looks for beside it.

``limited/CELL``: the jobs of each cell with a trace, with time limits that are drawn as in ``table_drift.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import command
import numpy as np
from table_drift import with_limits
from table_general import OUT

from dagsim.config.bundled import WORKLOADS
from dagsim.config.schema import load_config
from dagsim.experiment.scenario import scenario_of
from dagsim.model import Job, TaskGraph
from dagsim.model.streams import stream
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.traces import open_trace
from dagsim.workload.records import write_jobs
from dagsim.workload.sessions import Sessions
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


def helios() -> Iterator[Job]:
    """Jobs of the preset like-helios, in real time on the cluster of the cell ``philly``."""
    world, drawn = (
        scenario_of(load_config(OUT / "cells" / "philly.yaml", ["runtime.missing=flops"])),
        WORKLOADS["like-helios"].workload,
    )
    assert isinstance(world, ClusterScenario)
    assert isinstance(drawn, Sessions)
    drawn = replace(drawn, load=drawn.natural_load(world.cluster, world.runtime))
    return philly(drawn.arrays(world.cluster, world.runtime, SEED).jobs())


def _work(options: command.Options, say: command.Say) -> dict[str, int]:
    options.cells.mkdir(parents=True, exist_ok=True)
    os.environ |= {"DAGSIM_DATA": str(options.data), "DAGSIM_CELLS": str(options.cells)}
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
    counts["like-helios"] = write_jobs(options.cells / "like-helios.jsonl.gz", helios())
    (options.cells / "limited").mkdir(exist_ok=True)
    for path in sorted((OUT / "cells").glob("*.yaml")):
        if (trace := load_config(path).trace_file) is not None:
            limited = with_limits(trace.whole(), stream(SEED, "cells/limits"))
            file = options.cells / "limited" / f"{path.stem}.jsonl.gz"
            counts[f"limited/{path.stem}"] = write_jobs(file, limited.jobs())
            say(f"limited/{path.stem}: {counts[f'limited/{path.stem}']:,} jobs")
    return counts


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the traces (DAGSIM_DATA)")
    parser.add_argument("--cells", type=Path, required=True, help="folder for the prepared traces")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

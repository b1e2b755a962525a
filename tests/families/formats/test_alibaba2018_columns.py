"""Alibaba v2018 read in any way: the same jobs and the same report, whatever the rows look like."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces.formats.in_columns import ways

from dagsim.experiment.sizing import TotalDemand
from dagsim.families.compiled.reading import read_scenario
from dagsim.model import Cluster
from dagsim.systems.cluster import Estimates
from dagsim.systems.cluster.models.runtime import Flops, Recorded
from dagsim.traces import TraceOptions, open_trace
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import LoadMeter

OPTIONS = (
    TraceOptions(),
    TraceOptions(limit=5, start=3, time_scale=0.5),
    TraceOptions(gpus_per_task=0.5, keep_partial=True, floor_s=20.0),
)
DIRT = (
    *((1, ""), (1, "0"), (1, "2.5"), (4, "Failed"), (4, "Odd"), (5, "-1"), (6, "0")),
    *((2, "j_0"), (5, "five"), (7, ""), (7, "-3"), (8, "101"), (8, "")),
)
"""Places in a row, and texts that must not stand there."""


def rows(rng: random.Random, jobs: int, dirt: float) -> list[str]:
    """Rows as of the official file, unsorted; each is dirty in some way with probability ``dirt``."""
    lines = []
    for number in range(jobs):
        count = rng.randint(1, 6)
        numbers = rng.sample(range(1, 2 * count + 1), count)  # parents are often missing, or have larger numbers
        for own in numbers:
            parents = "".join(f"_{rng.choice((*numbers, own - 1 or 9))}" for _ in range(rng.choice((0, 0, 1, 2))))
            name = rng.choice((f"M{own}{parents}", f"R{own}{parents}", f"task_{rng.randint(0, 4)}x"))
            start = rng.choice((0, 100, rng.randint(0, 500)))
            row = [name, str(rng.randint(1, 9)), f"j_{number}", "A", "Terminated", str(start)]
            row += [
                str(start + rng.randint(0, 90)),
                rng.choice(("50", "100.0", "33.3")),
                rng.choice(("0.39", "1", "7e-1")),
            ]
            if rng.random() < dirt:
                place, text = rng.choice((*DIRT, (0, f"J{own}_Stg1"), (0, f"R{own}_"), (0, f"M{own}_{own}")))
                row[place] = text
            lines.append(",".join(row))
            if rng.random() < dirt / 4:
                lines.append(lines[-1])
    rng.shuffle(lines)
    return lines


@pytest.mark.parametrize("options", OPTIONS, ids=("plain", "window", "partial"))
def test_columns_hold_the_jobs_of_the_rows_and_say_the_same(tmp_path: Path, options: TraceOptions) -> None:
    for seed in range(10):
        path = tmp_path / f"{seed}.csv"
        rng = random.Random(seed)
        path.write_text("\n".join(rows(rng, rng.randint(1, 30), rng.choice((0.0, 0.05, 0.4)))) + "\n")
        first, *others = ways(path, "alibaba2018", options)
        assert all(other == first for other in others), seed


def test_the_first_dirty_row_stops_a_strict_reading_alike(tmp_path: Path) -> None:
    path = tmp_path / "batch_task.csv"
    path.write_text("\n".join(rows(random.Random(3), 20, 0.3)))
    first, *others = ways(path, "alibaba2018", TraceOptions(strict=True))
    assert isinstance(first, str)
    assert all(other == first for other in others)


@pytest.mark.parametrize(
    "text",
    [
        "M1,1,j_1,A,Terminated,1,2,100,1\rM2,1,j_1,A,Terminated,1,2,100,1\r",
        "M1,1,j_1,A,Terminated,1,2,100\n",
        "M1,1,j_1,A,Terminated,1,2,100,1,1\nM2,1,j_1,A,Terminated,1,2,100\n",
        "M1,1,,A,Terminated,1,2,100,1\n",
        '"M1",1,j_1,A,Terminated,1,2,100,1\n',
        "M1,1,j_1,A,Terminated,1,2,100,1\n\nM2,1,j_1,A,Terminated,1,2,100,1\n",
    ],
    ids=("ends of lines", "short", "long and short", "no job", "quotes", "blank"),
)
def test_rows_of_other_than_nine_plain_columns_are_the_same_in_any_way(tmp_path: Path, text: str) -> None:
    path = tmp_path / "batch_task.csv"
    path.write_bytes(text.encode())
    first, *others = ways(path, "alibaba2018", TraceOptions())
    assert all(other == first for other in others)


@pytest.mark.data
@pytest.mark.parametrize("name", ["chains10k", "random6600"])
def test_columns_hold_the_jobs_of_real_rows(data: Path, name: str) -> None:
    path = data / "traces" / "alibaba-v2018" / f"batch_task_{name}.csv.gz"
    first, *others = ways(path, "alibaba2018", TraceOptions(limit=600, start=20))
    assert all(other == first for other in others)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> JobArrays:
    path = tmp_path_factory.mktemp("trace") / "batch_task.csv"
    path.write_text("\n".join(rows(random.Random(8), 200, 0.02)))
    return open_trace(path, "alibaba2018", TraceOptions(gpus_per_task=None)).arrays()


@pytest.mark.parametrize("runtime", [Recorded(), Flops()])
@pytest.mark.parametrize("kind", ["exact", "noisy", "hidden"])
def test_the_lane_reads_the_same_scene_from_columns(arrays: JobArrays, runtime: Flops, kind: Any) -> None:
    cluster, jobs, estimates = Cluster.of({"V100": 8, "T4": 4}), list(arrays.jobs()), Estimates(kind)
    one, other = (
        read_scenario(cluster, JobArrays.of(jobs), runtime, estimates, 3),
        read_scenario(cluster, arrays, runtime, estimates, 3),
    )
    assert one.facts == other.facts
    for name in ("truth", "seconds", "child", "tasks"):
        assert np.array_equal(getattr(one.work, name), getattr(other.work, name)), name
    assert all(map(np.array_equal, one.work.jobs, other.work.jobs))
    assert all(map(np.array_equal, one.classes, other.classes))


def test_load_and_size_of_a_cluster_are_the_same_sums(arrays: JobArrays) -> None:
    cluster, runtime = Cluster.of({"V100": 8, "T4": 4}), Recorded()
    rows_, columns = LoadMeter(cluster, runtime), LoadMeter(cluster, runtime)
    asked, in_columns = TotalDemand(runtime), TotalDemand(runtime)
    for job in arrays.jobs():
        asked.add(job)
        rows_.add(job)
    columns.add_arrays(arrays, read_scenario(cluster, arrays, runtime, Estimates(), 0).work.truth)
    assert (rows_.gpu_s, rows_.cpu_s, rows_.arrivals) == (columns.gpu_s, columns.cpu_s, columns.arrivals)
    in_columns.add_arrays(arrays, runtime)
    totals = [{name: value for name, value in vars(demand).items() if name[0] != "_"} for demand in (asked, in_columns)]
    assert totals[0] == totals[1]


def test_columns_take_less_than_150_bytes_a_task(arrays: JobArrays) -> None:
    assert arrays.nbytes / arrays.tasks < 150

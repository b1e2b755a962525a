"""Lists of Tiresias in seconds, of Muri in milliseconds, of Sia without durations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reading = Callable[..., Any]


def test_a_row_is_a_gang_with_a_model(read: Reading, samples: Path) -> None:
    got = read(samples / "tiresias" / "tiresias.csv")
    assert got.trace.format == "tiresias"
    assert [(job.id, job.arrival_s) for job in got.jobs] == [("0", 0), ("1", 30)]
    (task,) = got.job("1").tasks
    assert (task.work, task.instances, task.gang, task.gpus, task.model) == (150, 8, True, 1, "vgg16")
    assert got.dropped == {"with an invalid value for num_gpu": 1, "without duration": 1}


def test_muri_counts_in_milliseconds(read: Reading, samples: Path) -> None:
    got = read(samples / "tiresias" / "muri.csv")
    assert [(job.arrival_s, job.tasks[0].work, job.tasks[0].batch) for job in got.jobs] == [
        (0, 90, 128),
        (1.5, 1.5, 16),
    ]


def test_sia_lists_say_no_durations(read: Reading, samples: Path) -> None:
    got = read(samples / "tiresias" / "sia.csv")
    assert [(job.id, job.arrival_s, job.tasks[0].work, job.tasks[0].instances) for job in got.jobs] == [
        ("bert-0", 0, 0, 4),
        ("cifar10-1", 9.5, 0, 1),
    ]
    assert "no durations" in got.trace.assumptions["work"]


@pytest.mark.family("elastic")
@pytest.mark.parametrize("beside", ["list", "folder"])
def test_profiles_near_a_list_of_pollux_say_how_long_its_jobs_train(read: Reading, tmp_path: Path, beside: str) -> None:
    # 12 samples in .2 s on one GPU, 24 in .3 s on two; the gradient has no noise, so that 100 iterations are needed.
    folder = tmp_path / "traces/bert" if beside == "folder" else tmp_path / "workloads/traces/bert"
    tables = {
        "placements": "placement,local_bsz,step_time,sync_time\n1,12,.2,0\n2,12,.3,.1\n",
        "scalability": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,8,12,.4,.2\n",
        "validation-12": "progress,iteration,metric,grad_sqr,grad_var\n50,50,.5,1,0\n100,100,.6,1,0\n",
        "validation-24": "progress,iteration,metric,grad_sqr,grad_var\n50,50,.5,1,0\n100,100,.6,1,0\n",
    }
    folder.mkdir(parents=True)
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)
    path = tmp_path / "workloads/jobs.csv"
    path.parent.mkdir(exist_ok=True)
    rows = ["a,0,bert,1,12", "b,5,bert,2,24", "c,6,bert,2,96", "d,7,vgg,1,12"]
    path.write_text("\n".join(["name,time,application,num_replicas,batch_size", *rows, ""]))
    got = read(path)
    assert [(job.id, job.tasks[0].work, job.tasks[0].instances) for job in got.jobs] == [("a", 20, 1), ("b", 30, 2)]
    assert got.dropped == {"whose application, GPUs or batch the profiles do not cover": 2}
    assert str(folder.parent) in got.trace.assumptions["work"]


@pytest.mark.data
def test_polluxs_jobs_train_for_the_seconds_of_their_simulator(read: Reading, data: Path) -> None:
    # The first job of workload 6: 947 s, less 7 s to the next interval and 30 s of start; the simulator rounds up to
    # half a second for each of 100 epochs and each of 16 intervals.
    got = read(data / "golden/elastic/inputs/pollux/workloads/workloads_workload-6.csv.gz")
    assert (len(got.jobs), got.dropped) == (160, {})
    assert got.job("cifar10-0").tasks[0].work == pytest.approx(910, abs=58)


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "jobs"),
    [("tiresias_60_job.csv", 60), ("muri_trace1.csv.gz", 1494), ("muri_trace2.csv.gz", 5755),
     ("muri_trace3.csv.gz", 992), ("muri_trace4.csv.gz", 2638), ("sia_philly_workload-1.csv", 160),
     ("sia_newtrace_workload-1.csv", 960), ("sia_saturn_workload-1.csv", 160)],
)  # fmt: skip
def test_every_list_is_read_whole(read: Reading, data: Path, file: str, jobs: int) -> None:
    got = read(data / "traces" / "gpu-workloads-small" / file)
    assert (len(got.jobs), got.dropped) == (jobs, {})

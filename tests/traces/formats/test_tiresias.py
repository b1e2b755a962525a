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
    assert got.dropped == {"whose num_gpu is impossible": 1, "without duration": 1}


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

"""Microsoft ITP 2021: one row per gang, as measured and with ElasticFlow's drawn columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

Reading = Callable[..., Any]


def test_a_row_is_a_gang_of_single_gpus(read: Reading, samples: Path) -> None:
    got = read(samples / "itp" / "cluster01.csv")
    assert got.trace.format == "itp"
    assert [(job.id, job.arrival_s) for job in got.jobs] == [("a", 0), ("b", 50)]
    (task,) = got.job("b").tasks
    assert (task.work, task.instances, task.gang, task.gpus) == (60, 8, True, 1)


def test_every_dirty_row_is_dropped_for_its_reason(read: Reading, samples: Path) -> None:
    assert read(samples / "itp" / "cluster01.csv").dropped == {
        "given twice": 1,
        "without duration": 1,
        "with an invalid value for num_gpu": 1,
        "with a negative submission_time": 1,
        "with a negative duration": 1,
    }


def test_elasticflow_adds_models_and_deadlines(read: Reading, samples: Path) -> None:
    got = read(samples / "itp" / "elastic.csv")
    assert (got.job("a").deadline_s, got.job("a").tasks[0].model, got.job("a").tasks[0].batch) == (60, "bert", 128)
    assert got.job("b").deadline_s is None
    assert sum(got.noted.values()) == 1


@pytest.mark.data
def test_the_ten_clusters_have_the_published_statistics(read: Reading, data: Path) -> None:
    got = read(data / "traces" / "microsoft-itp-2021" / "raw-traces.tar.gz")
    tasks = [job.tasks[0] for job in got.jobs]
    assert len(tasks) == 69_351
    assert sum(task.work * task.instances for task in tasks) / 3600 == pytest.approx(1_632_719.7, abs=0.1)
    assert mean(task.work for task in tasks) == pytest.approx(18_722, abs=1)
    assert (median(task.work for task in tasks), min(task.work for task in tasks)) == (10_537, 600)
    widths = Counter(task.instances for task in tasks)
    assert [round(100 * widths[gpus] / len(tasks), 1) for gpus in (1, 8, 4, 2)] == [83.2, 10.1, 3.4, 2.1]

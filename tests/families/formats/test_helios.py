"""SenseTime Helios: GPU and CPU jobs, and the virtual clusters beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.families.formats.helios import read_capacity
from dagsim.traces import Source

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "helios" / "cluster_log.csv")


def test_gpu_jobs_are_gangs_of_gpus_and_cpu_jobs_of_nodes(sample: Any) -> None:
    assert sample.trace.format == "helios"
    gpu, cpu = sample.job("11").tasks[0], sample.job("10").tasks[0]
    assert (gpu.work, gpu.instances, gpu.gang, gpu.gpus, gpu.cpus) == (60, 16, True, 1, 4)
    assert (cpu.work, cpu.instances, cpu.gang, cpu.gpus, cpu.cpus) == (5, 2, True, 0, 24)
    assert [(job.id, job.arrival_s, job.tenant) for job in sample.jobs] == [
        ("10", 0, "vcB"), ("11", 10, "vcA"), ("12", 30, "vcA"),
    ]  # fmt: skip


def test_a_missing_duration_is_end_minus_start(sample: Any) -> None:
    assert sample.job("12").tasks[0].work == 1
    assert sample.noted == {"with an unknown state (kept)": 1}


def test_every_dirty_row_is_dropped_for_its_reason(sample: Any) -> None:
    assert sample.dropped == {
        "without submit_time": 1,
        "with a non-numeric value for gpu_num": 1,
        "with a negative duration": 1,
    }


def test_the_cluster_is_that_of_the_last_day(sample: Any) -> None:
    cluster = sample.trace.cluster()
    assert cluster.gpus_by_type() == {"V100-16": 20}
    assert [(node.name, node.gpus) for node in cluster.nodes] == [
        ("vcA-0", 8), ("vcB-0", 8), ("vcB-1", 4),
    ]  # fmt: skip


@pytest.mark.data
def test_venus_grows_to_its_published_size(data: Path) -> None:
    table = data / "traces" / "helios" / "Venus" / "cluster_gpu_number.csv"
    assert read_capacity(Source(table), "V100-16").gpus == 1080

"""Alibaba 2025: instances of inference services."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "alibaba2025" / "disaggregated_DLRM_sample.csv")


def test_an_instance_is_a_job_from_scheduling_or_creation_to_deletion(sample: Any) -> None:
    assert sample.trace.format == "alibaba2025"
    on_gpu, on_cpu = sample.job("instance_a"), sample.job("instance_b")
    assert (on_gpu.arrival_s, on_gpu.tenant, on_cpu.arrival_s) == (50, "app_0", 0)
    (task,) = on_gpu.tasks
    assert (task.work, task.gpus, task.cpus, task.memory_gb) == (300, 1, 12, 120)
    (task,) = on_cpu.tasks
    assert (task.work, task.gpus, task.cpus, task.memory_gb) == (300, 0, 8, 60)


def test_instances_beyond_the_trace_and_out_of_order_are_dropped_with_reasons(sample: Any) -> None:
    assert [job.id for job in sample.jobs] == ["instance_b", "instance_a"]
    text = str(sample.trace.report)
    assert "dropped 2 with a creation or deletion outside the trace, 1 with times out of order" in text
    assert "2 instances with a share of RDMA (not modelled)" in text


@pytest.mark.data
def test_the_published_file_has_the_counts_of_its_description(read: Reading, data: Path) -> None:
    reading = read(data / "traces" / "alibaba-gpu-v2025" / "disaggregated_DLRM_trace.csv.gz")
    gpus = [job.tasks[0].gpus for job in reading.jobs]
    assert (len(gpus), sum(gpus)) == (12_390, 3_218)
    lives = [job.tasks[0].work for job in reading.jobs]
    assert 8_000 < median(lives) < 8_409  # from creation 8,409 s; these are from scheduling
    assert mean(lives) == pytest.approx(102_611, rel=0.01)

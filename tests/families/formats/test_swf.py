"""Standard Workload Format: rows as gang jobs, the machine of the header, and two published rules of reading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from dagsim.errors import ConfigError, TraceError
from dagsim.traces import TraceOptions, open_trace

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "swf" / "sample.swf")


def test_a_row_is_a_gang_of_its_processors(sample: Any) -> None:
    assert sample.trace.format == "swf"
    (task,) = sample.job("1").tasks
    assert (task.work, task.estimate, task.instances, task.gang, task.gpus, task.cpus) == (60, 90, 4, True, 0, 1)
    assert sample.job("2").tasks[0].work == 30.5


def test_rows_are_sorted_by_submit_time(sample: Any) -> None:
    assert [(job.id, job.arrival_s) for job in sample.jobs] == [
        ("1", 0), ("3", 5), ("2", 10), ("4", 20), ("6", 40), ("8", 60),
    ]  # fmt: skip


def test_a_job_without_a_requested_time_has_no_estimate(sample: Any) -> None:
    assert sample.job("3").tasks[0].estimate is None


def test_unknown_processors_come_from_the_other_field(sample: Any) -> None:
    assert sample.job("6").tasks[0].instances == 2


def test_a_row_asks_for_the_processors_that_it_got(sample: Any) -> None:
    assert sample.job("2").tasks[0].instances == 8  # it had requested 16


def test_every_dirty_row_is_dropped_or_noted_for_its_reason(sample: Any) -> None:
    assert sample.dropped == {
        "that never ran": 1,
        "without processors": 1,
        "with the same id as another row": 1,
        "with a negative submit time": 1,
        "with a wrong number of fields": 1,
        "with a non-numeric value for run time": 1,
    }
    assert sample.noted == {
        "that got a different number of processors than requested": 1,
        "that ran longer than requested": 1,
        "that depend on a preceding job (ignored)": 1,
        "that are wider than the machine": 1,
    }


def test_the_machine_is_that_of_the_header_or_as_given(sample: Any, read: Reading, samples: Path) -> None:
    assert sample.trace.cluster().cpus == 16
    assert read(samples / "swf" / "sample.swf", processors=64).trace.cluster().cpus == 64


def test_a_leading_number_of_nodes_counts_where_processors_are_not_given(read: Reading, tmp_path: Path) -> None:
    row = "1 0 0 5 1 -1 -1 1 9 -1 1 1 1 -1 1 -1 -1 -1\n"
    (tmp_path / "a.swf").write_text("; MaxNodes: 338 (batch partition; 512 total)\n" + row)
    (tmp_path / "b.swf").write_text(row)
    assert read(tmp_path / "a.swf").trace.cluster().cpus == 338
    assert read(tmp_path / "b.swf").trace.cluster() is None


def test_rlscheduler_drops_no_time_and_takes_ten_seconds_below(read: Reading, samples: Path) -> None:
    got = read(samples / "swf" / "sample.swf", protocol="rlscheduler")
    assert got.dropped["with a run time of 0"] == 1
    assert got.job("5").tasks[0].work == 10
    assert got.job("2").tasks[0].instances == 16  # the larger of 8 allocated and 16 requested


def test_pyss_ends_runs_at_the_request_in_whole_seconds(read: Reading, samples: Path) -> None:
    got = read(samples / "swf" / "sample.swf", protocol="pyss")
    two, five = got.job("2").tasks[0], got.job("5").tasks[0]
    assert (two.work, two.estimate, two.instances) == (30, 30, 8)
    assert (five.work, five.estimate, five.instances) == (1, 1, 1)


def test_pyss_runs_a_job_without_a_request_for_a_second(read: Reading, tmp_path: Path) -> None:
    """min(38, -1) = -1, and everything lasts a second: six rows of CTC-SP2 are so (742, 36792, ...)."""
    (tmp_path / "a.swf").write_text("742 0 0 38 4 -1 -1 -1 -1 -1 1 1 1 -1 1 -1 -1 -1\n")
    (task,) = read(tmp_path / "a.swf", protocol="pyss").job("742").tasks
    assert (task.work, task.estimate, task.instances) == (1, 38, 4)
    (task,) = read(tmp_path / "a.swf").job("742").tasks
    assert (task.work, task.estimate) == (38, None)


def test_an_unknown_protocol_is_refused(samples: Path) -> None:
    trace = open_trace(samples / "swf" / "sample.swf", options=TraceOptions(protocol="slurm"))
    with pytest.raises(ConfigError, match="choose from rlscheduler, pyss"):
        list(trace.jobs())


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "jobs", "processors", "run_mean", "run_median"),
    [
        ("KTH-SP2-1996-2.1-cln.swf.gz", 27992, 100, 8573, 805),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 18239, 128, 772, 88),
        ("CTC-SP2-1996-3.1-cln.swf.gz", 77222, 338, 11280, 1115),
        ("lublin_256.swf.gz", 10000, 256, 4863, 137),
        ("lublin_256_new2.swf.gz", 10000, 256, 1696, 31),
    ],
)
def test_logs_have_the_measured_statistics(
    read: Reading, data: Path, file: str, jobs: int, processors: int, run_mean: float, run_median: float
) -> None:
    got = read(data / "traces" / "swf" / file)
    assert len(got.jobs) == jobs
    runs = [job.tasks[0].work for job in got.jobs if job.tasks[0].work > 0]  # the figures leave runs of 0 s out
    assert got.trace.cluster().cpus == processors
    assert mean(runs) == pytest.approx(run_mean, abs=1)
    assert median(runs) == pytest.approx(run_median, abs=1)


@pytest.mark.data
def test_cancelled_rows_of_sdsc_never_ran(read: Reading, data: Path) -> None:
    got = read(data / "traces" / "swf" / "SDSC-SP2-1998-first5000lines.swf")
    assert got.trace.report.rows == 4961
    assert got.dropped == {"that never ran": 355}


_FURTHER = "{} {} 0 60 -1 -1 -1 -1 90 -1 1 7 1 -1 1 -1 -1 -1 batch {} x\n"


@pytest.mark.parametrize("descriptor", ["{}", "gpus=8,nodes={},mem=1", "NNodes:{}"])
def test_a_further_field_holds_the_nodes(read: Reading, tmp_path: Path, descriptor: str) -> None:
    rows = [_FURTHER.format(number, number, descriptor.format(nodes)) for number, nodes in ((1, 128), (2, 1))]
    (tmp_path / "a.swf").write_text("; MaxNodes: 9408\n" + "".join(rows))
    got = read(tmp_path / "a.swf", map="nodes=20")
    assert got.trace.format == "swf"
    assert [job.tasks[0].instances for job in got.jobs] == [128, 1]
    assert got.trace.assumptions["processors"] == "the nodes in field 20"


def test_the_header_may_describe_the_field_of_the_nodes(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "a.swf").write_text("; Field 19: queue\n; Field 20: Number of nodes\n" + _FURTHER.format(1, 0, 16))
    assert read(tmp_path / "a.swf").job("1").tasks[0].instances == 16


def test_further_fields_are_ignored_and_said_so(read: Reading, tmp_path: Path) -> None:
    row = "1 0 0 5 4 -1 -1 4 9 -1 1 1 1 -1 1 -1 -1 -1 2 8 z\n"
    (tmp_path / "a.swf").write_text(row + _FURTHER.format(2, 1, 3))
    got = read(tmp_path / "a.swf")
    assert got.job("1").tasks[0].instances == 4
    assert got.dropped == {"without processors": 1}
    assert "--map nodes=FIELD" in got.trace.assumptions["further fields"]


def test_a_map_of_swf_names_a_field_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text(_FURTHER.format(1, 0, 16))
    for text in ("nodes=x", "gpus=20", "nodes=0"):
        with pytest.raises(ConfigError, match="map: swf expects nodes=NUMBER"):
            list(open_trace(path, options=TraceOptions(map=text)).jobs())
    with pytest.raises(TraceError, match=r"a\.swf:1: there is no field 22 \(nodes\), because the row has only 21"):
        list(open_trace(path, options=TraceOptions(map="nodes=22")).jobs())

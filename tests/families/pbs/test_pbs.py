"""PBS's accounting: records, chunks, reruns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import ConfigError, TraceError
from dagsim.traces import TraceOptions, open_trace

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "pbs" / "20260105")


@pytest.fixture
def ended(tmp_path: Path) -> Callable[[str], Path]:
    """Writes one record of a job that ended, with a text at its end."""

    def write(text: str) -> Path:
        (tmp_path / "20260105").write_text(f"01/05/2026 09:00:00;E;9.s;ctime=100 etime=100 start=110 end=170 {text}\n")
        return tmp_path / "20260105"

    return write


def test_ended_attempts_are_jobs_and_other_records_passed_over(sample: Any) -> None:
    assert sample.trace.format == "pbs"
    assert [(job.id, job.arrival_s) for job in sample.jobs] == [
        ("70", 0), ("71[2]", 100), ("72", 200), ("74", 300), ("75", 350),
    ]  # fmt: skip
    assert dict(sample.trace.report.skipped) == {
        "of other records": 3,
        "of arrays as a whole": 1,
        "of jobs deleted while they waited": 1,
    }
    assert sample.dropped == {}


def test_a_job_says_what_it_asked_for_and_when_it_started(sample: Any) -> None:
    job = sample.job("70")
    task = job.tasks[0]
    assert (task.gpus, task.cpus, task.memory_gb, task.work, task.estimate) == (2, 8, 64, 3600, 7200)
    assert (job.tenant, job.observed_start_s, job.eligible_s) == ("optics lab", 60, 10)


def test_equal_chunks_are_a_gang_of_the_type_asked_for(sample: Any) -> None:
    task = sample.job("71[2]").tasks[0]
    assert (task.instances, task.gang, task.gpus, task.gpu_types) == (2, True, 1, ("H100",))
    assert task.estimate == 120 * 3600


def test_chunks_of_several_kinds_are_tasks_of_one_job(sample: Any) -> None:
    assert [(task.instances, task.gpus, task.cpus) for task in sample.job("74").tasks] == [(1, 2, 8), (1, 0, 2)]
    assert sample.noted == {"with several kinds of chunks, which need not start together in the simulation": 1}


def test_torque_asks_for_nodes(sample: Any) -> None:
    task = sample.job("75").tasks[0]
    assert (task.instances, task.gpus, task.cpus, task.work) == (2, 4, 8, 90)


def test_a_rerun_is_an_attempt(read: Reading, samples: Path, sample: Any) -> None:
    assert sample.job("72").tasks[0].work == 1000
    assert (sample.job("72").observed_start_s, sample.job("72").eligible_s) == (700, 600)
    every = read(samples / "pbs" / "20260105", protocol="all-attempts").job("72")
    assert (every.tasks[0].work, every.observed_start_s) == (1300, 300)


def test_a_job_of_which_only_a_rerun_is_there_outlives_the_trace(read: Reading, samples: Path, tmp_path: Path) -> None:
    lines = (samples / "pbs" / "20260105").read_text().splitlines(keepends=True)
    (tmp_path / "log").write_text("".join(line for line in lines if ";E;72" not in line))
    assert read(tmp_path / "log").dropped == {"of jobs that outlive the trace": 1}
    assert read(tmp_path / "log", keep_partial=True).job("72").tasks[0].work == 300


def test_the_tenant_and_the_arrival_are_chosen(read: Reading, samples: Path) -> None:
    path = samples / "pbs" / "20260105"
    assert read(path, tenant="user").job("70").tenant == "noor"
    assert read(path, tenant="partition").job("70").tenant == "accel"
    assert read(path, arrival="qtime").trace.meta["origin_s"] == 1767603605


def test_without_a_start_the_wall_time_says_it(read: Reading, ended: Callable[[str], Path]) -> None:
    (job,) = read(ended("start=0 resources_used.walltime=00:00:30 Resource_List.ncpus=2")).jobs
    assert (job.tasks[0].work, job.observed_start_s, job.tasks[0].cpus) == (30, 40, 2)


def test_a_wall_time_that_is_not_end_minus_start_is_noted(read: Reading, ended: Callable[[str], Path]) -> None:
    got = read(ended("end=1110 resources_used.walltime=00:01:00"))
    assert got.jobs[0].tasks[0].work == 60
    assert got.noted == {"whose wall time is not end - start (suspended?)": 1}


@pytest.mark.parametrize(
    ("size", "gb"),
    [("134217728kb", 128), ("2gb", 2), ("512mb", 0.5), ("1tb", 1024), ("134217728w", 1), ("1073741824", 1)],
)
def test_memory_has_the_units_of_pbs(read: Reading, ended: Callable[[str], Path], size: str, gb: float) -> None:
    assert read(ended(f"Resource_List.mem={size}")).jobs[0].tasks[0].memory_gb == gb


def test_lines_of_100_kb_are_read_and_of_a_megabyte_refused(read: Reading, ended: Callable[[str], Path]) -> None:
    assert len(read(ended("exec_host=" + "n0001/0+" * 15_000)).jobs) == 1
    with pytest.raises(TraceError, match=r"20260105:1: the line has"):
        read(ended("exec_host=" + "n0001/0+" * 150_000))


@pytest.mark.parametrize("key", ["accelerator_model", "gpu_model", "gpu_type", "gputype"])
def test_the_type_of_gpu_has_four_names(read: Reading, ended: Callable[[str], Path], key: str) -> None:
    job = read(ended(f"Resource_List.select=1:ncpus=4:ngpus=2:{key}=V100")).jobs[0]
    assert (job.tasks[0].gpus, job.tasks[0].gpu_types) == (2, ("V100-16",))


def test_another_protocol_is_refused(samples: Path) -> None:
    with pytest.raises(ConfigError, match="pbs has no protocol 'x'"):
        list(open_trace(samples / "pbs" / "20260105", options=TraceOptions(protocol="x")).jobs())


@pytest.mark.data
def test_the_hand_written_sample_gives_what_was_expected_of_it(read: Reading, data: Path) -> None:
    got = read(data / "traces" / "intake-samples" / "pbs-accounting-20260302")
    first, array, rerun = (got.job(id).tasks[0] for id in ("5001", "5002[3]", "5003"))
    assert (first.gpus, first.work, got.job("5001").tenant) == (4, 7200, "vision team")
    assert got.job("5001").observed_start_s - got.job("5001").eligible_s == 40
    assert (array.instances, array.gang, array.gpus, array.gpu_types, array.work) == (2, True, 2, ("A100-40",), 1200)
    assert (rerun.gpus, rerun.work) == (8, 2600)
    assert len(got.jobs) == 3


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Resource_List.procs=24 exec_host=a/0-11+b/0-11", [(24, 0, 1)]),
        ("Resource_List.procs=6 Resource_List.gpus=2", [(2, 1, 3)]),
        ("Resource_List.nodes=1:ppn=12 Resource_List.gpu=3", [(1, 3, 12)]),
        ("Resource_List.nodes=2:ppn=6:gpus=1:shared", [(2, 1, 6)]),
        ("Resource_List.neednodes=3:ppn=2:gpus=2", [(3, 2, 2)]),
        ("Resource_List.select=2:ncpus=4:gpu=2", [(2, 2, 4)]),
        ("Resource_List.select=1:ncpus=8 Resource_List.ngpus=2", [(1, 2, 8)]),
        ("Resource_List.ncpus=12 Resource_List.naccelerators=4 Resource_List.nodect=2", [(2, 2, 6)]),
        ("Resource_List.nodes=1:ppn=4 exec_gpus=a-gpu/0+a-gpu/1", [(1, 2, 4)]),
        ("exec_host=a/0+a/1+a/2+b/0", [(1, 0, 3), (1, 0, 1)]),
        ("exec_host=a/0*5+b/0*5", [(2, 0, 5)]),
        ("exec_host=a/0-2,7", [(1, 0, 4)]),
    ],
)
def test_demand_is_read_wherever_it_is_stated(
    read: Reading, ended: Callable[[str], Path], text: str, parts: list[tuple[int, int, int]]
) -> None:
    (job,) = read(ended(f"{text} resources_used.walltime=00:01:00")).jobs
    assert [(task.instances, task.gpus, task.cpus) for task in job.tasks] == parts


def test_impossible_times_are_noted(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "20260105").write_text(
        "01/05/2026 09:00:00;E;1.s;ctime=900 etime=900 start=500 end=560 Resource_List.ncpus=1\n"
        "01/05/2026 09:00:00;E;2.s;ctime=900 etime=990 start=950 end=960 Resource_List.ncpus=1\n"
    )
    got = read(tmp_path / "20260105")
    assert got.noted == {
        "that start before they arrive (taken to start on arrival)": 1,
        "that become eligible after their start (taken as eligible at the start)": 1,
    }
    assert got.trace.report.contradictions["times"].count == 2


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("exec_host=a/0*8+b/0*8 Resource_List.select=2:ncpus=8 Resource_List.nodect=2", False),
        ("exec_host=a/0*8 Resource_List.select=2:ncpus=8 Resource_List.nodect=2", False),  # both chunks on one node
        ("exec_host=a/0*8+b/0*8 Resource_List.select=1:ncpus=16 Resource_List.nodect=1", True),
        ("exec_host=a/0*8 Resource_List.select=1:ncpus=8 Resource_List.nodect=2", True),
    ],
)
def test_a_request_that_disagrees_with_the_nodes_is_noted(
    read: Reading, ended: Callable[[str], Path], text: str, noted: bool
) -> None:
    got = read(ended(f"resources_used.walltime=00:01:00 {text}"))
    assert got.noted == (
        {"whose request and nodes (exec_host, nodect) disagree; taken as requested": 1} if noted else {}
    )

"""Alibaba PAI 2020: tables joined, machines, and the lists derived from the trace."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.families.formats.pai2020 import Pai2020
from dagsim.traces import open_trace, recognise
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "pai2020")


def test_a_task_is_a_gang_and_the_job_arrives_at_its_submission(sample: Any) -> None:
    # submitted at 499000 (the first) and 500000; the worker runs 500020..500880
    job = sample.job("job-a")
    server, worker = job.tasks
    assert (job.arrival_s, job.tenant) == (1000, "user-1")
    assert (worker.name, worker.work, worker.instances, worker.gang) == ("worker", 860, 2, True)
    assert (worker.gpus, worker.cpus, worker.memory_gb) == (0.5, 4, 29.5)
    assert (server.work, server.gang, server.gpus, server.cpus) == (880, False, 0, 6)
    assert job.graph.edges == ()


def test_the_group_tag_says_which_gpu_type_was_asked_for(sample: Any) -> None:
    assert sample.job("job-a").tasks[1].gpu_types is None  # ran on a T4, asked for none
    assert sample.job("job-b").tasks[0].gpu_types == ("V100-32",)


def test_without_tags_a_task_keeps_the_type_it_was_assigned(read: Reading, samples: Path, tmp_path: Path) -> None:
    for table in ("job", "task"):
        shutil.copy(samples / "pai2020" / f"pai_{table}_table.csv", tmp_path)
    got = read(tmp_path / "pai_task_table.csv", keep_partial=True)
    assert got.job("job-a").tasks[1].gpu_types == ("T4",)
    assert got.job("job-b").tasks[0].gpu_types == ("K80",)
    assert got.job("job-c").tasks[0].gpus == 8  # failed, but held its GPUs
    assert got.dropped["without end_time"] == 2


def test_tags_without_the_job_table_that_names_them_are_not_heeded(
    read: Reading, samples: Path, tmp_path: Path
) -> None:
    shutil.copy(samples / "pai2020" / "pai_task_table.csv", tmp_path)
    without = read(tmp_path, keep_partial=True)
    assert {task.gpu_types for job in without.jobs for task in job.tasks} >= {("T4",), ("K80",)}
    shutil.copy(samples / "pai2020" / "pai_group_tag_table.csv", tmp_path)
    got = read(tmp_path, keep_partial=True)
    assert got.jobs == without.jobs
    assert "no job table" in got.trace.assumptions["gpu types"]


def test_missing_times_come_from_the_instances(sample: Any) -> None:
    (task,) = sample.job("job-e").tasks
    assert (task.work, task.gpus, task.instances) == (140, 2, 3)
    assert sample.noted == {
        "tasks whose start or end is taken from their instances": 1,
        "tasks that request a fraction above one GPU (rounded up)": 1,
    }


def test_every_dirty_row_is_dropped_for_its_reason(sample: Any) -> None:
    assert [job.id for job in sample.jobs] == ["job-b", "job-a", "job-e"]
    assert sample.dropped == {
        "of jobs without start_time": 4,
        "of tasks that did not terminate": 2,
        "of jobs that did not finish as a whole": 4,
        "without end_time": 1,
        "with an end before the start": 1,
        "of jobs that are missing in the job table": 1,
        "given twice": 2,
    }
    report = sample.trace.report
    assert (report.rows, report.kept) == (10 + 12 + 3 + 3, 7)
    assert report.skipped == {"joined from the instance table": 3, "joined from the group tag table": 3}


def test_work_is_counted_on_the_reference_gpu(read: Reading, samples: Path) -> None:
    got = read(samples / "pai2020", reference_gpu="V100-16")
    assert got.job("job-b").tasks[0].work == pytest.approx(400 * 4.37 / 15.67)  # MISC counts as a K80
    assert got.job("job-a").tasks[0].work == 880  # no GPU


def test_the_header_files_say_the_order_of_columns(read: Reading, samples: Path, sample: Any, tmp_path: Path) -> None:
    shutil.copytree(samples / "pai2020", tmp_path / "pai")
    names = (tmp_path / "pai" / "pai_task_table.header").read_text().strip().split(",")
    rows = [line.split(",") for line in (tmp_path / "pai" / "pai_task_table.csv").read_text().splitlines()]
    (tmp_path / "pai" / "pai_task_table.header").write_text(",".join(reversed(names)) + "\n")
    (tmp_path / "pai" / "pai_task_table.csv").write_text("".join(",".join(reversed(row)) + "\n" for row in rows))
    assert read(tmp_path / "pai").jobs == sample.jobs
    (tmp_path / "pai" / "pai_task_table.header").write_text("job_name,task_name\n")
    with pytest.raises(TraceError, match=r"pai_task_table\.header:1: the header lacks end_time, gpu_type, inst_num"):
        list(open_trace(tmp_path / "pai").jobs())


def test_the_archives_of_the_publisher_read_the_same(read: Reading, samples: Path, sample: Any, tmp_path: Path) -> None:
    for table in ("job", "task", "instance", "group_tag"):
        content = (samples / "pai2020" / f"pai_{table}_table.csv").read_bytes()
        with tarfile.open(tmp_path / f"pai_{table}_table.tar.gz", "w:gz") as archive:
            info = tarfile.TarInfo(f"pai_{table}_table.csv")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert read(tmp_path).jobs == sample.jobs
    assert read(tmp_path / "pai_job_table.tar.gz").jobs == sample.jobs


def test_the_machines_are_the_cluster(sample: Any) -> None:
    cluster = sample.trace.cluster()
    assert cluster.gpus_by_type() == {"P100": 2, "K80": 8, "V100-32": 8}
    assert len(cluster.nodes) == 4


def test_the_list_of_the_simulator(read: Reading, samples: Path) -> None:
    got = read(samples / "pai2020" / "pai_job_duration_sample.csv")
    assert [(job.id, job.arrival_s, job.tasks[0].work) for job in got.jobs] == [
        ("8", 0, 600), ("7", 20, 60), ("9", 30, 0), ("10", 40, 30),
    ]  # fmt: skip
    gang, shared, cpu, old = [job.tasks[0] for job in got.jobs]
    assert (gang.instances, gang.gang, gang.gpus, gang.cpus, gang.gpu_types) == (4, True, 1, 4, ("V100-16",))
    assert (shared.gpus, shared.gpu_types) == (0.5, ("T4",))
    assert (cpu.gpus, cpu.cpus, cpu.gpu_types) == (0, 12, None)
    assert (old.gpus, old.gpu_types) == (2, ("K80",))
    assert got.dropped == {
        "with a negative duration": 1,
        "with a non-numeric value for num_gpu": 1,
        "with the same id as another row": 1,
    }


def test_the_lists_of_hydra_have_a_speed_per_type(read: Reading, samples: Path) -> None:
    got = read(samples / "pai2020" / "hydra_sample.csv")
    first, second = got.jobs
    assert (first.tasks[0].work, first.deadline_s) == (100, None)
    assert first.tasks[0].speeds == {"A100-40": 1, "V100-16": 100 / 160, "RTX-2080Ti": 100 / 250}
    assert (second.deadline_s, second.tasks[0].gpu_types) == (900, ("A100-40", "V100-16"))
    assert got.dropped == {"without a positive duration": 1, "that describe an impossible job": 1}
    on_v100 = read(samples / "pai2020" / "hydra_sample.csv", reference_gpu="V100")
    assert on_v100.jobs[0].tasks[0].work == 160
    assert on_v100.jobs[0].tasks[0].speeds["A100-40"] == 1.6


def test_lists_of_other_simulators_are_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "muri.csv"
    path.write_text(
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval\n0,1,0,5,dqn,1,2,3\n"
    )
    assert not Pai2020().recognises(Source(path))


def test_every_form_is_recognised(samples: Path) -> None:
    for name in (".", "pai_job_table.csv", "pai_task_table.csv", "pai_job_duration_sample.csv", "hydra_sample.csv"):
        assert recognise(samples / "pai2020" / name) == "pai2020", name


@pytest.mark.data
def test_the_real_machines_are_the_published_ones(data: Path) -> None:
    folder = data / "traces" / "alibaba-gpu-v2020"
    cluster = Pai2020().cluster(Source(folder), TraceOptions())
    assert cluster is not None
    assert Counter(node.gpu.name if node.gpu else None for node in cluster.nodes) == {
        "P100": 798, "T4": 497, "K80": 280, "V100-32": 135, "V100-16": 104, None: 83,
    }  # fmt: skip


@pytest.mark.data
@pytest.mark.parametrize("name", ["hydra_20_ddl.csv.gz", "hydra_case_5000_all_10_ddl.csv.gz"])
def test_the_real_lists_are_read_whole(read: Reading, data: Path, name: str) -> None:
    got = read(data / "traces" / "alibaba-gpu-v2020" / name)
    assert (len(got.jobs), got.dropped) == (5000, {})

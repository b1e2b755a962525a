"""Google 2019: events of instances and collections, the job-level DAG, and exports without the lives of tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.families.formats.google2019 import Google2019
from dagsim.traces import Downtime, TraceOptions, recognise
from dagsim.traces.source import Source

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "google2019" / "csv")


def test_every_form_is_recognised(samples: Path) -> None:
    folder = samples / "google2019"
    for part in (
        "csv",
        "csv/instance_events-000000000000.csv",
        "json",
        "json/instance_events.json",
        "kaggle_sample.csv",
        "2019_x_user_requests.csv",
    ):
        assert recognise(folder / part) == "google2019", part


def test_the_numbers_of_events_are_those_of_2019(sample: Any) -> None:
    # task 0 of 102 runs 661..700; task 1 is evicted at 670 and runs again 672..702
    job = sample.job("102")
    works = {task.name: task.work for task in job.tasks}
    assert (works["102/0"], works["102/1"]) == (39, 30)
    assert [task.cpus for task in job.tasks[:2]] == [0.05, 0.08]


def test_a_collection_starts_after_all_tasks_of_another(sample: Any) -> None:
    job = sample.job("102")
    assert [(task.name, task.work) for task in job.tasks] == [
        ("102/0", 39), ("102/1", 30), ("103/0", 20), ("103/1", 25), ("103/start", 0),
    ]  # fmt: skip
    assert job.graph.parents == ((), (), (4,), (4,), (0, 1))
    assert job.tasks[4].demand == (0, 0, 0, None)
    assert sample.noted["jobs that start after a missing job (which is taken as ended)"] == 1  # 104 after 777


def test_jobs_arrive_at_their_submission_in_bands_of_priority(sample: Any) -> None:
    # 101 was there before the window; 102 was submitted at 649 s, which is 49 s into it
    assert [(job.id, job.arrival_s, job.priority, job.tenant) for job in sample.jobs] == [
        ("101", 0, 3, "alice"), ("102", 49, 1, "bob"), ("777", 150, 0, "carol"), ("106", 170, 4, ""),
    ]  # fmt: skip
    assert sample.job("101").tasks[0].work == 130


def test_every_event_has_a_fate(sample: Any) -> None:
    assert sample.dropped == {
        "of jobs that outlive the trace": 2,
        "with an unknown event type": 1,
        "whose time is not a number": 1,
        "without collection_id": 1,
        "with a wrong number of fields": 1,
    }
    report = sample.trace.report
    assert report.skipped == {
        "joined from the collection events": 5,
        "of alloc sets": 1,
        "after the end of the trace": 1,
    }
    assert report.noted["tasks inside alloc sets (treated as ordinary tasks)"] == 2
    assert report.noted["tasks without a request (taken as no request)"] == 1
    assert report.rows == 17 + 17 + 5


def test_machines_come_and_go(sample: Any) -> None:
    cluster = sample.trace.cluster()
    assert [(node.name, node.cpus, node.memory_gb) for node in cluster.nodes] == [
        ("7001", 0.5, 0.25), ("7002", 1, 1), ("7003", 0.7, 0.5),
    ]  # fmt: skip
    assert set(sample.trace.downtimes()) == {Downtime(1, 100, float("inf")), Downtime(2, 0, 110)}


def test_json_lines_leave_defaults_out_and_write_numbers_as_strings(read: Reading, samples: Path) -> None:
    got = read(samples / "google2019" / "json")
    assert [(job.id, job.arrival_s, job.tasks[0].name, job.tasks[0].work) for job in got.jobs] == [
        ("201", 0, "0", 40), ("202", 50, "3", 3),
    ]  # fmt: skip
    assert got.dropped == {"that is not a JSON object": 2}


def test_the_kaggle_sample_counts_usage_windows(read: Reading, samples: Path) -> None:
    # windows 900..1200 and 1100..1500 cover 600 s
    got = read(samples / "google2019" / "kaggle_sample.csv")
    assert [(job.id, job.arrival_s, job.tasks[0].name, job.tasks[0].work) for job in got.jobs] == [
        ("301", 0, "4", 600), ("302", 200, "0", 60),
    ]  # fmt: skip
    assert [(job.tasks[0].cpus, job.tasks[0].memory_gb) for job in got.jobs] == [(0.02, 0.01), (0.5, 0)]
    assert got.trace.report.skipped == {"of alloc sets": 1}
    assert got.dropped == {
        "with an end before the start": 1,
        "without start_time": 1,
        "whose time lies outside the trace": 1,
    }
    assert got.noted == {"tasks inside alloc sets (treated as ordinary tasks)": 1}
    assert "lower bound" in got.trace.assumptions["work"]


def test_of_the_machines_of_several_cells_those_of_the_same_cell_count(tmp_path: Path) -> None:
    requests = tmp_path / "a_user_requests.csv"
    requests.write_text("time,collection_id,instance_index,collection_type,user,cpus,ram\n")
    for cell, machines in (("a", 2), ("b", 3)):
        (tmp_path / f"{cell}_host_resource.csv").write_text(f"cpus,ram,machine_count\n1,0.5,{machines}\n")
    cluster = Google2019().cluster(Source(requests), TraceOptions())
    assert cluster is not None
    assert len(cluster.nodes) == 2


def test_absurdly_many_machines_are_refused(tmp_path: Path) -> None:
    requests = tmp_path / "a_user_requests.csv"
    requests.write_text("time,collection_id,instance_index,collection_type,user,cpus,ram\n")
    (tmp_path / "a_host_resource.csv").write_text("cpus,ram,machine_count\n1,0.5,1000001\n")
    with pytest.raises(TraceError, match="with more than 1,000,000 machines"):
        Google2019().cluster(Source(requests), TraceOptions())


def test_requests_have_no_end_and_shapes_are_machines(read: Reading, samples: Path) -> None:
    got = read(samples / "google2019" / "2019_x_user_requests.csv", floor_s=10.0)
    assert [(job.id, job.arrival_s, [task.name for task in job.tasks]) for job in got.jobs] == [
        ("401", 0, ["1", "0"]), ("402", 80, ["0"]),
    ]  # fmt: skip
    assert got.job("401").tasks[0].work == 10
    assert got.dropped == {"whose instance another row has": 1, "that describe an impossible job": 1}
    cluster = got.trace.cluster()
    assert [(node.cpus, node.memory_gb) for node in cluster.nodes] == [(1, 0.5)] * 3 + [(0.5, 0.25)] * 2


@pytest.mark.data
def test_the_real_slices_are_read(read: Reading, data: Path) -> None:
    folder = data / "traces" / "google-2019"
    kaggle = read(folder / "kaggle_borg_slice.csv.gz")
    assert (kaggle.trace.report.rows, kaggle.dropped) == (99, {})
    for cell in "abcdefgh":
        requests = read(folder / "lgdcloudsim" / f"2019_{cell}_user_requests.csv.gz")
        assert requests.trace.report.rows == 10_000


@pytest.mark.data
@pytest.mark.parametrize(
    ("cell", "machines"),
    [
        ("a", 10_002),
        ("b", 10_047),
        ("c", 13_245),
        ("d", 12_578),
        ("e", 14_123),
        ("f", 12_204),
        ("g", 12_800),
        ("h", 11_592),
    ],
)
def test_the_real_shapes_count_the_published_machines(data: Path, cell: str, machines: int) -> None:
    source = Source(data / "traces" / "google-2019" / "lgdcloudsim" / f"2019_{cell}_user_requests.csv.gz")
    cluster = Google2019().cluster(source, TraceOptions())
    assert cluster is not None
    assert len(cluster.nodes) == machines

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
        "with a non-numeric value for time": 1,
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
        "with a time outside the trace": 1,
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
    assert got.dropped == {"with the same instance as another row": 1, "that describe an impossible job": 1}
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


_BY_NUMBER = (
    "SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST", "UPDATE_PENDING",
    "UPDATE_RUNNING",
)  # fmt: skip
"""The names of the events in Google's description of the trace, by their numbers."""


def one_task(folder: Path, *events: tuple[int, str], kind: str = "JOB") -> Path:
    """A folder with the events of one task and its collection, each with its second and its name or number."""
    folder.mkdir()
    for table, more in (("instance", ",0"), ("collection", "")):
        head = "time,type,collection_id,collection_type" + (",instance_index" if more else "")
        lines = [f"{second}000000,{name},7,{kind}{more}" for second, name in events]
        (folder / f"{table}_events.csv").write_text("\n".join([head, *lines]) + "\n")
    return folder


@pytest.mark.parametrize("end", ["EVICT", "FAIL", "FINISH", "KILL", "LOST"])
@pytest.mark.parametrize("update", ["QUEUE", "ENABLE", "UPDATE_PENDING", "UPDATE_RUNNING"])
def test_events_by_name_are_those_by_number(read: Reading, tmp_path: Path, update: str, end: str) -> None:
    events = ((700, "SUBMIT"), (710, update), (720, "SCHEDULE"), (730, update), (790, end))
    by_number = [(second, str(_BY_NUMBER.index(name))) for second, name in events]
    named, numbered = one_task(tmp_path / "names", *events), one_task(tmp_path / "numbers", *by_number)
    for folder in (named, numbered):
        got = read(folder, "google2019")
        (job,) = got.jobs
        assert (job.tasks[0].work, got.dropped) == (70, {}), folder


def test_alloc_sets_and_machine_events_may_be_named(read: Reading, tmp_path: Path) -> None:
    folder = one_task(tmp_path / "all", (700, "SUBMIT"), (720, "SCHEDULE"), (790, "FINISH"))
    with (folder / "instance_events.csv").open("a") as file:
        file.write("700000000,SUBMIT,8,ALLOC_SET,0\n")
    machines = ["0,1,ADD,0.5,0.25", "0,2,ADD,1,1", "710000000,1,UPDATE,0.75,0.25", "720000000,2,REMOVE,,"]
    head = "time,machine_id,type,capacity.cpus,capacity.memory"
    (folder / "machine_events.csv").write_text("\n".join([head, *machines]) + "\n")
    got = read(folder, "google2019")
    assert got.trace.report.skipped["of alloc sets"] == 1
    cluster = got.trace.cluster()
    assert [(node.name, node.cpus) for node in cluster.nodes] == [("1", 0.75), ("2", 1)]
    assert set(got.trace.downtimes()) == {Downtime(1, 20, float("inf"))}
    (folder / "machine_events.csv").write_text(f"{head}\n0,1,GONE,1,1\n")
    with pytest.raises(TraceError, match="a machine event with the unknown type 'GONE'"):
        got.trace.cluster()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("900000000,1,,JOB,ida,0.1,0.1", "without instance_index"),
        ("900000000,,0,JOB,ida,0.1,0.1", "without collection_id"),
        ("-5,1,0,JOB,ida,0.1,0.1", "with a time outside the trace"),
    ],
)
def test_a_request_without_what_it_needs_is_dropped(read: Reading, tmp_path: Path, row: str, reason: str) -> None:
    path = tmp_path / "2019_x_user_requests.csv"
    path.write_text(
        f"time,collection_id,instance_index,collection_type,user,cpus,ram\n800000000,9,0,JOB,kit,0.5,0.25\n{row}\n"
        "800000000,5,0,ALLOC_SET,kit,0.5,0.25\n"
    )
    got = read(path)
    assert [(job.id, job.user or job.tenant) for job in got.jobs] == [("9", "kit")]
    assert (got.dropped, got.trace.report.skipped) == ({reason: 1}, {"of alloc sets": 1})


def test_a_machine_shape_that_is_not_a_number_is_named(tmp_path: Path) -> None:
    requests = tmp_path / "a_user_requests.csv"
    requests.write_text("time,collection_id,instance_index,collection_type,user,cpus,ram\n")
    (tmp_path / "a_host_resource.csv").write_text("cpus,ram,machine_count\n1,many,2\n")
    with pytest.raises(TraceError, match=r"host_resource\.csv:2: a machine shape"):
        Google2019().cluster(Source(requests), TraceOptions())

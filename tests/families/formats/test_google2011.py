"""Google 2011: attempts folded into tasks, events into machines."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import ConfigError, TraceError
from dagsim.families.formats.google2011 import Google2011
from dagsim.traces import Downtime, TraceOptions, open_trace, recognise
from dagsim.traces.source import Source

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "google2011")


def test_the_directory_its_tasks_and_a_shard_are_recognised(samples: Path) -> None:
    for part in (".", "task_events", "task_events/part-00000-of-00002.csv"):
        assert recognise(samples / "google2011" / part) == "google2011"


def test_a_task_is_the_fold_of_its_attempts(sample: Any) -> None:
    # task 0 runs 705..765; task 1 is evicted after 706..715 and runs again 720.000001..760.000001
    job = sample.job("13")
    assert [(task.name, task.work, task.instances) for task in job.tasks] == [("0", 60, 1), ("1", 40, 1)]
    assert [(task.gpus, task.cpus, task.memory_gb) for task in job.tasks] == [(0, 0.0625, 0.03), (0, 0.0625, 0.06)]
    assert sample.noted["tasks with several attempts (merged into one)"] == 1


def test_only_events_out_of_order_are_noted_as_such(sample: Any) -> None:
    assert "events out of order" not in sample.noted  # some are from time 0


def test_all_attempts_can_count(read: Reading, samples: Path) -> None:
    job = read(samples / "google2011", protocol="all-attempts").job("13")
    assert [task.work for task in job.tasks] == [60, 49]
    with pytest.raises(
        ConfigError, match="unknown protocol 'best' for Google traces; known: last-attempt, all-attempts"
    ):
        list(open_trace(samples / "google2011", options=TraceOptions(protocol="best")).jobs())


def test_a_job_arrives_when_it_is_submitted_on_the_clock_of_the_window(sample: Any) -> None:
    # job 12 ran before the window, which starts at 600 s: 110 s are left; job 13 was submitted at 699 s
    assert [(job.id, job.arrival_s, job.priority, job.tenant) for job in sample.jobs] == [
        ("12", 0, 0, "bob"),
        ("13", 99, 1, "carol"),
    ]
    assert sample.job("12").tasks[0].work == 110


def test_every_event_has_a_fate(sample: Any) -> None:
    assert sample.dropped == {
        "of jobs that outlive the trace": 4,
        "of tasks that never ran": 2,
        "of tasks that began before the trace": 1,
        "of impossible tasks": 3,
        "with an unknown event type": 1,
        "with a non-numeric value for time": 1,
        "with a wrong number of fields": 1,
    }
    assert sample.trace.report.skipped == {"joined from the job events": 5, "after the end of the trace": 1}
    assert (sample.trace.report.rows, sample.trace.report.kept) == (32, 13)


def test_tasks_alive_at_the_end_can_be_cut_there(read: Reading, samples: Path) -> None:
    # the last event inside the trace is at 831 s
    got = read(samples / "google2011", keep_partial=True)
    assert [(job.id, job.arrival_s, job.tasks[0].work) for job in got.jobs] == [
        ("11", 0, 231), ("12", 0, 110), ("13", 99, 60), ("17", 230, 0),
    ]  # fmt: skip
    assert got.noted["tasks cut at the end of the trace"] == 2
    assert got.noted["tasks without a request (taken as no request)"] == 1
    assert got.job("11").priority == 2


def test_a_task_cut_at_the_end_keeps_its_earlier_attempts_and_the_first_user_counts(
    read: Reading, tmp_path: Path
) -> None:
    (tmp_path / "task_events").mkdir()
    events = [(700, 0, ""), (710, 1, "ann"), (740, 2, "bob"), (760, 1, ""), (785, 8, "")]  # submit, run, evict, run
    rows = [f"{time}000000,,7,0,,{event},{user},,1,0.5,0.25,," for time, event, user in events]
    (tmp_path / "task_events" / "part.csv").write_text("\n".join(rows) + "\n")
    job = read(tmp_path, keep_partial=True, protocol="all-attempts").job("7")
    assert (job.tasks[0].work, job.tenant) == (30 + 25, "ann")
    assert read(tmp_path, keep_partial=True).job("7").tasks[0].work == 25


def test_machines_come_leave_and_come_back(sample: Any, samples: Path) -> None:
    cluster = sample.trace.cluster()
    assert [(node.name, node.cpus, node.memory_gb) for node in cluster.nodes] == [
        ("501", 0.5, 0.25), ("502", 0.5, 0.5), ("503", 1, 1), ("504", 1, 1),
    ]  # fmt: skip
    inf = float("inf")
    assert set(sample.trace.downtimes()) == {Downtime(0, 350, inf), Downtime(1, 100, 130), Downtime(3, 0, 300)}
    fresh = open_trace(samples / "google2011")
    with pytest.raises(TraceError, match="not been read yet"):
        fresh.downtimes()


def test_gpus_per_task(read: Reading, samples: Path) -> None:
    got = read(samples / "google2011", gpus_per_task=1)
    assert {task.demand for job in got.jobs for task in job.tasks} == {(1, 0, 0, None)}
    assert got.trace.cluster() is None


@pytest.mark.data
def test_the_real_shards_fold_as_a_plain_count_says(read: Reading, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "task_events"  # with one of the four shards
    folder.mkdir()
    for path in sorted((data / "traces" / "google-2011" / "task_events").iterdir())[:1]:
        (folder / path.name).symlink_to(path)
    rows = 0
    ran: dict[tuple[str, str], float] = {}
    since: dict[tuple[str, str], int] = {}
    end = 0
    for path in sorted(folder.iterdir()):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            rows += 1
            time, _, job, task, _, event, *_ = line.split(",")
            end = int(time)
            if event == "1":
                since[job, task] = max(end, 600_000_000)
            elif event in "23456" and (job, task) in since:
                ran[job, task] = ran.get((job, task), 0) + end - since.pop((job, task))
    for key, start in since.items():
        ran[key] = ran.get(key, 0) + end - start
    got = read(folder, keep_partial=True, protocol="all-attempts")
    assert got.trace.report.rows == rows > 100_000
    assert sum(len(job.tasks) for job in got.jobs) == len(ran)
    assert sum(task.work for job in got.jobs for task in job.tasks) == pytest.approx(sum(ran.values()) / 1e6)
    assert {job.id for job in got.jobs} == {job for job, _ in ran}


@pytest.mark.data
def test_the_head_of_the_real_machines_is_a_cluster(data: Path) -> None:
    cluster = Google2011().cluster(Source(data / "traces" / "google-2011"), TraceOptions())
    assert cluster is not None
    assert len(cluster.nodes) == 1523

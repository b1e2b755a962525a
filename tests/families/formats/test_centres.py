"""Job tables of computing centres: nodes, totals over nodes, limits, and what is dropped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import TraceError

Reading = Callable[..., Any]


def task(reading: Any, job: str) -> tuple[float, ...]:
    """Work, instances, and the GPUs, cores and GB of an instance."""
    (task,) = reading.job(job).tasks
    return task.work, task.instances, task.gpus, task.cpus, task.memory_gb


def test_acme_seren(read: Reading, samples: Path) -> None:
    reading = read(samples / "acme" / "trace_seren.csv")
    assert task(reading, "11") == (3600, 1, 8, 64, 0)
    assert task(reading, "12") == (1800, 2, 8, 64, 0)
    assert task(reading, "13") == (30, 1, 0, 4, 0)
    assert task(reading, "14") == (60, 3, 1, 4, 0), "three GPUs on two nodes: an instance per GPU"
    assert reading.job("12").arrival_s == 600
    assert reading.job("12").observed_start_s == 600
    assert reading.job("12").tenant == "u2"
    assert reading.dropped == {"that never ran": 1}


def test_acme_kalos_counts_work_from_the_start_and_memory_per_node(read: Reading, samples: Path) -> None:
    reading = read(samples / "acme" / "trace_kalos.csv")
    assert task(reading, "dlc1") == (40, 4, 8, 100, 800), "the column duration says 60: it counts from submission"
    assert task(reading, "dlc2") == (600, 1, 8, 100, 800)


def test_eagle(read: Reading, samples: Path) -> None:
    reading = read(samples / "eagle" / "eagle_data.csv")
    assert task(reading, "1") == (1800, 1, 2, 36, 0)
    assert task(reading, "2") == (3600, 4, 0, 36, 0)
    assert reading.job("1").tasks[0].estimate == 7200
    assert (reading.job("2").tenant, reading.job("2").user, reading.job("2").partition) == (
        "account1",
        "user2",
        "standard",
    )
    assert read(samples / "eagle" / "eagle_data.csv", tenant="partition").job("2").tenant == "standard"
    assert reading.dropped == {"that never ran": 1, "that had not ended": 1}


def test_kestrel_has_memory_with_units(read: Reading, samples: Path) -> None:
    reading = read(samples / "kestrel" / "kestrel_jobs.csv")
    assert task(reading, "1") == (3600, 1, 4, 64, 256)
    assert task(reading, "2") == (60, 2, 0, 104, 500000 / 1024 / 2)
    assert reading.job("1").tasks[0].estimate == 7200
    assert reading.dropped == {"that had not ended": 1}


def test_frontier_jobs_hold_whole_nodes(read: Reading, samples: Path) -> None:
    reading = read(samples / "frontier" / "frontier-completed-job-info.csv")
    assert task(reading, "a") == (7200, 128, 4, 0, 0)
    assert reading.job("a").tenant == "10"
    assert reading.job("b").observed_start_s == 1860


def test_pm100_has_totals_and_limits_in_minutes(read: Reading, samples: Path) -> None:
    reading = read(samples / "pm100" / "job_table.csv")
    assert task(reading, "5") == (600, 2, 4, 128, 237)
    assert reading.job("5").tasks[0].estimate == 1800


def test_fdata_has_cores_only(read: Reading, samples: Path) -> None:
    reading = read(samples / "fdata" / "21_03.csv")
    assert task(reading, "j1") == (600, 2, 0, 48, 0)
    assert reading.job("j1").tasks[0].estimate == 3600
    assert reading.job("j2").arrival_s == 300


@pytest.mark.parametrize("sample", ["acme/trace_kalos", "kestrel/kestrel_jobs", "pm100/job_table", "fdata/21_03"])
def test_parquet_gives_the_jobs_of_the_csv_file(read: Reading, samples: Path, tmp_path: Path, sample: str) -> None:
    pandas, path = pytest.importorskip("pandas"), tmp_path / "jobs.parquet"
    pytest.importorskip("pyarrow")
    frame = pandas.read_csv(samples / f"{sample}.csv")
    for column in ("submit_time", "start_time", "end_time", "adt", "sdt", "edt"):
        if column in frame:
            frame[column] = pandas.to_datetime(frame[column]).dt.tz_convert("UTC")
    if sample.startswith("kestrel"):
        frame["wallclock_req"] = pandas.to_timedelta(frame["wallclock_req"], unit="s")
    frame.to_parquet(path)
    csv, parquet = read(samples / f"{sample}.csv"), read(path)
    assert parquet.trace.format == csv.trace.format
    assert parquet.jobs == csv.jobs


def test_wrong_rows_are_dropped_with_reasons(read: Reading, samples: Path, tmp_path: Path) -> None:
    head, row, *_ = (samples / "pm100" / "job_table.csv").read_text(encoding="utf-8").splitlines()
    wrong = (
        ("", "", ""),
        (",2,256,", ",0,256,", "with an invalid value for num_nodes_alloc"),
        (",474,", ",-3,", "with an invalid size in mem_alloc"),
        ("09:10:30", "08:10:30", "with times out of order"),
        ("2020-05-10 09:00:00+00:00", "soon", "with an invalid date in submit_time"),
        (",256,8,", ",256,x,", "with a non-numeric value for num_gpus_alloc"),
    )
    rows = [f"{place}{row[1:].replace(old, new, 1)}" for place, (old, new, _) in enumerate(wrong)]
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    reading = read(path)
    assert [job.id for job in reading.jobs] == ["0"]
    assert reading.dropped == {reason: 1 for *_, reason in wrong if reason}


def test_a_format_by_name_says_which_columns_are_missing(read: Reading, samples: Path) -> None:
    with pytest.raises(TraceError, match="the header lacks 'job_idx'"):
        read(samples / "pm100" / "job_table.csv", "frontier")


def test_alibaba2026(read: Reading, samples: Path) -> None:
    reading = read(samples / "alibaba2026" / "job_info_df.csv")
    assert task(reading, "1") == (5000, 1, 1, 20, 0)
    assert task(reading, "3") == (4106, 2, 8, 15, 0)
    assert [reading.job(name).priority for name in "13"] == [1, 0]
    assert reading.job("2").tasks[0].gpu_types == ("GPU-series-1",)
    assert reading.job("5").tasks[0].gpus == 0
    cluster = reading.trace.cluster()
    assert (len(cluster.nodes), cluster.gpus) == (4, 22)


@pytest.mark.family("slurm")
def test_slurm_events(read: Reading, samples: Path) -> None:
    reading = read(samples / "slurm-events" / "small.events")
    assert task(reading, "jobid_1") == (50, 2, 0, 12, 0)
    assert task(reading, "jobid_2") == (60, 1, 2, 1, 2), "a negative walltime runs to the limit"
    assert task(reading, "7") == (300, 5, 0, 1, 0), "a limit of 5 is in minutes and ends the job"
    assert task(reading, "1005") == (20, 2, 0, 4, 0), "the older form of the simulator; tasks are spread over -N"
    assert task(reading, "jobid_1:9") == (20, 3, 0, 4, 0), "a name that is taken, and no -n"
    assert reading.job("jobid_2").arrival_s == 3
    assert (reading.job("7").tenant, reading.job("7").partition) == ("account2", "debug")
    assert reading.dropped == {
        "of events other than submissions": 1,
        "with an invalid duration in time limit": 1,
    }

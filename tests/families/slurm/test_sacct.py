"""Slurm's accounting: every quirk of sacct's text and JSON that was seen on live clusters or is documented."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import ConfigError, TraceError
from dagsim.families.slurm.accounting.accounting_values import array_ids, array_tasks, state
from dagsim.model import Request
from dagsim.traces import TraceOptions, open_trace
from dagsim.traces.fields import Dirty

Reading = Callable[..., Any]
Log = Callable[..., Path]

_ROW = {
    "JobIDRaw": "7",
    "JobID": "7",
    "User": "ada",
    "Account": "vision",
    "Partition": "gpu",
    "State": "COMPLETED",
    "Submit": "1000",
    "Eligible": "1000",
    "Start": "1010",
    "End": "1110",
    "ElapsedRaw": "100",
    "Suspended": "00:00:00",
    "TimelimitRaw": "5",
    "NNodes": "1",
    "NCPUS": "4",
    "ReqTRES": "billing=4,cpu=4,gres/gpu=2,mem=4096M,node=1",
    "AllocTRES": "billing=4,cpu=4,gres/gpu:t4=2,gres/gpu=2,mem=4096M,node=1",
    "NodeList": "t01",
}
_NEVER = {"Start": "None", "End": "1005", "ElapsedRaw": "0", "AllocTRES": "", "NodeList": "None assigned"}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Writes rows, each a job that is in order but for what is said."""

    def write(*rows: dict[str, str], without: tuple[str, ...] = (), ends: str = "", delimiter: str = "|") -> Path:
        names = [name for name in dict.fromkeys([*_ROW, *(key for row in rows for key in row)]) if name not in without]
        lines = [names, *([(_ROW | row)[name] for name in names] for row in rows)]
        path = tmp_path / "log.txt"
        path.write_text("".join(f"{delimiter.join(line)}{ends}\n" for line in lines))
        return path

    return write


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "sacct" / "jobs.txt")


def _only(got: Any) -> Any:
    (job,) = got.jobs
    return job.tasks[0]


def test_the_sample_is_kept_and_dropped_for_its_reasons(sample: Any) -> None:
    assert [job.id for job in sample.jobs] == ["500", "501_1", "503", "503+1", "505", "507"]
    assert sample.dropped == {
        "of array tasks that never ran": 1,
        "cancelled before they started": 1,
        "on MIG slices (--read mig=true keeps them)": 1,
        "on shards of a GPU (--read shards=N keeps them)": 1,
        "that outlive the trace": 1,
    }
    assert dict(sample.trace.report.skipped) == {"of steps": 2}


def test_typed_and_untyped_gpus_are_not_added_and_steps_not_counted(sample: Any) -> None:
    task = sample.job("500").tasks[0]
    assert (task.instances, task.gpus, task.work, task.cpus, task.memory_gb) == (1, 2, 3600, 8, 64)


def test_gpus_are_the_sum_of_types_where_there_is_no_untyped_number(read: Reading, log: Log) -> None:
    tres = "cpu=4,gres/gpu:a100=2,gres/gpu:t4=4,mem=4096M,node=1"
    assert _only(read(log({"AllocTRES": tres}))).gpus == 6


def test_only_the_request_restricts_the_type(sample: Any) -> None:
    assert sample.job("500").tasks[0].gpu_types == ("A100-40",)
    assert sample.job("501_1").tasks[0].gpu_types is None  # got a T4, asked for any


def test_a_site_s_names_of_gpus_can_be_said(read: Reading, samples: Path) -> None:
    got = read(samples / "sacct" / "jobs.txt", gpu_names="a100=A100-80")
    assert got.job("500").tasks[0].gpu_types == ("A100-80",)


def test_an_array_task_is_a_job_and_its_rest_one_row_of_tasks_that_never_ran(sample: Any) -> None:
    assert sample.job("501_1").arrival_s == 60
    assert sample.noted["array tasks never ran, at least"] == 5  # 2 and 4 to 7: the limit %3 is no count


@pytest.mark.parametrize(
    ("id", "tasks"),
    [
        ("9_[3-90,95,97-99%8]", 92),
        ("9_[3,5,7,43,4...%8]", 4),  # cut in the middle of a number
        ("9_[0-10:5]", 3),
        ("9_[1]", 1),
    ],
)
def test_the_rest_of_an_array_is_counted(read: Reading, log: Log, id: str, tasks: int) -> None:
    got = read(log({}, {"JobID": id, "JobIDRaw": "9", "State": "PENDING", **_NEVER}))
    assert got.noted == {"array tasks never ran, at least": tasks}


def test_the_raw_id_is_no_key(read: Reading, log: Log) -> None:
    # with --array every task that waits carries the array's own number, and so does the last that ran
    waits = {"JobIDRaw": "20", "State": "PENDING", **_NEVER}
    got = read(log({"JobIDRaw": "20", "JobID": "20_9"}, {"JobID": "20_10", **waits}, {"JobID": "20_11", **waits}))
    assert [job.id for job in got.jobs] == ["20_9"]
    assert got.dropped == {"that never ran": 2}


def test_without_jobid_the_raw_id_must_do(read: Reading, log: Log) -> None:
    assert [job.id for job in read(log({}, without=("JobID",))).jobs] == ["7"]


def test_components_of_a_heterogeneous_job_are_jobs_that_start_together(sample: Any) -> None:
    jobs = [sample.job("503"), sample.job("503+1")]
    tasks = [task for job in jobs for task in job.tasks]
    assert [(task.instances, task.gang, task.gpus, task.cpus) for task in tasks] == [
        (2, True, 8, 16), (1, False, 0, 16),
    ]  # fmt: skip


def test_work_is_the_last_attempt_and_arrival_the_first_submission(sample: Any) -> None:
    job = sample.job("505")
    assert (job.arrival_s, job.tasks[0].work) == (120, 500)  # 540 s from start to end, 40 of them suspended


def test_all_attempts_can_be_summed(read: Reading, samples: Path) -> None:
    got = read(samples / "sacct" / "jobs.txt", protocol="all-attempts")
    assert got.job("505").tasks[0].work == 300 + 100 + 500


def test_the_observed_start_is_that_of_the_first_attempt_and_its_wait_counts_from_eligible(
    read: Reading, samples: Path
) -> None:
    path = samples / "sacct" / "jobs.txt"
    last, first = read(path).job("505"), read(path, protocol="all-attempts").job("505")
    for job in (last, first):  # what follows depends on who preempts it, and when
        assert (job.observed_start_s, job.eligible_s) == (130, 120)


def test_under_another_time_scale_nothing_was_observed(read: Reading, samples: Path) -> None:
    got = read(samples / "sacct" / "jobs.txt", time_scale=0.5)
    assert {(job.observed_start_s, job.eligible_s) for job in got.jobs} == {(None, None)}


def test_another_protocol_is_refused(samples: Path) -> None:
    with pytest.raises(ConfigError, match="sacct has no protocol 'x'"):
        list(open_trace(samples / "sacct" / "jobs.txt", options=TraceOptions(protocol="x")).jobs())


@pytest.mark.parametrize("word", ["REQUEUED", "PREEMPTED", "NODE_FAIL"])
def test_an_attempt_without_a_later_one_is_final(read: Reading, log: Log, word: str) -> None:
    assert _only(read(log({"State": word}))).work == 100


def test_a_requeued_job_that_waits_at_the_end_runs_as_long_as_its_longest_attempt(read: Reading, log: Log) -> None:
    again = {"State": "PENDING", "Submit": "1200", **_NEVER}
    rows = ({"State": "REQUEUED"}, again, {"JobID": "8", "JobIDRaw": "8"})
    got = read(log(*rows))
    assert [(job.id, job.tasks[0].work) for job in got.jobs] == [("7", 100), ("8", 100)]
    assert got.dropped == {"that never ran": 1}
    assert sum("not over at the end" in note for note in got.noted) == 1


def test_a_requeued_job_has_all_its_attempts(read: Reading, log: Log) -> None:
    first = {"State": "REQUEUED", "Start": "1150", "End": "1200", "ElapsedRaw": "50", "NodeList": "n1"}
    again = {
        "Submit": "1200",
        "Eligible": "1320",
        "Start": "1400",
        "End": "1500",
        "ElapsedRaw": "100",
        "NodeList": "n2",
    }
    (job,) = read(log(first, again)).jobs
    origin_s = 1150 - job.observed_start_s
    _, run = job.observed_attempts
    assert (run.eligible_s + origin_s, run.start_s + origin_s, run.end_s + origin_s) == (1320, 1400, 1500)
    assert [run.nodes for run in job.observed_attempts] == [("n1",), ("n2",)]


@pytest.mark.parametrize(("suspended", "attempts"), [("00:00:00", 0), ("00:00:40", 1)])
def test_a_suspended_job_has_its_attempt_to_the_end(read: Reading, log: Log, suspended: str, attempts: int) -> None:
    end = 1200 + 100 + 40 * attempts
    row = {"Start": "1200", "End": str(end), "ElapsedRaw": "100", "Elapsed": "", "Suspended": suspended}
    (job,) = read(log(row)).jobs
    lasted_s = [run.end_s - run.start_s for run in job.observed_attempts]
    assert lasted_s == [140.0] * attempts
    assert job.tasks[0].work == 100


def test_a_requeued_job_that_is_cancelled_while_it_waits_keeps_what_ran(read: Reading, log: Log) -> None:
    again = {"State": "CANCELLED by 0", "Submit": "1200", **_NEVER}
    assert _only(read(log({"State": "REQUEUED"}, again))).work == 100


def test_a_requeued_job_without_its_first_attempts_is_noted(read: Reading, log: Log) -> None:
    got = read(log({"Restarts": "2"}))
    assert got.noted == {"of requeued jobs without their first attempts, which only sacct --duplicates lists": 1}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("CANCELLED by 1007", "cancelled before they started"),
        ("FAILED", "that ended before they started"),  # refused at submission
        ("PENDING", "that never ran"),
    ],
)
def test_a_job_without_an_allocation_never_ran(read: Reading, log: Log, state: str, reason: str) -> None:
    assert read(log({}, {"JobID": "8", "State": state, **_NEVER})).dropped == {reason: 1}


def test_a_refused_job_of_22_05_has_a_start_and_yet_never_ran(read: Reading, log: Log) -> None:
    refused = {"JobID": "8", "State": "FAILED", "Start": "1000", "End": "1000", "ElapsedRaw": "0", "AllocTRES": ""}
    assert read(log({}, refused)).dropped == {"that ended before they started": 1}


def test_a_job_of_less_than_a_second_is_kept(sample: Any) -> None:
    assert sample.job("507").tasks[0].work == 0


@pytest.mark.parametrize(
    "state", ["TIMEOUT", "OUT_OF_MEMORY", "OUT_OF_ME+", "FAILED", "DEADLINE", "CANCELLED by 12", "CANCELLED+"]
)
def test_every_job_that_held_its_nodes_is_kept(read: Reading, log: Log, state: str) -> None:
    assert _only(read(log({"State": state}))).work == 100


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("RUNNING", "that outlive the trace"),
        ("SUSPENDED", "that outlive the trace"),
        ("RESIZING", "that outlive the trace"),
        ("REVOKED", "revoked by another cluster"),
        ("BOOT_FAIL", "whose nodes did not boot"),
        ("SLEEPING", "in an unknown state"),
    ],
)
def test_other_states_are_dropped_by_name(read: Reading, log: Log, state: str, reason: str) -> None:
    assert read(log({}, {"JobID": "8", "State": state})).dropped == {reason: 1}


def test_a_job_slightly_above_its_limit_keeps_both(sample: Any) -> None:
    task = sample.job("501_1").tasks[0]
    assert (task.work, task.estimate) == (3632, 3600)


@pytest.mark.parametrize("limit", ["Partition_Limit", "", "INVALID", "4294967294"])
def test_a_limit_that_is_not_stated_is_no_estimate(read: Reading, log: Log, limit: str) -> None:
    assert _only(read(log({"TimelimitRaw": limit}))).estimate is None


@pytest.mark.parametrize("limit", ["UNLIMITED", "INFINITE", "525600", "4294967295", "900000"])
def test_no_limit_is_a_year(read: Reading, log: Log, limit: str) -> None:
    """Nothing is backfilled by the true run time of a job that may run for ever."""
    assert _only(read(log({"TimelimitRaw": limit}))).estimate == 365 * 86400


def test_limits_may_come_as_durations(read: Reading, log: Log) -> None:
    assert _only(read(log({"Timelimit": "1-02:00:00"}, without=("TimelimitRaw",)))).estimate == 93600


@pytest.mark.parametrize(
    ("elapsed", "seconds"), [("1-00:00:10", 86410), ("02:00:00", 7200), ("05:30", 330), ("01:02.500", 62.5)]
)
def test_elapsed_has_four_forms(read: Reading, log: Log, elapsed: str, seconds: float) -> None:
    assert _only(read(log({"Elapsed": elapsed}, without=("ElapsedRaw", "End")))).work == seconds


def test_without_elapsed_suspensions_are_taken_off(read: Reading, log: Log) -> None:
    assert _only(read(log({"Suspended": "00:00:12"}, without=("ElapsedRaw",)))).work == 88


@pytest.mark.parametrize(
    ("memory", "gb"), [("4096M", 4), ("62.50G", 62.5), ("1T", 1024), ("2048", 2), ("1048576K", 1), ("0", 0), ("4Gn", 4)]
)
def test_memory_has_units_of_1024_and_mb_without_one(read: Reading, log: Log, memory: str, gb: float) -> None:
    assert _only(read(log({"AllocTRES": f"cpu=1,mem={memory},node=1"}))).memory_gb == gb


def test_gpus_are_totals_over_the_nodes(read: Reading, log: Log) -> None:
    task = _only(read(log({"NNodes": "2", "AllocTRES": "cpu=8,gres/gpu=8,mem=8192M,node=2"})))
    assert (task.instances, task.gang, task.gpus, task.cpus, task.memory_gb) == (2, True, 4, 4, 4)


def test_gpus_that_are_not_even_over_the_nodes_are_taken_one_by_one(read: Reading, log: Log) -> None:
    got = read(log({"NNodes": "2", "AllocTRES": "cpu=10,gres/gpu=5,mem=8192M,node=2"}))
    assert (_only(got).instances, _only(got).gpus, _only(got).cpus) == (5, 1, 2)
    assert "with GPUs spread unevenly over their nodes (treated as single GPUs)" in got.noted


def test_whole_nodes_of_several_types_are_a_task_for_each(read: Reading, log: Log) -> None:
    tres = "billing=9,cpu=24,gres/gpu:v100=8,gres/gpu:a100=16,gres/gpu=24,mem=3072M,node=3"
    row = {"NNodes": "3", "NCPUS": "24", "ReqTRES": "cpu=3,node=3", "AllocTRES": tres, "NodeList": "t[1-3]"}
    got = read(log(row))
    tasks = [(task.instances, task.gpus, task.cpus, task.memory_gb) for task in got.jobs[0].tasks]
    assert tasks == [(2, 8, 8, 1), (1, 8, 8, 1)]
    assert got.noted == {
        "that hold GPUs that they did not request": 1,
        "on nodes with several GPU types, whose parts need not start together in the simulation": 1,
    }


def test_slices_are_shares_where_they_are_wanted(read: Reading, samples: Path) -> None:
    assert read(samples / "sacct" / "jobs.txt", mig=True).job("508").tasks[0].gpus == pytest.approx(2 / 7)


def test_slices_of_several_sizes_are_a_gang_of_the_largest(read: Reading, log: Log) -> None:
    tres = "cpu=1,gres/gpu:a100_1g.5gb=6,gres/gpu:a100_3g.20gb=2,gres/gpu=8,mem=1024M,node=1"
    got = read(log({"AllocTRES": tres}), mig=True)
    assert (_only(got).instances, _only(got).gpus) == (8, pytest.approx(3 / 7))
    assert "on MIG slices of several sizes (each taken as the largest)" in got.noted


def test_an_a30_has_four_slices(read: Reading, log: Log) -> None:
    tres = "cpu=1,gres/gpu:a30_1g.6gb=1,gres/gpu=1,mem=1024M,node=1"
    assert _only(read(log({"AllocTRES": tres}), mig=True)).gpus == 0.25


def test_shards_are_shares_where_it_is_said_of_how_many(read: Reading, samples: Path) -> None:
    assert read(samples / "sacct" / "jobs.txt", shards=8).job("509").tasks[0].gpus == 0.25


def test_gpus_of_an_exclusive_node_are_noted_and_can_be_left_out(read: Reading, log: Log) -> None:
    held = {"NCPUS": "64", "AllocTRES": "cpu=64,gres/gpu:v100=8,mem=1M,node=1"}
    path = log({"ReqTRES": "billing=1,cpu=1,mem=300M,node=1", **held})
    got = read(path)
    assert _only(got).gpus == 8
    assert got.noted == {"that hold GPUs that they did not request": 1}
    assert _only(read(path, demand="requested")).gpus == 0


def test_jobs_without_gpus_may_be_given_some(read: Reading, log: Log) -> None:
    path = log({"ReqTRES": "cpu=4,node=1", "AllocTRES": "cpu=4,node=1"})
    assert _only(read(path)).gpus == 0
    assert _only(read(path, gpus_per_task=2)).gpus == 2


def test_without_allocations_the_cores_are_known(read: Reading, log: Log) -> None:
    task = _only(read(log({}, without=("AllocTRES", "ReqTRES"))))
    assert (task.gpus, task.cpus) == (0, 4)


@pytest.mark.parametrize(
    ("tenant", "expected"), [(None, "vision"), ("account", "vision"), ("user", "ada"), ("partition", "gpu")]
)
def test_the_tenant_is_chosen(read: Reading, log: Log, tenant: str | None, expected: str) -> None:
    assert read(log({"Partition": "gpu,debug"}), tenant=tenant).jobs[0].tenant == expected


def test_without_an_account_the_tenant_is_the_user(read: Reading, log: Log) -> None:
    assert read(log({"Account": ""})).jobs[0].tenant == "ada"


def test_dates_are_of_the_zone_that_is_said(read: Reading, log: Log) -> None:
    summer = {"Submit": "2026-07-01T10:00:00"}
    path = log({"JobID": "6", "Submit": "2026-07-01T07:30:00+00:00"}, summer)
    assert [job.arrival_s for job in read(path).jobs] == [0, 9000]
    assert [job.arrival_s for job in read(path, timezone="Europe/Berlin").jobs] == [0, 1800]
    with pytest.raises(ConfigError, match=r"timezone must be an IANA name such as Europe/Berlin, got '\.\./"):
        TraceOptions(timezone="../../etc/passwd")


def test_at_the_change_to_summer_time_elapsed_is_trusted(read: Reading, log: Log) -> None:
    row = {"Submit": "2026-03-29T00:30:00", "Start": "2026-03-29T01:30:00", "End": "2026-03-29T03:30:00"}
    got = read(log(row | {"ElapsedRaw": "3600"}))
    assert _only(got).work == 3600
    assert got.noted == {
        "whose elapsed time differs by an hour from End - Start, as at a clock change (the elapsed time counts)": 1
    }
    assert read(log(row | {"ElapsedRaw": "3600"}), timezone="Europe/Berlin").noted == {}


def test_relative_dates_are_no_times(read: Reading, log: Log) -> None:
    assert read(log({}, {"JobID": "8", "Submit": "02:53:32"})).dropped == {"with an invalid time in Submit": 1}


def test_nan_is_no_time_whatever_the_other_rows_are(read: Reading, log: Log) -> None:
    wrong = {"JobID": "8", "Submit": "nan"}
    for other in ({}, {"JobID": "9", "Submit": "Unknown"}):
        assert read(log({}, wrong, other)).dropped["with an invalid time in Submit"] == 1


def test_rows_with_a_last_empty_column_are_read(read: Reading, log: Log) -> None:
    assert len(read(log({}, ends="|")).jobs) == 1


@pytest.mark.parametrize("delimiter", [";", "\t", "^"])
def test_other_delimiters_are_recognised(read: Reading, log: Log, delimiter: str) -> None:
    assert len(read(log({}, delimiter=delimiter)).jobs) == 1


def test_any_delimiter_can_be_said(read: Reading, log: Log) -> None:
    assert len(read(log({}, delimiter="!"), "sacct", delimiter="!").jobs) == 1


def test_columns_come_in_any_order_and_case(read: Reading, log: Log) -> None:
    path = log({})
    header, row = path.read_text().splitlines()
    path.write_text("|".join(header.upper().split("|")[::-1]) + "\n" + "|".join(row.split("|")[::-1]) + "\n")
    assert _only(read(path)).work == 100


def test_a_bar_in_a_job_s_name_is_repaired(read: Reading, log: Log) -> None:
    assert _only(reading := read(log({"JobName": "pipe|in|name"}))).work == 100
    assert reading.noted["with columns shifted by a separator inside a text (repaired)"] == 1


def test_a_row_that_could_be_read_in_two_ways_is_dropped(read: Reading, log: Log) -> None:
    path = log({}, {"JobID": "2", "JobIDRaw": "2"})
    header, first, second = path.read_text().splitlines()
    ends = ("|JobName|Reservation|Comment", "|a|b|ada|", "|ab|ada|")  # the reservation may be b or ada
    path.write_text("".join(f"{line}{end}\n" for line, end in zip((header, first, second), ends, strict=True)))
    reading = read(path)
    assert [job.id for job in reading.jobs] == ["2"]
    assert reading.dropped == {"with a wrong number of fields": 1}


def test_without_allocated_resources_those_asked_for_count(read: Reading, log: Log) -> None:
    reading = read(log({"ReqTRES": "cpu=4,mem=8G,node=1,gres/gpu=2", "NodeList": "n1"}, without=("AllocTRES",)))
    assert (reading.jobs[0].tasks[0].gpus, reading.jobs[0].tasks[0].cpus) == (2, 4)


def test_a_file_that_lacks_columns_is_told_the_command(read: Reading, log: Log) -> None:
    with pytest.raises(
        TraceError, match=r"the header lacks Submit, AllocTRES or NCPUS; it contains .*sacct --allusers"
    ):
        read(log({}, without=("Submit", "AllocTRES", "NCPUS")))


def test_the_same_row_of_two_files_counts_once(read: Reading, log: Log) -> None:
    assert read(log({}, {})).dropped == {"given twice": 1}


def test_jobs_of_one_second_come_in_order_of_their_numbers(read: Reading, log: Log) -> None:
    rows = [{"JobID": id, "JobIDRaw": id} for id in ("12", "9", "10_2", "10_11")]
    assert [job.id for job in read(log(*rows)).jobs] == ["9", "10_2", "10_11", "12"]


def test_json_of_both_layouts_gives_the_same_jobs_as_text(read: Reading, samples: Path, sample: Any) -> None:
    got = read(samples / "sacct" / "jobs.json")
    assert got.trace.format == "sacct"
    for id in ("500",):
        assert got.job(id) == sample.job(id)
    old = got.job("501_1").tasks[0]
    assert (old.work, old.gpus, old.estimate) == (3632, 1, 3600)
    assert got.dropped == {
        "of array tasks that never ran": 1,
        "cancelled before they started": 2,  # start null, and 4294967294
        "that outlive the trace": 1,
    }
    assert got.noted["array tasks never ran, at least"] == 5  # 0xF4: bits 2 and 4 to 7


def test_json_of_a_requeued_attempt_is_no_pending_job(read: Reading, samples: Path) -> None:
    got = read(samples / "sacct" / "jobs.json", protocol="all-attempts")
    assert got.job("505").tasks[0].work == 300 + 100
    assert got.job("505").tasks[0].estimate == 365 * 86400  # infinite


def test_json_may_be_one_line_and_its_jobs_come_first(read: Reading, samples: Path, tmp_path: Path) -> None:
    document = json.loads((samples / "sacct" / "jobs.json").read_text())
    (tmp_path / "log.json").write_text(json.dumps(dict(sorted(document.items()))))
    assert read(tmp_path / "log.json").jobs == read(samples / "sacct" / "jobs.json").jobs


@pytest.mark.data
def test_the_hand_written_samples_give_what_was_expected_of_them(read: Reading, data: Path) -> None:
    folder = data / "traces" / "intake-samples"
    got = read(folder / "sacct-parsable2.txt")
    assert [job.id for job in got.jobs] == [
        "910001", "910002_1", "910002_2", "910005", "910005+1", "910007", "910009",
    ]  # fmt: skip
    assert got.job("910001").tasks[0].gpus * got.job("910001").tasks[0].work == 28_800
    assert got.noted["array tasks never ran, at least"] == 92
    assert len(read(folder / "sacct-parsable2.txt", mig=True, shards=8).jobs) == 9
    assert read(folder / "sacct-parsable2.txt", protocol="all-attempts").job("910007").tasks[0].work == 5400
    assert [job.id for job in read(folder / "sacct.json").jobs] == ["910002_1", "910005"]


@pytest.mark.data
@pytest.mark.parametrize(
    "run",
    [
        "arrays-24.11",
        "backfill-nodes-24.11",
        "backfill-nodes-again-24.11",
        "multifactor-classic-22.05",
        "multifactor-fairtree-24.11",
        "preempt-24.11",
        "states-22.05",
        "states-24.11",
    ],
)
def test_real_runs_are_read_whole_and_alike_as_text_and_json(read: Reading, data: Path, run: str) -> None:
    folder = data / "golden" / "slurm" / run
    text, document = read(folder / "sacct-aDX.txt"), read(folder / "sacct-aD.json")
    assert text.trace.report.dropped.keys() <= {
        "that never ran",
        "that outlive the trace",
        "of jobs that outlive the trace",
        "of array tasks that never ran",
        "cancelled before they started",
        "that ended before they started",
        "on MIG slices (--read mig=true keeps them)",
        "on shards of a GPU (--read shards=N keeps them)",
    }
    by_id = {job.id: job for job in document.jobs}
    # The text has no column SubmitLine, so only the JSON says what was requested beside resources.
    assert all(job.request is None or job.request == Request(partitions=job.request.partitions) for job in text.jobs)
    for job in text.jobs:
        full = by_id[job.id]
        if full.request is not None and (full.request.exclusive or full.request.spread is False):
            # Only the submit line says that whole nodes were allocated beyond the request, or -n without -N.
            assert [task.work for task in full.graph.tasks] == [task.work for task in job.graph.tasks]
            full = replace(full, graph=job.graph)
        if abs(full.tasks[0].work - job.tasks[0].work) == 2:  # requeued, it ran on while the files were written
            full = replace(full, graph=job.graph, observed_attempts=job.observed_attempts)
        if full.tasks[0].estimate is None:  # 22.05 writes null for UNLIMITED
            full = replace(full, graph=job.graph)
        if full.request is not None:  # so is --nice
            full = replace(full, priority=job.priority)
        assert replace(full, request=None) == replace(job, request=None)
    assert len(document.jobs) - len(text.jobs) == (run == "backfill-nodes-again-24.11")  # a job ended in between


_OLD = {"ReqMem": "4000Mc", "ReqGRES": "gpu:tesla:2", "AllocTRES": "cpu=8,mem=32000M,node=2", "NNodes": "2"}


@pytest.mark.parametrize(
    ("columns", "gpus", "types"),
    [
        ({}, 2, ("tesla",)),
        ({"ReqGRES": "PER_NODE:gpu:2"}, 2, None),
        ({"ReqGRES": "gres:gpu:v100:1,gres:craynetwork:1"}, 1, ("V100-16",)),
        ({"ReqGRES": "PER_JOB:gpu:6"}, 3, None),
        ({"AllocGRES": "7696487:8"}, 4, ("tesla",)),
        ({"ReqGRES": "", "AllocGRES": "gpu:4"}, 2, None),
        ({"ReqGRES": "gpu:0"}, 0, None),
        ({"ReqGRES": "craynetwork:1"}, 0, None),
    ],
)
def test_gpus_of_old_logs_are_in_a_column_of_their_own(
    read: Reading, log: Log, columns: dict[str, str], gpus: int, types: tuple[str, ...] | None
) -> None:
    row = _OLD | {"ReqTRES": "cpu=8,mem=32000M,node=2", "AllocGRES": ""} | columns
    task = _only(read(log(row)))
    assert (task.instances, task.gpus, task.gpu_types) == (2, gpus, types)


def test_memory_of_old_logs_is_per_cpu_or_per_node(read: Reading, log: Log) -> None:
    for text, gb in (("4000Mc", 4000 * 8 / 1024), ("16Gn", 32), ("24G", 24), ("0n", 0)):
        row = {"AllocTRES": "cpu=8,node=2", "NCPUS": "8", "NNodes": "2", "ReqTRES": "", "ReqMem": text}
        task = _only(read(log(row)))
        assert task.memory_gb * task.instances == pytest.approx(gb)


def test_a_log_without_lists_of_resources_has_them_in_columns(read: Reading, log: Log) -> None:
    row = {"ReqMem": "2Gn", "ReqGRES": "gpu:1", "NCPUS": "6", "ReqNodes": "3", "ReqCPUS": "3"}
    path = log(row, without=("ReqTRES", "AllocTRES", "NNodes"))
    task = _only(read(path))
    assert (task.instances, task.gpus, task.cpus, task.memory_gb) == (3, 1, 2, 2)
    assert _only(read(path, demand="requested")).cpus == 1


def test_an_impossible_count_in_an_old_column_drops_the_row(read: Reading, log: Log) -> None:
    assert read(log(_OLD | {"ReqGRES": "gpu:many"}, {"JobID": "8", "ReqMem": "", "ReqGRES": ""})).dropped == {
        "with resources that are not numbers": 1
    }


def test_an_elapsed_time_that_disagrees_with_the_clock_is_noted(read: Reading, log: Log) -> None:
    got = read(log({"ElapsedRaw": "70"}, {"JobID": "8", "ElapsedRaw": "70", "Suspended": "00:00:30"}))
    assert [job.tasks[0].work for job in got.jobs] == [70, 70]
    assert got.noted == {"whose elapsed time is not End - Start without suspensions (the elapsed time counts)": 1}


def test_a_job_that_mixes_gpu_types_on_a_node_is_noted(read: Reading, log: Log) -> None:
    tres = "cpu=4,gres/gpu:a100=2,gres/gpu:v100=1,gres/gpu=3,mem=4096M,node=1"
    got = read(log({"ReqTRES": tres, "AllocTRES": tres}))
    assert _only(got).gpus == 3
    assert got.noted == {"that mix GPU types on a node, which all run on one type here": 1}


_BARE = {"ReqTRES": "billing=4,cpu=4,mem=4096M,node=2", "AllocTRES": "billing=4,cpu=4,mem=4096M,node=2",
         "NNodes": "2", "NodeList": "t[01-02]"}  # fmt: skip
_IN_LINE = "with the GPUs of SubmitLine, since no list of resources has any (AccountingStorageTRES)"


@pytest.mark.parametrize(
    ("line", "gpus", "types"),
    [
        ("sbatch -N2 --gres=gpu:4 run.sh", 8, None),
        ("sbatch -N2 --gres gpu:a100:4,shard:1 run.sh", 8, ("A100-40",)),
        ("sbatch -N2 --gres=gpu run.sh", 2, None),
        ("sbatch -G6 -N2 run.sh", 6, None),
        ("sbatch --gpus=h100:4 -N2 run.sh", 4, ("H100",)),
        ("/opt/slurm/bin/sbatch --gpus-per-node 2 -N2 run.sh", 4, None),
        ("srun -n6 --gpus-per-task=1 ./solve", 6, None),
        ("sbatch -N2 --ntasks-per-node=3 --gpus-per-task=a100:1 run.sh", 6, ("A100-40",)),
        ("sbatch -N2 --sockets-per-node=2 --gpus-per-socket=2 run.sh", 8, None),
        ("sbatch -N2 -n4 --tres-per-task=cpu=2,gres/gpu:2 run.sh", 8, None),
        ("salloc -N2 --gpus-per-node=2", 4, None),
        ("sbatch --wrap sleep 9; exit 3 -p gpu --gres=gpu:2 -c 6 -t 45", 4, None),  # as Slurm joins the words
        ("sbatch --wrap=python fit.py --epochs 3 -N 2 --gres=gpu:1", 2, None),
        ('sbatch --wrap "srun --gpus=9 ./a" --gres=gpu:2', 4, None),
        ("sbatch --gres=gpu:2 --wrap srun --gpus=9 ./a", 4, None),
        ("sbatch --wrap srun --gpus=9 ./a", 0, None),
        ("sbatch --gres=gpu:0 run.sh", 0, None),
        ("sbatch --gres=craynetwork:2 run.sh --gpus 3", 0, None),
        ("sbatch run.sh --gres=gpu:2", 0, None),
    ],
)
def test_gpus_may_be_in_the_line_of_the_submission_alone(
    read: Reading, log: Log, line: str, gpus: int, types: tuple[str, ...] | None
) -> None:
    got = read(log(_BARE | {"SubmitLine": line}))
    task = _only(got)
    assert (task.instances * task.gpus, task.gpu_types) == (gpus, types)
    assert got.noted.get(_IN_LINE, 0) == (gpus > 0)


def test_a_component_has_the_gpus_of_its_own_part_of_the_line(read: Reading, log: Log) -> None:
    line = {"SubmitLine": "sbatch -N2 --gres=gpu:1 : -N2 --gres=gpu:a100:3 run.sh"}
    rows = [_BARE | line | {"JobID": f"7+{part}", "JobIDRaw": str(7 + part)} for part in (0, 1)]
    jobs = read(log(*rows)).jobs
    assert [(job.id, job.tasks[0].gpus, job.request.together) for job in jobs] == [("7", 1, "7"), ("7+1", 3, "7")]


def test_slices_and_shards_of_the_line_are_what_they_are_in_resources(read: Reading, log: Log) -> None:
    path = log(
        _BARE | {"SubmitLine": "sbatch --gres=gpu:a100_1g.5gb:1 x"},
        _BARE | {"JobID": "8", "SubmitLine": "srun --gres=shard:2 x"},
    )
    got = read(path, mig=True, shards=4)
    assert [(task.instances, task.gpus) for job in got.jobs for task in job.tasks] == [
        (2, pytest.approx(1 / 7)),
        (1, 1),
    ]


def test_gpus_that_were_asked_for_and_not_allocated_are_taken_as_allocated(read: Reading, log: Log) -> None:
    got = read(log({"AllocTRES": "billing=4,cpu=4,mem=4096M,node=1"}))
    assert _only(got).gpus == 2
    assert got.noted == {
        "whose ReqTRES and AllocTRES disagree: GPUs were requested but none allocated; taken as allocated": 1
    }


def test_without_a_list_of_what_was_asked_for_it_is_not_known(read: Reading, log: Log) -> None:
    path = log({"ReqCPUS": "4", "ReqMem": "4G"}, without=("ReqTRES",))
    got = read(path)
    assert (got.noted, _only(got).gpus, _only(got).gpu_types) == ({}, 2, None)
    assert _only(read(path, demand="requested")).gpus == 2


def _texts(log: Log, name: str, text: str, **more: Any) -> Path:
    """A log of two jobs of which the first has a text in the column, which is the last."""
    return log({name: text}, {"JobID": "8", "JobIDRaw": "8", name: "sbatch x"}, **more)


@pytest.mark.parametrize("ends", ["", "|"])
@pytest.mark.parametrize("text", ['sbatch --wrap "date\nhostname"', 'sbatch --wrap "a\n\nb | c | d\ne"', "sbatch\n"])
def test_line_breaks_within_a_text_cut_no_row(read: Reading, log: Log, text: str, ends: str) -> None:
    got = read(_texts(log, "SubmitLine", text, ends=ends))
    assert [job.id for job in got.jobs] == ["7", "8"]
    assert not got.dropped


def test_line_breaks_in_a_column_between_others_are_joined(read: Reading, log: Log) -> None:
    path = log({}, {"JobID": "8"}, {"JobID": "9"})
    header, *rows = path.read_text().splitlines()
    names = ["my\nfirst\nname", "plain", "a|b\nc"]
    lines = [f"{name}|{row}" for name, row in zip(names, rows, strict=True)]
    path.write_text("\n".join([f"JobName|{header}", *lines]) + "\n")
    got = read(path)
    assert ([job.id for job in got.jobs], got.dropped) == (["7", "8", "9"], {})
    assert got.noted["with a line break inside a text (joined)"] == 2


def test_a_row_that_is_cut_short_takes_no_other_with_it(read: Reading, log: Log) -> None:
    path = log({}, {"JobID": "8"}, {"JobID": "9"})
    header, first, second, third = path.read_text().splitlines()
    path.write_text("\n".join([header, first, second[:30], third]) + "\n")
    got = read(path)
    assert ([job.id for job in got.jobs], got.dropped) == (["7", "9"], {"with a wrong number of fields": 1})


@pytest.mark.parametrize("delimiter", [",", ";", "|"])
@pytest.mark.parametrize("every", [True, False])
def test_a_table_that_another_program_wrote_may_have_quotes(
    read: Reading, log: Log, delimiter: str, every: bool
) -> None:
    path = log({"SubmitLine": 'sbatch --wrap "a;b,c|d\ne" -n 1'}, {"JobID": "8", "SubmitLine": ""}, delimiter="\x01")
    rows = [line.split("\x01") for line in path.read_text().replace("d\ne", "d\x02e").splitlines()]
    with path.open("w", newline="") as file:
        style = csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL
        writer = csv.writer(file, delimiter=delimiter, quoting=style)
        writer.writerows([[field.replace("\x02", "\n") for field in row] for row in rows])
    got = read(path)
    assert [(job.id, job.tasks[0].gpus, job.tasks[0].work) for job in got.jobs] == [("7", 2, 100), ("8", 2, 100)]


def test_quotes_of_a_command_are_text(read: Reading, log: Log) -> None:
    got = read(log({"SubmitLine": 'sbatch --wrap "x'}, {"JobID": "8", "SubmitLine": 'sbatch --comment="a" y'}))
    assert [job.id for job in got.jobs] == ["7", "8"]


def test_columns_of_a_file_without_header_can_be_said(read: Reading, log: Log, tmp_path: Path) -> None:
    path = log({}, {"JobID": "8", "Start": "1020"})
    whole = read(path).jobs
    header, *rows = path.read_text().splitlines()
    (tmp_path / "bare.txt").write_text("\n".join(rows) + "\n")
    with pytest.raises(TraceError, match=r"bare.txt: not recognised; it looks like sacct without its header \(-n\)"):
        read(tmp_path / "bare.txt")
    assert read(tmp_path / "bare.txt", columns=header.replace("|", ",")).jobs == whole
    assert read(path, columns=header.replace("|", ",")).jobs == whole
    with pytest.raises(TraceError, match=r"18 fields, but --read columns= names 7: JobID, State"):
        read(tmp_path / "bare.txt", columns="JobID,State,Submit,Start,End,NCPUS,User")


def test_a_column_that_stands_twice_is_noted(read: Reading, log: Log) -> None:
    path = log({})
    header, row = path.read_text().splitlines()
    path.write_text(f"{header}|NCPUS\n{row}|99\n")
    got = read(path)
    assert _only(got).cpus == 4
    assert got.noted == {"column twice (ncpus; the first counts)": 1}


_LATER = {"Submit": "900000", "Eligible": "900000", "Start": "900010", "End": "900060", "ElapsedRaw": "50"}
_AGAIN = "with the id of an earlier job from another time, user or cluster (treated as separate jobs)"


@pytest.mark.parametrize(
    ("second", "ids"),
    [
        (_LATER, ["7", "7:2"]),
        ({"User": "bob", "Submit": "1050", "Eligible": "1050", "Start": "1050", "End": "1150"}, ["7", "7:2"]),
        ({"Cluster": "b", "Submit": "1111", "Start": "1112", "End": "1212"}, ["7", "7:2"]),
        (
            {"Submit": "1020", "Eligible": "1020", "Start": "1020", "End": "1120"},
            ["7", "7:2"],
        ),  # it ran beside the first
        ({"Submit": "1110", "Eligible": "1231", "Start": "1240", "End": "1340"}, ["7"]),  # requeued
    ],
)
def test_an_id_that_is_used_again_is_another_job(
    read: Reading, log: Log, second: dict[str, str], ids: list[str]
) -> None:
    got = read(log({"Cluster": "a"} if "Cluster" in second else {}, second))
    assert [job.id for job in got.jobs] == ids
    assert got.noted.get(_AGAIN, 0) == len(ids) - 1


def test_a_job_that_two_listings_show_counts_once(read: Reading, log: Log) -> None:
    running = {"State": "RUNNING", "End": "Unknown", "ElapsedRaw": "40"}
    for rows in ((running, {}), ({}, running)):
        got = read(log(*rows), protocol="all-attempts")
        assert ([job.tasks[0].work for job in got.jobs], got.dropped) == (
            [100], {"of an attempt that another row describes": 1},
        )  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "names", "note"),
    [
        ("r[0-1]b[08-09]", 4, ""),
        ("n[03-01],x", 0, "whose list of nodes cannot be read, so their nodes are unknown"),
        ("n[1-", 0, "whose list of nodes cannot be read, so their nodes are unknown"),
        ("n[1-3]", 3, "whose list of nodes and NNodes disagree"),
    ],
)
@pytest.mark.parametrize("state", ["COMPLETED", "REQUEUED"])
def test_lists_of_nodes_are_checked(read: Reading, log: Log, nodes: str, names: int, note: str, state: str) -> None:
    got = read(
        log(_BARE | {"NNodes": "4", "AllocTRES": "billing=4,cpu=4,mem=4096M,node=4", "NodeList": nodes, "State": state})
    )
    assert len(got.jobs[0].observed_nodes) == names
    assert got.noted == ({note: 1} if note else {})


@pytest.mark.parametrize("state", ["COMPLETED", "REQUEUED"])
def test_numbers_of_nodes_that_two_columns_state_differently_are_noted(read: Reading, log: Log, state: str) -> None:
    got = read(log(_BARE | {"NNodes": "2", "AllocTRES": "cpu=4,mem=4G,node=3", "State": state}))
    assert got.noted["whose NNodes and AllocTRES (node) disagree; taken as NNodes"] == 1


def test_dates_within_the_repeated_hour_are_read_so_that_they_fit(read: Reading, log: Log) -> None:
    """Clocks in Berlin went back from 3:00 to 2:00 on 26 October 2025."""
    rows = [
        ("02:50", "02:10", "02:40", "1800", 1200, {}),  # it can only have started in the second pass
        ("01:50", "02:05", "02:35", "5400", 900, {}),
        (
            "01:50",
            "02:05",
            "02:35",
            "1800",
            900,
            {"in an hour that occurs twice in their time zone (taken as the first)": 1},
        ),
        (
            "02:30",
            "04:00",
            "04:30",
            "1800",
            9000,
            {"in an hour that occurs twice in their time zone (taken as the first)": 1},
        ),
        ("01:30", "01:40", "03:10", "9000", 600, {}),
    ]
    for submit, start, end, elapsed, wait_s, noted in rows:
        dates = {
            name: f"2025-10-26T{text}:00"
            for name, text in (("Submit", submit), ("Eligible", submit), ("Start", start), ("End", end))
        }
        got = read(log(dates | {"ElapsedRaw": elapsed}), timezone="Europe/Berlin")
        (job,) = got.jobs
        assert (job.tasks[0].work, job.observed_start_s) == (float(elapsed), wait_s)
        assert got.noted == noted


def test_dates_that_a_zone_skips_are_noted(read: Reading, log: Log) -> None:
    dates = {
        name: f"2026-03-29T{text}:00"
        for name, text in (("Submit", "02:30"), ("Eligible", "02:30"), ("Start", "03:40"), ("End", "04:40"))
    }
    got = read(log(dates | {"ElapsedRaw": "3600"}), timezone="Europe/Berlin")
    assert got.noted == {"with a time in an hour that does not exist in their time zone (check timezone)": 1}


@pytest.mark.parametrize("unset", ["0", "4294967294", "4294967295", "18446744073709551614", "Unknown", "None", "N/A"])
def test_moments_that_are_none_are_not_taken_for_times(read: Reading, log: Log, unset: str) -> None:
    times = {name: str(1_760_000_000 + int(_ROW[name])) for name in ("Submit", "Eligible", "Start", "End")}
    assert read(log(times, times | {"JobID": "8", "Submit": unset})).dropped == {"without Submit": 1}
    assert read(log(times, times | {"JobID": "8", "Start": unset})).dropped == {"that ended before they started": 1}
    got = read(log(times | {"Eligible": unset, "End": unset}))
    assert (got.jobs[0].eligible_s, got.jobs[0].tasks[0].work) == (0, 100)


def test_resources_by_the_numbers_of_the_database_are_named(read: Reading, log: Log) -> None:
    got = read(log({}, {"JobID": "8", "AllocTRES": "1=8,2=8192,4=2,1001=4"}))
    assert (len(got.jobs), sum("the numbers of the database" in reason for reason in got.dropped)) == (1, 1)


def test_milliseconds_are_seconds_with_a_note(read: Reading, log: Log) -> None:
    times = {name: f"{1_760_000_000 + int(_ROW[name])}000" for name in ("Submit", "Eligible", "Start", "End")}
    got = read(log(times))
    assert (got.jobs[0].observed_start_s, got.jobs[0].tasks[0].work) == (10, 100)
    assert got.noted == {f"whose {name} is in milliseconds": 1 for name in times}


def test_day_numbers_of_a_spreadsheet_are_noted(read: Reading, log: Log) -> None:
    times = {name: f"{45234.5 + int(_ROW[name]) / 86400:.8f}" for name in ("Submit", "Eligible", "Start", "End")}
    assert [count for note, count in read(log(times)).noted.items() if "day numbers" in note] == [1]


@pytest.mark.parametrize(
    ("times", "note"),
    [
        ({"Submit": "1500"}, "that start before their submission (taken to start then)"),
        ({"Eligible": "1500"}, "that start before they are eligible (taken as eligible at the start)"),
        ({"End": "1005"}, "whose elapsed time is not End - Start without suspensions (the elapsed time counts)"),
    ],
)
def test_times_out_of_order_are_noted(read: Reading, log: Log, times: dict[str, str], note: str) -> None:
    got = read(log(times))
    assert (got.noted, _only(got).work) == ({note: 1}, 100)


@pytest.mark.parametrize("constraint", ["(" * 3000, "!" * 3000 + "a", "(" * 200 + "a" + ")" * 200])
def test_a_constraint_that_is_nested_too_deeply_drops_the_row(read: Reading, log: Log, constraint: str) -> None:
    got = read(log({"Constraints": constraint}, {"JobID": "8", "Constraints": "(a|b)&!c"}))
    assert ([job.id for job in got.jobs], got.dropped) == (["8"], {"whose constraint is nested too deeply": 1})


@pytest.mark.parametrize(
    ("stated", "kept", "noted"),
    [
        ("fa*4", "fa", False),
        ("fa*1", "fa*1", False),
        ("[fa*2&fb*2]", "[fa*2&fb*2]", False),
        ("[fa*2|fb*3]", "[fa*2|fb*3]", True),
        ("[r1|r2]", "[r1|r2]", False),
    ],
)
def test_counts_of_nodes_in_a_constraint_are_those_of_the_job(
    read: Reading, log: Log, stated: str, kept: str, noted: bool
) -> None:
    row = _BARE | {
        "NNodes": "4",
        "AllocTRES": "billing=4,cpu=4,mem=4096M,node=4",
        "NodeList": "n[1-4]",
        "Constraints": stated,
    }
    got = read(log(row, delimiter=";"))
    assert got.jobs[0].request.constraint == kept
    assert got.noted == (
        {"whose constraint has alternatives of counts, of which only the features are modelled": 1} if noted else {}
    )


@pytest.mark.parametrize(("stated", "noted"), [("64", 1), ("4", 0), ("", 0)])
def test_cores_that_two_columns_state_differently_are_noted(read: Reading, log: Log, stated: str, noted: int) -> None:
    got = read(log({"NCPUS": stated, "AllocTRES": "cpu=4,mem=4G,node=1", "ReqTRES": "cpu=4,mem=4G,node=1"}))
    assert (_only(got).cpus, got.noted) == (
        4, {"whose NCPUS and AllocTRES disagree; taken as AllocTRES": 1} if noted else {},
    )  # fmt: skip


def test_licences_among_the_resources_are_requested(read: Reading, log: Log) -> None:
    asked = "billing=4,cpu=4,gres/gpu=2,license/solver=3,mem=4096M,node=1"
    got = read(log({"ReqTRES": asked}, {"JobID": "8"}))
    assert [job.request.licences if job.request else () for job in got.jobs] == [(("solver", 3),), ()]


def test_json_gives_the_tasks_of_a_pending_array_from_0_on(read: Reading, samples: Path, tmp_path: Path) -> None:
    document = json.loads((samples / "sacct" / "jobs.json").read_text())
    (waiting,) = [row for row in document["jobs"] if row.get("array", {}).get("task")]
    waiting["array"]["task"] = "0x2d"  # bits 0, 2, 3 and 5
    (tmp_path / "log.json").write_text(json.dumps(document))
    assert read(tmp_path / "log.json").noted["array tasks never ran, at least"] == 4


def test_a_log_without_lines_of_submission_says_what_it_lacks(tmp_path: Path) -> None:
    head = "JobIDRaw|State|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|AllocTRES"
    row = "1|COMPLETED|1|2|5|3|1|1|cpu=1,node=1"
    for names, words in (
        ("", "none, because the log has no"),
        ("|Constraints|Reservation", "Constraints and Reservation, because the"),
    ):
        (tmp_path / "log").write_text(f"{head}{names}\n{row}{'|' * names.count('|')}\n")
        assert open_trace(tmp_path / "log").assumptions["terms"].startswith(words)
    (tmp_path / "more").write_text("JobIDRaw|SubmitLine\n1|sbatch x\n")
    assert "terms" not in open_trace(tmp_path).assumptions


@pytest.mark.parametrize(
    ("job", "tasks"),
    {
        **{"9": None, "9_4": None, "9_[3]": 1, "9_[3-90,95,97-99%8]": 92, "9_[0-9:2]": 5, "9_[1-10:3,20]": 5},
        **{"9_[5-3]": 1, "9_[0-99:0]": 100, "9_[1,2,30...]": 2},  # the last number may have been cut off
    }.items(),
)
def test_an_array_of_slurm_jobs_is_counted(job: str, tasks: int | None) -> None:
    assert array_tasks(job) == tasks
    cut_off = job.endswith("...]")  # the count is a lower bound, but the ids include the number that was cut off
    assert len(array_ids(job)) == (tasks or 1) + cut_off


@pytest.mark.parametrize("listed", ["a", "1-b", "1-9:c", "", "1,,2", "123456789", "-3", "0-99999999,0-99999999"])
def test_an_array_that_is_no_list_of_tasks_is_refused(listed: str) -> None:
    with pytest.raises(Dirty, match="with an invalid list of array tasks"):
        array_tasks(f"9_[{listed}]")
    assert array_ids(f"9_[{listed}]") == [f"9_[{listed}]"]


@pytest.mark.parametrize(
    ("listed", "ids"), [("3-5,9x...", [3, 4, 5]), ("3,95-9...", [3, 95]), ("3,7-9:...", [3, 7, 8, 9])]
)
def test_the_end_of_a_list_that_was_cut_off_is_read_if_it_can_be(listed: str, ids: list[int]) -> None:
    assert array_ids(f"9_[{listed}]") == [f"9_{task}" for task in ids]


@pytest.mark.parametrize(
    ("text", "whole"), [("B+", "BOOT_FAIL"), ("OUT_OF_ME+", "OUT_OF_MEMORY"), ("completed", "COMPLETED")]
)
def test_a_state_may_be_cut_to_one_letter(text: str, whole: str) -> None:
    assert state(text) == whole
    with pytest.raises(Dirty, match="in an unknown state"):
        state("C+")
    with pytest.raises(Dirty, match="in an unknown state"):
        state("+")

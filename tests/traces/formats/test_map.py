"""Tables of anyone's: columns by --map, dates, JSON lines, and what is said of a file that is nearly recognised."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import ConfigError, TraceError
from dagsim.traces import TraceOptions, open_trace, recognise

Reading = Callable[..., Any]

CSV = "id=JobName,arrival_s=submit_time,gpus=NumGPUs,duration_s=runtime,tenant=Owner"
JSON = (
    "id=job_id,arrival_s=submitted_at,gpus=resources.n_gpu,start_s=started_at,end_s=ended_at,tenant=team,"
    "gpu_type=resources.kind"
)


def test_columns_of_a_csv_are_those_of_the_map(read: Reading, samples: Path) -> None:
    got = read(samples / "plain" / "foreign.csv", map=CSV)
    assert got.trace.format == "plain"
    assert [(job.id, job.arrival_s, job.tasks[0].gpus, job.tasks[0].work, job.tenant) for job in got.jobs] == [
        ("b", 0, 1, 90, "jon"), ("a", 3600, 4, 86410, "ines"),
    ]  # fmt: skip


def test_fields_of_json_lines_are_those_of_the_map(read: Reading, samples: Path) -> None:
    got = read(samples / "plain" / "foreign.jsonl", map=JSON, timezone="Europe/Berlin", gpu_names="gpu-large=H100")
    first, second = got.jobs  # 10:10 in Berlin is 9:10 in UTC
    assert (first.id, first.tasks[0].work, first.tasks[0].gpu_types, first.observed_start_s) == (
        "run-1", 1800, ("H100",), 300,
    )  # fmt: skip
    assert (second.arrival_s, second.tasks[0].work, second.observed_start_s) == (600, 60, 600)
    assert got.dropped == {"with a non-numeric value for arrival_s": 1, "without gpus": 1}


def test_a_map_that_names_what_is_not_there_is_refused(samples: Path) -> None:
    path = samples / "plain" / "foreign.csv"
    for text, message in (
        (
            "arrivals=submit_time",
            r"--map arrivals=submit_time: dagsim has no field 'arrivals'; did you mean 'arrival_s'\?",
        ),
        (
            "arrival_s=submit",
            r"--map arrival_s=submit: \S*foreign\.csv has no column 'submit'; its columns are jobname, submit_time",
        ),
        ("arrival_s=submit_time", r"there is no column for id, gpus, duration_s; .*id=COLUMN"),
    ):
        with pytest.raises(TraceError, match=message):
            list(open_trace(path, options=TraceOptions(map=text)).jobs())
    for text in ("arrival_s", "=x", "gpus=a,gpus=b"):
        with pytest.raises(ConfigError, match="map must be pairs like arrival_s=submitted_at"):
            TraceOptions(map=text)


def test_a_table_that_is_nearly_recognised_says_the_command_that_reads_it(read: Reading, samples: Path) -> None:
    path = samples / "plain" / "foreign.csv"
    with pytest.raises(
        TraceError, match="almost a table in the format 'plain', but it lacks id, arrival_s, gpus, duration_s"
    ) as caught:
        recognise(path)
    command = shlex.split(str(caught.value).partition("dagsim replay")[2])
    assert command[:3] == ["--trace", str(path), "--map"]
    assert command[3] == "id=jobname,arrival_s=submit_time,gpus=numgpus,duration_s=runtime"
    assert len(read(path, map=command[3]).jobs) == 2


def test_the_name_of_a_file_cannot_break_out_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "x; rm -rf $HOME.csv"
    path.write_text("job_id,submit,gpu\n1,2,3\n")
    with pytest.raises(TraceError) as caught:
        recognise(path)
    command = str(caught.value).partition("dagsim replay")[2]
    assert shlex.split(command) == [
        "--trace",
        str(path),
        "--map",
        "id=job_id,arrival_s=submit,gpus=gpu,duration_s=COLUMN",
    ]


@pytest.mark.family("slurm")
def test_a_header_of_sacct_for_people_says_the_command_for_programs(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("JobID           JobName  Partition      State ExitCode \n1 x gpu COMPLETED 0:0\n")
    with pytest.raises(TraceError, match=r"almost a log in the format 'sacct', .*sacct --allusers --duplicates"):
        recognise(tmp_path / "log")


def test_other_tables_are_not_recognised_at_all(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("date,price\n1,2\n")
    with pytest.raises(TraceError, match="not recognised as a trace"):
        recognise(tmp_path / "x.csv")


def test_a_table_of_unknown_columns_is_told_its_columns_and_the_map(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("auftrag;beginn;karten;dauer\n7;0;2;30\n")
    with pytest.raises(TraceError, match=r"columns are auftrag, beginn, karten, dauer; .* --map id=COLUMN,arriv"):
        recognise(tmp_path / "x.csv")


def test_claimed_durations_may_be_days_hours_minutes_and_seconds(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,arrival_s,gpus,duration_s,limit\na,0,1,60,02:00:00\nb,1,1,60,1-00:00:10\n")
    got = read(tmp_path / "x.csv", map="estimate_s=limit")
    assert [job.tasks[0].estimate for job in got.jobs] == [7200, 86_410]


def test_nodes_share_the_totals_of_a_row(read: Reading, tmp_path: Path) -> None:
    rows = "a,0,8,60,2,16,64\nb,1,3,60,2,6,12\nc,2,0,60,4,40,80\nd,3,2,60,,4,8\n"
    (tmp_path / "x.csv").write_text(f"id,arrival_s,gpus,duration_s,n,cpus,memory_gb\n{rows}")
    got = read(tmp_path / "x.csv", map="nodes=n")
    demands = [(t.instances, t.gang, t.gpus, t.cpus, t.memory_gb) for t in (job.tasks[0] for job in got.jobs)]
    assert demands == [(2, True, 4, 8, 32), (3, True, 1, 2, 4), (4, True, 0, 10, 20), (1, False, 2, 4, 8)]
    assert got.noted == {"with GPUs spread unevenly over their nodes (treated as single GPUs)": 1}


def test_a_state_says_which_rows_are_jobs_that_ran(read: Reading, tmp_path: Path) -> None:
    rows = "a,0,1,60,COMPLETED\nb,1,1,60,cancelled by 7\nc,2,1,0,CANCELLED\nd,3,1,5,Running\ne,4,1,5,blue\n"
    (tmp_path / "x.csv").write_text(f"id,arrival_s,gpus,duration_s,how\n{rows}")
    got = read(tmp_path / "x.csv", map="state=how")
    assert [job.id for job in got.jobs] == ["a", "b", "e"]
    assert got.dropped == {"cancelled before they started": 1, "that outlive the trace": 1}
    assert got.noted == {"whose state is unknown (taken as ended)": 1}


def test_a_type_may_be_the_site_s_word_and_a_constraint_is_a_request(read: Reading, tmp_path: Path) -> None:
    rows = "a,0,1,60,a100,nvl|ib\nb,1,1,60,h100,\nc,2,1,60,,(((\n"
    (tmp_path / "x.csv").write_text(f"id,arrival_s,gpus,duration_s,card,features\n{rows}")
    got = read(tmp_path / "x.csv", map="type=card,constraint=features")
    assert [job.tasks[0].gpu_types for job in got.jobs] == [("A100-40",), ("H100",), None]
    assert [job.request.constraint if job.request else "" for job in got.jobs] == ["nvl|ib", "", ""]
    assert got.noted == {"whose constraint cannot be read": 1}


def test_rows_with_impossible_nodes_or_gpus_are_dropped(read: Reading, tmp_path: Path) -> None:
    rows = "a,0,8,60,0\nb,1,inf,60,2\nc,2,x,60,2\nd,3,4,60,1.5\ne,4,4,60,2\n"
    (tmp_path / "x.csv").write_text(f"id,arrival_s,gpus,duration_s,nodes\n{rows}")
    got = read(tmp_path / "x.csv")
    assert [(job.id, job.tasks[0].instances, job.tasks[0].gpus) for job in got.jobs] == [("e", 2, 2)]
    assert got.dropped == {"with an invalid value for nodes": 2, "with a non-numeric value for gpus": 2}


RECORDS = '{"Nr": 5, "queued": 100, "cards": 2, "ran": 60}', '{"Nr": 6, "queued": 130, "cards": 1, "ran": 30}'
MAP = "id=Nr,arrival_s=queued,gpus=cards,duration_s=ran"


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(RECORDS),
        f"[{', '.join(RECORDS)}]",
        "[\n " + ",\n ".join(RECORDS) + "\n]\n",
        f'{{"jobs": [{", ".join(RECORDS)}]}}',
    ],
)
def test_records_are_read_one_a_line_and_in_an_array(read: Reading, tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    jobs = read(tmp_path / "log", map=MAP).jobs
    assert [(job.id, job.arrival_s, job.tasks[0].gpus, job.tasks[0].work) for job in jobs] == [
        ("5", 0, 2, 60), ("6", 30, 1, 30),
    ]  # fmt: skip


def test_an_array_is_told_the_map_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(f"[{RECORDS[0]}]")
    with pytest.raises(TraceError, match=r"its columns are nr, queued, cards, ran; .* --map id=COLUMN"):
        recognise(tmp_path / "x.json")


def test_a_number_in_the_map_holds_for_all_rows(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("n,at,s\na,0,9\nb,5,7\n")
    jobs = read(tmp_path / "log.csv", map="id=n,arrival_s=at,duration_s=s,cpus=16,memory_gb=2.5,gpus=0").jobs
    assert {(job.tasks[0].cpus, job.tasks[0].memory_gb, job.tasks[0].gpus) for job in jobs} == {(16, 2.5, 0)}
    with pytest.raises(TraceError, match=r"--map id=7: \S* has no column '7'"):
        open_trace(tmp_path / "log.csv", options=TraceOptions(map="id=7,arrival_s=at,duration_s=s,gpus=0")).arrays()


@pytest.mark.parametrize("per_second", [1, 10**3, 10**6, 10**9])
def test_times_in_smaller_units_are_seconds_with_a_note(read: Reading, tmp_path: Path, per_second: int) -> None:
    times = [str(at * per_second) for at in (1_790_000_000, 1_790_000_060, 1_790_000_360)]
    (tmp_path / "t.csv").write_text(f"job,sub,from,to,gpus\n1,{','.join(times)},2\n")
    got = read(tmp_path / "t.csv", map="id=job,arrival_s=sub,start_s=from,end_s=to,gpus=gpus")
    assert (got.jobs[0].tasks[0].work, got.jobs[0].observed_start_s) == (300, 60)
    assert sum("milliseconds" in note for note in got.noted) == (per_second > 1)


@pytest.mark.parametrize(("first", "noted"), [(45234.5, True), (45234.0, False), (4523.5, False), (90_000.5, False)])
def test_day_numbers_of_a_spreadsheet_are_noted(read: Reading, tmp_path: Path, first: float, noted: bool) -> None:
    rows = [f"{job},{first + at},{first + at + 1},{first + at + 3},2" for job, at in enumerate((0, 2, 5))]
    (tmp_path / "t.csv").write_text("\n".join(["job,sub,from,to,gpus", *rows]))
    got = read(tmp_path / "t.csv", map="id=job,arrival_s=sub,start_s=from,end_s=to,gpus=gpus")
    assert [count for note, count in got.noted.items() if "day numbers" in note] == [3] * noted


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        (("1790000000", "0", "1790000360"), "that never ran (their start_s is not set)"),
        (("1790000000", "1790000060", "4294967294"), "that never ran (their end_s is not set)"),
        (("0", "1790000060", "1790000360"), "without a time of arrival"),
        (("20260921120000", "20260921120100", "20260921120200"), "with a non-numeric value for end_s"),
    ],
)
def test_a_mark_for_not_set_is_no_time(read: Reading, tmp_path: Path, times: tuple[str, ...], reason: str) -> None:
    (tmp_path / "t.csv").write_text(
        f"job,sub,from,to,gpus\n1,{','.join(times)},2\n2,1790000000,1790000001,1790000002,1\n"
    )
    got = read(tmp_path / "t.csv", map="id=job,arrival_s=sub,start_s=from,end_s=to,gpus=gpus")
    assert (len(got.jobs), got.dropped) == (1, {reason: 1})


def test_a_clock_that_begins_at_0_may_begin_at_0(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job,sub,from,to,gpus\n1,0,0,50,2\n")
    got = read(tmp_path / "t.csv", map="id=job,arrival_s=sub,start_s=from,end_s=to,gpus=gpus")
    assert (got.jobs[0].observed_start_s, got.jobs[0].tasks[0].work, got.noted) == (0, 50, {})


def test_a_duration_of_two_numbers_is_told(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job,sub,for,gpus\n1,0,02:30,2\n2,0,1:02:30,2\n")
    got = read(tmp_path / "t.csv", map="id=job,arrival_s=sub,duration_s=for,gpus=gpus")
    assert [job.tasks[0].work for job in got.jobs] == [150, 3750]
    assert got.noted == {"with two numbers in duration_s, taken as minutes and seconds": 1}


def test_a_name_twice_in_an_object_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('[{"job": 1, "sub": 0, "for": 9, "gpus": 1, "gpus": 8}]')
    with pytest.raises(TraceError, match="'gpus' twice"):
        list(
            open_trace(
                tmp_path / "t.json", options=TraceOptions(map="id=job,arrival_s=sub,duration_s=for,gpus=gpus")
            ).jobs()
        )


@pytest.mark.parametrize(("limit", "noted"), [("0", 1), ("-1", 1), ("", 0), ("UNLIMITED", 0)])
def test_a_limit_that_is_none_is_not_stated(read: Reading, tmp_path: Path, limit: str, noted: int) -> None:
    (tmp_path / "t.csv").write_text(f"job,sub,for,gpus,lim\n1,0,50,2,{limit}\n2,0,50,2,60\n")
    got = read(tmp_path / "t.csv", map="id=job,arrival_s=sub,duration_s=for,gpus=gpus,estimate_s=lim")
    assert [job.tasks[0].estimate for job in got.jobs] == [None, 60]
    assert list(got.noted.values()) == [1] * noted

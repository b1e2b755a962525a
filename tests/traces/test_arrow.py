"""Parquet and Arrow files: the jobs and notes of the CSV of the same rows."""

from __future__ import annotations

import csv
import gzip
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from traces.formats.in_columns import ways

from dagsim.errors import TraceError
from dagsim.traces import READERS, TraceOptions, open_trace, recognise

arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"
ALIBABA_2018 = "task_name,instance_num,job_name,task_type,status,start_time,end_time,plan_cpu,plan_mem"
ALIBABA_2017 = "create_timestamp,modify_timestamp,job_id,task_id,instance_num,status,plan_cpu,plan_mem"
TABLES = tuple(
    row
    for row in (
        ("itp", "elastic.csv", ""),
        ("tiresias", "muri.csv", ""),
        ("tiresias", "sia.csv", ""),
        ("openb2023", "openb_pod_list_sample.csv", ""),
        ("helios", "cluster_log.csv", ""),
        ("pai2020", "pai_job_duration_sample.csv", ""),
        ("pai2020", "hydra_sample.csv", ""),
        ("plain", "jobs.csv", ""),
        ("plain", "tasks.csv", ""),
        ("philly", "philly_list.csv", ""),
        ("google2019", "kaggle_sample.csv", ""),
        ("sacct", "jobs.txt", ""),
        ("swf", "sample.swf", ",".join(f"field {place}" for place in range(18))),
        ("alibaba2018", "batch_task.csv", ALIBABA_2018),
        ("alibaba2017", "batch_task.csv", ALIBABA_2017),
    )
    if row[0] in READERS  # a family may be missing
)


def table_of(path: Path, names: str) -> tuple[Any, list[int]]:
    """The rows of a sample that have all fields, and their lines; columns of numbers are numbers."""
    separator = {".swf": " ", ".txt": "|"}.get(path.suffix, ",")
    reader = csv.reader(path.read_text().splitlines(keepends=True), delimiter=separator, skipinitialspace=True)
    rows, line = [], 1
    for row in reader:
        rows.append((line, row))
        line = reader.line_num + 1
    rows = [(line, row) for line, row in rows if row and not row[0].startswith(";")]
    head = names.split(",") if names else rows.pop(0)[1]
    rows = [(line, row) for line, row in rows if len(row) == len(head)]
    columns = {name: typed([row[place] or None for _, row in rows]) for place, name in enumerate(head)}
    return arrow.table(columns), [line for line, _ in rows]


def typed(texts: list[str | None]) -> Any:
    array = arrow.array(texts, arrow.string())
    for kind in () if "nan" in texts else (arrow.int64(), arrow.float64()):
        try:
            return array.cast(kind)
        except arrow.ArrowInvalid:
            continue
    return array.dictionary_encode() if len(set(texts)) < len(texts) else array


def written(table: Any, path: Path) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=3)
    else:
        with arrow.OSFile(str(path), "wb") as file, arrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return path


def jobs(table: dict[str, Any], folder: Path, **options: Any) -> list[Any]:
    path = written(arrow.table(table), folder / "jobs.parquet")
    return list(open_trace(path, None, TraceOptions(**options)).jobs())


def notes(trace: Any, lines: dict[int, int]) -> list[tuple[int, str]]:
    """Line and text of each note, without those on rows that the Parquet file lacks."""
    split = [detail.removeprefix(f"{trace.source}:").partition(":") for detail in trace.report.details]
    return [(lines[int(line)], text) for line, _, text in split if int(line) in lines]


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize(("format_", "file", "names"), TABLES)
def test_a_file_gives_the_jobs_and_notes_of_the_csv_of_its_rows(
    format_: str, file: str, names: str, ending: str, tmp_path: Path
) -> None:
    table, lines = table_of(SAMPLES / format_ / file, names)
    path = written(table, tmp_path / f"batch_task{ending}")
    assert recognise(path) == format_
    options = TraceOptions(processors=128 if format_ == "swf" else None)  # the header of the text says so
    stored, text = (
        open_trace(source, format_, options, full_report=True) for source in (path, SAMPLES / format_ / file)
    )
    assert list(stored.jobs()) == list(text.jobs())
    if format_ == "google2019":  # fields that span lines, read as text
        return
    assert notes(stored, dict(enumerate(lines, 2))) == notes(text, {at: at for at in lines})


@pytest.mark.parametrize(("format_", "file", "names"), TABLES)
def test_batches_and_parts_on_disk_make_no_difference(
    format_: str, file: str, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = table_of(SAMPLES / format_ / file, names)
    path = written(table, tmp_path / "batch_task.parquet")
    first, *others = ways(path, format_, TraceOptions())
    assert all(other == first for other in others)
    monkeypatch.setattr("dagsim.traces.arrow._ROWS", 2)
    assert all(other == first for other in ways(path, format_, TraceOptions()))


@pytest.mark.family("formats")
def test_a_folder_of_parts_is_one_table(tmp_path: Path) -> None:
    table, _ = table_of(SAMPLES / "itp" / "elastic.csv", "")
    whole = written(table, tmp_path / "whole.parquet")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "_SUCCESS").touch()
    for part in range(2):
        written(table.slice(part, 1 if part == 0 else len(table)), tmp_path / "parts" / f"part-{part}.parquet")
    assert list(open_trace(tmp_path / "parts").jobs()) == list(open_trace(whole).jobs())


def test_types_that_a_csv_lacks_become_the_numbers_and_dates_that_it_would_have(tmp_path: Path) -> None:
    start = datetime(2024, 1, 31, 23, 59, 30)
    job_list = jobs(
        {
            "id": arrow.array([7, 8, 9]),
            "arrival_s": arrow.array([start, start + timedelta(seconds=45), start + timedelta(seconds=60.5)]),
            "gpus": arrow.array([Decimal("1.00"), Decimal("0.50"), Decimal("2.00")]),
            "duration_s": arrow.array([timedelta(seconds=90), timedelta(minutes=2), timedelta(milliseconds=2500)]),
            "gang": arrow.array([True, False, None]),
            "instances": arrow.array([2, 2, None]),
            "tenant": arrow.array(["red", None, "red"]).dictionary_encode(),
            "priority": arrow.array([1.5, float("nan"), None], arrow.float32()),
            "gpu_type": arrow.array([["V100-16", "A100-40"], None, []]),
            "memory_gb": arrow.nulls(3),
        },
        tmp_path,
    )
    assert [job.id for job in job_list] == ["7", "8", "9"]
    assert [job.arrival_s for job in job_list] == [0.0, 45.0, 60.5]
    assert [(job.tasks[0].gpus, job.tasks[0].work) for job in job_list] == [(1.0, 90.0), (0.5, 120.0), (2.0, 2.5)]
    assert [(job.tasks[0].gang, job.tasks[0].instances) for job in job_list] == [(True, 2), (False, 2), (False, 1)]
    assert [(job.tenant, job.priority) for job in job_list] == [("red", 1.5), ("", 0.0), ("red", 0.0)]
    assert [job.tasks[0].gpu_types for job in job_list] == [("V100-16", "A100-40"), None, None]


def test_times_with_a_zone_are_not_moved_by_the_zone_of_the_log(tmp_path: Path) -> None:
    table = {
        "id": ["a", "b"],
        "arrival_s": arrow.array([date(2024, 3, 31), date(2024, 4, 1)]),
        "end_s": arrow.array([datetime(2024, 4, 2, tzinfo=UTC)] * 2, arrow.timestamp("ns", "Europe/Berlin")),
        "start_s": arrow.array([datetime(2024, 4, 1, 23, 59)] * 2),
        "gpus": [1, 1],
    }
    (first, second) = jobs(table, tmp_path, timezone="Europe/Berlin")
    assert second.arrival_s == 23 * 3600, "the night of the change has one hour less"
    assert first.tasks[0].work == 60 + 2 * 3600, "23:59 in Berlin is 21:59 UTC"


def test_a_column_of_an_unsupported_type_is_named_if_it_is_needed(tmp_path: Path) -> None:
    table = {"id": ["a"], "arrival_s": [0], "gpus": [1], "duration_s": [2], "blob": arrow.array([b"\xff"])}
    with pytest.raises(TraceError, match="unknown column 'blob'"):
        jobs(table, tmp_path)
    assert len(jobs(table, tmp_path, map="id=id")) == 1
    with pytest.raises(TraceError, match=r"jobs.parquet:1: the column 'gpus' has the type struct<x: int64>, which"):
        jobs(table | {"gpus": [{"x": 1}]}, tmp_path, map="id=id")


@pytest.mark.family("formats")
def test_a_date_where_a_number_belongs_is_dropped_with_its_line(tmp_path: Path) -> None:
    table = {"job_id": ["a", "b"], "submission_time": ["5", "2024-01-01"], "duration": [1, 1], "num_gpu": [1, 1]}
    trace = open_trace(written(arrow.table(table), tmp_path / "a.parquet"))
    assert len(list(trace.jobs())) == 1
    (detail,) = trace.report.details
    assert detail.startswith(f"{tmp_path / 'a.parquet'}:3: dropped, with a non-numeric value for submission_time")


def test_a_damaged_or_packed_file_is_refused_with_a_reason(tmp_path: Path) -> None:
    table, _ = table_of(SAMPLES / "itp" / "elastic.csv", "")
    path = written(table, tmp_path / "a.parquet")
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(TraceError, match=r"a.parquet:1: a damaged or unsupported Parquet file"):
        recognise(path)
    path.write_bytes(gzip.compress(content))
    with pytest.raises(TraceError, match=r"a.parquet:1: .*unpack it first"):
        recognise(path)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    column = arrow.array([1])
    path = written(arrow.Table.from_arrays([column, column], names=["id", "id"]), tmp_path / "a.arrow")
    with pytest.raises(TraceError, match=r"a.arrow:1: two columns have the name 'id'"):
        recognise(path)


def test_without_pyarrow_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(50))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TraceError, match=r"a.parquet: reading .* needs pyarrow; run pip install -e '.\[parquet\]'"):
        recognise(tmp_path / "a.parquet")


def test_lists_become_words_and_empty_lists_are_empty(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    columns = {"id": ["a", "b", "c"], "arrival_s": [0.0, 1.0, 2.0], "gpus": [1, 1, 1], "duration_s": [5.0, 5.0, 5.0]}
    parquet.write_table(arrow.table(columns | {"gpu_type": [["T4", "V100-16"], [], None]}), path)
    jobs = list(open_trace(path, "plain").jobs())
    assert [job.tasks[0].gpu_types for job in jobs] == [("T4", "V100-16"), None, None]

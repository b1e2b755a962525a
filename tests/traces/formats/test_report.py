"""What the report counts, and what strict reading makes of it."""

from __future__ import annotations

import pytest

from dagsim.errors import TraceError
from dagsim.traces import ReadReport


def test_it_reads_as_a_sentence() -> None:
    report = ReadReport(rows=100_260, kept=99_871)
    report.drop("cyclic", "t.csv:3", 262)
    report.drop("without end", "t.csv:9", 127)
    assert str(report) == "read 100,260 rows: kept 99,871; dropped 262 cyclic, 127 without end"
    assert report.open == 0


def test_strict_reading_stops_at_the_first_drop_with_file_and_line() -> None:
    report = ReadReport(strict=True)
    report.note("odd names", "t.csv:1")
    with pytest.raises(TraceError, match=r"^t\.csv:3: strict reading stops .* one cyclic: a -> b -> a$"):
        report.drop("cyclic", "t.csv:3", detail="a -> b -> a")


def test_details_are_bounded_unless_all_are_wanted() -> None:
    short, full = ReadReport(), ReadReport(full=True)
    for report in (short, full):
        for line in range(500):
            report.drop("without end", f"t.csv:{line}")
    assert len(short.details) == 100
    assert len(full.details) == 500
    assert short.dropped == full.dropped == {"without end": 500}


def test_it_becomes_plain_data() -> None:
    report = ReadReport(rows=5, kept=2, jobs=1)
    report.drop("cyclic", "t:1")
    report.skip("after the window", 2)
    report.note("odd", "t:1")
    assert report.to_dict() == {
        "rows": 5,
        "kept": 2,
        "jobs": 1,
        "dropped": {"cyclic": 1},
        "noted": {"odd": 1},
        "skipped": {"after the window": 2},
    }


def test_a_detail_as_long_as_a_file_is_cut_off() -> None:
    report = ReadReport()
    report.drop("cyclic", "a.csv:1", detail="x" * 70_000)
    assert report.details == [f"a.csv:1: dropped, cyclic: {'x' * 400} ..."]

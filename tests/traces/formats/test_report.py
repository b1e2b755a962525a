"""What the report counts, and what strict reading makes of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import dagsim
from dagsim.errors import TraceError
from dagsim.traces import ReadReport
from dagsim.traces.report import PHRASES, contradiction_in


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


def test_every_pattern_of_contradictions_still_matches_a_reason_of_a_reader() -> None:
    """A reworded reason would silently leave the report of contradictions, and ``--strict`` would accept it."""
    package = Path(dagsim.__file__).parent
    files = [*(package / "traces").rglob("*.py"), *(package / "families").rglob("*.py")]
    nodes = (node for file in files if file.name != "report.py" for node in ast.walk(ast.parse(file.read_text())))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for kind, patterns in PHRASES.items():
        for pattern in patterns:
            assert any(re.search(pattern, text) for text in texts if "\n" not in text), (kind, pattern)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("in an hour that occurs twice in their time zone (taken as the first)", "times"),
        ("with GPUs taken from the submit arguments, because no resource states any", "text"),
        ("with the id of an earlier row (treated as separate jobs)", "ids"),
        ("whose list of nodes and NNodes disagree", "columns"),
        ("of daemon sets", ""),
    ],
)
def test_a_reason_has_the_kind_of_its_contradiction(reason: str, kind: str) -> None:
    assert contradiction_in(reason) == kind

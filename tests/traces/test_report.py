"""What the report counts, and what strict reading makes of it."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

import dagsim
from dagsim.errors import TraceError
from dagsim.traces import ReadReport
from dagsim.traces.fields import Contradictory, Dirty, InvalidValue
from dagsim.traces.report import (
    CONTRADICTIONS,
    OF_ROWS,
    Disagreement,
    Hours,
    ImpossibleTimes,
    OnlyInText,
    RepeatedId,
)
from dagsim.traces.typed_table import distinct_texts
from dagsim.workload.array_tools import objects


def test_it_reads_as_a_sentence() -> None:
    report = ReadReport(rows=100_260, kept=99_871)
    report.drop("cyclic", "t.csv:3", 262)
    report.drop("without end", "t.csv:9", 127)
    assert str(report) == "read 100,260 rows: kept 99,871; dropped 262 cyclic, 127 without end"
    assert report.open == 0


def test_strict_reading_stops_at_the_first_drop_with_file_and_line() -> None:
    report = ReadReport(strict=True)
    report.note("odd names", "t.csv:1")
    with pytest.raises(
        TraceError, match=r"^t\.csv:3: strict reading stops at the first faulty row: cyclic \(a -> b -> a\)$"
    ):
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


REASONS = [
    (Disagreement("a"), "columns"),
    (ImpossibleTimes("b"), "times"),
    (InvalidValue("e"), "values"),
    (OnlyInText("c"), "text"),
    (RepeatedId("d"), "ids"),
]


def test_every_kind_of_contradiction_between_rows_has_a_class_of_reasons() -> None:
    assert sorted(kind for _, kind in REASONS) == sorted(OF_ROWS)
    assert set(OF_ROWS) < set(CONTRADICTIONS)


@pytest.mark.parametrize(("reason", "kind"), REASONS)
@pytest.mark.parametrize("drops", [True, False])
def test_the_class_of_a_reason_and_not_its_words_makes_it_a_contradiction(
    reason: Contradictory, kind: str, drops: bool
) -> None:
    report = ReadReport()
    for text in (reason, str.__str__(reason)):  # the second is an ordinary text with the same words
        (report.drop if drops else report.note)(text, "t.csv:3", 2)
    report.count(reason, drops=drops, rows=5)
    report.once(kind, 0, Hours(1.0, 2.0))
    (told,) = report.contradictions.values()
    assert (set(report.contradictions), told.count, told.hours) == ({kind}, 7, Hours(1.0, 2.0))
    assert told.reasons == {reason: (7, ("t.csv:3",))}
    assert (report.dropped if drops else report.noted) == {reason: 9}


@pytest.mark.parametrize(("reason", "kind"), REASONS)
def test_a_reason_keeps_its_kind_on_its_way_to_the_report(reason: Contradictory, kind: str) -> None:
    report = ReadReport()
    with report.dropping("t.csv:3"):
        raise Dirty(reason)
    assert list(report.contradictions) == [kind]
    assert isinstance(pickle.loads(pickle.dumps(reason)), type(reason))
    for rows in (3, 100_000):  # columns of many rows are numbered differently
        _, words = distinct_texts(objects(["", *[reason] * rows]))
        assert [type(word) for word in words.tolist()] == [str, type(reason)]


def test_no_reader_says_the_words_of_a_contradiction_without_declaring_its_kind() -> None:
    """The same words stand in several readers, and one of them could be forgotten."""
    package = Path(dagsim.__file__).parent
    files = [*(package / "traces").rglob("*.py"), *(package / "families").rglob("*.py")]
    kinds = {kind.__name__ for kind in Contradictory.__subclasses__()}
    declared: set[str] = set()
    texts: set[str] = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
            reason = node.args[0]
            declared |= {reason.value} if isinstance(reason, ast.Constant) and isinstance(reason.value, str) else set()
        elif isinstance(node, ast.Call):
            texts |= {
                text.value for text in node.args if isinstance(text, ast.Constant) and isinstance(text.value, str)
            }
    assert len(declared) > 40
    assert not declared & texts

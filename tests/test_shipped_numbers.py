"""Numbers in shipped files, computed on one machine, are compared on others: a last digit that differs is no
difference, and a sixth one is.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from math import inf, nextafter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import make_pages
import numpy as np
import pytest
from support.command_line import fine
from support.pinning import Digits, as_recorded, plain

from dagsim.families.benchmark.checking import check_file
from dagsim.families.benchmark.entries import read_entry
from dagsim.metrics.standings import standings
from dagsim.model.arithmetic import differences, rounded

ROOT = Path(__file__).parents[1]
ENTRIES = sorted((ROOT / "results" / "bench").glob("*.json"))
POLICY_FAMILIES = {"decima": "decima", "ppo": "learning", "ppo-RAMP": "pac_ml", "search": "episodes"}
"""Families whose policies entries name, by the name of the entry."""
PINS = [path for path in sorted((ROOT / "tests").rglob("test_*.json")) if path.with_suffix(".py").exists()]


def entry(path: Path) -> Any:
    """The path as a parameter that is skipped without the family of its policy."""
    family = POLICY_FAMILIES.get(path.stem.removeprefix("bench-").rsplit("-", 2)[0])
    return pytest.param(path, marks=pytest.mark.family(family) if family else ())


def changed(value: Any, change: Callable[[float], Any]) -> Any:
    """The value with every float in it changed."""
    match value:
        case dict():
            return {key: changed(item, change) for key, item in value.items()}
        case list():
            return [changed(item, change) for item in value]
        case float() if value:
            return change(value)
    return value


def floats(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where floats are in a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(item, float) and item:
            yield *place, key
        yield from floats(item, (*place, key))


def with_sixth_digit(content: Any, place: tuple[Any, ...]) -> Any:
    """A copy in which one float differs in its sixth digit."""
    copy = deepcopy(content)
    holder = copy
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] *= 1 + 2e-6
    return copy


@pytest.mark.family("ramp", "spark")  # the suite has tasks of both
@pytest.mark.parametrize("path", [*map(entry, ENTRIES)], ids=lambda path: path.stem)
def test_an_entry_with_other_last_digits_follows_from_its_runs(path: Path) -> None:
    content, towards = read_entry(path), inf if ENTRIES.index(path) % 2 else -inf
    assert list(check_file(content)) == []
    scores = {"scores": content["scores"], "score": content["score"]}
    assert list(check_file(content | changed(scores, lambda value: nextafter(value, towards)))) == []
    assert list(check_file(changed(content, lambda value: nextafter(value, towards)))) == []


@pytest.mark.family("ramp", "spark")
@pytest.mark.parametrize("path", [*map(entry, ENTRIES[::32])], ids=lambda path: path.stem)
def test_an_entry_with_another_sixth_digit_does_not(path: Path) -> None:
    content = read_entry(path)
    facts = {key: content[key] for key in ("score", "scores", "bounds")}
    places = list(floats(facts))
    assert len(places) > 20
    for place in places:
        findings = list(check_file(content | with_sixth_digit(facts, place)))
        assert any("does not follow from the runs" in finding for finding in findings), place
        if place[0] != "bounds":
            assert findings[0].startswith(".".join(map(str, place))), place
    judged = {"area_weighted_jct_s", "queueing_s.p95", "utilization", "max_ftf"}
    runs = [place for place in floats({"tasks": content["tasks"]}) if place[1] == "batch" and place[-1] in judged]
    for place in runs[:8]:
        assert any("follow" in finding for finding in check_file(with_sixth_digit(content, place))), place


FROM_RESULTS = (
    *("agents", "ablations", "alibaba", "batch", "cirrus", "coverage", "forecast-costs", "forecasts", "gains", "grid"),
    *("heuristics", "peers", "periods", "plans", "policies", "ramp", "rules", "sample", "site", "speeds", "synthetic"),
    *("tpch", "trained", "trainings", "transfer"),
)
"""Tables that are made of numbers in shipped files, beside that of the entries."""


def in_cell(text: str, towards: float) -> str:
    """The text of a cell with another last digit, if it is a number with a fraction."""
    is_number = re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", text) and float(text)
    return repr(nextafter(float(text), towards)) if is_number else text


@pytest.mark.parametrize("towards", [inf, -inf])
@pytest.mark.parametrize("table", FROM_RESULTS)
def test_a_published_table_is_the_same_with_other_last_digits(
    table: str, towards: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> list[str]:
        for cached in (make_pages.decima_rows, make_pages.agents):
            cached.cache_clear()
        return list(make_pages.TABLES[table]())

    published, read_json, read_rows = made(), make_pages.read_json, make_pages.read_rows
    with monkeypatch.context() as patch:
        patch.setattr(
            make_pages, "read_json", lambda file: changed(read_json(file), lambda value: nextafter(value, towards))
        )
        patch.setattr(
            make_pages,
            "read_rows",
            lambda file: [{key: in_cell(text, towards) for key, text in row.items()} for row in read_rows(file)],
        )
        assert made() == published
    made()  # caches what is shipped again


def with_other_digits(path: Path, towards: float) -> None:
    """Change every number with a fraction in a file of results."""
    zipped = path.suffix == ".gz"
    text = gzip.decompress(path.read_bytes()).decode() if zipped else path.read_text(encoding="utf-8")
    if path.suffix in (".json", ".jsonl"):
        whole = [json.loads(line) for line in (text.splitlines() if path.suffix == ".jsonl" else [text])]
        text = "".join(json.dumps(changed(one, lambda value: nextafter(value, towards))) + "\n" for one in whole)
    else:
        text = "\n".join(",".join(in_cell(cell, towards) for cell in row.split(",")) for row in text.split("\n"))
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())


@pytest.mark.parametrize("towards", [inf, -inf])
def test_nothing_complains_of_a_run_folder_with_other_last_digits(towards: float, tmp_path: Path) -> None:
    def told(*words: object) -> str:
        return fine(*words).output

    small = ("--set", "workload.count=12", "--no-plots", "--out", tmp_path)
    told("baseline", "--policy", "sjf", "--policy", "heft", "--policy", "fifo", "--seeds", 3, *small)
    (run,) = (path for path in tmp_path.iterdir() if path.is_dir())
    looks = [("compare", run), ("why", run, "#1"), ("report", run, "-o", tmp_path / "page.html")]
    before = [told(*words) for words in looks]
    stored = [path for path in run.rglob("*") if path.suffixes[-1:] in ([".json"], [".jsonl"]) or ".csv" in path.name]
    assert len(stored) >= 5
    for path in stored:
        with_other_digits(path, towards)
    assert [told(*words) for words in looks] == before
    again = tmp_path / "again"
    told("eval", "--config", run, "--policy", "sjf", "--no-plots", "--out", again)
    both = told("compare", run, *again.iterdir(), "--reference", f"sjf @ {run.name}")
    assert f"= sjf @ {next(again.iterdir()).name[:9]}" in both
    assert "warning" not in both


@pytest.mark.parametrize(("value", "key"), [(1 / 3, 0.333333333), (-5875.5, -5875.5), (2e-300, 2e-300)])
def test_rounded_numbers_are_equal_if_they_differ_in_rounding_only(value: float, key: float) -> None:
    assert rounded(value) == rounded(nextafter(value, inf)) == rounded(nextafter(value, -inf)) == key
    assert rounded(value * (1 + 1e-7)) != key
    assert (rounded(inf), rounded(0.0)) == (inf, 0.0)


def test_policies_whose_scores_differ_in_the_last_digit_keep_their_order() -> None:
    lines = [
        SimpleNamespace(policy=policy, seed=seed, metrics={"jct_s.mean": value})
        for policy, value in (("late", nextafter(0.3, 1)), ("same", 0.3), ("early", nextafter(0.3, 0)))
        for seed in (1, 2)
    ]
    assert [standing.policy for standing in standings(lines, "jct_s.mean", "same")] == ["late", "same", "early"]


@pytest.mark.parametrize("value", [0, 7, -3, True, "0.25", None])
def test_what_is_equal_everywhere_is_compared_exactly(value: Any) -> None:
    assert list(differences({"a": [value]}, {"a": [value]})) == []
    for other in (1, 8, False, "0.2500000001", "", 2.5):
        assert list(differences({"a": [value]}, {"a": [other]})) == [("a[0]", value, other)]


def test_a_difference_is_found_wherever_it_is() -> None:
    one = {"a": {"b": [1.0, {"c": 2.0}]}, "d": [1, 2]}
    other = {"a": {"b": [1.0 + 1e-12, {"c": 2.00001}]}, "d": [1], "e": None}
    assert list(differences(one, other)) == [
        ("a.b[1].c", 2.0, 2.00001),
        ("d", [1, 2], [1]),
        ("e", None, None),
    ]
    assert list(differences(float("nan"), float("nan"))) == []
    assert list(differences(1.0, 1)) == []
    assert list(differences(0.0, 1e-300)) != []


@pytest.mark.parametrize("path", PINS, ids=lambda path: path.stem)
def test_pins_hold_with_other_last_digits_and_not_with_another_sixth_one(path: Path) -> None:
    pins = json.loads(path.read_text(encoding="utf-8"))

    def exact(value: Any, change: Callable[[float], float]) -> Any:
        """What a test sees that computes the recorded numbers, each changed."""
        match value:
            case dict():
                return {key: exact(item, change) for key, item in value.items()}
            case list():
                return [exact(item, change) for item in value]
            case str() if is_digits(value):
                seen = Digits(value)
                seen.exact = change(float(value))
                return seen if f"{seen.exact:g}" == value else Digits.of(seen.exact)
        return value

    def is_digits(text: str) -> bool:
        try:
            return f"{float(text):g}" == text and text not in ("inf", "-inf", "nan")
        except ValueError:
            return False

    assert as_recorded(exact(pins, lambda value: nextafter(value, inf)), pins)
    assert as_recorded(exact(pins, lambda value: nextafter(value, -inf)), pins)
    for name, pin in pins.items():
        moved = exact(pin, lambda value: value * (1 + 1e-5))
        assert as_recorded(moved, pin) == (moved == pin), name  # equal where there is no number


@pytest.mark.parametrize("value", [0.1234565, 123456.5, 2.0000005, 99999.95])
def test_a_number_between_two_roundings_is_either(value: float) -> None:
    for seen in (value, nextafter(value, -inf), nextafter(value, inf), value * (1 - 1e-12), value * (1 + 1e-12)):
        for recorded in {plain(value * (1 - 1e-11)), plain(value * (1 + 1e-11))}:
            assert as_recorded([plain(np.float64(seen))], [recorded])
    assert not as_recorded(plain(value * (1 + 2e-5)), plain(value))

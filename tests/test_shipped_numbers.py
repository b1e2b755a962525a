"""Numbers in shipped files, computed on one machine, are compared on others: a last digit that differs is no
difference, and a sixth one is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from math import inf, nextafter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pinning import Digits, as_recorded, plain

from dagsim.families.benchmark.bench import check_file, read_entry
from dagsim.model.arithmetic import differences

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

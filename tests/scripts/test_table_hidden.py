"""``scripts/table_hidden.py``: the agent beside the heuristics that were best on other seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import table_hidden
from table_hidden import AGENTS, PLACES, PREEMPTIVE, Place, Row, chosen, page


def test_a_heuristic_is_chosen_for_each_price_and_plain_ones_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def means_s(place: Place, policies: Sequence[str], seeds: Sequence[int], on: str) -> table_hidden.Means:
        ran.append((place, "easy" in policies))
        return {
            policy: dict.fromkeys(seeds, 100.0 + (policy != PREEMPTIVE[place.price_s // 30])) for policy in policies
        }

    monkeypatch.setattr(table_hidden, "means_s", means_s)
    monkeypatch.setattr(table_hidden, "OUT", tmp_path)
    table_hidden.choose("local", (), lambda text: None)
    assert [place for place, plain in ran if plain] == [
        place for place in PLACES if place[1:] in (("hidden", 0), ("noisy", 30))
    ]
    assert {chosen()[place, "preemptive"] for place in PLACES if place.price_s == 60} == {PREEMPTIVE[2]}


def test_the_page_shows_plain_heuristics_once_and_means_over_places() -> None:
    rows = [
        Row("dag-0.9", "hidden", price_s, agent, against, "easy", 2, ratio, 0.8, 1.2)
        for price_s in (0, 30)
        for agent, ratio in zip(AGENTS, (0.5, 2.0), strict=True)
        for against in ("plain", "preemptive")
    ]
    rows += [row._replace(known="noisy", price_s=30, ratio=row.ratio / 2) for row in rows[:4]]
    _, _, *lines = page(rows)
    assert [line.split(" | ")[2] for line in lines[:5]] == ["any", "0 s", "30 s", "any", "30 s"]
    assert lines[5].endswith("| 0.500 | 2.000 |")
    assert lines[7].endswith("| 0.250 | 1.000 |")

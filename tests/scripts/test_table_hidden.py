"""``scripts/table_hidden.py``: the agent beside the heuristics that were best on other seeds."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import table_hidden
from table_hidden import (
    AGENTS,
    ALL,
    CHECKED,
    DRAWN,
    PLACES,
    PREEMPTIVE,
    Place,
    Row,
    chosen,
    interquartile_mean,
    page,
    put,
)


def test_a_heuristic_is_chosen_for_each_price_and_plain_ones_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[Place, Sequence[str]]] = []

    def means_s(place: Place, policies: Sequence[str], seeds: Sequence[int], on: str) -> table_hidden.Means:
        ran.append((place, policies))
        return {
            policy: dict.fromkeys(seeds, 100.0 + (policy != PREEMPTIVE[place.price_s // 30])) for policy in policies
        }

    monkeypatch.setattr(table_hidden, "means_s", means_s)
    monkeypatch.setattr(table_hidden, "OUT", tmp_path)
    options = Namespace(on="local", kind=[], cell=[])
    table_hidden.choose(options, lambda text: None)
    assert [place for place, policies in ran if "easy" in policies] == [place for place in PLACES if not place.price_s]
    assert [place for place, policies in ran if "believing[policy=easy]" in policies] == [
        place for place in PLACES if place[1:] == ("hidden", 0) and place.cell in DRAWN
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


def test_training_seeds_are_compared_with_every_heuristic_of_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jct_s = dict.fromkeys(AGENTS, 150.0)
    for name, mean_s in (("a", 80.0), ("b", 125.0)):
        jct_s |= dict.fromkeys([f"ppo[checkpoint={name}.pt{beliefs}]" for beliefs in ("", ",beliefs=true")], mean_s)

    def means_s(place: Place, policies: Sequence[str], seeds: Sequence[int], on: str) -> table_hidden.Means:
        assert seeds == CHECKED
        return {policy: dict.fromkeys(seeds, jct_s.get(policy, 100.0)) for policy in policies}

    monkeypatch.setattr(table_hidden, "means_s", means_s)
    monkeypatch.setattr(table_hidden, "chosen", lambda: dict.fromkeys([(place, "preemptive") for place in PLACES], "x"))
    told: list[str] = []
    options = Namespace(agents=[Path("a.pt"), Path("b.pt")], validation=True, kind=[], cell=[], on="local")
    rows = table_hidden.seeds(options, lambda text: told.append(str(text)))
    assert len(rows) == 4 * len(PLACES)
    assert {row.agent: round(row.ratio, 3) for row in rows} == {"seed 1": 0.8, "seed 2": 1.25, "shipped": 1.5, ALL: 1.0}
    means = [line.split(" | ")[1:] for line in told[-1].splitlines() if line.startswith("| geometric mean")]
    assert [line[:6] for line in means] == [
        [known, "", "preemptive", "", "0.800", "1.250"] for known in ("hidden", "noisy", "limits")
    ]


def test_the_interquartile_mean_leaves_out_a_quarter_at_both_ends() -> None:
    ratios = np.random.default_rng(3).lognormal(0, 0.3, (5, 4))
    mean, low, high = map(float, re.findall(r"[\d.]+", interquartile_mean(ratios)))
    assert mean == pytest.approx(np.sort(ratios.ravel())[5:15].mean(), abs=5e-4)
    assert low < mean < high
    assert interquartile_mean(np.full((5, 1), 0.9)) == "0.900 (0.900 to 0.900)"


def test_a_section_replaces_the_one_with_the_same_heading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_hidden, "OUT", tmp_path)
    for section in ("# Title\n\none", "## Part\n\ntwo", "## Other\n\nthree", "## Part\n\nfour\n"):
        put(section)
    assert (tmp_path / "hidden.md").read_text() == "# Title\n\none\n\n## Part\n\nfour\n\n## Other\n\nthree\n"

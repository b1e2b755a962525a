"""The memo never changes a result, and goes from one process to another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.errors import RunFolderError
from dagsim.families.ramp.api import DDLS, Fabric, Memo, Planner, Ramp, Rules
from dagsim.families.ramp.graph import branches


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 5),
    taken=st.integers(0, (1 << 32) - 1),
    degree=st.sampled_from([1, 2, 4, 8]),
    placer=st.sampled_from(["first_fit", "packed", "random"]),
    ddls=st.booleans(),
)
def test_what_is_looked_up_is_what_would_be_looked_ahead(
    seed: int, taken: int, degree: int, placer: str, ddls: bool
) -> None:
    graph = branches(2, 2, rng=np.random.default_rng(seed), forward_s=0.05)
    planner = PLANNERS.setdefault(
        (placer, ddls),
        Planner(Fabric(Ramp(4, 4, 2, ddls=ddls)), DDLS if ddls else Rules(), placer=placer, memo=Memo()),
    )
    parts = planner.parts(graph, degree)
    placement = planner.place(parts, taken & taken >> 1)
    if placement is not None:
        assert planner.step(parts, placement) == planner.look_ahead(parts, placement)


PLANNERS: dict[tuple[str, bool], Planner] = {}
"""Kept over the examples, so that many of them find what others looked ahead."""


def test_blocks_that_differ_in_place_only_are_looked_ahead_once() -> None:
    memo = Memo()
    planner = Planner(Fabric(Ramp(4, 4, 2)), DDLS, memo=memo)
    parts = planner.parts(branches(2, 2, rng=np.random.default_rng(0)), 4)
    for taken in (0, 1, 3, 1 << 9):
        placement = planner.place(parts, taken)
        assert placement is not None
        planner.step(parts, placement)
    assert (memo.misses, len(memo)) == (1, 1)


def test_steps_are_read_back_to_the_last_bit(tmp_path: Path) -> None:
    one, other = Memo(), Memo()
    graph = branches(2, 2, rng=np.random.default_rng(0))
    first, second = (Planner(Fabric(Ramp(4, 4, 2)), DDLS, memo=memo) for memo in (one, other))
    parts = first.parts(graph, 4)
    placement = first.place(parts, 0)
    assert placement is not None
    step = first.step(parts, placement)
    one.save(tmp_path / "memo.json")
    other.load(tmp_path / "memo.json")
    assert second.step(second.parts(graph, 4), placement) == step
    assert (other.hits, other.misses) == (1, 0)


def test_saving_keeps_what_another_process_saved(tmp_path: Path) -> None:
    path = tmp_path / "memo.json"
    for seed in (1, 2):
        memo = Memo()
        planner = Planner(Fabric(Ramp(4, 4, 2)), DDLS, memo=memo)
        parts = planner.parts(branches(2, 2, rng=np.random.default_rng(seed)), 2)
        placement = planner.place(parts, 0)
        assert placement is not None
        planner.step(parts, placement)
        memo.save(path)
    union = Memo()
    union.load(path)
    assert len(union) == 2


@pytest.mark.parametrize("text", ["", "{}", '{"version": 1, "steps": {"a": 3}}', '{"version": 9, "steps": {}}'])
def test_a_damaged_memo_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "memo.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RunFolderError, match=r"memo.json"):
        Memo().load(path)

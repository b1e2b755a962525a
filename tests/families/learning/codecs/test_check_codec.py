"""The checker of codecs, and ours."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.codecs.codec import CandidatesConfig, Observation
from dagsim.families.learning.environments.env_settings import ActionLevel
from dagsim.families.learning.environments.observations import Levelled
from dagsim.model import Decision
from dagsim.systems.cluster.view import ClusterView
from dagsim.testing import check_codec


@pytest.mark.parametrize("level", get_args(ActionLevel))
@pytest.mark.parametrize("config", [{}, {"select": "oldest"}, {"select": "mixed"}, {"look_ahead": "cdf"}], ids=str)
def test_our_codecs_are_sound(level: ActionLevel, config: dict[str, Any]) -> None:
    check_codec(lambda: Levelled(CandidatesConfig(**config), level))


class Counting(Candidates):
    """Puts into its context how often it was asked."""

    asked = 0

    def encode(self, view: ClusterView) -> Observation | None:
        seen = super().encode(view)
        self.asked += 1
        if seen is not None:
            seen.context[0] = self.asked
        return seen


class Undecided(Candidates):
    """Its first choice stands for waiting."""

    def decode(self, view: ClusterView, choice: int) -> tuple[Decision, ...]:
        return () if choice == 0 else super().decode(view, choice)


def test_a_codec_that_changes_by_being_asked_is_caught() -> None:
    with pytest.raises(AssertionError, match="encoding twice gives other context"):
        check_codec(Counting)


def test_a_codec_that_waits_in_the_wrong_place_is_caught() -> None:
    with pytest.raises(AssertionError, match="not the last stands for waiting"):
        check_codec(Undecided)


class Revealing(Candidates):
    """Puts the work of the first ready task into its context."""

    def encode(self, view: ClusterView) -> Observation | None:
        seen = super().encode(view)
        if seen is not None:
            seen.context[0] = next(iter(view.ready)).task.work
        return seen


class Huge(Candidates):
    def encode(self, view: ClusterView) -> Observation | None:
        seen = super().encode(view)
        return None if seen is None else seen._replace(tokens=seen.tokens * 1e6)


def test_a_codec_that_shows_what_tasks_really_take_is_caught() -> None:
    with pytest.raises(AssertionError, match="the codec shows what tasks really take"):
        check_codec(Revealing)


def test_a_codec_with_features_of_another_magnitude_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"tokens reach .*; scale them to at most 10000"):
        check_codec(Huge)

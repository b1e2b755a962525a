"""An agent is shown nothing beyond what it was trained on."""

from __future__ import annotations

import numpy as np

from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.learning.observation_bounds import BoundsRecorder, Clipped, ObservationBounds
from dagsim.testing import check_codec


def observation(*tokens: tuple[float, float], context: tuple[float, ...] = (0.0,)) -> Observation:
    return Observation(np.array(tokens, np.float32), np.array(context, np.float32), np.array([[1.0]], np.float32))


def test_values_beyond_the_least_and_the_most_are_taken_for_those() -> None:
    bounds = ObservationBounds()
    bounds.widen(observation((1, 5), (3, 4), context=(2,)))
    bounds.widen(observation((2, 9), context=(7,)))
    clipped = bounds.clip(observation((0, 4.5), (2.5, 100), context=(-1,)))
    assert clipped.tokens.tolist() == [[1, 4.5], [2.5, 9]]
    assert clipped.context.tolist() == [2]
    assert clipped.tokens.dtype == np.float32


def test_what_was_seen_is_shown_as_it_was() -> None:
    seen, bounds = observation((1, 5), (3, 4)), ObservationBounds()
    bounds.widen(seen)
    assert all(np.array_equal(one, other) for one, other in zip(bounds.clip(seen), seen, strict=True))


def test_bounds_come_back_from_a_file() -> None:
    bounds = ObservationBounds()
    bounds.widen(observation((1, 5), (3, 4)))
    again = ObservationBounds.of(bounds.to_tensors())
    assert {name: [limit.tolist() for limit in limits] for name, limits in again.parts.items()} == {
        "tokens": [[1, 4], [3, 5]],
        "context": [[0], [0]],
        "gpus": [[1], [1]],
    }


def test_wrapped_codecs_are_sound() -> None:
    bounds = ObservationBounds()
    check_codec(lambda: BoundsRecorder(Candidates(), bounds))
    assert set(bounds.parts) == {"tokens", "context", "gpus"}
    check_codec(lambda: Clipped(Candidates(), bounds))


def test_a_codec_counts_the_values_outside_the_bounds() -> None:
    bounds = ObservationBounds()
    bounds.widen(observation((1, 5), (3, 4)))

    class Far:
        def encode(self, view: object) -> Observation:
            return observation((0, 4.5), (2.5, 100), context=(-1,))

    codec = Clipped(Far(), bounds)  # type: ignore[arg-type]
    codec.encode(None)
    codec.encode(None)
    assert (codec.outside, codec.values) == (6, 12)

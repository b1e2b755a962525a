from __future__ import annotations

import numpy as np
import pytest
import torch

from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.learning.nets.actor import (
    ObservationStore,
    entropy,
    log_softmax,
    sample,
    segment_max,
    segment_sum,
    stack,
)


def seen(rows: int, value: float = 0.0) -> Observation:
    return Observation(
        np.full((rows, 2), value, np.float32), np.full(3, value, np.float32), np.full((1, 4), value, np.float32)
    )


def test_observations_lie_end_to_end() -> None:
    batch = stack([seen(2, 1.0), seen(1, 2.0), seen(3, 3.0)])
    assert batch.tokens[:, 0].tolist() == [1, 1, 2, 3, 3, 3]
    assert batch.segment.tolist() == [0, 0, 1, 2, 2, 2]
    assert batch.first.tolist() == [0, 2, 3]
    assert (batch.size, batch.gpus.shape) == (3, (3, 1, 4))


def test_a_batch_is_picked_from_many_in_any_order() -> None:
    batch = ObservationStore([seen(2, 1.0), seen(1, 2.0), seen(3, 3.0)]).batch(np.array([2, 0, 2]))
    assert batch.tokens[:, 0].tolist() == [3, 3, 3, 1, 1, 3, 3, 3]
    assert batch.segment.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]


def test_the_softmax_is_over_each_observation_alone() -> None:
    scores, segment = torch.tensor([0.0, float(np.log(3)), 5.0]), torch.tensor([0, 0, 1])
    p = torch.exp(log_softmax(scores, segment, 2))
    assert p.tolist() == pytest.approx([0.25, 0.75, 1.0])
    # -(1/4 ln 1/4 + 3/4 ln 3/4) = 0.5623; a sure choice has none
    assert entropy(torch.log(p), segment, 2).tolist() == pytest.approx([0.5623, 0.0], abs=1e-4)


def test_a_row_that_cannot_be_chosen_has_no_part_in_it() -> None:
    scores = torch.tensor([1.0, -torch.inf, 1.0])
    segment = torch.zeros(3, dtype=torch.int64)
    log_p = log_softmax(scores, segment, 1)
    assert torch.exp(log_p).tolist() == pytest.approx([0.5, 0.0, 0.5])
    assert float(entropy(log_p, segment, 1)) == pytest.approx(np.log(2))


def test_sums_and_maxima_are_per_segment() -> None:
    values, segment = torch.tensor([1.0, 2.0, -5.0]), torch.tensor([0, 0, 1])
    assert segment_sum(values, segment, 2).tolist() == [3, -5]
    assert segment_max(values, segment, 2).tolist() == [2, -5]


def test_without_chance_the_first_of_the_likeliest_is_chosen() -> None:
    log_p = np.log(np.array([0.2, 0.4, 0.4, 1.0]))
    assert sample(log_p, np.array([0, 3])).tolist() == [1, 0]


def test_draws_follow_the_softmax() -> None:
    # Chi-square over 40,000 draws of one observation beside another; 99.99 % quantile for 3 degrees of freedom: 21.1
    p = np.array([0.5, 0.25, 0.2, 0.05])
    log_p = np.concatenate([np.log(p), np.log([0.3, 0.7])])
    rng, count = np.random.default_rng(0), 40_000
    first = np.array([0, 4])
    drawn = np.array([sample(log_p, first, rng) for _ in range(count)])
    for column, chances in ((0, p), (1, np.array([0.3, 0.7]))):
        seen_often = np.bincount(drawn[:, column], minlength=len(chances))
        assert ((seen_often - count * chances) ** 2 / (count * chances)).sum() < 21.1

"""Goodput after Pollux: the model, the best batch and the fit."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from families.elastic.elastic_cases import LIMITS

from dagsim.errors import ModelError
from dagsim.families.elastic.goodput import (
    GoodputModel,
    GradientNoise,
    StepMeasurement,
    ThroughputModel,
    _columns,
    _objective,
    fit_objective,
    fit_throughput,
)

NO_OVERLAP = ThroughputModel(0.1, 0.01, 0.4, 0.1, 0.2, 0.05, 1.0)
MODEL = GoodputModel(NO_OVERLAP, GradientNoise(square=1.0, variance=3.0), LIMITS)


def test_without_overlap_times_add_up() -> None:
    # 2 nodes, 4 replicas: computing .1 + .01 x 10, communication .4 + .1 x (4 - 2)
    assert NO_OVERLAP.step_s(2, 4, 10) == pytest.approx(0.2 + 0.6)
    assert NO_OVERLAP.step_s(1, 4, 10) == pytest.approx(0.2 + 0.3)
    assert NO_OVERLAP.step_s(1, 1, 10) == pytest.approx(0.2, abs=1e-7)


def test_with_full_overlap_the_longer_time_counts() -> None:
    assert NO_OVERLAP._replace(gamma=10.0).step_s(2, 4, 10) == pytest.approx(0.6, rel=1e-4)


def test_accumulation_adds_passes_and_samples() -> None:
    assert NO_OVERLAP.samples_per_s(2, 4, 10, 1) == pytest.approx(80 / (0.2 + 0.8))


def test_efficiency_is_one_at_the_initial_batch_and_falls() -> None:
    # scale 2: gain (3 + 1) / (3 / 2 + 1) = 1.6
    assert MODEL.efficiency(np.array([10, 20])) == pytest.approx([1.0, 0.8])
    assert GradientNoise(0.0, 0.0).gain(2.0) == 1.0


def test_the_best_batch_is_within_the_limits() -> None:
    choice = MODEL.best(np.array([1, 1, 2]), np.array([1, 2, 4]))
    batches = np.array([1, 2, 4]) * choice.local_batch * (choice.accumulation + 1)
    assert (batches >= LIMITS.initial).all()
    assert (batches <= LIMITS.largest).all()
    assert choice.goodput == pytest.approx(
        MODEL.goodput(np.array([1, 1, 2]), np.array([1, 2, 4]), choice.local_batch, choice.accumulation)
    )


def test_one_replica_with_more_than_the_initial_batch_accumulates() -> None:
    noisy = GoodputModel(NO_OVERLAP, GradientNoise(1e-6, 1.0), LIMITS)  # a larger batch loses nothing
    assert int(noisy.best(1, 1).accumulation) == 1
    assert int(noisy.best(1, 1, accumulate=False).accumulation) == 0


def test_more_replicas_than_the_largest_batch_feeds_are_refused() -> None:
    with pytest.raises(ModelError, match="9 replicas need 5 samples each, which exceeds the largest batch of 40"):
        MODEL.best(3, np.array([8, 9]))


def test_a_batch_below_the_initial_one_is_refused() -> None:
    with pytest.raises(ModelError, match="below the initial batch of 10"):
        MODEL.goodput(1, 1, 5, 0)


def test_fewer_replicas_than_nodes_are_refused() -> None:
    with pytest.raises(ModelError, match="one replica on each"):
        MODEL.best(2, 1)


def test_a_fit_to_scattered_times_is_no_worse_than_the_model_that_made_them() -> None:
    truth = ThroughputModel(0.15, 0.02, 0.4, 0.01, 0.2, 0.005, 1.5)
    scatter = cycle((1.03, 0.96, 1.01, 0.98, 1.05, 0.99, 0.97))
    measured = []
    for nodes, replicas in ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8)):
        for local in (5, 10, 20):
            pass_s = float(truth.pass_s(local)) * next(scatter)
            step_s = float(truth.step_s(nodes, replicas, local)) * next(scatter)
            measured.append(StepMeasurement(nodes, replicas, local, step_s, step_s - pass_s))
    fitted = fit_throughput(measured)
    assert fit_objective(fitted, measured) < fit_objective(truth, measured)


def test_parts_that_were_not_measured_are_optimistic() -> None:
    alone = fit_throughput([StepMeasurement(1, 1, 10, 0.2, 0.0)])
    assert alone.alpha_c == 0.1  # half of the only pass
    assert alone.sync_s(4, 16) < 1e-6
    together = fit_throughput([StepMeasurement(1, 2, 10, 0.3, 0.1)])
    assert together.alpha_n == pytest.approx(1.1 * together.alpha_r)


@pytest.mark.parametrize(
    ("measured", "words"),
    [([], "at least one measured"), ([StepMeasurement(1, 2, 10, 0.1, 0.1)], "no computing time")],
)
def test_a_fit_needs_computing_times(measured: list[StepMeasurement], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        fit_throughput(measured)


def test_the_slopes_of_the_objective_are_its_differences() -> None:
    measured = [
        StepMeasurement(nodes, replicas, local, 0.3 + 0.03 * nodes + 0.02 * local + 0.01 * replicas, 0.1 * nodes)
        for nodes, replicas in ((1, 1), (1, 2), (1, 4), (2, 4), (3, 8))
        for local in (5, 10, 20)
    ]
    at = np.array([0.15, 0.02, 0.4, 0.03, 0.2, 0.007, 1.7])
    step = 1e-6
    for place, slope in enumerate(_objective(at, *_columns(measured))[1]):
        sides = [fit_objective(ThroughputModel(*(at + sign * step * np.eye(7)[place])), measured) for sign in (1, -1)]
        assert slope == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-5, abs=1e-8)


def test_the_fit_finds_the_model_that_made_exact_times() -> None:
    truth = ThroughputModel(0.15, 0.02, 0.4, 0.01, 0.2, 0.005, 1.0)  # no penalty on gamma
    measured = []
    for nodes, replicas in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (4, 16)):
        for local in (5, 10, 20, 40):
            pass_s, step_s = float(truth.pass_s(local)), float(truth.step_s(nodes, replicas, local))
            measured.append(StepMeasurement(nodes, replicas, local, step_s, step_s - pass_s))
    fitted = fit_throughput(measured)
    for nodes, replicas in ((1, 1), (1, 3), (2, 6), (3, 12)):
        assert fitted.step_s(nodes, replicas, 15) == pytest.approx(float(truth.step_s(nodes, replicas, 15)), rel=0.02)

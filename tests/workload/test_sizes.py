from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dagsim.errors import WorkloadError
from dagsim.model.streams import stream
from dagsim.systems.cluster.models.throughputs import shipped_throughputs
from dagsim.workload.distributions import Choice, Constant, LogNormal, Uniform
from dagsim.workload.sizes import MEASURED_MODELS, Correlated, Independent


def draw(sizes, tasks=20_000, seed=0):
    return sizes.draw(cache(lambda name: stream(seed, name)), tasks)


def test_gangs_are_as_common_as_asked():
    instances = np.array(draw(Independent()).instances)
    shares = {size: np.mean(instances == size) for size in (1, 2, 4, 8)}
    assert shares == pytest.approx({1: 0.65, 2: 0.17, 4: 0.14, 8: 0.04}, abs=0.01)


def test_work_is_log_normal_and_clipped():
    work = np.array(draw(Independent()).work)
    assert np.median(work) == pytest.approx(600, rel=0.03)
    assert np.log(work[(work > 20) & (work < 20000)]).std() == pytest.approx(1.27, abs=0.03)
    assert work.min() == 20
    assert work.max() == 20000


def test_models_are_equally_likely():
    columns = draw(Independent())
    assert columns.models == MEASURED_MODELS
    assert np.bincount(columns.model) / 20_000 == pytest.approx([0.2] * 5, abs=0.02)


def test_every_default_model_was_measured_on_the_default_gpus():
    from dagsim.model import gpu_type

    table = shipped_throughputs()
    for model in MEASURED_MODELS:
        for name in ("A100-40", "T4"):
            assert table.ratio(model, gpu_type(name), gpu_type("V100-16")) is not None


def test_counts_are_rounded_and_at_least_one():
    assert draw(Independent(instances=Constant(0.2)), 2).instances.tolist() == [1, 1]
    assert draw(Independent(instances=Constant(3.6)), 2).instances.tolist() == [4, 4]


def test_claims_are_multiples_of_the_work():
    columns = draw(Independent(requested_factor=Uniform(2.0, 3.0)), 500)
    assert all(2 <= claim / work <= 3 for claim, work in zip(columns.estimate, columns.work, strict=True))


def test_a_change_to_one_quantity_leaves_the_others_alone():
    one, other = draw(Independent(), 50), draw(Independent(gpus=Choice((0.25, 0.5)), requested_factor=LogNormal()), 50)
    for name in ("work", "instances", "model"):
        assert (getattr(one, name) == getattr(other, name)).all()
    assert (one.gpus != other.gpus).all()


def test_negative_sizes_are_refused():
    with pytest.raises(WorkloadError, match="work must be 0 or more"):
        draw(Independent(work=Uniform(-5.0, 5.0)))


def test_correlated_worked_example():
    # work 2500 of 10000: x = 0.25; GPUs 0.7 * (1 + floor(0.25 ** 0.6 * 7 = 3.05)) = 2.8 + 0.3 * U{1..8};
    # priority 0.6 * (1 + floor(0.75 ** 0.8 * 9 = 7.15)) = 4.8 + 0.4 * U{1..10}
    columns = draw(Correlated(work=Constant(2500.0)))
    assert set(columns.instances) == {round(2.8 + 0.3 * any_gpus) for any_gpus in range(1, 9)}
    assert columns.priority is not None
    assert set(columns.priority) == {round(4.8 + 0.4 * any_priority) for any_priority in range(1, 11)}


def test_correlated_durations_are_those_of_the_ancestor():
    work = np.array(draw(Correlated()).work)
    assert np.mean(work < 800) == pytest.approx(0.85, abs=0.01)
    assert work.max() <= 10_000


def test_longer_means_wider_and_less_urgent():
    columns = draw(Correlated())
    assert np.corrcoef(columns.work, columns.instances)[0, 1] > 0.5
    assert np.corrcoef(columns.work, columns.priority)[0, 1] < -0.5


@pytest.mark.parametrize(
    "build",
    [
        lambda: Correlated(gpus_follow=1.1),
        lambda: Correlated(priority_follows=-0.1),
        lambda: Correlated(most_gpus=0),
        lambda: Correlated(longest=0),
    ],
)
def test_impossible_rules_are_refused(build):
    with pytest.raises(WorkloadError):
        build()

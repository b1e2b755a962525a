from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagsim.errors import WorkloadError
from dagsim.workload.shapes import (
    CPUS,
    DURATION_S,
    INSTANCES,
    TASKS,
    Alibaba,
    Chain,
    ForkJoin,
    Layered,
    MapReduce,
    RandomDag,
    Single,
)

SHAPES = [
    Single(),
    Chain(),
    ForkJoin(),
    ForkJoin(stages=(2, 3)),
    MapReduce(rounds=(1, 3)),
    Layered(),
    RandomDag(),
    Alibaba(),
]


def draw(shape, jobs=2000, seed=0):
    """The parents of each task of each job."""
    graphs = shape.draw(np.random.default_rng(seed), jobs)
    waits, parent = iter(graphs.waits.tolist()), iter(graphs.parent.tolist())
    shapes = [tuple(tuple(islice(parent, next(waits))) for _ in range(tasks)) for tasks in graphs.tasks.tolist()]
    assert not [*waits]
    assert not [*parent]
    return shapes


def depth(parents):
    level = []
    for of in parents:
        level.append(1 + max((level[parent] for parent in of), default=0))
    return max(level)


@given(st.sampled_from(SHAPES), st.integers(0, 9999))
def test_parents_come_before_their_children_and_once(shape, seed):
    for parents in draw(shape, 20, seed):
        for task, of in enumerate(parents):
            assert list(of) == sorted(set(of))
            assert all(0 <= parent < task for parent in of)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (Single(), ((),)),
        (Chain((3, 3)), ((), (0,), (1,))),
        (ForkJoin((2, 2)), ((), (0,), (0,), (1, 2))),
        (ForkJoin((2, 2), (2, 2)), ((), (0,), (0,), (1, 2), (3,), (3,), (4, 5))),
        (MapReduce((2, 2), (2, 2)), ((), (), (0, 1), (0, 1))),
        (Layered((3, 3), (2, 2), 1.0), ((), (), (0, 1), (0, 1), (2, 3), (2, 3))),
    ],
)
def test_smallest_examples(shape, expected):
    assert draw(shape, 1) == [expected]


def test_lengths_and_widths_are_evenly_spread():
    counts = Counter(len(parents) for parents in draw(Chain((2, 5)), 8000))
    assert all(counts[length] == pytest.approx(2000, rel=0.1) for length in (2, 3, 4, 5))


def test_layered_is_as_deep_as_it_has_layers():
    shapes = draw(Layered((4, 4), (1, 5), 0.1))
    assert {depth(parents) for parents in shapes} == {4}


def test_layered_keeps_edges_by_density():
    # Between layers of 10: 100 possible edges, 30 expected; a task without any (0.7 ** 10 = 2.8 %) gets one.
    edges = [sum(map(len, parents)) for parents in draw(Layered((2, 2), (10, 10), 0.3))]
    assert np.mean(edges) == pytest.approx(30 + 10 * 0.028, rel=0.01)


def test_random_dag_is_the_toy_of_the_experiment():
    # 15 % single tasks, else 3 to 8 tasks with 1 or 2 parents each
    shapes = draw(RandomDag(), 20_000)
    sizes = Counter(map(len, shapes))
    assert sizes[1] / 20_000 == pytest.approx(0.15, abs=0.01)
    assert set(sizes) == {1, 3, 4, 5, 6, 7, 8}
    assert all(len(of) in (1, 2) for parents in shapes for of in parents[1:])
    assert sum(len(parents[2]) == 2 for parents in shapes if len(parents) > 2) / 17_000 == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Chain((0, 3)),
        lambda: Chain((4, 3)),
        lambda: ForkJoin((0, 1)),
        lambda: MapReduce(rounds=(0, 1)),
        lambda: Layered(density=1.5),
        lambda: RandomDag(single=-0.1),
        lambda: RandomDag(tasks=(0, 8)),
    ],
)
def test_impossible_shapes_are_refused(build):
    with pytest.raises(WorkloadError):
        build()


@pytest.fixture(scope="module")
def alibaba():
    return draw(Alibaba(), 60_000)


def test_alibaba_tasks_per_job_are_as_published(alibaba):
    # SoCC'19 population: mean 3.385; 38.3 % have 1 task, 20.4 % 2, 12.8 % 3; p50 2, p75 4, p90 7, p95 11, p99 20
    tasks = np.array([len(parents) for parents in alibaba])
    assert tasks.mean() == pytest.approx(3.385, rel=0.03)
    for count, share in ((1, 0.3833), (2, 0.2041), (3, 0.1277)):
        assert np.mean(tasks == count) == pytest.approx(share, abs=0.01)
    assert_percentiles(tasks, {0.5: 2, 0.75: 4, 0.9: 7, 0.95: 11, 0.99: 20}, within=1)


def test_alibaba_levels_are_as_published(alibaba):
    # Mean 2.425; 39.1 % have 1 level, 24.8 % 2, 15.5 % 3, 9.4 % 4
    levels = np.array([depth(parents) for parents in alibaba])
    assert levels.mean() == pytest.approx(2.425, rel=0.03)
    for count, share in ((1, 0.391), (2, 0.248), (3, 0.155), (4, 0.094)):
        assert np.mean(levels == count) == pytest.approx(share, abs=0.015)


def test_alibaba_jobs_gather_more_often_than_they_scatter(alibaba):
    # Of the real jobs with more than 2 tasks in batch_task_random6600: 64.9 % and 21.0 %
    many = [parents for parents in alibaba if len(parents) > 2]
    gather = np.mean([max(map(len, parents)) > 1 for parents in many])
    children = [Counter(parent for of in parents for parent in of) for parents in many]
    scatter = np.mean([max(counts.values(), default=0) > 1 for counts in children])
    assert gather == pytest.approx(0.649, abs=0.07)
    assert scatter == pytest.approx(0.210, abs=0.13)


@pytest.mark.parametrize(
    ("published", "mean", "percentiles"),
    [
        (TASKS, 3.385, {0.5: 2, 0.75: 4, 0.9: 7, 0.95: 11, 0.99: 20}),
        (DURATION_S, 44.8, {0.25: 2, 0.5: 5, 0.75: 22, 0.9: 96, 0.95: 227, 0.99: 603}),
        (INSTANCES, 43.1, {0.5: 1, 0.75: 4, 0.9: 47, 0.95: 176, 0.99: 844}),
    ],
)
def test_alibaba_sizes_are_as_published(published, mean, percentiles):
    drawn = published.draw(np.random.default_rng(0), 1_000_000)
    assert drawn.mean() == pytest.approx(mean, rel=0.03)
    assert_percentiles(drawn, percentiles, within=1)


def test_alibaba_cores_are_as_published():
    # plan_cpu 50 for 4,051,891 of 9,673,063 tasks, else nearly always 100
    drawn = CPUS.draw(np.random.default_rng(0), 200_000)
    assert drawn.mean() == pytest.approx(0.791, rel=0.01)
    assert np.mean(drawn == 0.5) == pytest.approx(0.419, abs=0.005)


def test_alibaba_durations_of_zero_and_one_are_as_common_as_published():
    # 742,829 and 1,593,364 of 9,673,063 tasks
    drawn = DURATION_S.draw(np.random.default_rng(0), 200_000)
    assert np.mean(drawn == 0) == pytest.approx(0.0768, abs=0.003)
    assert np.mean(drawn == 1) == pytest.approx(0.1647, abs=0.003)


def assert_percentiles(drawn, percentiles, within):
    """Up to ``within`` or 3 % of the value, whichever is more."""
    for level, value in percentiles.items():
        assert np.quantile(drawn, level, method="inverted_cdf") == pytest.approx(value, abs=max(within, 0.03 * value))

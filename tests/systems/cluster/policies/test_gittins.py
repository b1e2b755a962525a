"""The Gittins index by hand, and what follows from it."""

from __future__ import annotations

import numpy as np
import pytest

from dagsim.systems.cluster.policies.attained import Gittins, gittins_index, gittins_indices
from dagsim.systems.cluster.policies.rounds import Served


@pytest.mark.parametrize(
    ("sizes", "had", "index"),
    [
        # d = 1: 1/2 over 1; d = 10: 1 over 5.5
        ((1, 10), 0, 0.5),
        ((1, 10), 1, 1 / 9),
        ((10, 10), 5, 1 / 5),  # nearer the end is better
        ((4, 5, 6), 0, 3 / 15),  # d = 6 beats d = 4 (1/12) and d = 5 (2/14)
        ((4, 5, 6), 7, 0),
    ],
)
def test_index(sizes, had, index):
    assert gittins_index(np.array(sizes, dtype=float), had) == pytest.approx(index)


@pytest.mark.parametrize("count", [0, 1, 2, 9, 300])
def test_indices_of_many_jobs_are_those_of_single_ones_to_the_last_bit(count):
    rng = np.random.default_rng(count)
    for sizes in (rng.pareto(1.0, count) * 10, rng.integers(0, 9, count).astype(float)):
        sizes.sort()
        had = np.concatenate([rng.pareto(1.0, 150) * 10, rng.integers(0, 9, 20), sizes[:5]])
        one_by_one = np.array([gittins_index(sizes, service) for service in had.tolist()])
        assert gittins_indices(sizes, had).tobytes() == one_by_one.tobytes()


def test_all_alike_are_run_to_their_ends(run, rows, ends):
    # all sizes 4: the index rises with service, so nobody is preempted
    assert ends(run("2d-gittins[history=[4,4],quantum_s=1]", rows((0, 4), (1, 4), (2, 4)))) == [4, 8, 12]


def test_a_job_that_has_outlived_the_short_ones_makes_way(run, rows, ends):
    # sizes 1 and 10: after 1 s job 1 has index 1/9 against 1/2 of a new one: 2 takes 2-3
    assert ends(run("2d-gittins[history=[1,1,1,10],quantum_s=1]", rows((0, 10), (2, 1)))) == [11, 3]


def test_sizes_are_learned_from_jobs_that_end(run, rows, ends):
    # 1 to 3 (1 s each) teach that jobs are short: 4 (9 s, from 3) has passed all of them at 4, 5 takes 5-6
    assert ends(run("2d-gittins[quantum_s=1]", rows((0, 1), (1, 1), (2, 1), (3, 9), (5, 1)))) == [1, 2, 3, 13, 6]


def test_of_many_sizes_the_quantiles_give_the_index():
    # Pareto with exponent 1.5: the index of a job that has had ``a`` is 1.5 / a, and higher where a size is near
    sizes = 100.0 * (1.0 - (np.arange(5_000) + 0.5) / 5_000) ** (-1 / 1.5)
    rank, unserved = Gittins(sizes.tolist()), gittins_index(sizes, 0.0)
    for had in (150.0, 500.0, 1500.0):
        assert 1.5 / had <= unserved - rank.key(0, Served(had)) < 3 * 1.5 / had

"""Distinct rows of tables."""

from __future__ import annotations

import numpy as np
import pytest

from dagsim.workload.array_tools import distinct_rows


@pytest.mark.parametrize("seed", range(20))
def test_distinct_rows_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [np.array([0.0, 1.0, np.inf, 2.5]), np.arange(-3, 3), np.array([7])][seed % 3]
    table = rng.choice(values, (int(rng.integers(1, 60)), int(rng.integers(1, 4))))
    rows, place = distinct_rows(table)
    expected, where = np.unique(table, axis=0, return_inverse=True)
    assert np.array_equal(rows, expected)
    assert np.array_equal(place, where.reshape(-1))


def test_an_empty_table_has_no_rows() -> None:
    rows, place = distinct_rows(np.zeros((0, 3)))
    assert rows.shape == (0, 3)
    assert len(place) == 0


def test_undefined_numbers_are_equal() -> None:
    rows, place = distinct_rows(np.array([[1.0, np.nan], [1.0, np.nan], [1.0, 0.0]]))
    assert place.tolist() == [1, 1, 0]
    assert len(rows) == 2

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_max_ulp

from dagsim.workload.distributions import exp


@given(st.lists(st.floats(-700, 700), min_size=1))
def test_agrees_with_numpy_to_two_last_places(values):
    x = np.array(values)
    assert_array_max_ulp(exp(x), np.exp(x), 2)


def test_the_bits_are_pinned():
    assert exp(np.array([0.0, 1.0, -1.0, 20.7])).tolist() == [
        1.0,
        2.7182818284590455,
        0.36787944117144233,
        977002725.8269073,
    ]


def test_beyond_what_a_float_holds():
    assert exp(np.array([-1e9, 1e9])).tolist() == [0.0, np.inf]

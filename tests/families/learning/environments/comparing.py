"""Comparison of what two environments return."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same(one: Any, other: Any) -> None:
    """Equal keys (in any order), values and types, at any depth."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list | tuple) or (isinstance(one, np.ndarray) and one.dtype == object):
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    else:
        np.testing.assert_array_equal(one, other, strict=isinstance(one, np.ndarray))

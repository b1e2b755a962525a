"""Comparison of what two environments return."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same(one: Any, other: Any, *, in_order: bool = True) -> None:
    """Equal keys, values and types, at any depth; keys in the same order, or in any."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other) if in_order else one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name], in_order=in_order)
    elif isinstance(one, list | tuple) or (isinstance(one, np.ndarray) and one.dtype == object):
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs, in_order=in_order)
    else:
        np.testing.assert_array_equal(one, other, strict=isinstance(one, np.ndarray))

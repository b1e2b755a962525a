"""The exponential function, to the same bit on every machine.

NumPy's own picks an implementation by processor, and they differ in the last bit: enough for a job to differ between
two machines. This one uses nothing but additions and multiplications, which IEEE 754 rounds in one way.
"""

from __future__ import annotations

from math import factorial

import numpy as np

__all__ = ["exp"]

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2 in two parts: multiples of the first are exact
_TAYLOR = tuple([1.0 / factorial(power) for power in range(13, -1, -1)])


def exp(x: np.ndarray) -> np.ndarray:
    """The exponential of each of ``x``, within 2 units in the last place; 0 and infinity beyond what a float holds."""
    x = np.minimum(np.maximum(x, -750.0), 750.0)
    doublings = np.rint(x * _LOG2_E)
    rest = (x - doublings * _LN2_HIGH) - doublings * _LN2_LOW
    power = np.zeros_like(rest)
    for term in _TAYLOR:
        power = power * rest + term
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.ldexp(power, doublings.astype(np.int32)))

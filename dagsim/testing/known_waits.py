"""Waiting times that can be computed without dagsim, by a recursion or by Erlang's formula."""

from __future__ import annotations

import heapq
from math import log

import numpy as np
from numpy.typing import NDArray


def first_come_waits(arrival_s: NDArray[np.float64], run_s: NDArray[np.float64], servers: int) -> NDArray[np.float64]:
    """Return the waits of jobs that each need one server and are served in order of arrival (Kiefer
    and Wolfowitz 1955).
    """
    free_s, waits = [0.0] * servers, []
    for at_s, duration_s in zip(arrival_s.tolist(), run_s.tolist(), strict=True):
        start_s = max(free_s[0], at_s)
        heapq.heapreplace(free_s, start_s + duration_s)
        waits.append(start_s - at_s)
    return np.array(waits)


def erlang_p95(servers: int, load: float, mean_s: float) -> float:
    """Return the 95th percentile of the wait in an M/M/c queue whose mean run time is ``mean_s``
    (Erlang 1917): P(W > t) = C exp(-c (1 - load) t / mean).
    """
    blocking = 1.0
    for number in range(1, servers + 1):
        blocking = servers * load * blocking / (number + servers * load * blocking)
    waits = blocking / (1 - load * (1 - blocking))
    return max(log(waits / 0.05), 0.0) * mean_s / (servers * (1 - load))

"""What ``dagsim plan`` chooses does not depend on the last digit of a computed number."""

from __future__ import annotations

from math import inf, nextafter
from typing import Any

import pytest

from dagsim.families.capacity.size_search import Met, Size, SizeSearch, Target
from dagsim.metrics.series import Period


def size(nodes: int, cost: float, value: float = 1.0) -> Size:
    cluster: Any = None
    return Size((nodes,), cluster, nodes, cost, Met(Period(value, value, value, 1, 1.0), 0, True))


@pytest.mark.parametrize("above", [False, True])
def test_a_value_at_the_bound_does_not_meet_the_target_whatever_its_last_digit(above: bool) -> None:
    target = Target("wait_s.mean", above, 0.3)
    for value in (0.3, nextafter(0.3, inf), nextafter(0.3, -inf), 0.1 + 0.2):
        assert not target.holds(value)
    assert target.holds(0.2999999) is not above
    assert target.holds(0.3000001) is above


@pytest.mark.parametrize("towards", [inf, -inf])
def test_of_equally_good_sizes_within_a_budget_the_smallest_is_chosen(towards: float) -> None:
    tried = {(nodes,): size(nodes, 20.0, value) for nodes, value in ((4, 1.5), (2, nextafter(1.5, towards)), (3, 1.5))}
    search = SizeSearch((), tried, budget=20.0)
    assert search.best == tried[2,]
    tried[5,] = size(5, 20.0, 1.4999)
    assert search.best == tried[5,]

"""List scheduling and its anomalies (Graham 1966, 1969)."""

from __future__ import annotations

import pytest
from support.log_reading import rows_of

from dagsim.model import Kind

SECONDS = (3, 2, 2, 2, 4, 4, 4, 4, 9)
EDGES = ((1, 9), (4, 5), (4, 6), (4, 7), (4, 8))
LIST = "[1,2,3,4,5,6,7,8,9]"


@pytest.mark.parametrize(
    ("order", "gpus", "seconds", "edges", "makespan"),
    [
        # 3 machines: 1 0-3, 2 0-2, 3 0-2, 4 2-4, 9 3-12, 5..8 in two rounds of two from 4: 12
        (LIST, 3, SECONDS, EDGES, 12),
        ("[1,2,4,5,6,3,9,7,8]", 3, SECONDS, EDGES, 14),  # another list
        (LIST, 4, SECONDS, EDGES, 15),  # one machine more
        (LIST, 3, tuple(seconds - 1 for seconds in SECONDS), EDGES, 13),  # every task shorter
        (LIST, 3, SECONDS, tuple(edge for edge in EDGES if edge not in ((4, 5), (4, 6))), 16),  # fewer edges
    ],
)
def test_anomalies(run, dag, ends, order, gpus, seconds, edges, makespan):
    assert ends(run(f"graham[order={order}]", [dag(seconds, edges)], gpus)) == [makespan]


def test_a_list_can_be_2_minus_1_over_m_too_long(run, dag, ends):
    # 3 machines: six tasks of 1 s take all until 2, then 3 s on one: 5; at best 3 beside the six in pairs of machines
    assert ends(run("graham[order=[1,2,3,4,5,6,7]]", [dag((1, 1, 1, 1, 1, 1, 3))], 3)) == [5]
    assert ends(run("graham[order=[7]]", [dag((1, 1, 1, 1, 1, 1, 3))], 3)) == [3]


def test_tasks_the_list_does_not_name_come_after(run, dag):
    schedule = run("graham[order=3]", [dag((1, 1, 1))])
    assert [row.task for row in rows_of(schedule.log, Kind.STARTED)] == [2, 0, 1]

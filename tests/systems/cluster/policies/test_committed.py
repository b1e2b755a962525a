"""RLScheduler's commitment to one job, worked by hand."""

from __future__ import annotations

import pytest

from dagsim.errors import ConfigError
from dagsim.systems.cluster.policies import POLICIES


def test_it_keeps_to_its_pick_whoever_comes(run, rows, order):
    # One GPU, held to 5. At 0 the queue is empty once 1 has started; 2 comes at 1 and is picked (20 s). 3 (1 s) comes
    # at 2 and would be shorter, but 2 goes first.
    jobs = rows((0, 5), (1, 20), (2, 1))
    assert order(run("committed[score=sjf]", jobs)) == ["1", "2", "3"]
    assert order(run("sjf", jobs)) == ["1", "3", "2"]


def test_the_next_is_picked_by_score_among_those_in_the_queue(run, rows, order):
    # 2 waits from 1 to 5; 3 (9 s) and 4 (2 s) enter meanwhile; then 4 is shorter.
    assert order(run("committed[score=sjf]", rows((0, 5), (1, 1), (2, 9), (3, 2)))) == ["1", "2", "4", "3"]
    assert order(run("committed", rows((0, 5), (1, 1), (2, 9), (3, 2)))) == ["1", "2", "3", "4"]


def test_backfilling_ends_before_the_shadow_time_not_at_it(run, rows, order):
    # 2 GPUs: 1 holds one to 5, 2 needs both at 5. 3 (4 s, at 1) would end at 5: not before. 4 (3 s) does.
    jobs = rows((0, 5, 1), (0, 4, 2), (1, 4, 1), (1, 3, 1))
    assert order(run("committed[backfill=true]", jobs, 2)) == ["1", "4", "2", "3"]
    assert order(run("committed", jobs, 2)) == ["1", "2", "3", "4"]


def test_the_soonest_is_picked_by_its_start_and_its_area(run, rows, order):
    # 3 GPUs, one held to 30. When 3 starts at 2, 4 (4 s) would fit at 30, and 5 (6 s on two) at 3.
    jobs = rows((0, 30, 1), (0, 2, 2), (0, 1, 2), (1, 4, 3), (1, 6, 2))
    assert order(run("committed[score=soonest]", jobs, 3)) == ["1", "2", "3", "5", "4"]
    assert order(run("committed[score=sjf]", jobs, 3)) == ["1", "2", "3", "4", "5"]


def test_other_scores_are_refused():
    with pytest.raises(ConfigError, match="score must be one of fcfs, sjf, f1, wfp3, uni, log-area, soonest, got"):
        POLICIES.create("committed[score=f2]")

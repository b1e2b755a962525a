"""Shares of time by a linear program."""

from math import inf

import numpy as np
import pytest

from dagsim.families.gavel.events import by_rate, by_throughput, shares


def test_gavel_levels_what_everybody_gets():
    # Two tasks of one GPU, one V100 and one T4. Both take 1 s on the V100; on the T4 the first 2, the second 4 s. Time
    # on the V100 x and 1 - x: x + (1 - x) / 2 = (1 - x) + x / 4, so x = 0.4: both get 0.7 of the throughput they could
    # have.
    allocation = shares([by_throughput((1.0, 2.0), 1.0), by_throughput((1.0, 4.0), 1.0)], [1.0, 1.0])
    assert np.array(allocation) == pytest.approx(np.array([[0.4, 0.6], [0.6, 0.4]]), abs=1e-4)


def test_gavel_makes_all_end_together():
    # One GPU: 3 s and 1 s of work. Time in proportion to the work: both end at 4.
    allocation = shares(by_rate(np.array([[3.0], [1.0]]), [1.0, 1.0]), [1.0])
    assert np.array(allocation) == pytest.approx(np.array([[0.75], [0.25]]), abs=1e-4)


def test_gavel_buys_throughput_where_it_is_cheap():
    # The T4 does a third of the work of a V100 for a seventh of the price.
    allocation = shares([by_throughput((1.0, 3.0), 1.0)], [1.0, 1.0], [2.5, 0.35])
    assert np.array(allocation) == pytest.approx(np.array([[0.0, 1.0]]), abs=1e-6)


def test_gavel_gives_alike_tasks_alike_shares_of_all_there_is():
    # Three tasks, as much faster on the V100 each, whatever is left of them; the fourth is two GPUs wide
    seconds, gpus = ((1.0, 2.0), (30.0, 60.0), (7.0, 14.0), (1.0, 2.0)), (1.0, 1.0, 1.0, 2.0)
    first, second, third, wide = shares([*map(by_throughput, seconds, gpus)], [1.0, 1.0])
    assert first == second == third
    levels = (np.array([first, second, third, wide]) * [1.0, 0.5]).sum(axis=1)
    assert levels == pytest.approx([0.3] * 4)  # 1.5 of throughput over 5 GPUs asked for
    assert np.array([first, second, third, wide, wide]).sum(axis=0) == pytest.approx([1, 1])


def test_gavel_knows_no_progress_where_a_task_may_not_run():
    assert by_throughput((2.0, inf, 3.0), 4.0) == (4.0, 1.0, 0.0, 0.666666667)


def test_gavel_lets_all_end_together_if_asked_to(run, rows, ends):
    # One GPU for 10 and 30 s of work: shares of 1/4 and 3/4, not 1/2 each
    assert ends(run("gavel-events[round_s=1]", rows((0, 10), (0, 30)))) == pytest.approx([19, 40], abs=1.01)
    together = ends(run('gavel-events[round_s=1,objective="makespan"]', rows((0, 10), (0, 30))))
    assert together == pytest.approx([38, 40], abs=3.01)


def test_gavel_takes_turns_by_its_shares(run, rows, ends):
    # Two tasks of 10 s on one GPU in rounds of 1 s: both get half, so that both end at about 20.
    assert ends(run("gavel-events[round_s=1]", rows((0, 10), (0, 10)))) == pytest.approx([19, 20], abs=1.01)

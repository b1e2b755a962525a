"""``scripts/validate_plan.py``: answers of ``plan`` on queues whose truth is known."""

from __future__ import annotations

import json
from math import isclose

import pytest
from support.scripting import run_script
from validate_plan import Queue, covered


def test_a_short_log_has_the_size_of_an_independent_simulation() -> None:
    done = run_script("validate_plan", "--queues", "8x0.7/2", "--jobs", "1500", "--json")
    (row,) = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert row["planned"] == row["least"]
    assert isclose(row["today_p95"], row["log_p95"], rel_tol=1e-9)


@pytest.mark.parametrize("text", ["8", "8x1.2/1", "9x0.5/2", "8x.5/2,"])
def test_other_forms_of_queues_are_refused(text: str) -> None:
    assert run_script("validate_plan", "--queues", text).returncode == 2


def test_erlangs_wait_of_one_server_is_that_of_an_m_m_1_queue() -> None:
    # P(W > t) = load x exp(-(1 - load) t / 3600 s) = .05 at t = 3600 s x ln(18) / .1
    assert isclose(Queue(1, 0.9).erlang_p95(), 36_000 * 2.8903717578961645)


def test_intervals_hold_the_next_period_of_a_busy_queue() -> None:
    """M/M/8 at .9: without the level of the waits and the correction of short runs, 78 % held."""
    assert covered(Queue(8, 0.9), jobs=5000, pairs=100, seed=3).next >= 0.9

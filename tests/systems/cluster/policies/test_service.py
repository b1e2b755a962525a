"""Preemption by turns and by attained service."""

from __future__ import annotations

from statistics import mean

import pytest

STALLINGS = ((0, 3), (2, 6), (4, 4), (6, 5), (8, 2))
THREE = ((0, 2, 2), (0, 8, 1), (0, 6, 2))
"""2 GPUs; seconds and GPUs of three jobs, after Tiresias."""


def test_round_robin_waits_of_silberschatz(run, rows, ends):
    # q = 4, bursts 24, 3, 3: 1 0-4, 2 4-7, 3 7-10, 1 10-30: waits 6, 4, 7
    assert ends(run("round-robin[quantum_s=4]", rows((0, 24), (0, 3), (0, 3)))) == [30, 7, 10]


@pytest.mark.parametrize(("quantum", "expected"), [(1, 10.8), (4, 10.0)])
def test_round_robin_turnaround_of_stallings(run, rows, ends, quantum, expected):
    # q = 1 ends 4, 18, 17, 20, 15; q = 4 ends 3, 17, 11, 20, 19
    done = ends(run(f"round-robin[quantum_s={quantum}]", rows(*STALLINGS)))
    assert mean(end - job[0] for end, job in zip(done, STALLINGS, strict=True)) == pytest.approx(expected)


def test_round_robin_gathers_gpus_for_a_gang(run, rows, ends):
    # 2 GPUs, q = 2: 1 and 2 run (10 s each), 3 needs both GPUs for 2 s and gets them at 2; 1 and 2 go on at 4
    assert ends(run("round-robin[quantum_s=2]", rows((0, 10), (0, 10), (1, 2, 2)), 2)) == [12, 12, 4]


def test_a_slice_that_ends_while_nobody_waits_is_renewed(run, rows, ends):
    # q = 4: 1 alone 0-5, its second slice lasts until 8: 2 8-10, 1 10-14
    assert ends(run("round-robin[quantum_s=4]", rows((0, 12), (5, 2)))) == [14, 10]


@pytest.mark.parametrize(
    ("spec", "ended"),
    [
        # 2D-LAS: 1 0-1, 2 1-2, 3 2-3, 2 3-4, 1 4-5, 2 5-6, 3 6-7, 2 7-9, 3 9-10, 2 10-12, 3 12-13, 2 13-14, 3 14-16
        ("2d-las", [5, 14, 16]),
        # LAS: 1 0-1, 2 1-2, 3 2-3, 1 3-4, then 2 and 3 in turn, 3 done at 14, 2 at 16
        ("las", [4, 16, 14]),
    ],
)
def test_attained_service_in_unit_quanta(run, rows, ends, spec, ended):
    # means (5 + 14 + 16) / 3 = 11.667 and (4 + 16 + 14) / 3 = 11.333
    done = ends(run(f"{spec}[quantum_s=1]", rows(*THREE), 2))
    assert done == ended
    assert mean(done) == pytest.approx({"2d-las": 35 / 3, "las": 34 / 3}[spec])


def test_tiresias_runs_first_come_first_served_within_a_level(run, rows, ends):
    # q = 1, threshold 2 GPU-s: 1 (6 s) 0-2 falls, 2 (2 s, comes at 1) 2-4, 1 4-8
    assert ends(run("tiresias[thresholds=2,quantum_s=1]", rows((0, 6), (1, 2)))) == [8, 4]


def test_tiresias_promotes_who_waited_long_enough(run, rows, ends):
    # threshold 2, q = 1: 1 falls at 2 and 2 (1 s) runs, then 3, 4, 5, ... of 2 s each keep it down: done last, at 20.
    # promote = 2: at 2 + 2 x 2 = 6 it is first of all again: 6-8, falls again and waits until 8 + 4 = 12
    stream = [(0, 6), *((1 + 2 * number, 2) for number in range(7))]
    assert ends(run("tiresias[thresholds=2,quantum_s=1]", rows(*stream)))[0] == 20
    assert ends(run("tiresias[thresholds=2,quantum_s=1,promote=2]", rows(*stream)))[0] == 14

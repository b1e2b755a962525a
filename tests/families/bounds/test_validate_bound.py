"""``scripts/validate_bound.py``: bounds against enumerated optima and against policies."""

from __future__ import annotations

import ctypes

import pytest
from families.bounds.bound_cases import ONE, PAIR, TWO_TYPES, fast_chain, single
from validate_bound import against_optimum, against_policies, instance, least_sum

from dagsim.families.bounds.bound import scenario_bound
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing.cases import Case


def test_the_enumeration_finds_optima_known_by_hand() -> None:
    """The optima of ``test_bounds.py``, which says how each comes about."""
    assert least_sum(Case(ONE, [single("a", 4.0), single("b", 1.0), single("c", 2.0)])) == 11.0
    assert least_sum(Case(ONE, [single("long", 10.0), single("short", 1.0, 1.0)])) == 13.0
    assert least_sum(Case(TWO_TYPES, [fast_chain(), single("other", 3.0)])) == 6.0
    assert (
        least_sum(Case(PAIR, [single("gang", 3.0, instances=2, gang=True), single("a", 1.0), single("b", 1.0)])) == 6.0
    )


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    case = instance(166)  # HiGHS prints eight lines for its developers about this one
    scenario_bound(ClusterScenario(case.cluster, case.jobs), 0)
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("first", [1, 7, 18])
def test_no_bound_is_above_an_enumerated_optimum(first: int) -> None:
    checks = list(against_optimum(range(first, first + 5)))
    assert [check for check in checks if not check.holds] == []
    assert min(check.ratio for check in checks if check.best) > 0.98


def test_no_bound_is_above_a_schedule_of_the_kernel() -> None:
    checks = list(against_policies(range(4, 9)))
    assert len(checks) > 4
    assert [check for check in checks if not check.holds] == []

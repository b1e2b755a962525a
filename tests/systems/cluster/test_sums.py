"""Sums that decide anything are the same to the last bit on every Python."""

from __future__ import annotations

import builtins
import inspect
import random
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from dagsim.model import Cluster, Job, Kind, Task, TaskGraph
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.testing import engine_cases


def test_terms_are_added_from_left_to_right() -> None:
    assert ordered_sum([0.1] * 10) == 0.9999999999999999  # 1.0 with compensation
    assert ordered_sum([1e16, 1.0, -1e16]) == 0.0
    assert ordered_sum([]) == 0.0


def jobs_of(pieces: int, whole_s: float) -> list[Job]:
    """A job that keeps the GPU busy; then a job of one task, and behind it one of tasks of 0.1 s."""
    tenths = TaskGraph(tuple(Task(f"t{place}", 0.1) for place in range(pieces)))
    one = TaskGraph((Task("t", whole_s),))
    return [Job.single("first", Task("t", 1.0)), Job("one", one, 0.5), Job("tenths", tenths, 0.5)]


@pytest.mark.parametrize(("pieces", "whole_s"), [(10, 1.0), (100, 9.99999999999999)], ids=["narrow", "wide"])
def test_the_job_with_less_work_left_by_the_ordered_sum_starts_first(pieces: int, whole_s: float) -> None:
    cluster, jobs = Cluster.of({"V100": 1}), jobs_of(pieces, whole_s)
    logs = [
        drive(ClusterScenario(cluster, jobs).kernel(0), POLICIES.create("srpt-work")).log,
        engine_cases.compiled_schedule(cluster, jobs, "srpt-work").log,
    ]
    assert logs[0] == logs[1]
    started = [row.job for row in logs[0] if row.kind == Kind.STARTED]
    assert started[1] == 2


def strict_sum(terms: Iterable[Any], start: Any = 0) -> Any:
    """``sum`` for whole numbers and ``False``; in systems it refuses fractions."""
    values = list(terms)
    where = sys._getframe(1).f_globals.get("__name__", "")
    if where.startswith("dagsim.systems"):
        assert not any(isinstance(value, float) and value % 1 for value in values), f"{where}: sum() of fractions"
    total = start
    for value in values:
        total = total + value
    return total


def needs_nothing(name: str) -> bool:
    """Say whether the policy can be made without parameters."""
    parameters = inspect.signature(POLICIES.get(name)).parameters.values()  # type: ignore[arg-type]
    return all(parameter.default is not parameter.empty for parameter in parameters)


@pytest.mark.parametrize("policy", [name for name in POLICIES.names() if needs_nothing(name)])
def test_no_policy_adds_fractions_with_sum(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"sums {policy}")
    cluster, jobs = engine_cases.random_cluster(rng), engine_cases.jobs_of(rng)
    scenario = ClusterScenario(cluster, jobs)
    monkeypatch.setattr(builtins, "sum", strict_sum)
    drive(scenario.kernel(1), POLICIES.create(policy))

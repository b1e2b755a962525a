"""The policy ``believing``: another policy that sees expected durations, and nothing else that is hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.log_reading import rows_of

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError
from dagsim.experiment.scenario import scenario_of
from dagsim.families.learning.believing import Believing
from dagsim.model import Cluster, Job, Kind, Task
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive


@pytest.mark.parametrize("policy", ["sjf", "easy", "eft-wait[theta=0.7,order=path]", "srtf", "srpt-work"])
def test_with_exact_estimates_it_decides_as_the_other_policy(policy: str) -> None:
    settings = ["workload.preset=heterogeneous-dag", "workload.count=25", "estimates.kind=exact", "workload.load=1.1"]
    scenario = scenario_of(load_config(None, settings))
    alone, believing = (drive(scenario.kernel(3), given) for given in (POLICIES.create(policy), Believing(policy)))
    assert len(alone.log) > 300
    assert alone.log == believing.log


def job(name: str, seconds: float, arrival_s: float = 0.0, tenant: str | None = None) -> Job:
    return replace(Job.single(name, Task("t", seconds), arrival_s), tenant=tenant)


def starts_of(jobs: list[Job], policy: str) -> list[tuple[float, int]]:
    scenario = ClusterScenario(
        Cluster.of({"T4": 1}), jobs, estimates=Estimates("hidden"), preemption=Preemption(restart_s=5.0)
    )
    return [(row.time_s, row.job) for row in rows_of(drive(scenario.kernel(0), Believing(policy)).log, Kind.STARTED)]


def test_a_task_of_a_tenant_whose_tasks_were_short_goes_first() -> None:
    past = [job("a", 10.0, tenant="x"), job("b", 3000.0, 0.0, "y")]
    order = [number for _, number in starts_of([*past, job("c", 50.0, 20.0, "y"), job("d", 50.0, 30.0, "x")], "sjf")]
    assert order == [0, 1, 3, 2]


@pytest.mark.parametrize("policy", ["sjf", "srtf", "eft-wait", "easy-sjf"])
def test_decisions_do_not_depend_on_durations_that_have_not_shown_yet(policy: str) -> None:
    """Also not after a run was stopped, whose remaining work a kernel knows."""

    def before(long_s: float) -> list[tuple[float, int]]:
        arrivals = [job("long", long_s), *[job(f"short-{number}", 20.0, 700.0 + 100 * number) for number in range(3)]]
        return [start for start in starts_of(arrivals, policy) if start[0] < 950.0]

    assert before(3000.0) == before(70_000.0)


def test_a_policy_without_estimates_is_refused() -> None:
    with pytest.raises(ConfigError, match="a policy that uses estimates"):
        Believing("2d-las")
    with pytest.raises(ConfigError, match="a policy that uses estimates"):
        Believing("believing")

"""Explain stored runs: causes of waits, and traffic on links. The jobs of the runs are made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dagsim.errors import InputError
from dagsim.experiment.store import Store
from dagsim.model import Job
from dagsim.model.log import Schedule
from dagsim.systems.cluster import services
from dagsim.systems.cluster.network.base import HasRoutes
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of

if TYPE_CHECKING:
    from dagsim.systems.cluster.network.links import LinkUse
    from dagsim.systems.cluster.waits.causes import Stretch


def used_links(folder: Store, schedule: Schedule) -> list[LinkUse]:
    """Return the traffic on the links of the shared network in a run. The result is empty if the
    run had no such network.

    Raises:
        InputError: The run's trace is missing or has changed.
    """
    traffic = services.link_traffic.offered()
    # systems other than the GPU cluster have no network
    if not isinstance(folder.config.network, HasRoutes) or traffic is None:
        return []
    folder.check_trace()
    scenario = cluster_scenario_of(folder.config)
    used: list[LinkUse] = traffic(schedule, list(scenario.jobs(schedule.seed)), scenario)
    return used


def explained_waits(
    folder: Store, schedule: Schedule, policy: str
) -> Callable[[int, Sequence[tuple[float, float]]], tuple[Stretch, ...]]:
    """Return a function that explains waits in ``schedule``. Its arguments are the number of a job and
    the job's waiting periods, and it returns the causes of the waits.

    Raises:
        InputError: The run belongs to another system, or its trace is missing or has changed.
    """
    from dagsim.systems.cluster.waits.causes import binding_causes

    scenario, jobs = _inputs(folder, schedule)
    site = scenario.queues, scenario.network
    return lambda job, periods: binding_causes(schedule, jobs, job, periods, folder.spec_of(policy), *site)


def obstacle(folder: Store, schedule: Schedule, policy: str, job: int) -> str:
    """Describe what prevents a job from ever starting, even on an otherwise empty cluster. The
    result is empty if the job can start.

    Raises:
        InputError: The run belongs to another system, or its trace is missing or has changed.
    """
    from dagsim.systems.cluster.waits.present import Obstacles
    from dagsim.systems.cluster.waits.wait_rules import rules_of_named

    scenario, jobs = _inputs(folder, schedule)
    return Obstacles(scenario, partial(rules_of_named, folder.spec_of(policy))).of(jobs[job], jobs[job].arrival_s)


def _inputs(folder: Store, schedule: Schedule) -> tuple[ClusterScenario, list[Job]]:
    """Return the scenario that was simulated in a run, and its jobs.

    Raises:
        InputError: The run belongs to another system, or its trace is missing or has changed.
    """
    if not folder.config.whole_system.has_top_keys:
        raise InputError(f"{folder.path}: CPUs, memory and limits are only known for the GPU cluster")
    try:
        folder.check_trace()
    except InputError:
        raise InputError(f"{folder.path}: its trace is missing or has changed, so its jobs are unknown") from None
    scenario = cluster_scenario_of(folder.config)
    return scenario, list(scenario.jobs(schedule.seed))

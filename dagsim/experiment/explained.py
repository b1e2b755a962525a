"""The causes of a wait in a run folder: its schedule, read with the jobs that its configuration describes."""

from __future__ import annotations

from collections.abc import Sequence

from dagsim.errors import InputError
from dagsim.experiment.folder import RunFolder
from dagsim.experiment.scenario import cluster_scenario_of
from dagsim.model.log import Schedule
from dagsim.systems.cluster.waits import Stretch, binding_causes

__all__ = ["explained_wait"]


def explained_wait(
    folder: RunFolder, schedule: Schedule, policy: str, job: int, periods: Sequence[tuple[float, float]]
) -> tuple[Stretch, ...]:
    """The causes of the waits ``periods`` of a job in a run of the folder.

    Raises:
        InputError: It is of another system, or its jobs cannot be made again: its trace is gone or has changed.
    """
    if folder.config.system.kind != "cluster":
        raise InputError(f"{folder.path}: CPUs, memory and limits are known on the GPU cluster alone")
    try:
        folder.check_trace()
    except InputError:
        raise InputError(f"{folder.path}: its trace is gone or has changed, so that its jobs are not known") from None
    scenario = cluster_scenario_of(folder.config)
    jobs = scenario.jobs(schedule.seed)
    return binding_causes(schedule, jobs, job, periods, policy, scenario.queues)

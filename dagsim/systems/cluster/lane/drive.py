"""From a scenario to its schedule: make the columns, call the compiled loop, give it space when it asks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dagsim.errors import ConfigError, Stalled
from dagsim.log import ROW, ScheduleLog
from dagsim.model import Cluster, Job
from dagsim.schedule import Schedule
from dagsim.sim.estimates import Estimates
from dagsim.sim.preemption import Preemption
from dagsim.sim.runtime import Recorded, Runtime
from dagsim.systems.cluster.lane.lists import advance_list
from dagsim.systems.cluster.lane.orders import ORDERS, Columns
from dagsim.systems.cluster.lane.reading import Scene, read
from dagsim.systems.cluster.lane.scenario import Plan, planned, too_much
from dagsim.systems.cluster.lane.state import ROWS, STRICT, State, grown, new_state

__all__ = ["run", "simulate"]


def run(
    cluster: Cluster,
    jobs: Iterable[Job],
    policy: str,
    *,
    runtime: Runtime | None = None,
    preemption: Preemption | None = None,
    estimates: Estimates | None = None,
    seed: int = 0,
) -> Schedule:
    """The schedule of the jobs, equal to that of ``Simulation``: log byte for byte, jobs and all.

    Raises:
        ConfigError: The lane cannot carry this out; the message names what it does not know.
        ModelError: Jobs that do not come in order of arrival, or a task without the estimate that is asked for.
    """
    plan = planned(policy)
    scene = read(cluster, jobs, runtime or Recorded(), estimates or Estimates(), seed)
    rows, ended_s = simulate(scene, plan)
    return Schedule(cluster, scene.facts, ScheduleLog.of(rows), seed, ended_s=ended_s)


def simulate(scene: Scene, plan: Plan) -> tuple[np.ndarray, float]:
    """The whole log, and when it ended.

    Raises:
        ConfigError: The lane cannot simulate these jobs.
    """
    why = too_much(scene)
    if why:
        raise ConfigError(why)
    s = _state(scene, plan)
    log = np.empty(_rows(scene), ROW)
    while advance_list(s, log.view(np.recarray)):
        if len(log) - s.n[ROWS] < len(s.nodes) + 2:
            log.resize(len(log) * 3 // 2, refcheck=False)
        else:
            s = grown(s)
    _check(s)
    log.resize(int(s.n[ROWS]), refcheck=False)
    return log, float(s.now[0])


def _state(scene: Scene, plan: Plan) -> State:
    order = ORDERS[plan.policy]
    with np.errstate(invalid="ignore"):  # inf - inf, of tasks that run nowhere: their jobs are rejected
        key = order.keys(Columns(scene.work, scene.classes))
    s = new_state(scene.work, scene.classes, scene.nodes, key, plan.placement)
    s.n[STRICT] = order.strict
    s.ageing[0] = plan.params.get("ageing", 0.0)
    return s


def _rows(scene: Scene) -> int:
    """Rows that the log begins with: enough for one run per task on one node."""
    return 2 * len(scene.work.truth) + 2 * len(scene.facts) + len(scene.nodes.table) + 2


def _check(s: State) -> None:
    """Raise unless every job has been rejected or is done."""
    waiting = np.flatnonzero((s.jobs.left[:-1] > 0) & (s.jobs.rejected[:-1] == 0))
    if len(waiting):
        raise Stalled(f"at {s.now[0]:g} s: job {waiting[0]} and {len(waiting) - 1} others are not done, nothing runs")

"""From a scenario to its schedule: make the columns, call the compiled loop, give it space when it asks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dagsim.errors import ConfigError, Stalled
from dagsim.model import Cluster, Job, Task
from dagsim.model.log import ROW, Schedule, ScheduleLog
from dagsim.systems.cluster.lane import jit
from dagsim.systems.cluster.lane.easy import EASY, EasyState, advance_easy, grown_easy, new_easy
from dagsim.systems.cluster.lane.job_orders import JOB_ORDERS, JobOrder, advance_jobs, new_job_order
from dagsim.systems.cluster.lane.las import LAS, Las, advance_las, grown_las, new_las
from dagsim.systems.cluster.lane.orders import ORDERS, Columns, advance_list
from dagsim.systems.cluster.lane.reading import LaneScenario, read_scenario
from dagsim.systems.cluster.lane.scenario import POLICIES, LanePolicy, planned, too_much
from dagsim.systems.cluster.lane.srtf import SRTF, Srtf, advance_srtf, grown_pieces, grown_srtf, new_srtf, srtf_state
from dagsim.systems.cluster.lane.state import ROWS, STRICT, State, grown, new_state
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import Preemption
from dagsim.systems.cluster.models.runtime import Recorded, Runtime

__all__ = ["compile_loops", "is_warm", "run", "scheduled", "whole_log"]

_KEYS = {"srtf": "sjf", "srsf": "saf"}
"""Orders that pieces are ranked by, too."""
_FAMILIES = {
    "advance_jobs": tuple(JOB_ORDERS),
    "advance_easy": tuple(EASY),
    "advance_srtf": SRTF,
    "advance_las": LAS,
}
"""Compiled loops with the policies that need them; all others need ``advance_list``."""


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
    """The schedule of the jobs, equal to that of ``ClusterKernel``: log byte for byte, jobs and all.

    Raises:
        ConfigError: The lane cannot carry this out; the message names what it does not know.
        ModelError: Jobs that do not come in order of arrival, or a task without the estimate that is asked for.
    """
    plan = planned(policy, preemption)
    return scheduled(
        cluster, read_scenario(cluster, jobs, runtime or Recorded(), estimates or Estimates(), seed), plan, seed
    )


def scheduled(cluster: Cluster, scene: LaneScenario, plan: LanePolicy, seed: int) -> Schedule:
    """The schedule of a scene that was read before.

    Raises:
        ConfigError: The lane cannot simulate these jobs.
    """
    rows, ended_s = whole_log(scene, plan)
    return Schedule(cluster, scene.facts, ScheduleLog.of(rows), seed, ended_s=ended_s)


def compile_loops(policies: Iterable[str] = POLICIES) -> list[str]:
    """Compile what these policies need and was not compiled before, and keep it; returns the loops compiled.

    Of several processes one compiles, the others wait for it.
    """
    made = []
    for family, policy in {_family(planned(policy).policy): policy for policy in policies}.items():
        if jit.jitted() and not jit.is_kept(family):
            with jit.alone():
                if not jit.is_kept(family):
                    run(Cluster.of({"V100": 1}), [Job.single("j", Task("t", 1.0))], planned(policy).policy)
                    made.append(family)
    return made


def is_warm(policy: str) -> bool:
    """True if what a policy needs was compiled before."""
    return jit.is_kept(_family(planned(policy).policy))


def _family(policy: str) -> str:
    return next((name for name, policies in _FAMILIES.items() if policy in policies), "advance_list")


def whole_log(scene: LaneScenario, plan: LanePolicy) -> tuple[np.ndarray, float]:
    """The whole log, and when it ended.

    Raises:
        ConfigError: The lane cannot simulate these jobs.
    """
    why = too_much(scene, plan)
    if why:
        raise ConfigError(why)
    if not scene.facts:
        return np.empty(0, ROW), 0.0
    loop = _loop(scene, plan)
    log = np.empty(rows_at_first(scene), ROW)
    while loop.advance(log.view(np.recarray)):
        if len(log) - loop.s.n[ROWS] < len(loop.s.nodes) + 2:
            log.resize(len(log) * 3 // 2, refcheck=False)
        else:
            loop.grow()
    _check(loop.s)
    log.resize(int(loop.s.n[ROWS]), refcheck=False)
    return log, float(loop.s.now[0])


class Loop:
    """The compiled loop of a family of policies, and what it works on."""

    def __init__(self, s: State) -> None:
        self.s = s

    def advance(self, log: np.recarray) -> bool:
        """Go on; True if there is more to do but not enough space."""
        return advance_list(self.s, log)

    def grow(self) -> None:
        """Make more space in the state."""
        self.s = grown(self.s)


class JobLoop(Loop):
    """Orders over jobs as wholes."""

    def __init__(self, s: State, order: JobOrder) -> None:
        super().__init__(s)
        self.order = order

    def advance(self, log: np.recarray) -> bool:
        return advance_jobs(self.s, log, self.order)


class EasyLoop(Loop):
    """EASY and its orders."""

    def __init__(self, s: State, easy: EasyState) -> None:
        super().__init__(s)
        self.easy = easy

    def advance(self, log: np.recarray) -> bool:
        return advance_easy(self.s, log, self.easy)

    def grow(self) -> None:
        super().grow()
        self.easy = grown_easy(self.s, self.easy)


class SrtfLoop(Loop):
    """Least remaining first, with preemption."""

    def __init__(self, s: State, srtf: Srtf) -> None:
        super().__init__(s)
        self.srtf = srtf

    def advance(self, log: np.recarray) -> bool:
        return advance_srtf(self.s, log, self.srtf)

    def grow(self) -> None:
        self.s = grown_pieces(self.s)
        self.srtf = grown_srtf(self.s, self.srtf)


class LasLoop(Loop):
    """Least attained service first, in rounds."""

    def __init__(self, s: State, las: Las) -> None:
        super().__init__(s)
        self.las = las

    def advance(self, log: np.recarray) -> bool:
        return advance_las(self.s, log, self.las)

    def grow(self) -> None:
        self.s = grown_pieces(self.s)
        self.las = grown_las(self.s, self.las)


def _loop(scene: LaneScenario, plan: LanePolicy) -> Loop:
    work, classes = scene.work, scene.classes
    order = ORDERS[_KEYS.get(plan.policy, plan.policy if plan.policy in ORDERS else "fifo")]
    with np.errstate(invalid="ignore"):  # inf - inf, of tasks that run nowhere: their jobs are rejected
        key = order.keys(Columns(work, classes))
    s = new_state(work, classes, scene.nodes, key, plan.placement)
    if plan.policy in JOB_ORDERS:
        return JobLoop(s, new_job_order(work, classes, plan.policy))
    if plan.policy in EASY:
        return EasyLoop(s, new_easy(s, work, classes, plan.policy))
    if plan.policy in SRTF:
        s = srtf_state(s)
        return SrtfLoop(s, new_srtf(s, classes, plan.policy, plan.keeps))
    if plan.policy in LAS:
        s = srtf_state(s)
        return LasLoop(s, new_las(s, plan.policy, float(plan.params.get("quantum_s", 60.0)), plan.keeps))  # type: ignore[arg-type]
    s.n[STRICT] = order.strict
    s.ageing[0] = plan.params.get("ageing", 0.0)
    return Loop(s)


def rows_at_first(scene: LaneScenario) -> int:
    """Rows that the log begins with: enough for one run per task on one node."""
    return 2 * len(scene.work.truth) + 2 * len(scene.facts) + len(scene.nodes.table) + 2


def _check(s: State) -> None:
    """Raise unless every job has been rejected or is done."""
    waiting = np.flatnonzero((s.jobs.left[:-1] > 0) & (s.jobs.rejected[:-1] == 0))
    if len(waiting):
        raise Stalled(f"at {s.now[0]:g} s: job {waiting[0]} and {len(waiting) - 1} others are not done, nothing runs")

"""Compute the schedule of a scenario: choose the loop, call it, and enlarge the arrays when the
loop needs more space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import ConfigError, Stalled
from dagsim.families.compiled import jit
from dagsim.families.compiled.easy import RANKS, advance_easy, new_easy
from dagsim.families.compiled.job_keys import JOB_KEYS, advance_jobs, new_job_order
from dagsim.families.compiled.las import advance_las, new_las
from dagsim.families.compiled.list_scheduling import KeyColumns, advance_list, key_columns, sample_columns
from dagsim.families.compiled.longest_wait import advance_waits, new_waits
from dagsim.families.compiled.mapping import advance_mapping, new_mapping
from dagsim.families.compiled.memory import (
    BEST,
    CONSOLIDATE,
    FIRST,
    WORST,
    State,
    grown,
    more_pieces,
    new_state,
    with_more_room,
    with_pieces,
)
from dagsim.families.compiled.reading import EngineScenario, read_scenario
from dagsim.families.compiled.rules import ENDLESS, MOVE, RECALL
from dagsim.families.compiled.srtf import advance_srtf, new_srtf
from dagsim.freed_memory import return_freed_memory
from dagsim.model import Cluster, Job, Task
from dagsim.model.log import ROW, Schedule, ScheduleLog
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import placement
from dagsim.systems.cluster.policies.attained import ByGpuSeconds, BySeconds
from dagsim.systems.cluster.policies.backfilling import Easy
from dagsim.systems.cluster.policies.batch_mode import BatchMode
from dagsim.systems.cluster.policies.job_orders import JobOrdered
from dagsim.systems.cluster.policies.orders import LongestWait, Ordered, TypedOrdered, fifo
from dagsim.systems.cluster.policies.preemption import LeastRemaining
from dagsim.systems.cluster.policies.rounds import Rounds
from dagsim.systems.cluster.waits.stalled import why_endless
from dagsim.workload.arrays import JobArrays

MANY = 200_000
"""Number of jobs from which freed memory is returned to the system before the loop and before the
metrics."""

_PLACEMENTS: Mapping[type, int] = {
    placement.BestFit: BEST,
    placement.FirstFit: FIRST,
    placement.WorstFit: WORST,
    placement.Consolidate: CONSOLIDATE,
}
_LOOPS: Mapping[type, str] = {
    Ordered: "advance_list",
    TypedOrdered: "advance_list",
    LongestWait: "advance_waits",
    BatchMode: "advance_mapping",
    JobOrdered: "advance_jobs",
    Easy: "advance_easy",
    LeastRemaining: "advance_srtf",
    Rounds: "advance_las",
}
"""The compiled loop for each policy class. Subclasses are left out, because they may decide
differently."""


class UncompiledPlacement(ConfigError):
    """Raised if the compiled engine does not support a placement rule."""


class EnginePlan(NamedTuple):
    """A policy in the form that the compiled engine runs."""

    policy: Any
    """An object of one of the classes in ``_LOOPS``, from which keys and settings are taken."""
    loop: str
    placement: int
    keeps: bool = True
    """True if a preempted run keeps the work that it has done."""


def plan_of(policy: object, *, keeps: bool = True) -> EnginePlan:
    """Return the plan for a policy object.

    Raises:
        ConfigError: The engine does not support the policy or its placement. The message of the
            error completes a sentence that begins with the policy.
    """
    loop = _LOOPS.get(type(policy))
    match policy:
        case Ordered() | TypedOrdered() | LongestWait() if loop:
            key_columns(policy, sample_columns())
        case LeastRemaining():
            key_columns(policy.order, sample_columns())
        case JobOrdered() if policy.make_key not in JOB_KEYS:
            loop = None
        case Easy() if policy.rank not in RANKS:
            loop = None
        case Rounds() if type(policy.rank) not in (BySeconds, ByGpuSeconds) or policy.lead:
            loop = None
        case _:
            pass
    if loop is None:
        raise ConfigError("the decisions of this policy are not compiled")
    rule: object = policy.order.placement if isinstance(policy, LeastRemaining) else policy.placement  # type: ignore[attr-defined]
    return EnginePlan(policy, loop, placement_number(rule), keeps)


def placement_number(rule: object) -> int:
    """Return the number of a placement rule in the compiled engine.

    Raises:
        UncompiledPlacement: The rule is not compiled. The message of the error completes a sentence
            that begins with the object that uses the rule.
    """
    if type(rule) not in _PLACEMENTS:
        raise UncompiledPlacement(f"the placement {type(rule).__name__} is not compiled")
    return _PLACEMENTS[type(rule)]


def scheduled(cluster: Cluster, scene: EngineScenario, plan: EnginePlan, seed: int) -> Schedule:
    """Return the schedule of a scene. The log is the same as that of ``ClusterKernel``, byte for
    byte, and so are the jobs and all other fields.

    Raises:
        ConfigError: The policy's key cannot be computed for these tasks.
        Stalled: Jobs are unfinished, but nothing is running.
    """
    rows, ended_s = whole_log(scene, plan)
    return Schedule(cluster, scene.facts, ScheduleLog.of(rows), seed, ended_s=ended_s, begins_s=scene.work.begins_s)


def compile_loop(plan: EnginePlan) -> bool:
    """Compile and store the functions that a policy needs. Return True if at least one had not been
    compiled before. If several processes call this function, one of them compiles and the others
    wait.
    """
    if not jit.jitted() or is_warm(plan):
        return False
    with jit.alone():
        if is_warm(plan):
            return False
        cluster, job = Cluster.of({"V100": 1}), Job.single("j", Task("t", 1.0))
        whole_log(read_scenario(cluster, JobArrays.of([job]), Recorded(), Estimates(), 0), plan)
    return True


def is_warm(plan: EnginePlan) -> bool:
    """Return True if the functions that a policy needs are already compiled."""
    return jit.is_kept(plan.loop)


def whole_log(scene: EngineScenario, plan: EnginePlan) -> tuple[np.ndarray, float]:
    """Return the whole log, and its end time."""
    if not scene.jobs:
        return np.empty(0, ROW), scene.work.begins_s
    loop = _loop(scene, plan)
    if scene.jobs >= MANY:
        return_freed_memory()
    log = np.empty(rows_at_first(scene), ROW)
    while loop.advance(log.view(np.recarray)):
        if len(log) - loop.s.count.rows < len(loop.s.nodes) + 2:
            log.resize(len(log) * 3 // 2, refcheck=False)
        else:
            loop.grow()
    _check(loop)
    log.resize(int(loop.s.count.rows), refcheck=False)
    return log, float(loop.s.clock.now_s)


class Loop:
    """The compiled loop of a policy, together with the state of the engine and of the policy."""

    def __init__(self, s: State, advance: Callable[..., bool], *more: Any) -> None:
        self.s = s
        self._advance = advance
        self._more = more

    def advance(self, log: np.recarray) -> bool:
        """Simulate until no event is left (return False), or until more space is needed (return
        True)."""
        return self._advance(self.s, log, *self._more)

    @property
    def endless(self) -> str:
        """The reason why the loop stopped although jobs could continue, or an empty text."""
        if self.s.clock.phase != ENDLESS:
            return ""
        round_ = self._more[0].round
        return why_endless(float(self.s.clock.now_s), float(round_.since_s), int(round_.woken), float(round_.next_s))

    def grow(self) -> None:
        """Enlarge the arrays of the state."""
        pieces = more_pieces(self.s)
        self.s = with_more_room(self.s, pieces)
        self._more = tuple([grown(state, pieces) for state in self._more])


def _loop(scene: EngineScenario, plan: EnginePlan) -> Loop:
    work, classes, policy = scene.work, scene.classes, plan.policy
    columns = KeyColumns(work, classes)
    match policy:
        case Ordered() | TypedOrdered():
            order = policy
        case LeastRemaining():
            order = policy.order
        # The remaining policies have their own queues, which serve tasks with equal keys in order
        # of arrival.
        case _:
            order = fifo()
    s = new_state(work, classes, scene.nodes, key_columns(order, columns), plan.placement)
    s.clock.phase = RECALL if work.begins_s else MOVE
    match policy:
        case LongestWait():
            return Loop(s, advance_waits, new_waits(s, key_columns(policy, columns)))
        case BatchMode():
            return Loop(s, advance_mapping, new_mapping(s, work, classes, policy.rule))
        case JobOrdered():
            return Loop(s, advance_jobs, new_job_order(work, JOB_KEYS[policy.make_key]))
        case Easy():
            return Loop(s, advance_easy, new_easy(s, work, classes, RANKS[policy.rank]))
        case LeastRemaining():
            s = with_pieces(s)
            return Loop(s, advance_srtf, new_srtf(s, policy.weight, columns, plan.keeps))
        case Rounds():
            s = with_pieces(s)
            s.rule.told = True  # the keys are the service that jobs have received
            by_gpus = isinstance(policy.rank, ByGpuSeconds)
            return Loop(s, advance_las, new_las(s, by_gpus, float(policy.quantum_s), plan.keeps))
    if isinstance(policy, Ordered):
        s.rule.strict, s.rule.ageing = policy.strict, policy.ageing
    return Loop(s, advance_list)


def rows_at_first(scene: EngineScenario) -> int:
    """Return the initial number of rows in the log, which is enough if each task has one run on one
    node."""
    return 2 * len(scene.work.truth) + 2 * scene.jobs + len(scene.nodes.table) + 2


def _check(loop: Loop) -> None:
    """Check that every job is done or rejected."""
    s = loop.s
    if loop.endless:
        raise Stalled(loop.endless)
    waiting = np.flatnonzero((s.jobs.left[:-1] > 0) & (s.jobs.rejected[:-1] == 0))
    if len(waiting):
        raise Stalled(
            f"at {s.clock.now_s:g} s: job {waiting[0]} and {len(waiting) - 1} others are not done, but nothing is "
            "running"
        )

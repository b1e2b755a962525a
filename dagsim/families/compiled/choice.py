"""The choice of engine for a run. It depends on whether the compiled engine supports the run, and
whether it would save time. If the compiled engine is not used, the reason is reported.

The SimPy kernel defines the rules and calls the policy for every decision. The compiled engine
contains its own implementation of the policy, so it does not call the policy during the run. The
output is the same, byte for byte. If the compiled engine does not support something, the kernel
takes over, and the reason is reported.

Reasons are checked in order of cost: first the features of the scenario, then whether numba is
installed, then the number of tasks, and last the engine itself. Nothing here imports numba.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from dagsim.errors import ConfigError, DagsimError
from dagsim.freed_memory import return_freed_memory
from dagsim.model import Cluster
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.log import Schedule
from dagsim.systems.cluster.arrivals.dependencies import any_depends
from dagsim.systems.cluster.arrivals.job_stream import JobStream
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.resources.site import SiteState
from dagsim.systems.policy_spec import PolicySpec
from dagsim.systems.seam import Engaged, EngineUse
from dagsim.workload.arrays import JobArrays
from dagsim.workload.sessions import Sessions
from dagsim.workload.synthetic import Synthetic

if TYPE_CHECKING:
    from dagsim.families.compiled.drive import EnginePlan
    from dagsim.families.compiled.reading import EngineScenario
    from dagsim.systems.cluster.scenario import ClusterScenario

INSTALL = "the compiled engine needs numba: pip install -e '.[fast]' in the checkout"

EXAMPLES = ("fifo", "hrrn", "min-min", "srpt-work", "easy", "srtf", "las")
"""A policy for each compiled loop, as an example."""

BESIDE = "not compiled yet; it is being compiled in the background"
"""The reason why a run that starts the compilation for later runs uses SimPy itself."""
_MOST = 9e9
"""Maximum cores or GB in a cluster. The sum of the millionths of a larger number would not fit
exactly into 64 bits."""
_MOST_JOBS = 1 << 21
"""Maximum number of jobs under EASY, because the kernel stores their order as a float, which cannot
distinguish more jobs."""
_MOST_LEAVES = 1 << 27
"""Maximum number of leaves in all trees, which then take 1 GB."""
LONG_S = 30.0
"""If a run takes at least this many seconds, the user is told about a faster engine."""


class CompiledKernel:
    """A simulation in the compiled engine. The simulation runs to its end in one step, without
    asking a policy for decisions.
    """

    def __init__(
        self, cluster: Cluster, jobs: Iterable[Any], scene: EngineScenario, plan: EnginePlan, seed: int
    ) -> None:
        self.jobs = jobs
        self.schedule = Schedule(cluster, seed=seed)
        self._scene: EngineScenario | None = scene
        self._plan = plan

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self.schedule.ended_s

    def decisions(self, until_s: float = inf) -> Generator[Any, Any, None]:
        """Run the simulation to its end. No decision is yielded.

        Raises:
            ConfigError: ``until_s`` would stop the run before the end.
            Stalled: Jobs are unfinished, but nothing is running.
        """
        if until_s != inf:
            raise ConfigError("the compiled engine always runs to the end; use engine simpy to stop earlier")
        from dagsim.families.compiled.drive import MANY, compile_loop, scheduled

        compile_loop(self._plan)
        scene, self._scene = self._scene, None
        if scene is not None:  # free the columns of the scene, because computing the metrics needs much memory
            self.schedule = scheduled(self.schedule.cluster, scene, self._plan, self.schedule.seed)
            large, scene = scene.jobs >= MANY, None
            if large:
                return_freed_memory()
        yield from ()


def is_installed() -> bool:
    """Return True if numba is installed. This does not import numba."""
    return find_spec("numba") is not None


def why_broken() -> str:
    """Return the reason why numba is installed but cannot be imported, such as a version of NumPy
    that is too new. The result is empty if numba can be imported."""
    try:
        import numba  # noqa: F401
    except ImportError as error:
        return f"numba is installed, but cannot be imported: {error}"
    return ""


@cache
def costs() -> Mapping[str, Mapping[str, Any]]:
    """Return how long each compiled loop and the SimPy kernel took under the same policy, as
    measured by ``scripts/bench_engine.py``."""
    measured: Mapping[str, Mapping[str, Any]] = json.loads(files(__package__).joinpath("costs.json").read_text("utf-8"))
    return measured


def pays(policy: str) -> int:
    """Return the number of tasks above which the compiled engine was faster than the kernel in
    measurements with this (supported) policy.
    """
    from dagsim.families.compiled.drive import plan_of

    return int(costs()[plan_of(POLICIES.create(policy)).loop]["pays"])


def fewest() -> int:
    """Return the smallest number of tasks from which the compiled engine is faster than the kernel
    under some policy (``pays``)."""
    return min(int(cost["pays"]) for cost in costs().values())


def plan_for(policy: str, preemption: Preemption) -> EnginePlan:
    """Return the plan by which the compiled engine would run a policy. The policy is given by name,
    with parameters in brackets.

    Raises:
        ConfigError: The engine does not support the policy, its placement, its parameters, or
            the configured preemption.
        InputError: The policy does not exist, or cannot be built.
    """
    from dagsim.families.compiled.drive import UncompiledPlacement, plan_of

    name, params = PolicySpec.parse(policy).call
    if ":" not in name:
        POLICIES.get(name)
    try:
        plan = plan_of(POLICIES.create(policy), keeps=preemption.on_resume == "resume")
    except ConfigError as error:
        placement = params.get("placement")
        what = f"the placement {placement!r}" if isinstance(error, UncompiledPlacement) else f"the policy {name!r}"
        raise ConfigError(f"the compiled engine does not support {what}: {error}") from error
    if plan.loop in ("advance_srtf", "advance_las") and (preemption.restart_s or preemption.checkpoint_s_per_gb):
        raise ConfigError("the compiled engine does not support preemptions that take time")
    if plan.loop == "advance_las" and not plan.keeps:
        raise ConfigError("the compiled engine does not support round-based policies if preempted runs lose their work")
    return plan


def why_not(scenario: ClusterScenario, policy: str, observed: bool = False) -> str:
    """Return a reason not to use the compiled engine that does not depend on the jobs. The result
    is empty if there is no such reason."""
    if scenario.engine == "simpy":
        return "asked for"
    why = _feature(scenario, observed)
    if why or is_installed():
        return why or (_unknown(scenario, policy) if scenario.engine == "compiled" else "")
    return INSTALL


def why_not_live(scenario: ClusterScenario) -> str:
    """Return the reason why the compiled engine cannot run episodes, in which decisions are made
    one by one (``episodes.side_by_side``). The result is empty if the engine can run them. For a
    trace, one window is read in order to inspect its columns."""
    if scenario.engine == "simpy":
        return "asked for"
    if scenario.outages or (why := _feature(scenario, False)):
        return "the compiled engine does not support nodes that come and leave" if scenario.outages else why
    if not is_installed():
        return INSTALL
    from dagsim.families.compiled.jit import jitted

    if not jitted():
        return "NUMBA_DISABLE_JIT=1 prevents numba from compiling"
    if isinstance(scenario.workload, Synthetic | Sessions):
        return ""
    jobs = scenario.jobs(0)
    if not jobs.are_stored or jobs.begins_s:
        return "the compiled engine supports episodes of generated jobs and of trace windows"
    return unplayable(jobs.arrays())


def unplayable(jobs: JobArrays) -> str:
    """Return the reason why some of the jobs cannot run in the compiled engine. The result is empty
    if all jobs can."""
    if jobs.eligible_s is not None and (jobs.eligible_s > jobs.arrival_s).any():
        return "the compiled engine does not support jobs that may not start when they arrive"
    if any_depends(jobs):
        return "the compiled engine does not support jobs that wait for others"
    if jobs.request is not None and any(SiteState.is_needed_for(request) for request in jobs.request.words):
        return "the compiled engine does not support jobs that name nodes"
    if jobs.in_flight and any(run.until_s is not None for runs in jobs.in_flight.words for run in runs):
        return "the compiled engine does not support runs that ended before the beginning"
    if jobs.in_flight and any(
        share.gpu is not None for runs in jobs.in_flight.words for run in runs for share in run.placement
    ):
        return "the compiled engine does not support instances in flight on a named GPU"
    return ""


def compiled(
    scenario: ClusterScenario, jobs: JobStream, policy: str, seed: int, on_arrivals: Callable[[int], None] | None
) -> Engaged | str:
    """Decide which engine to use. Return the compiled kernel and the reason for using it, or only
    the reason for not using it.

    Raises:
        TraceError, WorkloadError: The jobs cannot be generated.
        ModelError: The jobs are not in order, or lack a required estimate.
    """
    if scenario.outages and jobs.outages().windows:
        return "the compiled engine does not support nodes that come and leave"
    if jobs.elastic:
        return "the compiled engine does not support elastic tasks"
    if scenario.engine == "auto" and not jobs.may_have(fewest()):
        return _few(fewest())
    from dagsim.families.compiled import warming
    from dagsim.families.compiled.drive import is_warm
    from dagsim.families.compiled.reading import read_scenario

    try:
        plan = plan_for(policy, scenario.preemption)
    except DagsimError as error:
        if scenario.engine == "compiled":
            raise
        return str(error)
    least = int(costs()[plan.loop]["pays"])
    if scenario.engine == "auto" and not jobs.may_have(least):
        return _few(least)
    # Importing numba takes longer than a short run in SimPy. Loading compiled code does not need it, and a compilation
    # beside the run finds out by itself whether it can be imported.
    if not is_warm(plan):
        if (scenario.engine == "compiled" or warming.has_failed()) and (why := why_broken()):
            return why
        if scenario.engine == "auto":
            return BESIDE if warming.warm_beside(policy) else "not compiled yet: `dagsim warm` does it once"
    arrays = jobs.arrays()
    if scenario.engine == "auto" and arrays.tasks < least:
        return _few(least)
    if why := unplayable(arrays):
        return why
    scene = read_scenario(scenario.cluster, arrays, scenario.runtime, scenario.estimates, seed, scenario.queues)
    jobs.measure(arrays, scene.work.truth)
    if on_arrivals is not None:
        on_arrivals(len(arrays))
    if why := too_much(scene, plan.loop):
        return why
    reason = "asked for" if scenario.engine == "compiled" else f"{least:,} tasks or more"
    kernel = CompiledKernel(scenario.cluster, jobs, scene, plan, seed)
    return Engaged(kernel, EngineUse(scenario.engine, "compiled", reason))


def faster_engine(scenario_of: Callable[[], ClusterScenario], policy: str, engine: EngineUse, wall_s: float) -> str:
    """Return a hint if a long run in the SimPy kernel could have used the compiled engine, and an
    empty string otherwise.

    The caller prints only the first hint of each command.
    """
    from dagsim.families.compiled import warming

    name = PolicySpec.parse(policy).name
    if engine.reason == BESIDE:
        if warming.has_failed() and (why := why_broken()):
            return why
        return (
            f"the compiled engine for {name} is being compiled in the background, once for this machine; later runs "
            f"are about {faster(policy)} times as fast"
        )
    if wall_s < LONG_S or engine.asked != "auto" or engine.used != "simpy":
        return ""
    scenario = scenario_of()
    if is_installed() or _feature(scenario, False) or _unknown(scenario, policy):
        return ""
    return (
        f"{name} took {wall_s:.0f} s in engine simpy. The compiled engine gives the same results about "
        f"{faster(policy)} times as fast: pip install -e '.[fast]'"
    )


def faster(policy: str) -> str:
    """Return how many times faster the compiled engine was than the kernel, as measured with many
    tasks."""
    from dagsim.families.compiled.drive import plan_of

    cost = costs()[plan_of(POLICIES.create(policy)).loop]
    return f"{cost['simpy_us'] / cost['compiled_us']:.0f}"


def _few(tasks: int) -> str:
    return f"fewer than {tasks:,} tasks: the compiled engine takes longer to load"


def too_much(scene: EngineScenario, loop: str) -> str:
    """Return a reason not to use the compiled engine that depends on the jobs. The result is
    empty if there is no such reason."""
    from dagsim.families.compiled.memory import NAMED_GPUS

    work, classes, nodes = scene.work, scene.classes, scene.nodes
    unnamed = np.unique(nodes.table.type[nodes.table.gpus > NAMED_GPUS])
    # On nodes with more than NAMED_GPUS GPUs, the engine does not record which GPUs a run uses.
    # Shares of GPUs need this record, because it decides where later shares fit.
    if (classes.may[classes.table.share > 0][:, unnamed] > 0).any():
        return f"the compiled engine does not support shares of GPUs on nodes of more than {NAMED_GPUS} GPUs"
    jobs = len(work.jobs.arrival_s)
    if loop == "advance_easy" and jobs > _MOST_JOBS:
        return f"the compiled engine supports EASY for up to {_MOST_JOBS:,} jobs, got {jobs:,}"
    if 4 * nodes.by_type.shape[1] * classes.may.sum() > _MOST_LEAVES:
        return f"{len(classes.table)} different demands on {len(nodes.table)} nodes need too much memory when compiled"
    return ""


def _feature(scenario: ClusterScenario, observed: bool) -> str:
    """Describe the first feature of the scenario that the engine does not support. The result is
    empty if it supports all features.
    """
    nodes = scenario.cluster.nodes
    amounts = [ordered_sum(node.cpus for node in nodes), ordered_sum(node.memory_gb for node in nodes)]
    features = {
        "a set-up model": scenario.setup is not None,
        "a network": scenario.network is not None,
        "a sharing model": scenario.sharing is not None,
        "failures": bool(scenario.failures),
        "periodic checkpoints": scenario.preemption.checkpoint_interval_s is not None,
        "observers of the log": observed,
        "admission": scenario.admission,
        "elastic tasks": scenario.elastic is not None,
        "cores that the runtime chooses": getattr(scenario.runtime, "cores", "asked") != "asked",
        "nodes that are powered on demand": any(node.on_demand is not None for node in nodes),
        "parts of GPUs (mig_s)": any(node.mig_s is not None for node in nodes),
        "partitions, features, reservations and licences": SiteState.binds(scenario.cluster, scenario.queues),
        "suspensions of jobs": scenario.queues is not None and bool(scenario.queues.suspensions),
        f"more than {_MOST:.0e} cores or GB of memory": max(amounts) > _MOST,
    }
    named = [feature for feature, there in features.items() if there]
    return f"the compiled engine does not support {named[0]}" if named else ""


def _unknown(scenario: ClusterScenario, policy: str) -> str:
    """Return the reason why the engine does not support the policy. The result is empty if it
    supports the policy."""
    try:
        plan_for(policy, scenario.preemption)
    except DagsimError as error:
        return str(error)
    return ""

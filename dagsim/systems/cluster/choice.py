"""The choice of an engine: reasons against the compiled one, and the columns that it reads.

The reasons come in order of what they cost: features of the scenario, whether numba is there, the number of tasks, and
only then the lane itself, whose import takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dagsim.errors import ConfigError
from dagsim.model import Job
from dagsim.systems.cluster.engine import INSTALL, CompiledKernel, is_installed, pays
from dagsim.systems.cluster.jobs import JobStream
from dagsim.systems.cluster.models.runtime import HasRates

if TYPE_CHECKING:
    from dagsim.systems.cluster.lane.reading import LaneScenario
    from dagsim.systems.cluster.scenario import ClusterScenario
    from dagsim.workload.arrays import JobArrays

__all__ = ["compiled", "refuse", "why_not"]


def why_not(scenario: ClusterScenario, policy: str, observed: bool = False) -> str:
    """The reason against the compiled engine that shows without jobs; empty if there is none."""
    if scenario.engine == "simpy":
        return "asked for"
    features = {
        "a set-up model": scenario.setup is not None,
        "a network": scenario.network is not None,
        "disturbances": bool(scenario.disturbances),
        "observers of the log": observed,
        "admission": scenario.admission,
    }
    for feature, there in features.items():
        if there:
            return f"the compiled engine does not know {feature}"
    if not is_installed():
        return INSTALL
    return _unknown(scenario, policy) if scenario.engine == "compiled" else ""


def refuse(why: str) -> ConfigError:
    """The error where the compiled engine is asked for and cannot be used."""
    return ConfigError(f"engine compiled: {why}; allowed: engine simpy or auto")


def compiled(
    scenario: ClusterScenario, jobs: JobStream, policy: str, seed: int, heard: Callable[[int], None] | None
) -> CompiledKernel | str:
    """The compiled kernel, or the reason against it.

    Raises:
        TraceError, WorkloadError: The jobs cannot be made.
        ModelError: They do not come in order, or lack an estimate that is asked for.
    """
    if scenario.outages and jobs.outages().windows:
        return "the compiled engine does not know nodes that come and leave"
    arrays: JobArrays | None = None
    least = pays(policy)
    few = f"fewer than {least:,} tasks: the compiled engine takes longer to load"
    if scenario.engine == "auto":
        if not jobs.in_columns() and not jobs.has(least):
            return few
        why = _unknown(scenario, policy) or _not_ready(policy)
        if why:
            return why
    if isinstance(scenario.runtime, HasRates):
        arrays = jobs.arrays()
    if arrays is not None and scenario.engine == "auto" and arrays.tasks < least:
        jobs.unroll(arrays)
        return few
    from dagsim.systems.cluster.lane.scenario import planned, too_much

    source: Iterable[Job] = jobs if heard is None else jobs.told(heard)
    plan, scene = planned(policy, scenario.preemption), _scene(scenario, source, jobs, arrays, seed)
    if arrays is not None and heard is not None:
        heard(len(arrays))
    return too_much(scene, plan) or CompiledKernel(scenario.cluster, jobs, scene, plan, seed)


def _scene(
    scenario: ClusterScenario, source: Iterable[Job], jobs: JobStream, arrays: JobArrays | None, seed: int
) -> LaneScenario:
    """The scenario as the lane's columns."""
    from dagsim.systems.cluster.lane.reading import read_arrays, read_scenario

    if arrays is None:
        return read_scenario(scenario.cluster, source, scenario.runtime, scenario.estimates, seed)
    assert isinstance(scenario.runtime, HasRates)
    scene = read_arrays(scenario.cluster, arrays, scenario.runtime, scenario.estimates, seed)
    jobs.came(arrays, scene.work.truth)
    return scene


def _unknown(scenario: ClusterScenario, policy: str) -> str:
    """The reason why the lane cannot play the policy on the cluster, if any."""
    from dagsim.systems.cluster.lane.scenario import applies

    return applies(scenario.cluster, policy, preemption=scenario.preemption).why


def _not_ready(policy: str) -> str:
    """The reason why the policy could not start at once."""
    from dagsim.systems.cluster.lane.drive import is_warm

    return "" if is_warm(policy) else "not compiled yet: `dagsim warm` does it once"

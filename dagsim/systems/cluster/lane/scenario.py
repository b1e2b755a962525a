"""The scenarios that the lane can carry out, and reasons against the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from dagsim.errors import ConfigError, DagsimError
from dagsim.model import Cluster
from dagsim.registry import Spec
from dagsim.systems.cluster.engine import INSTALL
from dagsim.systems.cluster.lane import jit
from dagsim.systems.cluster.lane.easy import EASY
from dagsim.systems.cluster.lane.job_orders import JOB_ORDERS
from dagsim.systems.cluster.lane.las import LAS
from dagsim.systems.cluster.lane.orders import ORDERS
from dagsim.systems.cluster.lane.reading import LaneScenario
from dagsim.systems.cluster.lane.srtf import SRTF
from dagsim.systems.cluster.lane.state import BEST, CONSOLIDATE, FIRST, NAMED_GPUS, WORST
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import Preemption

__all__ = ["PLACEMENTS", "POLICIES", "Applicability", "LanePolicy", "applies", "planned", "too_much"]

PLACEMENTS: Mapping[str, int] = {
    "best-fit": BEST,
    "fastest": BEST,
    "first-fit": FIRST,
    "worst-fit": WORST,
    "consolidate": CONSOLIDATE,
}
POLICIES = (*ORDERS, *JOB_ORDERS, *EASY, *SRTF, *LAS)
"""The policies that the lane knows."""
_PARAMS: Mapping[str, tuple[str, ...]] = {"priority": ("ageing",), **dict.fromkeys(LAS, ("quantum_s",))}
"""Parameters beside ``placement`` that a policy may have."""
_MOST = 9e9
"""Cores or GB of a cluster whose millionths, summed, are a number that 64 bits hold exactly, as a float as well."""
_MOST_JOBS = 1 << 21
"""Jobs whose order the SimPy kernel's EASY, which keeps it as a float, tells apart."""
_MOST_LEAVES = 1 << 27
"""Leaves of all trees: 1 GB."""


class LanePolicy(NamedTuple):
    """A policy as the lane knows it."""

    policy: str
    placement: int
    params: Mapping[str, object]
    keeps: bool = True
    """A preempted run keeps the work it has done."""


class Applicability(NamedTuple):
    """The verdict on a scenario: carried out, or a sentence that says why not."""

    holds: bool
    why: str = ""


def applies(
    cluster: Cluster,
    policy: object,
    *,
    runtime: object = None,
    setup: object = None,
    network: object = None,
    preemption: Preemption | None = None,
    disturbances: Collection[object] = (),
    estimates: Estimates | None = None,
    observers: Collection[object] = (),
    admission: bool = False,
    needs_numba: bool = True,
) -> Applicability:
    """Say whether the lane can play a scenario. Its arguments are those of ``ClusterKernel`` and a policy's name.

    ``run`` may still refuse for what only the jobs show (``too_much``). Without ``needs_numba`` it does not matter
    whether the lane can be compiled.
    """
    if needs_numba and not jit.installed():
        return Applicability(False, INSTALL)
    features = {
        "a set-up model": setup is not None,
        "a network": network is not None,
        "disturbances": bool(disturbances),
        "observers of the log": bool(observers),
        "admission": admission,
        "more than 9e9 cores or GB of memory": _is_huge(cluster),
    }
    for feature, there in features.items():
        if there:
            return Applicability(False, f"the compiled lane does not know {feature}")
    try:
        planned(policy, preemption)
    except DagsimError as error:
        return Applicability(False, str(error))
    return Applicability(True)


def planned(policy: object, preemption: Preemption | None = None) -> LanePolicy:
    """The plan for a policy's name, with its parameters in brackets.

    Raises:
        ConfigError: The lane does not know the policy, its placement or another parameter, or how to preempt.
    """
    if not isinstance(policy, str):
        raise ConfigError(f"the compiled lane knows policies by name, got {policy!r}")
    name, params = Spec.parse(policy)
    if name not in POLICIES:
        raise ConfigError(f"the compiled lane does not know the policy {name!r}; it knows {', '.join(POLICIES)}")
    placement = params.pop("placement", "best-fit")
    if placement not in PLACEMENTS:
        known = ", ".join(PLACEMENTS)
        raise ConfigError(f"the compiled lane does not know the placement {placement!r}; it knows {known}")
    for param in params:
        if param not in _PARAMS.get(name, ()):
            raise ConfigError(f"the compiled lane does not know the parameter {param!r} of {name}")
        if not isinstance(params[param], int | float):
            raise ConfigError(f"{name}: {param} must be a number, got {params[param]!r}")
    if not params.get("quantum_s", 60.0) > 0:  # type: ignore[operator]
        raise ConfigError(f"quantum_s must be positive, got {params['quantum_s']!r}")
    stops = preemption or Preemption()
    if name in (*SRTF, *LAS) and (stops.restart_s or stops.checkpoint_s_per_gb):
        raise ConfigError("the compiled lane does not know preemptions that take time")
    if name in LAS and stops.on_resume == "restart":
        raise ConfigError("the compiled lane does not know rounds whose preempted runs lose their work")
    return LanePolicy(name, PLACEMENTS[str(placement)], params, stops.on_resume == "resume")


def too_much(scene: LaneScenario, plan: LanePolicy) -> str:
    """A sentence that says why the lane cannot simulate these jobs, empty if it can."""
    work, classes, nodes = scene.work, scene.classes, scene.nodes
    unnamed = np.unique(nodes.table.type[nodes.table.gpus > NAMED_GPUS])
    if (classes.may[classes.table.share > 0][:, unnamed] > 0).any():  # which GPU a share is on decides later ones
        return f"the compiled lane does not know shares of GPUs on nodes of more than {NAMED_GPUS} GPUs"
    if plan.policy in EASY and len(work.jobs.arrival_s) > _MOST_JOBS:
        return f"the compiled lane knows {plan.policy} for up to {_MOST_JOBS} jobs, got {len(work.jobs.arrival_s)}"
    leaves = 4 * nodes.by_type.shape[1] * classes.may.sum()
    if leaves > _MOST_LEAVES:
        return f"{len(classes.table)} different demands on {len(nodes.table)} nodes need too much memory in the lane"
    return ""


def _is_huge(cluster: Cluster) -> bool:
    return sum(node.cpus for node in cluster.nodes) > _MOST or sum(node.memory_gb for node in cluster.nodes) > _MOST

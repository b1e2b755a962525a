"""dagsim simulates DAG jobs on heterogeneous GPU clusters, and compares schedulers with error bars.

The public names below are loaded on first use, so that ``import dagsim`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagsim.family import required

if TYPE_CHECKING:
    from dagsim.errors import DagsimError
    from dagsim.experiment.api import compare, replay, simulate
    from dagsim.experiment.simulate import Outcome
    from dagsim.metrics import Summary, summarize
    from dagsim.model import (
        Admit,
        Cluster,
        Edge,
        GpuType,
        Job,
        Migrate,
        Node,
        Preempt,
        Reject,
        Share,
        Start,
        Task,
        TaskGraph,
        Wait,
    )
    from dagsim.model.log import Schedule
    from dagsim.systems.cluster import ClusterKernel, ClusterPolicy, ClusterView
    from dagsim.systems.cluster.policies import POLICIES
    from dagsim.workload import PRESETS, Synthetic

__version__ = "0.1.0"

_HOMES = {
    "dagsim.errors": ("DagsimError",),
    "dagsim.experiment.api": ("compare", "replay", "simulate"),
    "dagsim.experiment.simulate": ("Outcome",),
    "dagsim.metrics": ("Summary", "summarize"),
    "dagsim.model": (
        "Admit",
        "Cluster",
        "Edge",
        "GpuType",
        "Job",
        "Migrate",
        "Node",
        "Preempt",
        "Reject",
        "Share",
        "Start",
        "Task",
        "TaskGraph",
        "Wait",
    ),
    "dagsim.systems.cluster.policies": ("POLICIES",),
    "dagsim.model.log": ("Schedule",),
    "dagsim.systems.cluster": ("ClusterPolicy", "ClusterKernel", "ClusterView"),
    "dagsim.workload": ("PRESETS", "Synthetic"),
}
__all__ = [
    "POLICIES",
    "PRESETS",
    "Admit",
    "Cluster",
    "ClusterKernel",
    "ClusterPolicy",
    "ClusterView",
    "DagsimError",
    "Edge",
    "GpuType",
    "Job",
    "Migrate",
    "Node",
    "Outcome",
    "Preempt",
    "Reject",
    "Schedule",
    "Share",
    "Start",
    "Summary",
    "Synthetic",
    "Task",
    "TaskGraph",
    "Wait",
    "compare",
    "plan",
    "replay",
    "simulate",
    "summarize",
    "train",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    if name in ("plan", "train"):
        return required(name, "public")
    raise AttributeError(f"module 'dagsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

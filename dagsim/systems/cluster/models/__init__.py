"""The registries of the GPU cluster's models (run times, transfers, failures and others), and
``Models``, the set of models in one simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dagsim.errors import ConfigError
from dagsim.model import QueueTree
from dagsim.registry import Entry, Registry
from dagsim.spelling import call_hint
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import FailureModel
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.models.runtime import Recorded, Runtime
from dagsim.systems.cluster.models.setups import Setup
from dagsim.systems.cluster.models.shared_gpus import Sharing
from dagsim.systems.cluster.network import NETWORKS, Communication, Network

__all__ = ["COMMUNICATIONS", "FAILURE_MODELS", "RUNTIMES", "SETUPS", "SHARINGS", "Models", "check_models"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models that a simulation of a cluster uses. By default, tasks take as long as recorded,
    there are no failures, no set-up times and no transfer times, and estimates are exact.
    """

    runtime: Runtime = field(default_factory=Recorded)
    """Turns the work of a task into seconds on each type of GPU."""
    setup: Setup | None = None
    """Seconds that a run spends on its GPUs before it computes."""
    network: Network | None = None
    """Carries the inputs of tasks and, with a storage, the states of runs."""
    sharing: Sharing | None = None
    """Rates of two tasks on the same GPUs; ``None`` without ``Join``."""
    communication: Communication | None = None
    """What gangs send over ``network`` in each step; a runtime model may state this itself."""
    preemption: Preemption = field(default_factory=Preemption)
    """What a stopped run keeps, what resuming it costs, and periodic checkpoints."""
    failures: Sequence[FailureModel] = ()
    """What takes nodes down and brings them back."""
    estimates: Estimates = field(default_factory=Estimates)
    """What policies know about run times."""
    queues: QueueTree | None = None
    """Queues, which policies read, and partitions, reservations and licences, which apply under all
    policies."""
    admission: bool = False
    """True if every arrival waits for ``Admit`` or ``Reject``."""


RUNTIMES: Registry[Any] = Registry(
    "runtime",
    [
        Entry("throughput", ".runtime:Throughput", "measured throughputs of models, else the speeds of GPU types"),
        Entry("recorded", ".runtime:Recorded", "seconds as recorded, on every type or scaled from a reference GPU"),
        Entry(
            "fed",
            ".runtime:Fed",
            "another runtime model; tasks with too few cores or too little host memory are slower",
        ),
        Entry("flops", ".runtime:Flops", "work in TFLOP over a share of each type's peak"),
    ],
    group="dagsim.runtimes",
    listing="dagsim list runtimes",
    home="dagsim.systems.cluster.models",
    method="seconds",
)
"""Runtime models: they turn work into seconds."""

SETUPS: Registry[Any] = Registry(
    "set-up",
    [Entry("moving_delay", ".setups:MovingDelay", "a delay where a GPU served another job before")],
    group="dagsim.setups",
    listing="dagsim list setups",
    home="dagsim.systems.cluster.models",
    method="seconds",
)
"""Set-up models: the time that a run spends on its GPUs before it computes."""

SHARINGS: Registry[Any] = Registry(
    "sharing model",
    group="dagsim.sharings",
    listing="dagsim list sharings",
    home="dagsim.systems.cluster.models",
    method="pair",
)
"""Sharing models: the rates of tasks on the same GPUs."""

COMMUNICATIONS: Registry[Any] = Registry(
    "communication model",
    group="dagsim.communications",
    listing="dagsim list communications",
    home="dagsim.systems.cluster.models",
    method="traffic",
)
"""Communication models: what gangs send in each step."""

FAILURE_MODELS: Registry[Any] = Registry(
    "failure model",
    [
        Entry("node_failures", ".failures:NodeFailures", "each node fails at random and is repaired"),
        Entry("maintenance", ".failures:Maintenance", "nodes are away from one time to another"),
        Entry("spot", ".failures:SpotCapacity", "nodes are taken back with notice and returned, at random"),
        Entry("failure_log", ".failures:FailureLog", "failures as logged in a CSV file"),
    ],
    group="dagsim.failures",
    listing="dagsim list failures",
    home="dagsim.systems.cluster.models",
    method="start",
)
"""Models that take nodes down and bring them back."""

_KINDS: Mapping[str, Registry[Any] | type] = {
    "runtime": RUNTIMES,
    "setup": SETUPS,
    "network": NETWORKS,
    "sharing": SHARINGS,
    "communication": COMMUNICATIONS,
    "preemption": Preemption,
    "failures": FAILURE_MODELS,
    "estimates": Estimates,
    "queues": QueueTree,
}
"""For each field of ``Models``, its class or the registry that states which method it needs."""
_OPTIONAL = [model.name for model in fields(Models) if model.default is None]


def check_models(call: str, models: Mapping[str, Any]) -> None:
    """Check that values for the fields of ``Models`` are models. Other names are ignored.

    Raises:
        ConfigError: A value is not such a model. The message begins with ``call``.
    """
    for name, value in models.items():
        kind = _KINDS.get(name)
        if kind is None or (value is None and name in _OPTIONAL):
            continue
        for part in value if name == "failures" and isinstance(value, list | tuple) else [value]:
            if isinstance(part, kind) if isinstance(kind, type) else _has_method(part, kind):
                continue
            raise ConfigError(
                f"{call}: {name} must be a model object, not a name or a value; got {part!r}{call_hint(part)}"
            )


def _has_method(value: object, kind: Registry[Any]) -> bool:
    return not isinstance(value, type) and hasattr(value, str(kind.method))

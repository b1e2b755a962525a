"""Models of everything that takes time or goes wrong on the GPU cluster, by name."""

from __future__ import annotations

from typing import Any

from dagsim.registry import Entry, Registry

__all__ = ["COMMUNICATIONS", "FAILURE_MODELS", "RUNTIMES", "SETUPS", "SHARINGS"]

RUNTIMES: Registry[Any] = Registry(
    "runtime",
    [
        Entry("throughput", ".runtime:Throughput", "measured throughputs of models, else the speeds of GPU types"),
        Entry("recorded", ".runtime:Recorded", "seconds as recorded, on every type or scaled from a reference GPU"),
        Entry(
            "llm", ".communication:Llm", "steps of language models; the time of each follows from placement and network"
        ),
        Entry("fed", ".runtime:Fed", "another runtime, limited by the cores and the host memory of a task"),
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
    [Entry("moving_delay", ".failures:MovingDelay", "a delay where a GPU served another job before")],
    group="dagsim.setups",
    listing="dagsim list setups",
    home="dagsim.systems.cluster.models",
    method="seconds",
)
"""Set-up models: the time that a run spends on its GPUs before it computes."""

SHARINGS: Registry[Any] = Registry(
    "sharing model",
    [Entry("pairs", ".sharing:PairTable", "measured rates of pairs of tasks on a GPU, and a default")],
    group="dagsim.sharings",
    listing="dagsim list sharings",
    home="dagsim.systems.cluster.models",
    method="pair",
)
"""Sharing models: the rates of tasks on the same GPUs."""

COMMUNICATIONS: Registry[Any] = Registry(
    "communication model",
    [Entry("models", ".communication:ModelTraffic", "bytes and collective of a step, by model, and a default")],
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

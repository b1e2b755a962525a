"""Operations on other GPU types: times scaled by what bounds them, where a profile has one type only.

Multiplications (convolutions, linear layers, recurrent cells, attention) are bound by the arithmetic rate, all else by
the memory's bandwidth, and data loading by neither: a roofline without its knee (Williams et al. 2009). It is an
estimate; a profile taken on a type (``Op.seconds_on``) always goes before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dagsim.model import GpuType
from dagsim.systems.ramp.graph import ComputationGraph, Op

__all__ = ["bound", "costed"]

_ARITHMETIC = ("conv", "linear", "lstm", "gru", "rnn", "attention", "classifier", "matmul", "query", "key", "value")
_ARITHMETIC_TOO = ("scores", "mix", "project", "up", "down")
_LOADING = ("input", "_source")


def costed(
    graph: ComputationGraph, profiled_on: GpuType, types: Iterable[GpuType], *, precision: str = "fp32"
) -> ComputationGraph:
    """The graph with times for every type; the profile's own stay as they are.

    Raises:
        ModelError: ``precision`` is not ``fp32``, ``tf32`` or ``fp16``.
    """
    kinds = tuple(types)
    return ComputationGraph(graph.model, (_on(op, profiled_on, kinds, precision) for op in graph.ops), graph.edges)


def bound(op: Op) -> str:
    """``arithmetic``, ``bandwidth`` or ``loading``, by the operation's name."""
    name = op.name.split("(")[0].lower()
    if any(name.startswith(word) for word in _LOADING):
        return "loading"
    if name in _ARITHMETIC_TOO or any(word in name for word in _ARITHMETIC):
        return "arithmetic"
    return "bandwidth"


def _on(op: Op, profiled_on: GpuType, types: tuple[GpuType, ...], precision: str) -> Op:
    found = {}
    for gpu in types:
        match bound(op):
            case "arithmetic":
                slower = profiled_on.tflops(precision) / gpu.tflops(precision)
            case "bandwidth":
                slower = profiled_on.bandwidth_gb_s / gpu.bandwidth_gb_s
            case _:
                slower = 1.0
        found[gpu.name] = (op.forward_s * slower, op.backward_s * slower)
    return replace(op, seconds_on={**found, **op.seconds_on})

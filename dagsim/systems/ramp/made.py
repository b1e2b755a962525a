"""Made-up computation graphs: chains, branches and attention blocks, drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.systems.ramp.graph import ComputationGraph, Op

__all__ = ["attention", "branches", "op_chain"]

_ATTENTION = ("norm", "query", "key", "value", "scores", "mix", "project", "add", "norm2", "up", "down", "add2")
_WITHIN = (
    ("norm", "query"),
    ("norm", "key"),
    ("norm", "value"),
    ("query", "scores"),
    ("key", "scores"),
    ("scores", "mix"),
    ("value", "mix"),
    ("mix", "project"),
    ("project", "add"),
    ("add", "norm2"),
    ("norm2", "up"),
    ("up", "down"),
    ("down", "add2"),
    ("add", "add2"),
)


def op_chain(length: int, *, rng: np.random.Generator, forward_s: float = 1e-3) -> ComputationGraph:
    """``length`` operations in a row, of ``forward_s`` on average.

    Raises:
        WorkloadError: ``length`` is below 1.
    """
    _at_least_one(length=length)
    ids = [str(number + 1) for number in range(length)]
    return ComputationGraph.of(f"chain-{length}", _drawn(ids, rng, forward_s), pairwise(ids))


def branches(width: int, length: int, *, rng: np.random.Generator, forward_s: float = 1e-3) -> ComputationGraph:
    """A fork into ``width`` chains of ``length`` operations and their join (an Inception module, unrolled).

    Raises:
        WorkloadError: ``width`` or ``length`` is below 1.
    """
    _at_least_one(width=width, length=length)
    ids = [str(number + 1) for number in range(width * length + 2)]
    rows = [ids[1 + row * length : 1 + (row + 1) * length] for row in range(width)]
    edges = [edge for row in rows for edge in ((ids[0], row[0]), *pairwise(row), (row[-1], ids[-1]))]
    return ComputationGraph.of(f"branches-{width}x{length}", _drawn(ids, rng, forward_s), edges)


def attention(
    layers: int, *, width: int = 1024, tokens: int = 512, batch: int = 8, tflops: float = 60.0
) -> ComputationGraph:
    """``layers`` Transformer blocks in half precision, costed by their multiplications at ``tflops`` (nothing drawn).

    Vaswani et al. 2017, with the norm first: attention over ``tokens``, then a feed-forward net four times as wide.
    What only moves data costs its bytes at 1.5 TB/s; the backward pass of a multiplication is twice the forward one.

    Raises:
        WorkloadError: A count is below 1 or the rate is not positive.
    """
    _at_least_one(layers=layers, width=width, tokens=tokens, batch=batch)
    if not tflops > 0:
        raise WorkloadError(f"tflops must be positive, got {tflops!r}")
    rows = batch * tokens
    outputs = dict.fromkeys(_ATTENTION, rows * width) | {"scores": batch * tokens * tokens, "up": 4 * rows * width}
    square = {"query", "key", "value", "project"}
    weights = dict.fromkeys(square, width * width) | {"up": 4 * width * width, "down": 4 * width * width}
    mixing = 2 * batch * tokens * tokens * width
    flop = {name: 2 * rows * weights[name] for name in weights} | {"scores": mixing, "mix": mixing}
    ops, edges = [], []
    for layer in range(layers):
        for name in _ATTENTION:
            moved_s = 4 * outputs[name] / 1.5e12
            forward_s = flop[name] / (tflops * 1e12) if name in flop else moved_s
            backward_s = 2 * forward_s if name in flop else moved_s
            id_ = f"{layer}.{name}"
            ops.append(Op(id_, forward_s, backward_s, 2.0 * outputs[name], 2.0 * weights.get(name, 0), name))
        edges += [(f"{layer}.{one}", f"{layer}.{other}") for one, other in _WITHIN]
        edges.append((f"{layer}.norm", f"{layer}.add"))
        if layer:
            edges.append((f"{layer - 1}.add2", f"{layer}.norm"))
    return ComputationGraph.of(f"attention-{layers}", ops, edges)


def _drawn(ids: Iterable[str], rng: np.random.Generator, forward_s: float) -> list[Op]:
    """Operations whose times and sizes spread by a factor of two or so; backward takes one to three times as long."""
    ops = []
    for id_ in ids:
        forward = forward_s * float(rng.lognormal(-0.245, 0.7))  # mean 1
        backward = forward * float(rng.uniform(1.0, 3.0))
        activation, parameter = (float(round(size)) for size in rng.lognormal(15.0, 1.0, 2))
        ops.append(Op(id_, forward, backward, activation, parameter))
    return ops


def _at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise WorkloadError(f"{name} must be at least 1, got {count!r}")

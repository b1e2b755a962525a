"""Computation graphs: the operations in a deep-learning model, what they cost, and the data that
they send to each other.

Only the forward pass is stored. In the backward pass, each operation has a mirror and each edge is
reversed. The loss joins the two passes. The operations of both passes together are called pass
operations. Pass operation ``i`` is a forward operation, and ``len(graph.ops) + i`` is its mirror.

If a profile covers only one GPU type, it is scaled to other types by the resource that limits each
operation. Multiplications (convolutions, linear layers, recurrent cells, attention) are limited by
the arithmetic rate. Data loading does not depend on the GPU. Everything else is limited by memory
bandwidth. This is a roofline model without the knee (Williams et al. 2009), so it is only an
estimate. A profile that was measured on the type itself (``Op.seconds_on``) always takes
precedence.

Synthetic graphs are chains, branches and attention blocks, drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from math import isfinite

import numpy as np

from dagsim.errors import GraphError, ModelError, WorkloadError, require
from dagsim.model import GpuType
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.job import linked


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: the seconds of its two passes on the profiled GPU, the bytes of its output,
    and the bytes of its weights.

    ``seconds_on`` maps the names of other GPU types to the seconds that both passes take there.

    Raises:
        ModelError: A cost or size is negative or not finite.
    """

    id: str
    forward_s: float
    backward_s: float
    activation_bytes: float
    parameter_bytes: float
    name: str = ""
    seconds_on: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("forward_s", "backward_s", "activation_bytes", "parameter_bytes"):
            _check(f"op {self.id!r}: {name}", getattr(self, name))
        for gpu, passes in self.seconds_on.items():
            for seconds in passes:
                _check(f"op {self.id!r}: its seconds on {gpu!r}", seconds)

    @property
    def memory_bytes(self) -> float:
        """The bytes of the output and the weights together, which each pass keeps in memory."""
        return self.activation_bytes + self.parameter_bytes

    def seconds(self, gpu: str | None = None) -> tuple[float, float]:
        """Return the forward and the backward seconds on a GPU type. Without a type, or for a type
        that ``seconds_on`` lacks, these are the profiled times.
        """
        return self.seconds_on.get(gpu or "", (self.forward_s, self.backward_s))


class ComputationGraph:
    """The operations in the order of their file, and edges ``(parent, child)`` as indices.

    Raises:
        GraphError: There are no operations, an id occurs twice, or an edge occurs twice, closes
            a cycle or leads to a missing operation.
    """

    __slots__ = ("_costs", "_digest", "_step_s", "children", "edges", "model", "ops", "order", "parents")

    def __init__(self, model: str, ops: Iterable[Op], edges: Iterable[tuple[int, int]]) -> None:
        self.model = model
        self.ops = tuple(ops)
        self.edges = tuple(edges)
        if not self.ops:
            raise GraphError(f"graph {model!r} has no operations")
        try:
            self.parents, self.children, self.order = linked("operation", [op.id for op in self.ops], self.edges)
        except GraphError as error:
            raise GraphError(f"graph {model!r}: {error}") from None
        self._digest = ""
        self._costs: dict[str | None, tuple[float, ...]] = {}
        self._step_s = -1.0

    @classmethod
    def of(cls, model: str, ops: Iterable[Op], edges: Iterable[tuple[str, str]]) -> ComputationGraph:
        """Build a graph whose edges name operations by their ids.

        Raises:
            GraphError: The graph is invalid (see the class), or an edge names an unknown operation.
        """
        ops = tuple(ops)
        place = {op.id: number for number, op in enumerate(ops)}
        numbered = []
        for parent, child in edges:
            for end in (parent, child):
                if end not in place:
                    raise GraphError(
                        f"graph {model!r}: the edge {parent!r} -> {child!r} names {end!r}, which does not exist"
                    )
            numbered.append((place[parent], place[child]))
        return cls(model, ops, numbered)

    @property
    def last(self) -> int:
        """The operation that joins the passes. As in ddls, it is the operation with the largest id
        or, if not all ids are numbers, the last operation in the file.
        """
        if all(op.id.isdecimal() for op in self.ops):
            return max(range(len(self.ops)), key=lambda number: int(self.ops[number].id))
        return len(self.ops) - 1

    @property
    def sinks(self) -> tuple[int, ...]:
        """Operations without children."""
        return tuple(number for number, children in enumerate(self.children) if not children)

    @property
    def digest(self) -> str:
        """A digest of all costs, sizes and edges. Equal graphs have equal digests, even if their
        names differ.
        """
        if not self._digest:
            text = [
                (
                    op.id,
                    op.forward_s,
                    op.backward_s,
                    op.activation_bytes,
                    op.parameter_bytes,
                    sorted(op.seconds_on.items()),
                )
                for op in self.ops
            ]
            self._digest = blake2b(repr((text, self.edges)).encode(), digest_size=16).hexdigest()
        return self._digest

    def costs(self, gpu: str | None = None) -> tuple[float, ...]:
        """Return the seconds of every pass operation on one GPU of a type. Forward operations come
        first, then their mirrors.
        """
        costs = self._costs.get(gpu)
        if costs is None:
            both = [op.seconds(gpu) for op in self.ops]
            costs = self._costs[gpu] = (*(one for one, _ in both), *(other for _, other in both))
        return costs

    @property
    def step_s(self) -> float:
        """The duration of a training step, in seconds, on one GPU of the profiled type, on which
        the operations run in sequence.
        """
        if self._step_s < 0:
            self._step_s = ordered_sum(self.costs())
        return self._step_s

    @property
    def memory_bytes(self) -> float:
        """The bytes of the outputs and weights of all operations, in both passes."""
        return 2 * ordered_sum(op.memory_bytes for op in self.ops)

    @property
    def dep_bytes(self) -> float:
        """The bytes sent over the edges of both passes before any split. Each edge carries the
        output of its source."""
        outputs = [op.activation_bytes for op in self.ops]
        return ordered_sum(outputs[parent] + outputs[child] for parent, child in self.edges) + outputs[self.last]

    def pass_id(self, number: int) -> str:
        """Return the id of a pass operation. If the ids are ``1..n``, the mirror of ``k`` has the
        id ``2n + 1 - k``. Otherwise, the mirror of ``id`` has the id ``id'``.
        """
        count = len(self.ops)
        op = self.ops[number % count]
        if number < count:
            return op.id
        return str(2 * count + 1 - int(op.id)) if op.id.isdecimal() else f"{op.id}'"

    def depths(self) -> tuple[int, ...]:
        """Return the number of edges on the shortest path from the first source to each pass
        operation, or 0 if no path leads there.

        The passes are joined at the operation ``last``.
        """
        count = len(self.ops)
        depths = {self.order[0]: 0}
        queue = [self.order[0]]
        for number in queue:
            if number < count:
                following = [*self.children[number], *([count + number] if number == self.last else [])]
            else:
                following = [count + parent for parent in self.parents[number - count]]
            for child in following:
                if child not in depths:
                    depths[child] = depths[number] + 1
                    queue.append(child)
        return tuple(depths.get(number, 0) for number in range(2 * count))

    def __len__(self) -> int:
        return len(self.ops)

    def __repr__(self) -> str:
        return f"ComputationGraph({self.model!r}, {len(self.ops)} ops, {len(self.edges)} edges)"


def _check(what: str, value: float) -> None:
    if not (isfinite(value) and value >= 0):
        raise ModelError(f"{what} must be a finite number of 0 or more, got {value!r}")


_ARITHMETIC = ("conv", "linear", "lstm", "gru", "rnn", "attention", "classifier", "matmul", "query", "key", "value")
_ARITHMETIC_TOO = ("scores", "mix", "project", "up", "down")
_LOADING = ("input", "_source")


def costed(graph: ComputationGraph, profiled_on: GpuType, types: Iterable[GpuType]) -> ComputationGraph:
    """Return the graph with times for every type, in single precision. Profiled times are
    unchanged.
    """
    kinds = tuple(types)
    return ComputationGraph(graph.model, (_on(op, profiled_on, kinds) for op in graph.ops), graph.edges)


def bound(op: Op) -> str:
    """Return what limits the speed of an operation, judging by its name: ``arithmetic``,
    ``bandwidth`` or ``loading``."""
    name = op.name.split("(")[0].lower()
    if any(name.startswith(word) for word in _LOADING):
        return "loading"
    if name in _ARITHMETIC_TOO or any(word in name for word in _ARITHMETIC):
        return "arithmetic"
    return "bandwidth"


def _on(op: Op, profiled_on: GpuType, types: tuple[GpuType, ...]) -> Op:
    seconds_on = {}
    for gpu in types:
        match bound(op):
            case "arithmetic":
                slower = profiled_on.tflops("fp32") / gpu.tflops("fp32")
            case "bandwidth":
                slower = profiled_on.bandwidth_gb_s / gpu.bandwidth_gb_s
            case _:
                slower = 1.0
        seconds_on[gpu.name] = (op.forward_s * slower, op.backward_s * slower)
    return replace(op, seconds_on={**seconds_on, **op.seconds_on})


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
    """Build a chain of ``length`` operations, whose mean forward time is ``forward_s``.

    Raises:
        WorkloadError: ``length`` is below 1.
    """
    _at_least_one(length=length)
    ids = [str(number + 1) for number in range(length)]
    return ComputationGraph.of(f"chain-{length}", _drawn(ids, rng, forward_s), pairwise(ids))


def branches(width: int, length: int, *, rng: np.random.Generator, forward_s: float = 1e-3) -> ComputationGraph:
    """Build a fork into ``width`` chains of ``length`` operations that join again (an unrolled
    Inception module).

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
    """Build ``layers`` Transformer blocks in half precision, whose multiplications run at ``tflops``.
    Nothing is random.

    The blocks follow Vaswani et al. 2017, but with the normalisation first: attention over
    ``tokens``, then a feed-forward network four times as wide. Operations that only move data take
    as long as it takes to move their bytes at 1.5 TB/s. The backward pass of a multiplication takes
    twice as long as the forward pass.

    Raises:
        WorkloadError: A count is below 1 or the rate is not positive.
    """
    _at_least_one(layers=layers, width=width, tokens=tokens, batch=batch)
    require(tflops > 0, "tflops must be positive", tflops, WorkloadError)
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
    """Draw operations. Their times and sizes vary by about a factor of two, and the backward pass
    takes one to three times as long as the forward pass."""
    ops = []
    for id_ in ids:
        forward = forward_s * float(rng.lognormal(-0.245, 0.7))  # with these parameters, the mean factor is 1
        backward = forward * float(rng.uniform(1.0, 3.0))
        activation, parameter = (float(round(size)) for size in rng.lognormal(15.0, 1.0, 2))
        ops.append(Op(id_, forward, backward, activation, parameter))
    return ops


def _at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        require(count >= 1, f"{name} must be at least 1", count, WorkloadError)

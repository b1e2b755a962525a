"""PipeDream ``graph.txt`` profiles (SOSP 2019), one model per file, converted to training jobs as
in ddls.

Nodes are ``node<i> -- <what> -- forward_compute_time=f, backward_compute_time=b, activation_size=a,
parameter_size=p``, where ``a`` may be a list ``[x; y]``; edges are ``<tab>node<u> -- node<v>``.
Files are read one at a time, each as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dagsim.errors import ModelError, TraceError
from dagsim.model import Job, Task
from dagsim.model.arithmetic import ordered_sum
from dagsim.traces.fields import Dirty, finite_number
from dagsim.traces.reader import Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.workflow import stem, workflow

_NODE = re.compile(
    r"\s*node(\d{1,9}) -- (.*) -- forward_compute_time=([^,]*), backward_compute_time=([^,]*), "
    r"activation_size=([^,]*), parameter_size=([^,]*?)\s*"
)
_EDGE = re.compile(r"\s*node(\d{1,9}) -- node(\d{1,9})\s*")
_BYTES_PER_GB = 1e9


class _Op(NamedTuple):
    id: int
    forward: float
    backward: float
    activation: float
    parameters: float


class PipeDream(Reader):
    """Builds one training step per file: forward operation ``i`` and its mirror ``2 n + 1 - i`` in the
    backward pass.

    An edge ``u -> v`` carries the activation of ``u``, and its mirror ``v' -> u'`` carries the
    activation of ``v``. One edge joins the last forward operation to the first backward operation.
    In both passes, memory is the activation plus the parameters.
    """

    name = "pipedream"
    summary = "PipeDream graph.txt profiles: one training step of a model"
    uses = frozenset({"floor_s"})

    def recognises(self, source: Source) -> bool:
        return _NODE.fullmatch(source.head(1)[0]) is not None

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        for file in source.files:
            job = _job(file, options, report)
            if job is not None:
                yield job

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "the profile's milliseconds are taken as seconds, as ddls does",
            "demand": "one GPU per operation",
            "arrival": "the profile has none: every model arrives at 0",
        }


def _job(file: Source, options: TraceOptions, report: ReadReport) -> Job | None:
    ops: dict[int, _Op] = {}
    edges: list[tuple[int, int]] = []
    rows = 0
    for line, text in file.lines():
        if not text.strip():
            continue
        where = file.where(line)
        with report.dropping(where):
            edge, node = _EDGE.fullmatch(text), _NODE.fullmatch(text)
            if edge:
                edges.append((int(edge[1]), int(edge[2])))
                continue
            rows += 1
            report.rows += 1
            if node is None:
                raise Dirty("that are neither a node nor an edge")
            if int(node[1]) in ops:
                raise Dirty(RepeatedId("with the same id as another node"))
            ops[int(node[1])] = _op(node)
    where = f"{file}:1"
    if len(ops) < rows:
        if ops:
            report.drop("of models from which another node was dropped", where, len(ops))
        return None
    if not ops:
        raise TraceError(f"{where}: the profile has no nodes")
    if sorted(ops) != list(range(1, len(ops) + 1)):
        report.drop("of models whose nodes are not numbered from 1", where, len(ops))
        return None
    try:
        tasks = _tasks(list(ops.values()), options)
    except ModelError as error:
        report.drop("of impossible models", where, len(ops), str(error))
        return None
    # A row is a node of the graph. Each node becomes two tasks.
    return workflow(stem(file), tasks, _edges(ops, edges), report, where, rows=len(ops))


def _op(node: re.Match[str]) -> _Op:
    forward, backward = finite_number(node[3], "forward_compute_time"), finite_number(node[4], "backward_compute_time")
    sizes = [finite_number(size, "activation_size") for size in node[5].strip("[]").split(";")]
    op = _Op(int(node[1]), forward, backward, ordered_sum(sizes), finite_number(node[6], "parameter_size"))
    if min(op) < 0:
        raise Dirty(ImpossibleTimes("with a negative time or size"))
    return op


def _tasks(ops: list[_Op], options: TraceOptions) -> list[Task]:
    """Build the forward operations in the order of the file, followed by their mirrors."""
    floor = options.floor_s
    memory = [(op.activation + op.parameters) / _BYTES_PER_GB for op in ops]
    forward = [Task(str(op.id), max(op.forward, floor), memory_gb=gb) for op, gb in zip(ops, memory, strict=True)]
    mirror = 2 * len(ops) + 1
    backward = [
        Task(str(mirror - op.id), max(op.backward, floor), memory_gb=gb) for op, gb in zip(ops, memory, strict=True)
    ]
    return forward + backward


def _edges(ops: dict[int, _Op], edges: list[tuple[int, int]]) -> Iterator[tuple[str, str, float]]:
    mirror, last = 2 * len(ops) + 1, len(ops)
    for parent, child in edges:
        if parent in ops and child in ops:
            yield str(parent), str(child), ops[parent].activation
            yield str(mirror - child), str(mirror - parent), ops[child].activation
        else:
            yield f"node{parent}", f"node{child}", 0.0
    yield str(last), str(last + 1), ops[last].activation

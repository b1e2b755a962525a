"""Readers for computation graphs: PipeDream's profiles, TensorFlow's cost graphs, and dagsim's own
JSON.

dagsim's JSON has this layout: ``{"model": "m", "time_unit": "ms", "ops": [{"id": "1", "forward":
2.0, "backward": 4.0, "activation_bytes": 64, "parameter_bytes": 8, "seconds_on": {"T4": [...,
...]}}, ...], "edges": [["1", "2"], ...]}``. Times in ``seconds_on`` are also in the time unit.
``seconds_on``, ``name`` and ``model`` are optional.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dagsim.errors import InputError, ModelError, TraceError
from dagsim.families.ramp.graph import ComputationGraph, Op
from dagsim.files import open_lines, parsed_json, why_unreadable
from dagsim.model.arithmetic import ordered_sum

TimeUnit: TypeAlias = Literal["s", "ms", "us"]

TIME_UNITS: dict[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Seconds per time unit of a profile."""

_SIZES = ("activation_size", "parameter_size")
_TIMES = ("forward_compute_time", "backward_compute_time")


def read_graph(path: Path, time_unit: TimeUnit | None = None) -> ComputationGraph:
    """Read the graph in ``path``. The suffix ``.txt`` means PipeDream's format, ``.pbtxt`` a cost
    graph, and ``.json`` dagsim's own format.

    ``time_unit`` is the unit of the times in the file (default: milliseconds, or the unit that a
    JSON file states). ddls interprets PipeDream's milliseconds as seconds; ``time_unit="s"`` does
    the same.

    Raises:
        TraceError: The file cannot be read. The message starts with ``file:line``.
        ModelError: A cost is negative, there is a cycle, or an edge leads to an unknown operation.
    """
    readers: dict[str, Callable[[Path, TimeUnit | None], ComputationGraph]] = {
        ".txt": _pipedream,
        ".pbtxt": _cost_graph,
        ".json": _own,
    }
    if path.suffix not in readers:
        raise TraceError(
            f"{path}: not the name of a computation graph file; allowed: {', '.join(f'*{end}' for end in readers)}"
        )
    if time_unit is not None and time_unit not in TIME_UNITS:
        raise InputError(f"unknown time_unit {time_unit!r}; allowed: {', '.join(TIME_UNITS)}")
    try:
        return readers[path.suffix](path, time_unit)
    except OSError as error:
        raise TraceError(f"{path}: {why_unreadable(error)}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: not a text file") from None
    except ModelError as error:
        raise type(error)(f"{path}: {error}") from None


def read_graphs(folder: Path, names: tuple[str, ...], time_unit: TimeUnit | None = None) -> dict[str, ComputationGraph]:
    """Read the named graphs in ``folder``, in any of the supported formats.

    Raises:
        TraceError: A graph is missing or cannot be read.
    """
    graphs = {}
    for name in names:
        paths = [folder / f"{name}{end}" for end in (".txt", ".pbtxt", ".json")]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            available = ", ".join(
                sorted(path.stem for path in folder.glob("*.*") if path.suffix in (".txt", ".pbtxt", ".json"))
            )
            raise TraceError(f"{folder}: there is no graph {name!r}; available: {available or 'none'}")
        graphs[name] = read_graph(path, time_unit)
    return graphs


def _lines(path: Path) -> list[str]:
    with open_lines(path, TraceError) as file:
        return file.read().splitlines()


def _pipedream(path: Path, time_unit: TimeUnit | None) -> ComputationGraph:
    """Read ``node1 -- Conv2d(...) -- forward_compute_time=..., ...`` and ``<tab>node1 -- node2``."""
    scale = TIME_UNITS[time_unit or "ms"]
    ops, edges = [], []
    for number, line in enumerate(_lines(path), 1):
        where = f"{path}:{number}"
        parts = line.strip().split(" -- ")
        if not line.strip():
            continue
        if line.startswith("\t"):
            if len(parts) != 2:
                raise TraceError(f"{where}: expected an edge, node1 -- node2, got {line.strip()!r}")
            edges.append((_node(parts[0], where), _node(parts[1], where)))
        else:
            if len(parts) < 3:
                raise TraceError(
                    f"{where}: expected node1 -- DESCRIPTION -- forward_compute_time=..., got {line.strip()!r}"
                )
            ops.append(_profiled(_node(parts[0], where), " -- ".join(parts[1:-1]), parts[-1], scale, where))
    return ComputationGraph.of(path.stem, ops, edges)


def _node(text: str, where: str) -> str:
    if not (text.startswith("node") and text[4:].isdecimal()):
        raise TraceError(f"{where}: expected node and a number, got {text!r}")
    return text[4:]


def _profiled(node: str, name: str, text: str, scale: float, where: str) -> Op:
    values = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,\s]+)", text))
    for key in (*_TIMES, *_SIZES):
        if key not in values:
            raise TraceError(f"{where}: node{node} lacks {key}")
    try:
        forward_s, backward_s = (_scaled(float(values[key]), scale) for key in _TIMES)
        activation, parameter = (
            ordered_sum(float(part) for part in values[key].strip("[]").split(";")) for key in _SIZES
        )
    except ValueError:
        raise TraceError(f"{where}: node{node} has a time or size that is not a number: {text!r}") from None
    return Op(node, forward_s, backward_s, activation, parameter, name)


def _scaled(value: float, scale: float) -> float:
    return value if scale == 1.0 else value * scale


def _cost_graph(path: Path, time_unit: TimeUnit | None) -> ComputationGraph:
    """Read TensorFlow's CostGraphDef as text. The REGAL graphs have this layout.

    A node states one cost for both passes. The sizes of its outputs are added up, and the sum is
    its activation. Control inputs are ordinary edges, because the size of an edge depends only on
    its producer.
    """
    scale = TIME_UNITS[time_unit or "ms"]
    ops: list[Op] = []
    edges: dict[tuple[str, str], None] = {}
    inputs: list[tuple[str, str, str]] = []
    for where, node in _blocks(path):
        id_ = node.get("id", ["0"])[0]
        if "compute_cost" not in node and node.get("name") != ["_SOURCE"]:
            raise TraceError(f"{where}: node {id_} lacks compute_cost")
        try:
            cost = _scaled(float(node.get("compute_cost", ["0"])[0]), scale)
            sizes = ordered_sum(float(size) for size in node.get("output_info.size", []))
            weights = float(node.get("persistent_memory_size", ["0"])[0])
        except ValueError:
            raise TraceError(f"{where}: node {id_} has a cost or size that is not a number") from None
        if node.get("output_info", []) and "output_info.size" not in node:
            raise TraceError(f"{where}: node {id_} has an output_info without a size")
        ops.append(Op(id_, cost, cost, sizes, weights, node.get("name", [""])[0]))
        for parent in (*node.get("input_info.preceding_node", ()), *node.get("control_input", ())):
            inputs.append((parent, id_, where))
    ids = {op.id for op in ops}
    for parent, child, where in inputs:
        if parent not in ids:
            raise TraceError(f"{where}: node {child} takes its input from node {parent}, which does not exist")
        edges[(parent, child)] = None
    return ComputationGraph.of(path.stem, ops, edges)


def _blocks(path: Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield each ``node { ... }`` with its line number and its fields. Fields in inner blocks are
    called ``block.field``.
    """
    node: dict[str, list[str]] | None = None
    inner = where = ""
    for number, line in enumerate(_lines(path), 1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        if node is None:
            if text.replace(" ", "") != "node{":
                raise TraceError(f"{path}:{number}: expected node {{, got {text!r}")
            node, where = {}, f"{path}:{number}"
        elif text == "}":
            if inner:
                inner = ""
            else:
                yield where, node
                node = None
        elif text.endswith("{"):
            inner = text[:-1].strip()
            node.setdefault(inner, []).append("")
        else:
            key, colon, value = text.partition(":")
            if not colon:
                raise TraceError(f"{path}:{number}: expected field: value, got {text!r}")
            node.setdefault(f"{inner}.{key.strip()}" if inner else key.strip(), []).append(value.strip().strip('"'))
    if node is not None:
        raise TraceError(f"{where}: this node has no closing bracket")


def _own(path: Path, time_unit: TimeUnit | None) -> ComputationGraph:
    try:
        document = parsed_json(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}:{error.lineno}: invalid JSON ({error.msg})") from None
    except ValueError as error:
        raise TraceError(f"{path}: invalid JSON ({error})") from None
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("ops"), list)
        or not isinstance(document.get("edges"), list)
    ):
        raise TraceError(f'{path}: expected {{"ops": [...], "edges": [...]}}')
    unit = time_unit or document.get("time_unit", "ms")
    if unit not in TIME_UNITS:
        raise TraceError(f"{path}: unknown time_unit {unit!r}; allowed: {', '.join(TIME_UNITS)}")
    ops = [_own_op(op, TIME_UNITS[unit], f"{path}: op {number}") for number, op in enumerate(document["ops"])]
    for edge in document["edges"]:
        if not (isinstance(edge, list) and len(edge) == 2):
            raise TraceError(f"{path}: expected an edge as [parent, child], got {edge!r}")
    return ComputationGraph.of(
        str(document.get("model", path.stem)), ops, ((str(u), str(v)) for u, v in document["edges"])
    )


def _own_op(fields: Any, scale: float, where: str) -> Op:
    if not isinstance(fields, dict):
        raise TraceError(f"{where}: expected an object, got {fields!r}")
    for key in ("id", "forward", "backward", "activation_bytes", "parameter_bytes"):
        if key not in fields:
            raise TraceError(f"{where} lacks {key!r}")
    try:
        return Op(
            str(fields["id"]),
            _scaled(float(fields["forward"]), scale),
            _scaled(float(fields["backward"]), scale),
            float(fields["activation_bytes"]),
            float(fields["parameter_bytes"]),
            str(fields.get("name", "")),
            {
                gpu: (_scaled(one, scale), _scaled(other, scale))
                for gpu, (one, other) in fields.get("seconds_on", {}).items()
            },
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise TraceError(f"{where}: a time or size is not a number ({error})") from None

"""Sums of floats are equal to the last bit on every Python.

From Python 3.12 on, ``sum`` compensates for the rounding of floats, so floats are added by ``ordered_sum``.
``whole_sum`` is ``sum`` with a type, so that the type checker refuses floats. ``sum`` itself stays where the terms can
only be whole.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np

import dagsim
from dagsim.model.arithmetic import dot, whole_sum

PACKAGE = Path(dagsim.__file__).parent

COUNTS = {"instances", "bit", "idle", "ranks", "bit_count", "executing", "remaining", "count"}
"""Attributes of dagsim that are whole numbers."""


def whole(term: ast.expr) -> bool:
    """True if an expression can only be a whole number."""
    match term:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=int()):
            return True
        case ast.BinOp(op=ast.LShift() | ast.RShift() | ast.BitAnd() | ast.FloorDiv()):
            return True
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() | ast.Mult()):
            return whole(left) and whole(right)
        case ast.Call(func=ast.Name(id="len" | "int" | "bool" | "bisect_left")):
            return True
        case ast.Call(func=ast.Attribute(attr="bit_count" | "room")):
            return True
        case ast.Attribute(attr=name):
            return name in COUNTS
    return False


def sums_in(path: Path) -> list[str]:
    """The calls of ``sum`` whose terms may be floats, with their lines."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    doubtful = []
    for call in [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "sum"]:
        match call.args[0]:
            case ast.GeneratorExp(elt=term) | ast.ListComp(elt=term):
                known = whole(term)
            case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id="len"), *_]):
                known = True
            case _:
                known = False
        if not known:
            doubtful.append(f"{path.relative_to(PACKAGE)}:{call.lineno}: {ast.unparse(call)}")
    return doubtful


def test_the_package_adds_floats_in_order() -> None:
    doubtful = [call for path in sorted(PACKAGE.rglob("*.py")) for call in sums_in(path)]
    assert not doubtful, "use whole_sum or ordered_sum (dagsim.model.arithmetic):\n" + "\n".join(doubtful)


def test_no_metric_depends_on_the_order_in_which_a_processor_adds_products() -> None:
    """BLAS, behind ``@``, adds in the order of its kernel for this processor: goodput was 1.0000000000000002."""
    products = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted((PACKAGE / "metrics").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        or (isinstance(node, ast.Attribute) and node.attr in {"dot", "inner", "vdot", "einsum", "matmul", "tensordot"})
    ]
    assert not products, "use dot (dagsim.model.arithmetic):\n" + "\n".join(products)


def test_the_weighted_mean_of_ones_is_one() -> None:
    weights = np.random.default_rng(5).exponential(size=1000)
    assert dot(np.ones(1000), weights) == weights.sum()


def test_whole_numbers_are_added_as_sum_does() -> None:
    assert whole_sum is sum  # so that it costs nothing, also in compiled code

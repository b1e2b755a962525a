"""Compilation by numba, and state handed on as one pointer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import sleep
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from dagsim.files import Lock

__all__ = [
    "PointerType",
    "alone",
    "by_pointer",
    "folder",
    "inner",
    "installed",
    "int64",
    "is_kept",
    "jitted",
    "outer",
    "register",
]


try:
    import numba
    from llvmlite.binding import get_host_cpu_name
except ImportError:
    numba = None  # type: ignore[assignment]


int64: Callable[[Any], int] = np.int64  # type: ignore[assignment]
"""A number as the lane computes with it: handed on as 32 bits, it would have every function compiled twice."""

Function = TypeVar("Function", bound=Callable[..., Any])
Record = TypeVar("Record", bound=type)

_INLINED_B = 500
"""Functions with less byte code than this become part of their callers. To inline all takes a quarter more time to
compile and makes nothing faster; to inline none makes a task take half as long again."""

_COMMON: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def installed() -> bool:
    """True if numba is there at all."""
    return numba is not None


def jitted() -> bool:
    """True if the lane's functions are compiled when they are called."""
    return numba is not None and not numba.config.DISABLE_JIT  # type: ignore[attr-defined]


def is_kept(name: str) -> bool:
    """True if a function of that name is compiled: from these files, for this processor."""
    return jitted() and any(folder().rglob(f"*.{name}-*.nbc"))


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process compiles, and let none begin meanwhile."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        lock = Lock(folder() / "lock")
        while not lock.claim():
            sleep(0.1)
    except OSError:  # no folder that can be written to: nothing can be kept, either
        yield
        return
    try:
        yield
    finally:
        lock.release()


def by_pointer(cls: Record) -> Record:
    """Have compiled functions hand on named tuples of this class as one pointer."""
    if numba is not None:
        from dagsim.systems.cluster.lane.jit import register

        register(cls)
    return cls


def inner(function: Function) -> Function:
    """Compile a function that only other functions of the lane call."""
    small = len(function.__code__.co_code) < _INLINED_B
    return _compiled(function, forceinline=small, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def outer(function: Function) -> Function:
    """Compile a function that Python calls."""
    return _compiled(function, no_cfunc_wrapper=True)


def _compiled(function: Function, **options: Any) -> Function:
    if numba is None:
        return function
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder())
    try:
        return numba.njit(cache=True, **_COMMON, **options)(function)
    except RuntimeError:  # no folder that can be written to
        return numba.njit(**_COMMON, **options)(function)
    finally:
        config.CACHE_DIR = before


@cache
def folder() -> Path:
    """The folder of functions compiled from exactly these files. They are for this numba and this kind of processor."""
    by = f"{numba.__version__} {np.__version__} {sys.version} {get_host_cpu_name()}".encode()
    files = [file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dagsim"
    return Path(os.environ.get("NUMBA_CACHE_DIR") or caches) / f"lane-{sha256(b''.join([by, *files])).hexdigest()[:16]}"


# mypy: allow-untyped-calls, allow-untyped-decorators


_WORD = ir.IntType(64)


class PointerType(types.Type):
    """The type of a registered class, by the types of its members."""

    words: int

    def __init__(self, name: str, members: tuple[tuple[str, Any], ...]) -> None:
        self.members = dict(members)
        self.places: dict[str, int] = {}
        words = 0
        for member, type_ in members:
            self.places[member] = words
            words += type_.words if isinstance(type_, PointerType) else 1 + type_.ndim
        self.words = words
        digest = sha256(repr([(member, str(type_)) for member, type_ in members]).encode()).hexdigest()
        super().__init__(f"{name}_{digest[:16]}")  # the type's identity, and short: it is part of every symbol


register_model(PointerType)(models.OpaqueModel)


def register(cls: type) -> None:
    """Hand named tuples of this class on as pointers."""
    typeof_impl.register(cls)(_typeof)


def _typeof(value: Any, context: Any) -> PointerType:
    members = tuple((name, typeof_impl(getattr(value, name), context)) for name in value._fields)
    for name, type_ in members:
        if not isinstance(type_, PointerType) and (not isinstance(type_, types.Array) or type_.layout != "C"):
            raise TypeError(f"{type(value).__name__}.{name} must be a contiguous array, got {type_}")
    return PointerType(type(value).__name__, members)


@infer_getattr
class _Members(AttributeTemplate):
    key = PointerType

    def generic_resolve(self, table: PointerType, name: str) -> Any:  # type: ignore[override]
        return table.members.get(name)


@unbox(PointerType)
def _unbox(table: PointerType, obj: Any, c: Any) -> Any:
    """Fill a table on the stack of the caller, which lives as long as the call."""
    words = cgutils.alloca_once(c.builder, _WORD, size=table.words)
    failed = cgutils.alloca_once_value(c.builder, cgutils.false_bit)
    for place, value in _words_of(table, obj, c, failed):
        c.builder.store(value, c.builder.gep(words, [ir.Constant(ir.IntType(32), place)]))
    return NativeValue(c.builder.bitcast(words, c.pyapi.voidptr), is_error=c.builder.load(failed))


def _words_of(table: PointerType, obj: Any, c: Any, failed: Any) -> Iterator[tuple[int, Any]]:
    """Every word of the table with its place: the data and the lengths of each array."""
    for (name, type_), first in zip(table.members.items(), table.places.values(), strict=True):
        member = c.pyapi.object_getattr_string(obj, name)
        if isinstance(type_, PointerType):
            yield from ((first + place, value) for place, value in _words_of(type_, member, c, failed))
        else:
            native = c.unbox(type_, member)
            c.builder.store(c.builder.or_(c.builder.load(failed), native.is_error), failed)
            array = c.context.make_array(type_)(c.context, c.builder, value=native.value)
            yield first, c.builder.ptrtoint(array.data, _WORD)
            for axis, length in enumerate(cgutils.unpack_tuple(c.builder, array.shape, type_.ndim), 1):
                yield first + axis, length
        c.pyapi.decref(member)  # the tuple holds it


@lower_getattr_generic(PointerType)
def _member(context: Any, builder: Any, table: PointerType, value: Any, name: str) -> Any:
    """Read a member from the table: a pointer into it, or an array put together from its words."""
    type_, first = table.members[name], table.places[name]
    at = builder.gep(builder.bitcast(value, _WORD.as_pointer()), [ir.Constant(ir.IntType(32), first)])
    if isinstance(type_, PointerType):
        return builder.bitcast(at, value.type)
    unchanging = builder.module.add_metadata([])

    def word(place: int) -> Any:
        load = builder.load(builder.gep(at, [ir.Constant(ir.IntType(32), place)]))
        load.set_metadata("invariant.load", unchanging)
        return load

    size = ir.Constant(_WORD, context.get_abi_sizeof(context.get_data_type(type_.dtype)))
    lengths = [word(axis) for axis in range(1, type_.ndim + 1)]
    steps = [size]
    for length in reversed(lengths[1:]):
        steps.insert(0, builder.mul(steps[0], length))
    count = lengths[0]
    for length in lengths[1:]:
        count = builder.mul(count, length)
    model = context.data_model_manager[type_]
    array = ir.Constant(model.get_value_type(), None)
    for field, parts in {
        "data": word(0),
        "nitems": count,
        "itemsize": size,
        "shape": lengths,
        "strides": steps,
    }.items():
        place = model.get_field_position(field)
        if isinstance(parts, list):
            for axis, part in enumerate(parts):
                array = builder.insert_value(array, part, [place, axis])
        else:
            part = builder.inttoptr(parts, array.type.elements[place]) if field == "data" else parts
            array = builder.insert_value(array, part, place)
    return array

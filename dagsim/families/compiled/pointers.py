"""Compilation by numba, in which a named tuple of arrays is passed as one pointer instead of about
two hundred values.

Only ``jit`` imports this module, and only when a function has to be compiled. An object of a class
that is registered here is passed as a pointer to a table that holds the address and the shape of
each array (``jit.words_of``). An attribute is read from the table wherever the code uses it. The table
never changes during a call, and loads from it are marked as invariant (``invariant.load``), so a
loop does not repeat them.

The arrays must be contiguous, which ``jit.Outer`` checks. They must also live as long as the call,
because references are not counted. They do so, because they are arguments of the caller.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from llvmlite import ir
from numba import njit, typeof
from numba.core import types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    overload,
    register_jitable,
    register_model,
    typeof_impl,
)

from dagsim.families.compiled import jit
from dagsim.families.compiled.jit import int64

_WORD = ir.IntType(64)
_njit: Any = njit
"""numba's decorator, typed as Any because it accepts options that are missing from its
signature."""


class PointerType(types.Type):
    """The numba type of a registered class. It is defined by the types of the members."""

    words: int

    def __init__(self, name: str, members: tuple[tuple[str, Any], ...]) -> None:
        self.members = dict(members)
        self.places: dict[str, int] = {}
        words = 0
        for member, type_ in members:
            self.places[member] = words
            words += _words(type_)
        self.words = words
        digest = sha256(repr([(member, str(type_)) for member, type_ in members]).encode()).hexdigest()
        # The digest makes the type's name unique. It is shortened, because every compiled symbol
        # contains it.
        super().__init__(f"{name}_{digest[:16]}")


def _words(type_: Any) -> int:
    """Return the number of words that a value takes in the table. This value is a nested table, the
    address of a record, or the address and the lengths of an array."""
    if isinstance(type_, PointerType):
        return type_.words
    return 1 if isinstance(type_, types.Record) else 1 + type_.ndim


register_model(PointerType)(models.OpaqueModel)


def object_code(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, bytes]:
    """Compile an outer function for arguments of these types.

    Return the symbol and the object code of a function that takes the address of a table of words.
    The first two parameters of that function are required by numba: the addresses of the result and
    of an exception. No function here raises exceptions.
    """
    _register()
    arguments, called = _arguments_at(args), _njit(**jit.COMMON)(function)
    returns = function.__annotations__.get("return") not in (None, "None")

    def entry(address: int) -> int:
        result = called(*arguments(address))
        return int64(result) if returns else int64(0)

    compiled = _njit("int64(int64)", no_cpython_wrapper=True, no_cfunc_wrapper=True, **jit.COMMON)(entry)
    (code,) = compiled.overloads.values()
    return code.fndesc.llvm_func_name, code.library._get_compiled_object()


def _register() -> None:
    """Register with numba everything that was marked since the last call."""
    while jit.TUPLES:
        typeof_impl.register(jit.TUPLES.pop())(_typeof)
    while jit.INNER:
        function, options = jit.INNER.pop()
        register_jitable(**options, **jit.COMMON)(function)
    while jit.AT_ADDRESS:
        _register_at(*jit.AT_ADDRESS.pop())


def _register_at(at: Callable[[int], Any], example: Callable[[], Any]) -> None:
    from_address = tuple_at(example)

    options: Any = jit.COMMON

    @overload(at, jit_options=options, strict=False)
    def _at(address: Any) -> Any:
        return lambda address: from_address(address)


def _arguments_at(args: tuple[Any, ...]) -> Any:
    """Return a function for compiled code. It turns the address of a table into the arguments that
    the table describes."""
    table = PointerType("arguments", tuple((f"a{place}", typeof(value)) for place, value in enumerate(args)))

    @intrinsic
    def arguments(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            words = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
            members = [_read(context, builder, table, words, name) for name in table.members]
            return context.make_tuple(builder, signature.return_type, members)

        return types.Tuple(list(table.members.values()))(types.int64), generate

    return arguments


def tuple_at(example: Callable[[], Any]) -> Any:
    """Return a function for compiled code. It turns the address of a table into the tuple that the
    table describes.

    ``example`` builds a tuple of that type. The tuple is not passed as an argument, because
    unboxing a tuple of 70 arrays takes 20 us per call. ``example`` is called once, when a function
    that uses this one is compiled.
    """

    @intrinsic
    def from_address(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

        return typeof(example())(types.int64), generate

    return from_address


def _typeof(value: Any, context: Any) -> PointerType:
    members = tuple((name, typeof_impl(getattr(value, name), context)) for name in value._fields)
    for name, type_ in members:
        if not isinstance(type_, PointerType | types.Record) and getattr(type_, "layout", None) != "C":
            raise TypeError(f"{type(value).__name__}.{name} must be a contiguous array or a record, got {type_}")
    return PointerType(type(value).__name__, members)


@infer_getattr
class _Members(AttributeTemplate):
    key = PointerType

    def generic_resolve(self, table: PointerType, name: str) -> Any:  # type: ignore[override]
        return table.members.get(name)


@lower_getattr_generic(PointerType)
def _member(context: Any, builder: Any, table: PointerType, value: Any, name: str) -> Any:
    return _read(context, builder, table, value, name)


def _read(context: Any, builder: Any, table: PointerType, value: Any, name: str) -> Any:
    """Read a member from the table: a pointer into it, a record, or an array built from its words."""
    type_, first = table.members[name], table.places[name]
    at = builder.gep(builder.bitcast(value, _WORD.as_pointer()), [ir.Constant(ir.IntType(32), first)])
    if isinstance(type_, PointerType):
        return builder.bitcast(at, value.type)
    unchanging = builder.module.add_metadata([])

    def word(place: int) -> Any:
        load = builder.load(builder.gep(at, [ir.Constant(ir.IntType(32), place)]))
        load.set_metadata("invariant.load", unchanging)
        return load

    if isinstance(type_, types.Record):
        return builder.inttoptr(word(0), context.get_value_type(type_))
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

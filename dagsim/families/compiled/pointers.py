"""Named tuples of arrays in compiled code: one pointer instead of about two hundred values.

numba passes a named tuple of arrays member by member, with seven or more values per array, and
unpacks and repacks it in every function: that was most of the code it compiled. A class registered
here is passed as the address of a table of its arrays, *data and lengths*, which ``unbox`` fills
once per call from Python. An attribute is read from the table where it is used. The table never
changes during a call, and its loads are marked so (``invariant.load``), so a loop does not read it
again.

The arrays must be contiguous (as those of the lane are) and must live as long as the call, because
references are not counted.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from llvmlite import ir
from numba import typeof
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

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
            words += _words(type_)
        self.words = words
        digest = sha256(repr([(member, str(type_)) for member, type_ in members]).encode()).hexdigest()
        super().__init__(f"{name}_{digest[:16]}")  # the type's identity, and short: it is part of every symbol


def _words(type_: Any) -> int:
    """Number of words in the table: those of a nested table, the address of a record, or the
    address and lengths of an array.
    """
    if isinstance(type_, PointerType):
        return type_.words
    return 1 if isinstance(type_, types.Record) else 1 + type_.ndim


register_model(PointerType)(models.OpaqueModel)


def register(cls: type) -> None:
    """Pass named tuples of this class as pointers."""
    typeof_impl.register(cls)(_typeof)


def tuple_at(example: Callable[[], Any]) -> Any:
    """A function for compiled code: an address of a table to the tuple that the table describes.

    ``example`` makes a tuple of that type, which is not passed as an argument because unboxing a
    tuple of 70 arrays takes 20 us per call. It is called once, when a function that uses this one is
    compiled.
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


@unbox(PointerType)
def _unbox(table: PointerType, obj: Any, c: Any) -> Any:
    """Fill a table on the stack of the caller, which lives as long as the call."""
    words = cgutils.alloca_once(c.builder, _WORD, size=table.words)
    failed = cgutils.alloca_once_value(c.builder, cgutils.false_bit)
    for place, value in _words_of(table, obj, c, failed):
        c.builder.store(value, c.builder.gep(words, [ir.Constant(ir.IntType(32), place)]))
    return NativeValue(c.builder.bitcast(words, c.pyapi.voidptr), is_error=c.builder.load(failed))


def _words_of(table: PointerType, obj: Any, c: Any, failed: Any) -> Iterator[tuple[int, Any]]:
    """Yield every word of the table with its position: the data and the lengths of each array."""
    for (name, type_), first in zip(table.members.items(), table.places.values(), strict=True):
        member = c.pyapi.object_getattr_string(obj, name)
        if isinstance(type_, PointerType):
            yield from ((first + place, value) for place, value in _words_of(type_, member, c, failed))
        elif isinstance(type_, types.Record):
            native = c.unbox(type_, member)
            c.builder.store(c.builder.or_(c.builder.load(failed), native.is_error), failed)
            yield first, c.builder.ptrtoint(native.value, _WORD)
            native.cleanup()  # the buffer; the record itself lives as long as the tuple
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

"""Copying the state of a simulation, based on one declaration for each field.

A state class lists its fields in ``__slots__``, a dictionary that states for each field what a fork
does with it. It is therefore impossible to add a field without deciding what a fork does with it:

    class Machine(Forked):
        __slots__ = {"name": SAME, "free": SAME, "parts": COPIED, "timer": EMPTY}

A fork copies the whole graph of such objects: each object has exactly one copy, and the copies
refer to each other as the originals do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

SAME = "the same in a fork: a constant, or a value that is replaced and never changed in place"
COPIED = "copied in a fork, with everything in it"
AHEAD = "copied in a fork, but empty if the fork has no more information than a policy"
EMPTY = "empty in a fork (an empty container, or None), which fills it itself"

ValueT = TypeVar("ValueT")
_UNMIXED = frozenset({int, float, bool, str, bytes})
"""Types that are never mixed with others in a container, so looking at one value is enough."""
_PLAIN = _UNMIXED | {type(None)}
_CONTAINERS = (dict, list, set, deque)


_MAKERS: dict[type, Callable[[Any, Any], Any]] = {}
"""For each state class, the function that copies an object in a fork."""


class Forked:
    """State that changes during a simulation. Every subclass declares its fields in ``__slots__``.

    Raises:
        TypeError: The ``__slots__`` of a subclass are not a dictionary whose values are ``SAME``,
            ``COPIED``, ``AHEAD`` or ``EMPTY``.
    """

    __slots__ = ()
    _alike: ClassVar[Callable[[Any], Any]]
    """Creates another object with the same field values."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        fields: dict[str, str] = {}
        for base in reversed(cls.__mro__[:-1]):
            if issubclass(base, Forked) and base is not Forked:
                slots = base.__dict__.get("__slots__")
                if not isinstance(slots, dict) or not set(slots.values()) <= {SAME, COPIED, AHEAD, EMPTY}:
                    raise TypeError(
                        f"{base.__qualname__}: __slots__ must state for each field what a fork does with it"
                    )
                fields |= slots
        _MAKERS[cls] = _copier(cls, "twin(old, fork)", "fork.twins[id(old)] = ", fields)
        cls._alike = _copier(cls, "alike(old)", "", dict.fromkeys(fields, SAME))


_WAYS = {
    SAME: "old.{0}",
    COPIED: "fork.of(old.{0})",
    AHEAD: "empty(old.{0}) if fork.by_estimates else fork.of(old.{0})",
    EMPTY: "empty(old.{0})",
}


def _copier(cls: type, signature: str, note: str, fields: dict[str, str]) -> Callable[..., Any]:
    """Compile a function that copies an object, just as ``dataclasses`` compiles ``__init__``. The
    compiled function takes a third of the time of a loop over the field names.
    """
    lines = [f"    new.{name} = {_WAYS[way].format(name)}" for name, way in fields.items()]
    names: dict[str, Any] = {"cls": cls, "make": object.__new__, "empty": _empty}
    exec("\n".join([f"def {signature}:", f"    new = {note}make(cls)", *lines, "    return new"]), names)
    return cast("Callable[..., Any]", names[signature.partition("(")[0]])


def _empty(value: object) -> object:
    return type(value)() if isinstance(value, _CONTAINERS) else None


class Fork:
    """A fork that is being created, with the copies of objects that have been made for it so far.
    With ``by_estimates``, the fork has no more information than a policy.
    """

    __slots__ = ("by_estimates", "twins")

    def __init__(self, *, by_estimates: bool = False) -> None:
        self.by_estimates = by_estimates
        self.twins: dict[int, Any] = {}
        """The copy of each original, by its ``id``; the caller may put some there beforehand."""

    def of(self, value: ValueT) -> ValueT:
        """Return the copy of a value. The value may be a state object, a container (which is copied
        with all its contents), or any other object with a method ``copy``.

        Raises:
            TypeError: The value cannot be copied.
        """
        kind: Any = type(value)
        if kind in _PLAIN:
            return value
        there: ValueT | None = self.twins.get(id(value))
        if there is not None:
            return there
        make = _MAKERS.get(kind)
        if make is not None:
            return cast("ValueT", make(value, self))
        if issubclass(kind, tuple):
            parts = map(self.of, cast("Any", value))
            return cast("ValueT", tuple(parts) if kind is tuple else kind._make(parts))
        twin = self._other(kind, value)
        self.twins[id(value)] = twin
        return cast("ValueT", twin)

    def _other(self, kind: Any, value: Any) -> Any:
        of = self.of
        if issubclass(kind, dict):
            twin = kind()
            for key, entry in dict.items(value):  # not ``value.items()``, because ``Live.items`` makes a copy
                if type(entry) in _UNMIXED:
                    twin.update(value)
                    return twin
                twin[of(key) if isinstance(key, Forked) else key] = of(entry)
            return twin
        if kind is list or kind is set:
            return kind(value) if value and type(next(iter(value))) in _UNMIXED else kind(map(of, value))
        if kind is deque:
            return deque(map(of, value), value.maxlen)
        if kind is np.random.Generator:
            return deepcopy(value)
        if not hasattr(value, "copy"):
            raise TypeError(f"a fork cannot copy a {kind.__qualname__}: declare its field as SAME, or give it a copy()")
        return value.copy()

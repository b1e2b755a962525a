"""Forks copy by declaration: a class of state that does not declare a field cannot be defined, and what it
declares as the same cannot change.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from dagsim.systems.cluster.forks import AHEAD, COPIED, EMPTY, SAME, Fork, Forked


def test_a_field_that_is_not_declared_is_refused_when_its_class_is_defined() -> None:
    with pytest.raises(TypeError, match="Queue: __slots__ must state for each field what a fork does with it"):
        type("Queue", (Forked,), {"__slots__": ("jobs",)})
    with pytest.raises(TypeError, match="Queue: __slots__ must state"):
        type("Queue", (Forked,), {})
    with pytest.raises(TypeError, match="Queue: __slots__ must state"):
        type("Queue", (Forked,), {"__slots__": {"jobs": "a list of jobs"}})


class Box(Forked):
    __slots__ = {"beside": COPIED, "content": COPIED, "label": SAME, "later": AHEAD, "listeners": EMPTY}

    def __init__(self, content: Any) -> None:
        self.content, self.label, self.later, self.listeners = content, "box", [1], [print]
        self.beside: Box | None = None


def test_every_object_has_one_twin_and_twins_refer_to_each_other() -> None:
    one, shared = Box({"a": [1, 2]}), deque([Box(None)], maxlen=2)
    other = one.beside = Box(shared)
    other.beside = one
    twin = Fork().of(one)
    assert twin is not one
    assert twin.beside is not None
    assert twin.beside.beside is twin
    assert twin.content == one.content
    assert twin.content["a"] is not one.content["a"]
    assert (twin.beside.content.maxlen, type(twin.beside.content[0])) == (2, Box)
    assert twin.beside.content[0] is not shared[0]
    assert (twin.label, twin.later, twin.listeners) == ("box", [1], [])
    assert Fork(by_estimates=True).of(one).later == []


def test_what_cannot_be_copied_is_named() -> None:
    with pytest.raises(TypeError, match="a fork cannot copy a object: declare its field as SAME, or give it a copy"):
        Fork().of(Box(object()))


# A simulation with every model that has state, in three parts, since some models exclude each other.

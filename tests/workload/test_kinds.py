from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from dagsim.workload.tagged_union import TaggedUnion


@dataclass(frozen=True, slots=True)
class Cat:
    lives: int = 9
    kind: Literal["cat"] = "cat"

    __pydantic_config__ = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Dog:
    tricks: int = 0
    kind: Literal["dog"] = "dog"

    __pydantic_config__ = {"extra": "forbid"}


@pytest.fixture(scope="module")
def pets():
    return TypeAdapter(Annotated[Cat | Dog, TaggedUnion("cat")])


def test_the_kind_decides(pets):
    assert pets.validate_python({"kind": "dog", "tricks": 3}) == Dog(3)


def test_without_a_kind_the_default_is_meant(pets):
    assert pets.validate_python({"lives": 7}) == Cat(7)


def test_an_object_is_taken_as_it_is(pets):
    assert pets.validate_python(Dog(1)) == Dog(1)


def test_faults_are_those_of_the_member_that_was_meant(pets):
    with pytest.raises(ValidationError) as error:
        pets.validate_python({"kind": "dog", "lives": 7})
    assert [fault["loc"] for fault in error.value.errors()] == [("dog", "lives")]


def test_the_schema_lists_the_members(pets):
    assert set(pets.json_schema()["$defs"]) == {"Cat", "Dog"}

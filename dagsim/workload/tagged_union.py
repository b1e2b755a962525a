"""A union in a configuration whose member is selected by ``kind``."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin


class TaggedUnion:
    """Annotation for a union, as in ``Annotated[A | B, TaggedUnion("a")]``. The member is selected by
    ``kind``, or by ``default`` if there is no ``kind``.

    Validation with pydantic then reports errors for the selected member only, instead of for all
    members. pydantic finds the hook by its name, and its schemas are plain dictionaries, so
    pydantic is not imported here.
    """

    def __init__(self, default: str | None = None) -> None:
        self.default = default

    def __get_pydantic_core_schema__(self, union: Any, handler: Any) -> dict[str, Any]:
        return {
            "type": "tagged-union",
            "choices": {_kind(member): handler.generate_schema(member) for member in get_args(union)},
            "discriminator": self._kind_of,
        }

    def _kind_of(self, value: Any) -> Any:
        return value.get("kind", self.default) if isinstance(value, dict) else getattr(value, "kind", None)


def _kind(member: Any) -> Any:
    if get_origin(member) is Annotated:  # the class itself is imported only when it is needed
        return member.__metadata__[0].kind
    return next(field.default for field in fields(member) if field.name == "kind")

"""One of several dataclasses, told apart by their ``kind``: how this floor says so to pydantic without importing it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

__all__ = ["TaggedUnion"]


class TaggedUnion:
    """``Annotated[A | B, TaggedUnion("a")]``: the member whose ``kind`` is given, or the one of kind ``default``.

    Whoever validates with pydantic gets faults of the one member that was meant, not of all. pydantic finds the hook
    by its name, and its schemas are plain dictionaries, so that nothing of it is imported here.
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


def _kind(member: type) -> Any:
    return next(field.default for field in fields(member) if field.name == "kind")

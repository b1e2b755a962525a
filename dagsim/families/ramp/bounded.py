"""A cache of limited size."""

from __future__ import annotations

from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Bounded(dict[KeyT, ValueT]):
    """Computed values by key. When it contains ``most`` of them, it is emptied before another one is
    added, because long training runs keep producing new sets of servers.
    """

    most = 100_000  # also a class attribute, because pickle sets items before attributes

    def __init__(self, most: int = most) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        if len(self) >= self.most:
            self.clear()
        super().__setitem__(key, value)

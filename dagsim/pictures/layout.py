"""Places of the GPUs of a cluster in a picture: a card per node, a cell per GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from dagsim.metrics.columns import Ints

__all__ = ["Box", "Layout", "layout"]

_ACROSS = 8
"""Cells beside each other on one card, at most."""
_SIZES = (82, 72, 64, 58, 52, 46, 40, 34, 28, 24, 20, 16, 13, 11, 9, 7, 6, 5, 4, 3, 2, 1)
_GAP = 8
_TITLE = 14


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Layout:
    """The card of each node, and the edge of its cells."""

    cards: tuple[Box | None, ...]
    counts: tuple[int, ...]
    cell: int
    titled: bool

    def slot(self, node: int, first: float, last: float) -> Box | None:
        """The part of a cell from lane ``first`` to ``last`` of a node. Both lie within one GPU; it is filled from the
        bottom."""
        card = self.cards[node]
        if card is None:
            return None
        gpu = int(first + 1e-9)
        across = min(self.counts[node], _ACROSS)
        gap = _inner(self.cell)
        left = card.left + gap + gpu % across * (self.cell + gap)
        top = card.top + gap + (_TITLE if self.titled else 0) + gpu // across * (self.cell + gap)
        bottom = top + self.cell
        return Box(left, bottom - (last - gpu) * self.cell, left + self.cell, bottom - (first - gpu) * self.cell)


def layout(counts: Ints, area: Box) -> Layout:
    """Cards from left to right and top to bottom, as large as the area allows."""
    found = tuple(int(count) for count in counts)
    for cell in _SIZES:
        titled = cell >= 16
        made = Layout(_placed(found, area, cell, titled), found, cell, titled)
        lowest = max((card.bottom for card in made.cards if card is not None), default=area.top)
        if lowest <= area.bottom:
            return made
    return made


def _placed(counts: tuple[int, ...], area: Box, cell: int, titled: bool) -> tuple[Box | None, ...]:
    cards: list[Box | None] = []
    gap = _GAP if cell >= 9 else 2
    left, top, tallest = area.left, area.top, 0.0
    for count in counts:
        if not count:
            cards.append(None)
            continue
        across, inner = min(count, _ACROSS), _inner(cell)
        wide = across * (cell + inner) + inner
        high = ceil(count / _ACROSS) * (cell + inner) + inner + (_TITLE if titled else 0)
        if left + wide > area.right and left > area.left:
            left, top, tallest = area.left, top + tallest + gap, 0.0
        cards.append(Box(left, top, left + wide, top + high))
        left, tallest = left + wide + gap, max(tallest, high)
    return tuple(cards)


def _inner(cell: int) -> int:
    return 4 if cell >= 16 else 2 if cell >= 6 else 0

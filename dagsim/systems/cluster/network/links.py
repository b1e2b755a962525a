"""Data about a network for reports and policies: its links, the levels of its fabric, and its
traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dagsim.model.arithmetic import ordered_sum


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a cable, or of several parallel cables that count as one. ``bandwidth`` is
    in bytes per second.
    """

    name: str
    bandwidth: float
    latency_s: float = 0.0


class LinkUse(NamedTuple):
    """A link and its traffic, given as a list of periods with the bytes per second in each period."""

    link: Link
    traffic: list[tuple[float, float, float]]

    @property
    def bytes(self) -> float:
        """The total number of bytes that crossed the link."""
        return ordered_sum([(end_s - start_s) * bytes_s for start_s, end_s, bytes_s in self.traffic])


def busiest(usage: Sequence[LinkUse], count: int) -> list[LinkUse]:
    """Return the ``count`` links with the highest utilisation over the whole simulation."""
    return sorted([use for use in usage if use.traffic], key=lambda use: -use.bytes / use.link.bandwidth)[:count]


class FabricLevel(NamedTuple):
    """A level of the fabric above the hosts, such as racks, with the *domain* of each host."""

    name: str
    domains: tuple[int, ...]

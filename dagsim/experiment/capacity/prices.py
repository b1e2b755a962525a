"""Prices of GPUs, where each comes from, and what a cluster costs a month."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from dagsim.config.schema import ClusterSection
from dagsim.errors import ConfigError
from dagsim.model.gpu import LIST_PRICES, canonical

__all__ = ["HOURS_A_MONTH", "Prices"]

HOURS_A_MONTH = 730.0
"""A twelfth of 8,760 hours."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of one GPU with its share of the node for an hour, by type.

    Own prices are in whatever currency; a list price, in US dollars, stands in for a type without one.
    """

    per_gpu_h: Mapping[str, float] = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)
    """Where each comes from."""
    given: bool = False
    """The user gave some."""

    @classmethod
    def read(cls, texts: Iterable[str], configured: Mapping[str, float] | None = None) -> Prices:
        """``H200=3.5,A100=1.9``, or several of these; ``none`` is no price at all. What they leave out is as
        ``configured``, else the list price.

        Raises:
            ConfigError: It is written otherwise, a price is negative, or a type has two.
        """
        parts = [part.strip() for text in texts for part in text.split(",")]
        if parts == ["none"]:
            return cls()
        found: dict[str, float] = {}
        for part in parts:
            name, equals, number = part.partition("=")
            try:
                price = float(number)
            except ValueError:
                price = -1.0
            if not equals or not name.strip() or not isfinite(price) or price < 0:
                raise ConfigError(f"--price {part!r}: expected a GPU type and a price per hour, as H200=3.5, or none")
            type_ = canonical(name.strip())
            if found.setdefault(type_, price) != price:
                raise ConfigError(f"--price: {type_} has two prices")
        own = {canonical(name): price for name, price in (configured or {}).items()}
        prices = {name: each.usd_per_h for name, each in LIST_PRICES.items()} | own | found
        source = {name: f"list price, {each.source}" for name, each in LIST_PRICES.items()}
        source |= dict.fromkeys(own, "configuration") | dict.fromkeys(found, "--price")
        return cls(prices, source, bool(own or found))

    def __bool__(self) -> bool:
        return bool(self.per_gpu_h)

    def of(self, clusters: Iterable[ClusterSection]) -> Prices:
        """The prices of the types of these clusters; none where one is missing and the user gave none.

        Raises:
            ConfigError: A type has no price although the user gave others.
        """
        if not self:
            return self
        types = dict.fromkeys(canonical(group.gpu) for each in clusters for group in each.groups if group.gpu)
        missing = [name for name in types if name not in self.per_gpu_h]
        if missing and self.given:
            raise ConfigError(
                f"--price: there is no price of {', '.join(missing)} (0 leaves what you own out of the sum)"
            )
        if missing:
            return Prices()
        return Prices(
            {name: self.per_gpu_h[name] for name in types}, {name: self.source[name] for name in types}, self.given
        )

    def a_month(self, cluster: ClusterSection) -> float:
        """The price of all GPUs of the cluster for a month, used or not. Every type must have a price."""
        groups = [group for group in cluster.groups if group.gpu is not None]
        an_hour = sum(group.count * group.gpus * self.per_gpu_h[canonical(group.gpu or "")] for group in groups)
        return an_hour * HOURS_A_MONTH

    def said(self) -> str:
        """All prices with their sources, as a sentence; those of one source stand together."""
        by_source: dict[str, list[str]] = {}
        for name, price in self.per_gpu_h.items():
            by_source.setdefault(self.source[name], []).append(f"{name} {price:g}")
        parts = [f"{', '.join(names)} ({source})" for source, names in by_source.items()]
        unit = " in US dollars" if any(each.startswith("list price") for each in by_source) else ""
        return f"Cost: of all GPUs for {HOURS_A_MONTH:g} hours, used or not. A GPU hour{unit}: {'; '.join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, safe for JSON."""
        return {name: {"per_gpu_h": price, "source": self.source[name]} for name, price in self.per_gpu_h.items()}

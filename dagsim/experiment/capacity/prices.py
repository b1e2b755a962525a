"""Prices of GPUs, and what a cluster costs a month. There are no built-in prices: they are the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from dagsim.config.schema import ClusterSection
from dagsim.errors import ConfigError
from dagsim.model.gpu import canonical

__all__ = ["HOURS_A_MONTH", "Prices"]

HOURS_A_MONTH = 730.0
"""A twelfth of 8,760 hours."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of one GPU with its share of the node for an hour, by type, in whatever currency."""

    per_gpu_h: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, texts: tuple[str, ...] | list[str]) -> Prices:
        """``H200=3.5,A100=1.9``, or several of these.

        Raises:
            ConfigError: It is written otherwise, a price is negative, or a type has two.
        """
        found: dict[str, float] = {}
        for part in [part.strip() for text in texts for part in text.split(",")]:
            name, equals, number = part.partition("=")
            try:
                price = float(number)
            except ValueError:
                price = -1.0
            if not equals or not name.strip() or not isfinite(price) or price < 0:
                raise ConfigError(f"--cost {part!r}: expected a GPU type and a price per hour, as H200=3.5")
            type_ = canonical(name.strip())
            if found.setdefault(type_, price) != price:
                raise ConfigError(f"--cost: {type_} has two prices")
        return cls(found)

    def __bool__(self) -> bool:
        return bool(self.per_gpu_h)

    def a_month(self, cluster: ClusterSection) -> float:
        """The price of all GPUs of the cluster for a month, used or not.

        Raises:
            ConfigError: A type of the cluster has no price.
        """
        total, missing = 0.0, []
        for group in cluster.groups:
            if group.gpu is None:
                continue
            type_ = canonical(group.gpu)
            if type_ not in self.per_gpu_h:
                missing.append(type_)
            total += group.count * group.gpus * self.per_gpu_h.get(type_, 0.0)
        if missing:
            names = ", ".join(dict.fromkeys(missing))
            raise ConfigError(f"--cost: there is no price of {names} (0 leaves what you own out of the sum)")
        return total * HOURS_A_MONTH

"""Prices in dollars per GPU and hour with which Gavel's policies decide. They do not change when the
list prices in ``model.gpu`` do, from which costs are computed, because decisions would change.
"""

from __future__ import annotations

from collections.abc import Mapping

PUBLISHED_PRICES = {"V100-16": 2.48, "P100": 1.46, "K80": 0.45}
"""Prices in Gavel's published policies with cost."""

CLOUD_PRICES = {"A100-80": 5.0, "A100-40": 3.7, "V100-32": 2.5, "V100-16": 2.5, "P100": 1.5, "K80": 0.5, "T4": 0.35}
"""Prices in public clouds, 2023."""


def price_of(type_: str, prices: Mapping[str, float]) -> float:
    """Return the price of a GPU type. Types without a price cost the same as a V100."""
    return prices.get(type_, prices["V100-16"])

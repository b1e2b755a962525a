"""Prices of renting a GPU, by type: what a cloud published for its on-demand machines, each with source and year.

They are for orders of magnitude: list prices differ several times over between vendors, and change; these were noted
without a look at the pages of today. Whoever decides by them gives prices of their own (``--price``, or ``prices`` of
the configuration).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["LIST_PRICES", "ListPrice"]


class ListPrice(NamedTuple):
    """The on-demand price of a GPU with its share of the machine."""

    usd_per_h: float
    source: str


def _aws(machine: str, year: int, gpus: int = 1) -> str:
    return f"AWS {machine}{f' / {gpus}' if gpus > 1 else ''}, {year}"


LIST_PRICES: Mapping[str, ListPrice] = {
    "K80": ListPrice(0.90, _aws("p2.xlarge", 2024)),
    "P100": ListPrice(1.46, "Google Cloud, the GPU alone, 2024"),
    "V100-16": ListPrice(3.06, _aws("p3.2xlarge", 2024)),
    "V100-32": ListPrice(3.90, _aws("p3dn.24xlarge", 2024, 8)),
    "T4": ListPrice(0.526, _aws("g4dn.xlarge", 2024)),
    "A10": ListPrice(1.006, _aws("g5.xlarge (A10G)", 2024)),
    "L4": ListPrice(0.805, _aws("g6.xlarge", 2024)),
    "L40S": ListPrice(1.861, _aws("g6e.xlarge", 2024)),
    "A100-40": ListPrice(2.74, f"approximate, {_aws('p4d.24xlarge', 2025, 8)}"),
    "A100-80": ListPrice(3.43, f"approximate, {_aws('p4de.24xlarge', 2025, 8)}"),
    "H100": ListPrice(6.88, f"approximate, {_aws('p5.48xlarge', 2025, 8)}"),
    "H200": ListPrice(7.91, f"approximate, {_aws('p5en.48xlarge', 2025, 8)}"),
    "B200": ListPrice(14.24, f"approximate, {_aws('p6-b200.48xlarge', 2025, 8)}"),
    "B300": ListPrice(17.80, f"approximate, {_aws('p6-b300.48xlarge', 2025, 8)}"),
    "GB200": ListPrice(10.50, "approximate, CoreWeave NVL72, 2025"),
    "RTX-PRO-6000": ListPrice(2.50, "approximate, CoreWeave, 2025"),
    "RTX-4090": ListPrice(0.69, "approximate, RunPod, 2025"),
    "MI300X": ListPrice(6.00, "approximate, Azure ND96isr MI300X v5 / 8, 2025"),
    "TPU-v5e": ListPrice(1.20, "Google Cloud, a chip, 2024"),
    "TPU-v5p": ListPrice(4.20, "Google Cloud, a chip, 2024"),
    "TPU-v6e": ListPrice(2.70, "Google Cloud, a chip, 2024"),
}
"""By name of the GPU type; US dollars. Types without a published on-demand price are missing."""

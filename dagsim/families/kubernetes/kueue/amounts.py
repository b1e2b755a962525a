"""Amounts as whole numbers and in the notation of Kubernetes."""

from __future__ import annotations

from math import ceil


def unit(resource: str) -> int:
    """Return how many whole units a core, a byte or a device has. As in Kueue, cores are counted in
    thousandths. Devices are counted in millionths, because in dagsim a job may use a share of a
    GPU."""
    if resource == "cpu":
        return 1000
    return 1 if _is_bytes(resource) else 1_000_000


def whole(resource: str, amount: float) -> int:
    """Return an amount in whole units, rounded up."""
    parts = amount * unit(resource)
    nearest = round(parts)
    return nearest if abs(parts - nearest) <= 1e-6 * max(1.0, abs(parts) * 1e-6) else ceil(parts)


def natural(resource: str, parts: int) -> float:
    """Return an amount in cores, bytes, or devices."""
    size = unit(resource)
    return parts // size if parts % size == 0 else parts / size


def text(resource: str, parts: int) -> str:
    """Return an amount in the notation of Kubernetes, such as ``1500m``, ``16Gi`` or ``1k``."""
    steps, suffixes = 1000, ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]
    if _is_bytes(resource):
        steps, suffixes = 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    else:
        parts *= 1_000_000_000 // unit(resource)
    if parts == 0:
        return "0"
    power = 0
    while parts % steps == 0 and power + 1 < len(suffixes):
        parts //= steps
        power += 1
    return f"{parts}{suffixes[power]}"


def _is_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")

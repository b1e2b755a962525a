"""The values that ``dagsim tune`` tries of each policy's parameters."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TUNABLE"]

TUNABLE: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    "eft-wait": {"theta": (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0), "order": ("task", "path", "work")},
    "weighted-fair": {"alpha": (-2.0, -1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.5, 1.0)},
    "priority": {"ageing": (0.0, 1e-4, 1e-3, 1e-2)},
    "tiresias": {"thresholds": (900.0, 3600.0, 14_400.0), "quantum_s": (60.0, 300.0)},
    "2d-las": {"quantum_s": (30.0, 60.0, 300.0)},
    "round-robin": {"quantum_s": (30.0, 60.0, 300.0)},
}

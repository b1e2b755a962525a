"""The registry of algorithms. Reading it does not require torch."""

from __future__ import annotations

from dagsim.families.learning.settings import AlgorithmSettings
from dagsim.registry import Registry

ALGORITHMS: Registry[AlgorithmSettings] = Registry(
    "algorithm", group="dagsim.algorithms", listing="dagsim list algorithms", method="build"
)
"""Every algorithm by name, as the dataclass of its settings."""


def algorithm_name(settings: AlgorithmSettings) -> str:
    """Return the short name of an algorithm for labels. This is its ``kind``, or the class name if
    the user has defined the class.
    """
    return str(getattr(settings, "kind", type(settings).__name__))

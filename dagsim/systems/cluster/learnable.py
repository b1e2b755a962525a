"""Two registries for agents on the GPU cluster: what they observe, and how they are rewarded.
Families fill both.
"""

from __future__ import annotations

from typing import Any

from dagsim.registry import Registry
from dagsim.systems.seam import RewardTerm

CODECS: Registry[Any] = Registry("codec", group="dagsim.codecs", listing="dagsim list codecs", method="build")
"""Every codec of the GPU cluster by name: it turns a view into arrays for a network, and the
network's choice into decisions.
"""

TERMS: Registry[RewardTerm] = Registry(
    "reward term", group="dagsim.rewards", listing="dagsim list rewards", method="cost"
)
"""Every reward term of the GPU cluster by name. It is built with ``kernel`` or its ``schedule``."""

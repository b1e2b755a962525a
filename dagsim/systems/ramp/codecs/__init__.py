"""Codecs of RAMP: from a view to arrays that a net reads, and from its choice back to decisions."""

from __future__ import annotations

from typing import Any

from dagsim.registry import Entry, Registry

__all__ = ["RAMP_CODECS"]

RAMP_CODECS: Registry[Any] = Registry(
    "codec",
    [Entry("partition", ".config:PartitionConfig", "a degree, and where wanted a block of servers (PAC-ML)")],
    group="dagsim.codecs",
    listing="dagsim list codecs",
    home="dagsim.systems.ramp.codecs",
    method="build",
)
"""Every codec of RAMP by name."""

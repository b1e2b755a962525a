"""Codecs of RAMP: from a view to arrays that a net reads, and from its choice back to decisions."""

from __future__ import annotations

from typing import Any

from dagsim.registry import Registry

__all__ = ["RAMP_CODECS"]

RAMP_CODECS: Registry[Any] = Registry(
    "RAMP codec",
    group="dagsim.ramp_codecs",
    listing="dagsim list codecs",
    home="dagsim.systems.ramp.codecs",
)
"""Every codec of RAMP by name."""

"""Codecs of the GPU cluster: they turn a view into arrays for a net, and the net's choice into
decisions.
"""

from __future__ import annotations

from typing import Any

from dagsim.registry import Entry, Registry

__all__ = ["CODECS"]

CODECS: Registry[Any] = Registry(
    "codec",
    [
        Entry("candidates", ".codec:CandidatesConfig", "pairs of a ready task and a GPU type with room, and waiting"),
        Entry("relative", ".codec:RelativeConfig", "the same choices without units, for any cluster and workload"),
    ],
    group="dagsim.codecs",
    listing="dagsim list codecs",
    home="dagsim.systems.cluster.codecs",
    method="build",
)
"""Every codec of the GPU cluster by name."""

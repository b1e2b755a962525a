"""Policies: what decides. One idea per file; this is the list of them all."""

from __future__ import annotations

from dagsim.policies.placement import PLACEMENTS, Placing
from dagsim.registry import Entry, Registry
from dagsim.sim.policy import Policy

__all__ = ["PLACEMENTS", "POLICIES", "Placing"]

_KNOWS = ("clairvoyant",)

POLICIES: Registry[Policy] = Registry(
    "policy",
    [
        Entry("fifo", "dagsim.policies.orders:fifo", "oldest first; it blocks all behind it until it fits"),
        Entry("fifo-fit", "dagsim.policies.orders:fifo_fit", "oldest first among those that fit"),
        Entry("random", "dagsim.policies.random_feasible:RandomFeasible", "anything that fits, uniformly"),
        Entry("sjf", "dagsim.policies.orders:sjf", "shortest pair of task and GPU type first", _KNOWS),
        Entry("srtf", "dagsim.policies.srtf:Srtf", "shortest remaining time first", ("clairvoyant", "preemptive")),
        Entry("critical-path", "dagsim.policies.orders:critical_path", "longest path to the end first", _KNOWS),
        Entry(
            "eft-wait",
            "dagsim.policies.eft_wait:EftWait",
            "shortest first, unless waiting for a faster type ends sooner",
            ("clairvoyant",),
        ),
    ],
    group="dagsim.policies",
    listing="dagsim list policies",
)
"""Every policy by name; other packages add theirs by an entry point in the group ``dagsim.policies``."""

"""Policies for RAMP: how far each arriving job is split, or whether it is turned away."""

from __future__ import annotations

from dagsim.registry import Entry, Registry
from dagsim.systems.ramp.view import RampPolicy

__all__ = ["RAMP_POLICIES"]

RAMP_POLICIES: Registry[RampPolicy] = Registry(
    "RAMP policy",
    (
        Entry("no", "dagsim.systems.ramp.policies.fixed:NoParallelism", "every job on one GPU"),
        Entry("min", "dagsim.systems.ramp.policies.fixed:MinParallelism", "every job split two ways where it can be"),
        Entry("max", "dagsim.systems.ramp.policies.fixed:MaxParallelism", "every job split as far as it can be"),
        Entry(
            "random", "dagsim.systems.ramp.policies.drawn:RandomDegree", "a degree drawn among those offered, never 0"
        ),
        Entry(
            "sip_ml", "dagsim.systems.ramp.policies.fixed:SipMlDegree", "as far as it can be, up to a number of ways"
        ),
        Entry(
            "constant",
            "dagsim.systems.ramp.policies.fixed:ConstantDegree",
            "a number of ways; a job that cannot is turned away",
        ),
        Entry(
            "acceptable_jct",
            "dagsim.systems.ramp.policies.acceptable:AcceptableJct",
            "as little as its deadline allows",
        ),
        Entry("roomy", "dagsim.systems.ramp.policies.roomy:Roomy", "in time, on the servers that leave the most room"),
        Entry("on_time", "dagsim.systems.ramp.policies.on_time:OnTime", "the smallest degree that is in time"),
    ),
    group="dagsim.ramp_policies",
    method="decide",
)
"""By name, or ``module:attr`` of a user's own."""

"""Kueue: admission by quota, as an engine without a clock, and as a policy in simulated time."""

from dagsim.families.kubernetes.kueue.kueue_policy import Kueue

__all__ = ["Kueue"]

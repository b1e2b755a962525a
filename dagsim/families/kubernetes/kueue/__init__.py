"""Kueue: admission by quota, implemented as an engine without a clock and as a policy that runs in
simulated time."""

from dagsim.families.kubernetes.kueue.kueue_policy import Kueue

__all__ = ["Kueue"]

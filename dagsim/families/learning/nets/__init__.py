"""Neural networks. For a batch of observations, they compute choices, together with
log-probabilities and entropies."""

from __future__ import annotations

from dagsim.families.learning.nets.net_settings import NetSettings
from dagsim.registry import Entry, Registry

__all__ = ["NETS"]

NETS: Registry[NetSettings] = Registry(
    "net",
    [
        Entry("scorer", ".net_settings:ScorerConfig", "scores each row, from the row itself and the mean of all rows"),
        Entry("attention", ".net_settings:AttentionConfig", "like scorer, but rows also attend to the GPU types"),
        Entry("graph", ".net_settings:GraphConfig", "graph network that passes messages between rows and GPU types"),
        Entry("mlp", ".net_settings:MlpConfig", "multilayer perceptron that reads the first rows together"),
        Entry("linear", ".net_settings:LinearConfig", "one weight per feature"),
    ],
    group="dagsim.nets",
    listing="dagsim list nets",
    home="dagsim.families.learning.nets",
    method="build",
)
"""Every network by name, as the dataclass of its settings."""

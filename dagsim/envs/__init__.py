"""Environments for learning: codecs between views and arrays, rewards as folds, and a thin Gymnasium adapter.

``gymnasium.make("dagsim.envs:dagsim/Scheduling-v0", config="heterogeneous-dag")`` imports this module, which registers
the environment.
"""

from __future__ import annotations

import gymnasium

__all__ = ["ENTRY_POINT"]

ENTRY_POINT = "dagsim.experiment.environment:make_env"
"""What makes an environment of an experiment; a floor above, so it is named, not imported."""

gymnasium.register("dagsim/Scheduling-v0", ENTRY_POINT)

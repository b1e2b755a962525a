"""Environments for learning: episodes, rewards, and thin Gymnasium wrappers around them.

``gymnasium.make("dagsim.envs:dagsim/Scheduling-v0", config="heterogeneous-dag")`` imports this
module, which registers the environments.
"""

from __future__ import annotations

import gymnasium

__all__ = ["DECIMA_ID", "ENTRY_POINT", "PARTITION_ID", "SCHEDULING_ID", "VECTOR_ENTRY_POINT"]

ENTRY_POINT = "dagsim.experiment.environment:make_env"
"""The function that makes the environment of an experiment. It is named, not imported, because it
is one floor above.
"""
VECTOR_ENTRY_POINT = "dagsim.experiment.environment:make_vector_env"
"""The function that makes many of them at once, for ``gymnasium.make_vec``."""
SCHEDULING_ID = "dagsim/Scheduling-v0"
DECIMA_ID = "dagsim/Decima-v0"
PARTITION_ID = "dagsim/Partition-v0"

gymnasium.register(SCHEDULING_ID, ENTRY_POINT, vector_entry_point=VECTOR_ENTRY_POINT)
gymnasium.register(DECIMA_ID, "dagsim.envs.spark:DecimaEnv")
gymnasium.register(PARTITION_ID, "dagsim.envs.ramp:PartitionEnv")

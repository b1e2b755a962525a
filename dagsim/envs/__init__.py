"""Environments for learning: episodes, rewards, and thin Gymnasium wrappers around them.

``gymnasium.make("dagsim.envs:dagsim/Scheduling-v0", config="heterogeneous-dag")`` imports this
module, which registers the environments.
"""

from __future__ import annotations

import gymnasium

from dagsim.family import family_entries

__all__ = ["ENTRY_POINT", "SCHEDULING_ID", "VECTOR_ENTRY_POINT"]

ENTRY_POINT = "dagsim.experiment.environment:make_env"
"""The function that makes the environment of an experiment. It is named, not imported, because it
is one floor above.
"""
VECTOR_ENTRY_POINT = "dagsim.experiment.environment:make_vector_env"
"""The function that makes many of them at once, for ``gymnasium.make_vec``."""
SCHEDULING_ID = "dagsim/Scheduling-v0"

gymnasium.register(SCHEDULING_ID, ENTRY_POINT, vector_entry_point=VECTOR_ENTRY_POINT)
for _home, _entry in family_entries("environments"):
    gymnasium.register(_entry.summary, f"{_home}{_entry.target}")

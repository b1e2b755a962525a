"""Settings of the Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal, get_args

from dagsim.errors import ConfigError
from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.families.learning.episode import RewardConfig
from dagsim.systems.seam import CodecSettings

ActionLevel = Literal["job", "task", "task_type", "task_type_par"]
ObservationPreset = Literal["flat", "dict", "candidates", "graph"]


@dataclass(frozen=True, slots=True)
class EnvConfig:
    """Settings for the actions, the observations and the end of episodes.

    ``level`` defines the action space, that is, what an action chooses:

    - ``job``: a job, whose task with the longest path starts on the fastest type on which it fits;
    - ``task``: a task;
    - ``task_type``: a pair of a task and a GPU type;
    - ``task_type_par``: a task, a GPU type, and the number of instances that start together (one,
      half, or all);

    ``observation`` is one of:

    - ``flat``: a vector;
    - ``dict``: ``observations`` and ``action_mask``;
    - ``candidates``: one row per choice;
    - ``graph``: the same as ``candidates``, plus the tasks of all jobs in the system and their
      edges.
    """

    level: ActionLevel = "task_type"
    observation: ObservationPreset = "candidates"
    slots: int = 64
    """Number of actions; the last action is to wait."""
    nodes: int = 256
    """Maximum number of tasks in ``graph``, which lists the oldest jobs first."""
    edges: int = 512
    codec: CodecSettings = field(default_factory=CandidatesConfig)
    """A codec whose observations have rows (``dagsim list codecs``). Your own codec requires the
    level ``task_type``."""
    reward: Mapping[str, float] = field(default_factory=lambda: {"shaped_job_seconds": 1.0})
    """Terms of the reward (``dagsim list rewards``), each with its weight."""
    reward_scale: float = 1000.0
    max_steps: int | None = None
    """Number of actions after which the episode is truncated."""
    horizon_s: float = inf
    """Simulated time, in seconds, at which the episode is truncated."""

    pool: int | None = None
    """Number of job sequences that episodes without a seed are drawn from (default: a million). In compiled
    environments, each sequence of a pool is drawn and prepared only once."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.pool is not None and not 1 <= self.pool <= 1_000_000:
            raise ConfigError(f"env: pool must be from 1 to 1,000,000, got {self.pool!r}")
        if self.level not in get_args(ActionLevel):
            raise ConfigError(f"env: level must be one of {', '.join(get_args(ActionLevel))}, got {self.level!r}")
        if self.observation not in get_args(ObservationPreset):
            raise ConfigError(
                f"env: observation must be one of {', '.join(get_args(ObservationPreset))}, got {self.observation!r}"
            )
        if self.level != "task_type" and not isinstance(self.codec, CandidatesConfig):
            raise ConfigError(
                f"env: level {self.level!r} only works with the codec 'candidates'; use level 'task_type' instead"
            )
        if min(self.slots, self.nodes, self.edges) < 2:
            raise ConfigError(
                f"env: slots, nodes and edges must be 2 or more, got {self.slots!r}, {self.nodes!r}, {self.edges!r}"
            )
        if self.max_steps is not None and self.max_steps < 1:
            raise ConfigError(f"env: max_steps must be 1 or more, got {self.max_steps!r}")
        if not self.horizon_s > 0:
            raise ConfigError(f"env: horizon_s must be positive, got {self.horizon_s!r}")
        RewardConfig(self.reward, self.reward_scale)

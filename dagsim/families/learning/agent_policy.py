"""A trained agent, as a policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.observation_bounds import Clipped
from dagsim.systems.seam import System, View


class AgentPolicy:
    """Makes decisions with a network. It takes the most likely choice or, with ``sampled``, draws a
    choice from the simulation's random stream ``"agent"``. Each decision takes one observation and
    one forward pass, about 0.3 ms in the system ``cluster``."""

    def __init__(self, checkpoint: Checkpoint, *, sampled: bool = False) -> None:
        self.checkpoint = checkpoint
        self.sampled = sampled
        self.forgets = "how many random numbers had been drawn" if sampled else ""
        self._net = checkpoint.network()
        self._codec = checkpoint.clipped(checkpoint.codec.build())

    @property
    def admits(self) -> bool:
        """True if the agent decides whether jobs are admitted."""
        return "admit" in getattr(self.checkpoint.codec, "actions", ())

    @property
    def outside_training(self) -> float:
        """The fraction of the values seen so far that were outside the range of their feature in
        training.
        """
        codec = self._codec
        return codec.outside / codec.values if isinstance(codec, Clipped) and codec.values else 0.0

    def decide(self, view: View) -> Iterator[Any]:
        """Yield the decisions that the network chooses."""
        observation = self._codec.encode(view)
        if observation is None:
            return
        choices, _ = self._net.act(self._net.stack([observation]), view.stream("agent") if self.sampled else None)
        yield from self._codec.decode(view, choices.tolist()[0])


def load_agent(
    checkpoint: str | Path,
    sampled: bool = False,
    system: System | type[System] | None = None,
    *,
    codec: str | None = None,
    net: str | None = None,
    beliefs: bool = False,
) -> AgentPolicy:
    """Load the agent in a checkpoint file as a policy. ``system`` must be the system for which the
    agent was trained. ``codec`` and ``net`` are as in ``Checkpoint.load``, and ``beliefs`` is as in
    ``Checkpoint.with_beliefs``.

    Raises:
        RunFolderError, CodeNotAllowed: As for ``Checkpoint.load``.
        ConfigError: As for ``Checkpoint.with_beliefs``.
    """
    agent = Checkpoint.load(Path(checkpoint), system, codec=codec, net=net)
    return AgentPolicy(agent.with_beliefs() if beliefs else agent, sampled=sampled)

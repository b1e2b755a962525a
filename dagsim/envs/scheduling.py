"""The Gymnasium environment: a thin driver of ``ClusterKernel.decisions()``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import gymnasium
import numpy as np

from dagsim.envs.config import EnvConfig
from dagsim.envs.levels import Levelled
from dagsim.envs.observations import Presets
from dagsim.envs.rewards import Reward, RewardConfig
from dagsim.model import Decision
from dagsim.systems.cluster.codecs.candidates import Candidates
from dagsim.systems.cluster.codecs.codec import Observation
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.view import ClusterView

__all__ = ["SchedulingEnv"]

_SEEDS = 1_000_000
"""Episodes without a seed of their own draw one from here on, so many different ones: never one kept for validation or
the report."""


class SchedulingEnv(gymnasium.Env[Any, np.int64]):
    """Every step is one choice: which task starts where, or to wait for a change (the last action; legal while anything
    is still to happen). Only what is legal is unmasked: in ``action_masks()``, in ``info["action_mask"]`` and in the
    observation (but for ``flat``). An action that is masked falls back on the first legal one and is counted in
    ``info["illegal_actions"]``.

    ``terminated`` when every job has left, ``truncated`` at ``max_steps`` or ``horizon_s``. ``reset(seed=n)`` plays the
    job sequence with seed n. ``info`` has the time, and when the episode is over the ``mean_jct_s``.
    """

    metadata = {"render_modes": ["ansi"]}

    def __init__(
        self,
        maker: Callable[[int], ClusterKernel],
        config: EnvConfig | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.config = config or EnvConfig()
        self.render_mode = render_mode
        self._maker = maker
        types = len(maker(0).machines.types)
        self._presets = Presets(self.config, types)
        self.observation_space = self._presets.space
        self.action_space = gymnasium.spaces.Discrete(self.config.slots)
        self.simulation: ClusterKernel | None = None
        self.view: ClusterView | None = None
        self.codec = Levelled(Candidates(self.config.codec), self.config.level)
        self._conversation: Generator[ClusterView, Iterable[Decision] | None, None] | None = None
        self._reward: Reward | None = None
        self._seen: Observation | None = None
        self._steps = self._illegal = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode on the job sequence with ``seed``, or on any."""
        super().reset(seed=seed)
        number = _SEEDS + int(self.np_random.integers(_SEEDS)) if seed is None else seed
        simulation = self._maker(number)
        self.simulation = simulation
        self.codec = Levelled(Candidates(self.config.codec), self.config.level)
        self._reward = Reward(RewardConfig(self.config.reward, self.config.reward_scale), simulation)
        self._conversation = simulation.decisions()
        self.view = next(self._conversation, None)
        self._steps = self._illegal = 0
        self._to_next_choice()
        self._reward.step()
        return self._presets.observe(self._seen, self.view), self._info()

    def step(self, action: np.int64 | int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out the choice and go on to the next."""
        if self._seen is None or self.view is None or self._reward is None:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() first")
        self._steps += 1
        row = self._row(int(action))
        decision = self.codec.decode(self.view, row)
        self._send(() if decision is None else (decision,))
        self._to_next_choice()
        reward = self._reward.step()
        terminated = self._seen is None
        over = self.config.max_steps is not None and self._steps >= self.config.max_steps
        late = self.simulation is not None and self.simulation.now >= self.config.horizon_s
        truncated = not terminated and (over or late)
        return self._presets.observe(self._seen, self.view), reward, terminated, truncated, self._info()

    def action_masks(self) -> np.ndarray:
        """(slots,) bool: what is legal now."""
        return self._presets.mask(self._seen).astype(bool)

    def action_of(self, decision: Decision | None) -> int | None:
        """The action that stands for a heuristic's decision (``None``: to wait); ``None`` if there is none, also where
        there are more choices than slots."""
        row = self.codec.choice_of(decision)
        if row is None or self._seen is None:
            return None
        last = self.config.slots - 1
        if self._seen.tokens[row, 0] == 1.0:
            return last
        return row if row < last else None

    def render(self) -> str:
        """A line on the present, for ``ansi``."""
        if self.simulation is None or self.view is None:
            return "over" if self.simulation is not None else "not begun"
        machines = self.view.machines
        idle = ", ".join(
            f"{machines.idle_gpus(type_)} {gpu.name if gpu else 'CPU'}" for type_, gpu in enumerate(machines.types)
        )
        return (
            f"{self.simulation.now:.0f} s: {len(self.view.ready)} ready, {len(self.view.running)} running, idle: {idle}"
        )

    def _row(self, action: int) -> int:
        """The row that an action stands for, or the first one where it is illegal."""
        assert self._seen is not None
        rows = len(self._seen.tokens)
        waits = self._seen.tokens[-1, 0] == 1.0
        if action == self.config.slots - 1 and waits:
            return rows - 1
        if 0 <= action < min(rows - int(waits), self.config.slots - 1):
            return action
        self._illegal += 1
        return 0

    def _to_next_choice(self) -> None:
        while self.view is not None:
            self._seen = self.codec.encode(self.view)
            if self._seen is not None:
                return
            self._send(())
        self._seen = None

    def _send(self, decisions: Iterable[Decision]) -> None:
        assert self._conversation is not None
        try:
            self.view = self._conversation.send(decisions)
        except StopIteration:
            self.view = None

    def _info(self) -> dict[str, Any]:
        assert self.simulation is not None
        assert self._reward is not None
        info: dict[str, Any] = {
            "action_mask": self._presets.mask(self._seen),
            "illegal_actions": self._illegal,
            "time_s": self.simulation.now,
            **{f"reward_{name}": -cost for name, cost in self._reward.last.items()},
        }
        if self.view is None:
            from dagsim.metrics.jct import jct

            info["mean_jct_s"] = float(np.mean(jct(self.simulation.schedule)))
        return info

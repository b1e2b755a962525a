"""The Gymnasium environment ``dagsim/Partition-v0``. The agent chooses into how many pieces each
job on RAMP is split (Parsonson et al. 2023).

The environment is a thin wrapper around ``Episode``, and ``import dagsim.envs`` registers it. Each
step carries out the decision about the waiting job. Time then passes until the next arrival at
which there is a choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from dagsim.errors import ConfigError, IllegalDecision
from dagsim.families.learning.environments.episode_env import EpisodeEnv, picture_of
from dagsim.families.learning.episode import Episode, RewardConfig
from dagsim.families.ramp.codecs import (
    CONTEXT,
    DEP_FEATURES,
    OP_FEATURES,
    ROW_FEATURES,
    TYPE_FEATURES,
    RampCodec,
    RampObservation,
)
from dagsim.families.ramp.kernel import RampKernel
from dagsim.families.ramp.kpis import cause
from dagsim.families.ramp.scenario import RampScenario
from dagsim.families.ramp.view import RampView
from dagsim.model.arithmetic import whole_sum

_MOST = 1e6
"""Larger than any feature: nearly all lie between 0 and 4, except a raw beta, which is not
scaled."""


class PartitionEnv(EpisodeEnv):
    """Each action is the number of ways to split the waiting job (0 blocks it), on servers that the
    placer chooses.

    An observation has these parts, in which unused rows are 0 (the columns are named in
    ``families/ramp/codecs.py``):

    - ``ops`` (most_ops, 5) and ``deps`` (most_deps, 2) of the job's graph, unsplit;
    - ``sources`` and ``targets`` (most_deps,): indices of rows in ``ops``;
    - ``counts`` (2,): numbers of operations and dependencies;
    - ``context``: the job and the fabric;
    - ``degrees`` (max_degree + 1, F): one row per degree;
    - ``gpus``: one row per GPU type;
    - ``action_mask`` (max_degree + 1,): 1 if the degree may be chosen now, that is, if the job fits
      on the free servers and, with ``outlooks``, would be in time.

    A masked action raises ``IllegalDecision``. With ``invalid_is_zero`` it blocks the job instead
    (as in ddls) and is counted in ``info["illegal_actions"]``. An episode is ``terminated`` when a
    decision has been made about every job and every job has left, and ``truncated`` if the
    scenario's horizon ends it before that.

    ``info`` contains the mask, the time, the numbers of jobs that arrived and were blocked, and the
    ``cause``, which is the reason why the job in the last step was blocked (``None`` if it was
    admitted). At the end it contains the ``blocking_rate``.

    ``reset(options={"jobs": [...]})`` simulates these ``RampJob``s, in order of arrival.

    Render modes: ``ansi`` (a line), ``rgb_array`` and ``human`` (the servers, one colour per job).
    """

    def __init__(
        self,
        scenario: RampScenario | None = None,
        *,
        reward: Mapping[str, float] | None = None,
        outlooks: bool = True,
        invalid_is_zero: bool = False,
        most_ops: int | None = None,
        most_deps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        rewards = RewardConfig(reward or {"job_acceptance": 1.0})
        super().__init__(scenario or RampScenario(), rewards, RampCodec(outlooks=outlooks), render_mode)
        self.outlooks, self.invalid_is_zero = outlooks, invalid_is_zero
        graphs = [job.graph for job in self.scenario.examples]
        self.most_ops = most_ops or max(2 * len(graph) for graph in graphs)
        self.most_deps = most_deps or max(2 * len(graph.edges) + 1 for graph in graphs)
        self._degrees = self.scenario.max_degree + 1
        self.action_space = spaces.Discrete(self._degrees)
        self.observation_space = self._space(len(self.scenario.planner.fabric.types))
        self._cause: str | None = None

    def _begin(self, seed: int, **options: Any) -> None:
        self.codec, self._cause = RampCodec(outlooks=self.outlooks), None
        super()._begin(seed, jobs=options.get("jobs"))

    def _choose(self, episode: Episode, action: np.int64 | int) -> None:
        row = self.codec.row_of(int(action))
        if row is None:
            if not self.invalid_is_zero:
                offered = ", ".join(str(way.degree) for way in self.codec.ways)
                raise IllegalDecision(f"at {episode.now:g} s: action {action} is masked; allowed: {offered}")
            self._illegal += 1
            row = 0
        number = self.simulation.queued_number
        episode.step(row)
        outcome = self.simulation.outcomes[number]
        self._cause = None if outcome.reason is None else cause(outcome)

    def _ended(self, episode: Episode) -> tuple[bool, bool]:
        outcomes, over = self.simulation.outcomes, episode.observation is None
        all_left = over and all(outcome.degrees and cause(outcome) != "unfinished" for outcome in outcomes)
        done = all_left and len(outcomes) == len(self.simulation.jobs)
        return done, over and not done

    def _seen(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return self._observation(), self._info()

    def action_masks(self) -> np.ndarray:
        """Return a mask of the degrees that may be chosen now, (max_degree + 1,) bool. When the
        episode is over, only degree 0 may be chosen.
        """
        mask = np.zeros(self._degrees, bool)
        mask[[0] if self.view is None else [way.degree for way in self.codec.ways]] = True
        return mask

    def action_of(self, decision: Any) -> int | None:
        """Return the action that stands for a heuristic's ``Partition`` (``None`` blocks the
        job)."""
        row = self.codec.choice_of(() if decision is None else (decision,))
        return None if row is None else self.codec.ways[row].degree

    def _picture(self) -> np.ndarray:
        return picture_of(self.simulation, "RAMP")

    def _text(self) -> str:
        view: RampView | None = self.view
        if view is None:
            return self._without_view()
        job, fabric = view.job, view.fabric
        return (
            f"{view.now:.6g} s: {view.running} jobs on {fabric.servers - view.free} of {fabric.servers} "
            f"servers; {job.graph.model} waits, acceptable in {job.acceptable_s:.4g} s"
        )

    def _observation(self) -> dict[str, np.ndarray]:
        observation: RampObservation | None = None if self._episode is None else self._episode.observation
        parts = {name: np.zeros(box.shape, box.dtype) for name, box in self.observation_space.items()}  # type: ignore[attr-defined]
        parts["action_mask"][:] = self.action_masks()
        if observation is None:
            return parts
        ops, deps = len(observation.ops), len(observation.deps)
        if ops > self.most_ops or deps > self.most_deps:
            raise ConfigError(
                f"a graph with {ops} operations and {deps} dependencies does not fit into most_ops={self.most_ops}, "
                f"most_deps={self.most_deps}"
            )
        parts["ops"][:ops], parts["deps"][:deps] = observation.ops, observation.deps
        parts["sources"][:deps], parts["targets"][:deps] = observation.sources, observation.targets
        parts["counts"][:] = ops, deps
        parts["context"][:], parts["gpus"][:] = observation.context, observation.gpus
        for way, row in zip(self.codec.ways, observation.tokens, strict=True):
            parts["degrees"][way.degree] = row
        return parts

    def _info(self) -> dict[str, Any]:
        kernel: RampKernel = self.simulation
        over = self.view is None
        blocked = sum(outcome.reason is not None for outcome in kernel.outcomes)
        info: dict[str, Any] = {
            "action_mask": self.action_masks().astype(np.int8),
            "illegal_actions": self._illegal,
            "time_s": kernel.now,
            "cause": self._cause,
            "jobs_arrived": len(kernel.outcomes),
            "jobs_blocked": blocked,
        }
        if over:
            cut_short = whole_sum(outcome.started and outcome.completed_s is None for outcome in kernel.outcomes)
            info["blocking_rate"] = (blocked + cut_short) / max(len(kernel.outcomes), 1)
        return info

    def _space(self, types: int) -> spaces.Dict:
        def box(*shape: int) -> spaces.Box:
            return spaces.Box(0, _MOST, shape, np.float32)

        rows = spaces.Box(0, self.most_ops, (self.most_deps,), np.int64)
        return spaces.Dict(
            {
                "ops": box(self.most_ops, len(OP_FEATURES)),
                "deps": box(self.most_deps, len(DEP_FEATURES)),
                "sources": rows,
                "targets": rows,
                "counts": spaces.Box(0, max(self.most_ops, self.most_deps), (2,), np.int64),
                "context": box(len(CONTEXT)),
                "degrees": box(self._degrees, len(ROW_FEATURES)),
                "gpus": box(types, len(TYPE_FEATURES)),
                "action_mask": spaces.MultiBinary(self._degrees),
            }
        )

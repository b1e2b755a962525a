"""Observation presets: the same state as padded arrays of constant shape."""

from __future__ import annotations

from math import log1p
from typing import Any

import numpy as np
from gymnasium import spaces

from dagsim.envs.config import EnvConfig
from dagsim.envs.levels import Levelled
from dagsim.systems.cluster.codecs.codec import Observation
from dagsim.systems.cluster.codecs.config import CandidatesConfig
from dagsim.systems.cluster.policies.orders.static import width
from dagsim.systems.cluster.state import TaskState
from dagsim.systems.cluster.view import ClusterView

__all__ = ["NODE_FEATURES", "Presets"]

NODE_FEATURES = ("log_best", "log_rank", "gpus", "waiting", "running", "ready", "missing_parents", "job_age")


class Presets:
    """Makes the observations of one environment. Rows beyond what there is are 0 and masked."""

    def __init__(self, config: EnvConfig, types: int) -> None:
        self.config = config
        self._types = types
        features = config.codec.features
        levelled = isinstance(config.codec, CandidatesConfig)
        self._tokens = len(Levelled.token_features if levelled else features["tokens"])
        self._context = len(features["context"])
        self._gpus = len(features["gpus"])
        self.space = self._space()

    def observe(self, observation: Observation | None, view: ClusterView | None, mask: np.ndarray) -> Any:
        """The observation as the preset has it, with a copy of its mask; all 0 when the episode is over."""
        flat = self._padded(observation)
        match self.config.observation:
            case "flat":
                return flat
            case "dict":
                return {"observations": flat, "action_mask": mask.copy()}
        begin = self.config.slots * self._tokens
        end = begin + self._context
        parts = {
            "tokens": flat[:begin].reshape(self.config.slots, self._tokens),
            "context": flat[begin:end],
            "gpus": flat[end:].reshape(self._types, self._gpus),
            "action_mask": mask.copy(),
        }
        return parts | self._graph(view) if self.config.observation == "graph" else parts

    def mask(self, observation: Observation | None) -> np.ndarray:
        """(slots,) int8: 1 for what is legal."""
        mask = np.zeros(self.config.slots, np.int8)
        if observation is not None:
            count, waits = self._shown(observation)
            mask[:count] = 1
            mask[-1] = waits
        return mask

    def _shown(self, observation: Observation) -> tuple[int, bool]:
        """The number of rows that stand for a start and have a slot, and whether the last one waits."""
        tokens = observation.tokens
        waits = bool(tokens[-1, 0] == 1.0)
        return min(len(tokens) - waits, self.config.slots - 1), waits

    def _padded(self, observation: Observation | None) -> np.ndarray:
        """Tokens in their slots, context and GPU types, end to end."""
        begin = self.config.slots * self._tokens
        end = begin + self._context
        flat = np.zeros(end + self._types * self._gpus, np.float32)
        if observation is not None:
            count, waits = self._shown(observation)
            flat[: count * self._tokens] = observation.tokens[:count].ravel()
            if waits:
                flat[begin - self._tokens : begin] = observation.tokens[-1]
            flat[begin:end] = observation.context
            flat[end:] = observation.gpus.ravel()
        return flat

    def _graph(self, view: ClusterView | None) -> dict[str, np.ndarray]:
        """The unfinished tasks of the jobs in the system, and their edges. The oldest job comes first."""
        config = self.config
        rows: list[tuple[float, ...]] = []
        pairs: list[tuple[int, int]] = []
        for job in view.jobs.values() if view is not None else ():
            assert view is not None
            age = log1p((view.now - job.job.arrival_s) / 60) / 5
            place: dict[int, int] = {}
            for task in job.tasks:
                if task.unfinished and len(rows) < config.nodes:
                    place[task.index] = len(rows)
                    rows.append(_node(task, age))
            for parent, child, _ in job.job.graph.edges:
                if parent in place and child in place:
                    pairs.append((place[parent], place[child]))
            if len(rows) == config.nodes:
                break
        nodes = np.zeros((config.nodes, len(NODE_FEATURES)), np.float32)
        edges = np.zeros((config.edges, 2), np.int64)
        del pairs[config.edges :]
        if rows:
            nodes[: len(rows)] = rows
        if pairs:
            edges[: len(pairs)] = pairs
        return {"nodes": nodes, "edges": edges, "counts": np.array([len(rows), len(pairs)], np.int64)}

    def _space(self) -> spaces.Space[Any]:
        config = self.config

        def box(*shape: int) -> spaces.Box:
            return spaces.Box(-np.inf, np.inf, shape, np.float32)

        mask = spaces.Box(0, 1, (config.slots,), np.int8)
        flat = box(config.slots * self._tokens + self._context + self._types * self._gpus)
        match config.observation:
            case "flat":
                return flat
            case "dict":
                return spaces.Dict({"observations": flat, "action_mask": mask})
        parts: dict[str, spaces.Space[Any]] = {
            "tokens": box(config.slots, self._tokens),
            "context": box(self._context),
            "gpus": box(self._types, self._gpus),
            "action_mask": mask,
        }
        if config.observation == "graph":
            parts["nodes"] = box(config.nodes, len(NODE_FEATURES))
            parts["edges"] = spaces.Box(0, config.nodes - 1, (config.edges, 2), np.int64)
            parts["counts"] = spaces.Box(0, max(config.nodes, config.edges), (2,), np.int64)
        return spaces.Dict(parts)


def _node(task: TaskState, age: float) -> tuple[float, ...]:
    """The ``NODE_FEATURES`` of an unfinished task."""
    return (
        log1p(task.best_s / 60) / 5,
        log1p(task.rank_s / 60) / 5,
        width(task) / 8,
        task.waiting,
        task.unfinished - task.waiting,
        not task.missing and task.waiting > 0,
        task.missing,
        age,
    )

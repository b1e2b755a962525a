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

    def observe(self, observation: Observation | None, view: ClusterView | None) -> Any:
        """The observation as the preset has it; all 0 when the episode is over."""
        tokens, context, gpus = self._padded(observation)
        match self.config.observation:
            case "flat":
                return np.concatenate([tokens.ravel(), context, gpus.ravel()])
            case "dict":
                flat = np.concatenate([tokens.ravel(), context, gpus.ravel()])
                return {"observations": flat, "action_mask": self.mask(observation)}
        parts = {"tokens": tokens, "context": context, "gpus": gpus, "action_mask": self.mask(observation)}
        return parts | self._graph(view) if self.config.observation == "graph" else parts

    def mask(self, observation: Observation | None) -> np.ndarray:
        """(slots,) int8: 1 for what is legal."""
        mask = np.zeros(self.config.slots, np.int8)
        if observation is not None:
            waits = int(observation.tokens[-1, 0] == 1.0)
            mask[: min(len(observation.tokens) - waits, self.config.slots - 1)] = 1
            mask[-1] = waits
        return mask

    def _padded(self, observation: Observation | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tokens = np.zeros((self.config.slots, self._tokens), np.float32)
        if observation is None:
            return tokens, np.zeros(self._context, np.float32), np.zeros((self._types, self._gpus), np.float32)
        waits = int(observation.tokens[-1, 0] == 1.0)
        count = min(len(observation.tokens) - waits, self.config.slots - 1)
        tokens[:count] = observation.tokens[:count]
        if waits:
            tokens[-1] = observation.tokens[-1]
        return tokens, observation.context, observation.gpus

    def _graph(self, view: ClusterView | None) -> dict[str, np.ndarray]:
        """The unfinished tasks of the jobs in the system, and their edges. The oldest job comes first."""
        config = self.config
        nodes = np.zeros((config.nodes, len(NODE_FEATURES)), np.float32)
        edges = np.zeros((config.edges, 2), np.int64)
        counts = np.zeros(2, np.int64)
        place: dict[tuple[int, int], int] = {}
        for job in view.jobs.values() if view is not None else ():
            assert view is not None
            age = log1p((view.now - job.job.arrival_s) / 60) / 5
            for task in job.tasks:
                if task.unfinished and len(place) < config.nodes:
                    nodes[len(place)] = (
                        log1p(task.best_s / 60) / 5,
                        log1p(task.rank_s / 60) / 5,
                        width(task) / 8,
                        task.waiting,
                        task.unfinished - task.waiting,
                        not task.missing and task.waiting > 0,
                        task.missing,
                        age,
                    )
                    place[job.number, task.index] = len(place)
            for edge in job.job.graph.edges:
                parent, child = place.get((job.number, edge.parent)), place.get((job.number, edge.child))
                if parent is not None and child is not None and counts[1] < config.edges:
                    edges[counts[1]] = parent, child
                    counts[1] += 1
        counts[0] = len(place)
        return {"nodes": nodes, "edges": edges, "counts": counts}

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

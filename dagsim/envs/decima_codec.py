"""Between the graph of stages and arrays of constant shape: what an agent of ``dagsim/Decima-v0`` sees and says."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from gymnasium import spaces

from dagsim.errors import IllegalDecision
from dagsim.systems.spark import Action, Commit
from dagsim.systems.spark.graph import StageGraph

__all__ = ["GraphCodec", "Observation"]

Observation: TypeAlias = dict[str, np.ndarray]


class GraphCodec:
    """Encodes the present, and decodes the action that answers it. ``kept`` (jobs,) int64 are the executors that each
    job in the system has without those to be given now."""

    def __init__(self, executors: int, most_stages: int, most_edges: int, action: Action) -> None:
        self.executors, self.most_stages, self.most_edges = executors, most_stages, most_edges
        self.action: Action = action
        self.actions = spaces.MultiDiscrete([most_stages + 1, executors])
        self.observations = spaces.Dict(
            {
                "stages": spaces.Box(-np.inf, np.inf, (most_stages, 6), np.float32),
                "job": spaces.Box(-1, most_stages, (most_stages,), np.int64),
                "edges": spaces.Box(-1, most_stages, (most_edges, 2), np.int64),
                "jobs": spaces.Box(-np.inf, np.inf, (most_stages, 3), np.float32),
                "context": spaces.Box(0, np.inf, (3,), np.float32),
                "action_mask": spaces.MultiBinary(most_stages + 1),
                "number_mask": spaces.MultiBinary(executors),
            }
        )
        self.blank()

    def blank(self) -> Observation:
        """The observation of nothing: before the first decision, and after the last."""
        most = self.most_stages
        seen: Observation = {
            "stages": np.zeros((most, 6), np.float32),
            "job": np.full(most, -1, np.int64),
            "edges": np.full((self.most_edges, 2), -1, np.int64),
            "jobs": np.zeros((most, 3), np.float32),
            "context": np.zeros(3, np.float32),
            "action_mask": np.zeros(most + 1, np.int8),
            "number_mask": np.zeros(self.executors, np.int8),
        }
        self.masks = {name: seen[name] for name in ("action_mask", "number_mask")}
        self.kept = np.zeros(0, np.int64)
        return seen

    def encode(self, graph: StageGraph, may_idle: bool) -> Observation:
        """``graph`` as arrays; ``may_idle`` allows the action that leaves the rest idle."""
        most, seen = self.most_stages, self.blank()
        self._graph, self.kept = graph, graph.kept()
        rows = self._rows = _rows(graph, most)
        count, jobs = len(rows), min(len(graph.supply), most)
        columns = (graph.remaining, graph.seen_ms / 1000, graph.demand, graph.executing, graph.ready, graph.height)
        for column, values in enumerate(columns):
            seen["stages"][:count, column] = values[rows]
        seen["job"][:count] = graph.job[rows]
        edges = _edges(graph, rows)[: self.most_edges]
        seen["edges"][: len(edges)] = edges
        seen["jobs"][:jobs, 0] = graph.supply[:jobs]
        seen["jobs"][:jobs, 1] = (graph.now_ms - graph.arrival_ms[:jobs]) / 1000
        if 0 <= graph.source < jobs:
            seen["jobs"][graph.source, 2] = 1
        seen["context"][:] = graph.committable, len(graph.supply), graph.now_ms / 1000
        seen["action_mask"][:count] = graph.schedulable[rows]
        seen["action_mask"][most] = may_idle
        least, most_number = 0, graph.committable
        if self.action == "limit":
            kept = self.kept[graph.job[graph.schedulable]]
            least, most_number = kept.min(), kept.max() + graph.committable
        seen["number_mask"][least:most_number] = 1
        return seen

    def decode(self, row: int, number: int) -> Commit | None:
        """The decision that the action stands for.

        Raises:
            IllegalDecision: The masks forbid it.
        """
        if not (0 <= row <= self.most_stages and self.masks["action_mask"][row]):
            raise IllegalDecision(f"row {row} cannot be chosen now: see action_mask")
        if row == self.most_stages:
            return None
        if not (1 <= number <= self.executors and self.masks["number_mask"][number - 1]):
            raise IllegalDecision(f"{self.action} {number} cannot be chosen now: see number_mask")
        place = self._rows[row]
        if self.action == "limit":
            number = min(max(number - int(self.kept[self._graph.job[place]]), 1), self._graph.committable)
        return Commit(self._graph.stages[place], number)

    def action_of(self, decision: Commit | None) -> np.ndarray:
        """The action that stands for a decision. (2,) int64. O(stages)."""
        if decision is None:
            return np.array([self.most_stages, 0])
        place = self._graph.stages.index(decision.stage)
        kept = int(self.kept[self._graph.job[place]]) if self.action == "limit" else 0
        return np.array([int(np.searchsorted(self._rows, place)), kept + decision.executors - 1])


def _rows(graph: StageGraph, most: int) -> np.ndarray:
    """(n,) int64: the stages to show, in order; those that can be chosen are the last to be left out."""
    count = len(graph.stages)
    if count <= most:
        return np.arange(count)
    return np.sort(np.argsort(~graph.schedulable, kind="stable")[:most])


def _edges(graph: StageGraph, rows: np.ndarray) -> np.ndarray:
    """(m, 2) int64: the edges between ``rows``, by place there."""
    place = np.full(len(graph.stages), -1, np.int64)
    place[rows] = np.arange(len(rows))
    edges = place[graph.edges]
    shown: np.ndarray = edges[(edges >= 0).all(axis=1)]
    return shown

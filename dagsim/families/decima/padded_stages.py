"""The codec of ``dagsim/Decima-v0``, which writes the graph of all incomplete stages in arrays of
constant shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from dagsim.errors import IllegalDecision
from dagsim.families.spark.view import Action, Commit, SparkView, StageGraph

PaddedObservation: TypeAlias = dict[str, np.ndarray]


class PaddedStages:
    """The codec of ``dagsim/Decima-v0``, which encodes the current state and decodes actions.

    ``kept``, (jobs,) int64, contains the number of executors that each job keeps, without those to
    be committed now.
    """

    def __init__(self, executors: int, most_stages: int, most_edges: int, action: Action) -> None:
        self.executors, self.most_stages, self.most_edges = executors, most_stages, most_edges
        self.action: Action = action
        self._graph: StageGraph | None = None
        self._rows = np.zeros(0, np.int64)
        """Index of the stage in each row."""
        self.blank()

    def blank(self) -> PaddedObservation:
        """Return an empty observation."""
        most = self.most_stages
        observation: PaddedObservation = {
            "stages": np.zeros((most, 6), np.float32),
            "job": np.full(most, -1, np.int64),
            "edges": np.full((self.most_edges, 2), -1, np.int64),
            "jobs": np.zeros((most, 3), np.float32),
            "context": np.zeros(3, np.float32),
            "action_mask": np.zeros(most + 1, np.int8),
            "number_mask": np.zeros(self.executors, np.int8),
        }
        self.masks = {name: observation[name] for name in ("action_mask", "number_mask")}
        self.kept = np.zeros(0, np.int64)
        return observation

    def ended(self) -> PaddedObservation:
        """Return the observation after the last decision of an episode. Its masks allow a single
        action, which does nothing.
        """
        observation = self.blank()
        observation["action_mask"][-1] = observation["number_mask"][0] = 1
        return observation

    def encode(self, view: SparkView) -> PaddedObservation:
        """Encode the current state as arrays. The masks allow the agent to leave executors idle
        while a task is running or an executor is moving.
        """
        graph, most, observation = view.graph(), self.most_stages, self.blank()
        self._graph, self.kept = graph, graph.kept()
        rows = self._rows = _rows(graph, most)
        count, jobs = len(rows), min(len(graph.supply), most)
        columns = (graph.remaining, graph.seen_ms / 1000, graph.demand, graph.executing, graph.ready, graph.height)
        for column, values in enumerate(columns):
            observation["stages"][:count, column] = values[rows]
        observation["job"][:count] = graph.job[rows]
        edges = _edges(graph, rows)[: self.most_edges]
        observation["edges"][: len(edges)] = edges
        observation["jobs"][:jobs, 0] = graph.supply[:jobs]
        observation["jobs"][:jobs, 1] = (graph.now_ms - graph.arrival_ms[:jobs]) / 1000
        if 0 <= graph.source < jobs:
            observation["jobs"][graph.source, 2] = 1
        observation["context"][:] = graph.committable, len(graph.supply), graph.now_ms / 1000
        observation["action_mask"][:count] = graph.schedulable[rows]
        observation["action_mask"][most] = view.pending
        least, most_number = 0, graph.committable
        if self.action == "limit":
            kept = self.kept[graph.job[graph.schedulable]]
            least, most_number = kept.min(), kept.max() + graph.committable
        observation["number_mask"][least:most_number] = 1
        return observation

    def decode(self, view: SparkView, choice: Sequence[int]) -> tuple[Commit, ...]:
        """Decode an action: a row, and the number of executors minus 1.

        Raises:
            IllegalDecision: The masks do not allow the action.
        """
        row, number = int(choice[0]), int(choice[1]) + 1
        if not (0 <= row <= self.most_stages and self.masks["action_mask"][row]):
            raise IllegalDecision(f"row {row} cannot be chosen now (see action_mask)")
        if row == self.most_stages:
            return ()
        if not (1 <= number <= self.executors and self.masks["number_mask"][number - 1]):
            raise IllegalDecision(f"{self.action} {number} cannot be chosen now (see number_mask)")
        assert self._graph is not None
        place = self._rows[row]
        if self.action == "limit":
            number = min(max(number - int(self.kept[self._graph.job[place]]), 1), self._graph.committable)
        return (Commit(self._graph.stages[place], number),)

    def choice_of(self, decisions: Iterable[Commit]) -> np.ndarray:
        """Return the action that stands for the first decision. Shape (2,), int64. The cost is
        O(stages).
        """
        decision = next(iter(decisions), None)
        if decision is None:
            return np.array([self.most_stages, 0])
        assert self._graph is not None
        place = self._graph.stages.index(decision.stage)
        kept = int(self.kept[self._graph.job[place]]) if self.action == "limit" else 0
        return np.array([int(np.searchsorted(self._rows, place)), kept + decision.executors - 1])


def _rows(graph: StageGraph, most: int) -> np.ndarray:
    """Return the indices of the stages to show, in ascending order. Shape (n,), int64. If there are
    too many, stages that cannot be chosen are dropped first.
    """
    count = len(graph.stages)
    if count <= most:
        return np.arange(count)
    return np.sort(np.argsort(~graph.schedulable, kind="stable")[:most])


def _edges(graph: StageGraph, rows: np.ndarray) -> np.ndarray:
    """Return the edges between ``rows``, as indices into ``rows``. Shape (m, 2), int64."""
    place = np.full(len(graph.stages), -1, np.int64)
    place[rows] = np.arange(len(rows))
    edges = place[graph.edges]
    shown: np.ndarray = edges[(edges >= 0).all(axis=1)]
    return shown

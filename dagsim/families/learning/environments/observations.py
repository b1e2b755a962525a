"""The action levels and the observation presets of ``SchedulingEnv``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from math import log1p
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.codecs.codec import CandidatesConfig, Observation, RelativeConfig
from dagsim.families.learning.environments.env_settings import ActionLevel, EnvConfig
from dagsim.model import Decision, Share, Start
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.state import TaskState
from dagsim.systems.cluster.view import ClusterView

NODE_FEATURES = ("log_best", "log_rank", "gpus", "waiting", "running", "ready", "missing_parents", "job_age")


class Legal(NamedTuple):
    """The actions that are currently legal."""

    starts: int
    """Number of rows that have an action: starts for which there is a slot."""
    wait: int | None
    """The row that the last action selects, if waiting is legal."""


class Parts(NamedTuple):
    """An observation of one environment. All parts are float32 and are views of the array
    ``flat``."""

    flat: np.ndarray
    tokens: np.ndarray
    context: np.ndarray
    gpus: np.ndarray


class Presets:
    """Builds the observations for one environment. Unused rows are 0 and masked."""

    def __init__(self, config: EnvConfig, types: int) -> None:
        self.config = config
        self._types = types
        features = config.codec.features
        self._levelled = isinstance(config.codec, CandidatesConfig)
        self.tokens = len(Levelled.token_features if self._levelled else features["tokens"])
        """Number of columns of a choice."""
        self._context = len(features["context"])
        self._gpus = len(features["gpus"])
        self.space = self._space()

    def observe(self, observation: Observation | None, legal: Legal, mask: np.ndarray) -> Any:
        """Return the observation in the form that the preset requires (without the graph), and a
        copy of the mask. The observation is 0 when the episode is over."""
        parts = self.blank()
        if observation is not None:
            starts, wait = legal
            _, tokens, context, gpus = parts
            tokens[:starts] = observation.tokens[:starts]
            if wait is not None:
                tokens[-1] = observation.tokens[wait]
            context[:] = observation.context
            gpus[:] = observation.gpus
        return self.form(parts, mask)

    def blank(self) -> Parts:
        """Return an observation of zeros: one array, and its parts as views."""
        begin = self.config.slots * self.tokens
        end = begin + self._context
        flat = np.zeros(end + self._types * self._gpus, np.float32)
        tokens = flat[:begin].reshape(self.config.slots, self.tokens)
        return Parts(flat, tokens, flat[begin:end], flat[end:].reshape(self._types, self._gpus))

    def spread(self, gpus: np.ndarray) -> None:
        """If the codec describes all GPU types in a single row, repeat this row for each type.
        Shape (..., types, D).
        """
        if isinstance(self.config.codec, RelativeConfig):
            gpus[..., 1:, :] = gpus[..., :1, :]

    def form(self, parts: Parts, mask: np.ndarray) -> Any:
        """Return an observation in the form that the preset requires, with a copy of the mask."""
        match self.config.observation:
            case "flat":
                return parts.flat
            case "dict":
                return {"observations": parts.flat, "action_mask": mask.copy()}
        return {"tokens": parts.tokens, "context": parts.context, "gpus": parts.gpus, "action_mask": mask.copy()}

    def legal(self, observation: Observation | None) -> Legal:
        """Return the legal actions. When the episode is over, there are none."""
        if observation is None:
            return Legal(0, None)
        rows, slots = len(observation.tokens), self.config.slots - 1
        if observation.tokens[-1, 0] == 1.0:
            return Legal(min(rows - 1, slots), rows - 1)
        return Legal(min(rows, slots), None)

    def mask(self, legal: Legal) -> np.ndarray:
        """Return a mask that is 1 for legal actions and 0 for all others, (slots,) int8. When the
        episode is over, the mask is 1 for waiting. A loop that samples actions from the mask
        therefore still finds one before the vector environment starts the next episode.
        """
        mask = np.zeros(self.config.slots, np.int8)
        mask[: legal.starts] = 1
        mask[-1] = legal.wait is not None or not legal.starts
        return mask

    def graph(self, view: ClusterView | None) -> dict[str, np.ndarray]:
        """Return the unfinished tasks of all jobs in the system, oldest job first, and the edges
        between these tasks."""
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
        flat = box(config.slots * self.tokens + self._context + self._types * self._gpus)
        match config.observation:
            case "flat":
                return flat
            case "dict":
                return spaces.Dict({"observations": flat, "action_mask": mask})
        parts: dict[str, spaces.Space[Any]] = {
            "tokens": box(config.slots, self.tokens),
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
    """Return the ``NODE_FEATURES`` of an unfinished task."""
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


class Levelled:
    """The codec ``candidates``, restricted to the rows of one action level. If the level also
    chooses the parallelism, its rows differ in the additional column ``parallelism``."""

    token_features: tuple[str, ...] = (*Candidates.token_features, "parallelism")
    context_features = Candidates.context_features
    gpu_features = Candidates.gpu_features

    def __init__(self, config: CandidatesConfig, level: ActionLevel) -> None:
        self.codec = Candidates(config, tail=Struct("f").pack(1.0))
        self.level = level
        self._rows: Sequence[int] = ()
        """The rows of the candidates that can be chosen. Unused for ``task_type``, where all rows
        can be chosen."""
        self._parallelism: Sequence[float] = ()
        """For each row, the fraction of the startable waiting instances that it starts."""

    def fork(self, view: ClusterView) -> Levelled:
        """Return the codec for a fork of the simulation."""
        twin = copy(self)
        twin.codec = self.codec.fork(view)
        return twin

    def encode(self, view: ClusterView) -> Observation | None:
        """Encode the choices at this level. Return ``None`` if there are none."""
        observation = self.codec.encode(view)
        if observation is None or self.level == "task_type":
            return observation
        self._rows, self._parallelism = self._chosen()
        waits = len(observation.tokens) > len(self.codec.rows)
        tokens = observation.tokens[[*self._rows, -1] if waits else self._rows]
        tokens[: len(self._parallelism), -1] = self._parallelism
        return observation._replace(tokens=tokens)

    def decode(self, view: ClusterView, choice: int) -> Iterable[Decision]:
        """Return the decisions that a row represents."""
        if self.level == "task_type":
            return self.codec.decode(view, choice)
        if choice >= len(self._rows):
            return ()
        decisions, parallelism = tuple(self.codec.decode(view, self._rows[choice])), self._parallelism[choice]
        if parallelism == 1.0 or not decisions:
            return decisions
        (decision,) = decisions
        assert isinstance(decision, Start)
        instances = max(int(sum(share.instances for share in decision.placement) * parallelism), 1)
        return (Start(decision.task, (Share(decision.placement[0].node, instances),)),)

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """Return the row that stands for the first decision, or ``None`` if there is no such row at
        this level."""
        row = self.codec.choice_of(decisions)
        if row is None or self.level == "task_type":
            return row
        if row == len(self.codec.rows):
            return len(self._rows)
        choices = zip(self._rows, self._parallelism, strict=True)
        return next((place for place, row_and_share in enumerate(choices) if row_and_share == (row, 1.0)), None)

    def _chosen(self) -> tuple[Sequence[int], Sequence[float]]:
        rows = self.codec.rows
        if self.level == "task_type_par":
            some = [(0.0, 0.5, 1.0) if task.waiting > 2 and not task.demand.gang else (1.0,) for task, _ in rows]
            chosen_rows = [row for row, parts in enumerate(some) for _ in parts]
            return chosen_rows, [part for parts in some for part in parts]
        best: dict[object, tuple[float, float, int]] = {}
        for row, (task, type_) in enumerate(rows):
            of = task.job if self.level == "job" else task
            key = (-task.rank_s if self.level == "job" else 0.0, task.seconds[type_], row)
            if of not in best or key < best[of]:
                best[of] = key
        chosen_rows = sorted([row for _, _, row in best.values()])
        return chosen_rows, [1.0] * len(chosen_rows)

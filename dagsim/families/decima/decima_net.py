"""Decima's network for the system ``spark`` (Mao et al. 2019, section 5): batches of graphs,
embeddings, and two scoring heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from dagsim.errors import ConfigError
from dagsim.families.learning.nets.actor import ActorNet, entropy, log_softmax, sample, segment_mean, segment_sum
from dagsim.families.learning.nets.row_nets import indifferent
from dagsim.families.spark.codecs import CONTEXT, JOB, OPTION, STAGE, StageObservation, option_rows
from dagsim.families.spark.view import Action

_ADDED = np.array([name in ("added", "log added", "all that can go") for name in OPTION])
"""Columns of an option that are about the stage, not its job."""


class Level(NamedTuple):
    """The stages of one height, which are the rows from ``begin`` to ``end`` - 1, and the E edges
    to their children."""

    begin: int
    end: int
    parents: Tensor  # shape (E,), int64, relative to ``begin``
    children: Tensor  # shape (E,), int64


class Graphs(NamedTuple):
    """``B`` observations in a single graph, with N stages in ascending order of height, J jobs and
    S choices in total.
    """

    stages: Tensor  # shape (N, F)
    jobs: Tensor  # shape (J, G)
    context: Tensor  # shape (B, C)
    job: Tensor  # shape (N,), int64: the job of each stage
    of_job: Tensor  # shape (J,), int64: the observation of each job
    levels: tuple[Level, ...]
    """One level per height, from 1 on."""
    choices: Tensor  # shape (S,), int64: stages that can be chosen
    segment: Tensor  # shape (S,), int64: the observation of each choice
    first: Tensor  # shape (B,), int64: the first choice of each observation

    @property
    def size(self) -> int:
        """The number of observations in the batch."""
        return len(self.context)


class Options(NamedTuple):
    """The numbers of executors that are possible for the chosen stages, with one chosen stage per
    observation and K numbers in total."""

    rows: Tensor  # shape (K, len(OPTION))
    segment: Tensor  # shape (K,), int64
    first: Tensor  # shape (B,), int64


def collate(observations: Sequence[StageObservation]) -> Graphs:
    """Combine all observations into one batch. The cost is proportional to the size of all
    observations together."""
    counts = np.array(
        [(len(observation.stages), len(observation.jobs), len(observation.choices)) for observation in observations]
    )
    begins = np.cumsum(counts, axis=0) - counts
    stage_at, job_at = begins[:, 0].tolist(), begins[:, 1].tolist()
    numbers = np.arange(len(observations))
    height = _joined([observation.height for observation in observations])
    job = _joined([observation.job for observation in observations], job_at)
    edges, level = (
        _joined([observation.edges for observation in observations], stage_at),
        _joined([observation.level for observation in observations]),
    )
    if len(observations) > 1:
        by_level = np.argsort(level, kind="stable")
        edges, level = edges[by_level], level[by_level]
    order = np.argsort(height, kind="stable")
    row = np.empty_like(order)
    row[order] = np.arange(len(order))
    return Graphs(
        stages=torch.from_numpy(_joined([observation.stages for observation in observations])[order]),
        jobs=torch.from_numpy(_joined([observation.jobs for observation in observations])),
        context=torch.from_numpy(np.stack([observation.context for observation in observations])),
        job=torch.from_numpy(job[order]),
        of_job=torch.from_numpy(np.repeat(numbers, counts[:, 1])),
        levels=_levels(height[order], row[edges], level),
        choices=torch.from_numpy(row[_joined([observation.choices for observation in observations], stage_at)]),
        segment=torch.from_numpy(np.repeat(numbers, counts[:, 2])),
        first=torch.from_numpy(begins[:, 2].copy()),
    )


def options(observations: Sequence[StageObservation], chosen: np.ndarray) -> Options:
    """Return every number of executors that is possible for the stages ``chosen`` (B,). These are
    indices among the choices. With ``action="limit"``, the column of added executors is 0. The
    network then sees only the effect of a limit on the job.
    """
    picked = list(zip(observations, chosen.tolist(), strict=True))
    most = np.array([observation.most[at] for observation, at in picked])
    segment = np.repeat(np.arange(len(most)), most)
    first = np.cumsum(most) - most
    rows = option_rows(
        np.arange(len(segment)) - first[segment] + 1,
        most[segment],
        np.array([observation.has[at] for observation, at in picked])[segment],
        np.stack([observation.shares[at] for observation, at in picked])[segment],
        np.array([observation.work_s[at] for observation, at in picked])[segment],
        np.array([observation.executors for observation in observations])[segment],
    )
    if observations[0].action == "limit":
        rows[:, _ADDED] = 0.0
    return Options(torch.from_numpy(rows), torch.from_numpy(segment), torch.from_numpy(first))


class StageBatch(NamedTuple):
    """Observations, and the graph that contains all of them."""

    observations: Sequence[StageObservation]
    graphs: Graphs

    @classmethod
    def of(cls, observations: Sequence[StageObservation]) -> StageBatch:
        """Combine all observations into one batch."""
        return cls(observations, collate(observations))

    @property
    def size(self) -> int:
        """The number of observations in the batch."""
        return len(self.observations)


class StageStore:
    """Stored observations, from which batches can be taken."""

    def __init__(self, observations: Sequence[StageObservation]) -> None:
        self._observations = observations
        self.is_free = np.array([bool(observation.most.sum() > 1) for observation in observations], bool)

    def __len__(self) -> int:
        return len(self._observations)

    def batch(self, picked: np.ndarray) -> StageBatch:
        """Return a batch with the observations at the indices ``picked`` (B,)."""
        return StageBatch.of([self._observations[at] for at in picked])


def _joined(parts: list[np.ndarray], offsets: Sequence[int] | None = None) -> np.ndarray:
    """Add to each part its offset, and concatenate the parts. The result is read-only."""
    if len(parts) == 1:
        return parts[0]
    if offsets is not None:
        parts = [part + offset for part, offset in zip(parts, offsets, strict=True)]
    return np.concatenate(parts)


def _levels(height: np.ndarray, edges: np.ndarray, level: np.ndarray) -> tuple[Level, ...]:
    """Group the stages and the edges by height. Both are sorted by height, and a stage with a
    height of 1 or more always has a child.
    """
    if not len(level):
        return ()
    heights = np.arange(1, level[-1] + 2)
    rows, ends = np.searchsorted(height, heights).tolist(), np.searchsorted(level, heights).tolist()
    parents, children = edges.T
    return tuple(
        Level(begin, end, torch.from_numpy(parents[low:high] - begin), torch.from_numpy(children[low:high]))
        for (begin, end), (low, high) in zip(pairwise(rows), pairwise(ends), strict=True)
        if begin < end
    )


class DecimaNet(ActorNet):
    """Embeds every stage with its descendants, every job, and the whole system. From these
    embeddings, it computes scores for the stages, and for the numbers of executors at one of them.
    All initial scores are 0, so an untrained network has no preference.

    With ``action="limit"``, it computes scores for limits on the executors of a job. They are the
    same for every stage of the job.
    """

    def __init__(self, hidden: int = 16, head: int = 32, action: Action = "executors") -> None:
        super().__init__()
        self.hidden, self.head, self.action = hidden, head, action
        self.stage = nn.Linear(len(STAGE), hidden)
        self.message = nn.Linear(hidden, hidden, bias=False)
        self.of_stages = nn.Linear(hidden, hidden)
        self.summary = nn.Linear(hidden + len(JOB), hidden)
        self.whole = nn.Linear(hidden + len(CONTEXT), hidden)
        inputs = len(STAGE) + len(JOB) + 3 * hidden + len(CONTEXT)
        self.which = nn.Sequential(nn.Linear(inputs, head), nn.LeakyReLU(0.2), nn.Linear(head, head), nn.LeakyReLU(0.2))
        self.which_score = indifferent(head)
        self.many = nn.Linear(inputs, head)
        self.option = nn.Linear(len(OPTION), head, bias=False)
        self.many_score = nn.Sequential(nn.LeakyReLU(0.2), nn.Linear(head, head), nn.LeakyReLU(0.2), indifferent(head))

    @property
    def _of_stage(self) -> int:
        """The number of columns, at the beginning of an embedding, that describe the stage."""
        return len(STAGE) + self.hidden

    def embed(self, graphs: Graphs) -> Tensor:
        """Return the embedding of each choice, which combines the stage, its job, and the whole
        system. Shape (S, H).
        """
        own = self.stage(graphs.stages)  # shape (N, h)
        below = leaky_relu(own, 0.2)
        for begin, end, parents, children in graphs.levels:
            sent = segment_sum(below[children], parents, end - begin)
            below[begin:end] = leaky_relu(torch.addmm(own[begin:end], sent, self.message.weight.T), 0.2)
        total = segment_sum(leaky_relu(self.of_stages(below), 0.2), graphs.job, len(graphs.jobs)) / 8
        summary = leaky_relu(self.summary(torch.cat([total, graphs.jobs], 1)), 0.2)  # shape (J, h)
        all_jobs = segment_sum(summary, graphs.of_job, graphs.size) / 8
        whole = leaky_relu(self.whole(torch.cat([all_jobs, graphs.context], 1)), 0.2)  # shape (B, h)
        stage, segment = graphs.choices, graphs.segment
        job = graphs.job[stage]
        return torch.cat(
            [
                graphs.stages[stage],
                below[stage],
                graphs.jobs[job],
                summary[job],
                whole[segment],
                graphs.context[segment],
            ],
            1,
        )

    def stage_scores(self, embedded: Tensor) -> Tensor:
        """Return the scores of the choices. Shape (S,)."""
        return self.which_score(self.which(embedded))[:, 0]  # type: ignore[no-any-return]

    def number_scores(self, chosen: Tensor, numbers: Options) -> Tensor:
        """Return the score of each possible number of executors. Shape (K,). ``chosen`` (B, H) are
        the embeddings of the chosen stages.
        """
        if self.action == "limit":
            chosen = torch.cat([torch.zeros_like(chosen[:, : self._of_stage]), chosen[:, self._of_stage :]], 1)
        mixed = self.many(chosen)[numbers.segment] + self.option(numbers.rows)
        return self.many_score(mixed)[:, 0]  # type: ignore[no-any-return]

    def store(self, observations: Sequence[StageObservation]) -> StageStore:
        return StageStore(observations)

    def stack(self, observations: Sequence[StageObservation]) -> StageBatch:
        return StageBatch.of(observations)

    def act(
        self, batch: StageBatch, rng: np.random.Generator | None, explore: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        if explore is not None:
            raise ConfigError(
                "net 'decima' has no action values, so train it with ppo or reinforce, which sample actions"
            )
        observations, graphs = batch
        with torch.inference_mode():
            embedded = self.embed(graphs)
            first = graphs.first.numpy()
            stage_log_p = _log_softmax(self.stage_scores(embedded).numpy(), first)
            stages = sample(stage_log_p, first, rng)
            numbers = options(observations, stages)
            at = numbers.first.numpy()
            chosen = embedded[torch.from_numpy(first + stages)]
            count_log_p = _log_softmax(self.number_scores(chosen, numbers).numpy(), at)
            counts = sample(count_log_p, at, rng)
        return np.stack([stages, counts + 1], axis=1), stage_log_p[first + stages] + count_log_p[at + counts]

    def evaluate(self, batch: StageBatch, choices: np.ndarray) -> tuple[Tensor, Tensor]:
        stage_log_p, count_log_p, rows, numbers = self._log_p(batch, choices)
        graphs, added = batch.graphs, choices[:, 1]
        log_p = stage_log_p[rows] + count_log_p[numbers.first + torch.from_numpy(added - 1)]
        return log_p, entropy(stage_log_p, graphs.segment, batch.size) + entropy(
            count_log_p, numbers.segment, batch.size
        )

    def cross_entropy(self, batch: StageBatch, choices: np.ndarray, smoothing: float = 0.0) -> Tensor:
        stage_log_p, count_log_p, rows, numbers = self._log_p(batch, choices)
        own = stage_log_p[rows] + count_log_p[numbers.first + torch.from_numpy(choices[:, 1] - 1)]
        if not smoothing:
            return -own
        stages = segment_mean(stage_log_p, batch.graphs.segment, batch.size)
        return -((1 - smoothing) * own + smoothing * (stages + segment_mean(count_log_p, numbers.segment, batch.size)))

    def _log_p(self, batch: StageBatch, choices: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Options]:
        """Return the log-probabilities of all stages (S,), the log-probabilities of
        the numbers of executors for the chosen stages (K,), and the rows of the chosen stages (B,).
        The fourth value describes the possible numbers of executors.
        """
        observations, graphs = batch
        stages = choices[:, 0]
        embedded = self.embed(graphs)
        stage_log_p = log_softmax(self.stage_scores(embedded), graphs.segment, batch.size)
        rows = graphs.first + torch.from_numpy(stages)
        numbers = options(observations, stages)
        count_log_p = log_softmax(self.number_scores(embedded[rows], numbers), numbers.segment, batch.size)
        return stage_log_p, count_log_p, rows, numbers


def _log_softmax(scores: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the log-probability of each row within its observation. Shape (N,). The observations
    begin at ``first`` (B,).
    """
    lengths = np.diff(np.append(first, len(scores)))
    above = scores - np.repeat(np.maximum.reduceat(scores, first), lengths)
    log_p: np.ndarray = above - np.repeat(np.log(np.add.reduceat(np.exp(above), first)), lengths)
    return log_p

"""Decima's network in plain torch (Mao et al. 2019, section 5): messages up the DAG, summaries, two scoring heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from dagsim.agents.nets.actor import ActorNet
from dagsim.agents.nets.layers import indifferent
from dagsim.agents.nets.stages import Graphs, Options, StageBatch, StageStore, options
from dagsim.agents.ragged import entropy, log_softmax, sample, segment_mean, segment_sum
from dagsim.errors import ConfigError
from dagsim.systems.spark.codecs import CONTEXT, JOB, OPTION, STAGE, StageObservation
from dagsim.systems.spark.view import Action

__all__ = ["DecimaNet"]


class DecimaNet(ActorNet):
    """Embeds every stage with what lies below it, every job, and the whole; then scores stages, and numbers of
    executors for one of them. It starts indifferent: all scores are 0.

    With ``action="limit"`` it scores limits on the executors of the stage's job, blind to which of its stages it is.
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
        """The number of first columns of an embedding that are about the stage."""
        return len(STAGE) + self.hidden

    def embed(self, graphs: Graphs) -> Tensor:
        """(S, H) all that is known about each choice: its stage, job, and the whole."""
        own = self.stage(graphs.stages)  # (N, h)
        below = leaky_relu(own, 0.2)
        for begin, end, parents, children in graphs.levels:
            sent = segment_sum(below[children], parents, end - begin)
            below[begin:end] = leaky_relu(torch.addmm(own[begin:end], sent, self.message.weight.T), 0.2)
        total = segment_sum(leaky_relu(self.of_stages(below), 0.2), graphs.job, len(graphs.jobs)) / 8
        summary = leaky_relu(self.summary(torch.cat([total, graphs.jobs], 1)), 0.2)  # (J, h)
        all_jobs = segment_sum(summary, graphs.of_job, graphs.size) / 8
        whole = leaky_relu(self.whole(torch.cat([all_jobs, graphs.context], 1)), 0.2)  # (B, h)
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
        """(S,) scores of the choices."""
        return self.which_score(self.which(embedded))[:, 0]  # type: ignore[no-any-return]

    def number_scores(self, chosen: Tensor, numbers: Options) -> Tensor:
        """(K,) scores of numbers of executors; ``chosen`` (B, H) are the embeddings of the stages they are for."""
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
            raise ConfigError("the net 'decima' learns no values: its choices are drawn, not explored")
        observations, graphs = batch
        with torch.inference_mode():
            embedded = self.embed(graphs)
            first = graphs.first.numpy()
            which = _log_softmax(self.stage_scores(embedded).numpy(), first)
            stages = sample(which, first, rng)
            numbers = options(observations, stages)
            at = numbers.first.numpy()
            chosen = embedded[torch.from_numpy(first + stages)]
            many = _log_softmax(self.number_scores(chosen, numbers).numpy(), at)
            counts = sample(many, at, rng)
        return np.stack([stages, counts + 1], axis=1), which[first + stages] + many[at + counts]

    def evaluate(self, batch: StageBatch, choices: np.ndarray) -> tuple[Tensor, Tensor]:
        which, many, rows, numbers = self._log_p(batch, choices)
        graphs, added = batch.graphs, choices[:, 1]
        log_p = which[rows] + many[numbers.first + torch.from_numpy(added - 1)]
        return log_p, entropy(which, graphs.segment, batch.size) + entropy(many, numbers.segment, batch.size)

    def cross_entropy(self, batch: StageBatch, choices: np.ndarray, smoothing: float = 0.0) -> Tensor:
        which, many, rows, numbers = self._log_p(batch, choices)
        own = which[rows] + many[numbers.first + torch.from_numpy(choices[:, 1] - 1)]
        if not smoothing:
            return -own
        stages = segment_mean(which, batch.graphs.segment, batch.size)
        return -((1 - smoothing) * own + smoothing * (stages + segment_mean(many, numbers.segment, batch.size)))

    def _log_p(self, batch: StageBatch, choices: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Options]:
        """Log-probabilities of all stages (S,) and of the numbers for the chosen ones (K,). Also the rows that those
        belong to (B,), and the numbers."""
        observations, graphs = batch
        stages = choices[:, 0]
        embedded = self.embed(graphs)
        which = log_softmax(self.stage_scores(embedded), graphs.segment, batch.size)
        rows = graphs.first + torch.from_numpy(stages)
        numbers = options(observations, stages)
        many = log_softmax(self.number_scores(embedded[rows], numbers), numbers.segment, batch.size)
        return which, many, rows, numbers


def _log_softmax(scores: np.ndarray, first: np.ndarray) -> np.ndarray:
    """(N,) log-probabilities of the rows within their own observation, which begin at ``first`` (B,)."""
    lengths = np.diff(np.append(first, len(scores)))
    above = scores - np.repeat(np.maximum.reduceat(scores, first), lengths)
    log_p: np.ndarray = above - np.repeat(np.log(np.add.reduceat(np.exp(above), first)), lengths)
    return log_p

"""Episodes of a Spark cluster played side by side: at every beat the network decides for all that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from dagsim.agents.decima_features import Seen, observe
from dagsim.agents.decima_fluid import TaskSeconds
from dagsim.agents.decima_net import DecimaNet, collate, options
from dagsim.agents.ragged import sample
from dagsim.systems.spark import Action, Commit, JobTime, SparkKernel, SparkPolicy, SparkView

__all__ = ["DecimaPolicy", "Steps", "choose", "play", "watch"]


@dataclass(slots=True)
class Steps:
    """What one episode leaves to learn from: T decisions."""

    seen: list[Seen] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)  # (T,) place among the choices
    numbers: list[int] = field(default_factory=list)  # (T,) executors, 1 to most
    log_p: list[float] = field(default_factory=list)  # (T,) of both together
    rewards: list[float] = field(default_factory=list)  # (T,) minus job-seconds until the next decision
    times_s: list[float] = field(default_factory=list)  # (T + 1,) of the decisions, and of the end
    left_s: list[list[float]] = field(default_factory=list)  # (T,) of (J,) executor-seconds, as the profiles know
    arrivals: list[tuple[float, float]] = field(default_factory=list)
    """Of all jobs, in hindsight: when (s), and executor-seconds."""
    mean_jct_s: float = 0.0

    @property
    def choices(self) -> list[int]:
        """As many as there are decisions."""
        return self.stages


def choose(
    net: DecimaNet, seen: Sequence[Seen], rng: np.random.Generator | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per observation a choice of stage (B,), its number of executors (B,) and their log-probability (B,): drawn, or
    without ``rng`` the likeliest."""
    with torch.inference_mode():
        graphs = collate(seen)
        embedded = net.embed(graphs)
        first = graphs.first.numpy()
        which = _log_softmax(net.stage_scores(embedded).numpy(), first)
        stages = sample(which, first, rng)
        numbers = options(seen, stages)
        at = numbers.first.numpy()
        chosen = embedded[torch.from_numpy(first + stages)]
        many = _log_softmax(net.number_scores(chosen, numbers).numpy(), at)
        counts = sample(many, at, rng)
    return stages, counts + 1, which[first + stages] + many[at + counts]


def _log_softmax(scores: np.ndarray, first: np.ndarray) -> np.ndarray:
    """(N,) log-probabilities of the rows within their own observation, which begin at ``first`` (B,)."""
    lengths = np.diff(np.append(first, len(scores)))
    above = scores - np.repeat(np.maximum.reduceat(scores, first), lengths)
    log_p: np.ndarray = above - np.repeat(np.log(np.add.reduceat(np.exp(above), first)), lengths)
    return log_p


class DecimaPolicy:
    """The network as a policy of the Spark simulation: the likeliest decision, or with ``sampled`` one drawn from the
    simulation's stream ``"decima"``."""

    def __init__(self, net: DecimaNet, *, sampled: bool = False) -> None:
        self.net = net.eval()
        self.sampled = sampled

    def decide(self, view: SparkView) -> tuple[Commit, ...]:
        graph = view.graph()
        seen = observe(graph, self.net.action)
        rng = view.stream("decima") if self.sampled else None
        stages, numbers, _ = choose(self.net, [seen], rng)
        return (Commit(graph.stages[seen.choices[stages[0]]], int(numbers[0])),)


class _Table:
    """One episode under way."""

    def __init__(self, simulation: SparkKernel, until_ms: float, action: Action) -> None:
        self.action = action
        self.simulation = simulation
        self.steps = Steps()
        self._cost = JobTime(simulation.episode)
        self._task_s = TaskSeconds(len(simulation.cluster.executors))
        self._conversation = simulation.decisions(until_ms / 1000)
        self.view: SparkView | None = next(self._conversation, None)
        if self.view is not None:
            self._look()

    def _look(self) -> None:
        assert self.view is not None
        now_s = self.view.now_ms / 1000
        self._account(now_s)
        self.graph = self.view.graph()
        self.seen = observe(self.graph, self.action)

    def _account(self, now_s: float) -> None:
        cost = self._cost.until(now_s)
        self.steps.times_s.append(now_s)
        if len(self.steps.times_s) > 1:
            self.steps.rewards.append(-cost)

    def answer(self, stage: int, number: int, log_p: float) -> None:
        """Carry out a decision; afterwards ``view`` is ``None`` if it was the last."""
        steps = self.steps
        steps.seen.append(self.seen)
        steps.stages.append(stage)
        steps.numbers.append(number)
        steps.log_p.append(log_p)
        steps.left_s.append([self._task_s.left(job) for job in self.simulation.cluster.jobs])
        try:
            self.view = self._conversation.send((Commit(self.graph.stages[self.seen.choices[stage]], number),))
            self._look()
        except StopIteration:
            self.view = None
            self._account(self.simulation.episode.ended_ms / 1000)
            jobs = self.simulation.episode.jobs
            steps.arrivals = [(job.arrival_ms / 1000, self._task_s.whole(job)) for job in jobs]
            steps.mean_jct_s = self.simulation.episode.mean_jct_s


def play(
    net: DecimaNet,
    simulations: Sequence[SparkKernel],
    rng: np.random.Generator | None,
    until_ms: Sequence[float] | None = None,
) -> list[Steps]:
    """All of them to their ends (or times), in the given order."""
    ends_ms = [np.inf] * len(simulations) if until_ms is None else until_ms
    tables = [_Table(each, end_ms, net.action) for each, end_ms in zip(simulations, ends_ms, strict=True)]
    while waiting := [table for table in tables if table.view is not None]:
        chosen = choose(net, [table.seen for table in waiting], rng)
        for table, stage, number, log_p in zip(waiting, *(each.tolist() for each in chosen), strict=True):
            table.answer(stage, number, log_p)
    return [table.steps for table in tables]


def watch(policy: SparkPolicy, simulation: SparkKernel, action: Action = "executors") -> Steps:
    """What a heuristic decides, as an example to imitate."""
    table = _Table(simulation, np.inf, action)
    decide: Callable[[SparkView], Iterable[Commit]] = policy.decide
    while table.view is not None:
        (decision,) = decide(table.view)
        place = table.graph.stages.index(decision.stage)
        stage = int(np.searchsorted(table.seen.choices, place))
        table.answer(stage, int(min(decision.executors, table.seen.most[stage])), 0.0)
    return table.steps

"""A policy that plays its choices to their ends, under arrivals drawn from the recent past, before it makes one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

import numpy as np

from dagsim.agents.checkpoint import Checkpoint
from dagsim.agents.nets.config import ScorerConfig
from dagsim.errors import ConfigError
from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterView, JobState, TaskState
from dagsim.systems.cluster.codecs.codec import RelativeConfig
from dagsim.systems.cluster.lane.episodes import compiled_codec
from dagsim.systems.cluster.lane.outlook import JobColumns, Outlook, Player, Trial
from dagsim.systems.cluster.lane.playout import AS_PROPOSED, WAIT, ScorerNet
from dagsim.systems.cluster.lane.proposals import BY_TASK, BY_WORK, SRPT
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.look_ahead import EftWait
from dagsim.systems.cluster.policies.placement import placing

__all__ = ["Search"]

_PORTFOLIO = (
    *[Player(theta, BY_WORK) for theta in (0.75, 0.6, 0.85, 1.0)],
    Player(0.85, BY_TASK),
    Player(1.0, BY_TASK),
    Player(0.0, SRPT),
)
_PAST = 64
"""Number of earlier jobs from which arrivals are drawn."""


class Search:
    def __init__(
        self,
        base: str = "eft-wait",
        futures: int = 4,
        ahead: int = 16,
        depth: int = 8,
        agent: str = "results/agents/general.pt",
        margin: float = 0.0,
        budget: int = 1_000_000,
        deviate: bool = True,
        z: float = 1.0,
        players: object = None,
        agent_plays: bool = True,
    ) -> None:
        self.z, self.agent_plays = z, agent_plays
        self.futures, self.ahead, self.depth, self.margin = futures, ahead, depth, margin
        self.deviate = deviate
        self.budget = budget
        reference = POLICIES.create(base)
        if type(reference) is not EftWait or reference.order == "path":
            raise ConfigError(f"search: base must be eft-wait with order=work or order=task, got {base!r}")
        own = Player(reference.theta, BY_WORK if reference.order == "work" else BY_TASK)
        self._players = list(dict.fromkeys([own, *(_PORTFOLIO if players is None else players)]))
        self._placement = placing("best-fit")
        self._net, codec = None, RelativeConfig()
        if agent:
            loaded = Checkpoint.load(Path(agent), "cluster")
            assert isinstance(loaded.net, ScorerConfig) and isinstance(loaded.codec, RelativeConfig)
            codec = loaded.codec
            self._net = _compiled(loaded)
        self._codec = compiled_codec(codec)
        self.stats = {"looks": 0, "choices": 0, "deviations": 0, "plays": 0, "failed": 0}

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        memory = view.index(self, lambda: _Memory(self, view))
        if not view.machines or not any(view.fits(task) for task in view.ready):
            return
        yield from memory.decide(view)


class _Memory:
    """What a search remembers of one simulation."""

    def __init__(self, search: Search, view: ClusterView) -> None:
        self.search = search
        self.columns: dict[int, JobColumns] = {}
        self.past: deque[JobColumns] = deque(maxlen=_PAST)
        self.outlook = Outlook(search._codec, search._net)
        self.incumbent = search._players[0]
        self.seen = -1

    def push(self, task: TaskState) -> None:
        """Remember the job of a ready task."""
        self._learn(task.job)

    def _learn(self, job: JobState) -> None:
        if job.number not in self.columns:
            columns = self.columns[job.number] = JobColumns.of(job)
            self.past.append(columns)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        search, outlook = self.search, self.outlook
        for job in view.jobs.values():
            self._learn(job)
        search.stats["looks"] += 1
        samples, arrivals = self._futures(view)
        if not outlook.look(view, self.columns, samples, arrivals):
            search.stats["failed"] += 1
            return
        going = True
        while going:
            choice = self._best(view)
            if choice == WAIT:
                return
            job, index, type_ = outlook.start_of(choice)
            task = next((t for t in view.ready if t.job is job and t.index == index), None)
            assert task is not None
            while task.waiting and (placement := search._placement.place(view, task, type_)) is not None:
                yield Start(task, placement)
                if task.demand.gang or not view.machines.fits_on(task.demand, type_):
                    break
            going = bool(view.ready) and any(view.fits(t) for t in view.ready) and outlook.choose(choice)

    def _best(self, view: ClusterView) -> int:
        search, outlook = self.search, self.outlook
        search.stats["choices"] += 1
        proposals, agents = outlook.proposals(search._players)
        arrived = max(self.columns)
        if arrived != self.seen:
            self.seen = arrived
            trials = [Trial(AS_PROPOSED, player) for player in search._players]
            if search._net is not None and search.depth:
                trials.append(Trial(AS_PROPOSED, self.incumbent._replace(depth=search.depth)))
            costs = outlook.costs(trials)
            own = search._players.index(self.incumbent)
            self.incumbent = search._players[self._better(costs[: len(search._players)], own)]
        own = proposals[search._players.index(self.incumbent)]
        others = [choice for choice in dict.fromkeys([*proposals, agents, WAIT]) if choice not in (own, -1)]
        if not view.running:
            others = [choice for choice in others if choice != WAIT]
        if not search.deviate or not others:
            return own
        trials = [Trial(choice, self.incumbent) for choice in (own, *others)]
        best = self._better(outlook.costs(trials), 0)
        search.stats["plays"] = outlook.plays
        search.stats["deviations"] += best > 0
        return others[best - 1] if best else own

    def _better(self, costs: np.ndarray, own: int) -> int:
        """The row with the least costs, if they are certainly less than those of ``own``."""
        best = int(costs.mean(axis=1).argmin())
        saved = costs[own] - costs[best]
        error = float(saved.std(ddof=1)) / len(saved) ** 0.5 if len(saved) > 1 else 0.0
        return best if float(saved.mean()) > self.search.z * error + 1e-9 * abs(float(costs[own].mean())) else own

    def _remaining(self, view: ClusterView, cost: float) -> float:
        return cost - view.now * (len(view.jobs) + self.search.ahead)

    def _futures(self, view: ClusterView) -> tuple[list[JobColumns], list[np.ndarray]]:
        """Jobs that may arrive, and when they do in each future."""
        search, past = self.search, list(self.past)
        rng = view.stream("search")
        if len(past) < 2 or not search.ahead:
            return [], [np.zeros(0)] * (1 if not search.ahead else search.futures)
        samples = [past[number] for number in rng.permutation(len(past))[: 2 * search.ahead]]
        gaps = np.diff([job.arrival_s for job in past])
        arrivals = []
        for _ in range(search.futures):
            count = min(search.ahead, len(samples))
            at_s = np.full(len(samples), inf)
            which = np.sort(rng.permutation(len(samples))[:count])
            at_s[which] = view.now + np.cumsum(rng.choice(gaps, count))
            arrivals.append(at_s)
        return samples, arrivals


def _compiled(agent: Checkpoint) -> ScorerNet:
    """The net of an agent for compiled code."""
    weights = {name: value.numpy() for name, value in agent.weights.items()}
    low, high = agent.bounds.parts["tokens"] if agent.bounds else (np.full(30, -inf), np.full(30, inf))
    context = agent.bounds.parts["context"] if agent.bounds else (np.full(12, -inf), np.full(12, inf))
    hidden, features = weights["embed.0.weight"].shape

    def plain(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array, np.float32)

    return ScorerNet(
        plain(low), plain(high), plain(context[0]), plain(context[1]),
        plain(weights["embed.0.weight"].T), plain(weights["embed.0.bias"]),
        plain(weights["around.weight"].T), plain(weights["around.bias"]),
        plain(weights["own.weight"].T), plain(weights["score.1.weight"].T), plain(weights["score.1.bias"]),
        plain(weights["score.3.weight"][0]),
        np.zeros((1024, features), np.float32), np.zeros(len(context[0]), np.float32), np.zeros((1, 8), np.float32),
        np.zeros((1024, hidden), np.float32), np.zeros(hidden, np.float32), np.zeros(hidden, np.float32), np.zeros(hidden, np.float32),
    )

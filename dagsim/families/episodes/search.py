"""A policy that simulates the consequences of each choice before it decides. Future arrivals are
drawn from recent arrivals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.episodes.lookout import ArrivedJob, FirstChoice, Follower, Lookout
from dagsim.families.episodes.playout import AS_PROPOSED, WAIT, ScorerNet
from dagsim.families.episodes.proposals import BY_TASK, BY_WORK, SRPT
from dagsim.families.episodes.side_by_side import compiled_codec
from dagsim.families.learning.agents import shipped_agent
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.codecs.codec import RelativeConfig
from dagsim.families.learning.codecs.relative import proposal_of
from dagsim.families.learning.nets.net_settings import ScorerConfig
from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterPolicy, ClusterView, JobState, TaskState
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.look_ahead import EftWait
from dagsim.systems.cluster.policies.placement import placing
from dagsim.systems.cluster.scenario import GpuCluster

_PORTFOLIO = (
    *[(f"eft-wait[theta={theta},order=work]", Follower(theta, BY_WORK)) for theta in (0.75, 0.6, 0.85, 1.0)],
    *[(f"eft-wait[theta={theta},order=task]", Follower(theta, BY_TASK)) for theta in (0.85, 1.0)],
    ("srpt-work", Follower(0.0, SRPT)),
)
_PAST = 64
"""Number of earlier jobs from which arrivals are drawn."""
_MOST = 1000
"""Maximum number of ready tasks for which decisions are tried, because the time of a trial grows
with their number."""
_ROWS = 4096
"""Maximum number of choices that the network can read."""


class Search:
    """Follows the best of several policies, and deviates from it where another decision is better.

    The search compares the policy ``base``, six others (``eft-wait`` with several thresholds and
    orders, and ``srpt-work``) and a trained agent. ``agent`` is a checkpoint file, or ``ppo`` for
    the agent that ships with dagsim.

    When their next decisions differ, all of these decisions are tried: the current state is forked
    in the compiled engine, the decision is carried out, and ``base``, or the policy that was best
    at the last arrival, continues. The search simulates ``futures`` possible futures for each
    decision. It carries out the decision with the smallest sum of completion times if this decision
    is better than the followed policy's by more than ``z`` standard errors. At each arrival, whole
    policies are compared in the same way, and the best one is followed from then on. The agent
    makes ``depth`` decisions before ``base`` takes over.

    Nothing arrives in the first simulated future. In each of the others, ``ahead`` copies of recent
    jobs arrive, with gaps that are taken from recent arrivals. All choices are tried in the same
    futures. Apart from these arrivals, the simulated futures contain nothing unknown: tasks and
    runs take as long as their estimates, and nothing fails. Networks and set-up times are also
    ignored.

    ``budget`` is the number of decisions that may be simulated for each decision. Simulations that
    a decision does not need are saved for later decisions. If the budget does not suffice for all
    futures, only the first one is simulated, because a mean over two or three futures is too noisy.
    If the budget does not even suffice for the first future, or if there are more than 1,000 ready
    tasks, the followed policy decides alone.

    The policy uses estimates, and is not preemptive. Roll-outs: Bertsekas, Tsitsiklis and Wu 1997;
    choosing among policies: Deng et al., SC 2013.

    Raises:
        ConfigError: A parameter is out of range, ``base`` is not an ``eft-wait`` with the order
            ``work`` or ``task``, or the agent's codec and network are not ``relative`` and
            ``scorer``.
        RunFolderError: The agent's file is missing or damaged.
    """

    forgets = "which policy it followed, and the jobs that had arrived"

    def __init__(
        self,
        base: str = "eft-wait",
        budget: int = 500,
        futures: int = 12,
        ahead: int = 8,
        agent: str = "ppo",
        depth: int = 3,
        z: float = 1.0,
    ) -> None:
        limits = (("budget", budget, 1), ("futures", futures, 2), ("ahead", ahead, 0), ("depth", depth, 0), ("z", z, 0))
        for name, value, least in limits:
            if value < least:
                raise ConfigError(f"search: {name} must be {least} or more, got {value!r}")
        self.budget, self.futures, self.ahead, self.depth, self.z = budget, futures, ahead, depth, z
        reference = POLICIES.create(base)
        if type(reference) is not EftWait or reference.order == "path":
            raise ConfigError(f"search: base must be eft-wait with order=work or order=task, got {base!r}")
        own = Follower(reference.theta, BY_WORK if reference.order == "work" else BY_TASK)
        others = [(name, player) for name, player in _PORTFOLIO if player != own]
        self.players = [own, *[player for _, player in others]]
        self.policies: list[ClusterPolicy] = [reference, *[POLICIES.create(name) for name, _ in others]]
        self.place = placing("best-fit").place
        self.net, codec = None, RelativeConfig()
        if agent:
            path = agent_file(agent)
            loaded = Checkpoint.load(path, GpuCluster)
            if not isinstance(loaded.net, ScorerConfig) or not isinstance(loaded.codec, RelativeConfig):
                raise ConfigError(f"search: the agent {path} must have the net scorer and the codec relative")
            codec, self.net = loaded.codec, _compiled_net(loaded)
        self.codec = compiled_codec(codec)

    @staticmethod
    def checkpoints(agent: str = "ppo", **_: object) -> list[Path]:
        """Return the agent's file, so that run folders can record it."""
        return [agent_file(agent)] if agent else []

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if any(view.fits(task) for task in view.ready):
            yield from view.index(self, self.memory).decide(view)

    def memory(self) -> SearchMemory:
        """Create a memory for one simulation."""
        return SearchMemory(self)


class SearchMemory:
    """The state that a search keeps during one simulation."""

    def __init__(self, search: Search) -> None:
        self.outlook = Lookout(search.codec, search.net)
        self.columns: dict[int, ArrivedJob] = {}
        """Columns of all jobs so far, by number."""
        self._search = search
        self._past: deque[ArrivedJob] = deque(maxlen=_PAST)
        self._followed = 0
        self._compared = -1
        self._left = 0.0
        self._trials = 1

    def push(self, task: TaskState) -> None:
        """Record the job of a ready task as it was when it arrived."""
        self._remember(task.job)

    def _remember(self, job: JobState) -> None:
        if job.number not in self.columns:
            self.columns[job.number] = ArrivedJob.of(job)
            self._past.append(self.columns[job.number])

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        """Start the best task repeatedly, until waiting is the best choice."""
        for job in view.jobs.values():
            self._remember(job)
        while True:
            self._left += self._search.budget
            proposals = [proposal_of(policy, view) for policy in self._search.policies]
            pair = proposals[self._followed]
            if len(view.ready) <= _MOST and any(proposal != pair for proposal in proposals):
                pair = self._best(view, pair)
            if pair is None:
                return
            (task, type_), waited = pair, True
            while task.waiting and (placement := self._search.place(view, task, type_)) is not None:
                yield Start(task, placement)
                waited = False
                if task.demand.gang or not view.machines.fits_on(task.demand, type_):
                    break
            if waited or not any(view.fits(task) for task in view.ready):
                return

    def _best(self, view: ClusterView, own: tuple[TaskState, int] | None) -> tuple[TaskState, int] | None:
        """Return the task and type to start now: ``own``, unless another choice is better."""
        search, outlook = self._search, self.outlook
        samples, arrivals = self.futures(view)
        if not self._affordable(2) or not outlook.look(view, self.columns, samples, arrivals):
            return own
        proposals, agents = outlook.proposals(search.players)
        newest = max(self.columns)
        if newest != self._compared and self._affordable(len(search.players)):
            self._compared = newest
            self._followed = self._better(
                [FirstChoice(AS_PROPOSED, player) for player in search.players], self._followed
            )
        follow = search.players[self._followed]
        first = proposals[self._followed]
        trials = [FirstChoice(first, follow)]
        trials += [FirstChoice(choice, follow) for choice in dict.fromkeys(proposals) if choice != first]
        if search.net is not None:
            trials.append(FirstChoice(agents, follow._replace(depth=search.depth)))
            if agents != first:
                trials.append(FirstChoice(agents, follow))
        choice = trials[self._better(trials, 0) if len(trials) > 1 else 0].first
        if choice == WAIT:
            return None if view.running else own
        job, index, type_ = outlook.start_of(choice)
        task = next((task for task in view.ready if task.job is job and task.index == index), None)
        return own if task is None else (task, type_)

    def _affordable(self, trials: int) -> int:
        """Return how many futures the budget allows for ``trials`` trials: all, one or none."""
        search, cost = self._search, max(self.outlook.plays / self._trials, 1.0) * trials
        return search.futures if self._left >= search.futures * cost else int(self._left >= cost)

    def _better(self, trials: list[FirstChoice], own: int) -> int:
        """Return the trial with the lowest cost, or ``own`` if that cost is not significantly lower
        than the cost of ``own``.
        """
        futures = self._affordable(len(trials))
        if not futures:
            return own
        before = self.outlook.plays
        costs = self.outlook.costs(trials, futures)
        self._trials += len(trials) * futures
        self._left -= self.outlook.plays - before
        best = int(costs.mean(axis=1).argmin())
        saved = costs[own] - costs[best]
        error = float(saved.std(ddof=1)) / futures**0.5 if futures > 1 else 0.0
        return best if float(saved.mean()) > self._search.z * error + 1e-9 * float(costs[own].mean()) else own

    def futures(self, view: ClusterView) -> tuple[list[ArrivedJob], list[np.ndarray]]:
        """Return jobs that may arrive, and the times at which they arrive in each future. Nothing
        arrives in the first future.
        """
        search, past = self._search, list(self._past)
        if len(past) < 2:
            return [], [np.zeros(0)] * search.futures
        rng = view.stream("search")
        samples = [past[number] for number in rng.permutation(len(past))[: 2 * search.ahead]]
        gaps_s, count = np.diff([job.arrival_s for job in past]), min(search.ahead, len(samples))
        arrivals = np.full((search.futures, len(samples)), inf)
        for at_s in arrivals[1:]:
            which = np.sort(rng.permutation(len(samples))[:count])
            at_s[which] = view.now + np.cumsum(rng.choice(gaps_s, count))
        return samples, list(arrivals)


def agent_file(agent: str) -> Path:
    """Return the checkpoint of the search's agent: a file, or ``ppo`` for the agent that ships with
    dagsim.
    """
    return shipped_agent(agent, GpuCluster) if agent == "ppo" else Path(agent)


def _compiled_net(agent: Checkpoint) -> ScorerNet:
    """Convert an agent's network for compiled code."""
    weights: dict[str, Any] = {name: value.numpy() for name, value in agent.weights.items()}
    (hidden, tokens), context = weights["embed.0.weight"].shape, weights["around.weight"].shape[1]
    context -= hidden
    bounds: dict[str, Any] = {} if agent.bounds is None else agent.bounds.parts
    low, high = bounds.get("tokens", (np.full(tokens, -inf), np.full(tokens, inf)))
    context_low, context_high = bounds.get("context", (np.full(context, -inf), np.full(context, inf)))
    arrays = ScorerNet(
        low=low,
        high=high,
        context_low=context_low,
        context_high=context_high,
        embed=weights["embed.0.weight"].T,
        embed_bias=weights["embed.0.bias"],
        around=weights["around.weight"].T,
        around_bias=weights["around.bias"],
        own=weights["own.weight"].T,
        inner=weights["score.1.weight"].T,
        inner_bias=weights["score.1.bias"],
        score=weights["score.3.weight"][0],
        tokens=np.zeros((_ROWS, tokens)),
        context=np.zeros(context),
        gpus=np.zeros((1, len(agent.codec.features["gpus"]))),
        rows=np.zeros((_ROWS, hidden)),
        shared=np.zeros(hidden),
        mixed=np.zeros(hidden),
        last=np.zeros(hidden),
    )
    return ScorerNet(*[np.ascontiguousarray(array, np.float32) for array in arrays])

"""The base class of policies that choose the GPUs of elastic tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from math import inf

from dagsim.errors import ConfigError
from dagsim.families.elastic.resized_tasks import ResizedTask, ResizedTasks, elastic_nodes, most_gpus_now
from dagsim.model import Decision, Wait
from dagsim.systems.cluster.api import ClusterView
from dagsim.systems.cluster.policies.placement import placing, start_of


class _Turns:
    """The times at which a policy decides. It may decide every ``interval_s`` seconds, and does so
    if the state has changed or ``renew_s`` seconds have passed.

    Raises:
        ConfigError: A time has the wrong sign.
    """

    def __init__(self, policy: str, interval_s: float, renew_s: float) -> None:
        _check_interval(policy, interval_s)
        if not renew_s >= 0:
            raise ConfigError(f"{policy}: renew_s must be 0 or more, got {renew_s!r}")
        self._interval_s, self._renew_s = interval_s, renew_s
        self.next_s = self._decided_s = -inf
        self._state: object = None

    def changed(self, now: float, state: object) -> bool:
        """Return True if the policy has to decide, either now or at ``next_s``."""
        return state != self._state or now >= self._decided_s + self._renew_s

    def begin(self, now: float, state: object) -> bool:
        """Return True if a new interval begins now and the policy has to decide."""
        if now < self.next_s:
            return False
        due = self.changed(now, state)
        if due:
            self._state, self._decided_s = state, now
        self.next_s = now + self._interval_s
        return due


class Resizing(ABC):
    """The base class of policies that choose the GPUs of elastic tasks. All other tasks take
    precedence. They start oldest first where they fit, and elastic tasks leave GPUs free for those
    that are still waiting.
    """

    polls = True
    """True if the policy must decide again although nothing happened."""

    def __init__(self, policy: str, interval_s: float, renew_s: float) -> None:
        self._turns = _Turns(policy, interval_s, renew_s)
        self._tasks = ResizedTasks()

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        for task in view.ready:
            while task.training is None and task.waiting and view.fits(task):
                if not (start := start_of(_BEST_FIT, view, task)):
                    break
                yield from start
        tasks = self._tasks.read(view)
        if not tasks:
            return
        state, turns = self._state(view, tasks), self._turns
        waits = self.polls or turns.changed(view.now, state)
        early = view.now < turns.next_s
        if waits and turns.begin(view.now, state):
            yield from self._allocate(view, tasks)
            waits = self.polls
        # Pollux delays the first start of every task by one interval
        young = any(task.arrival_s == view.now for task in tasks)
        if waits and (early or view.running or view.pending or young):
            yield Wait(turns.next_s)

    def _state(self, view: ClusterView, tasks: Sequence[ResizedTask]) -> object:
        """Return a value that changes whenever anything that affects the allocation changes, except
        time.
        """
        return [(task.order, most_gpus_now(task)) for task in tasks], elastic_nodes(view)

    @abstractmethod
    def _allocate(self, view: ClusterView, tasks: list[ResizedTask]) -> Iterator[Decision]:
        """Change the GPUs of the elastic tasks."""


_BEST_FIT = placing("best-fit").place


def _check_interval(policy: str, interval_s: float) -> None:
    if not interval_s > 0:
        raise ConfigError(f"{policy}: interval_s must be positive, got {interval_s!r}")

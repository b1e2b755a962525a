"""Gavel on a real cluster, with leases, based on the scheduler that Shockwave's authors ran (Zheng
et al., NSDI 2023, with the code in their repository). ``scripts/validate_shockwave.py`` compares
this policy with their measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from dagsim.errors import ConfigError, require
from dagsim.families.gavel.published import Gavel, part_left, present_rate, runs_by_task
from dagsim.families.gavel.round_ledger import Allocator, GavelJob, GavelLedger, JobOrPair, Situation
from dagsim.model import Decision, Preempt, Share, Start, Wait
from dagsim.systems.cluster.api import ClusterView, Run, TaskState
from dagsim.systems.cluster.policies.waiting_tasks import WaitingTasks

_NEW_PART = 0.5
"""Part of the last lease in the average of the measured rates."""
_Gpus: TypeAlias = tuple[int, ...]
"""GPUs, numbered node by node."""


class _Lease(NamedTuple):
    """The time that a task spends on its GPUs. It begins with a start, and ends with a stop or a
    change of the batch size.
    """

    began_s: float
    left: float
    """Remaining steps at the beginning of the round."""


class _Books(GavelLedger):
    """Gavel's ledger on a real cluster.

    When a lease ends, all of its seconds are booked, including those before the time counters were
    last reset. Until then, only its seconds since the reset count. As a result, a task waits for a
    long time after a long lease.
    """

    _counting = False
    """True if the counts have begun."""
    _unsettled = False
    """True if the shares have changed since the counts began again."""

    def plan(self, now_s: float, leases: Mapping[JobOrPair, tuple[str, float]]) -> list[tuple[JobOrPair, str]]:
        """Compute new shares if something has changed, and choose the tasks for the next round and
        their types. ``leases`` contains the type and the start of each current lease.
        """
        if self.must_solve:
            situation = Situation(self.jobs, self.gpus, now_s, self.pair_rates)
            self.allocation = self.allocator.allocate(situation) if self.jobs and any(self.gpus.values()) else {}
            self.must_solve, self._unsettled = False, True
        if self._unsettled and (not self._counting or now_s - self._settled_s >= self.gap_s):
            self._settle(now_s)
            self._unsettled, self._counting = False, True
        had, worked = self._had, self._worked
        self._had, self._worked = {key: dict(seconds) for key, seconds in had.items()}, dict(worked)
        for key, (type_, began_s) in leases.items():
            self.book(key, type_, now_s - max(began_s, self._settled_s))
        chosen = self._chosen()
        self._had, self._worked = had, worked
        return chosen

    def book(self, key: JobOrPair, type_: str, seconds: float) -> None:
        """Add the seconds that a job spent on a type."""
        self._had[key][type_] += seconds
        self._worked[type_] += seconds


class DeployedGavel(Gavel):
    """Gavel as it runs on a real cluster, not in its simulator.

    - The tasks for the next round are chosen in the middle of the current round. Tasks that arrive
      later wait for another round, and the GPUs of a chosen task that ends in between stay idle for
      a round.
    - A chosen task starts when its GPUs are idle, possibly before the round begins.
    - A task that is chosen again for the same GPUs continues. All other tasks stop ``round_s``
      seconds after the beginning of the round. The next round begins when they have written their
      checkpoints, which takes ``save_s`` seconds; if ``save_s`` contains several numbers, one is
      chosen at random each time.
    - GPUs are chosen for larger tasks first. A smaller task on these GPUs moves, and starts again.
    - Shares are computed after each change. Only the time counters are reset every ``gap_s``
      seconds.
    - The rate of a task is an average over its leases, including the seconds that its start-ups
      take.
    - A task that pauses to change its batch size (rate 0) starts again in the middle of the round
      or at its end.

    Each instance of a task needs one whole GPU. The policy is preemptive, and as costly as
    ``Gavel``.

    Raises:
        ConfigError: The policy is unknown or a time is out of range; in a simulation, a task has
            instances that do not need exactly one GPU.
    """

    def __init__(
        self,
        policy: str | Allocator = "max_min_fairness",
        round_s: float = 120.0,
        gap_s: float = 1000.0,
        save_s: float | Sequence[float] = 10.0,
        seed: int = 0,
        window: int = 200,
    ) -> None:
        super().__init__(policy, round_s, gap_s, seed, window=window)
        self.save_s = tuple(save_s) if isinstance(save_s, Sequence) else (save_s,)
        require(min(self.save_s, default=-1.0) >= 0, "gavel: save_s must be 0 or more", save_s)
        self._random = Random(seed)
        self._phase: Literal["first half", "second half", "saving"] = "saving"
        self._began_s, self._until_s = 0.0, inf
        """Beginning of the round and end of the phase (inf without tasks)."""
        self._present: dict[int, _Gpus] = {}
        """GPUs of the tasks in the current round, by ``TaskState.order``."""
        self._next: dict[int, _Gpus] = {}
        """GPUs of the tasks in the next round, from the middle of the current round onwards."""
        self._held: dict[int, _Gpus] = {}
        """GPUs on which each task last started."""
        self._leases: dict[int, _Lease] = {}
        self._saved_s: dict[int, float] = {}
        """Time at which each task has written its last checkpoint."""
        self._free_s: dict[int, float] = {}
        """Time at which the last task on each GPU has written its checkpoint."""
        self._changed: set[int] = set()
        """Tasks whose batch has changed since the last choice."""

    def rated(self, run: Run, now: float) -> None:
        """End the lease of a task that changes its batch size."""
        if run.rate == 0.0 and run.task.order in self._leases:
            self._end_lease(run, now)
            self._changed.add(run.task.order)
            self._save(run.task.order, now)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        waiting = view.index(Gavel, lambda: WaitingTasks(view.machines))
        books, now, runs = self._books(view), view.now, runs_by_task(view.running.values())
        for order in [order for order in books.jobs if order not in runs and not waiting.pieces(order)]:
            if lease := self._leases.pop(order, None):
                books.book((order,), self._type(view, order), now - lease.began_s)
                self._save(order, now)
            books.leave(order)
        if not books.jobs and not waiting.oldest(1):
            self._until_s = inf
            return
        if self._until_s == inf:
            self._choose(view, books, waiting, runs)
            self._phase, self._until_s = "saving", now
        while now >= self._until_s:
            if self._phase == "first half":
                self._choose(view, books, waiting, runs)
                yield from self._stop(runs, [order for order in runs if order not in self._leases])
                self._phase, self._until_s = "second half", self._began_s + self.round_s
            elif self._phase == "second half":
                stopping = [order for order in runs if self._next.get(order) != self._held[order]]
                yield from self._stop(runs, {*stopping, *[order for order in runs if order not in self._leases]})
                self._phase = "saving"
                self._until_s = max([self._save(order, now) for order in stopping], default=now)
            else:
                self._present, self._began_s = self._next, now
                for order, held in runs.items():
                    books.jobs[order].left = part_left(held[0], now) * books.jobs[order].steps
                self._phase, self._until_s = "first half", now + self.round_s / 2
        yield from self._start(view, books, waiting, runs)
        yield Wait(min([self._until_s, *[time_s for time_s in self._free_s.values() if time_s > now]]))

    def _save(self, order: int, now: float) -> float:
        """Write a checkpoint of a task that has stopped, ended or paused, before other tasks use its
        GPUs. Return the time at which the checkpoint is complete.
        """
        saved_s = self._saved_s[order] = now + self._random.choice(self.save_s)
        self._free_s |= dict.fromkeys(self._held[order], saved_s)
        return saved_s

    def _books(self, view: ClusterView) -> _Books:
        books = self._ledger or self._open(view, _Books)
        assert isinstance(books, _Books)
        return books

    def _type(self, view: ClusterView, order: int) -> str:
        """Return the name of the GPU type on which a task last started."""
        gpu = view.gpu_types[view.machines.list[_nodes(view)[self._held[order][0]]].type]
        assert gpu is not None
        return gpu.name

    def _job(self, task: TaskState) -> GavelJob:
        if task.demand.demand.gpus != 1:
            raise ConfigError(
                f"gavel on a real cluster supports only instances with one GPU, but the instances of {task.name} "
                f"need {task.demand.demand.gpus:g} GPUs each"
            )
        return super()._job(task)

    def _choose(self, view: ClusterView, books: _Books, waiting: WaitingTasks, runs: Mapping[int, list[Run]]) -> None:
        """Choose the tasks for the next round and their GPUs."""
        self._enter(books, waiting)
        for order in self._changed & books.jobs.keys():
            task = runs[order][0].task if order in runs else waiting.pieces(order)[0]
            books.jobs[order].rate = {name: present_rate(view, task, type_) for name, type_ in self._type_of.items()}
            books.must_solve = True
        self._changed.clear()
        books.resize(self._capacity(view))
        leases: dict[JobOrPair, tuple[str, float]] = {
            (order,): (self._type(view, order), lease.began_s) for order, lease in self._leases.items()
        }
        self._give_gpus(
            view, [(key[0], type_, int(books.jobs[key[0]].gpus)) for key, type_ in books.plan(view.now, leases)]
        )

    def _give_gpus(self, view: ClusterView, chosen: Sequence[tuple[int, str, int]]) -> None:
        """Choose the GPUs of each task (its order, GPU type and number of GPUs), the largest first.
        A task keeps the GPUs that it has.
        """
        free: dict[str, list[int]] = {name: [] for name in self._type_of}
        for gpu, node in enumerate(_nodes(view)):
            machine = view.machines.list[node]
            if machine.up and (type_ := view.gpu_types[machine.type]) is not None:
                free[type_.name].append(gpu)
        self._next = {}
        for size in sorted({size for _, _, size in chosen}, reverse=True):
            group = [(order, free[type_]) for order, type_, gpus in chosen if gpus == size]
            for order, idle in group:
                held = self._present.get(order, ())
                if held and set(held) <= set(idle):
                    self._next[order] = held
                    idle[:] = [gpu for gpu in idle if gpu not in held]
            for order, idle in group:
                if order not in self._next:
                    self._next[order] = tuple(idle[:size])
                    del idle[:size]

    def _stop(self, runs: dict[int, list[Run]], orders: Iterable[int]) -> Iterator[Decision]:
        for order in sorted(orders):
            for run in runs.pop(order):
                if order in self._leases:
                    self._end_lease(run, run.env.now)
                yield Preempt(run.id)

    def _start(
        self, view: ClusterView, books: _Books, waiting: WaitingTasks, runs: Mapping[int, list[Run]]
    ) -> Iterator[Decision]:
        """Start the tasks whose GPUs are idle."""
        nodes, busy = _nodes(view), {gpu for order in runs for gpu in self._held[order]}
        busy.update([gpu for gpu, time_s in self._free_s.items() if time_s > view.now])
        for order, gpus in (self._present if self._phase == "first half" else self._next).items():
            piece = waiting.get(order)
            saved = self._saved_s.get(order, view.now) <= view.now
            if piece is None or order not in books.jobs or not saved or not busy.isdisjoint(gpus):
                continue
            shares = tuple([Share(node, len(list(group))) for node, group in groupby(nodes[gpu] for gpu in gpus)])
            if all(view.machines.list[share.node].room(piece.demand) >= share.instances for share in shares):
                busy.update(gpus)
                self._held[order], self._leases[order] = gpus, _Lease(view.now, books.jobs[order].left)
                yield Start(piece, shares)

    def _end_lease(self, run: Run, now: float) -> None:
        """Book a lease, together with the rate measured during it."""
        assert isinstance(self._ledger, _Books)
        order = run.task.order
        lease, job = self._leases.pop(order), self._ledger.jobs[order]
        name = next(name for name, type_ in self._type_of.items() if type_ == run.type)
        seconds = now - lease.began_s
        self._ledger.book((order,), name, seconds)
        job.left = part_left(run, now) * job.steps
        if run.task.training is not None and seconds > 0:
            measured = (lease.left - job.left) / seconds
            job.rate = {**job.rate, name: (1 - _NEW_PART) * job.rate[name] + _NEW_PART * measured}


def _nodes(view: ClusterView) -> list[int]:
    """Return the node to which each GPU belongs."""
    return [machine.index for machine in view.machines.list for _ in range(int(machine.gpus))]

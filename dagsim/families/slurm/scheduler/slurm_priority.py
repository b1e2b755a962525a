"""Slurm's priorities as they change over time, for a single job and for all pending jobs
together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil, floor, inf, nan, nextafter
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.slurm.scheduler.priority_formulas import (
    Account,
    Factors,
    ShareTree,
    Weights,
    age,
    billing,
    decay_per_second,
    job_size,
    total_priority,
    truncated,
)
from dagsim.metrics.columns import Floats
from dagsim.model import NodePartition, Qos, QueueTree
from dagsim.model.arithmetic import DAY_S

FairShareRule: TypeAlias = Literal["tree", "classic"]


@dataclass(frozen=True, slots=True)
class PrioritySettings:
    """The ``slurm.conf`` keys that begin with Priority."""

    weights: Weights = field(default_factory=Weights)
    max_age_s: float = 14 * DAY_S
    half_life_s: float = 14 * DAY_S
    calc_period_s: float = 300.0
    fair_share: FairShareRule = "tree"
    damping: float = 1.0
    favor_small: bool = False
    relative_size: bool = False
    max_tres: bool = False
    accrue_always: bool = False

    def __post_init__(self) -> None:
        if self.fair_share not in ("tree", "classic"):
            raise ConfigError(f"slurm-multifactor: fair_share must be tree or classic, got {self.fair_share!r}")
        for name in ("max_age_s", "calc_period_s", "damping"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"slurm-multifactor: {name} must be above 0, got {getattr(self, name)!r}")
        if not self.half_life_s >= 0:
            raise ConfigError(f"slurm-multifactor: half_life_s must be 0 or more, got {self.half_life_s!r}")


def listed_users(queues: QueueTree) -> Mapping[str, Collection[str]]:
    """Return the users that belong to each account. They are needed only for multifactor priorities,
    so the result is empty unless the site's order is ``multifactor``.
    """
    if queues.scheduler.get("order") != "multifactor":
        return {}
    return {node.name: node.users for node, _ in queues.walk() if node.users}


class Capacity(NamedTuple):
    """The resources of the whole cluster."""

    nodes: float
    cpus: float
    memory_gb: float
    gpus: float

    def amounts(self) -> dict[str, float]:
        """Return the resources as a dictionary by name."""
        return {"gpus": self.gpus, "cpus": self.cpus, "memory_gb": self.memory_gb}


class Asked(NamedTuple):
    """The parts of a submission that the priority formula uses. The amounts are totals over all of
    its nodes."""

    user: str
    partition: str
    qos: str
    submit_s: float
    eligible_s: float | None
    nodes: float
    cpus: float
    memory_gb: float
    gpus: float
    limit_s: float
    nice: float = 0.0

    def amounts(self) -> dict[str, float]:
        """Return the resources as a dictionary by name."""
        return {"gpus": self.gpus, "cpus": self.cpus, "memory_gb": self.memory_gb}


class PriorityBook:
    """The usage of users and accounts over time, and the priorities computed from it.

    Fair share is computed at ``origin_s`` and then every ``calc_period_s``. Between two
    calculations, usage changes only when a job ends, because what the job has used since the last
    calculation is then added. At the end of each period, older usage decays, and then the usage of
    the period is charged. If ``queues`` lacks a user or an account, it is added with the first job,
    and gets one share.

    A start or an end takes O(1), and a period takes O(accounts + users with runs).
    """

    def __init__(
        self,
        settings: PrioritySettings,
        queues: QueueTree,
        capacity: Capacity,
        origin_s: float = 0.0,
        associations: Mapping[str, float] | None = None,
    ) -> None:
        self.settings = settings
        self.capacity = capacity
        self.partitions = {part.name: part for part in queues.partitions} or {"": NodePartition("")}
        self.qos = {qos.name: qos for qos in queues.qos} or {"": Qos("")}
        self.shares = ShareTree(list(_accounts(queues)), decay_per_second(settings.half_life_s))
        self.association = {node.name: node.priority for node, _ in queues.walk()}
        for node, _ in queues.walk():
            self.association |= {f"{node.name}/{user}": worth for user, worth in node.user_priorities.items()}
        self.association |= associations or {}
        """Priorities by account, or by ``account/user``."""
        self.calculated_s = origin_s
        """Time of the last calculation."""
        self.rounds = int(origin_s < 0)
        """Number of calculations so far; one if the site has run since before 0 s."""
        self._factors: dict[str, float] = {}
        """The factor of each user by the last calculation."""
        self._later: list[tuple[float, dict[str, float]]] = []
        """The factors since users were added after it, each with their time."""
        self._stale = bool(self.rounds)
        """True if the factors of the last calculation are not computed yet."""
        self._rate: dict[str, tuple[float, int]] = {}
        """For each user, the billing rate and the number of all runs that started before the last
        calculation."""
        self._runs: dict[int, tuple[str, float, float]] = {}
        """The user, the billing and the start of each run."""
        self._fresh: dict[int, None] = {}
        """Runs that started since the last calculation."""
        self._booting: set[int] = set()
        """Runs whose nodes boot. Calculations charge nothing for them (``decay_apply_new_usage``)."""
        self._most_partition = max([part.priority for part in self.partitions.values()]) or 1.0
        self._most_qos = max([qos.priority for qos in self.qos.values()]) or 1.0
        self._most_association = max([*self.association.values(), 0.0]) or 1.0

    def user(self, account: str, user: str, now: float = -inf) -> str:
        """Return the name of a user's association with an account. Create the association if it
        does not exist. A new association affects priority factors from ``now`` on.
        """
        account = account or "default"
        name = f"{account}/{user}"
        if name not in self.shares.accounts:
            self._calculate_before(now)
            self._settle()
            if account not in self.shares.accounts:
                self.shares.add(Account(account, "root", 1.0))
            self.shares.add(Account(name, account, 1.0, True))
            if self.rounds:
                self._later.append((now, self._computed()))
        return name

    def remember(self, usage: Mapping[str, float]) -> None:
        """Add usage that happened before the simulation began, in billed seconds by
        ``account/user``."""
        for name, amount in usage.items():
            account, _, user = name.partition("/")
            self.shares.add_usage(self.user(account, user), amount)

    def rate(self, asked: Asked) -> float:
        """Return what a job is charged per second: its billing, multiplied by the usage factor of
        its QOS."""
        weights = self.partition(asked.partition).billing or ({"gpus": 1.0} if self.capacity.gpus else {"cpus": 1.0})
        factor = self.quality(asked.qos).usage_factor
        return billing(asked.amounts(), weights, largest=self.settings.max_tres) * factor

    def partition(self, name: str) -> NodePartition:
        """Return the partition with this name, or the first partition if there is none."""
        return self.partitions.get(name) or next(iter(self.partitions.values()))

    def quality(self, name: str) -> Qos:
        """Return the QOS with this name, or the first QOS if there is none."""
        return self.qos.get(name) or next(iter(self.qos.values()))

    def begin(self, run: int, asked: Asked, now: float, *, boots: bool = False) -> None:
        """Record the start of a run, whose nodes may have to boot first."""
        self.calculate(now)
        self._runs[run] = (asked.user, self.rate(asked), now)
        if boots:
            self._booting.add(run)
        else:
            self._fresh[run] = None

    def booted(self, run: int, now: float) -> None:
        """Charge a run from ``now`` on, because its nodes have booted (``job_config_fini``)."""
        if run in self._booting:
            self.calculate(now)
            self._booting.discard(run)
            self._runs[run] = (*self._runs[run][:2], now)
            self._fresh[run] = None

    def knows(self, run: int) -> bool:
        """Return True if the run has begun and not yet ended."""
        return run in self._runs

    def end(self, run: int, now: float) -> None:
        """Record the end of a run. What the run has used since the last calculation is added
        immediately, without decay.
        """
        self._calculate_before(now)
        user, rate, started_s = self._runs.pop(run)
        self._settle()
        self.shares.charge(user, rate, now - max(self.calculated_s, started_s))
        if run in self._fresh:
            del self._fresh[run]
        elif run in self._booting:
            self._booting.discard(run)
        else:
            whole, runs = self._rate.pop(user)
            if runs > 1:
                self._rate[user] = whole - rate, runs - 1

    def calculate(self, now: float) -> bool:
        """Carry out all calculations that are due by ``now``. Return True if there were any."""
        before = self.rounds
        period_s = self.settings.calc_period_s
        if self._runs:
            self._calculate_before(nextafter(now, inf))
        elif self.calculated_s + period_s <= now:  # nothing runs, so only decay the usage
            self._decay(floor((now - self.calculated_s) / period_s))
        return self.rounds > before

    def fair_share(self, user: str, at_s: float = inf) -> float:
        """Return a user's fair-share factor at a time after the last calculation. Before the first
        calculation, this is 0 (or 1 with the classic formula).
        """
        self._settle()
        if not self.rounds:
            return 0.0 if self.settings.fair_share == "tree" else 1.0
        factors = self._factors
        for since_s, changed in self._later:
            if since_s <= at_s or user not in factors:
                factors = changed
        return factors[user]

    def factors(self, asked: Asked, now: float) -> Factors:
        """Return all factors of a job at ``now``."""
        settings, capacity = self.settings, self.capacity
        since = asked.submit_s if settings.accrue_always else asked.eligible_s
        return Factors(
            0.0 if since is None else age(now - since, settings.max_age_s),
            self._association(asked.user) / self._most_association,
            self.fair_share(asked.user, now),
            job_size(
                asked.nodes,
                asked.cpus,
                capacity.nodes,
                capacity.cpus or 1.0,
                max(asked.limit_s / 60, 1.0),
                small=settings.favor_small,
                relative=settings.relative_size,
            ),
            self.partition(asked.partition).priority / self._most_partition,
            self.quality(asked.qos).priority / self._most_qos,
        )

    def total(self, asked: Asked, factors: Factors) -> float:
        """Return the priority before Slurm truncates it."""
        whole = self.capacity.amounts()
        tres = {name: amount / whole[name] for name, amount in asked.amounts().items() if whole[name]}
        return total_priority(factors, self.settings.weights, tres, asked.nice)

    def fixed(self, asked: Asked) -> float:
        """Return the part of a job's priority that never changes, which is everything except age
        and fair share."""
        return self.total(asked, self.factors(asked, now=-inf)._replace(age=0.0, fair_share=0.0))

    def priority(self, fixed: float, asked: Asked, now: float) -> int:
        """Return a job's priority at ``now``. ``fixed`` is the part that never changes."""
        since_s, settings = self.since_s(asked), self.settings
        waited = 0.0 if since_s is None else age(now - since_s, settings.max_age_s)
        weights = settings.weights
        return truncated(fixed + weights.age * waited + weights.fair_share * self.fair_share(asked.user, now))

    def priorities(self, fixed: Floats, since_s: Floats, shares: Floats, now: float) -> Floats:
        """Compute ``priority`` for many jobs together, as whole numbers. The results are identical
        to those for single jobs, bit for bit. The inputs are the fixed part of each job, its fair
        share, and the time from which its age counts (infinite for jobs that do not age).
        """
        waited = np.minimum(1.0, np.maximum(0.0, now - since_s) / self.settings.max_age_s)
        weights = self.settings.weights
        priorities: Floats = np.maximum(0.0, np.trunc(fixed + weights.age * waited + weights.fair_share * shares))
        return priorities

    def since_s(self, asked: Asked) -> float | None:
        """Return the time from which a job's age counts."""
        return asked.submit_s if self.settings.accrue_always else asked.eligible_s

    def _association(self, user: str) -> float:
        """Return the priority of a user's association or, if it has none, that of the account."""
        return self.association.get(user, self.association.get(user.rpartition("/")[0], 0.0))

    def _calculate_before(self, now: float) -> None:
        """Carry out the calculations that were due before ``now``. A calculation that is due at
        ``now`` itself has to wait, because runs that end at ``now`` count as ended.
        """
        period_s, first = self.settings.calc_period_s, self.rounds
        while self.calculated_s + period_s < now:
            checks = (self.rounds - first) % _STEADY_EVERY == _STEADY_EVERY - 1
            usage = self.shares.as_charged() if checks else None
            self._round(self.calculated_s + period_s)
            if usage is not None and usage == self.shares.as_charged():
                self._skip_before(now)

    def _skip_before(self, now: float) -> None:
        """Skip the calculations before ``now``, if their times are whole numbers. This is possible
        because the last calculation has left all usage unchanged: as much was charged as had
        decayed, so further calculations change nothing either.
        """
        period_s = self.settings.calc_period_s
        if self.calculated_s.is_integer() and float(period_s).is_integer() and now < _EXACT:
            periods = ceil((now - self.calculated_s) / period_s) - 1
            self._calculated(self.calculated_s + periods * period_s, periods)

    def _round(self, at_s: float) -> None:
        period_s = at_s - self.calculated_s
        self.shares.pass_time(period_s)
        for user, (rate, _) in self._rate.items():
            self.shares.charge(user, rate, period_s)
        for run in self._fresh:
            user, rate, started_s = self._runs[run]
            self.shares.charge(user, rate, at_s - max(self.calculated_s, started_s))
            whole, runs = self._rate.get(user, (0.0, 0))
            self._rate[user] = whole + rate, runs + 1
        self._fresh.clear()
        self._calculated(at_s, 1)

    def _decay(self, periods: int) -> None:
        seconds = periods * self.settings.calc_period_s
        self.shares.pass_time(seconds)
        self._calculated(self.calculated_s + seconds, periods)

    def _calculated(self, at_s: float, periods: int) -> None:
        self.calculated_s, self.rounds, self._stale = at_s, self.rounds + periods, True
        self._later.clear()

    def _settle(self) -> None:
        """Compute the fair-share factors as of the last calculation, before usage changes."""
        if self._stale:
            self._factors, self._stale = self._computed(), False

    def _computed(self) -> dict[str, float]:
        classic = self.settings.fair_share == "classic"
        return self.shares.classic(self.settings.damping) if classic else self.shares.fair_tree()


_STEADY_EVERY = 4096
"""Number of calculations in a row after which one is compared with the one before."""
_EXACT = 2.0**52
"""Below this, sums and products of whole numbers are exact."""


def _accounts(queues: QueueTree) -> list[Account]:
    """Return the accounts and users in the tree. As in Slurm, the user root is a sibling of the
    topmost accounts, and has a share like them.
    """
    accounts = [Account("root", None, 1.0), Account("root/root", "root", 1.0, True)]
    for node, above in queues.walk():
        accounts.append(Account(node.name, above[0] if above else "root", node.weight))
    for node, _ in queues.walk():
        accounts += [Account(f"{node.name}/{user}", node.name, shares, True) for user, shares in node.users.items()]
    return accounts


_Key: TypeAlias = tuple[int, int, int]
_SLOTS = 64
"""Initial capacity, in slots."""
_FLOATS, _INTS = ("fixed", "since_s", "latest"), ("tier", "order", "piece", "place", "user", "round")


class RankColumns:
    """The data from which each pending job's priority is computed. The jobs are identified by
    *slots*. The object can be deep-copied.

    Adding or removing a job takes O(1). Ranking all jobs again takes O(n log n) with a small
    constant.
    """

    def __init__(self) -> None:
        self._slots: dict[_Key, int] = {}
        self._free = list(range(_SLOTS - 1, -1, -1))
        self._dropped: list[int] = []
        """Slots that become free when all jobs are next ranked; until then, a sort may still use
        them."""
        self._users: dict[str, int] = {}
        self._floats = {name: np.full(_SLOTS, nan) for name in _FLOATS}
        self._ints = {name: np.zeros(_SLOTS, np.int64) for name in _INTS}

    def slot(self, key: _Key) -> int:
        """Return the slot of a task (given by order and piece) in one of its partitions, or -1 if
        it has none."""
        return self._slots.get(key, -1)

    def add(self, key: _Key, tier: int, fixed: float, since_s: float | None, user: str) -> int:
        """Assign a slot to a job. ``fixed`` is the part of the job's priority that does not depend on
        time, and ``since_s`` is the time from which its age counts.
        """
        if not self._free:
            size = len(self._floats["fixed"])
            self._floats = {name: np.concatenate((column, column)) for name, column in self._floats.items()}
            self._ints = {name: np.concatenate((column, column)) for name, column in self._ints.items()}
            self._free = list(range(2 * size - 1, size - 1, -1))
        slot = self._slots[key] = self._free.pop()
        floats = {"fixed": fixed, "since_s": inf if since_s is None else since_s, "latest": nan}
        for name, value in floats.items():
            self._floats[name][slot] = value
        number = self._users.setdefault(user, len(self._users))
        ints = {"tier": tier, "order": key[0], "piece": key[1], "place": key[2], "user": number, "round": -1}
        for name, count in ints.items():
            self._ints[name][slot] = count
        return slot

    def fix(self, slot: int, fixed: float) -> None:
        """Change the part of a priority that does not depend on time, from the next calculation on."""
        self._floats["fixed"][slot] = fixed

    def drop(self, key: _Key) -> None:
        """Free the slot of a job."""
        slot = self._slots.pop(key, -1)
        if slot >= 0:
            self._dropped.append(slot)

    def latest(self, slot: int) -> float:
        """Return the latest priority in a slot."""
        priority: float = self._floats["latest"].item(slot)
        return priority

    def note(self, slot: int, priority: float, rounds: int) -> None:
        """Store a priority that was computed for this slot alone, after ``rounds`` calculations."""
        self._floats["latest"][slot], self._ints["round"][slot] = priority, rounds

    def rank(self, slots: list[int], book: PriorityBook, at_s: float) -> list[int]:
        """Compute the priorities as of ``at_s``, the time of the last calculation. Return the
        indices of ``slots``, sorted by tier and priority (highest first), then by order and piece.
        Keep priorities that were computed after ``at_s``, so that the result does not depend on
        when this is called.
        """
        self._free += self._dropped
        self._dropped.clear()
        rows, floats, ints = np.array(slots, np.int64), self._floats, self._ints
        shares = np.array([book.fair_share(user, at_s) for user in self._users])
        priority = book.priorities(floats["fixed"][rows], floats["since_s"][rows], shares[ints["user"][rows]], at_s)
        priority = np.where(ints["round"][rows] < book.rounds, priority, floats["latest"][rows])
        floats["latest"][rows], ints["round"][rows] = priority, book.rounds
        places: list[int] = np.lexsort(
            (ints["place"][rows], ints["piece"][rows], ints["order"][rows], -priority, -ints["tier"][rows])
        ).tolist()
        return places

"""Fair sharing between jobs and tenants."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, trunc
from typing import Literal, NamedTuple, TypeAlias

from dagsim.errors import ConfigError, require
from dagsim.model import Decision
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.api import MICRO, ClusterView, DemandClass, Run, TaskState
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing, start_of

By: TypeAlias = Literal["tenant", "job"]
_Amounts: TypeAlias = tuple[float, float, float]
"""GPUs, CPU cores and GB of memory."""
_NOTHING: _Amounts = (0.0, 0.0, 0.0)
Due: TypeAlias = Callable[[TaskState], float]
"""Share that the holder of the task is entitled to, relative to others; must not change while the
task is in the system.
"""


class FairShares:
    """Start the oldest task that fits, from the holder with the smallest *share*. A holder is a
    tenant or a job. Its share is the resources held by its runs divided by its entitlement. With
    ``dominant``, the largest of its shares of the cluster's GPUs, cores and memory counts;
    otherwise its GPUs count (or cores, if it has no GPU).

    Cost per decision: O(demand classes x log tasks) (progressive filling, Bertsekas and Gallager
    1992, section 6.5.2).
    """

    def __init__(self, by: By, due: Due, dominant: bool, placement: str | PlacementRule) -> None:
        require(by in ("tenant", "job"), "fair shares: by must be tenant or job", by)
        self.by = by
        self.due = due
        self.dominant = dominant
        self._place = placing(placement).place
        self._dues: dict[Hashable, float] = {}

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        turns = view.index(self, lambda: _Turns(self, _capacity(view)))
        yield from start_of(self._place, view, turns.first(view))

    def share(self, holder: Hashable, held: _Amounts, total: _Amounts) -> float:
        """Return the share of a holder with the resources ``held``, in a cluster with ``total``,
        divided by its entitlement.
        """
        gpus, cpus, _ = held
        if self.dominant:
            parts = [amount / all_ for amount, all_ in zip(held, total, strict=True) if all_]
            return max(parts, default=0.0) / self._dues[holder]
        return (gpus + (cpus / (total[1] or 1.0) if not gpus else 0.0)) / self._dues[holder]

    def note(self, task: TaskState) -> Hashable:
        """Return the holder that the task belongs to; the first task of a holder sets its
        entitlement."""
        holder = task.job.job.tenant if self.by == "tenant" else task.job.number
        if holder not in self._dues:
            self._dues[holder] = self.due(task)
        return holder


_Entry: TypeAlias = tuple[float, int, int, Hashable]
"""Share and first task (order, piece) of a holder when the entry was made, and the holder."""


class _Turns:
    """The resources held by the runs of each holder, and the ready tasks by holder within each
    demand class. The holders in a class form a heap by ``(share, oldest task)``.
    """

    def __init__(self, shares: FairShares, total: _Amounts) -> None:
        self.remembers = "" if shares.by == "job" or shares.due is _alike else "the first job of each tenant"
        self._shares = shares
        self._total = total
        self._held: dict[Hashable, _Amounts] = {}
        self._tasks: dict[DemandClass, dict[Hashable, list[tuple[int, int, TaskState]]]] = {}
        self._heaps: dict[DemandClass, list[_Entry]] = {}
        self._latest: dict[tuple[DemandClass, Hashable], _Entry] = {}
        """The valid entry of each holder; other entries in the heap are out of date."""

    def push(self, task: TaskState) -> None:
        holder = self._shares.note(task)
        tasks = self._tasks.setdefault(task.demand, {}).setdefault(holder, [])
        heappush(tasks, (task.order, task.piece, task))
        if tasks[0][2] is task:
            self._enter(task.demand, holder)

    def started(self, run: Run, now: float) -> None:
        self._add(run, 1.0)

    def ended(self, run: Run, now: float) -> None:
        self._add(run, -1.0)

    def _add(self, run: Run, sign: float) -> None:
        """Add the resources of a run to its holder or subtract them, and rank the holder again."""
        holder, asked = self._shares.note(run.task), run.task.demand
        gpus, cpus, memory = self._held.get(holder, _NOTHING)
        self._held[holder] = (
            round(gpus + sign * run.gpus, 6),
            round(cpus + sign * asked.cpus / MICRO * run.instances, 6),
            round(memory + sign * asked.memory / MICRO * run.instances, 6),
        )
        for demand, tasks in self._tasks.items():
            if holder in tasks:
                self._enter(demand, holder)

    def first(self, view: ClusterView) -> TaskState | None:
        """Return the next task in turn among those that fit."""
        best: tuple[tuple[float, int, int], TaskState] | None = None
        for demand, heap in self._heaps.items():
            if not heap or not view.machines.fits(demand):
                continue
            while heap:
                entry = heap[0]
                holder = entry[3]
                if self._latest.get((demand, holder)) is not entry:
                    heappop(heap)
                    continue
                task = self._oldest(demand, holder)
                if task is not None and entry[1:3] == (task.order, task.piece):
                    if best is None or entry[:3] < best[0]:
                        best = entry[:3], task
                    break
                heappop(heap)
                self._enter(demand, holder)
        return None if best is None else best[1]

    def _oldest(self, demand: DemandClass, holder: Hashable) -> TaskState | None:
        tasks = self._tasks[demand].get(holder)
        if tasks is None:
            return None
        while tasks and not tasks[0][2].waiting:
            heappop(tasks)
        if not tasks:
            del self._tasks[demand][holder]
            return None
        return tasks[0][2]

    def _enter(self, demand: DemandClass, holder: Hashable) -> None:
        task = self._oldest(demand, holder)
        if task is not None:
            share = self._shares.share(holder, self._held.get(holder, _NOTHING), self._total)
            entry = (share, task.order, task.piece, holder)
            latest = self._latest.get((demand, holder))
            if latest != entry:
                self._latest[demand, holder] = entry
                heappush(self._heaps.setdefault(demand, []), entry)
        else:
            self._latest.pop((demand, holder), None)


def _capacity(view: ClusterView) -> _Amounts:
    nodes = view.cluster.nodes
    return sum(n.gpus for n in nodes), ordered_sum(n.cpus for n in nodes), ordered_sum(n.memory_gb for n in nodes)


def max_min_fair(by: By = "tenant", placement: str | PlacementRule = "best-fit") -> FairShares:
    """Max-min fair: the holder with the fewest GPUs is next. All tenants (or, with ``by=job``, all
    jobs) have the same entitlement. Uses no estimates. Cost: ``FairShares`` (Bertsekas and Gallager
    1992, section 6.5.2).

    The holders are tenants or jobs (``by``).
    """
    return FairShares(by, _alike, False, placement)


def weighted_fair(alpha: float = 0.0, by: By = "job", placement: str | PlacementRule = "best-fit") -> FairShares:
    """Weighted fair: a job is entitled to GPUs in proportion to its weight times its work to the
    power ``alpha``, where its work is its estimated GPU-seconds. With 0, only the weight counts;
    with 1, the size counts as well; and below 0, small jobs get more. When tuned, it is the
    strongest baseline of Decima (Mao et al., SIGCOMM 2019, section 7.1). With ``by=tenant``, the
    first job of a tenant sets its entitlement. Uses estimates. Cost: ``FairShares``.

    The holders are tenants or jobs (``by``).

    Raises:
        ConfigError: ``alpha`` is not between -4 and 4.
    """
    require(-4 <= alpha <= 4, "weighted-fair: alpha must lie between -4 and 4", alpha)

    def due(task: TaskState) -> float:
        work = (
            ordered_sum([width(sibling) * sibling.task.instances * sibling.best_s for sibling in task.job.tasks])
            if alpha
            else 1.0
        )
        return float(task.job.job.weight * max(work, 1e-9) ** alpha) or 1e-9

    return FairShares(by, due, False, placement)


def drf(by: By = "tenant", placement: str | PlacementRule = "best-fit") -> FairShares:
    """Dominant resource fairness: the tenant with the smallest dominant share (the largest of its
    shares of GPUs, cores and memory) is next, weighted by the weight of its first job. Uses no
    estimates. Cost: ``FairShares`` (Ghodsi et al., NSDI 2011).

    The holders are tenants or jobs (``by``).
    """
    return FairShares(by, _weight, True, placement)


def _alike(task: TaskState) -> float:
    return 1.0


def _weight(task: TaskState) -> float:
    return task.job.job.weight or 1e-9


ROOT = "root"


class Account(NamedTuple):
    """A node in the tree: an account, or (``is_user``) the association of a user with an
    account."""

    name: str
    parent: str | None
    shares: float
    is_user: bool = False


class Factors(NamedTuple):
    """The factors in a job's priority, each from 0 to 1."""

    age: float = 0.0
    assoc: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each factor; ``tres`` by resource (``cpu``, ``mem``, ``gres/gpu``)."""

    age: float = 0.0
    assoc: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    tres: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {name: getattr(self, name) for name in ("age", "assoc", "fair_share", "job_size", "partition", "qos")}
        for name, weight in {**named, **{f"tres {key}": of for key, of in self.tres.items()}}.items():
            require(weight >= 0, f"slurm-multifactor: the weight {name} must be 0 or more", weight)


def total_priority(factors: Factors, weights: Weights, tres: Mapping[str, float], nice: float = 0.0) -> float:
    """Return the sum of weight x factor over all factors, minus ``nice``. Slurm truncates it.
    ``tres``: requested amount / amount in the cluster.
    """
    fixed = weights.assoc * factors.assoc + weights.job_size * factors.job_size
    fixed += weights.partition * factors.partition + weights.qos * factors.qos
    fixed += ordered_sum([weight * tres.get(name, 0.0) for name, weight in weights.tres.items()]) - nice
    # add the two changing terms last
    return fixed + weights.age * factors.age + weights.fair_share * factors.fair_share


def truncated(priority: float) -> int:
    """Return the priority as Slurm keeps and shows it."""
    return max(0, trunc(priority))


def age(waited_s: float, max_age_s: float) -> float:
    """Return the time since the job became eligible, as a fraction of the maximum that counts."""
    return min(1.0, max(0.0, waited_s) / max_age_s)


def job_size(
    nodes: float, cpus: float, all_nodes: float, all_cpus: float, limit_minutes: float, *, small: bool, relative: bool
) -> float:
    """Return the size factor of a job. With ``small`` (PriorityFavorSmall), smaller jobs get more;
    with ``relative``, the size is relative to the time limit (SMALL_RELATIVE_TO_TIME).
    """
    if relative:
        size = max(nodes * all_cpus / all_nodes, cpus) / limit_minutes / all_cpus
        return 1.0 - size if small else size
    if small:
        return ((all_nodes - nodes) / all_nodes + (all_cpus - cpus) / all_cpus) / 2
    return (nodes / all_nodes + cpus / all_cpus) / 2


def billing(amounts: Mapping[str, float], weights: Mapping[str, float], *, largest: bool = False) -> float:
    """Return the usage per second of a job: the sum of amount x weight, or the largest of them
    (MAX_TRES); not rounded. Without weights, it is the number of CPUs.
    """
    terms = [amounts.get(name, 0.0) * weight for name, weight in weights.items()]
    return (max if largest else sum)(terms) if terms else amounts.get("cpu", 0.0)


def decay_per_second(half_life_s: float) -> float:
    """Return the factor by which past usage decays in one second, which is 1 - 0.693 / half-life in
    Slurm, and not exactly 2^(-1 / half-life).
    """
    return 1.0 - 0.693 / half_life_s if half_life_s else 1.0


class ShareTree:
    """Accounts and users with their shares and their decayed usage."""

    def __init__(self, accounts: Sequence[Account], decay: float) -> None:
        self.accounts = {account.name: account for account in accounts}
        self._usage = dict.fromkeys(self.accounts, 0.0)
        self._decay = decay
        self._below: dict[str | None, list[str]] = {}
        for account in accounts:
            if account.parent is not None and account.parent not in self.accounts:
                raise ConfigError(f"account {account.name!r}: its parent account {account.parent!r} does not exist")
            self._below.setdefault(account.parent, []).append(account.name)
        if self._below.get(None) != [ROOT]:
            raise ConfigError(f"the account {ROOT!r} must be the ancestor of all others")
        self.users = [account.name for account in accounts if account.is_user]
        self._whole = {
            above: ordered_sum(self.accounts[account].shares for account in below)
            for above, below in self._below.items()
        }
        """Sum of the shares of all children of each account."""
        self._passed_s = 0.0
        """Time that has passed since the usage last decayed."""

    @property
    def usage(self) -> dict[str, float]:
        """The decayed usage of each account and user."""
        if self._passed_s:
            left, self._passed_s = self._decay**self._passed_s, 0.0
            for name in self._usage:
                self._usage[name] *= left
        return self._usage

    def add(self, account: Account) -> None:
        """Add an account or a user that appears later.

        Raises:
            ConfigError: Its parent account does not exist.
        """
        if account.parent not in self.accounts:
            raise ConfigError(f"account {account.name!r}: its parent account {account.parent!r} does not exist")
        self.accounts[account.name] = account
        self._usage[account.name] = 0.0
        self._below.setdefault(account.parent, []).append(account.name)
        self._whole[account.parent] = self._whole.get(account.parent, 0.0) + account.shares
        if account.is_user:
            self.users.append(account.name)

    def charge(self, user: str, rate: float, seconds: float) -> None:
        """Add a job's usage in the last ``seconds`` to its user and all accounts above."""
        if seconds < 1:
            return
        self.add_usage(user, rate * seconds * self._decay**seconds)

    def add_usage(self, user: str, amount: float) -> None:
        """Add usage to a user and all accounts above."""
        usage = self.usage
        name: str | None = user
        while name is not None:
            usage[name] += amount
            name = self.accounts[name].parent

    def pass_time(self, seconds: float) -> None:
        """Let all usage decay. It is carried out before the next charge. Factors are ratios of
        usage, so they do not need it, and the steps in which time passes do not change the result.
        """
        self._passed_s += seconds

    def fair_tree(self) -> dict[str, float]:
        """Return the factor of each user by Fair Tree: its rank from the last (1) to the first,
        divided by the number of users.

        Siblings are sorted by shares / usage, largest first. Users that tie share a rank, accounts
        that tie are merged, and the first user of an account that ties with a user shares the
        user's rank.
        """
        ranked: list[list[str]] = []
        self._rank(self._below.get(ROOT, ()), ranked, tied=False)
        factors: dict[str, float] = {}
        rank = len(self.users)
        for tied in ranked:
            factors |= dict.fromkeys(tied, rank / len(self.users))
            rank -= len(tied)
        return factors

    def classic(self, damping: float = 1.0) -> dict[str, float]:
        """Return the factor of each user by the classic formula, 2^(-(effective usage / shares) /
        damping).

        Uses the present usage of everybody, as documented, whereas slurmctld uses the usage of
        accounts from its last round.
        """
        whole = self._usage[ROOT]
        effective, shares = {ROOT: 1.0}, {ROOT: 1.0}
        for name in self._from_top():
            parent = self.accounts[name].parent
            if parent is None:
                continue
            part = self._part(name)
            shares[name] = part * shares[parent]
            used = self._usage[name] / whole if whole else 0.0
            effective[name] = used if parent == ROOT else used + (effective[parent] - used) * part
        return {
            user: 2.0 ** (-(effective[user] / shares[user]) / damping) if shares[user] else 0.0 for user in self.users
        }

    def _rank(self, siblings: Sequence[str], ranked: list[list[str]], *, tied: bool) -> None:
        """Append the users below ``siblings`` in groups of equal rank. If ``tied``, the first group
        joins the last one.
        """
        levels: dict[float, list[str]] = {}
        for name in siblings:
            levels.setdefault(self._level(name), []).append(name)
        for value in sorted(levels, reverse=True):
            users = [name for name in levels[value] if self.accounts[name].is_user]
            if users and tied:
                ranked[-1] += users
            elif users:
                ranked.append(users)
            accounts = [name for name in levels[value] if not self.accounts[name].is_user]
            merged = [child for name in accounts for child in self._below.get(name, ())]
            if merged:
                self._rank(merged, ranked, tied=tied or bool(users))
            tied = False

    def _level(self, name: str) -> float:
        """Return the shares divided by the usage, both relative to the siblings."""
        parent = self.accounts[name].parent
        assert parent is not None
        above = self._usage[parent]
        used = self._usage[name] / above if above else 0.0
        return self._part(name) / used if used else inf

    def _part(self, name: str) -> float:
        whole = self._whole[self.accounts[name].parent]
        return self.accounts[name].shares / whole if whole else 0.0

    def _from_top(self) -> list[str]:
        order = [ROOT]
        for name in order:
            order += self._below.get(name, [])
        return order

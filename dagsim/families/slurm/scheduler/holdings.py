"""The resources that the owners of Slurm's limits currently hold, and the amounts that each of them
may still take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import floor, inf, log
from typing import NamedTuple, TypeAlias

from dagsim.model import Caps, Node
from dagsim.model.arithmetic import ordered_sum

SLACK = 1e-9


Holder: TypeAlias = tuple[str, ...]
"""A holder of resources: its kind and names, ``("user", "lab", "ada")``."""


class Amounts(NamedTuple):
    """The resources that one start takes. ``jobs`` is 1. ``nodes`` is 0 if their number is unknown
    before the start. ``limit_s`` is the job's time limit, which is needed only if a budget counts
    it.
    """

    gpus: float
    cpus: float
    memory_gb: float
    jobs: float = 1.0
    nodes: float = 0.0
    limit_s: float = 0.0

    def times(self, count: float) -> Amounts:
        """Return the amounts multiplied by ``count``."""
        return Amounts(*[amount * count for amount in self])._replace(limit_s=self.limit_s)


def of_nodes(amounts: Amounts, nodes: Sequence[Node]) -> Amounts:
    """Return the amounts for a job that does not share its nodes. The job takes all CPUs and GPUs
    of the nodes, and memory in proportion to the CPUs (DefMemPerCPU, ``--mem-per-cpu``).
    """
    cpus = ordered_sum(node.cpus for node in nodes)
    memory_gb = amounts.memory_gb * cpus / amounts.cpus if amounts.cpus else amounts.memory_gb
    gpus = ordered_sum(node.gpus for node in nodes)
    return Amounts(gpus, cpus, memory_gb, amounts.jobs, len(nodes), amounts.limit_s)


_HELD = ("gpus", "cpus", "memory_gb", "jobs")
"""Resources whose amounts are added up over runs. (For nodes, the number of different nodes
counts.)"""


_EMPTY = (0.0, 0.0, 0.0, 0.0)


class PastUse(NamedTuple):
    """The usage of a user's jobs in one account, QOS and partition before the simulation began, as
    resource-seconds for each resource, without decay (``full``) and with decay (``decayed``).
    """

    account: str
    user: str
    qos: str
    partition: str
    full: Mapping[str, float]
    decayed: Mapping[str, float]


class UsageBefore(NamedTuple):
    """The usage of all jobs that had ended when the simulation began, at time 0."""

    billed: Mapping[str, float] = {}
    """Billed seconds by ``account/user``."""
    resources: Sequence[PastUse] = ()
    """Seconds of the resources that budgets limit."""


class Budget:
    """A budget of resource-seconds. ``used`` is the holder's past usage, with decay if ``decays``
    is True. The holder's current runs may use more until their time limits."""

    def __init__(self, most_s: Mapping[str, float], *, decays: bool) -> None:
        self.most_s = dict(most_s)
        self.decays = decays
        self.used = dict.fromkeys(most_s, 0.0)
        self._runs: dict[int, tuple[Amounts, float, float]] = {}
        """The amounts of each run, until when its usage is counted, and the seconds left of its time limit."""
        self._booting: set[int] = set()

    def remember(self, past: PastUse) -> None:
        """Add usage that happened before the simulation began."""
        for name in self.used:
            self.used[name] += (past.decayed if self.decays else past.full).get(name, 0.0)

    def committed_s(self, name: str) -> float:
        """Return how much counts against the budget of a resource: the amount used so far, plus
        what current runs may still use until their time limits."""
        return self.used[name] + self._of_runs(name)

    def _of_runs(self, name: str) -> float:
        """Return what runs may still use of a resource until their time limits."""
        runs = self._runs.values()
        return ordered_sum([getattr(held, name) * max(0.0, left_s) for held, _, left_s in runs])

    def room(self, start: Amounts, *, safe: bool) -> float:
        """Return how many more starts with these amounts the budget allows. With ``safe``, each
        start counts with its full time limit. Otherwise, jobs may start until the budget is used
        up.
        """
        room = inf
        for name, most_s in self.most_s.items():
            amount = getattr(start, name)
            left = most_s - self.used[name]
            if not amount:
                continue
            if not safe:
                room = min(room, inf if left > 0 else 0.0)
                continue
            left -= self._of_runs(name)
            room = min(room, max(0.0, floor(left / (amount * start.limit_s) + SLACK)) if start.limit_s else inf)
        return room

    def after_s(self, start: Amounts, decay: float) -> float:
        """Return how many seconds older usage has to decay until the budget allows one start with
        these amounts, if no run ends in the meantime. The result is infinite if this never happens.
        """
        longest_s = 0.0
        for name, most_s in self.most_s.items():
            amount, used_s = getattr(start, name), self.used[name]
            left_s = most_s - self._of_runs(name) - amount * start.limit_s
            if not amount or used_s <= left_s:
                continue
            if left_s <= 0 or not self.decays or not 0 < decay < 1:
                return inf
            longest_s = max(longest_s, log(left_s / used_s) / log(decay))
        return longest_s

    def never(self, start: Amounts) -> bool:
        """Return True if the budget can never allow a start with these amounts, because usage does
        not decay."""
        used = [most_s - self.used[name] for name, most_s in self.most_s.items()]
        asked = [getattr(start, name) * start.limit_s for name in self.most_s]
        return not self.decays and any(amount > left for amount, left in zip(asked, used, strict=True))

    def begin(self, run: int, amounts: Amounts, now: float, *, boots: bool = False) -> None:
        """Record the start of a run. While its nodes boot, nothing is charged."""
        self._runs[run] = amounts, now, amounts.limit_s
        self._booting |= {run} if boots else set()

    def booted(self, run: int, now: float) -> None:
        """Charge a run from now on, because its nodes have booted."""
        self._booting.discard(run)
        held, _, left_s = self._runs[run]
        self._runs[run] = held, now, left_s

    def end(self, run: int, now: float) -> None:
        """Remove a run, and count its usage up to now."""
        held, at_s, _ = self._runs.pop(run)
        self._booting.discard(run)
        self._use(held, now - at_s)

    def charge(self, now: float, kept: float) -> None:
        """Charge all runs up to now, and multiply older usage by the fraction ``kept``."""
        for name in self.used if self.decays else ():
            self.used[name] *= kept
        for run, (held, at_s, left_s) in self._runs.items():
            seconds = 0.0 if run in self._booting else now - at_s
            self._use(held, seconds)
            self._runs[run] = held, now, left_s - seconds

    def _use(self, amounts: Amounts, seconds: float) -> None:
        for name in self.used:
            self.used[name] += getattr(amounts, name) * max(0.0, seconds)


class Holdings:
    """The resources that each holder uses, and the limits of each holder. The object can be
    deep-copied. A query, a start or an end takes O(holders of the job). With ``safe``, a job starts
    only if it would stay within the budgets even if it ran until its time limit
    (AccountingStorageEnforce)."""

    def __init__(self, *, safe: bool = True) -> None:
        self.most: dict[Holder, tuple[float, ...]] = {}
        """The limits of holders that have any, in the order of ``Amounts``."""
        self.most_nodes: dict[Holder, int] = {}
        """The number of different nodes that holders may use, where that is limited."""
        self.budgets: dict[Holder, Budget] = {}
        self._safe, self._charged_s = safe, 0.0
        self._held: dict[Holder, list[float]] = {}
        self._nodes: dict[Holder, dict[int, int]] = {}
        """For holders whose nodes are limited, the number of runs on each node."""
        self._runs: dict[int, tuple[tuple[Holder, ...], Amounts, tuple[int, ...]]] = {}
        self.freed: dict[Holder, None] = {}
        """Holders that have freed something since the last call."""
        self.limits_types = False
        """True if any limit is on GPUs of one type."""
        self._rooms: dict[tuple[int, Amounts], tuple[Sequence[Holder], tuple[float, Holder | None]]] = {}
        """Results of ``room`` by the identity of the holders, cached until a run starts or ends."""

    def limit(self, holder: Holder, caps: Caps, *, decays: bool = True) -> None:
        """Set the limits of a holder. A holder without limits is not stored."""
        self._rooms.clear()
        if caps:
            most = (caps.gpus, caps.cpus, caps.memory_gb, caps.jobs)
            self.most[holder] = tuple([inf if value is None else float(value) for value in most])
            self.limits_types = self.limits_types or bool(caps.gpus_of)
            for gpu, count in caps.gpus_of.items():
                self.most["gpus", gpu, *holder] = (float(count), inf, inf, inf)
            if caps.nodes is not None:
                self.most_nodes[holder] = caps.nodes
            if caps.minutes and holder not in self.budgets:
                most_s = {name: 60.0 * minutes for name, minutes in caps.minutes.items()}
                self.budgets[holder] = Budget(most_s, decays=decays)

    def room(self, holders: Sequence[Holder], start: Amounts) -> tuple[float, Holder | None]:
        """Return how many starts with these amounts the limits of all holders allow, and the holder
        with the tightest limit.
        """
        key = id(holders), start
        kept = self._rooms.get(key)
        if kept is not None:
            return kept[1]
        room, tightest = inf, None
        for holder in holders:
            most = self.most.get(holder)
            if most is None:
                continue
            held = self._held.get(holder, _EMPTY)
            for limit, has, amount in zip(most, held, start[:4], strict=True):
                if amount and limit < inf and (count := floor((limit - has) / amount + SLACK)) < room:
                    room, tightest = max(count, 0), holder
            budget = self.budgets.get(holder)
            if budget is not None and (starts := budget.room(start, safe=self._safe)) < room:
                room, tightest = starts, holder
        # ``key`` contains the id of ``holders``. A reference to ``holders`` keeps Python from
        # reusing the id.
        self._rooms[key] = holders, (room, tightest)
        return room, tightest

    def never(self, holder: Holder, start: Amounts) -> bool:
        """Return True if no start with these amounts can ever happen because the holder has used up
        a budget that does not decay.
        """
        return holder in self.budgets and self._safe and self.budgets[holder].never(start)

    def full_of_nodes(
        self, holders: Iterable[Holder], nodes: Collection[int], named: Collection[int] | None = None
    ) -> Holder | None:
        """Return a holder whose runs and this start would together use more different nodes than
        its limit allows, or None if there is none. Until Slurm has allocated nodes, it counts all
        nodes of the start as new ones, except those that the job has ``named``
        (``_get_unique_job_node_cnt`` in acct_policy.c).
        """
        for holder in holders:
            most = self.most_nodes.get(holder)
            if most is None:
                continue
            held = self._nodes.get(holder, {}).keys()
            if len(held) + len(nodes) - len(held & set(nodes if named is None else named)) > most:
                return holder
        return None

    def used_up(self, holders: Iterable[Holder], start: Amounts) -> Iterator[tuple[Holder, str, float]]:
        """Yield each limit that does not allow another start with these amounts, as a holder, a
        resource and the limit's value. Limits on nodes count every node of the start as a new one,
        because Slurm does so until it has chosen the nodes.
        """
        for holder in holders:
            held = self._held.get(holder, _EMPTY)
            for name, limit, has, amount in zip(_HELD, self.most.get(holder, ()), held, start, strict=False):
                if amount and has + amount > limit + SLACK * amount:
                    yield holder, name, limit
            if start.nodes and len(self._nodes.get(holder, ())) + start.nodes > self.most_nodes.get(holder, inf):
                yield holder, "nodes", float(self.most_nodes[holder])
            budget = self.budgets.get(holder)
            if budget is not None and not budget.room(start, safe=self._safe):
                for name, most_s in budget.most_s.items():
                    yield holder, f"{name} minutes", most_s / 60

    def held(self, holder: Holder, what: str) -> float:
        """Return how much of a resource a holder has in use. For a limit on resource-minutes, this
        is the number of minutes that the holder has used, plus those that its runs may still use.
        """
        resource, _, minutes = what.partition(" ")
        if minutes:
            return self.budgets[holder].committed_s(resource) / 60
        if resource == "nodes":
            return float(len(self._nodes.get(holder, ())))
        return self._held.get(holder, _EMPTY)[_HELD.index(resource)]

    def runs_of(self, holder: Holder) -> tuple[int, ...]:
        """Return the ids of a holder's runs."""
        return tuple([run for run, (holders, *_) in self._runs.items() if holder in holders])

    def ever(self, holders: Iterable[Holder], start: Amounts) -> bool:
        """Return True if the limits would allow a start with these amounts if the holders used
        nothing else."""
        return not any(self.exceeded(holders, start))

    def exceeded(self, holders: Iterable[Holder], start: Amounts) -> Iterator[tuple[Holder, str, float, float]]:
        """Yield each limit that a single start with these amounts exceeds, as a holder, a resource,
        the limit's value and the amount.
        """
        for holder in holders:
            for name, limit, amount in zip(_HELD, self.most.get(holder, ()), start, strict=False):
                if amount > limit + SLACK:
                    yield holder, name, limit, amount
            if start.nodes > self.most_nodes.get(holder, inf):
                yield holder, "nodes", self.most_nodes[holder], start.nodes
            budget = self.budgets.get(holder)
            for name, most_s in budget.most_s.items() if budget is not None and self._safe else ():
                if (used_s := getattr(start, name) * start.limit_s) > most_s + SLACK:
                    yield holder, f"{name} minutes", most_s / 60, used_s / 60

    def take(
        self,
        run: int,
        holders: Sequence[Holder],
        amounts: Amounts,
        nodes: tuple[int, ...] = (),
        now: float = 0.0,
        *,
        boots: bool = False,
    ) -> None:
        """Record what a run on ``nodes`` holds. The nodes may have to boot first. Do nothing if the
        run has already been added."""
        limited = tuple([holder for holder in holders if holder in self.most])
        if not limited or run in self._runs:
            return
        self._runs[run] = limited, amounts, nodes
        self._rooms.clear()
        for holder in limited:
            held = self._held.setdefault(holder, [0.0, 0.0, 0.0, 0.0])
            for place, amount in enumerate(amounts[:4]):
                held[place] += amount
            if holder in self.most_nodes:
                counts = self._nodes.setdefault(holder, {})
                for node in nodes:
                    counts[node] = counts.get(node, 0) + 1
            if holder in self.budgets:
                self.budgets[holder].begin(run, amounts, now, boots=boots)

    def booted(self, run: int, now: float) -> None:
        """Record that the nodes of a run have booted."""
        self._rooms.clear()
        for holder in self._runs.get(run, ((),))[0]:
            if holder in self.budgets:
                self.budgets[holder].booted(run, now)

    def give(self, run: int, now: float = 0.0) -> None:
        """Release what a run holds."""
        limited, amounts, nodes = self._runs.pop(run, ((), Amounts(0, 0, 0), ()))
        self._rooms.clear()
        for holder in limited:
            held = self._held[holder]
            for place, amount in enumerate(amounts[:4]):
                held[place] -= amount
            if held[3] < 0.5:  # no run is left, so remove the sums, which contain only rounding errors
                del self._held[holder]
            if holder in self.most_nodes:
                counts = self._nodes[holder]
                for node in nodes:
                    counts[node] -= 1
                    if not counts[node]:
                        del counts[node]
            if holder in self.budgets:
                self.budgets[holder].end(run, now)
            self.freed[holder] = None

    def charge(self, now: float, decay: float) -> None:
        """Charge all budgets with the usage up to now. Older usage decays by the factor ``decay``
        per second.
        """
        kept, self._charged_s = decay ** max(0.0, now - self._charged_s), now
        for holder, budget in self.budgets.items():
            budget.charge(now, kept)
            self.freed[holder] = None
        self._rooms.clear()

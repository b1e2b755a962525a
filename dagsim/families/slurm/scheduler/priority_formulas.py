"""Slurm's multifactor priority: the formula for a single job, and the tree of accounts with their
shares and usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, trunc
from typing import NamedTuple

from dagsim.errors import ConfigError, require
from dagsim.model.arithmetic import ordered_sum

ROOT = "root"


class Account(NamedTuple):
    """A node of the account tree. It is an account or, with ``is_user``, the association of a user
    with an account."""

    name: str
    parent: str | None
    shares: float
    is_user: bool = False


class Factors(NamedTuple):
    """The factors of a job's priority, each from 0 to 1."""

    age: float = 0.0
    assoc: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each factor. ``tres`` contains one weight per resource (``cpu``, ``mem``,
    ``gres/gpu``)."""

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
    """Return the sum of all factors, each multiplied by its weight, minus ``nice``. Slurm truncates
    this value. ``tres`` contains the requested share of the whole cluster for each resource.
    """
    fixed = weights.assoc * factors.assoc + weights.job_size * factors.job_size
    fixed += weights.partition * factors.partition + weights.qos * factors.qos
    fixed += ordered_sum([weight * tres.get(name, 0.0) for name, weight in weights.tres.items()]) - nice
    return fixed + weights.age * factors.age + weights.fair_share * factors.fair_share  # changing factors last


def truncated(priority: float) -> int:
    """Return the priority as Slurm stores and displays it."""
    return max(0, trunc(priority))


def age(waited_s: float, max_age_s: float) -> float:
    """Return the age factor: the time since the job became eligible, as a fraction of ``max_age_s``,
    at most 1.
    """
    return min(1.0, max(0.0, waited_s) / max_age_s)


def job_size(
    nodes: float, cpus: float, all_nodes: float, all_cpus: float, limit_minutes: float, *, small: bool, relative: bool
) -> float:
    """Return a job's size factor. With ``small`` (PriorityFavorSmall), the factor is larger for
    smaller jobs. With ``relative``, a job's size is divided by its time limit
    (SMALL_RELATIVE_TO_TIME).
    """
    if relative:
        size = max(nodes * all_cpus / all_nodes, cpus) / limit_minutes / all_cpus
        return 1.0 - size if small else size
    if small:
        return ((all_nodes - nodes) / all_nodes + (all_cpus - cpus) / all_cpus) / 2
    return (nodes / all_nodes + cpus / all_cpus) / 2


def billing(amounts: Mapping[str, float], weights: Mapping[str, float], *, largest: bool = False) -> float:
    """Return what a job is charged per second, not rounded: the sum of all amounts multiplied by
    their weights, or only the largest of these products (MAX_TRES). Without weights, a job is
    charged for its CPUs.
    """
    terms = [amounts.get(name, 0.0) * weight for name, weight in weights.items()]
    return (max if largest else sum)(terms) if terms else amounts.get("cpu", 0.0)


def decay_per_second(half_life_s: float) -> float:
    """Return the factor by which past usage decays in one second. Slurm uses 1 - 0.693 / half-life,
    which is not exactly 2^(-1 / half-life).
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
            raise ConfigError(f"exactly one account, {ROOT!r}, must be the ancestor of all others")
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
        """The usage of each account and user, with decay."""
        if self._passed_s:
            left, self._passed_s = self._decay**self._passed_s, 0.0
            for name in self._usage:
                self._usage[name] *= left
        return self._usage

    def as_charged(self) -> tuple[dict[str, float], float]:
        """Return a copy of the usage as of the last charge, together with the seconds that have
        passed since then."""
        return dict(self._usage), self._passed_s

    def add(self, account: Account) -> None:
        """Add an account or a user that appears during the simulation.

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
        """Charge what a job used in the last ``seconds`` to its user and to all accounts above the
        user."""
        if seconds < 1:
            return
        self.add_usage(user, rate * seconds * self._decay**seconds)

    def add_usage(self, user: str, amount: float) -> None:
        """Add usage to a user and to all accounts above the user."""
        usage = self.usage
        name: str | None = user
        while name is not None:
            usage[name] += amount
            name = self.accounts[name].parent

    def pass_time(self, seconds: float) -> None:
        """Decay all usage. The decay is not applied before the next charge. Factors are ratios
        of usage, so the delay does not change them. It makes the result independent of the steps
        into which time is divided.
        """
        self._passed_s += seconds

    def fair_tree(self) -> dict[str, float]:
        """Return each user's factor by Fair Tree: the user's rank divided by the number of users.
        The last user has rank 1.

        Siblings are sorted by shares / usage, largest first. Tied users share a rank, and the
        children of tied accounts are ranked together. If an account ties with a user, the first
        user below the account shares the rank of that user.
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
        """Return each user's factor by the classic formula, 2^(-(effective usage / shares) / damping).

        All usage is current, as the documentation states. (slurmctld itself uses the accounts'
        usage as of its last calculation.)
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
        """Append the users below ``siblings`` in groups of equal rank. With ``tied``, merge the
        first of these groups into the last group of ``ranked``.
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
        """Return the level fair share of an account or user: its fraction of the shares of all
        siblings, divided by its fraction of their usage."""
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

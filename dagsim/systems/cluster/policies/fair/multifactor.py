"""Slurm's multifactor priority: its factors, decayed usage, and fair share over a tree of accounts.

Formulas of the documentation (priority_multifactor, fair_tree, classic_fair_share), with what was measured on Slurm
22.05.8 and 24.11.5 where that says it more exactly: the decay of a second, unrounded billing, truncated totals. Pure
functions and one table of usage; no policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, trunc
from typing import NamedTuple

from dagsim.errors import ConfigError

__all__ = [
    "Account",
    "Factors",
    "ShareTree",
    "Weights",
    "age",
    "billing",
    "decay_per_second",
    "job_size",
    "total_priority",
    "truncated",
]

ROOT = "root"


class Account(NamedTuple):
    """A node of the tree: an account, or (``is_user``) the association of a user with one."""

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
    """The weight of each factor; ``tres`` by resource (``cpu``, ``mem``, ``gres/gpu``)."""

    age: float = 0.0
    assoc: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    tres: Mapping[str, float] = field(default_factory=dict)


def total_priority(factors: Factors, weights: Weights, tres: Mapping[str, float], nice: float = 0.0) -> float:
    """The sum of weights x factors less ``nice``; Slurm keeps it truncated. ``tres``: requested / in the cluster."""
    fixed = weights.assoc * factors.assoc + weights.job_size * factors.job_size
    fixed += weights.partition * factors.partition + weights.qos * factors.qos
    fixed += sum([weight * tres.get(name, 0.0) for name, weight in weights.tres.items()]) - nice
    return fixed + weights.age * factors.age + weights.fair_share * factors.fair_share  # the two that change, last


def truncated(priority: float) -> int:
    """The priority as Slurm keeps and shows it."""
    return max(0, trunc(priority))


def age(waited_s: float, max_age_s: float) -> float:
    """The time since the job became eligible, of the greatest that counts."""
    return min(1.0, max(0.0, waited_s) / max_age_s)


def job_size(
    nodes: float, cpus: float, all_nodes: float, all_cpus: float, limit_minutes: float, *, small: bool, relative: bool
) -> float:
    """The size factor of a job; with ``small`` (PriorityFavorSmall) smaller jobs have more; ``relative`` to its limit
    (SMALL_RELATIVE_TO_TIME)."""
    if relative:
        size = max(nodes * all_cpus / all_nodes, cpus) / limit_minutes / all_cpus
        return 1.0 - size if small else size
    if small:
        return ((all_nodes - nodes) / all_nodes + (all_cpus - cpus) / all_cpus) / 2
    return (nodes / all_nodes + cpus / all_cpus) / 2


def billing(amounts: Mapping[str, float], weights: Mapping[str, float], *, largest: bool = False) -> float:
    """The usage of a second of a job: the sum of amount x weight, or the largest (MAX_TRES); not rounded. Without
    weights it is the CPUs."""
    terms = [amounts.get(name, 0.0) * weight for name, weight in weights.items()]
    return (max if largest else sum)(terms) if terms else amounts.get("cpu", 0.0)


def decay_per_second(half_life_s: float) -> float:
    """The part of past usage that a second leaves: 1 - 0.693 / half-life in Slurm, which is not quite 2^(-1 /
    half-life)."""
    return 1.0 - 0.693 / half_life_s if half_life_s else 1.0


class ShareTree:
    """Accounts and users with their shares and their decayed usage."""

    def __init__(self, accounts: Sequence[Account], decay: float) -> None:
        self.accounts = {each.name: each for each in accounts}
        self.usage = dict.fromkeys(self.accounts, 0.0)
        self._decay = decay
        self._below: dict[str | None, list[str]] = {}
        for each in accounts:
            if each.parent is not None and each.parent not in self.accounts:
                raise ConfigError(f"account {each.name!r}: there is no account {each.parent!r} above it")
            self._below.setdefault(each.parent, []).append(each.name)
        if self._below.get(None) != [ROOT]:
            raise ConfigError(f"one account, {ROOT!r}, must stand above all others")
        self.users = [each.name for each in accounts if each.is_user]
        self._whole = {above: sum(self.accounts[each].shares for each in below) for above, below in self._below.items()}
        """The shares of all children together, by what stands above them."""

    def add(self, account: Account) -> None:
        """Take in an account or a user that turned up later.

        Raises:
            ConfigError: There is no account above it.
        """
        if account.parent not in self.accounts:
            raise ConfigError(f"account {account.name!r}: there is no account {account.parent!r} above it")
        self.accounts[account.name] = account
        self.usage[account.name] = 0.0
        self._below.setdefault(account.parent, []).append(account.name)
        self._whole[account.parent] = self._whole.get(account.parent, 0.0) + account.shares
        if account.is_user:
            self.users.append(account.name)

    def charge(self, user: str, rate: float, seconds: float) -> None:
        """Add a job's use in the last ``seconds`` to its user and all accounts above."""
        if seconds < 1:
            return
        amount, name = rate * seconds * self._decay**seconds, user
        while name is not None:
            self.usage[name] += amount
            name = self.accounts[name].parent  # type: ignore[assignment]

    def pass_time(self, seconds: float) -> None:
        """Let all usage decay."""
        left = self._decay**seconds
        for name in self.usage:
            self.usage[name] *= left

    def fair_tree(self) -> dict[str, float]:
        """The factor of each user by Fair Tree: its rank from the last (1) to the first, over the number of users.

        Siblings go by shares / usage, largest first; users that tie share a rank, accounts that tie are merged, and the
        first of an account that ties with a user shares the user's.
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
        """The factor of each user by the classic formula, 2^(-(effective usage / shares) / damping).

        By the present usage of all, as the documentation has it; slurmctld takes that of accounts from its last round.
        """
        whole = self.usage[ROOT]
        effective, shares = {ROOT: 1.0}, {ROOT: 1.0}
        for name in self._from_top():
            parent = self.accounts[name].parent
            if parent is None:
                continue
            part = self._part(name)
            shares[name] = part * shares[parent]
            used = self.usage[name] / whole if whole else 0.0
            effective[name] = used if parent == ROOT else used + (effective[parent] - used) * part
        return {
            user: 2.0 ** (-(effective[user] / shares[user]) / damping) if shares[user] else 0.0 for user in self.users
        }

    def _rank(self, siblings: Sequence[str], ranked: list[list[str]], *, tied: bool) -> None:
        """Append the users below ``siblings`` in groups of one rank; the first group, if ``tied``, to the last one."""
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
        """Shares among its siblings over usage among them."""
        parent = self.accounts[name].parent
        assert parent is not None
        above = self.usage[parent]
        used = self.usage[name] / above if above else 0.0
        return self._part(name) / used if used else inf

    def _part(self, name: str) -> float:
        whole = self._whole[self.accounts[name].parent]
        return self.accounts[name].shares / whole if whole else 0.0

    def _from_top(self) -> list[str]:
        order = [ROOT]
        for name in order:
            order += self._below.get(name, [])
        return order

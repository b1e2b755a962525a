"""The terms of a submission to a batch system: where a job may run, and what it must share or not."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from dagsim.errors import ModelError

__all__ = ["Request", "satisfies"]


@dataclass(frozen=True, slots=True)
class Request:
    """Terms of a job's submission beyond its resources.

    - ``constraint`` is an expression over features of nodes, as in Slurm: ``skl``, ``a100|v100``,
      ``icl&!nvl``. Each node of the job must satisfy it.
    - ``partitions`` are all partitions that the job may run in, if there are several.
    - ``reservation`` names the reservation in which it runs.
    - ``licences`` are pairs of a name and a number, held while the job runs.
    - ``exclusive``: it shares no node.
    - ``spread`` is True if every instance takes a node of its own, False if instances may share nodes,
      None if unknown.
    - ``array`` is its job array; at most ``array_limit`` tasks of the array run at a time.
    - ``after`` are ids of jobs and arrays that have to leave before the job is eligible.
    - ``level`` is a level of the network's topology (``rack``, ``pod``; ``host`` for one node): each gang
      of the job must lie within one domain of it, or should if it is not ``level_required``.
    - ``segment`` splits a gang into segments of that many instances, for the placement ``block``: each
      lies within one domain of the level, by default the narrowest. Then the whole gang need not.

    Raises:
        ModelError: The constraint cannot be read, or a number is below 1.
    """

    constraint: str = ""
    partitions: tuple[str, ...] = ()
    reservation: str = ""
    licences: tuple[tuple[str, int], ...] = ()
    exclusive: bool = False
    spread: bool | None = None
    array: str = ""
    array_limit: int | None = None
    after: tuple[str, ...] = ()
    level: str = ""
    level_required: bool = True
    segment: int | None = None

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.constraint:
            _parsed(self.constraint)
        limits = [("array_limit", self.array_limit), ("segment", self.segment)]
        for what, count in (*self.licences, *[(what, count) for what, count in limits if count is not None]):
            if not count >= 1:
                raise ModelError(f"request: {what} must be 1 or more, got {count!r}")

    def __bool__(self) -> bool:
        return self != _NOTHING


_NOTHING = Request()


def satisfies(constraint: str, features: Collection[str]) -> bool:
    """True if a node with these features satisfies the constraint (sbatch(1), ``--constraint``):
    ``&`` for and, ``|`` for or, ``!`` for not, and parentheses. A count, ``a*2``, holds for each
    node here, and brackets, ``[a|b]``, are read as parentheses.

    Raises:
        ModelError: The constraint cannot be read.
    """
    return _parsed(constraint)(frozenset(features))


_Test: TypeAlias = Callable[[frozenset[str]], bool]
_TOKEN = re.compile(r"\s*(?:([&,|!()\[\]])|([^\s&,|!()\[\]*]+)(?:\*\d+)?)")


@lru_cache(maxsize=1 << 10)
def _parsed(constraint: str) -> _Test:
    tokens: list[str] = []
    at = 0
    while at < len(constraint.rstrip()):
        match = _TOKEN.match(constraint, at)
        if match is None:
            raise ModelError(f"constraint {constraint[:80]!r}: cannot be read at {constraint[at : at + 20]!r}")
        tokens.append(match[1] or match[2])
        at = match.end()
    tokens.reverse()

    def any_of() -> _Test:
        tests = [all_of()]
        while tokens and tokens[-1] == "|":
            tokens.pop()
            tests.append(all_of())
        return tests[0] if len(tests) == 1 else lambda features: any(test(features) for test in tests)

    def all_of() -> _Test:
        tests = [one()]
        while tokens and tokens[-1] in "&,":
            tokens.pop()
            tests.append(one())
        return tests[0] if len(tests) == 1 else lambda features: all(test(features) for test in tests)

    def one() -> _Test:
        token = tokens.pop() if tokens else ""
        if token == "!":
            test = one()
            return lambda features: not test(features)
        if token in ("(", "["):
            test = any_of()
            if not tokens or tokens.pop() != {"(": ")", "[": "]"}[token]:
                raise ModelError(f"constraint {constraint[:80]!r}: a bracket is not closed")
            return test
        if not token or token in "&,|)]":
            raise ModelError(f"constraint {constraint[:80]!r}: a feature is missing before {token or 'the end'!r}")
        return lambda features: token in features

    test = any_of()
    if tokens:
        raise ModelError(f"constraint {constraint[:80]!r}: unexpected {tokens[-1]!r}")
    return test

"""Constraints of jobs on the features of nodes, in the syntax of sbatch(1), ``--constraint``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from dagsim.errors import ModelError, NestedTooDeeply


def satisfies(constraint: str, features: Collection[str]) -> bool:
    """Return True if the constraint allows a node with these features to be one of a job's nodes.
    The syntax is that of sbatch(1), ``--constraint``: ``&`` is and, ``|`` is or, ``!`` is not, and
    parentheses group. In brackets, each alternative is allowed. In ``[a|b]``, all nodes of the job
    must satisfy the same alternative (``ways``), whereas in ``[a*2&b*2]`` they need not. A count
    outside brackets, such as ``a*2``, refers to some of the job's nodes (``counts_of``) and does
    not restrict any single node.

    Raises:
        ModelError: The constraint cannot be read.
    """
    return parsed_constraint(constraint).allows(frozenset(features))


def ways(constraint: str) -> tuple[str, ...]:
    """Return the alternatives in a constraint, which are constraints themselves. All nodes of a job
    must satisfy the same alternative. For ``[r1|r2]&skl``, the alternatives are ``(r1)&skl`` and
    ``(r2)&skl``. A constraint without such brackets is its only alternative.

    Raises:
        ModelError: The constraint cannot be read.
    """
    return parsed_constraint(constraint).ways


class Counted(NamedTuple):
    """A part of a constraint, and the smallest number of a job's nodes (``nodes``) that must
    satisfy it. If ``apart``, a node that counts for another part does not count here.
    """

    constraint: str
    nodes: int
    apart: bool


def counts_of(constraint: str) -> tuple[Counted, ...] | None:
    """Return the parts of a constraint that count nodes. In ``[a*2&b*2]``, the parts count separate
    nodes. Return None if the parts are alternatives, as in ``[a*2|b*4]``, which is not modelled.

    Raises:
        ModelError: The constraint cannot be read.
    """
    counts = parsed_constraint(constraint).counts
    if not counts:
        return ()
    counted = _COUNTED.findall(constraint)
    beside = _COUNTED.sub("", constraint)
    if "|" in beside or len(counted) != len(counts):
        return None
    return tuple([Counted(part, int(number), "[" in beside) for part, number in counted])


def without_counts(constraint: str, nodes: int) -> str:
    """Return an equivalent constraint without counts that equal ``nodes``, the number of the job's
    nodes. For a job with four nodes, ``a*4`` becomes ``a``, because each node must satisfy ``a``.
    Smaller counts are kept.

    Raises:
        ModelError: The constraint cannot be read.
    """
    if "*" not in constraint:
        return constraint
    counts = parsed_constraint(constraint).counts
    return _COUNT.sub(lambda count: "" if int(count[1]) >= nodes and len(counts) == 1 else count[0], constraint)


_Test: TypeAlias = Callable[[frozenset[str]], bool]
_TOKEN = re.compile(r"\s*(?:([&,|!()\[\]])|\*(\d{1,6})|([^\s&,|!()\[\]*]+))")
_COUNT = re.compile(r"\*(\d{1,6})")
_COUNTED = re.compile(r"([^\s&,|!()\[\]*]+|\([^()]*\))\*(\d{1,6})")
_DEEPEST = 64
"""Maximum number of nested brackets and negations. A constraint with more is rejected."""


class ParsedConstraint(NamedTuple):
    """A parsed constraint: the test of a node's features, the alternatives (``ways``), and the
    numbers of nodes that it contains (``counts``).
    """

    allows: _Test
    ways: tuple[str, ...]
    counts: tuple[int, ...]


@lru_cache(maxsize=1 << 10)
def parsed_constraint(constraint: str) -> ParsedConstraint:
    """Parse a constraint, or return the cached result for an equal text.

    Raises:
        ModelError: The constraint cannot be read.
    """
    tokens = _tokens(constraint)
    counts = tuple([int(token[1:]) for token in tokens if token[0] == "*"])
    alternatives = _alternatives(tokens) if tokens.count("[") == 1 and not counts else ()
    return ParsedConstraint(_Parser(constraint, tokens).test(), alternatives or (constraint,), counts)


def _tokens(constraint: str) -> list[str]:
    """Split a constraint into features, operators, brackets and counts (``*2``)."""
    tokens: list[str] = []
    at = 0
    while at < len(constraint.rstrip()):
        match = _TOKEN.match(constraint, at)
        if match is None:
            raise ModelError(f"constraint {constraint[:80]!r}: cannot be read at {constraint[at : at + 20]!r}")
        tokens.append(match[1] or (f"*{match[2]}" if match[2] else match[3]))
        at = match.end()
    return tokens


class _Parser:
    """A recursive-descent parser for the tokens of a constraint."""

    def __init__(self, constraint: str, tokens: Sequence[str]) -> None:
        self._name = f"constraint {constraint[:80]!r}"
        self._left = list(reversed(tokens))

    def test(self) -> _Test:
        """Return the test of the whole constraint."""
        test = self._any_of(0, False)
        if self._left:
            raise ModelError(f"{self._name}: unexpected {self._left[-1]!r}")
        return test

    def _any_of(self, depth: int, bracketed: bool) -> _Test:
        tests = [self._all_of(depth, bracketed)]
        while self._takes("|"):
            tests.append(self._all_of(depth, bracketed))
        return tests[0] if len(tests) == 1 else lambda features: any(test(features) for test in tests)

    def _all_of(self, depth: int, bracketed: bool) -> _Test:
        tests: list[_Test] = []
        counted: list[_Test] = []
        while True:
            test, is_counted = self._one(depth, bracketed)
            (counted if is_counted else tests).append(test)
            if not self._takes("&") and not self._takes(","):
                break
        if counted and bracketed:  # in [a*2&b*2], a node needs only one of the two features
            tests.append(lambda features: any(test(features) for test in counted))
        return tests[0] if len(tests) == 1 else lambda features: all(test(features) for test in tests)

    def _one(self, depth: int, bracketed: bool) -> tuple[_Test, bool]:
        """Return the test of one part, and whether the part has a count."""
        if depth > _DEEPEST:
            raise NestedTooDeeply(f"{self._name}: nested too deeply")
        token = self._left.pop() if self._left else ""
        if token == "!":
            test, _ = self._one(depth + 1, bracketed)
            return lambda features: not test(features), False
        if token in ("(", "["):
            test = self._any_of(depth + 1, bracketed or token == "[")
            if not self._takes({"(": ")", "[": "]"}[token]):
                raise ModelError(f"{self._name}: a bracket is not closed")
        elif not token or token in "&,|)]" or token[0] == "*":
            before = repr(token) if token else "the end"
            raise ModelError(f"{self._name}: a feature is missing before {before}")
        else:
            test = _has(token)
        return test, self._takes("*")

    def _takes(self, first: str) -> bool:
        """Remove the next token if it begins with ``first``. Return True if it does."""
        begins = bool(self._left) and self._left[-1][0] == first
        if begins:
            self._left.pop()
        return begins


def _has(feature: str) -> _Test:
    return lambda features: feature in features


def _alternatives(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return the alternatives in the only pair of brackets. Each is combined with the text around
    the brackets.
    """
    if "]" not in tokens:
        return ()
    first, last = tokens.index("["), tokens.index("]")
    inside, depth, parts = tokens[first + 1 : last], 0, [""]
    for token in inside:
        depth += (token == "(") - (token == ")")
        if token == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += token
    before, after = "".join(tokens[:first]), "".join(tokens[last + 1 :])
    return tuple([f"{before}({part}){after}" for part in parts]) if len(parts) > 1 else ()

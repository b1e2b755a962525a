"""Words for comparisons: better, worse, not told apart; and Holm's care for a table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite, isnan, nan

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import Floats
from dagsim.metrics.compare import Paired, log_ratios, paired
from dagsim.metrics.intervals import SAME

__all__ = ["ENOUGH_SEEDS", "ENOUGH_WINDOWS", "Row", "Verdict", "alike", "compared", "holm", "verdict", "words"]

ENOUGH_SEEDS = 5
"""Fewer give no verdict: no two-sided interval holds 95 % without assumptions."""
ENOUGH_WINDOWS = 100
"""Fewer windows of a real trace give approximate intervals: those of means cover too little."""


class Verdict(StrEnum):
    """The answer of a comparison to "is it better?"."""

    BETTER = "better"
    WORSE = "worse"
    NOT_TOLD_APART = "not told apart"
    IDENTICAL = "identical"
    CONSTANT = "the same ratio"
    TOO_FEW = "too few seeds"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table of comparisons with a fixed reference."""

    pair: Paired
    p: float
    """Holm's, over all rows of the table; NaN where there is nothing to test."""
    alike: tuple[str, ...]
    """Other rows, the reference too, with the same values on every seed; together they are one comparison."""


def compared(
    rows: Mapping[str, Sequence[float] | Floats],
    reference: str,
    level: float = 0.95,
    *,
    seeds: Sequence[int] | None = None,
) -> dict[str, Row]:
    """All rows but the reference against it, with Holm's p over what differs.

    The reference must be fixed beforehand: the best row of the same table is no fair one.

    Raises:
        InputError: There is no such row, or what ``paired`` refuses.
    """
    if reference not in rows:
        raise InputError(f"comparison: there is no row {reference!r} among {', '.join(rows)}")
    others = [name for name in rows if name != reference]
    base = rows[reference]
    pairs = {name: paired(rows[name], base, level, seeds=seeds, names=(name, reference)) for name in others}
    logs = {name: log_ratios(rows[name], base, seeds=seeds, names=(name, reference)) for name in others}
    groups = alike(logs)
    adjusted = holm([pairs[group[0]].p for group in groups])
    p_of = {name: p for group, p in zip(groups, adjusted, strict=True) for name in group}
    group_of = {name: group for group in groups for name in group}
    return {
        name: Row(
            pairs[name],
            p_of[name],
            tuple(other for other in group_of[name] if other != name)
            + ((reference,) if pairs[name].is_identical else ()),
        )
        for name in others
    }


def alike(logs: Mapping[str, Floats]) -> list[tuple[str, ...]]:
    """Names grouped by equal logs, in order of appearance."""
    groups: list[list[str]] = []
    for name, values in logs.items():
        home = next((group for group in groups if np.max(np.abs(logs[group[0]] - values)) <= SAME), None)
        if home is None:
            groups.append([name])
        else:
            home.append(name)
    return [tuple(group) for group in groups]


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given; a NaN is no comparison and stays NaN (Holm 1979)."""
    known = sorted((value, place) for place, value in enumerate(p) if not isnan(value))
    adjusted, largest = [nan] * len(p), 0.0
    for passed, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - passed) * value))
        adjusted[place] = largest
    return adjusted


def verdict(pair: Paired, p: float | None = None, *, lower_is_better: bool = True) -> Verdict:
    """The verdict on one comparison; ``p`` is Holm's where it stands in a table."""
    if pair.is_identical:
        return Verdict.IDENTICAL
    if pair.n < ENOUGH_SEEDS:
        return Verdict.TOO_FEW
    if pair.is_constant:
        return Verdict.CONSTANT
    if not (pair.p if p is None else p) < 1 - pair.level:
        return Verdict.NOT_TOLD_APART
    return Verdict.BETTER if (pair.ratio < 1) == lower_is_better else Verdict.WORSE


def words(pair: Paired, p: float | None = None, *, unit: str = "seed", lower_is_better: bool = True) -> str:
    """The verdict as a person reads it: ``better; in 18 of 20 seeds``.

    ``unit`` is ``seed``, or ``window`` for a real trace, whose intervals are approximate below 100 windows.
    """
    found = verdict(pair, p, lower_is_better=lower_is_better)
    units = f"{pair.n} {unit}{'' if pair.n == 1 else 's'}"
    if found is Verdict.IDENTICAL:
        return f"identical in {units}"
    wins = pair.wins if lower_is_better else pair.differ - pair.wins
    parts = [_sentence(found, pair, unit), f"better in {wins} of {units}"]
    if found is Verdict.TOO_FEW:
        return "; ".join(parts)
    if pair.is_decided_by_few:
        parts.append(f"a few {unit}s decide")
    if unit == "window" and pair.n < ENOUGH_WINDOWS and isfinite(pair.low):
        parts.append("approximate")
    return "; ".join(parts)


def _sentence(found: Verdict, pair: Paired, unit: str) -> str:
    match found:
        case Verdict.TOO_FEW:
            return f"too few {unit}s for a verdict"
        case Verdict.CONSTANT:
            return f"{pair.ratio:.4g} times in every {unit}"
        case Verdict.NOT_TOLD_APART:
            could = f"{100 * (pair.low - 1):+.1f} % to {100 * (pair.high - 1):+.1f} %"
            alone = pair.p < 1 - pair.level  # Holm takes the difference back, and the row's own interval leaves 1 out
            return f"not told apart in this table (alone: {could})" if alone else f"not told apart (could be {could})"
        case _:
            return found.value

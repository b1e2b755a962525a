"""The cells of a sweep compared: within each group that differs in one axis alone, with Holm's care over all groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, NamedTuple

from dagsim.experiment.sweep.axes import Axis, short_names
from dagsim.experiment.sweep.folder import CellLine
from dagsim.metrics.compare import holm
from dagsim.metrics.standings import PolicyResult, Sample, standings

__all__ = ["CellGroup", "compared_axis", "grouped_standings"]


@dataclass(frozen=True, slots=True)
class CellGroup:
    """Cells that differ in the compared axis and the seed alone."""

    at: Mapping[str, str]
    """The labels that they have in common, by short names of the other axes."""
    standings: tuple[PolicyResult, ...]
    """A row for each value of the compared axis, best first; empty where not all of them are finished on a seed."""
    metrics: Mapping[str, Mapping[str, float]]
    """By label the means of all metrics."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, safe for JSON."""
        return {"at": dict(self.at), "standings": [each.to_dict() for each in self.standings]}


class _Row(NamedTuple):
    """A cell as ``standings`` takes it: its label on the compared axis in the place of the policy."""

    policy: str
    seed: int
    metrics: Mapping[str, Any]


def compared_axis(axes: Sequence[Axis]) -> Axis:
    """The axis whose values are put side by side: the policies, or else the first that has several values."""
    several = [axis for axis in axes if len(axis.values) > 1] or list(axes)
    return next((axis for axis in several if axis.key == "policy"), several[0])


def grouped_standings(
    lines: Sequence[CellLine],
    axes: Sequence[Axis],
    metric: str,
    sample: Sample = Sample.SEED,
    reference: str | None = None,
) -> list[CellGroup]:
    """The groups of the finished cells, in the order of the grid; each is compared with its first label, or with
    ``reference``.

    Raises:
        InputError: There is no such metric or reference.
    """
    axis = compared_axis(axes)
    others = [each for each in axes if each is not axis]
    names = short_names([each.key for each in others])
    by_group: dict[tuple[str, ...], list[_Row]] = {}
    for line in lines:
        key = tuple(line.at[each.key] for each in others)
        by_group.setdefault(key, []).append(_Row(line.at[axis.key], line.seed, line.metrics))
    ordered = sorted(by_group, key=lambda key: [each.labels.index(at) for each, at in zip(others, key, strict=True)])
    groups = []
    for key in ordered:
        rows = _paired_only(by_group[key], axis)
        ranked = standings(rows, metric, reference or axis.labels[0], sample) if rows else []
        at = {names[each.key]: label for each, label in zip(others, key, strict=True)}
        groups.append(CellGroup(at, tuple(ranked), _means(by_group[key])))
    return _with_holm(groups)


def _paired_only(rows: Sequence[_Row], axis: Axis) -> list[_Row]:
    """The rows on the seeds that every label has, in the order of the labels."""
    seeds = [{row.seed for row in rows if row.policy == label} for label in axis.labels]
    common = set.intersection(*seeds)
    ordered = sorted(rows, key=lambda row: axis.labels.index(row.policy))
    return [row for row in ordered if row.seed in common]


def _with_holm(groups: Sequence[CellGroup]) -> list[CellGroup]:
    """The groups with Holm's p over all of them: they are one table."""
    tests: dict[tuple[int, frozenset[str]], float] = {}
    for place, group in enumerate(groups):
        for each in group.standings:
            if not each.is_reference and each.pair is not None:
                tests.setdefault((place, frozenset({each.policy, *each.alike})), each.pair.p)  # alike: one comparison
    p = dict(zip(tests, holm(list(tests.values())), strict=True))
    return [
        replace(
            group,
            standings=tuple(
                replace(each, p=p.get((place, frozenset({each.policy, *each.alike})), each.p))
                for each in group.standings
            ),
        )
        for place, group in enumerate(groups)
    ]


def _means(rows: Sequence[_Row]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for label in dict.fromkeys(row.policy for row in rows):
        mine = [row.metrics for row in rows if row.policy == label]
        names = [name for name, value in mine[0].items() if not isinstance(value, str)]
        found[label] = {name: _mean([each.get(name) for each in mine]) for name in names}
    return found


def _mean(values: Sequence[Any]) -> float:
    return nan if any(value is None for value in values) else sum(values) / len(values)

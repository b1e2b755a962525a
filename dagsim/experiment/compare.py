"""Compare finished runs. They are paired by seed, in groups of cells, or over blocks of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dagsim.config.dumping import plain
from dagsim.errors import InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import Axis, short_names
from dagsim.metrics import OverTime, columns, jct, over_time
from dagsim.metrics.columns import Floats
from dagsim.metrics.paired import holm
from dagsim.metrics.standings import (
    PolicyResult,
    Sample,
    plain_mean,
    standings,
)
from dagsim.text import count_of

if TYPE_CHECKING:
    pass


_NOT_THE_JOBS = {"policy", "precision", "seeds"}
"""Configuration keys that affect neither the jobs nor the machines."""
_KEYS_SHOWN = 2
"""Maximum number of keys in a label. Longer labels are hard to read."""


class Pairing(NamedTuple):
    """Runs to compare, and remarks about their folders."""

    lines: list[CellRun]
    differences: list[str]
    """The configuration keys, besides the policy, in which the folders differ."""
    missing: list[str]
    """Remarks about folders that contain fewer runs than when they were finished."""


def paired_lines(folders: Sequence[Store]) -> Pairing:
    """Return the runs in all folders for the seeds that the folders have in common.

    If a policy ran in several folders, its labels include the configuration keys in which the
    folders differ or, if there are too many, the names of the folders.

    Raises:
        InputError: The folders have no seed in common, or their workloads differ.
        RunFolderError: A folder cannot be read.
    """
    by_folder = {folder.path: folder.lines() for folder in folders}
    differences = [text for one, other in combinations(folders, 2) for text in _apart(one, other)]
    labels = _labels(folders)
    seeds = set.intersection(*({line.seed for line in lines} for lines in by_folder.values()))
    if not seeds:
        raise InputError(f"compare: {', '.join(map(str, by_folder))} have no seed in common")
    where: dict[str, int] = {}
    for lines in by_folder.values():
        for policy in {line.policy for line in lines}:
            where[policy] = where.get(policy, 0) + 1
    return Pairing(
        [
            replace(line, policy=line.policy if where[line.policy] == 1 else f"{line.policy} @ {labels[path]}")
            for path, lines in by_folder.items()
            for line in lines
            if line.seed in seeds
        ],
        list(dict.fromkeys(differences)),
        [sentence for folder in folders if (sentence := folder.missing()) is not None],
    )


def _labels(folders: Sequence[Store]) -> dict[Path, str]:
    """Return a unique label for each folder: the name that the user gave to it, the values of one
    or two keys, or its path.
    """
    configs = {folder.path: dict(_flat(plain(folder.config))) for folder in folders}
    keys = [
        key
        for key in dict.fromkeys(key for config in configs.values() for key in config)
        if key.partition(".")[0] not in _NOT_THE_JOBS and len({str(of.get(key)) for of in configs.values()}) > 1
    ]
    by_key = {path: ",".join(f"{key}={of.get(key, 'none')}" for key in keys) for path, of in configs.items()}
    by_name = {path: path.name for path in configs}
    by_user = {folder.path: folder.name or "" for folder in folders}
    for labels in [by_user, *([by_key] if 0 < len(keys) <= _KEYS_SHOWN else []), by_name]:
        if len(set(labels.values())) == len(folders) and all(labels.values()):
            return labels
    return {path: str(path) for path in configs}


def _apart(one: Store, other: Store) -> Iterator[str]:
    """Yield the keys in which two configurations differ, with both values.

    Raises:
        InputError: The workloads differ, so runs cannot be paired.
    """
    mine, theirs = dict(_flat(plain(one.config))), dict(_flat(plain(other.config)))
    for key in dict.fromkeys((*mine, *theirs)):
        if key.partition(".")[0] in _NOT_THE_JOBS or mine.get(key) == theirs.get(key):
            continue
        text = f"{key}: {mine.get(key, 'none')} in {one.path.name}, {theirs.get(key, 'none')} in {other.path.name}"
        if key.startswith("workload") or key == "seed":
            raise InputError(f"compare: the runs have different jobs: {text}")
        yield text


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _flat(part, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _flat(part, f"{key}.{index}")
    else:
        yield key, value


@dataclass(frozen=True, slots=True)
class CellGroup:
    """Cells that are equal except for the seed and their value on the compared axis."""

    at: Mapping[str, str]
    """The labels that the cells share, keyed by the short names of the other axes."""
    standings: tuple[PolicyResult, ...]
    """The results for the values of the compared axis, from best to worst. It is empty if no seed
    has runs for all values."""
    metrics: Mapping[str, Mapping[str, float]]
    """The mean of each metric, for each label."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that are safe for JSON."""
        return {"at": dict(self.at), "standings": [result.to_dict() for result in self.standings]}


def compared_axis(axes: Sequence[Axis]) -> Axis:
    """Return the axis whose values are compared: the axis of policies or, if there is none, the
    first axis with several values."""
    several = [axis for axis in axes if len(axis.values) > 1] or list(axes)
    return next((axis for axis in several if axis.key == "policy"), several[0])


def grouped_standings(
    lines: Sequence[CellRun],
    axes: Sequence[Axis],
    metric: str,
    sample: Sample = Sample.SEED,
    reference: str | None = None,
) -> list[CellGroup]:
    """Group the finished cells in the order of the grid. In each group, the results of all other
    labels are compared with those of ``reference`` (default: the first label).

    Raises:
        InputError: The metric or the reference does not exist.
    """
    axis = compared_axis(axes)
    others = [other for other in axes if other is not axis]
    names = short_names([other.key for other in others])
    by_group: dict[tuple[str, ...], list[CellRun]] = {}
    for line in lines:
        key = tuple(line.at[other.key] for other in others)
        by_group.setdefault(key, []).append(CellRun(line.at[axis.key], line.seed, metrics=line.metrics))
    ordered = sorted(by_group, key=lambda key: [other.labels.index(at) for other, at in zip(others, key, strict=True)])
    groups = []
    for key in ordered:
        rows = _paired_only(by_group[key], axis)
        ranked = standings(rows, metric, reference or axis.labels[0], sample) if rows else []
        at = {names[other.key]: label for other, label in zip(others, key, strict=True)}
        groups.append(CellGroup(at, tuple(ranked), _means(by_group[key])))
    return _with_holm(groups)


def _paired_only(rows: Sequence[CellRun], axis: Axis) -> list[CellRun]:
    """Return the runs on those seeds that all values of the axis have in common, in the order of
    these values.
    """
    seeds = [{row.seed for row in rows if row.policy == label} for label in axis.labels]
    common = set.intersection(*seeds)
    ordered = sorted(rows, key=lambda row: axis.labels.index(row.policy))
    return [row for row in ordered if row.seed in common]


def _with_holm(groups: Sequence[CellGroup]) -> list[CellGroup]:
    """Return the groups with corrected p values. Holm's correction covers all groups together,
    because they form one table.
    """
    tests: dict[tuple[int, frozenset[str]], float] = {}
    for place, group in enumerate(groups):
        for result in group.standings:
            if not result.is_reference and result.pair is not None:
                # Policies with the same results count as one comparison.
                tests.setdefault((place, frozenset({result.policy, *result.alike})), result.pair.p)
    p = dict(zip(tests, holm(list(tests.values())), strict=True))
    return [
        replace(
            group,
            standings=tuple(
                replace(result, p=p.get((place, frozenset({result.policy, *result.alike})), result.p))
                for result in group.standings
            ),
        )
        for place, group in enumerate(groups)
    ]


def _means(rows: Sequence[CellRun]) -> dict[str, dict[str, float]]:
    means: dict[str, dict[str, float]] = {}
    for label in dict.fromkeys(row.policy for row in rows):
        mine = [row for row in rows if row.policy == label]
        names = [name for name, value in mine[0].metrics.items() if not isinstance(value, str)]
        means[label] = {name: plain_mean(mine, name) for name in names}
    return means


def block_ratios(folder: Store, policy: str, reference: str, blocks: int) -> OverTime:
    """Compare completion times in ``blocks`` consecutive blocks of jobs, in order of arrival, using
    the first run of each policy.

    Raises:
        InputError: A job did not complete under one of the policies, or ``over_time`` raised it.
    """
    return over_time(_jcts(folder, policy), _jcts(folder, reference), blocks)


def _jcts(folder: Store, policy: str) -> Floats:
    """Return the completion times of the admitted jobs, in order of arrival."""
    number = next(place for place, line in enumerate(folder.lines()) if line.policy == policy)
    schedule = columns(folder.schedule(number))
    if schedule.jobs.unfinished.any():
        raise InputError(
            f"blocks: {policy} left {count_of(int(schedule.jobs.unfinished.sum()), 'job', 'jobs')} unfinished"
        )
    let_in = schedule.jobs.accepted
    order = np.argsort(schedule.jobs.arrival_s[let_in], kind="stable")
    jcts: Floats = jct(schedule)[let_in][order]
    return jcts

"""Runs of several folders put side by side: only what saw the same jobs can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from dagsim.config.schema import plain
from dagsim.errors import InputError
from dagsim.experiment.folder import RunFolder, RunLine

__all__ = ["Pairing", "paired"]

_NOT_THE_JOBS = {"policy", "seeds"}
"""Keys of the configuration that change neither the jobs nor the machines."""


class Pairing(NamedTuple):
    """Lines to compare, and in what the folders they come from differ besides the policy."""

    lines: list[RunLine]
    differences: list[str]


def paired(folders: Sequence[RunFolder]) -> Pairing:
    """The lines of all folders on the seeds that all of them ran.

    A policy that ran in several folders is told apart by the name of its folder.

    Raises:
        InputError: There is no seed in common, or the folders differ in their workload.
        RunFolderError: A folder cannot be read.
    """
    by_folder = {folder.path: folder.lines() for folder in folders}
    differences = [text for one, other in combinations(folders, 2) for text in _apart(one, other)]
    seeds = set.intersection(*({line.seed for line in lines} for lines in by_folder.values()))
    if not seeds:
        raise InputError(f"compare: {', '.join(map(str, by_folder))} have no seed in common")
    where: dict[str, int] = {}
    for lines in by_folder.values():
        for policy in {line.policy for line in lines}:
            where[policy] = where.get(policy, 0) + 1
    return Pairing(
        [
            line._replace(policy=line.policy if where[line.policy] == 1 else f"{line.policy} @ {path.name}")
            for path, lines in by_folder.items()
            for line in lines
            if line.seed in seeds
        ],
        list(dict.fromkeys(differences)),
    )


def _apart(one: RunFolder, other: RunFolder) -> Iterator[str]:
    """The keys in which two configurations differ, with both values.

    Raises:
        InputError: The workloads differ: nothing would be paired.
    """
    mine, theirs = dict(_flat(plain(one.config))), dict(_flat(plain(other.config)))
    for key in dict.fromkeys((*mine, *theirs)):
        if key.partition(".")[0] in _NOT_THE_JOBS or mine.get(key) == theirs.get(key):
            continue
        text = f"{key}: {mine.get(key, 'none')} in {one.path.name}, {theirs.get(key, 'none')} in {other.path.name}"
        if key.startswith("workload") or key == "seed":
            raise InputError(f"compare: the runs are not of the same jobs; {text}")
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

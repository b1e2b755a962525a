"""Runs of several folders put side by side: only what saw the same jobs can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.config.schema import plain
from dagsim.errors import InputError
from dagsim.experiment.folder import RunFolder, RunLine

__all__ = ["Pairing", "paired_lines"]

_NOT_THE_JOBS = {"policy", "precision", "seeds"}
"""Keys of the configuration that change neither the jobs nor the machines."""
_KEYS_SHOWN = 2
"""More differing keys than these make labels that nobody reads."""


class Pairing(NamedTuple):
    """Lines to compare, and in what the folders they come from differ besides the policy."""

    lines: list[RunLine]
    differences: list[str]


def paired_lines(folders: Sequence[RunFolder]) -> Pairing:
    """The lines of all folders on the seeds that all of them ran.

    A policy that ran in several folders is labelled with the keys in which these differ, or else with their names.

    Raises:
        InputError: There is no seed in common, or the folders differ in their workload.
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
            line._replace(policy=line.policy if where[line.policy] == 1 else f"{line.policy} @ {labels[path]}")
            for path, lines in by_folder.items()
            for line in lines
            if line.seed in seeds
        ],
        list(dict.fromkeys(differences)),
    )


def _labels(folders: Sequence[RunFolder]) -> dict[Path, str]:
    """By folder a text that no other has: its given name, the values of one or two keys, or where it lies."""
    configs = {folder.path: dict(_flat(plain(folder.config))) for folder in folders}
    keys = [
        key
        for key in dict.fromkeys(key for config in configs.values() for key in config)
        if key.partition(".")[0] not in _NOT_THE_JOBS and len({str(of.get(key)) for of in configs.values()}) > 1
    ]
    by_key = {path: ",".join(f"{key}={of.get(key, 'none')}" for key in keys) for path, of in configs.items()}
    by_name = {path: path.name for path in configs}
    given = {folder.path: folder.name or "" for folder in folders}
    for labels in [given, *([by_key] if 0 < len(keys) <= _KEYS_SHOWN else []), by_name]:
        if len(set(labels.values())) == len(folders) and all(labels.values()):
            return labels
    return {path: str(path) for path in configs}


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

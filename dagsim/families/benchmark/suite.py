"""The suite of the benchmark: its frozen tasks, and the cells that an entry has to run.

A *suite* is a folder of configurations, ``configs/bench/v1``. Each configuration is a task, and its
``policy`` is the reference for the task. An *entry* is a policy for one or more systems. The cells
of a task are a sweep over both policies, so each task has a run folder that every other command can
read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from dagsim.config.bundled import opening_of, shipped
from dagsim.config.schema import Config, load_config
from dagsim.config.yaml import read_yaml
from dagsim.errors import InputError
from dagsim.experiment.plan import Plan
from dagsim.experiment.provenance import digest
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.families.bounds.bound import bound_of, bounded
from dagsim.family import missing_family
from dagsim.model.streams import stream
from dagsim.seeds import VALIDATION, seeds_of
from dagsim.spelling import choices
from dagsim.systems import DEFAULT_SYSTEM

SUITE = "v1"
Division: TypeAlias = Literal["exact", "noisy", "hidden"]
"""Which durations policies for the GPU cluster see (``Estimates``)."""
METRICS = ("queueing_s.p95", "utilization", "max_ftf")
"""Metrics shown beside the score."""


@dataclass(frozen=True, slots=True)
class BenchTask:
    """One task of the suite."""

    name: str
    path: Path
    config: Config

    @property
    def summary(self) -> str:
        """One sentence about the simulated workload and cluster."""
        return opening_of(self.path)

    @property
    def system(self) -> str:
        """The system to which the task's policies belong."""
        return self.config.whole_system.system

    @property
    def metric(self) -> str:
        """The metric on which the score is based."""
        return self.config.whole_system.score

    def seeds(self, count: int | None = None, draw: int | None = None) -> tuple[int, ...]:
        """Return the seeds of the task's runs: public seeds for development, or seeds derived from
        ``draw``.

        Raises:
            InputError: ``draw`` is negative.
        """
        count = count or self.config.seeds
        if draw is None:
            return seeds_of(VALIDATION, count)
        return tuple(map(int, stream(draw, f"bench/{SUITE}/{self.name}").integers(2**32, 2**53, size=count)))


@cache
def suite_paths() -> dict[str, Path]:
    """Return the configurations of all tasks in the suite by name."""
    prefix = f"bench/{SUITE}/"
    return {name.removeprefix(prefix): path for name, path in shipped("configs").items() if name.startswith(prefix)}


def tasks_without_family() -> dict[str, str]:
    """Return the tasks whose system this installation lacks, each with a text that names the
    missing family.
    """
    missing = {}
    for name, path in suite_paths().items():
        section = read_yaml(path).value.get("system", DEFAULT_SYSTEM)
        system = section["kind"] if isinstance(section, dict) else section
        if reason := missing_family("systems", system):
            missing[name] = f"its system {system!r} {reason}"
    return missing


def suite(names: Collection[str] = ()) -> list[BenchTask]:
    """Return all tasks in the suite, or only the tasks with the given names. Tasks whose system
    this installation lacks are left out (``tasks_without_family``).

    Raises:
        InputError: There is no such task, or this installation lacks its system.
    """
    paths, missing = suite_paths(), tasks_without_family()
    for name in names:
        if name not in paths:
            raise InputError(f"--task: there is no task {name!r}{choices(name, paths, both=True)}")
        if name in missing:
            raise InputError(f"the task {name!r} cannot be run: {missing[name]}")
    chosen = [name for name in paths if name in names] if names else [name for name in paths if name not in missing]
    return [BenchTask(name, paths[name], load_config(paths[name])) for name in chosen]


class BenchEntry(NamedTuple):
    """The policies of an entry, and the rules under which they run."""

    name: str
    policies: Mapping[str, str]
    """The policy for each system that is entered."""
    division: Division
    draw: int | None
    """The number from which the test seeds are derived, or None for development seeds."""
    seeds: int | None
    """Number of seeds per task, or None for the task's own number."""

    def tasks(self, names: Collection[str] = ()) -> list[BenchTask]:
        """Return the tasks of the systems for which this entry has a policy.

        Raises:
            InputError: There are no such tasks.
        """
        chosen = [task for task in suite(names) if task.system in self.policies]
        if not chosen:
            raise InputError(f"bench: none of the tasks runs on the systems {', '.join(self.policies)}")
        return chosen


def task_plan(task: BenchTask, entry: BenchEntry) -> Plan:
    """Return the cells of a task: the reference and the entry's policy on every seed.

    Raises:
        InputError: The policy cannot be read.
    """
    policies = tuple(dict.fromkeys((task.config.policy, entry.policies[task.system])))
    settings = task.config.whole_system.told(entry.division)
    seeds = task.seeds(entry.seeds, entry.draw)
    axis = Axis("policy", policies, policies)
    grid = SweepGrid(task.name, task.path, (axis,), settings, seeds, "log", (task.metric, *METRICS))
    return Plan.of_grid(grid, "bench")


def bounds_of(
    tasks: Sequence[BenchTask], entry: BenchEntry, watch: Callable[[Iterable[int]], Iterable[int]] = iter
) -> dict[str, list[float]]:
    """Return a lower bound for each seed of each task that ``dagsim bound`` covers. The bounds are
    valid for policies that do not stop runs. ``watch`` wraps the iterator of seeds."""
    bounds: dict[str, list[float]] = {}
    for task in tasks:
        seeds = task.seeds(entry.seeds, entry.draw)
        # An InputError means that there is no bound. Either the run begins with jobs in the system,
        # or dagsim has no bound for this system, which is true of most systems.
        with suppress(InputError):
            bounded(task.config)
            bounds[task.name] = [bound_of(task.config, seed, by_area=True).mean_s for seed in watch(seeds)]
    return bounds


def config_digest(task: BenchTask, division: Division) -> str:
    """Return the SHA-256 of a task's configuration in a division. It covers the file, and what
    policies know about durations.
    """
    return sha256(task.path.read_bytes() + division.encode()).hexdigest()


@cache
def suite_digest() -> str:
    """Return the SHA-256 of the tasks' files and of the logs from which they take windows.

    Tasks whose system is missing are included, so that the hash is the same in every installation.
    Such a task cannot have a log, because only the GPU cluster reads logs.
    """
    total, present = sha256(), {task.name: task for task in suite()}
    for name, path in suite_paths().items():
        total.update(name.encode() + path.read_bytes())
        if name in present and (trace := present[name].config.whole_system.trace_path) is not None:
            total.update(digest(trace).encode())
    return total.hexdigest()

"""The runs that a page shows, under the names that it gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dagsim.errors import InputError
from dagsim.experiment.compare import paired_lines
from dagsim.experiment.kept_files import CellRun
from dagsim.experiment.scenario import metric_of, sample_of
from dagsim.experiment.store import Store
from dagsim.metrics.standings import PolicyResult, standings

__all__ = ["Chosen", "Shown", "choose_runs"]

MOST_DRAWN = 12
"""Runs that are drawn; the tables have all."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A finished run: where it lies, and its line under the name that the page gives its policy."""

    folder: Store
    number: int
    line: CellRun

    @property
    def name(self) -> str:
        """The policy and the seed."""
        return f"{self.line.policy}, seed {self.line.seed}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The runs of a page, those it draws, and remarks on them."""

    runs: tuple[Shown, ...]
    comparable: bool
    """All policies ran on the same jobs."""
    remarks: tuple[str, ...]
    ranked: tuple[PolicyResult, ...] = ()
    """The standings of the policies, if they are comparable."""

    @property
    def lines(self) -> list[CellRun]:
        """The lines of all runs."""
        return [run.line for run in self.runs]

    @property
    def drawn(self) -> tuple[Shown, ...]:
        """The first run of each policy, at most ``MOST_DRAWN``."""
        first: dict[str, Shown] = {}
        for run in self.runs:
            first.setdefault(run.line.policy, run)
        return tuple(first.values())[:MOST_DRAWN]


def choose_runs(folders: Sequence[Store]) -> Chosen:
    """The finished runs of the folders, paired by seed where they can be.

    Raises:
        InputError: There is none.
        RunFolderError: A folder cannot be read.
    """
    finished = [Shown(folder, number, line) for folder in folders for number, line in enumerate(folder.lines())]
    if not finished:
        raise InputError(f"{', '.join(str(folder.path) for folder in folders)}: no run is finished")
    failed = [
        f"{failure.policy} failed on seed {failure.seed}: {failure.error}"
        for folder in folders
        for failure in folder.failures()
    ]
    states = [
        f"{folder.path.name}: {folder.state}, not done; only what was finished is shown"
        for folder in folders
        if folder.state != "done"
    ]
    try:
        pairing = paired_lines(folders)
    except InputError as error:
        named = [replace(run.line, policy=f"{run.line.policy} @ {run.folder.path.name}") for run in finished]
        runs = tuple(Shown(run.folder, run.number, line) for run, line in zip(finished, named, strict=True))
        return Chosen(runs, False, (f"not compared: {error}", *states, *failed))
    seeds = {line.seed for line in pairing.lines}
    common = [run for run in finished if run.line.seed in seeds]
    runs = tuple(Shown(run.folder, run.number, line) for run, line in zip(common, pairing.lines, strict=True))
    differs = [f"differs: {text}" for text in pairing.differences]
    comparable = _same_seeds(runs)
    config = folders[0].config
    ranked = standings([run.line for run in runs], metric_of(config), None, sample_of(config)) if comparable else ()
    return Chosen(runs, comparable, (*pairing.missing, *differs, *states, *failed), tuple(ranked))


def _same_seeds(runs: Sequence[Shown]) -> bool:
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.line.policy, set()).add(run.line.seed)
    return len(seeds) > 1 and len({frozenset(each) for each in seeds.values()}) == 1

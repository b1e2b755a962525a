"""The runs that a page shows, and the names under which it shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dagsim.errors import InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.compare import paired_lines
from dagsim.experiment.scenario import metric_of, sample_of
from dagsim.experiment.store import Store
from dagsim.metrics.standings import PolicyResult, standings

MOST_DRAWN = 12
"""Maximum number of runs that are drawn. The tables include all runs."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A finished run: its folder, and its row with the policy's name on the page."""

    folder: Store
    number: int
    line: CellRun

    @property
    def name(self) -> str:
        """The name of the run on the page: its policy and its seed."""
        return f"{self.line.policy}, seed {self.line.seed}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The runs on a page, the runs among them that are drawn, and remarks about them."""

    runs: tuple[Shown, ...]
    comparable: bool
    """True if all policies ran on the same jobs."""
    remarks: tuple[str, ...]
    ranked: tuple[PolicyResult, ...] = ()
    """Standings of the policies, if they are comparable."""

    @property
    def lines(self) -> list[CellRun]:
        """The result rows of all runs."""
        return [run.line for run in self.runs]

    @property
    def drawn(self) -> tuple[Shown, ...]:
        """First run of each policy, at most ``MOST_DRAWN`` runs."""
        first: dict[str, Shown] = {}
        for run in self.runs:
            first.setdefault(run.line.policy, run)
        return tuple(first.values())[:MOST_DRAWN]


def choose_runs(folders: Sequence[Store]) -> Chosen:
    """Collect the finished runs of the folders, paired by seed where possible.

    Raises:
        InputError: No run has finished.
        RunFolderError: A folder cannot be read.
    """
    finished = [Shown(folder, number, line) for folder in folders for number, line in enumerate(folder.lines())]
    if not finished:
        raise InputError(f"{', '.join(str(folder.path) for folder in folders)}: there is no finished run")
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
    return len(seeds) > 1 and len({frozenset(policy_seeds) for policy_seeds in seeds.values()}) == 1

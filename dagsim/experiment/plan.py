"""Plans. A plan lists the cells to run: policies on seeds, or the points of a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.experiment.cell import Cell
from dagsim.experiment.scenario import experiment_seeds
from dagsim.experiment.sweep_grid import SweepGrid
from dagsim.systems.policy_spec import labelled


@dataclass(frozen=True)
class Plan:
    """The cells that a command runs, in order, and the facts that its folder records."""

    command: str
    config: Config
    """The configuration that all cells share."""
    cells: tuple[Cell, ...]
    grid: SweepGrid | None = None
    """The grid from which the cells come, or None for policies on seeds."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Further values that the command needs to continue the plan."""
    label: str | None = None
    """A few words for the folder's name (default: the policy)."""
    name: str | None = None
    """The user's name for the run."""

    @classmethod
    def of(
        cls,
        command: str,
        config: Config,
        policies: Sequence[str] = (),
        seeds: Sequence[int] | None = None,
        *,
        about: Mapping[str, Any] | None = None,
        label: str | None = None,
        name: str | None = None,
    ) -> Plan:
        """Return a plan for these policies (default: the configured policy) on these seeds
        (default: the configured seeds). ``Mine=POLICY`` gives a policy the name Mine.

        Cells are ordered by seed, so that a stopped plan has run all policies on its first seeds.

        Raises:
            InputError: Two policies have the same name.
        """
        named = dict.fromkeys(map(labelled, policies or (config.policy,)))
        names = [name for name, _ in named]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise InputError(f"--policy: two policies have the name {repeated[0]!r}; give them different names")
        cells = [
            Cell(config, policy, seed, name)
            for seed in (experiment_seeds(config) if seeds is None else seeds)
            for name, policy in named
        ]
        label = label or (names[0] if len(names) == 1 else f"{len(names)}-policies")
        return cls(command, config, tuple(cells), None, about or {}, label, name)

    def on_seeds(self, seeds: Sequence[int]) -> Plan:
        """Return a plan for the same policies on other seeds."""
        return replace(self, cells=Plan.of(self.command, self.config, self.specs, seeds).cells)

    @classmethod
    def of_grid(cls, grid: SweepGrid, command: str = "sweep") -> Plan:
        """Return a plan for all points of a grid, on all seeds.

        Raises:
            InputError: A configuration in the grid is wrong, or a file that it names cannot be
                read.
        """
        return cls(command, grid.config(), tuple(grid.cells()), grid)

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the policies in tables, without duplicates. For a grid, these are the names
        of its points.
        """
        return tuple(dict.fromkeys(cell.label for cell in self.cells))

    @property
    def specs(self) -> tuple[str, ...]:
        """The policies, without duplicates. Each has the name that the user gave to it."""
        named = dict.fromkeys((cell.name, cell.policy) for cell in self.cells)
        return tuple([policy if policy == name else f"{name}={policy}" for name, policy in named])

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds without duplicates. The seeds of a grid are sorted."""
        seeds = dict.fromkeys(cell.seed for cell in self.cells)
        return tuple(seeds if self.grid is None else sorted(seeds))

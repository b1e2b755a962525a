"""Trials of clusters on the same windows, kept in one sweep folder that grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dagsim.config.schema import ClusterSection, Config, plain
from dagsim.experiment.journal import RunLine
from dagsim.experiment.run import Watch
from dagsim.experiment.sweep.axes import Axis
from dagsim.experiment.sweep.cells import Cell, cells_of
from dagsim.experiment.sweep.described import Sweep
from dagsim.experiment.sweep.executors import SweepExecutor
from dagsim.experiment.sweep.folder import SweepFolder
from dagsim.experiment.sweep.run import run_cells

__all__ = ["Trials"]


class Trials:
    """Runs clusters under one policy; what its folder holds already is not run again."""

    def __init__(
        self,
        config: Config,
        name: str,
        root: Path,
        executor: SweepExecutor,
        watch: Watch | None,
        *,
        argv: Sequence[str],
        command: str = "plan",
    ) -> None:
        self.config, self.name, self.root, self.executor, self.watch = config, name, root, executor, watch
        self.argv, self.command = argv, command
        self.path: Path | None = None
        """Its folder, from the first trial on."""
        self._clusters: dict[str, ClusterSection] = {}
        self._cells: list[Cell] = []

    def run(self, label: str, cluster: ClusterSection) -> list[RunLine]:
        """The runs of one cluster, a line for each window.

        Raises:
            KeyboardInterrupt: The user stopped it; what was finished is kept.
            DagsimError: As ``run_cells``, or a cell failed.
        """
        label = next((known for known, other in self._clusters.items() if other == cluster), label)
        if label not in self._clusters:
            self._clusters[label] = cluster
            self._cells += cells_of(self._sweep({label: cluster}))
        cells = self._cells
        folder = SweepFolder.claim(self.root, self._sweep(self._clusters), cells, argv=self.argv, command=self.command)
        self.path = folder.path
        swept = run_cells(folder, cells, self.executor, self.watch)
        swept.raise_failures()
        mine = [cell for cell in cells if cell.at["cluster"] == label]
        return [
            RunLine(cell.label, cell.seed, swept.done[cell.id].workload, swept.done[cell.id].metrics) for cell in mine
        ]

    def _sweep(self, clusters: Mapping[str, ClusterSection]) -> Sweep:
        sections = tuple(plain(section) for section in clusters.values())
        settings = {key: value for key, value in plain(self.config).items() if key != "prices"}
        settings["cluster"] = sections[0]
        return Sweep(self.name, None, (Axis("cluster", tuple(clusters), sections),), settings)

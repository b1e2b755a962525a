"""Runs of a published table, stored as they end: one JSON line each, so that a stopped script can
continue.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.experiment.simulate import run_policy
from dagsim.files import append
from dagsim.metrics.standings import SECONDARY_METRICS

__all__ = ["KeptRun", "KeptRuns"]

METRICS = ("jct_s.mean", *SECONDARY_METRICS, "jobs_arrived", "jobs_completed")
"""Metrics of a run that are stored: those that tables show."""


class KeptRun(NamedTuple):
    """One policy on one seed in one cell of a table. ``policy`` is its name in the table."""

    cell: str
    policy: str
    seed: int
    metrics: Mapping[str, Any]


class KeptRuns:
    """Return the runs in the file at ``path``. A last line cut off by a crash is run again.

    Raises:
        InputError: Another line of the file is not a run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = 0
        self._runs: dict[tuple[str, str, int], KeptRun] = {}
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True) if path.exists() else (), 1):
            if not line.endswith(b"\n"):
                break
            try:
                run = KeptRun(**json.loads(line))
            except (ValueError, TypeError):
                raise InputError(f"{path}:{number}: no run: {line[:80].decode(errors='replace')!r}") from None
            self._runs[run[:3]] = run
            self._size += len(line)

    def of(self, cell: str, policies: Sequence[str], seeds: Sequence[int]) -> list[KeptRun]:
        """Return the runs of a cell, seed by seed, without those that have not run yet."""
        keys = ((cell, policy, seed) for seed in seeds for policy in policies)
        return [self._runs[key] for key in keys if key in self._runs]

    def run(
        self,
        cell: str,
        config: Config,
        policies: Mapping[str, str],
        seeds: Sequence[int],
        tell: Callable[[KeptRun], None] | None = None,
    ) -> list[KeptRun]:
        """Run and store the missing runs of the ``policies`` (by their names in the table).

        Raises:
            InputError, SimulationError: As ``run_policy``.
        """
        for seed in seeds:
            for name, spec in policies.items():
                if (cell, name, seed) not in self._runs:
                    metrics = run_policy(config, spec, seed).summary.to_dict()
                    self._add(KeptRun(cell, name, seed, {key: metrics[key] for key in METRICS}))
                    if tell is not None:
                        tell(self._runs[cell, name, seed])
        return self.of(cell, tuple(policies), seeds)

    def _add(self, run: KeptRun) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._size = append(self.path, json.dumps(run._asdict()).encode() + b"\n", self._size)
        self._runs[run[:3]] = run

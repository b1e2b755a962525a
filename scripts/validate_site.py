"""A Slurm site, imported and replayed, against the waits of its log.

    python scripts/validate_site.py --run DIR [DIR ...] [--json]

DIR holds the files of a site and its ``sacct`` files (docs/reference/traces.md). Each is imported with ``dagsim site
import`` and replayed under ``slurm-multifactor`` with the site's own parameters; nothing is tuned. The figures are the
error of the mean wait (from eligibility), overall and for each account of more than 100 jobs, the median over the jobs
of |log((simulated + 10 s) / (observed + 10 s))|, and the number of jobs that start before they are eligible. Exits
with 1 if a figure misses its gate: 10 %, 25 %, 0.35, 0. Two real runs of the same submissions differ by 2 to 9 %, up
to 33 % for an account, and 0.16 to 0.22.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import command

from dagsim.config.schema import load_config
from dagsim.config.yaml import Setting
from dagsim.families.benchmark.papers import PaperFigure
from dagsim.families.site.cluster_file import import_site
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import cluster_scenario_of

MOST_JOBS = 100
"""Accounts with more jobs than this must meet the gate."""


def fidelity(folder: Path) -> dict[str, Any]:
    """Import and replay a site; return ``ObservedWaits`` as plain data."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "site.yaml"
        import_site([folder], path)
        jobs = {"kind": "trace", "path": str(folder), "format": "sacct"}
        config = load_config(path, [Setting("the log", "workload", jobs)])
    scenario = cluster_scenario_of(config)
    kernel = scenario.kernel(0)
    kernel.run(POLICIES.create("slurm-multifactor"))
    waits: dict[str, Any] = scenario.facts(kernel)["observed"]
    return waits


def figures(waits: dict[str, Any]) -> Iterator[PaperFigure]:
    """The figures that have a gate."""
    yield PaperFigure("error of the mean wait", 0, error(waits["total"]), 0.10)
    for account, pair in waits["by_tenant"].items():
        if pair["jobs"] > MOST_JOBS:
            yield PaperFigure(f"error of account {account}", 0, error(pair), 0.25)
    yield PaperFigure("median |log ratio| of waits", 0, waits["median_abs_log_ratio"], 0.35)
    yield PaperFigure("early starts", 0, waits["early"])


def error(pair: dict[str, Any]) -> float:
    """Relative error of the simulated mean wait."""
    return float(pair["simulated_s"]["mean"] / pair["observed_s"]["mean"] - 1)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    runs = {}
    for folder in options.run:
        waits = runs[folder.name] = fidelity(folder)
        groups = {"all": waits["total"]} | waits["by_tenant"] | waits["by_partition"]
        say(f"{folder.name}: {waits['total']['jobs']} jobs")
        for name, pair in groups.items():
            means = (pair["observed_s"]["mean"], pair["simulated_s"]["mean"])
            say(f"  {name}: {pair['jobs']} jobs, {means[0]:,.0f} s observed, {means[1]:,.0f} s, {error(pair):+.1%}")
        for figure in figures(waits):
            say(f"  {figure.name}: {figure.here:.3g}{'' if figure.holds else '  MISS'}")
    return runs


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--run", type=Path, nargs="+", required=True, metavar="DIR", help="folders of sites")
    return command.run(
        parser, _work, holds=lambda runs: all(figure.holds for waits in runs.values() for figure in figures(waits))
    )


if __name__ == "__main__":
    raise SystemExit(main())

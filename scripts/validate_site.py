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

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import command

from dagsim.config.cluster_file import cluster_yaml
from dagsim.config.schema import Setting, load_config
from dagsim.experiment.scenario import cluster_scenario_of
from dagsim.systems.cluster.policies import POLICIES
from dagsim.traces.nodes import grouped
from dagsim.traces.slurm_site import read_slurm_site, site_files

_MEAN, _ACCOUNT, _RATIO = 0.10, 0.25, 0.35
MOST_JOBS = 100
"""Accounts with more jobs than this must meet the gate."""


def fidelity(folder: Path) -> dict[str, Any]:
    """Import and replay a site; return ``ObservedWaits`` as plain data."""
    site = read_slurm_site(site_files([folder]))
    imported = grouped(site.found_nodes(), keep_all=True, in_order=True)
    text = cluster_yaml(imported, folder.name, folder.name, site.queues(), site.unmodelled)
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "site.yaml"
        path.write_text(text, encoding="utf-8")
        jobs = {"kind": "trace", "path": str(folder), "format": "sacct"}
        config = load_config(path, [Setting("the log", "workload", jobs)])
    scenario = cluster_scenario_of(config)
    kernel = scenario.kernel(0)
    kernel.run(POLICIES.create("slurm-multifactor"))
    waits: dict[str, Any] = scenario.facts(kernel)["observed"]
    return waits


def misses(waits: dict[str, Any]) -> list[str]:
    """The figures that miss their gates."""
    wrong = [f"the mean by {error(waits['total']):+.1%}"] if abs(error(waits["total"])) > _MEAN else []
    wrong += [
        f"account {name} by {error(pair):+.1%}"
        for name, pair in waits["by_tenant"].items()
        if pair["jobs"] > MOST_JOBS and abs(error(pair)) > _ACCOUNT
    ]
    wrong += (
        [f"the median ratio: {waits['median_abs_log_ratio']:.3f}"] if waits["median_abs_log_ratio"] > _RATIO else []
    )
    return wrong + ([f"{waits['early']} early starts"] if waits["early"] else [])


def error(pair: dict[str, Any]) -> float:
    """Relative error of the simulated mean wait."""
    return float(pair["simulated_s"]["mean"] / pair["observed_s"]["mean"] - 1)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    runs = {}
    for folder in options.run:
        waits = runs[folder.name] = fidelity(folder)
        groups = {"all": waits["total"]} | waits["by_tenant"] | waits["by_partition"]
        say(f"{folder.name}: median ratio {waits['median_abs_log_ratio']:.3f}, {waits['early']} early")
        for name, pair in groups.items():
            means = (pair["observed_s"]["mean"], pair["simulated_s"]["mean"])
            say(f"  {name}: {pair['jobs']} jobs, {means[0]:,.0f} s observed, {means[1]:,.0f} s, {error(pair):+.1%}")
        for miss in misses(waits):
            say(f"  MISS {miss}")
    return runs


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--run", type=Path, nargs="+", required=True, metavar="DIR", help="folders of sites")
    return command.run(parser, _work, holds=lambda runs: not any(misses(waits) for waits in runs.values()))


if __name__ == "__main__":
    raise SystemExit(main())

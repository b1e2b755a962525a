"""On which policies and features published tables, the guides and `baseline` spend their CPU time, and which of
these the compiled engine supports.

    python scripts/bench_shares.py [--source NAME ...] [--jobs 1000] [--seeds 1] [--every 8] [--out FILE]

Every table with a sweep file on the GPU cluster runs on its first seeds (and of its points, one in ``--every``); the
time of a cell counts as often as the table has such cells. ``baseline`` runs every policy on so many jobs of
``steady``. The guides run as a whole (``make_guides.py``), and their run folders say how long each cell took. The
shares are those of the simulations: without the start of Python, metrics and files.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time

import command
import make_guides
from sweeps import FILES, RESULTS, ROOT

from dagsim.config.schema import Config, load_config
from dagsim.errors import DagsimError
from dagsim.experiment.simulate import make_policy
from dagsim.experiment.sweep_grid import read_grid
from dagsim.families.compiled.choice import why_not
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import cluster_scenario_of
from dagsim.systems.policy_spec import PolicySpec
from dagsim.systems.seam import Conversation

TABLES = {
    "grid": FILES / "baselines" / "grid.yaml",
    "grid-slow": FILES / "baselines" / "grid-slow.yaml",
    "placement": RESULTS / "network" / "placement.yaml",
    "elastic": RESULTS / "elastic" / "elastic-gavel.yaml",
}
_OF_FEATURE = "the compiled engine does not support "
Cost = tuple[str, str, float]
"""The policy, why it is not compiled (empty if it is), and seconds."""


def why_not_compiled(config: Config, policy: str) -> str:
    """Return why the compiled engine cannot run this, whatever the number of jobs; empty if it can."""
    scenario = cluster_scenario_of(config)
    why = why_not(replace(scenario, engine="compiled"), policy)
    return why.removeprefix(_OF_FEATURE).partition(":")[0]


def of_table(path: Path, options: command.Options) -> Iterator[Cost]:
    """Yield the costs of a sweep file's cells on its first seeds."""
    grid = read_grid(path, path.stem)
    assert isinstance(grid.seeds, Sequence)
    seeds = grid.seeds[: options.seeds]
    points = replace(grid, seeds=seeds).cells()
    by_policy: dict[str, list[int]] = defaultdict(list)
    for number, cell in enumerate(points):
        by_policy[cell.policy].append(number)
    for policy, numbers in by_policy.items():
        chosen = numbers[:: options.every]
        for number in chosen:
            config = points[number].config
            yield (
                policy,
                why_not_compiled(config, policy),
                len(numbers) / len(chosen) * played_s(config, policy, seeds[0]),
            )


def of_baseline(options: command.Options) -> Iterator[Cost]:
    """Yield the costs of every policy on a synthetic workload, as ``dagsim baseline`` runs them."""
    config = load_config(None, [f"workload={{preset: steady, count: {options.jobs}, measure: null}}"])
    for entry in POLICIES.describe():
        if entry.name != "recorded":
            yield entry.name, why_not_compiled(config, entry.name), played_s(config, entry.name, 1)


def played_s(config: Config, policy: str, seed: int) -> float:
    """Return the processor seconds of a simulation in SimPy; 0 if the policy cannot run."""
    scenario = replace(cluster_scenario_of(config), engine="simpy")
    scenario.jobs(seed)  # drawn jobs are kept, so their time does not count
    try:
        began = process_time()
        Conversation(scenario.kernel(seed)).follow(make_policy(scenario, policy, seed))
        return process_time() - began
    except DagsimError as error:
        print(f"{policy}: {error}", file=sys.stderr)
        return 0.0


def of_guides(options: command.Options) -> Iterator[Cost]:
    """Run the commands of the guides, and yield the seconds of the cells in their run folders."""
    for name in make_guides.GUIDES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                make_guides.renewed((ROOT / name).read_text(encoding="utf-8"), Path(folder))
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr)
            for file in Path(folder).rglob("timing.jsonl"):
                for line in file.read_text(encoding="utf-8").splitlines():
                    run = json.loads(line)
                    engine = run.get("engine", {})
                    why = "" if engine.get("used") == "compiled" else engine.get("reason", "not recorded")
                    yield run.get("policy", "?"), f"{Path(name).stem}: {why}", run["wall_s"]


def listed(costs: Iterator[Cost]) -> dict[str, tuple[float, float]]:
    """Add up the costs by policy and reason, and return shares and seconds, largest first."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    for policy, why, seconds in costs:
        total[PolicySpec.parse(policy).name, why.removeprefix(_OF_FEATURE)] += seconds
    whole = sum(total.values()) or 1.0
    ranked = sorted(total.items(), key=lambda pair: -pair[1])
    return {
        f"{policy} ({why or 'compiled'})": (round(seconds / whole, 4), round(seconds, 2))
        for (policy, why), seconds in ranked
    }


def _work(options: command.Options, say: command.Say) -> dict[str, object]:
    results: dict[str, object] = {}
    for source in options.source or (*TABLES, "baseline", "guides"):
        costs = (
            of_table(TABLES[source], options)
            if source in TABLES
            else of_baseline(options)
            if source == "baseline"
            else of_guides(options)
        )
        results[source] = shares = listed(costs)
        taken = sum(share for name, (share, _) in shares.items() if name.endswith("(compiled)"))
        say(f"{source}: {sum(seconds for _, seconds in shares.values()):,.1f} s, {taken:.0%} of it compiled")
        for name, (share, seconds) in list(shares.items())[: options.rows]:
            say(f"  {share:7.1%} {seconds:9,.2f} s  {name}")
    return results


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--source", action="append", choices=[*TABLES, "baseline", "guides"], help="only this one")
    parser.add_argument("--jobs", type=command.at_least_one, default=1000, help="jobs of baseline (default 1000)")
    parser.add_argument("--seeds", type=command.at_least_one, default=1, help="seeds of each table (default 1)")
    parser.add_argument("--every", type=command.at_least_one, default=8, help="of a table's points, one in so many")
    parser.add_argument("--rows", type=command.at_least_one, default=20, help="lines to print (default 20)")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

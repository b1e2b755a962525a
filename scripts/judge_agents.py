"""Judge the shipped agents beside references that say what they are, with exact and with noisy estimates.

    python scripts/judge_agents.py choose [--itp raw-traces.tar.gz]
    python scripts/judge_agents.py report [--seeds 20] [--rollout-seeds N] [--itp raw-traces.tar.gz] [--again]

The four cells are independent and DAG jobs at load 0.9 and 1.1, each with exact estimates and with noisy ones (sigma
0.5); ``--itp`` adds the agent of Microsoft's ITP trace on disjoint windows of the trace's last fifth. ``choose`` picks,
on validation seeds only, three references for each cell and keeps them in ``results/agents/references.yaml``:

- the best cheap non-preemptive heuristic: of ``eft-wait`` with every kept value of its parameters, which was the best
  of all on 100 validation seeds when the agents were trained, and some others (4 seeds, then the best five on 12; of
  DAG jobs 2 and 6),
- the best of some preemptive policies, where every return from a preemption costs ``RESTART_S`` seconds of set-up,
- the better of two roll-outs, by its base policy (with exact estimates; of DAG jobs the one on the heuristic above); a
  roll-out simulates the jobs that are there before each decision.

``report`` spends the report seeds of the table (``results/seeds.yaml``), runs all of them, keeps each run in
``cells.jsonl``, and writes ``report.md``, ``cells.csv`` and ``itp.md``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kept import KeptRun, KeptRuns

from dagsim.config import yaml
from dagsim.config.schema import Config, load_config
from dagsim.errors import ConfigError
from dagsim.experiment.ledger import Ledger, Spending
from dagsim.experiment.simulate import run_policy
from dagsim.experiment.tune import candidates
from dagsim.files import write_text
from dagsim.metrics import to_csv
from dagsim.metrics.compare import ENOUGH_SEEDS
from dagsim.metrics.standings import METHOD, Sample, standings
from dagsim.report.comparison import comparison_table
from dagsim.seeds import REPORT, VALIDATION, seeds_of
from dagsim.systems.cluster.policies.tunable import TUNABLE

ROOT = Path(__file__).parent.parent
OUT = ROOT / "results" / "agents"
RESTART_S = 100.0
"""Cost of a restart in seconds, within the 25 to 250 s measured for real models (Sia, SOSP 2023)."""
ESTIMATES = {"exact": "exact", "noisy": "noisy"}
CELLS = tuple(f"{shape}-{load}" for shape, load in product(("independent", "dag"), (0.9, 1.1)))
ROUND_S = 1800
"""Length of a round of preemptive policies. With 100 s for every return, short rounds would get
nothing done.
"""
ROUNDS = tuple(f"{name}[quantum_s={ROUND_S}]" for name in ("las", "2d-las", "round-robin"))
PREEMPTING = ("srtf", "srsf", "tiresias", *ROUNDS)
OTHERS = ("sjf", "sjf-cp", "scpt", "srpt-work", "critical-path", "tetris", "saf", "hrrn", "easy-sjf")
CHEAP, PREEMPTIVE, ROLLOUT = "cheap", "preemptive", "rollout"
TITLES = {CHEAP: "best cheap non-preemptive heuristic", PREEMPTIVE: "best preemptive", ROLLOUT: "roll-out"}


def config_of(cell: str, estimates: str, itp: Path | None) -> Config:
    """Return the experiment of a cell: its own training configuration, with a cost for preemptions."""
    costs = [f"preemption.restart_s={RESTART_S}", f"estimates={{kind: {estimates}, sigma: 0.5}}"]
    if cell == "itp":
        return load_config(OUT / "itp.yaml", [*costs, f"workload.path={itp}"])
    shape, load = cell.rsplit("-", 1)
    name = "ppo-dag" if shape == "dag" else "ppo"
    return load_config(ROOT / "configs" / "train" / f"{name}.yaml", [*costs, f"workload.load={load}"])


def choose(cell: str, estimates: str, itp: Path | None) -> dict[str, str]:
    """Choose the references of a cell on validation seeds: many on few seeds, then the best on
    more.
    """
    config = config_of(cell, estimates, itp)
    contenders = (*candidates("eft-wait", TUNABLE["eft-wait"]), *OTHERS)
    is_dag = cell.startswith("dag")
    few, more = (2, 6) if is_dag else (4, 12)
    cheap = _best(config, _best(config, contenders, few, 5), more, 1)[0]
    best = _best(config, _best(config, PREEMPTING, few, 3), more, 1)[0]
    if estimates != "exact":
        return {CHEAP: cheap, PREEMPTIVE: best, ROLLOUT: references()[cell]["exact"][ROLLOUT]}
    if is_dag:
        return {CHEAP: cheap, PREEMPTIVE: best, ROLLOUT: f'rollout[base="{cheap}"]'}
    bases = ("eft-wait", cheap if cheap != "eft-wait" else "eft-wait[theta=0.85,order=work]")
    rollouts = [f'rollout[base="{base}"]' for base in bases]
    return {CHEAP: cheap, PREEMPTIVE: best, ROLLOUT: _best(config, rollouts, 4, 1)[0]}


def _best(config: Config, specs: Sequence[str], seeds: int, kept: int) -> list[str]:
    """Return the ``kept`` best of ``specs`` by the geometric mean over ``seeds`` validation seeds."""
    chosen = seeds_of(VALIDATION, seeds)
    score = {
        spec: float(np.log([run_policy(config, spec, seed).summary.jct_s.mean for seed in chosen]).mean())
        for spec in specs
    }
    return sorted(score, key=lambda spec: score[spec] if np.isfinite(score[spec]) else np.inf)[:kept]


def references(path: Path = OUT / "references.yaml") -> dict[str, Any]:
    """Return the references chosen so far, by cell and estimates."""
    return yaml.read_yaml(path).value if path.exists() else {}


def policies_of(cell: str, chosen: dict[str, str]) -> dict[str, str]:
    """Return the policies of a cell by their names in its table. The first is the reference."""
    named = {f"{TITLES[kind]} ({chosen[kind]})": chosen[kind] for kind in (CHEAP, PREEMPTIVE)}
    usual = {name: name for name in ("eft-wait", "sjf", "fifo")}
    agent = OUT / f"{cell}.pt"
    return named | {f"agent ({agent.name})": f'ppo[checkpoint="{agent}"]'} | usual


def with_rollout(cell: str, chosen: dict[str, str]) -> dict[str, str]:
    """The reference, the agent and the roll-out."""
    cheap, _, agent, *_ = policies_of(cell, chosen).items()
    return dict([cheap, agent, (f"{TITLES[ROLLOUT]} ({chosen[ROLLOUT]})", chosen[ROLLOUT])])


def run(cells: Sequence[str], few: int, seeds: Sequence[int], kept: KeptRuns, itp: Path | None) -> Iterator[None]:
    """Run what is missing, roll-outs last, exact estimates first. Yields after each cell."""
    known = references()
    for cell, estimates in product(cells, ESTIMATES):
        policies = policies_of(cell, known[cell][estimates])
        kept.run(f"{cell} {estimates}", config_of(cell, estimates, itp), policies, seeds, _told)
        yield
    for estimates, cell in product(ESTIMATES, cells):
        policies = with_rollout(cell, known[cell][estimates])
        kept.run(f"{cell} {estimates}", config_of(cell, estimates, itp), policies, seeds[:few], _told)
        yield


def shown(
    cell: str, chosen: dict[str, str], name: str, few: int, seeds: Sequence[int], kept: KeptRuns
) -> Iterator[tuple[str, list[KeptRun]]]:
    """Return the reference and the runs of each table of a cell that has its five seeds."""
    for policies, on in ((policies_of(cell, chosen), seeds), (with_rollout(cell, chosen), seeds[:few])):
        whole = [seed for seed in on if len(kept.of(name, tuple(policies), [seed])) == len(policies)]
        if len(whole) >= ENOUGH_SEEDS:
            yield next(iter(policies)), kept.of(name, tuple(policies), whole)


def tables(cell: str, few: int, seeds: Sequence[int], kept: KeptRuns) -> Iterator[str]:
    """Format a cell in Markdown: the table on all seeds, and the one with the roll-out on fewer."""
    known = references()
    sample = Sample.WINDOW if cell == "itp" else Sample.SEED
    for estimates in ESTIMATES:
        name, chosen = f"{cell} {estimates}", known[cell][estimates]
        yield f"\n### {name} estimates\n"
        for reference, lines in shown(cell, chosen, name, few, seeds, kept):
            ranked = standings(lines, reference=reference, sample=sample)
            yield comparison_table(ranked, workload=name).markdown() + "\n"


def rows(cells: Sequence[str], few: int, seeds: Sequence[int], kept: KeptRuns) -> dict[str, list[object]]:
    """Return all standings as columns of ``cells.csv``."""
    known, cell_rows = references(), []
    for cell, estimates in product(cells, ESTIMATES):
        chosen, sample = known[cell][estimates], Sample.WINDOW if cell == "itp" else Sample.SEED
        for _, lines in shown(cell, chosen, f"{cell} {estimates}", few, seeds, kept):
            ranked = standings(lines, sample=sample)
            cell_rows += [{"cell": cell, "estimates": estimates, **each.to_dict()} for each in ranked]
    return {name: [row[name] for row in cell_rows] for name in cell_rows[0]} if cell_rows else {}


HEAD = f"""# Agents beside references, on report seeds

Mean job completion times (JCT); the reference of each table is the best cheap non-preemptive heuristic, tuned ones
included. Preemptive policies pay {RESTART_S:g} s of set-up for every return. The roll-out simulates the jobs that are
there before each decision, which takes hundreds of times as long; it runs on fewer seeds. References were chosen on
validation seeds (`references.yaml`). Noisy estimates are the truth times a log-normal factor (sigma 0.5), for every
policy alike.

"""

ITP = """Windows of 200 jobs of Microsoft's ITP trace, spread over its last fifth, on 16 A100, 16 V100 and 32 T4 at
load 1.0. **The windows are disjoint, but not unseen:** an earlier table had 200 overlapping ones of the same jobs, and
of three agents the one that was best there ships.

"""


def report(cells: Sequence[str], few: int, spending: Spending, kept: KeptRuns) -> str:
    """Return the page of some cells."""
    on_trace = cells == ["itp"]
    sample = "disjoint report windows" if on_trace else "report seeds"
    body = [HEAD + (ITP if on_trace else "") + spending.sentence(METHOD, sample)]
    for cell in cells:
        body += [f"\n## {cell}", *tables(cell, few, spending.seeds, kept)]
    return "\n".join(body)


def _told(run: KeptRun) -> None:
    print(run.cell, run.policy, run.seed, f"{run.metrics['jct_s.mean']:.1f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["choose", "report"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rollout-seeds", type=int, help="seeds with the roll-out (6; of ITP 20 windows)")
    parser.add_argument("--itp", type=Path, help="raw-traces.tar.gz of ITP: judge its agent instead of the four")
    parser.add_argument("--only", nargs="*", help="only these cells; the seeds stay open for the others")
    parser.add_argument("--fresh", action="store_true", help="report seeds of the pool that were not spent yet")
    parser.add_argument("--again", action="store_true", help="the same report seeds again; the table says so")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = options.only or (["itp"] if options.itp else list(CELLS))
    path = OUT / "references.yaml"
    if options.what == "choose":
        for cell, estimates in product(cells, ESTIMATES):
            if estimates not in references(path).get(cell, {}):
                chosen = choose(cell, estimates, options.itp)
                print(cell, estimates, chosen, flush=True)
                chosen_so_far = references(path)  # another process may have chosen for another cell meanwhile
                chosen_so_far.setdefault(cell, {})[estimates] = chosen
                write_text(
                    path, "# References of the agents' tables, chosen on validation seeds.\n" + yaml.dump(chosen_so_far)
                )
        return 0
    command = "python scripts/judge_agents.py report" + (" --itp raw-traces.tar.gz" if options.itp else "")
    ledger = Ledger(ROOT / "results" / "seeds.yaml")
    pool = range(REPORT.start, REPORT.start + 69) if options.itp else None
    name, count = ("agents/itp", 69) if options.itp else ("agents/cells", options.seeds)
    try:
        spending = ledger.spend(
            name,
            count,
            command,
            fresh=options.fresh,
            again=options.again,
            pool=pool,
            windows_of="Microsoft ITP, last fifth" if options.itp else None,
        )
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    few = min(options.rollout_seeds or (20 if options.itp else 6), count)
    kept = KeptRuns(OUT / ("itp.jsonl" if options.itp else "cells.jsonl"))
    stem = "itp" if options.itp else "cells"
    for _ in run(cells, few, spending.seeds, kept, options.itp):
        there = [
            cell
            for cell in (["itp"] if options.itp else CELLS)
            if any(kept.of(f"{cell} exact", ("sjf",), spending.seeds))
        ]
        write_text(OUT / f"{'itp' if options.itp else 'report'}.md", report(there, few, spending, kept))
        if table := rows(there, few, spending.seeds, kept):
            write_text(OUT / f"{stem}.csv", to_csv(table))
    if not options.only:
        ledger.close(spending)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Judge Decima's networks beside the heuristics on job sequences that nothing else has seen.

    python scripts/judge_decima.py [--table NAME ...] [--seeds 60] [--fresh | --again]

Each table has a pool of report seeds of its own, which the ledger gives once (``results/seeds.yaml``). The first policy
of a table is its reference: the heuristic that was best on validation sequences, where its parameters were chosen, too.
Networks decide greedily. Runs are kept as they end (``judging-NAME.jsonl``), so that a stopped table goes on where it
was; ``held-out-NAME.json`` then has mean completion times by seed, and says how it was made. All but ``synthetic`` need
``DAGSIM_DATA``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from kept import KeptRuns

from dagsim.config.schema import load_config
from dagsim.errors import DagsimError
from dagsim.experiment.ledger import Ledger
from dagsim.files import write_text
from dagsim.metrics.standings import METHOD

ROOT = Path(__file__).parent.parent
OUT = ROOT / "results" / "decima"
QUERIES = {"profiles": "$DAGSIM_DATA/traces/tpch-decima"}
JOBS = {"trace": "$DAGSIM_DATA/traces/alibaba-v2018/batch_task_random6600.csv.gz", "max_tasks": 500}
BEST = "weighted-fair[alpha=0.25,order=shortest]"


class Table(NamedTuple):
    """Keys of the system, and who plays; the first policy is the reference."""

    system: Mapping[str, object]
    heuristics: tuple[str, ...]
    networks: tuple[str, ...]

    @property
    def policies(self) -> tuple[str, ...]:
        """Policies as the command line takes them."""
        return *self.heuristics, *[f"decima[checkpoint=results/decima/{name}.pt]" for name in self.networks]


TABLES = {
    "w1-parity": Table(
        {"executors": 10, "jobs": 50, "parity": True, **QUERIES}, ("srpt-cp[cap=5]", "srpt-cp"), ("w1",)
    ),
    "parity": Table({"executors": 50, "jobs": 100, "parity": True, **QUERIES}, (BEST, "weighted-fair"), ("w2",)),
    "default": Table({"executors": 50, "jobs": 100, **QUERIES}, (BEST, "weighted-fair"), ("w2",)),
    "batch": Table(
        {"executors": 50, "jobs": 20, "batch": 20, **QUERIES},
        (
            "srpt-cp[cap=8]",
            "weighted-fair[alpha=-1,total=true]",
            "weighted-fair[alpha=-0.25,order=shortest]",
            "weighted-fair",
            "graphene",
            "tetris[cap=16]",
            "fair",
            "sjf-cp",
            "naive-weighted-fair",
            "fifo",
        ),
        ("w2", "batch"),
    ),
    "synthetic": Table(
        {"executors": 50, "jobs": 70},
        (BEST, "weighted-fair", "srpt-cp[cap=16]", "graphene", "fair", "srpt-cp", "fifo"),
        ("synthetic-ppo", "w2", "synthetic-reinforce", "synthetic-limit"),
    ),
    "alibaba": Table(
        {"executors": 50, "jobs": 200, "mean_gap_s": 44, **JOBS},
        (
            "srpt-cp[cap=12]",
            "srpt-cp",
            "weighted-fair[alpha=0,order=shortest]",
            "weighted-fair",
            "graphene",
            "fair",
            "fifo",
        ),
        ("w2", "alibaba"),
    ),
}


def judge(name: str, seeds: Sequence[int]) -> list[dict[str, object]]:
    """Per policy of a table its mean completion times; runs what is missing."""
    table = TABLES[name]
    config = load_config(None, ["system.kind=spark", *(f"system.{key}={value}" for key, value in table.system.items())])
    kept = KeptRuns(OUT / f"judging-{name}.jsonl")
    by_policy: dict[str, list[float]] = {policy: [] for policy in table.policies}
    for seed in seeds:
        for run in kept.run(name, config, {policy: policy for policy in table.policies}, [seed]):
            by_policy[run.policy].append(run.metrics["jct_s.mean"])
        print(f"{name}: seed {seed}", flush=True)
    return [{"policy": policy, "mean_s": fmean(values), "by_seed_s": values} for policy, values in by_policy.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="append", choices=tuple(TABLES), help="only this one; repeatable")
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--fresh", action="store_true", help="report seeds of the pools that were not spent yet")
    parser.add_argument("--again", action="store_true", help="the same report seeds again; the tables say so")
    given = parser.parse_args()
    ledger = Ledger(ROOT / "results" / "seeds.yaml")
    try:
        for name in given.table or TABLES:
            spending = ledger.spend(
                f"decima/{name}",
                given.seeds,
                "python scripts/judge_decima.py",
                fresh=given.fresh,
                again=given.again,
            )
            lines = judge(name, spending.seeds)
            told = {
                "made": spending.sentence(METHOD),
                "system": TABLES[name].system,
                "seeds": list(spending.seeds),
                "lines": lines,
            }
            write_text(OUT / f"held-out-{name}.json", json.dumps(told, indent=1) + "\n")
            ledger.close(spending)
            (OUT / f"judging-{name}.jsonl").unlink()
    except DagsimError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

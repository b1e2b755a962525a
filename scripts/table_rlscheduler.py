"""RLScheduler's table V beside policies of dagsim that were chosen on other jobs of the same logs.

    python scripts/table_rlscheduler.py [--json]

The policies are compared on ten sequences of 1,024 jobs that no reported sequence contains a job of: of the first 1,981
jobs of the two Lublin logs, and of the jobs after the first 12,000 of HPC2N. For each log and each kind of rules, the
best one plays the ten sequences of the paper. ``committed`` obeys RLScheduler's rules: a picked job waits until it
fits. With backfilling, it may also try six jobs before it picks one (``width``). Without, queues are up to five times
as long, and trials take too long. The free policies decide again at every event, and any job that fits may overtake.

Intervals are 95 %, Student's t over the ten sequences; of the ratio to F1 with the same rules on logarithms, paired.
Needs ``$DAGSIM_DATA``.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import command
import numpy as np
from command import Say

from dagsim.families.benchmark.papers import opened, sequence_jobs, sequence_starts, simulated
from dagsim.files import write_text
from dagsim.metrics import bounded_slowdown, to_csv
from dagsim.metrics.student import t_quantile
from dagsim.model import Job

LOGS = {
    "Lublin-1": ("lublin_256.swf.gz", 256, None),
    "HPC2N": ("HPC2N-2002-2.2-cln.swf.gz", 240, 10_000),
    "Lublin-2": ("lublin_256_new2.swf.gz", 256, None),
}
"""File, processors, and number of jobs in the paper."""
SCORES = ("f1", "sjf", "log-area", "soonest", "area")
TRIED = ("log-area,width=6", "area,width=6")
FREE = ("f1", "f4", "sjf", "hrrn")
"""Policies that do not commit to a job."""
FILE = Path(__file__).parent.parent / "results" / "baselines" / "rlscheduler.csv"


def slowdowns(jobs: list[Job], processors: int, starts: Iterable[int], policy: str) -> np.ndarray:
    """Mean bounded slowdown of each sequence."""
    return np.array([bounded_slowdown(simulated(jobs[at : at + 1024], processors, policy)).mean() for at in starts])


def _row(values: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    half = t_quantile(0.95, len(values) - 1) / len(values) ** 0.5
    ratio = np.log(values / reference)
    bounds = np.exp(ratio.mean() + half * ratio.std(ddof=1) * np.array([0, -1, 1]))
    return {
        "slowdown": float(values.mean()),
        "low": float(values.mean() - half * values.std(ddof=1)),
        "high": float(values.mean() + half * values.std(ddof=1)),
        **dict(zip(("ratio_to_f1", "ratio_low", "ratio_high"), bounds.tolist(), strict=True)),
    }


def _work(options: Namespace, say: Say) -> list[dict[str, Any]]:
    rows = []
    for title, (name, processors, first) in LOGS.items():
        path = Path(os.environ["DAGSIM_DATA"]) / "traces" / "swf" / name
        jobs = sequence_jobs(opened(path, processors, "rlscheduler"), path)
        starts = sequence_starts(first or len(jobs))
        others = range(12_000, 32_000, 2_000) if first else range(0, 958, 106)
        rules = {
            "picked job waits": [f"committed[score={score}]" for score in SCORES],
            "picked job waits, backfilling": [f"committed[score={score},backfill=true]" for score in SCORES + TRIED],
            "free": FREE,
        }
        for rule, policies in rules.items():
            chosen = min(policies, key=lambda policy: slowdowns(jobs, processors, others, policy).mean())
            f1 = slowdowns(jobs, processors, starts, policies[0])
            row = _row(slowdowns(jobs, processors, starts, chosen), f1)
            rows.append({"log": title, "rules": rule, "policy": chosen, **row, "f1": float(f1.mean())})
            say(", ".join(f"{key} {value}" for key, value in rows[-1].items()))
    write_text(FILE, to_csv({key: [row[key] for row in rows] for key in rows[0]}))
    return rows


def main() -> int:
    return command.run(command.arguments(__doc__), _work)


if __name__ == "__main__":
    sys.exit(main())

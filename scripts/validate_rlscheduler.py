"""RLScheduler's tables: the mean bounded slowdown of FCFS, SJF and F1 over ten sequences of 1,024 jobs.

    python scripts/validate_rlscheduler.py --trace FILE --processors N [--first N] [--json]

Its protocol (Zhang et al., SC 2020, and their repository): rows are read by ``protocol="rlscheduler"`` and sorted by
job number, ``--first`` keeps the first of them; sequences start where Gym 0.15's generator with seed 1 says; each runs
on an empty machine to its end; the scheduler commits to one job at a time (``committed``). ``bf0`` is without and
``bf1`` with its backfilling. The bounded slowdown is max(1, (wait + run) / max(run, 10 s)).
"""

from __future__ import annotations

import hashlib
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import command
import numpy as np
from command import Say, lines
from validate_swf import opened, simulated

from dagsim.errors import InputError
from dagsim.metrics import bounded_slowdown_hpc
from dagsim.model import Job
from dagsim.traces import Trace

__all__ = ["means", "measured", "starts"]

SCORES = {"FCFS": "fcfs", "SJF": "sjf", "F1": "f1"}
LENGTH = 1024


def starts(jobs: int, count: int = 10, seed: int = 1) -> list[int]:
    """Starts of the sequences: NumPy's old generator, seeded with a hash of the seed like Gym 0.15."""
    digest = hashlib.sha512(str(seed).encode()).digest()[:8]
    words = np.frombuffer(digest, "<u4").tolist()
    while len(words) > 1 and not words[-1]:
        words.pop()
    rng = np.random.RandomState()
    rng.seed(words)
    return [int(rng.randint(LENGTH, jobs - LENGTH - 1)) for _ in range(count)]


def means(jobs: list[Job], processors: int) -> dict[str, dict[str, float]]:
    """Mean bounded slowdowns, without (``bf0``) and with backfilling (``bf1``)."""

    def mean(score: str, backfill: str) -> float:
        policy = f"committed[score={score},backfill={backfill}]"
        parts = (jobs[start : start + LENGTH] for start in starts(len(jobs)))
        schedules = (simulated(part, processors, policy) for part in parts)
        return float(np.mean([float(bounded_slowdown_hpc(schedule).mean()) for schedule in schedules]))

    return {
        name: {title: mean(score, backfill) for title, score in SCORES.items()}
        for name, backfill in (("bf0", "false"), ("bf1", "true"))
    }


def first_submit_s(trace: Path) -> float:
    """Smallest submit time of a log (its second field)."""
    rows = (line for line in lines(trace) if line.strip() and not line.lstrip().startswith(";"))
    return min(float(line.split()[1]) for line in rows)


def measured(trace: Trace, log: Path, processors: int, first: int | None = None) -> dict[str, dict[str, float]]:
    """Return the means over the first jobs of the log.

    Raises:
        InputError: The log has too few jobs.
    """
    first_s = first_submit_s(log)  # F1 goes by absolute times, readers count from the first job
    jobs = sorted(trace.jobs(), key=lambda job: int(job.id))[:first]
    if len(jobs) < 2 * LENGTH + 2:
        raise InputError(f"{log}: {len(jobs)} jobs are too few for sequences of {LENGTH}")
    return means([replace(job, arrival_s=job.arrival_s + first_s) for job in jobs], processors)


def _work(options: Namespace, say: Say) -> dict[str, dict[str, float]]:
    trace = opened(options.trace, options.processors, "rlscheduler")
    rows = measured(trace, options.trace, options.processors, options.first)
    for name, row in rows.items():
        say(f"{name}: " + ", ".join(f"{policy} {value:.6f}" for policy, value in row.items()))
    say(trace.report)
    return rows


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="a .swf or .swf.gz log")
    parser.add_argument("--processors", type=int, required=True, help="cores of the machine")
    parser.add_argument("--first", type=int, help="take only the first jobs of the log")
    return command.run(parser, _work)


if __name__ == "__main__":
    sys.exit(main())

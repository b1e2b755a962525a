"""FCFS and EASY on a Standard Workload Format log: mean wait and mean bounded slowdown over all jobs.

    python scripts/validate_swf.py --trace FILE --processors N [--json]

Jobs are read by PYSS's rules (run time at most the requested time; ``protocol="pyss"``), and estimates are the
requested times; EASY makes a pass at every event, as PYSS does (``easy-events``). The bounded slowdown is max(1, (wait
+ run) / max(run, 10 s)).
"""

from __future__ import annotations

from pathlib import Path

import command

from dagsim.families.benchmark.papers import opened, simulated
from dagsim.metrics import bounded_slowdown, wait
from dagsim.model import Job
from dagsim.traces import Trace


def means(jobs: list[Job], processors: int, policy: str) -> dict[str, float]:
    """Mean wait and mean bounded slowdown of all jobs."""
    schedule = simulated(jobs, processors, policy)
    return {
        "mean_wait_s": float(wait(schedule).mean()),
        "mean_bsld": float(bounded_slowdown(schedule).mean()),
        "jobs": len(jobs),
    }


def measured(trace: Trace, processors: int) -> dict[str, dict[str, float]]:
    """Return the means of both policies."""
    jobs = list(trace.jobs())
    return {name: means(jobs, processors, policy) for name, policy in (("fcfs", "fifo"), ("easy", "easy-events"))}


def _work(options: command.Options, say: command.Say) -> dict[str, dict[str, float]]:
    trace = opened(options.trace, options.processors)
    rows = measured(trace, options.processors)
    say(rows)
    say(trace.report)
    return rows


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="a .swf or .swf.gz log")
    parser.add_argument("--processors", type=int, required=True, help="cores of the machine")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

"""RLScheduler's tables: the mean bounded slowdown of five policies over ten sequences of 1,024 jobs.

    python scripts/validate_rlscheduler.py --trace FILE --processors N [--first N] [--policies FCFS,F1] [--json]

Its protocol (Zhang et al., SC 2020, and their repository): rows are read by ``protocol="rlscheduler"`` and sorted by
job number, ``--first`` keeps the first of them; sequences start where Gym 0.15's generator with seed 1 says; each runs
on an empty machine to its end; the scheduler commits to one job at a time (``committed``). ``bf0`` is without and
``bf1`` with its backfilling. The bounded slowdown is max(1, (wait + run) / max(run, 10 s)).
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

import command

from dagsim.families.benchmark.papers import SCORES, opened, sequence_slowdowns


def _work(options: command.Options, say: command.Say) -> dict[str, dict[str, float]]:
    trace = opened(options.trace, options.processors, "rlscheduler")
    rows = sequence_slowdowns(trace, options.trace, options.processors, options.first, options.policies)
    say(rows)
    say(trace.report)
    return rows


def _policies(text: str) -> list[str]:
    names = text.split(",")
    if not set(names) <= set(SCORES):
        raise ArgumentTypeError(f"should be some of {', '.join(SCORES)}")
    return names


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="a .swf or .swf.gz log")
    parser.add_argument("--processors", type=int, required=True, help="cores of the machine")
    parser.add_argument("--first", type=int, help="take only the first jobs of the log")
    parser.add_argument("--policies", type=_policies, default=SCORES, help=f"some of {', '.join(SCORES)} (all)")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

"""List scheduling against known optimal makespans: the Standard Task Graph set.

    python scripts/validate_stg.py --graphs stg-50.tar.gz --optimal DIR [--json]

Every graph of the archive runs alone on 2, 4, 8 and 16 cores under ``critical-path`` (highest level first, ties by
number; HLFET). ``DIR`` holds ``Case<tasks>_<cores>_OPT.csv`` (graph, cores, optimum). Printed per number of cores:
graphs, the mean ratio to the optimum, how many reach it, and how many lie below it, which must be none.
"""

from __future__ import annotations

from pathlib import Path

import command

from dagsim.families.benchmark.papers import OptimaReached, graph_tasks, optima_reached
from dagsim.traces import open_trace


def _work(options: command.Options, say: command.Say) -> dict[int, OptimaReached]:
    jobs = list(open_trace(options.graphs, "stg").jobs())
    rows, tasks = optima_reached(jobs, options.optimal), graph_tasks(jobs)
    say({f"{tasks} tasks, {cores} cores": row for cores, row in rows.items()})
    return rows


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--graphs", type=Path, required=True, help="an archive or folder of .stg files")
    parser.add_argument("--optimal", type=Path, required=True, help="the folder of Case<tasks>_<cores>_OPT.csv")
    return command.run(parser, _work, holds=lambda rows: not any(row["below_optimum"] for row in rows.values()))


if __name__ == "__main__":
    raise SystemExit(main())

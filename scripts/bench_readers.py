"""How fast the Alibaba 2018 reader turns rows into jobs: ``python scripts/bench_readers.py [--rows 2000000] [--gz]``.

Writes a synthetic ``batch_task.csv`` (3.3 tasks per job, jobs in random order, rows of a job apart) into a temporary
directory, reads it through ``open_trace``, first in columns (``columns_s``, CPU seconds), then as objects, and prints
seconds, rows per second and peak memory. On the machine dagsim
was written on (2 cores, Python 3.11) 2,000,000 rows became jobs in 13 s with 114 MB, about half of it the making of
``Task``, ``TaskGraph`` and ``Job``; 200,000 rows in 1.3 s with 82 MB (35 MB of both are imports).

Why objects come without a table library: every row has to become Python values anyway. The same 2,000,000 rows as
Python values, one core:

    str.split            0.48 s     10 MB        pyarrow.csv, streamed    0.97 s    310 MB
    csv.reader           0.76 s     10 MB        polars                   1.12 s    961 MB
    pandas, in chunks    0.75 s    179 MB        polars, sorted by job    1.96 s  1,102 MB

Sorting by job and arrival costs ``gather`` 3 s with temporary files and 80 MB whatever the length of the trace, and a
line of text still knows its number when it turns out to be dirty.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dagsim.traces import open_trace


def rows(count: int, seed: int = 1) -> Iterator[str]:
    """Rows of jobs with 1 to 9 tasks; a window of a few hundred rows is shuffled."""
    rng = random.Random(seed)
    window: list[str] = []
    for job in range(count):
        start = rng.randrange(86_400, 8 * 86_400)
        for task in range(1, 1 + min(9, int(rng.expovariate(0.34)) + 1)):
            parents = sorted(rng.sample(range(1, task), min(task - 1, rng.choice((1, 1, 1, 2)))))
            name = "_".join(map(str, (f"{rng.choice('MRJ')}{task}", *parents)))
            end = start + rng.choice((0, 1, 3, 8, 40, 200))
            instances, cpu = rng.choice((1, 1, 4, 80)), rng.choice((50, 100))
            window.append(f"{name},{instances},j_{job},1,Terminated,{start},{end},{cpu},{rng.random():.2f}\n")
            start = end
        if len(window) > 300:
            rng.shuffle(window)
            while len(window) > 150:
                yield window.pop()
                count -= 1
                if count == 0:
                    return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--gz", action="store_true", help="compress the file")
    parser.add_argument("--trace", type=Path, help="read this file instead of a synthetic one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.trace
        if path is None:
            path = Path(folder) / ("batch_task.csv.gz" if given.gz else "batch_task.csv")
            with gzip.open(path, "wt", compresslevel=1) if given.gz else path.open("w") as file:
                file.writelines(rows(given.rows))
        trace = open_trace(path, None if given.trace else "alibaba2018")
        began = time.process_time()
        columns_s = None if trace.arrays() is None else round(time.process_time() - began, 2)
        began = time.perf_counter()
        tasks = sum(len(job.graph.tasks) for job in trace.jobs())
        seconds = time.perf_counter() - began
    result = {
        "rows": trace.report.rows,
        "jobs": trace.report.jobs,
        "tasks": tasks,
        "columns_s": columns_s,
        "seconds": round(seconds, 2),
        "rows_per_s": round(trace.report.rows / seconds),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
    }
    print(
        json.dumps(result)
        if given.json
        else "  ".join(f"{name} {value:,}" for name, value in result.items() if value is not None)
    )


if __name__ == "__main__":
    main()

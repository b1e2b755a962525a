"""How fast readers turn rows into jobs: ``python scripts/bench_readers.py [--rows 2000000] [--format swf] [--gz]``.

Writes a large file into a temporary directory: a synthetic ``batch_task.csv`` of Alibaba 2018 (3.3 tasks per job, jobs
in random order, rows of a job apart), or, of another format, the rows of a sample again and again, with ids of their
own and later times (``--sample``; the one that comes with dagsim unless given). Reads it through ``open_trace`` in
columns and as objects in turn, and prints CPU seconds of the best of ``--times`` rounds, and peak memory.
"""

from __future__ import annotations

import gzip
import random
import resource
import tempfile
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import command
from clock import cpu_s

from dagsim.traces import open_trace
from dagsim.traces.source import Source

SAMPLES = Path(__file__).parent.parent / "workloads" / "samples"


class Repeated(NamedTuple):
    """A format whose rows are repeated: its sample, and the positions of a row's id and time."""

    sample: str
    separator: str
    id: int
    time: int


REPEATED = {
    "swf": Repeated("swf/sample.swf", " ", 0, 1),
    "helios": Repeated("helios/cluster_log.csv", ",", 0, 7),
    "pai2020": Repeated("pai2020/pai_job_duration_sample.csv", ",", 0, 6),
}


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


def repeated(kind: Repeated, format_: str, sample: Path, count: int) -> Iterator[str]:
    """Return the head of the sample, and its rows, repeated until there are ``count``."""
    trace = open_trace(sample, format_, full_report=True)
    for _ in trace.jobs():
        pass
    dropped = {
        int(text.split(": dropped")[0].rpartition(":")[2]) for text in trace.report.details if ": dropped" in text
    }
    blanks = kind.separator == " "
    lines = [line for number, line in Source(sample).lines() if line.strip() and number not in dropped]
    head = [line for line in lines if line.startswith(";")] if blanks else lines[:1]
    yield from (f"{line}\n" for line in head)
    listed = [line.split(None if blanks else ",") for line in lines[len(head) :]]
    for number in range(count):
        fields = list(listed[number % len(listed)])
        fields[kind.id] = str(number)
        fields[kind.time] = _later(fields[kind.time], 100 * (number // len(listed)))
        yield f"{kind.separator.join(fields)}\n"


def _later(text: str, seconds: int) -> str:
    try:
        return str(int(float(text)) + seconds)
    except ValueError:
        return str(datetime.fromisoformat(text) + timedelta(seconds=seconds))


def write(path: Path, options: command.Options) -> None:
    """Write the file to read."""
    lines = rows(options.rows)
    if options.format != "alibaba2018":
        kind = REPEATED[options.format]
        lines = repeated(kind, options.format, options.sample or SAMPLES / kind.sample, options.rows)
    with gzip.open(path, "wt", compresslevel=1) if options.gz else path.open("w") as file:
        file.writelines(lines)


def _work(options: command.Options, say: command.Say) -> dict[str, float | None]:
    with tempfile.TemporaryDirectory() as folder:
        path = options.trace
        if path is None:
            path = Path(folder) / f"{'batch_task' if options.format == 'alibaba2018' else 'trace'}.csv"
            write(path, options)
        trace = open_trace(path, None if options.trace else options.format)
        arrays = trace.arrays()
        rounds = [(cpu_s(trace.arrays), cpu_s(lambda: deque(trace.jobs(), maxlen=0))) for _ in range(options.times)]
    columns_s, objects_s = (min(spent_s) for spent_s in zip(*rounds, strict=True))
    figures = {
        "rows": trace.report.rows,
        "jobs": trace.report.jobs,
        "columns_s": round(columns_s, 2),
        "columns_us_per_row": round(columns_s / trace.report.rows * 1e6, 2),
        "bytes_per_task": round(arrays.nbytes / arrays.tasks, 1),
        "objects_s": round(objects_s, 2),
        "objects_us_per_row": round(objects_s / trace.report.rows * 1e6, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
    }
    say(figures)
    return figures


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--gz", action="store_true", help="compress the file")
    parser.add_argument("--format", choices=("alibaba2018", *REPEATED), default="alibaba2018")
    parser.add_argument("--sample", type=Path, help="repeat the rows of this file")
    parser.add_argument("--trace", type=Path, help="read this file instead of one that is made")
    parser.add_argument("--times", type=int, default=1, help="rounds")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

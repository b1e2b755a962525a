"""FCFS and EASY back-filling of a batch log in one plain loop, independent of dagsim.

    python scripts/batch_loop.py --trace FILE --processors N [--json]

``validate_swf.py`` compares dagsim with this script. PYSS's rules:

- A job runs for max(1, min(run, request)) whole seconds and claims max(run, request, 1), even if
  the request is -1.
- At equal times, submissions come before ends, and ends come in the order of starts. One pass of
  the scheduler follows each of them.
- A pass treats a job's processors as free from its claimed end on. It starts jobs by age until one
  does not fit. Later jobs go ahead if they claim to end by that job's shadow time, or if they need
  no more processors than are left over then.

The script prints the mean wait and the mean bounded slowdown, max(1, (wait + run) / max(run, 10
s)).
"""

from __future__ import annotations

from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

import command


class Row(NamedTuple):
    """A job as PYSS reads it."""

    submit_s: float
    run_s: float
    claim_s: float
    processors: int


def rows(trace: Path) -> list[Row]:
    """Return the log's jobs in order of submission."""
    jobs = []
    for line in command.lines(trace):
        if not line.strip() or line.startswith(";"):
            continue
        fields = line.split()
        run, claim, processors = int(float(fields[3])), int(float(fields[8])), int(fields[4])
        if run <= 0 or processors <= 0:
            run, claim, processors = 1, 1, max(processors, 1)
        jobs.append(Row(float(fields[1]), max(min(run, claim), 1), max(run, claim, 1), processors))
    return sorted(jobs, key=lambda row: row.submit_s)


def waits(jobs: list[Row], processors: int, backfill: bool) -> list[float]:
    """Return each job's wait. O(queue + running) per event."""
    events = [(row.submit_s, 0, number, number) for number, row in enumerate(jobs)]  # sorted: a heap already
    queue: list[int] = []
    running: dict[int, tuple[float, int]] = {}
    waited = [0.0] * len(jobs)
    starts: list[int] = []

    def start(number: int, now: float) -> None:
        row = jobs[number]
        waited[number] = now - row.submit_s
        running[number] = now + row.claim_s, row.processors
        starts.append(number)
        heappush(events, (now + row.run_s, 1, len(starts), number))

    while events:
        now, ends, _, number = heappop(events)
        if ends:
            del running[number]
        else:
            queue.append(number)
        free = processors - sum(held for end_s, held in running.values() if end_s > now)
        while queue and jobs[queue[0]].processors <= free:
            free -= jobs[queue[0]].processors
            start(queue.pop(0), now)
        if not backfill or len(queue) < 2 or not free:
            continue
        shadow_s, extra = now, free
        needed = jobs[queue[0]].processors
        for end_s, held in sorted(running.values()):
            if end_s <= now:
                continue  # counted as free already
            if extra >= needed and end_s > shadow_s:
                break
            extra += held
            shadow_s = end_s
        extra -= needed
        for other in queue[1:]:
            row = jobs[other]
            in_time = now + row.claim_s <= shadow_s
            if row.processors <= free and (in_time or row.processors <= extra):
                queue.remove(other)
                start(other, now)
                free -= row.processors
                extra -= 0 if in_time else row.processors
    return waited


def means(jobs: list[Row], processors: int, backfill: bool) -> dict[str, float]:
    """Mean wait and mean bounded slowdown over all jobs."""
    waited = waits(jobs, processors, backfill)
    slowdowns = [max(1.0, (wait + row.run_s) / max(row.run_s, 10.0)) for wait, row in zip(waited, jobs, strict=True)]
    return {"mean_wait_s": sum(waited) / len(jobs), "mean_bsld": sum(slowdowns) / len(jobs)}


def measured(log: Path, processors: int) -> dict[str, dict[str, float]]:
    """Return the means of both policies."""
    jobs = rows(log)
    return {name: means(jobs, processors, backfill) for name, backfill in (("fcfs", False), ("easy", True))}


def _work(options: command.Options, say: command.Say) -> dict[str, dict[str, float]]:
    policies = measured(options.trace, options.processors)
    say(policies)
    return policies


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="a .swf or .swf.gz log")
    parser.add_argument("--processors", type=int, required=True, help="cores of the machine")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

"""Intervals of ``dagsim whatif`` on logs of M/G/c queues, whose ratio in the long run is known.

    python scripts/validate_coverage.py [--queues exponential:16x0.7,...] [--jobs 4000,20000] [--logs 40] [--seed 3001]
                                        [--long 600000] [--json] [--out FILE]

A queue ``lognormal-1.5:16x0.7`` has 16 servers and a load of 0.7. Jobs of one GPU arrive as a Poisson process. Their
run times, 3,600 s on average, are exponential, log-normal with that standard deviation of the logarithm, or those of
``like-philly``. Three systems play each log: *today* is first come, first served; *sjf* starts the shortest job first;
*plus* has 1/16 more servers, or one. The truth is the ratio of mean times in 6 runs of ``--long`` jobs on other seeds.
``change_of``, which ``whatif`` asks, gives the 95 % interval of each log, or says that the log is too short.

The constants of the interval were chosen on seeds below 3,000. The script checks

    coverage   at least 0.9 of the intervals of each metric, length and alternative hold the truth, and at least
               three quarters of those of each queue with 20 intervals or more
    share      at least a third of the logs of the greatest length have an interval of the mean completion time
    engine     waits equal those of the compiled engine

Exits with 1 if one of them fails.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import isfinite, log
from typing import Any, NamedTuple, TypeAlias

import command
import numpy as np
from numpy.typing import NDArray

from dagsim.config.schema import load_config
from dagsim.families.compiled.jit import installed
from dagsim.metrics.columns import columns
from dagsim.metrics.jct import wait
from dagsim.metrics.series import JobSeries, change_of
from dagsim.model import Cluster, Job, Task
from dagsim.systems.cluster.arrivals.job_sources import StoredJobs
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import ArrivalTimes

SERVICE_S = 3600.0
RUN_TIMES = ("exponential", "lognormal-1", "lognormal-1.5", "lognormal-2", "like-philly")
SERVERS, LOADS = (8, 16, 64), (0.5, 0.7, 0.85, 0.95)
METRICS = ("jct_s.mean", "wait_s.mean")
LONG_RUNS = 6

Floats = NDArray[np.float64]
Truths: TypeAlias = dict[tuple[str, str], tuple[float, float]]


class Queue(NamedTuple):
    """An M/G/c queue."""

    run_times: str
    servers: int
    load: float

    @classmethod
    def read_all(cls, text: str) -> list[Queue]:
        """Read ``exponential:16x0.7,like-philly:8x0.5``."""
        form = rf"({'|'.join(map(re.escape, RUN_TIMES))}):(\d+)x(0?\.\d+)"
        matches = [re.fullmatch(form, part) for part in text.split(",")]
        queues = [cls(match[1], int(match[2]), float(match[3])) for match in matches if match]
        if len(queues) < len(matches) or any(queue.servers < 1 for queue in queues):
            raise ArgumentTypeError(f"expected run times:servers x load, such as exponential:16x0.7, got {text!r}")
        return queues

    def __str__(self) -> str:
        return f"{self.run_times}:{self.servers}x{self.load:g}"

    def jobs(self, number: int, *seed: int) -> tuple[Floats, Floats]:
        """Arrivals and run times of a number of jobs, in seconds."""
        rng = np.random.default_rng([*seed, RUN_TIMES.index(self.run_times), self.servers, round(100 * self.load)])
        arrival_s = np.cumsum(rng.exponential(SERVICE_S / (self.servers * self.load), number))
        if self.run_times == "exponential":
            return arrival_s, rng.exponential(SERVICE_S, number)
        if self.run_times == "like-philly":
            return arrival_s, SERVICE_S * rng.choice(_philly(), number)
        sigma = float(self.run_times.partition("-")[2])
        return arrival_s, SERVICE_S * rng.lognormal(-sigma * sigma / 2, sigma, number)

    @property
    def alternatives(self) -> dict[str, tuple[int, bool]]:
        """Servers, and whether the shortest job starts first, of today's system and of the others."""
        more = self.servers + max(self.servers // 16, 1)
        return {"today": (self.servers, False), "sjf": (self.servers, True), "plus": (more, False)}


@cache
def _philly() -> Floats:
    """Run times of jobs that are fitted to Philly's, divided by their mean."""
    config = load_config(None, ["workload=like-philly"])
    work = replace(config.workload, count=200_000).arrays(config.build_cluster(), config.runtime, 0).work
    return np.asarray(work / work.mean())


def queue_waits(arrival_s: Floats, run_s: Floats, servers: int, shortest: bool) -> Floats:
    """Waits of jobs on equal servers, in order of arrival, or shortest job first (ties by arrival)."""
    jobs, known = len(arrival_s), 0
    waits = np.empty(jobs)
    waiting, ends = np.empty((jobs + 1, 2)), np.empty((servers + 1, 2))
    waits_now, busy = 0, 0
    while known < jobs or waits_now:
        if known < jobs and (busy < servers or arrival_s[known] < ends[0, 0]):
            now = arrival_s[known]
            while busy and ends[0, 0] <= now:
                busy = _taken(ends, busy)
            waits_now = _put(waiting, waits_now, run_s[known] if shortest else float(known), float(known))
            known += 1
        else:
            now = ends[0, 0]
            busy = _taken(ends, busy)
        while waits_now and busy < servers:
            job = int(waiting[0, 1])
            waits_now = _taken(waiting, waits_now)
            waits[job] = now - arrival_s[job]
            busy = _put(ends, busy, now + run_s[job], float(job))
    return waits


def _put(heap: Floats, size: int, key: float, job: float) -> int:
    """Add an entry to a heap of keys and jobs; return the number of entries."""
    place = size
    while place:
        above = (place - 1) // 2
        if (heap[above, 0], heap[above, 1]) < (key, job):
            break
        heap[place] = heap[above]
        place = above
    heap[place, 0], heap[place, 1] = key, job
    return size + 1


def _taken(heap: Floats, size: int) -> int:
    """Remove the least entry; return the number of those left."""
    size -= 1
    key, job = heap[size, 0], heap[size, 1]
    place, below = 0, 1
    while below < size:
        other = below + 1
        if other < size and (heap[other, 0], heap[other, 1]) < (heap[below, 0], heap[below, 1]):
            below = other
        if (key, job) < (heap[below, 0], heap[below, 1]):
            break
        heap[place] = heap[below]
        place, below = below, 2 * below + 1
    heap[place, 0], heap[place, 1] = key, job
    return size


if installed():
    import numba

    compiled: Any = numba.njit
    _put, _taken, queue_waits = compiled(_put), compiled(_taken), compiled(queue_waits)


def engine_waits(arrival_s: Floats, run_s: Floats, servers: int, shortest: bool) -> Floats:
    """The waits of the same jobs in dagsim's own simulation."""
    rows = [Job.single(str(number), Task("t", 1.0), float(number)) for number in range(len(arrival_s))]
    jobs = replace(JobArrays.of(rows), arrival_s=arrival_s, work=run_s)
    scenario = ClusterScenario(Cluster.of({"T4": servers}), StoredJobs(jobs), runtime=Recorded(), engine="compiled")
    kernel = scenario.engaged("sjf" if shortest else "fifo", 0).kernel
    for view in kernel.decisions():
        raise AssertionError(f"the compiled engine asks for a decision: {view}")
    return np.asarray(wait(columns(kernel.schedule)))


def series(waits: Floats, arrival_s: Floats, run_s: Floats, servers: int) -> JobSeries:
    """The values of jobs as a run folder keeps them, and the load that they offer."""
    arrivals = ArrivalTimes()
    arrivals.add_all(arrival_s)
    values, load = {"jct_s": waits + run_s, "wait_s": waits}, float(run_s.sum()) / (servers * arrivals.period_s)
    return JobSeries(values, np.zeros(len(waits), np.int64), ("",), load=load)


def long_run(queue: Queue, jobs: int) -> Truths:
    """The ratio to today's system in the long run, by alternative and metric, and the standard error of its logarithm.
    Without waits there is none.
    """
    sums: dict[str, list[float]] = {name: [] for name in queue.alternatives}
    for run in range(LONG_RUNS):
        arrival_s, run_s = queue.jobs(jobs, 0, run)
        for name, system in queue.alternatives.items():
            sums[name].append(float(queue_waits(arrival_s, run_s, *system)[jobs // 50 :].mean()))
    truths = {}
    for name in queue.alternatives:
        for metric, run_s_mean in (("jct_s.mean", SERVICE_S), ("wait_s.mean", 0.0)):
            ours, theirs = (np.array(sums[of]) + run_s_mean for of in (name, "today"))
            if name != "today" and ours.mean() > 0 and theirs.mean() > 0:
                with np.errstate(divide="ignore", invalid="ignore"):
                    error = float(np.std(ours / ours.mean() - theirs / theirs.mean(), ddof=1)) / LONG_RUNS**0.5
                truths[name, metric] = float(ours.mean() / theirs.mean()), error
    return truths


class Covered(NamedTuple):
    """Intervals of one queue's logs of one length, of one metric and alternative."""

    queue: str
    jobs: int
    alternative: str
    metric: str
    ratio: float
    """In the long run."""
    error: float
    """Standard error of its logarithm."""
    logs: int
    intervals: int
    held: int
    """Intervals that hold the ratio."""
    verdicts: int
    """Intervals that leave 1 out."""
    wrong: int
    """Of these, those on the other side of 1 than the ratio."""
    reach: float | None
    """Median distance of the ends of an interval from its value, on a logarithmic scale."""


def covered(
    queue: Queue, jobs: int, logs: int, seed: int, truths: dict[tuple[str, str], tuple[float, float]]
) -> list[Covered]:
    """Draw logs of a queue, and compare their intervals with the truth."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in truths}
    for number in range(logs):
        arrival_s, run_s = queue.jobs(jobs, seed, jobs, number)
        runs = {
            name: series(queue_waits(arrival_s, run_s, *system), arrival_s, run_s, system[0])
            for name, system in queue.alternatives.items()
        }
        today = runs["today"]
        for name, metric in truths:
            other = runs[name]
            value, before = (jobs_of.value(metric) or 0.0 for jobs_of in (other, today))
            change = change_of(other, value, today, before, metric)
            if isfinite(change.low):
                found[name, metric].append((change.low, change.high))
    rows = []
    for (name, metric), intervals in found.items():
        ratio, error = truths[name, metric]
        held = sum(low <= ratio <= high for low, high in intervals)
        sure = [(low, high) for low, high in intervals if low > 1 or high < 1]
        wrong = sum((low > 1) != (ratio > 1) for low, _ in sure)
        reach = float(np.median([log(high / low) / 2 for low, high in intervals])) if intervals else None
        counts = (logs, len(intervals), held, len(sure), wrong)
        rows.append(Covered(str(queue), jobs, name, metric, ratio, error, *counts, reach))
    return rows


def groups(rows: Sequence[Covered]) -> Iterator[tuple[tuple[int, str, str], list[Covered]]]:
    """The rows of each length, alternative and metric."""
    keys = dict.fromkeys((row.jobs, row.alternative, row.metric) for row in rows)
    for key in keys:
        yield key, [row for row in rows if (row.jobs, row.alternative, row.metric) == key]


def _summary(rows: Sequence[Covered]) -> dict[str, float]:
    intervals = sum(row.intervals for row in rows)
    return {
        "coverage": sum(row.held for row in rows) / max(intervals, 1),
        "share": intervals / sum(row.logs for row in rows),
        "verdicts": sum(row.verdicts for row in rows),
        "wrong": sum(row.wrong for row in rows),
    }


def _holds(rows: Sequence[Covered]) -> bool:
    longest = max(row.jobs for row in rows)
    for (jobs, _, metric), mine in groups(rows):
        summary = _summary(mine)
        if summary["coverage"] < 0.9 and any(row.intervals for row in mine):
            return False
        if jobs == longest and metric == METRICS[0] and summary["share"] < 1 / 3:
            return False
    return all(row.held >= 0.75 * row.intervals for row in rows if row.intervals >= 20)


def _work(options: command.Options, say: command.Say) -> list[Covered]:
    rows: list[Covered] = []
    for queue in options.queues:
        arrival_s, run_s = queue.jobs(2000, options.seed)
        for system in queue.alternatives.values():
            ours, theirs = queue_waits(arrival_s, run_s, *system), engine_waits(arrival_s, run_s, *system)
            if not np.array_equal(ours, theirs):
                raise AssertionError(
                    f"{queue}: waits differ from those of the engine by {np.abs(ours - theirs).max()} s"
                )
        truths = long_run(queue, options.long)
        for jobs in options.jobs:
            mine = covered(queue, jobs, options.logs, options.seed, truths)
            rows += mine
            cells = [f"{row.alternative} {row.metric.partition('_')[0]} {row.held}/{row.intervals}" for row in mine]
            say(f"{queue} {jobs}: {', '.join(cells)}")
    say({" ".join(map(str, key)): _summary(mine) for key, mine in groups(rows)})
    return rows


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    every = [Queue(kind, servers, load) for kind in RUN_TIMES for servers in SERVERS for load in LOADS]
    parser.add_argument("--queues", type=Queue.read_all, default=every, help="default: 60 queues")
    parser.add_argument("--jobs", type=command.numbers, default=[4000, 20_000])
    parser.add_argument("--logs", type=command.at_least_one, default=40, help="of each queue and length")
    parser.add_argument("--seed", type=int, default=3001)
    parser.add_argument("--long", type=command.at_least_one, default=600_000, help="jobs of each long run")
    return command.run(parser, _work, holds=_holds, convert=_converted)


def _converted(rows: list[Covered]) -> dict[str, Any]:
    summaries = {" ".join(map(str, key)): _summary(mine) for key, mine in groups(rows)}
    return {"summary": summaries, "queues": [row._asdict() for row in rows]}


if __name__ == "__main__":
    raise SystemExit(main())

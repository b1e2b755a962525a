"""``dagsim plan`` on logs of M/M/c queues, whose truth is known.

    python scripts/validate_plan.py [--queues 64x0.95/8,...] [--jobs 20000] [--seed 1] [--json] [--out FILE]
    python scripts/validate_plan.py --coverage 200 [...]

A queue ``64x0.95/8`` has 64 servers in nodes of 8, and a load of .95: jobs of one GPU arrive as a Poisson process and
run for exponential times, 3,600 s on average. The log of the queue has the starts of first come, first served. Its
target is half of Erlang's 95th percentile of the wait. ``dagsim plan --policy fifo`` answers, and the script checks

    today     the p95 wait of today's cluster against that of the log, within .5 %
    least     the smallest size against that of an independent simulation, give or take one node
    erlang    whether Erlang's p95 lies in the interval of the next period

Exits with 1 if one of the first two misses, or if the last misses on more than one queue of six.

With ``--coverage N`` it draws N pairs of periods of each queue instead, and counts how often the interval of the
first holds the p95 of the second, and Erlang's. Exits with 1 if the first is below .88 on a queue.
"""

from __future__ import annotations

import re
import tempfile
from argparse import ArgumentTypeError
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import command
import numpy as np
from numpy.typing import NDArray

from dagsim import plan
from dagsim.families.capacity.size_search import SizePlan
from dagsim.metrics.series import JobSeries, next_period
from dagsim.testing.known_waits import erlang_p95, first_come_waits

_LEAST_COVERAGE = 0.88

SERVICE_S = 3600.0
QUEUES = "8x0.7/1,16x0.8/4,32x0.85/8,48x0.9/4,64x0.95/8,128x0.95/8"

Floats = NDArray[np.float64]


class Queue(NamedTuple):
    """An M/M/c queue."""

    servers: int
    load: float
    gpus: int = 1
    """Servers per node."""

    @classmethod
    def read_all(cls, text: str) -> list[Queue]:
        """Read ``64x0.95/8,16x0.8/1``."""
        matches = [re.fullmatch(r"(\d+)x(0?\.\d+)/(\d+)", part) for part in text.split(",")]
        queues = [cls(int(match[1]), float(match[2]), int(match[3])) for match in matches if match]
        if len(queues) < len(matches) or any(queue.servers % queue.gpus for queue in queues):
            raise ArgumentTypeError(f"expected servers x load / servers per node, such as 64x0.95/8, got {text!r}")
        return queues

    def __str__(self) -> str:
        return f"{self.servers}x{self.load:g}/{self.gpus}"

    def jobs(self, number: int, seed: int) -> tuple[Floats, Floats]:
        """Arrivals and durations of a number of jobs, in seconds."""
        rng = np.random.default_rng(seed)
        between_s = rng.exponential(SERVICE_S / (self.servers * self.load), number)
        return np.cumsum(between_s), rng.exponential(SERVICE_S, number)

    def erlang_p95(self) -> float:
        """95th percentile of the wait in seconds, from Erlang's formula."""
        return erlang_p95(self.servers, self.load, SERVICE_S)


def planned(folder: Path, queue: Queue, arrival_s: Floats, duration_s: Floats, bound_s: float) -> SizePlan:
    """Write the log and the cluster of a queue into a folder, and ask for the smallest cluster that meets the bound."""
    start_s = arrival_s + first_come_waits(arrival_s, duration_s, queue.servers)
    columns = zip(arrival_s.tolist(), start_s.tolist(), duration_s.tolist(), strict=True)
    rows = [f"{number},{at!r},{start!r},1,{run!r}" for number, (at, start, run) in enumerate(columns)]
    trace, cluster = folder / f"{queue.servers}-{queue.load:g}.csv", folder / "cluster.yaml"
    trace.write_text("\n".join(["id,arrival_s,start_s,gpus,duration_s", *rows]) + "\n", encoding="utf-8")
    nodes = f"{{name: n, gpu: T4, gpus: {queue.gpus}, count: {queue.servers // queue.gpus}}}"
    cluster.write_text(f"cluster: {{groups: [{nodes}]}}\n", encoding="utf-8")
    asked: dict[str, Any] = {
        "cluster": str(cluster),
        "policy": "fifo",
        "prices": ["none"],
        "out": folder,
        "on": "local:1",
    }
    size: SizePlan = plan(trace, f"wait_s.p95<{bound_s}", **asked)
    return size


class Checked(NamedTuple):
    """The answer on one queue beside the truth. Waits in seconds."""

    queue: str
    log_p95: float
    today_p95: float | None
    least: int
    """Fewest GPUs, in whole nodes, of the independent simulation."""
    planned: int | None
    node: int
    """GPUs per node."""
    erlang_p95: float
    low: float | None
    high: float | None

    @property
    def right(self) -> bool:
        """True if today's p95 and the smallest size are right."""
        near = self.today_p95 is not None and abs(self.today_p95 - self.log_p95) <= 0.005 * self.log_p95
        return near and self.planned is not None and abs(self.planned - self.least) <= self.node

    @property
    def holds_erlang(self) -> bool:
        """True if Erlang's value lies in the interval."""
        return self.low is not None and self.high is not None and self.low <= self.erlang_p95 <= self.high


def checked(queue: Queue, jobs: int, seed: int) -> Checked:
    """Ask for the size of one queue's log, and find it independently."""
    arrival_s, duration_s = queue.jobs(jobs, seed)
    bound = round(queue.erlang_p95() / 2)
    with tempfile.TemporaryDirectory() as folder:
        size = planned(Path(folder), queue, arrival_s, duration_s, bound)
    nodes = ceil(duration_s.sum() / (arrival_s[-1] - arrival_s[0]) / queue.gpus)
    while np.percentile(first_come_waits(arrival_s, duration_s, nodes * queue.gpus), 95) >= bound:
        nodes += 1
    log_p95 = float(np.percentile(first_come_waits(arrival_s, duration_s, queue.servers), 95))
    value, low, high = (None if number != number else number for number in size.today.met.value[:3])
    gpus = None if size.search.best is None else size.search.best.gpus
    sizes = (nodes * queue.gpus, gpus, queue.gpus)
    return Checked(str(queue), log_p95, value, *sizes, queue.erlang_p95(), low, high)


class Covered(NamedTuple):
    """How often the interval of a p95 holds another period of the same queue. Shares of the periods."""

    queue: str
    next: float
    """Of the periods with an interval."""
    erlang: float
    """Likewise, Erlang's value."""
    too_short: float
    """Without an interval."""
    reach: float
    """Median of the upper end over the value."""


def covered(queue: Queue, jobs: int, pairs: int, seed: int) -> Covered:
    """Draw pairs of periods, and compare the interval of the first with the p95 of the second."""
    hits, erlang, reach = 0, 0, []
    for pair in range(pairs):
        waits, others = (first_come_waits(*queue.jobs(jobs, seed + 2 * pair + of), queue.servers) for of in range(2))
        series = JobSeries({"wait_s": waits}, np.zeros(jobs, np.int64), ("",))
        period = next_period(series, "wait_s.p95", float(np.percentile(waits, 95)))
        if period.high == period.high:
            reach.append(period.high / period.value)
            hits += bool(period.low <= np.percentile(others, 95) <= period.high)
            erlang += period.low <= queue.erlang_p95() <= period.high
    held = max(len(reach), 1)
    return Covered(str(queue), hits / held, erlang / held, 1 - len(reach) / pairs, float(np.median(reach or [np.nan])))


def _holds(rows: list[Checked] | list[Covered]) -> bool:
    checks = [row for row in rows if isinstance(row, Checked)]
    if not checks:
        return all(row.next >= _LEAST_COVERAGE for row in rows if isinstance(row, Covered))
    return all(row.right for row in checks) and sum(not row.holds_erlang for row in checks) <= len(checks) // 6


def _work(options: command.Options, say: command.Say) -> list[Checked] | list[Covered]:
    rows: list[Any] = []
    for place, queue in enumerate(options.queues):
        if options.coverage is None:
            rows.append(checked(queue, options.jobs, options.seed + place))
        else:
            rows.append(covered(queue, options.jobs, options.coverage, options.seed + 1_000_000 * place))
        say({"queue": rows[-1]._asdict()})
        if isinstance(rows[-1], Checked):
            say(f"right: {rows[-1].right}; the interval holds Erlang's p95: {rows[-1].holds_erlang}")
    return rows


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--queues", type=Queue.read_all, default=Queue.read_all(QUEUES), help=f"default: {QUEUES}")
    parser.add_argument("--jobs", type=command.at_least_one, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first queue; the others have the next ones")
    parser.add_argument("--coverage", type=command.at_least_one, metavar="N", help="pairs of periods to draw")
    return command.run(parser, _work, holds=_holds, convert=lambda rows: [row._asdict() for row in rows])


if __name__ == "__main__":
    raise SystemExit(main())

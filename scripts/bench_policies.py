"""What a decision costs: CPU microseconds of each policy per decision with many tasks pending.

    python scripts/bench_policies.py [--pending 10000] [--decisions 500] [--policy NAME ...] [--json] [--out FILE]

The default cluster and the default workload, or its DAGs with ``--dag``, but twice as many jobs as are to be pending,
all there at the start. The first conversation, in which a policy builds its indexes over everything, is left out; after
it, decisions count until there are enough of them or a policy has used ``--seconds``. The cost includes conversations
in which the policy decides to wait, and excludes the cost of reading the clock. The figure is the cheapest of ten equal
parts of the decisions, since other processes can only add to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from time import thread_time
from typing import Any

import command

from dagsim.experiment.api import DEFAULT_GPUS
from dagsim.model import Cluster, Decision, Job
from dagsim.systems.cluster import ClusterPolicy
from dagsim.systems.cluster.models.runtime import Throughput
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.view import ClusterView
from dagsim.workload import PRESETS, Synthetic
from dagsim.workload.arrivals import Batch


class Enough(Exception):
    """Raised when a policy has been measured for long enough."""


class Stopwatch:
    """Policy that is timed from the second conversation on."""

    def __init__(self, policy: ClusterPolicy, decisions: int, seconds: float) -> None:
        self.policy, self.wanted, self.seconds = policy, decisions, seconds
        self.decisions, self.spent_s, self.readings = 0, 0.0, 0
        self.parts: list[float] = []
        self._clock_s = reading_s()
        self._part = (0, 0.0)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        first = view.now == 0
        before = thread_time()
        for decision in self.policy.decide(view):
            if not first:
                self.spent_s += thread_time() - before
                self.decisions += 1
                self.readings += 1
            yield decision
            before = thread_time()
        if not first:
            self.spent_s += thread_time() - before
            self.readings += 1
            self._take_part()
            if self.decisions >= self.wanted or (self.spent_s > self.seconds and self.decisions):
                raise Enough

    def per_decision_s(self) -> float:
        """Mean over all decisions so far."""
        return (self.spent_s - self.readings * self._clock_s) / max(self.decisions, 1)

    def _take_part(self) -> None:
        decisions, before = self._part
        taken = self.decisions - decisions
        if taken * 10 >= self.wanted:
            now = self.spent_s - self.readings * self._clock_s
            self.parts.append((now - before) / taken)
            self._part = self.decisions, now


def reading_s(times: int = 2000) -> float:
    """Time that the clock itself adds to each measurement. It is a system call, slow on some
    machines.
    """
    spent = 0.0
    for _ in range(times):
        before = thread_time()
        spent += thread_time() - before
    return spent / times


def jobs(count: int, dag: bool) -> list[Job]:
    """Jobs of the default workload that all arrive at once."""
    preset = PRESETS["heterogeneous-dag" if dag else "heterogeneous"].workload
    assert isinstance(preset, Synthetic)
    return list(replace(preset, count=count, arrivals=Batch()).jobs(Cluster.of(DEFAULT_GPUS), Throughput(), 1))


def cost_us(name: str, waiting: list[Job], decisions: int, seconds: float) -> float:
    """CPU microseconds per decision of the policy ``name``."""
    watch = Stopwatch(POLICIES.create(name, seed=1), decisions, seconds)
    simulation = ClusterScenario(Cluster.of(DEFAULT_GPUS), waiting, runtime=Throughput()).kernel(1)
    with suppress(Enough):
        simulation.run(watch)
    return 1e6 * min(watch.parts or [watch.per_decision_s()])


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    waiting = jobs(options.pending + 2 * options.decisions, options.dag)
    costs: dict[str, float] = {}
    for name in options.policy or POLICIES.names():
        costs[name] = round(cost_us(name, waiting, options.decisions, options.seconds), 1)
        say(f"{name:20} {costs[name]:12,.1f} µs per decision")
    return {"pending": options.pending, "us_per_decision": costs}


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0, help="give a policy no more than this")
    parser.add_argument("--policy", action="append", help="only this one; repeatable")
    parser.add_argument("--dag", action="store_true", help="DAG jobs; --pending counts jobs")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

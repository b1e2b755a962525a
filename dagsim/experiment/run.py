"""Running experiments: policies over paired seeds, one result at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dagsim.config.schema import Config
from dagsim.errors import UnknownName
from dagsim.experiment.scenario import scenario_of
from dagsim.metrics import Summary, summarize
from dagsim.model.schedule import Schedule
from dagsim.model.streams import stream
from dagsim.seeds import WINDOWS, seeds_of
from dagsim.systems.seam import Conversation, Policy, View
from dagsim.traces.trace_file import TraceFile

__all__ = ["Result", "Step", "Timed", "check", "evaluate", "experiment_seeds", "replicate_seeds", "simulate"]


@dataclass(frozen=True, slots=True)
class Result:
    """One policy on one workload."""

    policy: str
    seed: int
    workload: Mapping[str, Any]
    """What the jobs turned out to be: their number, load, and of a trace what was read and dropped."""
    schedule: Schedule
    summary: Summary
    wall_s: float
    """Seconds that the simulation took by the clock on the wall."""


@dataclass(frozen=True, slots=True)
class Step:
    """How far an experiment is."""

    policy: str
    seed: int
    done: int
    """Runs finished."""
    runs: int
    """Runs in all."""
    jobs: int
    """Jobs that arrived in the run under way."""


Watch = Callable[[Step], None]


def evaluate(
    config: Config, policies: Sequence[str], watch: Watch | None = None, seeds: Sequence[int] | None = None
) -> Iterator[Result]:
    """Run each policy on each seed, lazily; all policies see the same jobs. ``watch`` is told how far it is.

    ``seeds`` are those of the configuration unless given.

    Raises:
        InputError, SimulationError: As ``check`` and ``simulate``.
    """
    seeds = seeds or experiment_seeds(config)
    runs = [(policy, seed) for seed in seeds for policy in policies]
    for done, (policy, seed) in enumerate(runs):

        def tell(jobs: int, step: tuple[str, int, int] = (policy, seed, done)) -> None:
            if watch is not None:
                watch(Step(*step, len(runs), jobs))

        yield simulate(config, policy, seed, tell)


def simulate(config: Config, policy: str, seed: int, tell: Callable[[int], None] | None = None) -> Result:
    """One run of ``policy``; ``tell`` is called with the number of jobs that arrived, now and then.

    Raises:
        InputError: The cluster, the workload or the policy cannot be made.
        SimulationError: The policy decided what cannot be, or waits for nothing.
    """
    scenario = scenario_of(config)
    kernel = scenario.kernel(seed, heard=tell)
    timed = Timed(scenario.policies.create(policy, seed=seed))
    began = perf_counter()
    Conversation(kernel).follow(timed)
    wall_s = perf_counter() - began
    schedule = kernel.schedule
    schedule.decision_s, schedule.decisions = timed.decision_s, timed.decisions
    measured = config.workload.measure if config.system.kind == "cluster" else None
    return Result(policy, seed, scenario.facts(kernel), schedule, summarize(schedule, measured=measured), wall_s)


def check(config: Config, policies: Iterable[str]) -> None:
    """Make everything that an experiment needs, and throw it away.

    Raises:
        InputError: Something cannot be made.
    """
    scenario = scenario_of(config)
    scenario.check()
    for policy in policies:
        made = scenario.policies.create(policy)
        if not callable(getattr(made, "decide", None)):
            raise UnknownName(f"policy {policy!r}: {made!r} has no method decide(view)")


def experiment_seeds(config: Config) -> tuple[int, ...]:
    """The seeds of an experiment: those of its replicates, or the numbers of the windows of its trace."""
    workload = config.workload
    if config.system.kind == "cluster" and isinstance(workload, TraceFile) and workload.window is not None:
        return seeds_of(WINDOWS, workload.windows or config.seeds)
    return replicate_seeds(config.seed, config.seeds)


def replicate_seeds(root: int, count: int) -> tuple[int, ...]:
    """The seeds of ``count`` replicates: ``root`` itself, so that one run is what it says, then numbers drawn from it.

    Never ``root + 1``: the experiments of root 0 and root 1 would share all but one of their workloads.
    """
    drawn = stream(root, "replicates").integers(2**32, size=count - 1)
    return (root, *map(int, drawn))


class Timed:
    """A policy with a stopwatch: what its decisions cost, without what the kernel does between them."""

    def __init__(self, policy: Policy[Any, Any]) -> None:
        self.policy = policy
        self.decision_s = 0.0
        self.decisions = 0

    def decide(self, view: View) -> Iterator[Any]:
        """What the policy decides, as it comes."""
        before = perf_counter()
        for decision in self.policy.decide(view):
            self.decision_s += perf_counter() - before
            self.decisions += 1
            yield decision
            before = perf_counter()
        self.decision_s += perf_counter() - before

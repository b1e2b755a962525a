"""Run experiments: policies over paired seeds, one result at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, process_time
from traceback import extract_tb
from typing import Any

from dagsim.config.schema import Config
from dagsim.errors import DagsimError, PluginError, PolicyFailed, UnknownName
from dagsim.experiment.agents import make_policy
from dagsim.experiment.scenario import cluster_scenario_of, scenario_of
from dagsim.metrics import Summary, summarize
from dagsim.model.log import Schedule
from dagsim.systems.cluster.choice import EngineUse
from dagsim.systems.seam import Conversation, Kernel, Policy, Scenario, View, decisions_of

__all__ = ["Outcome", "Timed", "check", "run_policy"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one simulation: the schedule, and every metric of it."""

    schedule: Schedule
    summary: Summary
    policy: str = ""
    seed: int = 0
    workload: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the jobs: their number and load and, for a trace, which rows were read and
    dropped.
    """
    wall_s: float = 0.0
    """Wall-clock seconds of the simulation."""
    engine: EngineUse | None = None
    """The engine of the GPU cluster that was used; other systems have only one."""


def run_policy(config: Config, policy: str, seed: int, tell: Callable[[int], None] | None = None) -> Outcome:
    """Run ``policy`` once; now and then, call ``tell`` with the number of jobs that have arrived.

    Raises:
        InputError: The cluster, the workload or the policy cannot be built.
        SimulationError: The policy made an impossible decision, waits although nothing can happen, or failed.
    """
    scenario = scenario_of(config)
    kernel, engine = _engaged(config, scenario, policy, seed, tell)
    with _blamed(policy):
        decider = make_policy(scenario, policy, seed)
    timed = Timed(decider, policy)
    began = perf_counter()
    Conversation(kernel).follow(timed)
    wall_s = perf_counter() - began
    schedule = kernel.schedule
    schedule.decision_s, schedule.decisions = timed.decision_s, timed.decisions
    measured = config.workload.measure if config.system.kind == "cluster" else None
    summary = summarize(schedule, measured=measured)
    return Outcome(schedule, summary, policy, seed, scenario.facts(kernel), wall_s, engine)


def _engaged(
    config: Config, scenario: Scenario, policy: str, seed: int, tell: Callable[[int], None] | None
) -> tuple[Kernel[Any, Any], EngineUse | None]:
    """The kernel for a policy, and the name of its engine if the system has several."""
    if config.system.kind != "cluster":
        return scenario.kernel(seed, heard=tell), None
    return cluster_scenario_of(config).engaged(policy, seed, heard=tell)


def check(config: Config, policies: Iterable[str], *, keep_going: bool = False) -> None:
    """Build everything that an experiment needs, and discard it. With ``keep_going``, skip policies
    that fail.

    Raises:
        InputError: Something cannot be built.
        PluginError, PolicyFailed: The code of a policy cannot be imported, or raised an exception.
    """
    scenario = scenario_of(config)
    scenario.check()
    for policy in policies:
        try:
            with _blamed(policy):
                decider = make_policy(scenario, policy)
                if config.system.kind == "cluster":
                    cluster_scenario_of(config).check_engine(policy)
        except (PluginError, PolicyFailed):
            if keep_going:
                continue
            raise
        if not callable(getattr(decider, "decide", None)):
            raise UnknownName(f"policy {policy!r}: {decider!r} has no method decide(view)")


@contextmanager
def _blamed(policy: str) -> Iterator[None]:
    """Add the name of the policy to an exception that its own code raised."""
    try:
        yield
    except DagsimError:
        raise
    except Exception as error:
        raise _blame(policy, error) from error


def _blame(policy: str, error: Exception) -> PolicyFailed:
    at = extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:300]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return PolicyFailed(f"policy {policy!r} raised {what} ({at.filename}:{at.lineno} in {at.name})")


class Timed:
    """A policy with a stopwatch: measures the CPU time of its decisions without the kernel's work
    between them.

    Reading that clock takes longer than many decisions. In long runs, therefore, only every 17th
    call is timed, and represents the others. (The number is odd because calls that decide and calls
    that say "no more" alternate.)
    """

    def __init__(self, policy: Policy[Any, Any], name: str = "") -> None:
        self.policy = policy
        self.name = name or type(policy).__name__
        """Name of the policy in messages."""
        self.decisions = 0
        self._calls = 0
        self._first_s = 0.0
        """CPU seconds of the first calls, each of which is timed."""
        self._later_s = 0.0
        """CPU seconds of the timed later calls: every 17th."""

    @property
    def decision_s(self) -> float:
        """CPU seconds of all decisions."""
        later = self._calls - _ALL
        return self._first_s + (self._later_s * later / (later // _EVERY) if later >= _EVERY else 0.0)

    def decide(self, view: View) -> Iterator[Any]:
        """Yield the decisions of the policy.

        Raises:
            PolicyFailed: The policy raised an exception that is not a ``DagsimError``.
        """
        self._calls += 1
        later = self._calls - _ALL
        try:
            if later > 0 and later % _EVERY:
                for decision in decisions_of(self.policy.decide(view), view.now):
                    self.decisions += 1
                    yield decision
                return
            spent_s, before = 0.0, process_time()
            for decision in decisions_of(self.policy.decide(view), view.now):
                spent_s += process_time() - before
                self.decisions += 1
                yield decision
                before = process_time()
            spent_s += process_time() - before
        except DagsimError:
            raise
        except Exception as error:
            raise _blame(self.name, error) from error
        if later > 0:
            self._later_s += spent_s
        else:
            self._first_s += spent_s


_ALL, _EVERY = 100, 17
"""Number of first calls that are all timed, and the period of the timed later ones."""

"""Run a policy once: find the heuristic, trained agent or program to which its name refers,
simulate it, and return the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, process_time
from traceback import extract_tb
from typing import Any

from dagsim import services
from dagsim.config.schema import Config
from dagsim.errors import ConfigError, DagsimError, PluginError, PolicyFailed, UnknownName, one_line
from dagsim.experiment.scenario import scenario_of
from dagsim.family import refuse_missing
from dagsim.metrics import Summary, summarize
from dagsim.metrics.incomplete import incomplete_facts
from dagsim.metrics.own import METRICS, own_values
from dagsim.model.log import Schedule
from dagsim.own_code import allowed
from dagsim.systems import DEFAULT_SYSTEM, all_systems, system_named
from dagsim.systems.policy_spec import PROGRAMS, PolicyKind, PolicySpec, agent_names
from dagsim.systems.seam import Conversation, EngineUse, Policy, Scenario, System, View, decisions_of, stated


@dataclass(frozen=True, slots=True)
class Played:
    """A finished simulation. No metrics have been computed from its schedule yet."""

    schedule: Schedule
    policy: str
    seed: int
    workload: Mapping[str, Any]
    wall_s: float
    decider: Mapping[str, Any]
    engine: EngineUse | None

    def outcome(self, config: Config) -> Outcome:
        """Return the outcome with its metrics.

        Raises:
            ConfigError, PluginError: A user's own metric does not exist, or failed.
        """
        summary = measured(config, self.schedule)
        facts = (self.policy, self.seed, self.workload, self.wall_s, self.decider, self.engine)
        return Outcome(self.schedule, summary, *facts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a simulation: the schedule and all its metrics."""

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
    decider: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the policy. ``clairvoyant`` is true if the policy declares that it reads true
    durations. For an agent, ``outside_training`` is the share of inputs outside the range seen in
    training.
    """
    engine: EngineUse | None = None
    """The engine that was used, if the system has several."""


def run_policy(config: Config, policy: str, seed: int, tell: Callable[[int], None] | None = None) -> Outcome:
    """Run ``policy`` once, and compute every metric. From time to time, ``tell`` is called with the
    number of jobs that have arrived.

    Raises:
        InputError: The cluster, the workload or the policy cannot be built.
        SimulationError: The policy made an impossible decision, waits for an event that cannot
            come, or failed.
    """
    return play_policy(config, policy, seed, tell).outcome(config)


def play_policy(
    config: Config, policy: str, seed: int, tell: Callable[[int], None] | None = None, name: str | None = None
) -> Played:
    """Run ``policy`` once. In the result, the policy is called ``name`` (default: the text
    ``policy``).

    Raises:
        InputError, SimulationError: As in ``run_policy``.
    """
    scenario = scenario_of(config)
    kernel, engine = scenario.engaged(policy, seed, on_arrivals=tell)
    with _blamed(policy):
        decider = make_policy(scenario, policy, seed)
    timed = Timed(decider, policy)
    began = perf_counter()
    Conversation(kernel).follow(timed)
    wall_s = perf_counter() - began
    schedule = kernel.schedule
    schedule.decision_s, schedule.decisions = timed.decision_s, timed.decisions
    facts = {**scenario.facts(kernel), **incomplete_facts(schedule, scenario.unfinished(kernel))}
    own = facts_of(decider, scenario.notes(kernel, decider))
    return Played(schedule, name or policy, seed, facts, wall_s, own, engine)


def facts_of(decider: object, notes: Iterable[str] = ()) -> dict[str, Any]:
    """Return the facts about a policy after its run (``Outcome.decider``). ``notes`` precede the
    policy's own notes.
    """
    facts: dict[str, Any] = {"clairvoyant": True} if stated(decider, "clairvoyant") else {}
    if notes := [*notes, *stated(decider, "notes")]:
        facts["notes"] = notes
    outside = stated(decider, "outside_training")
    return facts if outside is None else facts | {"outside_training": float(outside)}


def measured(config: Config, schedule: Schedule) -> Summary:
    """Return every metric of a schedule, computed over the jobs that the configuration selects."""
    summary = summarize(schedule, measured=config.whole_system.measured)
    return replace(summary, own=own_values(config.metrics, schedule)) if config.metrics else summary


def check(config: Config, policies: Iterable[str], *, keep_going: bool = False) -> None:
    """Check an experiment by building everything that it needs. If ``keep_going`` is True, policies
    that fail are skipped.

    Raises:
        InputError: A part of the experiment cannot be built.
        PluginError, PolicyFailed: The code of a policy cannot be imported, or raised an exception.
    """
    scenario = scenario_of(config)
    scenario.check()
    for metric in config.metrics:
        METRICS.create(metric)
    for policy in policies:
        try:
            with _blamed(policy):
                decider = make_policy(scenario, policy)
                scenario.check_engine(policy)
        except (PluginError, PolicyFailed):
            if keep_going:
                continue
            raise
        if not callable(getattr(decider, "decide", None)):
            raise UnknownName(f"policy {policy!r}: {decider!r} has no method decide(view)")


@contextmanager
def _blamed(policy: str) -> Iterator[None]:
    """Add the name of the policy to an exception raised by its own code."""
    try:
        yield
    except DagsimError:
        raise
    except Exception as error:
        raise _blame(policy, error) from error


def _blame(policy: str, error: Exception) -> PolicyFailed:
    at = extract_tb(error.__traceback__)[-1]
    text = one_line(error)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return PolicyFailed(f"policy {policy!r} raised {what} ({at.filename}:{at.lineno} in {at.name})")


class Timed:
    """A policy with a stopwatch that measures the CPU time of the policy's decisions, but not of
    the kernel's work in between.

    Reading the clock takes longer than many decisions. In long runs, therefore, only every 17th
    call is timed, and the other calls are assumed to take as long on average. (The number is odd
    because calls that return a decision often alternate with calls that return none.)
    """

    def __init__(self, policy: Policy[Any, Any], name: str = "") -> None:
        self.policy = policy
        self.clairvoyant = stated(policy, "clairvoyant")
        self.name = name or type(policy).__name__
        """Name of the policy in messages."""
        self.decisions = 0
        self._calls = 0
        self._first_s = 0.0
        """CPU seconds of the first calls, all of which are timed."""
        self._later_s = 0.0
        """CPU seconds of those later calls that are timed, which is every 17th."""

    @property
    def decision_s(self) -> float:
        """CPU seconds spent on all decisions. The time of calls that were not timed is estimated
        from the timed ones.
        """
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
"""How many of the first calls are timed without exception, and which fraction of the later calls is
timed (one in 17).
"""


def agent_spec(
    algo: str,
    checkpoint: Path | None = None,
    root: Path = Path("results"),
    system: System | type[System] | None = None,
    *,
    hidden: bool = False,
) -> str:
    """Return the policy named by ``--policy ALGO``, with its ``--checkpoint`` as a parameter.

    The name of an algorithm means the agent from the newest training run below ``root`` for
    ``system`` (default: the default system). If there is no such training run, it means the agent
    that ships with dagsim, which receives expected durations (``beliefs``) if durations are
    ``hidden``. ``sb3:model.zip`` is the Stable-Baselines3 model in that file. Any other name is
    returned unchanged.

    Raises:
        UnknownName: The agent does not exist, or a checkpoint is given for a policy that is not
            trained.
        ConfigError: The checkpoint is given twice, or the brackets of ``algo`` do not match.
    """
    spec, system = PolicySpec.parse(algo), system or system_named(DEFAULT_SYSTEM)
    if not spec.names_agent():
        if checkpoint is not None:
            raise UnknownName(f"--checkpoint applies only to --policy {', '.join(agent_names())}, not to {algo!r}")
        return algo
    if "checkpoint" in spec.params:
        if checkpoint is not None:
            raise ConfigError(
                f"--checkpoint {checkpoint}: --policy {algo} already names a checkpoint, so leave one of them out"
            )
        return str(spec.call)
    if checkpoint is None:
        checkpoint = services.newest_agent(spec.name, root, system.system)
    if checkpoint is not None:
        return spec.with_checkpoint(checkpoint).text
    if spec.name not in services.shipped_agents(system):
        raise UnknownName(
            f"there is no trained {spec.name} agent for the system {system.system!r} below {root}/; train "
            f"one (dagsim train --algo {spec.name}) or give --checkpoint"
        )
    return str(replace(spec, params={"beliefs": True, **spec.params}).call) if hidden else algo


def only_system_of(algo: str | None) -> str | None:
    """Return the name of the only system for which the agent ``algo`` ships with dagsim. Return
    None if there are several, or if it is the default system.
    """
    if algo is None or algo in system_named(DEFAULT_SYSTEM).policies or algo not in agent_names():
        return None
    able = [system.system for system in all_systems().values() if algo in services.shipped_agents(system)]
    return able[0] if len(able) == 1 and able[0] != DEFAULT_SYSTEM else None


def make_policy(scenario: Scenario, spec: str, seed: int | None = None) -> Policy[Any, Any]:
    """Return the heuristic or the trained agent that ``spec`` names.

    Raises:
        InputError: The policy does not exist, or its parameters or checkpoint are wrong.
    """
    return scenario.fitted(_policy(scenario, spec, seed))


def _policy(scenario: Scenario, text: str, seed: int | None) -> Policy[Any, Any]:
    spec = PolicySpec.parse(text)
    if spec.kind is PolicyKind.PROGRAM:
        return _program(scenario, spec)
    if spec.is_agent(scenario):
        return services.agent(scenario, spec.call)
    if spec.name not in scenario.policies:
        for group in ("agents", "algorithms", "loaders"):
            refuse_missing(group, spec.name)
    policy: Policy[Any, Any] = scenario.policies.create(spec.call, **({} if seed is None else {"seed": seed}))
    return policy


def _program(scenario: Scenario, spec: PolicySpec) -> Policy[Any, Any]:
    if (names := allowed()) is not None:
        names.check("policy", spec.text)
    if not scenario.takes_programs:
        able = [name for name, system in all_systems().items() if system.takes_programs]
        raise UnknownName(f"policy {spec.text!r}: external programs can only schedule the system {able[0]!r}")
    program: Policy[Any, Any] = PROGRAMS.create(spec.call, command=spec.address, endpoint=spec.address)
    return program

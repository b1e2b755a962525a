"""Checks that systems and environments comply with the contract of the system interface
(``dagsim.systems.seam``)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any

import numpy as np

from dagsim.errors import DagsimError, IllegalDecision
from dagsim.metrics import jobs_table, runs_table, summarize
from dagsim.model import Kind
from dagsim.model.arithmetic import whole_sum
from dagsim.model.log import RUN_ENDS, Schedule
from dagsim.systems.policy_spec import PolicySpec
from dagsim.systems.seam import Conversation, Kernel, Policy, Scenario, Statements, drive

_LEAVES = (Kind.COMPLETED, Kind.REJECTED)


def check_system(scenario: Scenario, policy: str | None = None, seed: int = 1) -> Schedule:
    """Check that a system follows the contract of the system interface, and return the schedule for
    ``seed``. Raise an error if it does not. Use a small configuration with a few dozen jobs that
    are different for each seed. ``policy`` names one of the system's policies; the default is the
    first.

    - The scenario has a name, policies, a ranking metric and a cluster. It passes its own ``check``
      and can be pickled for another process.
    - The same seed gives the same log, byte for byte, regardless of how the kernel is driven.
      Another seed gives a different log.
    - Every job arrives once and leaves once. Every run starts once and ends once, on nodes of the
      cluster. Times in the log never decrease, and the schedule ends at the time of its last row.
    - A kernel stops at ``until_s``, and the log up to that time is the same as without ``until_s``.
    - ``None`` and an empty answer have the same meaning, and anything that is not a decision raises
      ``IllegalDecision``.
    - Metrics and tables can be computed from the log, and ``facts`` and ``on_arrivals`` report the
      right number of jobs.

    Raises:
        AssertionError: A rule is broken. The message names the rule.
    """
    _check_scenario(scenario, policy)
    name = policy or scenario.policies.names()[0]

    def make(of: Scenario = scenario) -> Policy[Any, Any]:
        decider: Policy[Any, Any] = of.policies.create(name, seed=seed)
        return decider

    schedule = _driven(scenario.kernel(seed), make())
    rows = schedule.log.rows()
    assert len(schedule.jobs) > 1, "the configuration has fewer than two jobs; give it some more"
    _check_log(schedule)
    again = _driven(scenario.kernel(seed), make())
    assert again.log.rows().tobytes() == rows.tobytes(), f"two runs with seed {seed} give different logs"
    assert again.jobs == schedule.jobs, f"two runs with seed {seed} give different jobs"
    other = _driven(scenario.kernel(seed + 1), make())
    assert other.log.rows().tobytes() != rows.tobytes(), f"seeds {seed} and {seed + 1} give the same log"
    by_hand = _by_hand(scenario.kernel(seed), make())
    assert by_hand.log == schedule.log, "the log depends on who drives the kernel"
    _check_until(schedule, _driven(scenario.kernel(seed), make(), schedule.ended_s / 2))
    _check_answers(scenario, make, seed)
    _check_counts(scenario, make, seed)
    sent = pickle.loads(pickle.dumps(scenario))
    assert drive(sent.kernel(seed), make(sent)).log == schedule.log, "a pickled scenario gives another log"
    return schedule


def _check_scenario(scenario: Scenario, policy: str | None) -> None:
    for value, meaning in ((scenario.system, "system must be its name"), (scenario.merit, "merit must name a metric")):
        assert value, f"{meaning}, got {value!r}"
        assert isinstance(value, str), f"{meaning}, got {value!r}"
    names = scenario.policies.names()
    assert names, "policies has no entry"
    assert policy is None or PolicySpec.parse(policy).name in names, f"there is no policy {policy!r} in {names}"
    assert scenario.cluster.nodes, "cluster has no nodes"
    for registry in ("codecs", "terms"):
        assert hasattr(getattr(scenario, registry), "names"), f"{registry} must be a Registry; it may be empty"
    scenario.check()


def _driven(kernel: Kernel[Any, Any], policy: Policy[Any, Any], until_s: float = inf) -> Schedule:
    return drive(kernel, policy, until_s)


def _by_hand(kernel: Kernel[Any, Any], policy: Policy[Any, Any]) -> Schedule:
    """Run the kernel by answering with whole lists of decisions instead of an iterator."""
    talk = Conversation(kernel)
    while talk.view is not None:
        assert talk.view.now == kernel.now, f"view.now is {talk.view.now!r}, but the kernel is at {kernel.now!r}"
        talk.answer(list(policy.decide(talk.view)))
    return kernel.schedule


def _check_log(schedule: Schedule) -> None:
    rows, count = schedule.log.rows(), len(schedule.jobs)
    for kinds, verb in (((Kind.ARRIVED,), "arrives"), (_LEAVES, "leaves")):
        times = np.bincount(rows["job"][np.isin(rows["kind"], [int(kind) for kind in kinds])], minlength=count)
        wrong = np.flatnonzero(times != 1)
        assert not len(wrong), f"job {wrong[0]} {verb} {times[wrong[0]]} times"
    backwards = np.flatnonzero(np.diff(rows["time_s"]) < 0)
    assert not len(backwards), f"row {backwards[0] + 1} of the log is earlier than the row before"
    last_s = float(rows["time_s"][-1])
    assert schedule.ended_s == last_s, f"ended_s is {schedule.ended_s!r}, but the last row is at {last_s!r}"
    started: dict[tuple[int, int], float] = {}  # keyed by run and node, because a run has one row per node
    for row in schedule.log:
        where = f"run {row.run} on node {row.node}"
        if row.kind == Kind.STARTED:
            assert (row.run, row.node) not in started, f"{where} starts twice"
            assert row.time_s >= schedule.jobs[row.job].arrival_s, f"{where} starts before its job {row.job} arrives"
            assert 0 <= row.node < len(schedule.cluster.nodes), f"{where}: the cluster has no such node"
            started[row.run, row.node] = row.time_s
        elif row.kind in RUN_ENDS:
            assert (row.run, row.node) in started, f"{where} ends without a start"
            del started[row.run, row.node]
    assert not started, f"run {min(started)[0]} never ends"
    summary = summarize(schedule)
    assert 0 < summary.jobs_completed <= count, f"{summary.jobs_completed} of {count} jobs complete"
    assert summary.jct_s.mean > 0, f"the mean completion time is {summary.jct_s.mean!r}"
    assert len(jobs_table(schedule)["job"]) == count
    assert len(runs_table(schedule)["job"]) > 0, "no run starts"


def _check_until(whole: Schedule, half: Schedule) -> None:
    until_s = whole.ended_s / 2
    assert half.ended_s == until_s, f"a kernel that runs until {until_s!r} ends at {half.ended_s!r}"
    kinds = [int(Kind.ARRIVED), int(Kind.COMPLETED)]
    before, rows = whole.log.rows(), half.log.rows()
    before = before[np.isin(before["kind"], kinds) & (before["time_s"] <= until_s)]
    rows = rows[np.isin(rows["kind"], kinds)]
    assert rows.tobytes() == before.tobytes(), f"a run until {until_s!r} differs from the first part of the whole"


def _check_answers(scenario: Scenario, make: Callable[[], Policy[Any, Any]], seed: int) -> None:
    for nonsense in (5, "start", object()):
        talk = Conversation(scenario.kernel(seed))
        try:
            talk.answer((nonsense,))
        except IllegalDecision:
            continue
        except Exception as error:
            raise AssertionError(
                f"the decision {nonsense!r} raises {type(error).__name__}, not IllegalDecision: {error}"
            ) from None
        raise AssertionError(f"the decision {nonsense!r} is accepted, but it must raise IllegalDecision")
    logs = []
    for nothing in (None, ()):
        kernel = scenario.kernel(seed)
        talk = Conversation(kernel)
        with suppress(DagsimError):  # the kernel may raise Stalled if the system does not let jobs wait
            if talk.answer(nothing) is not None:
                talk.follow(make())
        logs.append(kernel.schedule.log)
    assert logs[0] == logs[1], "the answer None has another effect than an empty answer"


def _check_counts(scenario: Scenario, make: Callable[[], Policy[Any, Any]], seed: int) -> None:
    counts: list[int] = []
    kernel = scenario.kernel(seed, on_arrivals=counts.append)
    drive(kernel, make())
    assert counts[:1] == [0], f"on_arrivals is first called with {counts[:1]}; expected 0, at the first job"
    stated, count = scenario.facts(kernel)["jobs"], len(kernel.schedule.jobs)
    assert stated == count, f"facts count {stated!r} jobs; {count} arrived"


def check_env(make: Any, seed: int = 1, steps: int = 300) -> None:
    """Check that an environment follows Gymnasium's interface and is repeatable, and raise an error
    otherwise. ``make`` is the environment, or a function that creates one (which is then called for
    every episode).

    - Observations are in ``observation_space``, rewards are finite, and flags are Boolean.
    - The action mask, if there is one, always allows an action. This also applies after the end of
      an episode, because a vector environment takes one more action in the step that starts the
      next episode.
    - The same seed and the same legal actions give the same observations, rewards and flags.
    - Another seed gives another episode.

    In each episode, random legal actions are taken for at most ``steps`` steps.

    Raises:
        AssertionError: A rule is broken. The message names the rule.
    """
    episodes, is_made = [], hasattr(make, "step")
    for number in (seed, seed, seed + 1):
        env = make if is_made else make()
        episodes.append(_episode(env, number, steps))
        if not is_made:
            env.close()
    first, again, other = episodes
    for step, (one, two) in enumerate(zip(first, again, strict=True)):
        assert one == two, f"step {step} of two episodes with seed {seed} and the same actions differs"
    assert first != other, f"seeds {seed} and {seed + 1} give the same episode"


def _episode(env: Any, seed: int, steps: int) -> list[tuple[bytes, float, bool, bool]]:
    """Return the observations, rewards and flags of an episode with random legal actions, as plain
    values."""
    rng = np.random.default_rng(0)
    observation, info = env.reset(seed=seed)
    assert isinstance(info, dict), f"reset() returns {type(info).__name__} as info; expected a dictionary"
    seen = [(_bytes(env, observation, 0), 0.0, False, False)]
    for step in range(1, steps + 1):
        observation, reward, terminated, truncated, _ = env.step(_action(env, rng, step))
        assert isfinite(reward), f"the reward of step {step} is {reward!r}"
        for flag in (terminated, truncated):
            assert isinstance(flag, bool), f"a flag of step {step} is {flag!r}; expected True or False"
        seen.append((_bytes(env, observation, step), float(reward), terminated, truncated))
        if terminated or truncated:
            _action(env, rng, step + 1)
            break
    return seen


def _action(env: Any, rng: np.random.Generator, step: int) -> Any:
    """Return a random legal action. If the action has a single part, it is one of the allowed
    choices.
    """
    space = env.action_space
    masks = getattr(env.unwrapped, "action_masks", None)
    if masks is None:
        space.seed(int(rng.integers(2**31)))
        return space.sample()
    mask = np.asarray(masks())
    sizes = [int(space.n)] if hasattr(space, "n") else [int(size) for size in space.nvec]
    assert mask.shape == (whole_sum(sizes),), (
        f"action_masks() has the shape {mask.shape}; expected ({whole_sum(sizes)},)"
    )
    parts = np.split(mask, np.cumsum(sizes)[:-1])
    for part in parts:
        assert part.any(), f"action_masks() allows no action before step {step}"
    choices = [int(rng.choice(np.flatnonzero(part))) for part in parts]
    return choices[0] if hasattr(space, "n") else np.array(choices)


def _bytes(env: Any, observation: Any, step: int) -> bytes:
    assert env.observation_space.contains(observation), f"the observation of step {step} is not in observation_space"
    parts = observation.items() if isinstance(observation, dict) else [("", observation)]
    return b"".join(str(name).encode() + np.asarray(part).tobytes() for name, part in parts)


def misspelt(policy: object) -> dict[str, str]:
    """Return the public attributes of a policy that look like misspelled optional attributes, each
    with the name that was probably meant.
    """
    optional = [name for name in vars(Statements) if not name.startswith("_")]
    own = {name for name in dir(policy) if not name.startswith("_")} - set(optional)
    near = {name: get_close_matches(name, optional, n=1, cutoff=0.9) for name in sorted(own)}
    return {name: found[0] for name, found in near.items() if found}

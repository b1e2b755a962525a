"""The contract of the seam (``dagsim.systems.seam``), held by every system alike."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from systems.worlds import SETTINGS, scenario

from dagsim.config.schema import load_config
from dagsim.errors import IllegalDecision, Stalled
from dagsim.experiment.scenario import sample_of, workload_label
from dagsim.experiment.simulate import run_policy
from dagsim.metrics import jobs_table, runs_table, summarize
from dagsim.metrics.standings import Sample
from dagsim.model import Kind
from dagsim.model.log import Schedule
from dagsim.report.plots import draw_all
from dagsim.systems import SYSTEMS, system_named
from dagsim.systems.seam import Conversation, drive
from dagsim.testing import check_system


class Idle:
    """Decides nothing, ever."""

    def decide(self, view: Any) -> Iterator[Any]:
        return iter(())


def played(system: str, seed: int = 1, until_s: float = np.inf, policy: str | None = None) -> Schedule:
    world = scenario(system)
    return drive(world.kernel(seed), world.policies.create(policy or SETTINGS[system][1], seed=seed), until_s)


@pytest.fixture(params=SETTINGS)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_system_is_held_to_the_contract() -> None:
    assert set(SETTINGS) == set(SYSTEMS.names())


def test_every_system_passes_the_check_that_users_have(system: str) -> None:
    """Same bytes for the same seed, jobs and runs that begin and end once, ``until_s``, and so on."""
    assert check_system(scenario(system), SETTINGS[system][1]).log == played(system).log


def test_the_scenario_says_what_it_is(system: str) -> None:
    world = scenario(system)
    assert world.system == ("cluster" if system == "mixture" else system)
    assert SETTINGS[system][1] in world.policies.names()
    world.check()


def test_a_system_says_the_same_of_itself_before_and_after_its_world_is_built(system: str) -> None:
    config, world = load_config(None, SETTINGS[system][0]), scenario(system)
    for part in ("system", "merit", "score", "training", "agents", "variants", "environment", "blocked_by"):
        assert getattr(config.whole_system, part) == getattr(world, part) == getattr(system_named(system), part), part
    assert config.whole_system.policies is world.policies
    metrics = summarize(played(system)).to_dict()
    assert min(metrics[world.merit], metrics[world.score]) >= 0
    assert workload_label(config)
    assert config.whole_system.trace_path is None
    assert sample_of(config) is Sample.SEED


def test_a_scenario_can_be_sent_to_another_process(system: str) -> None:
    world = scenario(system)
    world.kernel(1)  # whatever it keeps for itself must not travel
    sent = pickle.loads(pickle.dumps(world))
    policy = SETTINGS[system][1]
    assert (
        drive(sent.kernel(1), sent.policies.create(policy)).log
        == drive(world.kernel(1), world.policies.create(policy)).log
    )


def test_the_log_is_the_same_whoever_drives(system: str) -> None:
    world, name = scenario(system), SETTINGS[system][1]
    kernel, policy = world.kernel(1), world.policies.create(name, seed=1)
    talk = Conversation(kernel)
    while talk.view is not None:
        assert talk.view.now == kernel.now
        talk.answer(list(policy.decide(talk.view)))
    config = load_config(None, SETTINGS[system][0])
    assert kernel.schedule.log == played(system).log == run_policy(config, name, 1).schedule.log


def test_metrics_tables_and_plots_come_from_the_log(system: str, tmp_path: Path) -> None:
    schedule = played(system)
    summary = summarize(schedule)
    assert 0 < summary.jobs_completed <= len(schedule.jobs)
    assert summary.jct_s.mean > 0
    assert len(jobs_table(schedule)["job"]) == len(schedule.jobs)
    assert len(runs_table(schedule)["job"]) > 0
    assert all(path.stat().st_size > 1000 for path in draw_all(schedule, tmp_path, system))


def test_a_policy_that_decides_nothing_stalls_or_rejects_every_job(system: str) -> None:
    """Where jobs can wait it stalls; where they cannot, no decision rejects the job."""
    kernel = scenario(system).kernel(1)
    if system == "ramp":
        drive(kernel, Idle())
        assert Kind.STARTED not in {row.kind for row in kernel.schedule.log}
        return
    with pytest.raises(Stalled):
        drive(kernel, Idle())


@pytest.mark.parametrize("nonsense", [5, "start", None, object()], ids=["number", "text", "none", "object"])
def test_what_is_no_decision_is_illegal(system: str, nonsense: object) -> None:
    talk = Conversation(scenario(system).kernel(1))
    with pytest.raises(IllegalDecision, match=r"at .* s"):
        talk.answer((nonsense,))


def test_no_answer_is_an_answer(system: str) -> None:
    """``None`` and an empty iterable say the same: nothing for now."""
    kernels = [scenario(system).kernel(1) for _ in range(2)]
    talks = [Conversation(kernel) for kernel in kernels]
    policies = [scenario(system).policies.create(SETTINGS[system][1]) for _ in range(2)]
    first = [talk.answer(nothing) for talk, nothing in zip(talks, (None, ()), strict=True)]
    for talk, policy in zip(talks, policies, strict=True):
        if talk.view is not None:
            talk.follow(policy)
    assert [view is None for view in first] in ([True, True], [False, False])
    assert kernels[0].schedule.log == kernels[1].schedule.log

"""The compiled engine writes the SimPy kernel's log, compiled and as plain Python."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from time import process_time
from typing import Any

import check_engine
import numpy as np
import pytest

from dagsim.families.compiled import jit
from dagsim.families.compiled.choice import plan_for, too_much
from dagsim.families.compiled.drive import compile_loop, whole_log
from dagsim.families.compiled.reading import read_scenario
from dagsim.model import Cluster, Job, Kind, Node, Task, gpu_type
from dagsim.systems.cluster import Estimates, Preemption
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.testing import engine_cases
from dagsim.workload.arrays import JobArrays

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_engine.py"


def check(cases: int, first: int, *more: str, **variables: str) -> dict[str, Any]:
    """What the script prints, in a process of its own; warnings are errors there."""
    argv = [sys.executable, "-W", "error", str(SCRIPT), "--cases", str(cases), "--first", str(first), *more, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    assert done.returncode in (0, 1), done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(jit.jitted(), reason="the next test runs these cases as plain Python in another process")
@pytest.mark.parametrize("first", range(10_000, 10_006, 2))
@pytest.mark.parametrize("kind", engine_cases.KINDS)
def test_plain_python_writes_the_kernels_log_of_a_kind_byte_for_byte(kind: str, first: int) -> None:
    assert check_engine.check(kind, first, 2)["different"] == []


@pytest.mark.timeout(600)
def test_plain_python_writes_the_kernels_log_byte_for_byte() -> None:
    report = check(2, 10_000, NUMBA_DISABLE_JIT="1")
    assert report["compiled"] is False
    assert {kind: result["different"] for kind, result in report["kinds"].items() if result["different"]} == {}


def test_a_job_whose_last_run_is_stopped_waits_by_all_that_it_has_had() -> None:
    assert check(1, 11, "--kinds", "las", NUMBA_DISABLE_JIT="1")["kinds"]["las"]["equal"] == 1


def test_runs_that_end_at_the_beginning_count_as_service() -> None:
    assert check(1, 68, "--kinds", "middle", NUMBA_DISABLE_JIT="1")["kinds"]["middle"]["equal"] == 1


@pytest.mark.timeout(600)  # the first run on a machine compiles
@pytest.mark.skipif(not jit.installed(), reason="numba is not installed")
def test_compiled_it_writes_the_kernels_log_byte_for_byte() -> None:
    # One loop serves these kinds; scripts/check_engine.py compares all of them, in five loops.
    report = check(40, 20_000, "--kinds", "strict", "orders", "typed", NUMBA_DISABLE_JIT="0")
    assert report["compiled"] is True
    assert {kind: result["different"] for kind, result in report["kinds"].items() if result["different"]} == {}


@pytest.mark.timeout(600)
@pytest.mark.skipif(not jit.installed(), reason="numba is not installed")
def test_compiled_episodes_show_the_observations_and_rewards_of_an_episode_byte_for_byte() -> None:
    report = check(40, 20_000, "--kinds", "episodes", "relative", NUMBA_DISABLE_JIT="0")
    assert report["compiled"]
    assert [kind["equal"] for kind in report["kinds"].values()] == [40, 40]


@pytest.mark.timeout(600)
@pytest.mark.skipif(not jit.jitted(), reason="numba is not installed")
def test_counting_references_nowhere_it_takes_less_than_two_microseconds_per_task() -> None:
    # Compiled with reference counts it takes 5 to 6 (see compiled/jit.py), without them .2 to .5.
    tasks = 20_000
    works = np.random.default_rng(1).exponential(100.0, tasks).tolist()
    jobs = [Job.single(f"j{number}", Task("t", work), 3.0 * number) for number, work in enumerate(works)]
    sjf = plan_for("sjf", Preemption())
    compile_loop(sjf)
    scene = read_scenario(Cluster.of({"V100": 64}), JobArrays.of(jobs), Recorded(), Estimates(), 0)
    whole_log(scene, sjf)
    begun = process_time()
    whole_log(scene, sjf)
    assert (process_time() - begun) / tasks < 2e-6


def test_runs_are_stopped_where_a_policy_preempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        engine_cases, "compiled_schedule", lambda *_, **__: None
    )  # the kernel's side of the cases says it
    for kind in ("srtf", "las"):
        logs = [check_engine.both(number, kind)[0].log.rows() for number in range(5)]
        assert sum(int((log["kind"] == Kind.PREEMPTED).sum()) for log in logs) > 20


@pytest.mark.timeout(600)
def test_with_too_little_space_it_grows_and_writes_the_same() -> None:
    report = check(1, 30_000, "--tight", NUMBA_DISABLE_JIT="1")
    assert {kind: result["different"] for kind, result in report["kinds"].items() if result["different"]} == {}


def test_a_single_byte_makes_a_difference() -> None:
    jobs = engine_cases.jobs_of(random.Random(1))
    cluster = engine_cases.random_cluster(random.Random(1))
    one, other = (engine_cases.compiled_schedule(cluster, jobs, "sjf") for _ in range(2))
    assert engine_cases.equal(one, other)
    other.log.rows()["gpus"][-2] ^= 1
    assert not engine_cases.equal(one, other)


def test_the_cases_hold_everything_that_the_engine_knows() -> None:
    drawn = [random.Random(number) for number in range(200)]
    clusters = [engine_cases.random_cluster(rng) for rng in drawn]
    tasks = [task for rng in drawn for job in engine_cases.jobs_of(rng) for task in job.tasks]
    assert any(node.gpus > 62 for cluster in clusters for node in cluster.nodes)
    assert any(node.gpu is None for cluster in clusters for node in cluster.nodes)
    assert any(len(cluster.gpu_types) > 2 for cluster in clusters)
    for claim in (
        lambda task: task.gang and task.gpus >= 1,
        lambda task: task.gang and 0 < task.gpus < 1,
        lambda task: task.gang and not task.gpus,
        lambda task: task.instances > 1 and not task.gang,
        lambda task: 0 < task.gpus < 1,
        lambda task: task.cpus and task.memory_gb,
        lambda task: task.gpu_types,
        lambda task: not task.work,
    ):
        assert any(claim(task) for task in tasks)


@pytest.mark.parametrize(("gpus", "asked", "refused"), [(63, 0.5, True), (62, 0.5, False), (63, 1.0, False)])
def test_shares_of_gpus_that_the_log_cannot_name_are_left_to_the_kernel(gpus: int, asked: float, refused: bool) -> None:
    # Which GPU a share went to decides where the next one goes, and the engine does not number these.
    cluster = Cluster((Node("big", gpu_type("V100"), gpus), Node("small", gpu_type("T4"), 1)))
    jobs = JobArrays.of([Job.single("j", Task("t", 1.0, gpus=asked))])
    scene = read_scenario(cluster, jobs, Recorded(), Estimates(), 0)
    assert ("nodes of more than 62 GPUs" in too_much(scene, plan_for("sjf", Preemption()).loop)) is refused


@pytest.mark.family("episodes")
def test_a_different_byte_in_an_observation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from dagsim.families.episodes.side_by_side import CompiledEpisodes

    observe = CompiledEpisodes.observe

    def changed(self: Any, which: np.ndarray) -> Any:
        shown = observe(self, which)
        shown.tokens[0, -1] += 1.0
        return shown

    assert check_engine.same_episode(3)
    monkeypatch.setattr(CompiledEpisodes, "observe", changed)
    assert not check_engine.same_episode(3)

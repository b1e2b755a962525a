"""A Decima training, small: what it leaves behind, and that it repeats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagsim.agents.decima_file import load_net
from dagsim.agents.decima_net import DecimaNet
from dagsim.agents.decima_play import play
from dagsim.agents.decima_workload import Workload
from dagsim.config.decima import DecimaTraining
from dagsim.errors import ConfigError
from dagsim.experiment.decima_training import train_decima
from dagsim.systems.spark import ExecutorType

SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"
SMALL = {
    "workload": Workload(executors=5, jobs=3),
    "teacher": "srpt-cp[cap=3]",
    "teacher_episodes": 1,
    "teacher_epochs": 1,
    "minutes": 1e9,
    "iterations": 2,
    "sequences": 1,
    "replicas": 2,
    "validation": 2,
}


def log_of(folder: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "minutes"} for row in rows]


def test_training_leaves_network_log_and_configuration(tmp_path: Path) -> None:
    best = train_decima(DecimaTraining(**SMALL), tmp_path / "a", lambda _: None)  # type: ignore[arg-type]
    assert load_net(best)[1]["validation_s"] > 0
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"best.pt", "last.pt", "log.jsonl", "training.yaml"}
    again = {**SMALL, "start": None}
    train_decima(DecimaTraining(**again), tmp_path / "b", lambda _: None)  # type: ignore[arg-type]
    assert log_of(tmp_path / "a")[-1]["validation_s"] == log_of(tmp_path / "b")[-1]["validation_s"]


def test_workers_play_what_one_process_plays(tmp_path: Path) -> None:
    found = []
    for workers in (0, 2):
        config = DecimaTraining(**SMALL | {"iterations": 1, "workers": workers})  # type: ignore[arg-type]
        train_decima(config, tmp_path / str(workers), lambda _: None)
        found.append(log_of(tmp_path / str(workers)))
    assert found[0][:2] == found[1][:2]  # the teacher, and the greedy validation before learning


def test_limits_are_learned_and_kept_in_the_file(tmp_path: Path) -> None:
    best = train_decima(DecimaTraining(**SMALL | {"action": "limit"}), tmp_path, lambda _: None)  # type: ignore[arg-type]
    assert load_net(best)[0].action == "limit"


def test_jobs_can_come_from_a_trace() -> None:
    workload = Workload(executors=5, jobs=4, trace=str(SAMPLES / "alibaba2018" / "batch_task.csv"), most_tasks=100)
    pool = workload.pool()
    assert all(job.tasks <= 100 for job in pool)
    (steps,) = play(DecimaNet(), [workload.simulation(pool, 1)], None)
    assert steps.mean_jct_s > 0
    with pytest.raises(ConfigError, match="parity"):
        Workload(trace="any", parity=True)


def test_jobs_can_come_at_once_to_executors_of_several_speeds() -> None:
    types = (ExecutorType("a100", 2, 2.6), ExecutorType("v100", 3))
    workload = Workload(executors=types, jobs=3, batch=3)
    (steps,) = play(DecimaNet(), [workload.simulation(workload.pool(), 1)], None)
    assert [when for when, _ in steps.arrivals] == [0, 0, 0]
    for wrong in ({"executors": types}, {"batch": 3}):
        with pytest.raises(ConfigError, match="parity"):
            Workload(parity=True, **wrong)  # type: ignore[arg-type]


def test_jobs_grow_over_the_first_half() -> None:
    config = DecimaTraining(workload=Workload(jobs=50), first_jobs=10)
    assert [config.jobs_at(progress) for progress in (0.0, 0.25, 0.5, 1.0)] == [10, 30, 50, 50]


@pytest.mark.parametrize("wrong", [{"loss": "sarsa"}, {"action": "cores"}, {"replicas": 1}, {"epochs": 0}])
def test_wrong_settings_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        DecimaTraining(**wrong)  # type: ignore[arg-type]

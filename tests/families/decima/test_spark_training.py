"""Training on Spark: the same run folder, progress, seeds, resume and report as on the GPU cluster."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
import torch
from support.command_line import fine, json_of

from dagsim.config.schema import Config, load_config
from dagsim.errors import ConfigError
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.simulate import agent_spec
from dagsim.experiment.store import Store
from dagsim.experiment.training_log import read_log
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.training.train_section import section_for
from dagsim.families.learning.training.trainer import Progress, TrainingRun
from dagsim.families.spark.scenario import SparkScenario
from dagsim.systems import system_named

SMALL = (
    "system={kind: spark, executors: 5, jobs: 3}",
    "train.algorithm={kind: ppo, advantage: fluid, sequences: 1, replicas: 2}",
    "train.iterations=3",
    "train.validation_seeds=2",
    "train.report_seeds=2",
    "train.reference=fair",
    "train.ema_decay=0.5",
    "train.time_constant_s=[100.0, 400.0]",
    "train.warm_start={policy: 'srpt-cp[cap=3]', episodes: 1, epochs: 1}",
)


def small(*settings: str) -> Config:
    return load_config(None, [*SMALL, *settings])


@pytest.mark.parametrize("kind", ["ppo", "reinforce"])
def test_a_resumed_training_ends_bit_for_bit_as_one_that_was_not_stopped(kind: str, tmp_path: Path) -> None:
    algorithm = f"{{kind: {kind}, advantage: fluid, sequences: 1, replicas: 2}}"
    config = small(f"train.algorithm={algorithm}", "train.lockstep=1")
    whole = RunStore.create(tmp_path / "a", "train", config, argv=[], label=kind)
    TrainingRun(whole).run()
    stopped = RunStore.create(tmp_path / "b", "train", config, argv=[], label=kind)

    def stop(progress: object) -> None:
        if getattr(progress, "what", "") == "training":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TrainingRun(stopped, tell=stop).run()
    workers = 2 if kind == "ppo" else 1  # they change nothing
    TrainingRun(Store.open(stopped.path), workers=workers).run(resume=True)
    states = [torch.load(run.path / "checkpoint.pt", weights_only=True) for run in (whole, stopped)]
    for part in ("learner", "judged"):
        one, other = (state[part]["net"] if part == "learner" else state[part] for state in states)
        assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert any(not torch.equal(value, states[0]["learner"]["net"][name]) for name, value in states[0]["judged"].items())
    assert [row["ratio"] for row in read_log(whole.path)] == [row["ratio"] for row in read_log(stopped.path)]


def test_train_and_eval_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sets = [part for setting in SMALL for part in ("--set", setting)]
    answers = []
    for seed in ("1", "2"):
        answers.append(json_of("train", *sets, "--iterations", "1", "--seed", seed))
    assert {standing["policy"] for standing in answers[0]["report"]} == {"ppo", "fair", "fifo", "weighted-fair"}
    agents = [Checkpoint.load(Path(answer["run"]) / "best.pt") for answer in answers]
    assert {agent.system for agent in agents} == {"spark"}
    assert any(not torch.equal(value, agents[1].weights[name]) for name, value in agents[0].weights.items())
    assert agent_spec("ppo", system=system_named("spark")).startswith('ppo[checkpoint="results/')
    assert agent_spec("ppo", system=system_named("cluster")) == "ppo"  # an agent for Spark is none for the cluster
    fine("eval", "--policy", "ppo", "--set", SMALL[0], "--seeds", "1", "--no-plots", "--json")


def test_limits_are_learned_and_kept_in_the_file(tmp_path: Path) -> None:
    folder = RunStore.create(tmp_path, "train", small("train.iterations=1", "train.codec={action: limit}"), argv=[])
    TrainingRun(folder).run()
    agent = Checkpoint.load(folder.path / "best.pt", system_named("spark"))
    assert getattr(agent.network(), "action", "") == "limit"


def test_a_training_on_a_range_of_clusters_judges_each_seed_by_its_own_reference_and_reports(tmp_path: Path) -> None:
    settings = [value for value in SMALL if not value.startswith(("system", "train.time_constant"))]
    ranges = "system={kind: spark, executors: [2, 60], mean_gap_s: [1, 90], jobs: 4}"
    written = [option for value in (ranges, *settings, "train.validation_seeds=4") for option in ("--set", value)]
    fine("train", *written, "--out", tmp_path, "--json")
    (folder,) = tmp_path.glob("*-train-*")
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert max(state["reference_merits"]) > 3 * min(state["reference_merits"])  # no common unit
    assert all(0.2 < row["ratio"] < 5 for row in read_log(folder) if row["ratio"] is not None)
    rows = (folder / "report.csv").read_text().splitlines()
    assert {row.partition(",")[0].strip('"') for row in rows[1:]} >= {"ppo", "fair"}


def test_minutes_end_a_training(tmp_path: Path) -> None:
    folder = RunStore.create(tmp_path, "train", small("train.minutes=1.0e-6", "train.iterations=50"), argv=[])
    TrainingRun(folder).run()
    assert len(read_log(folder.path)) == 1


def test_progress_counts_the_iterations_that_the_minutes_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(step=20.0)  # each iteration takes 20 s
    monkeypatch.setattr("dagsim.families.learning.training.trainer.perf_counter", lambda: next(seconds))
    folder = RunStore.create(tmp_path, "train", small("train.minutes=1", "train.iterations=50"), argv=[])
    steps: list[Progress] = []
    TrainingRun(folder, tell=steps.append).run()
    assert [(step.done, step.of) for step in steps if step.what == "training"] == [(1, 3), (2, 3), (3, 3)]


def test_other_algorithms_say_what_they_need(tmp_path: Path) -> None:
    for algorithm, message in (
        ("{kind: ppo, advantage: critic}", "a critic reads observations with the fields tokens"),
        ("d3qn", "d3qn needs a net that scores every choice"),
    ):
        folder = RunStore.create(tmp_path, "train", small(f"train.algorithm={algorithm}"), argv=[])
        with pytest.raises(ConfigError, match=message):
            TrainingRun(folder).run()


@pytest.mark.family("formats")
def test_jobs_can_come_from_a_trace() -> None:
    sample = Path(__file__).parents[3] / "workloads" / "samples" / "alibaba2018" / "batch_task.csv"
    scenario = SparkScenario(executors=5, jobs=4, trace=str(sample), max_tasks=100)
    assert all(job.tasks <= 100 for job in scenario.pool)
    with pytest.raises(ConfigError, match="parity"):
        SparkScenario(trace="any", parity=True)


@pytest.mark.parametrize(
    ("system", "codec", "net", "reward"),
    [
        ("cluster", "candidates", "scorer", {"shaped_job_seconds": 1.0}),
        ("spark", "stages", "decima", {"job_seconds": 1.0}),  # Mao et al. 2019: the mean JCT by Little's law
        ("ramp", "partition", "pac_ml", {"job_acceptance": 1.0}),  # Parsonson et al. 2023: jobs that are not blocked
    ],
)
def test_a_training_has_the_codec_net_and_reward_of_its_system(
    system: str, codec: str, net: str, reward: dict[str, float]
) -> None:
    section = section_for(system_named(system))
    assert (section.codec.kind, section.net.kind, section.reward) == (codec, net, reward)

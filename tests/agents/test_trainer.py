from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from dagsim.agents.checkpoint import AgentPolicy, Checkpoint
from dagsim.agents.rollouts import evaluate_greedy
from dagsim.cli import app
from dagsim.config.schema import Config, load_config
from dagsim.envs.episode import EpisodeFactory
from dagsim.envs.rewards import RewardConfig
from dagsim.errors import InputError, RunFolderError
from dagsim.experiment.agents import agent_spec
from dagsim.experiment.folder import RunFolder
from dagsim.experiment.run import simulate
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.training.log import read_log
from dagsim.experiment.training.trainer import TrainingRun
from dagsim.testing import check_policy

TINY = (
    "workload.count=15",
    "train.algorithm.sequences=2",
    "train.algorithm.replicas=2",
    "train.validation_seeds=3",
    "train.report_seeds=3",
    "train.reference=sjf",
    "train.net.hidden=8",
    "train.validate_every=2",
    "train.linear_iterations=1",
)


def tiny(*settings: str) -> Config:
    return load_config(None, [*TINY, "train.iterations=4", *settings])


def trained(root: Path, config: Config) -> RunFolder:
    folder = RunFolder.create(root, "train", config, argv=[], label="ppo")
    TrainingRun(folder).run()
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained(tmp_path_factory.mktemp("runs"), tiny())


def test_a_training_leaves_its_best_agent_and_a_log(folder: RunFolder) -> None:
    rows = read_log(folder.path)
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    assert len(ratios) == 2
    agent = Checkpoint.load(folder.path / "best.pt")
    assert agent.about["validation_ratio"] <= min(ratios)
    assert agent.about["reference"] == "sjf"
    assert agent.bounds is not None
    assert agent.bounds.parts["tokens"][1].max() > 0


def test_a_resumed_training_ends_bit_for_bit_as_one_that_was_not_stopped(folder: RunFolder, tmp_path: Path) -> None:
    stopped = RunFolder.create(tmp_path, "train", tiny(), argv=[], label="ppo")
    session = TrainingRun(stopped)

    def stop(progress: object) -> None:
        if getattr(progress, "what", "") == "training" and getattr(progress, "done", 0) == 2:
            raise KeyboardInterrupt

    session._tell = stop
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert stopped.state == "interrupted"
    assert len(read_log(stopped.path)) == 2
    TrainingRun(RunFolder.open(stopped.path)).run(resume=True)
    whole = torch.load(folder.path / "checkpoint.pt", weights_only=True)
    again = torch.load(stopped.path / "checkpoint.pt", weights_only=True)
    for name, value in whole["learner"]["net"].items():
        assert torch.equal(value, again["learner"]["net"][name]), name
    assert (whole["best"], whole["samples"]) == (again["best"], again["samples"])
    clocked = {"seconds", "samples_per_s"}
    for one, other in zip(read_log(folder.path), read_log(stopped.path), strict=True):
        assert {name: value for name, value in one.items() if name not in clocked} == {
            name: value for name, value in other.items() if name not in clocked
        }


def test_a_trained_agent_is_a_sound_policy(folder: RunFolder) -> None:
    agent = Checkpoint.load(folder.path / "best.pt")
    check_policy(lambda: AgentPolicy(agent), workloads=2)
    check_policy(lambda: AgentPolicy(agent, sampled=True), workloads=2)


def test_the_agent_in_a_file_is_the_agent_that_was_judged(folder: RunFolder, tmp_path: Path) -> None:
    # Greedy, all at once in batches or one by one through the registry: the same schedules.
    spec = agent_spec("ppo", folder.path / "best.pt")
    session = TrainingRun(folder)
    agent = Checkpoint.load(folder.path / "best.pt")
    factory = EpisodeFactory(scenario_of(folder.config), agent.codec, RewardConfig({"job_seconds": 1.0}))
    (judged,) = evaluate_greedy(agent.network(), factory, session.validation[:1], agent.clipped)
    assert simulate(folder.config, spec, session.validation[0]).schedule.log == judged.schedule.log


def test_what_is_no_agent_is_refused_with_the_reason(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no such checkpoint"):
        Checkpoint.load(tmp_path / "none.pt")
    cut = tmp_path / "cut.pt"
    cut.write_bytes((folder.path / "best.pt").read_bytes()[:500])
    with pytest.raises(RunFolderError, match="not a readable checkpoint"):
        Checkpoint.load(cut)
    other = torch.load(folder.path / "best.pt", weights_only=True)
    other["features"][0] = "colour"
    torch.save(other, tmp_path / "other.pt")
    with pytest.raises(RunFolderError, match=r"trained on other observations; they differ in .*colour"):
        Checkpoint.load(tmp_path / "other.pt")
    with pytest.raises(RunFolderError, match="not an agent of this version"):
        Checkpoint.load(folder.path / "checkpoint.pt")
    shutil.copytree(folder.path, tmp_path / "run")
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"nonsense")
    with pytest.raises(RunFolderError, match="not a readable checkpoint"):
        TrainingRun(RunFolder.open(tmp_path / "run")).run(resume=True)


def test_train_and_eval_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sets = [part for setting in TINY for part in ("--set", setting)]
    told = CliRunner().invoke(app, ["train", "--algo", "ppo", *sets, "--iterations", "2", "--json"])
    assert told.exit_code == 0, told.output
    result = json.loads(told.stdout)
    assert {standing["policy"] for standing in result["report"]} == {"ppo", "linear ppo", "sjf", "fifo", "eft-wait"}
    run = Path(result["run"])
    assert {path.name for path in (run / "plots").iterdir()} == {"learning.png", "report.png"}
    assert (run / "report.csv").read_text().startswith("policy,")
    evaluated = CliRunner().invoke(app, ["eval", "--algo", "ppo", "--seeds", "1", "--no-plots", "--json"])
    assert evaluated.exit_code == 0, evaluated.output
    drawn = CliRunner().invoke(app, ["plot", str(run), str(run), "--out", "drawn"])
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "drawn" / "learning.png").stat().st_size > 1000
    tuned = CliRunner().invoke(
        app, ["train", *sets, "--iterations", "1", "--init", str(run / "best.pt"), "--no-report", "-q"]
    )
    assert tuned.exit_code == 0, tuned.output


def test_without_a_training_there_is_no_agent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trained sac below"):
        agent_spec("sac", root=tmp_path)
    with pytest.raises(InputError, match="--checkpoint goes with --algo decima, ppo"):
        agent_spec("fifo", Path("best.pt"))
    assert agent_spec("fifo") == "fifo"

"""An agent is not judged on the jobs that it learned from, or the result says so first."""

import json
from pathlib import Path

import pytest
from support.command_line import fine, invoke

from dagsim.config.schema import load_config
from dagsim.experiment.scenario import experiment_seeds
from dagsim.families import learning
from dagsim.families.learning.training.session import train

TINY = ["train.algorithm.sequences=2", "train.algorithm.replicas=2", "train.iterations=1", "train.validation_seeds=2"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log of 200 jobs."""
    path = tmp_path_factory.mktemp("log") / "log.csv"
    lines = [f"j{number},{20 * number},{60 + 13 * number % 300},1" for number in range(200)]
    path.write_text("\n".join(["id,arrival_s,duration_s,gpus", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def agent(log, tmp_path_factory):
    """An agent that was trained on windows of the log."""
    settings = [f"workload={{kind: trace, path: {log}, window: 10}}", "runtime={kind: recorded, reference: T4}", *TINY]
    return train(None, settings, out=tmp_path_factory.mktemp("runs"), report=False).folder.path / "best.pt"


def evaluated(log, agent, out, *more):
    """The output of ``dagsim eval`` on windows of the log, warnings first."""
    words = [
        *(
            "eval",
            "--policy",
            f"ppo[checkpoint={agent}]",
            "--workload",
            str(log),
            "--set",
            "runtime={kind: recorded, reference: T4}",
        ),
        *("--out", str(out), "--no-plots", *more),
    ]
    return invoke(*words)


def test_windows_that_an_agent_was_trained_on_are_named_first(log, agent, tmp_path):
    ended = evaluated(log, agent, tmp_path, "--windows", "10x10")
    assert ended.exit_code == 0, ended.output
    assert "8 of 10 windows contain jobs from the first 80% of the trace" in ended.stderr
    assert "workload.part=[0.8,1]" in ended.stderr
    rest = evaluated(log, agent, tmp_path, "--windows", "4x10", "--set", "workload.part=[0.8,1]")
    assert rest.exit_code == 0, rest.output
    assert "windows contain jobs" not in rest.stderr


def test_windows_of_a_part_lie_in_that_part(log):
    settings = [f"workload={{kind: trace, path: {log}, window: 10, windows: 4, part: [0.8, 1]}}"]
    config = load_config(None, settings)
    places = config.trace_file.places(experiment_seeds(config))
    assert places == [(0.8, 0.85), (0.85, 0.9), (0.9, 0.95), (0.95, 1.0)]


def test_a_seed_that_would_choose_no_window_is_refused(log, tmp_path):
    ended = evaluated(log, "none.pt", tmp_path, "--windows", "4x10", "--seed", "7")
    assert ended.exit_code == 2
    assert "windows are spread evenly over the trace" in ended.output


def test_a_training_without_a_report_ends_without_one_after_a_resume_too(agent):
    folder = agent.parent
    fine("train", "--resume", folder)
    assert not (folder / "report.csv").exists()


def test_an_agent_that_never_met_hidden_durations_says_so(log, agent, tmp_path):
    hidden = ("--windows", "2x10", "--set", "estimates.kind=hidden", "--set", "workload.part=[0.8,1]")
    ended = evaluated(log, agent, tmp_path / "hidden", *hidden)
    assert ended.exit_code == 0, ended.output
    assert "durations are hidden, but the agent was trained with estimates (predicted)" in ended.stderr
    settings = ["workload.count=4", "estimates.kind=hidden", *TINY, "train.codec=candidates"]
    other = train(None, settings, out=tmp_path / "runs", report=False).folder.path / "best.pt"
    again = evaluated(log, other, tmp_path / "other", *hidden)
    assert "durations are hidden" not in again.stderr


def shipped(tmp_path, *more, algo="ppo"):
    """The output of ``dagsim eval`` with a shipped agent, and the checkpoint in its manifest."""
    words = ("eval", "--policy", algo, "--set", "workload.count=3", "--no-plots", "--out", str(tmp_path), *more)
    ended = invoke(*words)
    manifests = [json.loads(path.read_text()) for path in tmp_path.glob("*/manifest.json")]
    files = [Path(fact["file"]) for one in manifests for fact in one["checkpoints"].values()]
    return ended, " ".join(ended.stderr.split()), files


def test_where_durations_are_hidden_the_shipped_agent_sees_expected_ones(tmp_path):
    hidden = ("--set", "estimates.kind=hidden")
    ended, said, (general,) = shipped(tmp_path / "hidden", *hidden)
    assert ended.exit_code == 0, ended.output
    assert "ppo[beliefs=true]: durations are hidden, so the agent gets expected durations" in said
    assert "ppo[beliefs=true]" in ended.stdout
    ended, said, files = shipped(tmp_path / "known")
    assert "hidden" not in said
    assert "beliefs" not in ended.stdout
    assert files == [general]
    ended, said, _ = shipped(tmp_path / "without", *hidden, algo=f"ppo[checkpoint={general}]")
    assert "durations are hidden, but the agent was trained with estimates (exact, noisy)" in said
    assert "ppo[beliefs=true] gives the agent expected durations" in said


def test_an_agent_whose_codec_has_no_beliefs_is_refused(tmp_path):
    former = Path(learning.__file__).with_name("independent-0.9.pt")
    ended, _, _ = shipped(tmp_path, algo=f"ppo[checkpoint={former},beliefs=true]")
    assert ended.exit_code == 2
    assert "beliefs: the agent's codec is 'candidates'; it must be 'relative'" in " ".join(ended.output.split())


def test_a_training_on_windows_takes_a_seed(log, tmp_path):
    settings = [f"workload={{kind: trace, path: {log}, window: 10}}", "runtime={kind: recorded, reference: T4}", *TINY]
    trained = train(None, [*settings, "seed=7"], out=tmp_path, report=False)
    assert trained.folder.manifest["seeds"] == [7]

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.command_line import fine, json_of
from support.process_states import alive
from support.runs import let_go

import dagsim
from dagsim.config.schema import Config, load_config
from dagsim.errors import InputError, RunFolderError, UnknownName
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import agent_spec, run_policy
from dagsim.experiment.store import Store
from dagsim.experiment.training_log import TrainingLog, read_log
from dagsim.families.learning.agent_policy import AgentPolicy
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.checkpoint_file import read_plain, write_plain
from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.families.learning.episode import EpisodeFactory, RewardConfig
from dagsim.families.learning.off_policy.rainbow import RainbowNetConfig
from dagsim.families.learning.training.learner import Learner, LearnerContext, clone, imitation
from dagsim.families.learning.training.rollouts import InProcessRollouts, evaluate_greedy
from dagsim.families.learning.training.trainer import Progress, TrainingRun
from dagsim.seeds import TRAIN, VALIDATION
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


def trained(root: Path, config: Config) -> Store:
    folder = RunStore.create(root, "train", config, argv=[], label="ppo")
    TrainingRun(folder).run()
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return trained(tmp_path_factory.mktemp("runs"), tiny())


def test_a_training_leaves_its_best_agent_and_a_log(folder: Store) -> None:
    rows = read_log(folder.path)
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    assert len(ratios) == 2
    agent = Checkpoint.load(folder.path / "best.pt")
    assert agent.about["validation_ratio"] <= min(ratios)
    assert agent.about["reference"] == "sjf"
    assert agent.bounds is not None
    assert agent.bounds.parts["tokens"][1].max() > 0


def test_a_resumed_training_ends_bit_for_bit_as_one_that_was_not_stopped(folder: Store, tmp_path: Path) -> None:
    stopped = RunStore.create(tmp_path, "train", tiny(), argv=[], label="ppo")

    def stop(progress: Progress) -> None:
        if progress.what == "training":
            assert progress.of == 4  # without a limit of minutes it ends with its last iteration
            if progress.done == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TrainingRun(stopped, tell=stop).run()
    assert stopped.state == "interrupted"
    assert len(read_log(stopped.path)) == 2
    TrainingRun(Store.open(stopped.path)).run(resume=True)
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


def test_a_resumed_log_keeps_its_rows_byte_for_byte(folder: Store, tmp_path: Path) -> None:
    whole = (folder.path / "progress.csv").read_text()
    assert whole.splitlines()[1].startswith("1,")  # integers stay integers
    (tmp_path / "progress.csv").write_text(whole + "5,17,1.5e")
    TrainingLog(tmp_path, 4).close()
    assert (tmp_path / "progress.csv").read_text() == whole
    TrainingLog(tmp_path, 2).close()
    assert (tmp_path / "progress.csv").read_text().splitlines() == whole.splitlines()[:3]


OFF_POLICY = ("episodes=2", "updates=2", "minibatch=16", "replay=60")
EACH = {
    "ppo": ("sequences=2", "replicas=2"),
    "reinforce": ("sequences=2", "replicas=2"),
    "d3qn": OFF_POLICY,
    "rainbow": OFF_POLICY,
    "sac": OFF_POLICY,
}


def few(kind: str, *settings: str) -> Config:
    """Three iterations on five jobs."""
    of_it = [f"train.algorithm.{setting}" for setting in EACH[kind]]
    most = ("workload.count=5", "train.iterations=3", "train.validation_seeds=1", "train.reference=sjf")
    shape = (f"train.algorithm.kind={kind}", "train.net.hidden=8", "train.validate_every=1")
    return load_config(None, [*most, *shape, *of_it, *settings])


class Killed(BaseException):
    """Stands for kill -9."""


def plain(path: Path) -> dict[str, Any]:
    """A checkpoint without what a clock said, its tensors as lists."""

    def listed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: listed(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [listed(part) for part in value]
        return value.tolist() if isinstance(value, torch.Tensor) else value

    return listed({name: value for name, value in read_plain(path / "checkpoint.pt").items() if name != "seconds"})


@pytest.mark.parametrize("kind", EACH)
def test_killed_in_an_iteration_each_algorithm_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    config = few(kind)
    whole, killed = (RunStore.create(tmp_path / name, "train", config, argv=[]) for name in ("whole", "killed"))
    TrainingRun(whole).run()

    def kill(progress: Progress) -> None:
        if progress[:2] == ("training", 2):
            assert (killed.path / "replay").exists() == (EACH[kind] is OFF_POLICY)
            raise Killed

    with pytest.raises(Killed):
        TrainingRun(killed, tell=kill).run()
    path = killed.path
    let_go(killed)
    with (path / "progress.csv").open("a") as log:
        log.write("3,17,1.5e")  # torn in the iteration that was not saved
    resumed = Store.open(path)
    assert resumed.state == "interrupted"
    TrainingRun(resumed).run(resume=True)
    assert plain(path) == plain(whole.path)
    assert (path / "best.pt").read_bytes() == (whole.path / "best.pt").read_bytes()
    assert [row["loss"] for row in read_log(path)] == [row["loss"] for row in read_log(whole.path)]
    assert not (path / "replay").exists()


def test_killed_before_the_first_iteration_it_begins_again(tmp_path: Path) -> None:
    config = few("reinforce", "train.iterations=1")
    whole, killed, early = (RunStore.create(tmp_path / name, "train", config, argv=[]) for name in "abc")
    TrainingRun(whole).run()
    session = TrainingRun(killed)
    session._learn = kill_at_once  # type: ignore[assignment]
    with pytest.raises(Killed):
        session.run()
    assert read_plain(killed.path / "checkpoint.pt")["iteration"] == 0
    with pytest.raises(KeyboardInterrupt):
        TrainingRun(early, tell=stop_at_the_reference).run()
    assert (early.state, (early.path / "checkpoint.pt").exists()) == ("interrupted", False)
    for stopped in (killed, early):
        let_go(stopped)
        TrainingRun(Store.open(stopped.path)).run(resume=True)
        assert plain(stopped.path) == plain(whole.path)
    (early.path / "checkpoint.pt").unlink()
    with pytest.raises(RunFolderError, match="no such file"):  # a row is logged: something was lost
        TrainingRun(Store.open(early.path)).run(resume=True)


def kill_at_once(*_: object) -> None:
    raise Killed


def stop_at_the_reference(progress: Progress) -> None:
    if progress.what.startswith("reference"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", EACH)
def test_a_training_is_the_iterations_of_its_learner(kind: str, tmp_path: Path) -> None:
    folder = RunStore.create(tmp_path, "train", few(kind, "seed=2"), argv=[])
    run = TrainingRun(folder)
    run.run()
    learner, _ = by_hand(run)
    for iteration in range(3):
        learner.iterate(iteration, iteration / 3)
    kept = read_plain(folder.path / "checkpoint.pt")["learner"]["net"]
    assert all(torch.equal(value.detach(), kept[name]) for name, value in learner.net.named_parameters())


def test_progress_names_the_iterations_that_are_done_and_those_at_the_end(tmp_path: Path) -> None:
    told: list[Progress] = []
    TrainingRun(RunStore.create(tmp_path, "train", few("ppo"), argv=[]), tell=told.append).run()
    training = [(step.done, step.of) for step in told if step.what == "training"]
    assert training == [(1, 3), (2, 3), (3, 3)]


def test_a_warm_start_comes_before_the_first_iteration(tmp_path: Path) -> None:
    warm = few("ppo", "train.warm_start={policy: eft-wait, episodes: 4, epochs: 2}", "train.iterations=1")
    folder = RunStore.create(tmp_path, "train", warm, argv=[])
    run = TrainingRun(folder)
    run.run()
    learner, factory = by_hand(run)
    how = run.train.cloned
    assert how is not None
    observations, choices = imitation(factory, "eft-wait", TRAIN[:4])
    clone(learner.net, observations, choices, how, np.random.default_rng([0, 3]))
    learner.iterate(0, 0.0)
    kept = read_plain(folder.path / "checkpoint.pt")["learner"]["net"]
    assert all(torch.equal(value.detach(), kept[name]) for name, value in learner.net.named_parameters())


def by_hand(run: TrainingRun) -> tuple[Learner, EpisodeFactory]:
    """The learner of a training, without the training around it."""
    train, config = run.train, run.config
    factory = EpisodeFactory(scenario_of(config), train.codec, RewardConfig(train.reward))
    jct_s = run_policy(config, "sjf", VALIDATION[0]).summary.jct_s.mean
    seeds = TRAIN[50_000 * config.seed :][:50_000]
    return train.algorithm.build(LearnerContext(train, InProcessRollouts(factory), config.seed, jct_s, seeds)), factory


def test_weights_are_the_same_with_1_and_2_workers(tmp_path: Path) -> None:
    config = few("ppo", "train.iterations=2", "train.lockstep=1", "workload.count=4")
    folders = [RunStore.create(tmp_path / str(count), "train", config, argv=[]) for count in (1, 2)]
    for folder, count in zip(folders, (1, 2), strict=True):
        TrainingRun(folder, count).run()
    assert plain(folders[0].path) == plain(folders[1].path)


ORPHANS = """
import os, sys, time
from dagsim.families.learning.training.rollouts import ProcessRollouts
if __name__ == "__main__":
    rollouts = ProcessRollouts(None, 2)
    rollouts._pool.submit(os.getpid).result()
    print(*rollouts._pool._processes, flush=True)
    time.sleep(600)
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "orphans.py").write_text(ORPHANS)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "orphans.py")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 60
    while [pid for pid in workers if alive(pid)]:
        assert time.monotonic() < until, "workers live on"
        time.sleep(0.05)


def test_a_trained_agent_is_a_sound_policy(folder: Store) -> None:
    agent = Checkpoint.load(folder.path / "best.pt")
    check_policy(lambda: AgentPolicy(agent), workloads=2)
    check_policy(lambda: AgentPolicy(agent, sampled=True), workloads=2)


def test_the_agent_in_a_file_is_the_agent_that_was_judged(folder: Store, tmp_path: Path) -> None:
    # Greedy, all at once in batches or one by one through the registry: the same schedules.
    spec = agent_spec("ppo", folder.path / "best.pt")
    session = TrainingRun(folder)
    agent = Checkpoint.load(folder.path / "best.pt")
    factory = EpisodeFactory(scenario_of(folder.config), agent.codec, RewardConfig({"job_seconds": 1.0}))
    (judged,) = evaluate_greedy(agent.network(), factory, session.validation[:1], agent.clipped)
    assert run_policy(folder.config, spec, session.validation[0]).schedule.log == judged.log


def test_an_agent_of_rainbow_loads_without_the_name_of_its_net(tmp_path: Path) -> None:
    codec, net = CandidatesConfig(), RainbowNetConfig(hidden=8)
    agent = Checkpoint("rainbow", net, codec, net.build(codec).state_dict(), {}, None)
    agent.save(tmp_path / "best.pt")
    assert Checkpoint.load(tmp_path / "best.pt").net == net


def test_what_is_no_agent_is_refused_with_the_reason(folder: Store, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no such file"):
        Checkpoint.load(tmp_path / "none.pt")
    noise = tmp_path / "noise.pt"
    noise.write_bytes(bytes(range(256)))
    with pytest.raises(RunFolderError, match=r"noise.pt: not a checkpoint; dagsim train writes checkpoints"):
        Checkpoint.load(noise)
    cut = tmp_path / "cut.pt"
    cut.write_bytes((folder.path / "best.pt").read_bytes()[:500])
    with pytest.raises(RunFolderError, match="checkpoint"):
        Checkpoint.load(cut)
    other = read_plain(folder.path / "best.pt")
    other["features"][0] = "colour"
    write_plain(tmp_path / "other.pt", other)
    with pytest.raises(RunFolderError, match=r"trained on different observations; the differences are in .*colour"):
        Checkpoint.load(tmp_path / "other.pt")
    with pytest.raises(RunFolderError, match="not an agent from this version"):
        Checkpoint.load(folder.path / "checkpoint.pt")
    other = read_plain(folder.path / "best.pt")
    next(iter(other["weights"].values()))[0] = float("nan")
    write_plain(tmp_path / "nan.pt", other)
    with pytest.raises(RunFolderError, match="in the weights of the agent contains numbers that are not finite"):
        Checkpoint.load(tmp_path / "nan.pt")
    shutil.copytree(folder.path, tmp_path / "run")
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"nonsense")
    with pytest.raises(RunFolderError, match="checkpoint"):
        TrainingRun(Store.open(tmp_path / "run")).run(resume=True)


def test_a_file_with_a_flipped_bit_is_refused_or_reads_the_same(folder: Store, tmp_path: Path) -> None:
    path, chance, refused = folder.path / "best.pt", random.Random(3), 0
    whole = path.read_bytes()
    sound = Checkpoint.load(path)
    for _ in range(60):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        (tmp_path / "flipped.pt").write_bytes(flipped)
        try:
            agent = Checkpoint.load(tmp_path / "flipped.pt")
        except RunFolderError:
            refused += 1
        else:  # a byte that says nothing: of padding, or of a time stamp
            assert (agent.net, agent.codec, agent.about) == (sound.net, sound.codec, sound.about)
            assert all(torch.equal(value, sound.weights[name]) for name, value in agent.weights.items())
    assert refused > 15


def test_train_and_eval_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sets = [part for setting in TINY for part in ("--set", setting)]
    answer = json_of("train", "--algo", "ppo", *sets, "--iterations", "2")
    assert {standing["policy"] for standing in answer["report"]} == {"ppo", "linear ppo", "sjf", "fifo", "eft-wait"}
    run = Path(answer["run"])
    assert {path.name for path in (run / "plots").iterdir()} == {"learning.png", "report.png"}
    assert (run / "report.csv").read_text().startswith("policy,")
    fine("eval", "--policy", "ppo", "--seeds", "1", "--no-plots", "--json")
    fine("plot", run, run, "--out", "drawn")
    assert (tmp_path / "drawn" / "learning.png").stat().st_size > 1000
    fine("train", *sets, "--iterations", "1", "--init", run / "best.pt", "--no-report", "-q")


def test_python_trains_the_agent_that_the_command_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [*TINY, "train.iterations=2"]
    result = dagsim.train(settings=settings, out=tmp_path / "python")
    options = [part for setting in settings for part in ("--set", setting)]
    fine("train", *options, "--out", "command", "--quiet")
    (command,) = (tmp_path / "command").glob("*-train-*")
    assert (result.folder.path / "best.pt").read_bytes() == (command / "best.pt").read_bytes()
    assert result.folder.state == "done"
    assert (result.folder.path / "report.csv").exists()
    assert {"ppo", "sjf"} <= {line.policy for line in result.standings}


def test_settings_beside_a_configuration_object_are_refused() -> None:
    with pytest.raises(InputError, match="settings apply to a file or a name"):
        dagsim.train(tiny(), ["seed=1"])


def test_without_a_training_there_is_no_agent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trained sac agent"):
        agent_spec("sac", root=tmp_path)
    with pytest.raises(InputError, match="--checkpoint applies only to --policy decima, ppo"):
        agent_spec("fifo", Path("best.pt"))
    assert agent_spec("fifo") == "fifo"


def test_a_checkpoint_joins_the_other_parameters_of_an_agent(tmp_path: Path) -> None:
    spec = agent_spec("ppo[sampled=true]", Path("best.pt"), tmp_path)
    assert spec == "ppo[checkpoint=best.pt,sampled=true]"
    assert agent_spec(spec, root=tmp_path) == spec
    with pytest.raises(InputError, match=r"--checkpoint other\.pt: .* already names a checkpoint"):
        agent_spec(spec, Path("other.pt"))


TRACKER = """
import json


class Lines:
    def __init__(self, folder, config, iterations, name="rows"):
        self.file = open(folder / f"{name}.jsonl", "a")
        print(json.dumps({"seed": config["seed"], "after": iterations}), file=self.file)

    def add(self, row):
        print(json.dumps(row), file=self.file)

    def close(self):
        self.file.close()
"""


def test_a_tracker_of_ones_own_receives_every_iteration(tmp_path: Path) -> None:
    source = tmp_path / "tracking.py"
    source.write_text(TRACKER)
    config = tiny(f"train.tracker={source}:Lines[name=mine]")
    folder = trained(tmp_path / "runs", config)
    head, *rows = (json.loads(line) for line in (folder.path / "mine.jsonl").read_text().splitlines())
    assert head == {"seed": config.seed, "after": 0}
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    assert all("samples" in row for row in rows)
    with pytest.raises(UnknownName, match="nosuch"):
        trained(tmp_path / "wrong", tiny("train.tracker=nosuch"))

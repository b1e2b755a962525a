"""A user's own codec, net, reward term and algorithm, named in a configuration, on the command line, in Gymnasium."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from support.command_line import json_of

from dagsim.config.dumping import dump_config
from dagsim.config.schema import load_config
from dagsim.errors import ConfigError
from dagsim.experiment.simulate import run_policy
from dagsim.families.learning.checkpoint import Checkpoint

MODULE = '''
"""Extensions of somebody's own."""

from dataclasses import dataclass

from dagsim.families.learning.on_policy import PpoConfig
from dagsim.families.learning.nets.actor import ScoreNet
from dagsim.families.learning.nets.row_nets import Sizes, indifferent
from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.registry import Entry, Registry
from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.spark.scenario import SparkScenario


@dataclass(frozen=True)
class Narrow:
    """The candidates without context."""

    columns: int = 4

    @property
    def features(self):
        tokens, gpus = Candidates.token_features[: self.columns], Candidates.gpu_features
        return {"tokens": tokens, "context": ("one",), "gpus": gpus}

    def build(self):
        return NarrowCodec(self.columns)


@dataclass(frozen=True)
class World(SparkScenario):
    """A system that brings a codec along."""

    @property
    def codecs(self):
        return Registry("codec", [Entry("narrow", "somebodys:Narrow")])


class NarrowCodec:
    def __init__(self, columns):
        self.columns, self.inner = columns, Candidates()

    def encode(self, view):
        seen = self.inner.encode(view)
        return None if seen is None else Observation(seen.tokens[:, : self.columns], seen.context[:1], seen.gpus)

    def decode(self, view, choice):
        return self.inner.decode(view, choice)

    def choice_of(self, decisions):
        return self.inner.choice_of(decisions)


@dataclass(frozen=True)
class OneLayer:
    """A weight per column."""

    def build(self, codec):
        return Net(Sizes.of(codec, "OneLayer"))


class Net(ScoreNet):
    def __init__(self, sizes):
        super().__init__()
        self.layer = indifferent(sizes.tokens)

    def forward(self, batch):
        return self.layer(batch.tokens)[:, 0]


class Arrivals:
    """One for every job that arrives."""

    def __init__(self, schedule):
        self.count = 0

    def take(self, row):
        self.count += row[0] == 0

    def cost(self, now):
        count, self.count = self.count, 0
        return float(count)


@dataclass(frozen=True)
class TwiceConfig(PpoConfig):
    """PPO whose every iteration counts what it did."""

    def build(self, context):
        learner = PpoConfig.build(self, context)
        iterate = learner.iterate
        learner.iterate = lambda *where: iterate(*where) | {"loss": 42.0}
        return learner
'''
SMALL = (
    "workload.count=8",
    "train.algorithm.sequences=1",
    "train.algorithm.replicas=2",
    "train.iterations=1",
    "train.validation_seeds=1",
    "train.report_seeds=1",
    "train.reference=sjf",
    "train.linear_iterations=0",
)
OWN = (
    "train.codec={kind: 'somebodys:Narrow', columns: 5}",
    "train.net='somebodys:OneLayer'",
    "train.reward={'somebodys:Arrivals': 1.0}",
)


@pytest.fixture(autouse=True)
def _somebodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "somebodys.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_own_codec_net_reward_and_algorithm_train_and_decide() -> None:
    own = ("--algo", "somebodys:TwiceConfig", *(part for setting in (*SMALL, *OWN) for part in ("--set", setting)))
    run = Path(json_of("train", *own, "--no-report")["run"])
    agent = Checkpoint.load(run / "best.pt", codec="somebodys:Narrow", net="somebodys:OneLayer")
    assert (type(agent.codec).__name__, type(agent.net).__name__) == ("Narrow", "OneLayer")
    assert agent.weights["layer.weight"].shape == (1, 5)
    rows = (run / "progress.csv").read_text().splitlines()
    head, row = (line.split(",") for line in rows)
    values = dict(zip(head, row, strict=True))
    assert float(values["reward"]) == -7  # a job each, but for the first, which came before the first choice
    assert float(values["loss"]) == 42
    config = load_config(None, ["workload.count=8"])
    own = 'codec="somebodys:Narrow",net="somebodys:OneLayer"'
    assert run_policy(config, f'ppo[checkpoint="{run / "best.pt"}",{own}]', 1).summary.jobs_completed == 8


@pytest.mark.family("decima")
def test_a_system_brings_codecs_along_that_a_training_can_name(tmp_path: Path) -> None:
    for setting, columns in (("narrow", 4), ("{kind: narrow, columns: 6}", 6)):
        config = load_config(None, ["system=somebodys:World", f"train.codec={setting}"])
        codec = config.training().codec
        assert (type(codec).__name__, codec.columns) == ("Narrow", columns)  # type: ignore[attr-defined]
        (tmp_path / "again.yaml").write_text(dump_config(config))
        assert load_config(tmp_path / "again.yaml").training().codec == codec
    with pytest.raises(ConfigError, match="unknown codec 'narow'"):
        load_config(None, ["system=somebodys:World", "train.codec=narow"])


def test_own_codec_and_reward_in_gymnasium() -> None:
    env = gymnasium.make(
        "dagsim.envs:dagsim/Scheduling-v0",
        config="heterogeneous",
        settings=["workload.count=4"],
        codec={"kind": "somebodys:Narrow", "columns": 6},
        reward={"somebodys:Arrivals": 1.0},
        reward_scale=1.0,
    )
    observation, info = env.reset(seed=1)
    assert observation["tokens"].shape == (64, 6)
    total, over = 0.0, False
    while not over:
        observation, reward, over, _, info = env.step(int(np.flatnonzero(info["action_mask"])[0]))
        total += float(reward)
    assert -4 <= total <= 0
    env.close()


@pytest.mark.family("decima")
def test_a_part_of_another_system_is_refused() -> None:
    from dagsim.experiment.scenario import scenario_of
    from dagsim.families.learning.training.train_section import check_training

    for settings, message in (
        (
            ["system=spark", "train.codec=candidates"],
            "'candidates' is a codec of the system.*allowed: stages",
        ),
        (["system=spark", "train.reward={idle: 1.0}"], "unknown reward term 'idle'"),
        (["train.first_jobs=3"], "cannot be shortened"),
    ):
        config = load_config(None, settings)
        with pytest.raises(ConfigError, match=message):
            check_training(config.training(), scenario_of(config))

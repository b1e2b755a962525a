"""A system of one's own trains agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dagsim.config.schema import load_config
from dagsim.errors import RunFolderError
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.simulate import run_policy
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.codecs.codec import RelativeConfig
from dagsim.families.learning.training.train_config import all_codecs
from dagsim.families.learning.training.train_section import section_for
from dagsim.families.learning.training.trainer import TrainingRun
from dagsim.registry import Registry
from dagsim.systems.default import DefaultSystem


@pytest.mark.family("decima", "ramp")
def test_a_system_of_ones_own_trains_agents_that_decide_only_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_world.py").write_text(
        "from dataclasses import dataclass\n"
        "from dagsim.families.spark.scenario import SparkScenario\n"
        "@dataclass(frozen=True)\n"
        "class Toy(SparkScenario):\n"
        "    kind: str = 'toy_world:Toy'\n"
        "Toy.system, Toy.training = 'toy', {**SparkScenario.training, 'rivals': ['fifo'], 'validation_seeds': 2}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    small = ("train.iterations=1", "train.report_seeds=2", "train.reference=fair", "train.algorithm.sequences=1")
    config = load_config(None, ["system={kind: 'toy_world:Toy', executors: 4, jobs: 3}", *small])
    assert config.training().rivals == ("fifo",)
    folder = RunStore.create(tmp_path / "runs", "train", config, argv=[])
    TrainingRun(folder).run()
    agent = folder.path / "best.pt"
    assert len(run_policy(config, f'ppo[checkpoint="{agent}"]', 1).schedule.jobs) == 3
    with pytest.raises(RunFolderError, match="the system 'toy', which is unknown; known systems: cluster, ramp, spark"):
        Checkpoint.load(agent)
    spark = load_config(None, ["system={kind: spark, executors: 4, jobs: 3}"])
    with pytest.raises(RunFolderError, match="trained for the system 'toy', so it cannot schedule 'spark'"):
        run_policy(spark, f'ppo[checkpoint="{agent}"]', 1)


@dataclass(frozen=True)
class Own(RelativeConfig):
    pass


def codecs_with(name: str) -> Registry[Any]:
    codecs: Registry[Any] = Registry("codec")
    codecs.register(name)(Own)
    return codecs


def test_a_system_of_ones_own_has_its_own_codec_even_if_another_system_has_one_of_this_name() -> None:
    class Toy(DefaultSystem):
        codecs = codecs_with("relative")
        training = {"codec": "relative"}

    assert type(section_for(Toy).codec) is Own
    assert type(section_for(DefaultSystem).codec) is not Own


def test_a_codec_that_was_registered_in_code_is_among_all_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DefaultSystem, "codecs", codecs_with("mine"))
    assert all_codecs().get("mine") is Own

"""Models of Stable-Baselines3 as policies: equal to the model in the environment, and only data of the file is used."""

from __future__ import annotations

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from support.command_line import fine

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, RunFolderError
from dagsim.experiment.provenance import provenance
from dagsim.experiment.simulate import agent_spec, run_policy
from dagsim.families.learning.sb3 import load_sb3

SETTINGS = ["workload.count=30"]
TYPES = len(load_config(None, SETTINGS).build_cluster().gpu_types)


def inputs(observation: str) -> int:
    """The number of values that a model of 16 slots takes."""
    env: Any = environment(observation)
    space = env.observation_space
    return int(space.shape[0] if observation == "flat" else space["observations"].shape[0] + 16)


def environment(observation: str) -> Any:
    return gymnasium.make(
        "dagsim.envs:dagsim/Scheduling-v0", config="heterogeneous", observation=observation, slots=16, settings=SETTINGS
    ).unwrapped


def state(width: int = 8, of: int | None = None) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    first, last = torch.nn.Linear(of or inputs("flat"), width), torch.nn.Linear(width, 16)
    names = {"mlp_extractor.policy_net.0": first, "action_net": last, "value_net": torch.nn.Linear(width, 1)}
    return {f"{name}.{part}": value for name, layer in names.items() for part, value in layer.state_dict().items()}


def written(path: Path, weights: Any, data: Any = None, pickled: bytes | None = None) -> Path:
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("policy.pth", buffer.getvalue() if pickled is None else pickled)
        archive.writestr("data", json.dumps(data or {}))
    return path


def played(observation: str, choose: Callable[[Any, np.ndarray], int]) -> list[tuple[Any, ...]]:
    """The rows of the log of an episode in the environment."""
    env = environment(observation)
    shown, info = env.reset(seed=5)
    over = False
    while not over:
        shown, _, terminated, truncated, info = env.step(choose(shown, info["action_mask"].astype(bool)))
        over = terminated or truncated
    rows: list[tuple[Any, ...]] = env.simulation.schedule.log.rows().tolist()
    return rows


def by_name(path: Path) -> list[tuple[Any, ...]]:
    outcome = run_policy(load_config(None, SETTINGS), agent_spec(f"sb3:{path}"), 5)
    rows: list[tuple[Any, ...]] = outcome.schedule.log.rows().tolist()
    return rows


@pytest.mark.parametrize(("observation", "kind"), [("flat", "MlpPolicy"), ("dict", "MultiInputPolicy")])
def test_a_model_decides_as_in_the_environment(tmp_path: Path, observation: str, kind: str) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kwargs = {"net_arch": [16, 8], "activation_fn": torch.nn.ReLU} if observation == "dict" else None
        model = contrib.MaskablePPO(kind, environment(observation), n_steps=64, batch_size=32, policy_kwargs=kwargs)
        model.learn(64)
        model.save(tmp_path / "model.zip")

        def choose(shown: Any, mask: np.ndarray) -> int:
            action, _ = model.predict(shown, deterministic=True, action_masks=mask)
            return int(action)

        rows = played(observation, choose)
    assert by_name(tmp_path / "model.zip") == rows


@pytest.mark.parametrize("preferred", [None, 15], ids=["as drawn", "waits wherever it may"])
def test_a_file_that_was_written_without_stable_baselines_is_read(tmp_path: Path, preferred: int | None) -> None:
    weights = state()
    if preferred is not None:
        weights["action_net.bias"][preferred] = 1e6
    path = written(tmp_path / "model.zip", weights)

    def choose(shown: Any, mask: np.ndarray) -> int:
        hidden = torch.tanh(
            torch.from_numpy(shown) @ weights["mlp_extractor.policy_net.0.weight"].T
            + weights["mlp_extractor.policy_net.0.bias"]
        )
        values = hidden @ weights["action_net.weight"].T + weights["action_net.bias"]
        return int(values.masked_fill(torch.from_numpy(~mask), -torch.inf).argmax())

    assert by_name(path) == played("flat", choose)


def test_the_command_line_runs_it_and_records_its_digest(tmp_path: Path) -> None:
    path = written(tmp_path / "model.zip", state())
    command = ["baseline", "--policy", f"sb3:{path}", "--policy", "fifo", "--set", SETTINGS[0], "--seeds", "2"]
    fine(*command, "--no-plots", "--json", "-o", tmp_path / "out")
    config = load_config(None, SETTINGS)
    (fact,) = provenance(config, [f"sb3:{path}"])["checkpoints"].values()
    assert fact["file"] == str(path)


class Hostile:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_pickled_code_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hostile = pickle.dumps(Hostile(mark))
    pickle.loads(hostile)
    assert mark.exists(), "the pickle is as hostile as it should be"
    mark.unlink()
    with pytest.raises(RunFolderError, match="model cannot be read"):
        load_sb3(written(tmp_path / "bare.zip", None, pickled=hostile), TYPES)
    with pytest.raises(RunFolderError, match="model cannot be read"):
        load_sb3(written(tmp_path / "tensors.zip", {"action_net.weight": Hostile(mark)}), TYPES)
    import base64

    data = {"policy_class": {":type:": "x", ":serialized:": base64.b64encode(hostile).decode()}}
    load_sb3(written(tmp_path / "data.zip", state(), data), TYPES)
    assert not mark.exists()


def wrong_files(folder: Path) -> Iterator[tuple[Path, str]]:
    empty = folder / "empty.zip"
    with zipfile.ZipFile(empty, "w"):
        pass
    text = folder / "text.zip"
    text.write_text("not a zip")
    infinite = state()
    infinite["action_net.bias"][0] = torch.inf
    chopped = {name: value for name, value in state().items() if not name.startswith("action_net")}
    crossed = state() | {"action_net.weight": torch.zeros(16, 5)}
    yield folder / "none.zip", "no such file"
    yield empty, "There is no item named 'policy.pth'"
    yield text, "not a zip file"
    yield written(folder / "list.zip", [1, 2]), "not a model of Stable-Baselines3"
    yield written(folder / "infinite.zip", infinite), "'action_net.bias' is not a tensor of finite numbers"
    yield written(folder / "chopped.zip", chopped), "no layers that choose an action"
    yield written(folder / "crossed.zip", crossed), "the shapes of its layers are not compatible"
    yield (
        written(folder / "cnn.zip", state() | {"features_extractor.cnn.0.weight": torch.zeros(2)}),
        "only the policies MlpPolicy",
    )
    yield written(folder / "continuous.zip", state() | {"log_std": torch.zeros(2)}), "has weights 'log_std'"
    strange = {"policy_kwargs": {"activation_fn": "<class 'os.system'>"}}
    yield written(folder / "strange.zip", state(), strange), "its activation is \"<class 'os.system'>\""


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    for path, message in wrong_files(tmp_path):
        with pytest.raises(RunFolderError) as error:
            load_sb3(path, TYPES)
        assert message in str(error.value), path


def test_a_model_for_another_cluster_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "model.zip", state())
    with pytest.raises(
        ConfigError, match=rf"the model takes {inputs('flat')} values, but for 16 slots, {TYPES + 1} node types"
    ):
        load_sb3(path, TYPES + 1)


def test_a_zip_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagsim.families.learning.sb3._MOST_BYTES", 1000)
    with pytest.raises(RunFolderError, match=r"policy\.pth is larger than 1,000 bytes"):
        load_sb3(written(tmp_path / "model.zip", state()), TYPES)


@pytest.mark.parametrize("system", ["spark", "ramp"])
def test_other_systems_are_refused(tmp_path: Path, system: str) -> None:
    path = written(tmp_path / "model.zip", state())
    with pytest.raises(ConfigError, match="can only schedule the system 'cluster'"):
        run_policy(load_config(None, [f"system.kind={system}"]), agent_spec(f"sb3:{path}"), 1)

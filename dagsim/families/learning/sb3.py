"""Models from Stable-Baselines3 as policies. Their weights and settings are used, but none of their
code.

A model's zip file contains JSON, pickled objects and tensors. dagsim uses only the shapes and
values of the tensors (``policy.pth``, read with ``weights_only``) and the name of the activation
function. It imports neither Stable-Baselines3 nor code of the model.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.errors import ConfigError, RunFolderError
from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.families.learning.environments.env_settings import ActionLevel, EnvConfig
from dagsim.families.learning.environments.observations import Levelled, Presets
from dagsim.spelling import nearest_file
from dagsim.systems.cluster.scenario import GpuCluster
from dagsim.systems.cluster.view import ClusterView
from dagsim.systems.seam import Scenario

_MOST_BYTES = 1 << 30
"""Maximum size of an unpacked file in the zip."""
_ACTIVATIONS = {"Tanh": nn.Tanh, "ReLU": nn.ReLU, "ELU": nn.ELU, "LeakyReLU": nn.LeakyReLU, "Identity": nn.Identity}
_LAYER = re.compile(r"(?:mlp_extractor\.policy_net|q_net\.q_net)\.(\d+)\.(weight|bias)")
_IGNORED = re.compile(r"(mlp_extractor\.value_net|value_net|q_net_target)\.")
"""Weights that do not take part in a choice: those of the critic and of the target network."""


class _Model(NamedTuple):
    """The part of a Stable-Baselines3 model that makes choices. It is a perceptron that computes
    one value per action from the observation.
    """

    net: nn.Sequential
    inputs: int
    actions: int


class Sb3Policy:
    """Takes the legal action that the model prefers. This is what
    ``model.predict(deterministic=True)`` does in the environment ``dagsim/Scheduling-v0`` with this
    ``level`` and ``observation``."""

    def __init__(self, model: _Model, config: EnvConfig, types: int) -> None:
        self._net, self._slots = model.net, model.actions
        self._presets = Presets(config, types)
        self._codec = Levelled(CandidatesConfig(), config.level)
        self._with_mask = config.observation == "dict"

    def decide(self, view: ClusterView) -> Iterator[Any]:
        """Yield the decisions that the model chooses."""
        observation = self._codec.encode(view)
        if observation is None:
            return
        legal = self._presets.legal(observation)
        mask = self._presets.mask(legal)
        seen = self._presets.observe(observation, legal, mask)
        # join the parts in alphabetical order, as Stable-Baselines3 does
        if self._with_mask:
            seen = np.concatenate([seen["action_mask"].astype(np.float32), seen["observations"]])
        with torch.inference_mode():
            values = self._net(torch.from_numpy(seen)).masked_fill(torch.from_numpy(mask == 0), -torch.inf)
        action = int(values.argmax())
        wait = action == self._slots - 1 and legal.wait is not None
        yield from self._codec.decode(view, legal.wait if wait else action)  # type: ignore[arg-type]


def sb3_policy(scenario: Scenario, path: Path, level: ActionLevel = "task_type") -> Sb3Policy:
    """Load a model for the cluster of a scenario (see ``load_sb3``).

    Raises:
        ConfigError: The scenario belongs to another system.
    """
    if not isinstance(scenario, GpuCluster):
        raise ConfigError(f"{path}: a model from Stable-Baselines3 can only schedule the system {GpuCluster.system!r}")
    return load_sb3(path, len(scenario.cluster.gpu_types), level)


def load_sb3(path: Path, types: int, level: ActionLevel = "task_type") -> Sb3Policy:
    """Load a model that was trained on a cluster with ``types`` GPU types.

    Raises:
        RunFolderError: The file is missing or damaged, or it is not a model with a perceptron and
            discrete actions.
        ConfigError: The model does not fit the cluster or the level.
    """
    state, activation = _read(path)
    model = _model(path, state, activation)
    for observation in ("flat", "dict"):
        config = EnvConfig(level=level, observation=observation, slots=model.actions)
        space: Any = Presets(config, types).space
        inputs = int(np.prod(space.shape)) if observation == "flat" else model.actions + space["observations"].shape[0]
        if inputs == model.inputs:
            return Sb3Policy(model, config, types)
    raise ConfigError(
        f"{path}: the model takes {model.inputs} values, but for {model.actions} slots, {types} node "
        f"types and level {level!r} the environment provides {inputs - model.actions} (observation "
        f"'flat') or {inputs} ('dict')"
    )


def _read(path: Path) -> tuple[Mapping[str, Tensor], type[nn.Module] | None]:
    """Return the weights of the policy, and the activation function that its settings name."""
    try:
        with ZipFile(path) as archive:
            weights = torch.load(io.BytesIO(_member(path, archive, "policy.pth")), "cpu", weights_only=True)
            settings = json.loads(_member(path, archive, "data"))
    except FileNotFoundError:
        raise RunFolderError(f"{path}: no such file{nearest_file(path)}") from None
    except KeyError as error:
        raise RunFolderError(f"{path}: not a model of Stable-Baselines3 ({error.args[0]})") from None
    except RunFolderError:
        raise
    except Exception as error:  # reading a damaged zip file or pickle can raise any exception
        kind = "not a zip file" if isinstance(error, BadZipFile) else f"{type(error).__name__}: {error}".splitlines()[0]
        raise RunFolderError(f"{path}: the Stable-Baselines3 model cannot be read ({kind[:160]})") from None
    if not isinstance(weights, Mapping) or not isinstance(settings, dict):
        raise RunFolderError(f"{path}: not a model of Stable-Baselines3")
    chosen = settings.get("policy_kwargs")
    text = str(chosen.get("activation_fn", "")) if isinstance(chosen, dict) else ""
    name = re.fullmatch(r"<class 'torch\.nn\.modules\.activation\.(\w+)'>", text)
    if text and (name is None or name[1] not in _ACTIVATIONS):
        raise RunFolderError(f"{path}: its activation is {text[:80]!r}; it must be one of {', '.join(_ACTIVATIONS)}")
    return weights, _ACTIVATIONS[name[1]] if name else None


def _member(path: Path, archive: ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise RunFolderError(f"{path}: {name} is larger than {_MOST_BYTES:,} bytes")
    return content


def _model(path: Path, state: Mapping[str, Any], activation: type[nn.Module] | None) -> _Model:
    """Build the perceptron from its weights, whose names and shapes describe it."""
    layers: dict[int, dict[str, Tensor]] = {}
    deep_q = any(str(name).startswith("q_net.") for name in state)
    for name, value in state.items():
        if not isinstance(value, Tensor) or not value.is_floating_point() or not bool(torch.isfinite(value).all()):
            raise RunFolderError(f"{path}: {name!r} is not a tensor of finite numbers")
        if match := _LAYER.fullmatch(str(name)):
            layers.setdefault(int(match[1]), {})[match[2]] = value
        elif match := re.fullmatch(r"action_net\.(weight|bias)", str(name)):
            layers.setdefault(1 << 30, {})[match[1]] = value
        elif not _IGNORED.match(str(name)):
            raise RunFolderError(
                f"{path}: the model has weights {str(name)[:60]!r}; only the policies MlpPolicy "
                "and MultiInputPolicy of PPO, "
                "MaskablePPO, A2C and DQN with discrete actions can be read"
            )
    modules: list[nn.Module] = []
    width = None
    for _, parts in sorted(layers.items()):
        weight, bias = parts.get("weight"), parts.get("bias")
        fits = weight is not None and bias is not None and weight.ndim == 2 and bias.shape == weight.shape[:1]
        if not fits or width not in (None, weight.shape[1]):  # type: ignore[union-attr]
            raise RunFolderError(f"{path}: the shapes of its layers are not compatible")
        assert weight is not None
        width = weight.shape[0]
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict(parts)
        modules += [layer, (activation or (nn.ReLU if deep_q else nn.Tanh))()]
    if not modules or (not deep_q and 1 << 30 not in layers):
        raise RunFolderError(f"{path}: the model has no layers that choose an action")
    net = nn.Sequential(*modules[:-1]).float().eval()
    first, last = modules[0], modules[-2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    if last.out_features < 2:
        raise RunFolderError(f"{path}: the model has {last.out_features} action, but a scheduler needs at least two")
    return _Model(net, first.in_features, last.out_features)

"""Offline data sets: episodes of any policy, recorded through the Gymnasium environment."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import ConfigError
from dagsim.experiment.simulate import make_policy
from dagsim.families.learning.environments.make_env import make_env
from dagsim.files import replaced


def record_episodes(
    path: Path | str, policy: str, seeds: Iterable[int], *arguments: Any, **settings: Any
) -> dict[str, np.ndarray]:
    """Run ``policy`` in the environment on the job sequences ``seeds``, and write every step to
    ``path``, a file that ``numpy.load`` reads. All other arguments are the same as for ``make_env``.

    The arrays have one row per step, episode by episode: ``observations`` (or ``observations/NAME``
    for each part of a dict), ``actions``, ``rewards``, ``terminals``, ``timeouts`` (truncated),
    ``action_masks`` and ``seeds``.

    Returns the arrays.

    Raises:
        InputError: The policy, the experiment or the environment cannot be built.
        ConfigError: ``path`` does not end with ``.npz``, or the environment has no action for a
            decision of the policy.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ConfigError(f"{path}: the name of a data set must end with .npz")
    env = make_env(*arguments, **settings)
    steps: dict[str, list[Any]] = {}
    for seed in seeds:
        _record(env, policy, int(seed), steps)
    arrays = {name: np.array(values) for name, values in steps.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return arrays


def _record(env: Any, policy: str, seed: int, steps: dict[str, list[Any]]) -> None:
    """Record one episode, and append its steps to ``steps``."""
    decider = make_policy(env.scenario, policy, seed)
    observation, _ = env.reset(seed=seed)
    over = env.view is None
    while not over:
        decision = next(islice(decider.decide(env.view), 1), None)
        action, mask = env.action_of(decision), env.action_masks()
        if action is None:
            raise ConfigError(
                f"{policy}: the environment has no action for {'waiting' if decision is None else decision} at "
                f"{env.simulation.now:g} s with seed {seed}; give it more slots, or choose a policy that does not "
                "preempt"
            )
        after, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        step = {"actions": action, "rewards": reward, "terminals": terminated, "timeouts": truncated}
        parts = (
            {f"observations/{name}": part for name, part in observation.items()}
            if isinstance(observation, dict)
            else {"observations": observation}
        )
        for name, value in (parts | step | {"action_masks": mask, "seeds": seed}).items():
            steps.setdefault(name, []).append(value)
        observation = after

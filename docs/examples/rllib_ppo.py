"""Train RLlib's PPO with an action mask on the scheduling environment.

    python -m venv rllib && rllib/bin/pip install torch "ray[rllib]" && rllib/bin/pip install --no-deps -e . && \
        rllib/bin/pip install simpy scipy pydantic rich typer pyyaml pandas matplotlib
    rllib/bin/python docs/examples/rllib_ppo.py --iterations 5

RLlib requires an older version of Gymnasium than the one with which dagsim is tested, so it needs a separate Python
environment (last run with Ray 2.60 and Gymnasium 1.2.2). The observations of the kind ``dict`` have the keys that
RLlib's ``ActionMaskingTorchRLModule`` expects: ``observations`` and ``action_mask``.
"""

from __future__ import annotations

import argparse
from typing import Any


def make(settings: dict[str, Any]) -> Any:
    """Create the environment in RLlib's workers."""
    from dagsim.envs import make_env

    return make_env(settings["workload"], ["workload.count=30"], observation="dict", slots=32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--workload", default="heterogeneous")
    parser.add_argument("--runners", type=int, default=0, help="processes that run episodes (0: the training process)")
    options = parser.parse_args()
    try:
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.rllib.core.rl_module.rl_module import RLModuleSpec
        from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
        from ray.tune import register_env
    except ImportError:
        raise SystemExit(
            "this example needs ray[rllib] in a separate Python environment (see the top of the file)"
        ) from None
    register_env("dagsim", make)
    config = (
        PPOConfig()
        .environment("dagsim", env_config={"workload": options.workload})
        .env_runners(num_env_runners=options.runners)
        .training(train_batch_size_per_learner=2000, minibatch_size=250, num_epochs=4)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=ActionMaskingTorchRLModule))
    )
    algorithm = config.build_algo()
    for iteration in range(options.iterations):
        result = algorithm.train()
        played = result["env_runners"]
        print(iteration, f"{played['episode_return_mean']:.1f} per episode of {played['episode_len_mean']:.0f} choices")


if __name__ == "__main__":
    main()

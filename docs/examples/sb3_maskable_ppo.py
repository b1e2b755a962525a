"""Train MaskablePPO from sb3-contrib on dagsim, and compare its model with heuristics.

    pip install sb3-contrib
    python docs/examples/sb3_maskable_ppo.py --out model.zip
    dagsim baseline --policy sb3:model.zip --policy sjf --policy eft-wait --seeds 20

docs/learning.md shows which results to expect. Keep the discount factor below 1.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.vec_env import VecNormalize

from dagsim.envs import make_sb3_env

SETTINGS = {"gamma": 0.99, "n_steps": 256, "batch_size": 1024, "n_epochs": 4, "ent_coef": 0.003}
LEARNING_RATE = 1e-3
"""The learning rate at the start of training, from which it falls linearly."""


def fold(envs: VecNormalize, model: MaskablePPO) -> None:
    """Merge the statistics of ``envs`` into the first layers, which then take raw observations."""
    mean = torch.from_numpy(envs.obs_rms.mean).float()
    deviation = torch.from_numpy(np.sqrt(envs.obs_rms.var + envs.epsilon)).float()
    for layers in (model.policy.mlp_extractor.policy_net, model.policy.mlp_extractor.value_net):
        with torch.no_grad():
            layers[0].weight /= deviation
            layers[0].bias -= layers[0].weight @ mean


def main() -> None:
    parser = argparse.ArgumentParser(description="Train MaskablePPO on dagsim.")
    parser.add_argument("--steps", type=int, default=500_000, help="number of decisions to learn from")
    parser.add_argument("--workload", default="heterogeneous", help="a name from `dagsim list workloads`")
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs in an episode")
    parser.add_argument("--envs", type=int, default=32, help="number of environments, which run in the compiled engine")
    parser.add_argument("--slots", type=int, default=16, help="number of actions; the last one is to wait")
    parser.add_argument("--pool", type=int, default=4096, help="number of job sequences to learn from")
    parser.add_argument("--out", default="model.zip", help="file in which to save the model")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*deterministic.*")
    envs = make_sb3_env(
        options.envs,
        config=options.workload,
        observation="flat",
        slots=options.slots,
        pool=options.pool,
        settings=[f"workload.count={options.jobs}"],
    )
    scaled = VecNormalize(envs, gamma=SETTINGS["gamma"], clip_obs=np.inf)
    model = MaskablePPO(
        "MlpPolicy",
        scaled,
        seed=1,
        device="cpu",
        learning_rate=lambda left: LEARNING_RATE * max(left, 0.05),
        **SETTINGS,
    )
    model.learn(options.steps)
    fold(scaled, model)
    model.save(options.out)
    print(f"{options.out}: trained on {options.steps:,} decisions")


if __name__ == "__main__":
    main()

"""Train MaskablePPO of sb3-contrib on dagsim, and judge its model beside the heuristics.

    pip install sb3-contrib
    python docs/examples/sb3_maskable_ppo.py --out model.zip
    dagsim baseline --policy sb3:model.zip --policy sjf --policy eft-wait --seeds 20

The figures to expect are in docs/learning.md. Keep the discount below 1.
"""

from __future__ import annotations

import argparse
import warnings

from sb3_contrib import MaskablePPO

from dagsim.envs import make_sb3_env

SETTINGS = {"gamma": 0.99, "n_steps": 256, "batch_size": 256, "n_epochs": 5, "learning_rate": 3e-4, "ent_coef": 0.001}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train MaskablePPO on dagsim.")
    parser.add_argument("--steps", type=int, default=200_000, help="number of choices to learn from")
    parser.add_argument("--workload", default="heterogeneous", help="a name of `dagsim list workloads`")
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs in an episode")
    parser.add_argument("--envs", type=int, default=16, help="number of environments, played in the compiled engine")
    parser.add_argument("--out", default="model.zip", help="the file of the model")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*deterministic.*")
    envs = make_sb3_env(
        options.envs,
        config=options.workload,
        observation="flat",
        settings=[f"workload.count={options.jobs}"],
    )
    model = MaskablePPO("MlpPolicy", envs, seed=1, device="cpu", **SETTINGS)
    model.learn(options.steps)
    model.save(options.out)
    print(f"{options.out}: trained on {options.steps:,} choices")


if __name__ == "__main__":
    main()

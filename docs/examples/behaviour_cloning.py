"""Record a data set of a heuristic's episodes, read it, and train a network that imitates the heuristic.

    python docs/examples/behaviour_cloning.py        # half a minute

The data set contains the arrays that libraries for offline reinforcement learning expect.
"""

import argparse

import numpy as np
import torch

from dagsim import simulate
from dagsim.envs import make_env, record_episodes

ENVIRONMENT = {"config": "heterogeneous", "observation": "flat", "slots": 16}


def masked(scores, masks):
    return scores.masked_fill(~masks, -torch.inf)


def cloned(data, epochs):
    """Train a network, and return a function that chooses an action for an observation and a mask."""
    seen, masks, actions = (torch.from_numpy(data[name]) for name in ("observations", "action_masks", "actions"))
    mean, deviation = seen.mean(0), seen.std(0) + 1e-6
    net = torch.nn.Sequential(torch.nn.Linear(seen.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, masks.shape[1]))
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(seen)).split(256):
            scores = masked(net((seen[batch] - mean) / deviation), masks[batch])
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(scores, actions[batch]).backward()
            optimizer.step()
    return lambda observation, mask: int(
        masked(net((torch.from_numpy(observation) - mean) / deviation), torch.from_numpy(mask)).argmax()
    )


def mean_jct_s(choose, seeds):
    """Return the mean completion time on each seed if ``choose`` chooses the actions."""
    env, results = make_env(**ENVIRONMENT), []
    for seed in seeds:
        observation, info = env.reset(seed=seed)
        over = False
        while not over:
            observation, _, over, _, info = env.step(choose(observation, env.action_masks()))
        results.append(info["mean_jct_s"])
    return np.array(results)


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--episodes", type=int, default=60)
    options.add_argument("--epochs", type=int, default=20)
    options.add_argument("--out", default="results/eft-wait.npz")
    chosen = options.parse_args()
    torch.manual_seed(1)
    record_episodes(chosen.out, "eft-wait", range(1_000_000, 1_000_000 + chosen.episodes), **ENVIRONMENT)
    with np.load(chosen.out) as data:
        choose = cloned(data, chosen.epochs)
    seeds = range(2_000_000, 2_000_010)
    clone = mean_jct_s(choose, seeds)
    for policy in ("eft-wait", "sjf"):
        other = [simulate("heterogeneous", policy=policy, seed=seed).summary.jct_s.mean for seed in seeds]
        print(f"clone: {np.exp(np.mean(np.log(clone / other))):.3f} times {policy}")


if __name__ == "__main__":
    main()

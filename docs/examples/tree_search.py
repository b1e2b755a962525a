"""Search with copies of the environment: try every choice, go on with the first legal ones, keep the best.

    python docs/examples/tree_search.py --jobs 8 --seed 3

The copies repeat the actions of the episode (``copy.deepcopy(env)``), so a search over long episodes is slow.
"""

import argparse
import copy

import gymnasium
import numpy as np

WIDTH = 4
"""Choices that are tried at each decision."""


def rest(env, step):
    """The rewards until the end of the episode, if the first legal action is taken each time."""
    total, (_, reward, terminated, truncated, info) = 0.0, step
    while not (terminated or truncated):
        total += reward
        _, reward, terminated, truncated, info = env.step(int(np.flatnonzero(info["action_mask"])[0]))
    return total + reward


def value(env, action):
    """The rewards after an action, in a copy of the environment."""
    twin = copy.deepcopy(env)
    return rest(twin, twin.step(action))


def search(env, seed):
    """Play an episode and return its rewards."""
    _, info = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        legal = [int(action) for action in np.flatnonzero(info["action_mask"])[:WIDTH]]
        best = legal[0] if len(legal) == 1 else max(legal, key=lambda action: value(env, action))
        _, reward, terminated, truncated, info = env.step(best)
        total, done = total + reward, terminated or truncated
    return total


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=8)
    options.add_argument("--seed", type=int, default=3)
    chosen = options.parse_args()
    env = gymnasium.make(
        "dagsim.envs:dagsim/Scheduling-v0",
        config="heterogeneous-dag",
        settings=[f"workload.count={chosen.jobs}"],
        observation="flat",
    ).unwrapped
    _, info = env.reset(seed=chosen.seed)
    plain = rest(env, env.step(int(np.flatnonzero(info["action_mask"])[0])))
    print(f"first legal action: {plain:.2f}; with search: {search(env, chosen.seed):.2f}")


if __name__ == "__main__":
    main()

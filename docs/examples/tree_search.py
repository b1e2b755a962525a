"""Search with copies of the environment: try every choice, go on with the first legal ones, keep the best.

    python docs/examples/tree_search.py --jobs 8 --seed 3

The choices of a decision are tried side by side in the compiled engine, from copies of one state.
"""

import argparse

import gymnasium
import numpy as np

WIDTH = 4
"""Choices that are tried at each decision."""


def made(count, jobs):
    """Return ``count`` environments that are stepped together."""
    settings = [f"workload.count={jobs}"]
    name = "dagsim.envs:dagsim/Scheduling-v0"
    return gymnasium.make_vec(name, count, config="heterogeneous-dag", settings=settings, observation="flat").unwrapped


def values(trials, state, actions):
    """Return the rewards after each action, if the first legal action is taken from then on."""
    trials.set_state(state * len(actions))
    total, over = np.zeros(len(actions)), np.zeros(len(actions), bool)
    while not over.all():
        _, rewards, terminated, _, infos = trials.step(actions)
        total += np.where(over, 0.0, rewards)
        over |= terminated
        actions = infos["action_mask"].argmax(axis=1)
    return total


def search(env, trials, seed):
    """Play an episode and return its rewards."""
    _, infos = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        actions = np.resize(np.flatnonzero(infos["action_mask"][0])[:WIDTH], WIDTH)
        best = actions[values(trials, env.get_state(), actions).argmax()]
        _, rewards, terminated, _, infos = env.step([best])
        total, over = total + rewards[0], terminated[0]
    return total


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=8)
    options.add_argument("--seed", type=int, default=3)
    chosen = options.parse_args()
    env, trials = made(1, chosen.jobs), made(WIDTH, chosen.jobs)
    _, infos = env.reset(seed=chosen.seed)
    plain = values(trials, env.get_state(), np.resize(infos["action_mask"][0].argmax(), WIDTH))[0]
    print(f"first legal action: {plain:.2f}; with search: {search(env, trials, chosen.seed):.2f}")


if __name__ == "__main__":
    main()

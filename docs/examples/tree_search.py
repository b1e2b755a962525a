"""Search with copies of one state: try each of the first choices, continue each copy with the first legal
actions, and take the choice with the best result.

    python docs/examples/tree_search.py --jobs 8 --seed 3

The compiled engine simulates all copies together.
"""

import argparse

import gymnasium
import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--jobs", type=int, default=8)
parser.add_argument("--seed", type=int, default=3)


def main(width=4):
    options, name = parser.parse_args(), "dagsim.envs:dagsim/Scheduling-v0"
    chosen = {"config": "heterogeneous-dag", "settings": [f"workload.count={options.jobs}"], "observation": "flat"}
    env, trials = (gymnasium.make_vec(name, count, **chosen).unwrapped for count in (1, width))
    _, infos = env.reset(seed=options.seed)
    total, over, plain = 0.0, False, None
    while not over:
        actions = first = np.resize(np.flatnonzero(infos["action_mask"][0])[:width], width)
        trials.set_state(env.get_state() * width)
        value, done = np.zeros(width), np.zeros(width, bool)
        while not done.all():
            _, rewards, terminated, _, tried = trials.step(actions)
            value, done = value + np.where(done, 0.0, rewards), done | terminated
            actions = tried["action_mask"].argmax(axis=1)
        plain = value[0] if plain is None else plain
        _, rewards, terminated, _, infos = env.step([first[value.argmax()]])
        total, over = total + rewards[0], terminated[0]
    print(f"first legal action: {plain:.2f}; with search: {total:.2f}")


if __name__ == "__main__":
    main()

"""A Decima training from its configuration to a folder: log, checkpoints, and the best network on validation.

training.yaml   the configuration, in full
log.jsonl       one line per iteration
best.pt         the network with the least mean completion time on the validation sequences, greedy
last.pt         the newest
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, fields
from math import inf
from pathlib import Path
from typing import IO, Any

import numpy as np

from dagsim.agents.decima_file import load_net, save_net
from dagsim.agents.decima_net import DecimaNet, blend, new_net
from dagsim.agents.decima_play import watch
from dagsim.agents.decima_ppo import DecimaLearner, LearnConfig, imitate
from dagsim.agents.decima_workers import Players
from dagsim.config import yaml
from dagsim.config.decima import DecimaTraining
from dagsim.files import write_text
from dagsim.seeds import TRAIN, VALIDATION, seeds_of
from dagsim.systems.spark import SPARK_POLICIES, SparkJob

__all__ = ["train_decima"]

_SEQUENCES_PER_SEED = 100_000
"""Training seeds each have so many job sequences to themselves."""


def train_decima(config: DecimaTraining, folder: Path, say: Callable[[str], None] = print) -> Path:
    """Train, and return the file of the best network. What is in ``folder`` is replaced."""
    write_text(folder / "training.yaml", yaml.dump(json.loads(json.dumps(asdict(config)))))
    pool = config.workload.pool()
    with Players(config.workload, pool, config.workers) as players, (folder / "log.jsonl").open("w") as log:
        training = _Training(config, pool, players, folder, _Log(log, say))
        training.begin()
        training.learn()
    return training.best


class _Log:
    """One line per event, with the minutes since the beginning."""

    def __init__(self, file: IO[str], say: Callable[[str], None]) -> None:
        self._file = file
        self._say = say
        self._begun = time.monotonic()

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self._begun) / 60

    def add(self, **row: Any) -> None:
        row["minutes"] = round(self.minutes, 2)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        told = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
        self._say(" ".join(f"{key}={value}" for key, value in told.items()))


class _Training:
    """A network under way, and its average over iterations, which is judged."""

    def __init__(self, config: DecimaTraining, pool: list[SparkJob], players: Players, folder: Path, log: _Log) -> None:
        self.config = config
        self.best = folder / "best.pt"
        self._pool, self._players, self._log = pool, players, log
        self._last = folder / "last.pt"
        self._best_s = inf
        self._rng = np.random.default_rng(config.seed)
        self._net = new_net(config.hidden, config.head, config.seed, config.action)
        self._slow: DecimaNet = self._net

    def begin(self) -> None:
        """Take a checkpoint's weights, or imitate the teacher."""
        config = self.config
        if config.start is not None:
            self._net.load_state_dict(load_net(Path(config.start))[0].state_dict())
        elif config.teacher is not None:
            taught = seeds_of(TRAIN, config.teacher_episodes)
            simulations = [config.workload.simulation(self._pool, seed) for seed in taught]
            lessons = [watch(SPARK_POLICIES.create(config.teacher), each, config.action) for each in simulations]
            missed = imitate(self._net, lessons, self._rng, epochs=config.teacher_epochs, lr=2e-3)
            self._log.add(teacher=config.teacher, cross_entropy=missed)
        self._slow = deepcopy(self._net)
        self._judge(0)

    def learn(self) -> None:
        """Iterate until the time is over, or the iterations are."""
        config = self.config
        learner = DecimaLearner(self._net, _learning(config))
        for iteration in range(1, config.iterations + 1):
            progress = max(self._log.minutes / config.minutes, (iteration - 1) / config.iterations)
            if progress >= 1:
                break
            played = self._players.play(self._net, self._seeds(iteration), self._rng, config.jobs_at(progress))
            groups = [played[at : at + config.replicas] for at in range(0, len(played), config.replicas)]
            low, high = config.time_constant_s
            time_constant_s = low * (high / low) ** progress
            told = learner.learn(groups, time_constant_s, config.credit * time_constant_s, progress, self._rng)
            self._log.add(
                iteration=iteration,
                sampled_s=float(np.mean([steps.mean_jct_s for steps in played])),
                decisions=sum(len(steps.seen) for steps in played),
                **told,
            )
            blend(self._slow, self._net, config.kept)
            if iteration % config.validate_every == 0:
                self._judge(iteration)
        self._judge(iteration)

    def _seeds(self, iteration: int) -> list[int]:
        """The job sequences of an iteration, each as often as it has replicas."""
        config = self.config
        first = config.seed * _SEQUENCES_PER_SEED + 100 + iteration * config.sequences
        return [
            TRAIN[(first + number) % len(TRAIN)] for number in range(config.sequences) for _ in range(config.replicas)
        ]

    def _judge(self, iteration: int) -> None:
        """Play the validation sequences greedily; keep the network if it is the best so far."""
        validation = list(seeds_of(VALIDATION, self.config.validation))
        greedy_s = float(np.mean([steps.mean_jct_s for steps in self._players.play(self._slow, validation, None)]))
        about = {"iteration": iteration, "validation_s": greedy_s, "config": json.dumps(asdict(self.config))}
        save_net(self._slow, self._last, about)
        if greedy_s < self._best_s:
            self._best_s = greedy_s
            save_net(self._slow, self.best, about)
        self._log.add(iteration=iteration, validation_s=greedy_s, best_s=self._best_s)


def _learning(config: DecimaTraining) -> LearnConfig:
    """The part of the configuration that says how an iteration learns: the keys of the same names."""
    names = {field.name for field in fields(LearnConfig)} & {field.name for field in fields(DecimaTraining)}
    return LearnConfig(**{name: getattr(config, name) for name in names})

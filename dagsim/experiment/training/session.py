"""A training session in a run folder: learn, validate, keep the best, and report once.

results/20261120T193000Z-train-ppo-s1-3fa9c1/
├── config.yaml, manifest.json, status.json, command.txt    as in every run folder
├── progress.csv      one row per iteration
├── checkpoint.pt     everything that `dagsim train --resume` needs
├── best.pt           the agent that was best on validation: `dagsim eval --algo ppo --checkpoint best.pt`
├── report.csv        the agent and heuristics on the report seeds, which nothing else ever uses
└── plots/
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from dagsim.agents.cloning import clone
from dagsim.agents.config import NetConfig, TrainConfig
from dagsim.agents.field import Field, Ground, Here, Workers, one_thread, sizes_of
from dagsim.agents.learner import Learner, Start, learner
from dagsim.agents.policy import Checkpoint, read_plain, write_plain
from dagsim.agents.ranges import Ranges, Watched
from dagsim.config.schema import Config
from dagsim.envs.rewards import RewardConfig
from dagsim.errors import RunFolderError
from dagsim.experiment.folder import RunFolder
from dagsim.experiment.training.log import TrainingLog
from dagsim.experiment.training.maker import Maker
from dagsim.experiment.training.reference import best_heuristic, mean_jcts
from dagsim.metrics import summarize
from dagsim.seeds import REPORT, TRAIN, VALIDATION, seeds_of

__all__ = ["Progress", "Session"]

_SEQUENCES_PER_SEED = 50_000
"""Training seeds each have so many job sequences to themselves."""


class Progress(NamedTuple):
    """How far a training is."""

    what: str
    done: int
    of: int
    ratio: float | None = None
    """The last validation's mean completion time over the reference's."""


Tell = Callable[[Progress], None]


class Session:
    """One training, begun or resumed.

    Raises:
        RunFolderError: The folder's checkpoint is missing, damaged or another's.
    """

    def __init__(self, folder: RunFolder, workers: int = 1, tell: Tell | None = None) -> None:
        self.folder = folder
        self.config: Config = folder.config
        self.train: TrainConfig = folder.config.train or TrainConfig()
        self.workers = workers
        self.reference = self.train.reference
        self._tell = tell or (lambda progress: None)
        self._reference_jct_s = 1.0
        self._best: float | None = None
        self._best_weights: dict[str, Any] = {}
        self._best_ranges = Ranges()
        self._samples = self._seconds = 0.0
        one_thread()
        assert not set(self.validation) & set(self.report_seeds)
        assert not (set(self.validation) | set(self.report_seeds)) & set(TRAIN)

    @property
    def best(self) -> float:
        """The best ratio to the reference on validation so far; NaN before the first."""
        return float("nan") if self._best is None else self._best

    @property
    def validation(self) -> tuple[int, ...]:
        """The seeds that choices are made on."""
        return seeds_of(VALIDATION, self.train.validation_seeds)

    @property
    def report_seeds(self) -> tuple[int, ...]:
        """The seeds of the report."""
        return seeds_of(REPORT, self.train.report_seeds)

    def run(self, *, resume: bool = False, init: Path | None = None) -> None:
        """Train to the end; ``resume`` goes on from the folder's checkpoint, ``init`` begins with an agent's weights.

        Raises:
            KeyboardInterrupt: The user stopped it; the checkpoint holds the last whole iteration.
        """
        with ExitStack() as stack:
            ground = Ground(Maker(self.config), self.train.codec, RewardConfig(self.train.reward))
            field: Field = Here(ground)
            if self.workers > 1:
                field = stack.enter_context(Workers(ground, self.train.net, self.workers))
            state = self._resumed() if resume else None
            self._find_reference(state)
            learns = learner(self._start(field, self.train))
            if state is not None:
                learns.load(state["learner"])
            elif init is not None:
                self._begin_with(learns, init)
            elif self.train.warm_start is not None:
                self._tell(Progress(f"imitating {self.train.warm_start}", 0, self.train.iterations))
                clone(learns.net, self.train, ground, self._start(field, self.train).seeds, self.config.seed)
            done = 0 if state is None else int(state["iteration"])
            log = TrainingLog(self.folder.path, done)
            stack.callback(log.close)
            self.folder.mark("running")
            self._learn(learns, ground, log, done)

    def _learn(self, learns: Learner, ground: Ground, log: TrainingLog, done: int) -> None:
        train = self.train
        if self._best is None:
            self._validate(learns, ground)
        try:
            for iteration in range(done, train.iterations):
                began = perf_counter()
                told = learns.iterate(iteration, iteration / train.iterations)
                spent = perf_counter() - began
                self._samples += told["samples"]
                self._seconds += spent
                row = {
                    **told,
                    "iteration": iteration + 1.0,
                    "samples": self._samples,
                    "seconds": self._seconds,
                    "samples_per_s": told["samples"] / spent,
                }
                if (iteration + 1) % train.validate_every == 0 or iteration + 1 == train.iterations:
                    row["ratio"] = self._validate(learns, ground)
                row["best_ratio"] = self._best or 1.0
                log.add(row)
                self._save(learns, iteration + 1)
                self._tell(Progress("training", iteration + 1, train.iterations, row.get("ratio", self._best)))
        except KeyboardInterrupt:
            self.folder.mark("interrupted")
            raise

    def _validate(self, learns: Learner, ground: Ground) -> float:
        """The greedy policy's mean completion time on the validation seeds over the reference's; keeps the best."""
        ranges = Ranges()
        done = ground.judged(learns.net, self.validation, partial(Watched, ranges=ranges))
        jct_s = float(np.mean([summarize(simulation.schedule).jct_s.mean for simulation in done]))
        ratio = jct_s / self._reference_jct_s if np.isfinite(jct_s) else float("inf")
        if self._best is None or ratio < self._best:
            self._best, self._best_ranges = ratio, ranges
            self._best_weights = {name: value.clone() for name, value in learns.net.state_dict().items()}
            self._agent(ratio).save(self.folder.path / "best.pt")
        return ratio

    def _agent(self, ratio: float) -> Checkpoint:
        about = {
            "reference": self.reference,
            "validation_ratio": ratio,
            "seed": self.config.seed,
            "cluster": str(self.config.build_cluster()),
            "workload": type(self.config.workload).__name__,
        }
        train = self.train
        return Checkpoint(train.algorithm.kind, train.net, train.codec, self._best_weights, about, self._best_ranges)

    def _save(self, learns: Learner, iteration: int) -> None:
        state = {
            "iteration": iteration,
            "learner": learns.state(),
            "reference": self.reference,
            "reference_jct_s": self._reference_jct_s,
            "best": self._best,
            "best_weights": self._best_weights,
            "samples": self._samples,
            "seconds": self._seconds,
        }
        write_plain(self.folder.path / "checkpoint.pt", state)

    def _resumed(self) -> dict[str, Any]:
        state = read_plain(self.folder.path / "checkpoint.pt")
        try:
            self._best, self._best_weights = state["best"], state["best_weights"]
            self._samples, self._seconds = state["samples"], state["seconds"]
            assert state["learner"]["net"]
        except (KeyError, TypeError, AssertionError):
            raise RunFolderError(f"{self.folder.path / 'checkpoint.pt'}: not the checkpoint of a training") from None
        return state

    def _find_reference(self, state: dict[str, Any] | None) -> None:
        if state is not None:
            self.reference, self._reference_jct_s = state["reference"], state["reference_jct_s"]
        elif self.reference == "best":

            def tell(spec: str, done: int, of: int) -> None:
                self._tell(Progress(f"best heuristic: {spec}", done, of))

            self.reference, jcts = best_heuristic(self.config, self.validation, tell)
            self._reference_jct_s = float(jcts.mean())
        else:
            self._tell(Progress(f"reference: {self.reference}", 0, self.train.iterations))
            self._reference_jct_s = float(mean_jcts(self.config, self.reference, self.validation).mean())

    def _begin_with(self, learns: Learner, init: Path) -> None:
        agent = Checkpoint.load(init)
        if agent.net != self.train.net:
            raise RunFolderError(f"{init}: its network is {agent.net}, the configuration asks for {self.train.net}")
        learns.net.load_state_dict(dict(agent.weights))

    def _start(self, field: Field, train: TrainConfig) -> Start:
        begin = self.config.seed * _SEQUENCES_PER_SEED % len(TRAIN)
        seeds = TRAIN[begin : begin + _SEQUENCES_PER_SEED]
        return Start(train, field, sizes_of(), self.config.seed, self._reference_jct_s, seeds)

    def linear(self) -> Checkpoint | None:
        """A linear policy on the same features, trained by the same algorithm for ``linear_iterations``."""
        count = self.train.linear_iterations
        if not count:
            return None
        train = replace(self.train, net=NetConfig(kind="linear"))
        field = Here(Ground(Maker(self.config), train.codec, RewardConfig(train.reward)))
        learns = learner(self._start(field, train))
        for iteration in range(count):
            self._tell(Progress("a linear policy", iteration, count))
            learns.iterate(iteration, iteration / count)
        weights = {name: value.clone() for name, value in learns.net.state_dict().items()}
        return Checkpoint(train.algorithm.kind, train.net, train.codec, weights, {"seed": self.config.seed})

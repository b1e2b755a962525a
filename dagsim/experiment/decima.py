"""A Decima training from its configuration to a folder: log, checkpoints, and the best network on validation.

training.yaml   the configuration, in full
log.jsonl       one line per iteration
best.pt         the network with the least mean completion time on the validation sequences, greedy
last.pt         the newest
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import ConfigError
from dagsim.spark import SPARK_POLICIES, SparkJob, SparkSimulation, parity_sequence, read_profiles, sequence
from dagsim.spark import synthetic_profiles as made_up

__all__ = ["DecimaTraining", "Workload", "train_decima"]


@dataclass(frozen=True, slots=True)
class Workload:
    """Which episodes are played. ``profiles`` is a file or folder of TPC-H profiles; without it they are made up."""

    executors: int = 50
    jobs: int = 200
    mean_gap_s: float = 25.0
    parity: bool = False
    profiles: str | None = None

    __pydantic_config__ = {"extra": "forbid"}

    def pool(self) -> list[SparkJob]:
        """The jobs to draw from."""
        return made_up() if self.profiles is None else read_profiles(Path(os.path.expandvars(self.profiles)))

    def simulation(self, pool: Sequence[SparkJob], seed: int, jobs: int | None = None) -> SparkSimulation:
        """The episode of ``seed``, with the first ``jobs`` of its jobs."""
        count, gap_ms = self.jobs if jobs is None else jobs, self.mean_gap_s * 1000
        if self.parity:
            drawn = parity_sequence(pool, seed, count, mean_gap_ms=gap_ms)
            return SparkSimulation(self.executors, drawn.jobs, parity=True, draws=drawn.draws, seed=seed)
        return SparkSimulation(self.executors, sequence(pool, seed, jobs=count, mean_gap_ms=gap_ms), seed=seed)


@dataclass(frozen=True, slots=True)
class DecimaTraining:
    """Everything about a training. Times are in seconds; ``minutes`` of wall time end it."""

    workload: Workload = field(default_factory=Workload)
    teacher: str | None = "weighted-fair[alpha=0.25,order=shortest]"
    """The heuristic that is imitated at first."""
    teacher_episodes: int = 4
    teacher_epochs: int = 6
    start: str | None = None
    """A checkpoint to go on from, instead of imitation."""
    minutes: float = 10.0
    iterations: int = 10_000
    sequences: int = 4
    replicas: int = 8
    first_jobs: int | None = None
    """Curriculum: episodes begin with so many jobs and grow to the workload's over the first half."""
    time_constant_s: tuple[float, float] = (100.0, 400.0)
    """Of the discount, at the beginning and at the end."""
    credit: float = 0.5
    """For so many time constants after a decision what happens is credited to it."""
    validate_every: int = 3
    validation: int = 8
    workers: int = 0
    """Processes that play; 0 plays in this one."""
    seed: int = 0
    loss: str = "ppo"
    lr: float = 1e-3
    epochs: int = 2
    minibatch: int = 2048
    clip: float = 0.2
    target_kl: float = 0.03
    entropy: float = 0.003
    differential: bool = False
    hidden: int = 16
    head: int = 32

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.loss not in ("ppo", "reinforce"):
            raise ConfigError(f"loss must be 'ppo' or 'reinforce', got {self.loss!r}")
        for name in ("sequences", "replicas", "epochs", "minibatch", "validate_every", "validation"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if self.replicas < 2:
            raise ConfigError("replicas must be at least 2: each is judged by the others")

    def jobs_at(self, progress: float) -> int:
        """Jobs per episode at ``progress`` (0 to 1)."""
        last = self.workload.jobs
        if self.first_jobs is None:
            return last
        return round(min(last, self.first_jobs + (last - self.first_jobs) * 2 * progress))


TRAINING_SEEDS = 1_000_000
VALIDATION_SEEDS = 2_000_000


def train_decima(config: DecimaTraining, folder: Path, say: Callable[[str], None] = print) -> Path:
    """Train, and return the file of the best network. What is in ``folder`` is replaced."""
    import torch

    from dagsim.agents.decima_file import load_net, save_net
    from dagsim.agents.decima_net import DecimaNet
    from dagsim.agents.decima_play import watch
    from dagsim.agents.decima_ppo import DecimaLearner, LearnConfig, imitate

    begun = time.monotonic()
    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "training.yaml").write_text(_yaml(config))
    rng = np.random.default_rng(config.seed)
    pool = config.workload.pool()
    net = DecimaNet(config.hidden, config.head)
    validation = list(range(VALIDATION_SEEDS, VALIDATION_SEEDS + config.validation))
    best_s, best = np.inf, folder / "best.pt"
    with _Players(config, pool) as players, (folder / "log.jsonl").open("w") as log:

        def record(**row: Any) -> None:
            row["minutes"] = round((time.monotonic() - begun) / 60, 2)
            log.write(json.dumps(row) + "\n")
            log.flush()
            say(
                " ".join(
                    f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in row.items()
                )
            )

        def judge(iteration: int) -> None:
            nonlocal best_s
            greedy_s = float(np.mean([steps.mean_jct_s for steps in players.play(net, validation, None)]))
            about = {"iteration": iteration, "validation_s": greedy_s, "config": json.dumps(asdict(config))}
            save_net(net, folder / "last.pt", about)
            if greedy_s < best_s:
                best_s = greedy_s
                save_net(net, best, about)
            record(iteration=iteration, validation_s=greedy_s, best_s=best_s)

        if config.start is not None:
            net.load_state_dict(load_net(Path(config.start))[0].state_dict())
        elif config.teacher is not None:
            taught = range(TRAINING_SEEDS, TRAINING_SEEDS + config.teacher_episodes)
            lessons = [
                watch(SPARK_POLICIES.create(config.teacher), config.workload.simulation(pool, seed)) for seed in taught
            ]
            missed = imitate(net, lessons, rng, epochs=config.teacher_epochs, lr=2e-3)
            record(teacher=config.teacher, cross_entropy=missed)
        judge(0)
        learner = DecimaLearner(
            net,
            LearnConfig(
                loss=config.loss,  # type: ignore[arg-type]
                lr=config.lr,
                epochs=config.epochs,
                minibatch=config.minibatch,
                clip=config.clip,
                target_kl=config.target_kl,
                entropy=config.entropy,
                differential=config.differential,
            ),
        )
        for iteration in range(1, config.iterations + 1):
            progress = max((time.monotonic() - begun) / 60 / config.minutes, (iteration - 1) / config.iterations)
            if progress >= 1:
                break
            first = TRAINING_SEEDS + 100 + iteration * config.sequences
            seeds = [first + number for number in range(config.sequences) for _ in range(config.replicas)]
            played = players.play(net, seeds, rng, config.jobs_at(progress))
            groups = [played[at : at + config.replicas] for at in range(0, len(played), config.replicas)]
            low, high = config.time_constant_s
            time_constant_s = low * (high / low) ** progress
            told = learner.learn(groups, time_constant_s, config.credit * time_constant_s, progress, rng)
            record(
                iteration=iteration,
                sampled_s=float(np.mean([steps.mean_jct_s for steps in played])),
                decisions=sum(len(steps.seen) for steps in played),
                **told,
            )
            if iteration % config.validate_every == 0:
                judge(iteration)
        judge(iteration)
    return best


class _Players:
    """Plays episodes here, or in worker processes with one torch thread each."""

    def __init__(self, config: DecimaTraining, pool: Sequence[SparkJob]) -> None:
        self._config = config
        self._pool = pool
        self._workers: ProcessPoolExecutor | None = None

    def __enter__(self) -> _Players:
        if self._config.workers:
            self._workers = ProcessPoolExecutor(
                self._config.workers, get_context("spawn"), _begin_worker, (self._config,)
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._workers is not None:
            self._workers.shutdown()

    def play(self, net: Any, seeds: list[int], rng: np.random.Generator | None, jobs: int | None = None) -> list[Any]:
        """The episodes of ``seeds``, greedy without ``rng``."""
        if self._workers is None:
            return _play(net, self._config.workload, self._pool, seeds, rng, jobs)
        state = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
        count = self._config.workers
        size = -(-len(seeds) // count)
        parts = [seeds[at : at + size] for at in range(0, len(seeds), size)]
        luck = [None if rng is None else int(rng.integers(2**63)) for _ in parts]
        found = self._workers.map(_play_there, [state] * len(parts), parts, luck, [jobs] * len(parts))
        return [steps for part in found for steps in part]


_worker: tuple[DecimaTraining, list[SparkJob]]


def _begin_worker(config: DecimaTraining) -> None:
    global _worker
    import torch

    torch.set_num_threads(1)
    _worker = config, config.workload.pool()


def _play_there(state: dict[str, np.ndarray], seeds: list[int], luck: int | None, jobs: int | None) -> list[Any]:
    import torch

    from dagsim.agents.decima_net import DecimaNet

    config, pool = _worker
    net = DecimaNet(config.hidden, config.head)
    net.load_state_dict({name: torch.from_numpy(values) for name, values in state.items()})
    rng = None if luck is None else np.random.default_rng(luck)
    return _play(net, config.workload, pool, seeds, rng, jobs)


def _play(
    net: Any,
    workload: Workload,
    pool: Sequence[SparkJob],
    seeds: list[int],
    rng: np.random.Generator | None,
    jobs: int | None,
) -> list[Any]:
    from dagsim.agents.decima_play import play

    return play(net, [workload.simulation(pool, seed, jobs) for seed in seeds], rng)


def _yaml(config: DecimaTraining) -> str:
    import yaml

    return str(yaml.safe_dump(json.loads(json.dumps(asdict(config))), sort_keys=False))

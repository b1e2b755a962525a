"""A Decima training from its configuration to a folder: log, checkpoints, and the best network on validation.

training.yaml   the configuration, in full
log.jsonl       one line per iteration
best.pt         the network with the least mean completion time on the validation sequences, greedy
last.pt         the newest
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from dagsim.agents.decima_workload import Workload
from dagsim.errors import ConfigError
from dagsim.files import write_text
from dagsim.spark import SPARK_POLICIES, Action

__all__ = ["DecimaTraining", "load_training", "train_decima"]


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
    kept: float = 0.7
    """The network that is judged is an average over iterations: so much of it is kept in each."""
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
    action: Action = "executors"
    """What is said beside a stage: the executors to add, or a limit on those its job has, as in the paper."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.loss not in ("ppo", "reinforce"):
            raise ConfigError(f"loss must be 'ppo' or 'reinforce', got {self.loss!r}")
        if self.action not in get_args(Action):
            raise ConfigError(f"action must be 'executors' or 'limit', got {self.action!r}")
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


def load_training(path: Path | None = None, settings: Iterable[str] = ()) -> DecimaTraining:
    """The configuration in ``path`` (or the default one), changed by settings such as ``workload.jobs=20``.

    Raises:
        ConfigError: A file that cannot be read, or a key or a value that is wrong.
    """
    import yaml
    from pydantic import TypeAdapter, ValidationError

    try:
        document = (yaml.safe_load(path.read_text()) if path is not None else None) or {}
        for setting in settings:
            key, _, value = setting.partition("=")
            *parents, last = key.split(".")
            place = document
            for name in parents:
                place = place.setdefault(name, {})
            place[last] = yaml.safe_load(value)
        return TypeAdapter(DecimaTraining).validate_python(document)
    except (OSError, yaml.YAMLError, AttributeError) as error:
        raise ConfigError(f"{path or 'settings'}: cannot be read ({str(error).splitlines()[0]})") from None
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise ConfigError(f"{path or 'settings'}: " + "; ".join(faults)) from None


TRAINING_SEEDS = 1_000_000
VALIDATION_SEEDS = 2_000_000


def train_decima(config: DecimaTraining, folder: Path, say: Callable[[str], None] = print) -> Path:
    """Train, and return the file of the best network. What is in ``folder`` is replaced."""
    from dagsim.agents.decima_file import load_net, save_net
    from dagsim.agents.decima_net import blend, new_net
    from dagsim.agents.decima_play import watch
    from dagsim.agents.decima_ppo import DecimaLearner, LearnConfig, imitate
    from dagsim.agents.decima_workers import Players

    begun = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "training.yaml", _yaml(config))
    rng = np.random.default_rng(config.seed)
    pool = config.workload.pool()
    net = new_net(config.hidden, config.head, config.seed, config.action)
    validation = list(range(VALIDATION_SEEDS, VALIDATION_SEEDS + config.validation))
    best_s, best = np.inf, folder / "best.pt"
    with Players(config.workload, pool, config.workers) as players, (folder / "log.jsonl").open("w") as log:

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
            greedy_s = float(np.mean([steps.mean_jct_s for steps in players.play(slow, validation, None)]))
            about = {"iteration": iteration, "validation_s": greedy_s, "config": json.dumps(asdict(config))}
            save_net(slow, folder / "last.pt", about)
            if greedy_s < best_s:
                best_s = greedy_s
                save_net(slow, best, about)
            record(iteration=iteration, validation_s=greedy_s, best_s=best_s)

        if config.start is not None:
            net.load_state_dict(load_net(Path(config.start))[0].state_dict())
        elif config.teacher is not None:
            taught = range(TRAINING_SEEDS, TRAINING_SEEDS + config.teacher_episodes)
            lessons = [
                watch(SPARK_POLICIES.create(config.teacher), config.workload.simulation(pool, seed), config.action)
                for seed in taught
            ]
            missed = imitate(net, lessons, rng, epochs=config.teacher_epochs, lr=2e-3)
            record(teacher=config.teacher, cross_entropy=missed)
        slow = deepcopy(net)
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
            first = TRAINING_SEEDS + 100_000 * config.seed + 100 + iteration * config.sequences
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
            blend(slow, net, config.kept)
            if iteration % config.validate_every == 0:
                judge(iteration)
        judge(iteration)
    return best


def _yaml(config: DecimaTraining) -> str:
    import yaml

    return str(yaml.safe_dump(json.loads(json.dumps(asdict(config))), sort_keys=False))

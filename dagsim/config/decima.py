"""The configuration of a Decima training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args

from dagsim.agents.decima_workload import Workload
from dagsim.config import yaml
from dagsim.config.errors import explain
from dagsim.errors import ConfigError
from dagsim.systems.spark import Action

__all__ = ["DecimaTraining", "load_training"]


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
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(DecimaTraining)
    document = yaml.Document({}, "defaults") if path is None else yaml.read(path)
    for setting in settings:
        document.override(setting, asdict(DecimaTraining()))
    try:
        return adapter.validate_python(document.value or {})
    except ValidationError as error:
        raise ConfigError(explain(error, document, adapter.json_schema())) from None

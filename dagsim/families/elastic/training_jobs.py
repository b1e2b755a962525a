"""Elastic jobs: their rate on a placement with a batch, and their progress.

A job advances in iterations of its initial batch (``profiles.py``). On a placement with a given
batch, its rate is constant until the epoch ends, because the gradient noise was measured once per
epoch. A simulator therefore needs ``Training.pace``, which returns the current rate and the
progress at which it changes, and then ``advance`` or ``end_epoch``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite

from dagsim.errors import ModelError
from dagsim.families.elastic.goodput import GoodputModel, GradientNoise, StepMeasurement, fit_throughput
from dagsim.families.elastic.profiles import TrainingProfile
from dagsim.model import Pace
from dagsim.model.arithmetic import whole_sum

_LATE_S = 2.0**-30
"""An epoch that is rounded down to a whole second ends this much later, because Pollux's simulator
rounds only after the policy has decided for that second. A power of 2 leaves no rounding residue in
times."""
_NODE_GPUS = 4


@dataclass(frozen=True)
class ElasticJob:
    """A training job as submitted.

    ``replicas`` and ``batch`` are the user's choice, from which a policy may deviate.
    """

    name: str
    profile: TrainingProfile
    arrival_s: float
    replicas: int
    batch: int


@dataclass(frozen=True)
class MeasuredTraining:
    """The progress of a task according to the measurements of an application (``TrainingModel``).

    ``batch`` has the same meaning as in ``Training``. If ``whole_seconds`` is True, epochs end
    after whole seconds, as in Pollux's simulator. ``speeds`` maps GPU types to factors by which the
    rate is multiplied. Other types have the measured rate.
    """

    job: ElasticJob
    batch: int | None = None
    whole_seconds: bool = False
    speeds: Mapping[str, float] = field(default_factory=dict)

    def start(self) -> Training:
        """Return the state before the first start."""
        return Training(self.job, self.batch, self.whole_seconds, self.speeds)


@dataclass(frozen=True)
class GoodputTraining:
    """The progress of a task by goodput models (``TrainingModel``), in samples at the efficiency of
    the initial batch. The task is done after ``samples``.

    ``models`` contains the goodput models by GPU type. The empty name represents all other types.
    The batch is always the best one for the placement.

    Raises:
        ModelError: ``samples`` is not positive, or there is no model.
    """

    models: Mapping[str, GoodputModel]
    samples: float

    def __post_init__(self) -> None:
        if not (isfinite(self.samples) and self.samples > 0):
            raise ModelError(f"samples must be positive, got {self.samples!r}")
        if not self.models:
            raise ModelError("a task needs a goodput model for some GPU type")

    def start(self) -> GoodputProgress:
        """Return the state before the first start."""
        return GoodputProgress(self)


class GoodputProgress:
    """The progress of a task with ``GoodputTraining``. See ``TrainingState``."""

    def __init__(self, task: GoodputTraining) -> None:
        self.task = task
        self.progress = 0.0
        self.largest_measured = 0
        """Largest number of replicas with which it has run."""
        self._rate = 0.0

    @property
    def total(self) -> float:
        """The number of samples after which the task is done."""
        return self.task.samples

    @property
    def done(self) -> bool:
        """True if no samples are left."""
        return self.progress >= self.task.samples

    def place(self, placement: Sequence[int], gpu: str = "") -> None:
        """Move the task to GPUs of a type.

        Raises:
            ModelError: The task has no model for this type, or the model has no batch for this many GPUs.
        """
        model = self.model(gpu)
        if model is None:
            raise ModelError(f"there is no goodput model for {gpu}, only for {', '.join(sorted(self.task.models))}")
        self._rate = 0.0
        if placement:
            self._rate = float(model.best(len(placement), whole_sum(placement)).goodput)
            if not self._rate:
                raise ModelError(f"the goodput model allows no batch on {whole_sum(placement)} GPUs")
            self.largest_measured = max(self.largest_measured, whole_sum(placement))

    def runs_on(self, gpu: str) -> bool:
        """Return True if there is a model for a GPU type."""
        return self.model(gpu) is not None

    def model(self, gpu: str) -> GoodputModel | None:
        """Return the goodput model that policies may use for a GPU type, or None if the task cannot run
        there.
        """
        return self.task.models.get(gpu) or self.task.models.get("")

    def pace(self, interference: float = 0.0) -> Pace:
        """Return the goodput of the current placement, which is the task's rate."""
        return Pace(self._rate * (1.0 - interference), self.task.samples)

    def advance(self, progress: float) -> None:
        """Add this number of samples to the progress."""
        self.progress += progress

    def end_epoch(self) -> None:
        """Complete the task."""
        self.progress = self.task.samples

    def copy(self) -> GoodputProgress:
        """Return an equal state that continues independently."""
        return copy.copy(self)


class Training:
    """State of an elastic job.

    Args:
        job: The job.
        batch: Samples per iteration (default: the batch with the best goodput, chosen again at each
            placement and epoch).
        whole_seconds: Whether epochs end after whole seconds, as in Pollux's simulator.
        speeds: Factors by which the rate is multiplied, by GPU type.

    ``placement`` lists the replicas on each node and is empty while the job is not running.
    ``measured`` contains all iterations measured so far, by (nodes, replicas, local batch), in the
    order in which they were measured.
    """

    def __init__(
        self,
        job: ElasticJob,
        batch: int | None,
        whole_seconds: bool = False,
        speeds: Mapping[str, float] | None = None,
    ) -> None:
        self.job = job
        self.batch = batch
        self._whole_seconds = whole_seconds
        self._speeds = speeds or {}
        self._speed = 1.0
        """Factor on the rate on the current GPU type."""
        self._late_s = self._next_late_s = 0.0
        """Time by which the current epoch began late, and by which the next epoch will."""
        self.placement: tuple[int, ...] = ()
        self.local_batch = 0
        self.accumulation = 0
        self.progress = 0.0
        self.epoch = 0
        self.noise: GradientNoise | None = None
        self.measured: dict[tuple[int, int, int], StepMeasurement] = {}
        self._model: GoodputModel | None = None

    @property
    def done(self) -> bool:
        """True if all epochs are finished."""
        return self.epoch >= self.job.profile.application.epochs

    @property
    def total(self) -> float:
        """The progress at which all epochs are finished."""
        return self.job.profile.progress_at(self.job.profile.application.epochs)

    @property
    def replicas(self) -> int:
        """Number of GPUs in use."""
        return whole_sum(self.placement)

    @property
    def largest_measured(self) -> int:
        """The largest number of replicas with which the job has run, or 0 before its first start."""
        return max((replicas for _, replicas, _ in self.measured), default=0)

    @property
    def goodput(self) -> GoodputModel | None:
        """The model fitted to the iterations so far, or None before the first iteration."""
        if self._model is None and self.noise is not None:
            throughput = fit_throughput(list(self.measured.values()))
            self._model = GoodputModel(throughput, self.noise, self.job.profile.limits)
        return self._model

    def runs_on(self, gpu: str) -> bool:
        """Return True if the job may run on a GPU type."""
        return not self._speeds or gpu in self._speeds

    def model(self, gpu: str) -> GoodputModel | None:
        """Return the goodput model for a GPU type according to the iterations so far. Return None
        before the first iteration, or if the job cannot run there.
        """
        model, speed = self.goodput, self._speeds.get(gpu, 1.0)
        if model is None or not self.runs_on(gpu):
            return None
        if speed == 1.0:
            return model
        return GoodputModel(model.throughput.slower(1 / speed), model.noise, model.limits)

    def place(self, placement: Sequence[int], gpu: str = "") -> None:
        """Move the job to other GPUs, and choose the batch for them. ``placement`` contains the
        number of replicas on each node, and an empty placement stops the job. The profile describes
        one GPU type. On other types, the rate is multiplied by their factors in ``speeds``.
        """
        self.placement = tuple([count for count in placement if count])
        self._speed = self._speeds.get(gpu, 1.0)
        self._late_s = 0.0
        if self.placement:
            self._choose_batch()

    def pace(self, interference: float = 0.0) -> Pace:
        """Measure an iteration, and return the current rate. ``interference`` is the fraction of
        the rate that is lost because of other jobs.

        Raises:
            ModelError: The job is not running or is done, or was never measured at this placement.
        """
        if not self.placement or self.done:
            raise ModelError(f"{self.job.name} {'is done' if self.done else 'is not running'}, so it has no rate")
        profile, key = self.job.profile, (len(self.placement), self.replicas, self.local_batch)
        step_s, sync_s = profile.times(self.placement, self.local_batch)
        batch = self.replicas * self.local_batch * (self.accumulation + 1)
        noise = profile.noise(batch, self.epoch)
        if key not in self.measured:
            self.measured[key] = StepMeasurement(*key, step_s, sync_s)
            self._model = None
        elif self._model is not None and noise != self.noise:
            self._model = GoodputModel(self._model.throughput, noise, profile.limits)
        self.noise = noise
        seconds = step_s + (step_s - sync_s) * self.accumulation
        gain = float(noise.gain(batch / profile.limits.initial))
        rate, until = gain / seconds * (1.0 - interference) * self._speed, profile.progress_at(self.epoch + 1)
        if not self._whole_seconds:
            return Pace(rate, until)
        exact_s = (until - self.progress) / rate
        whole_s = round(exact_s)
        self._next_late_s = _LATE_S if whole_s < exact_s else 0.0
        return Pace(rate, until, whole_s - self._late_s + self._next_late_s)

    def advance(self, progress: float) -> None:
        """Add progress within the epoch."""
        self.progress += progress

    def end_epoch(self) -> None:
        """Record that the epoch has ended, and choose the batch for the next epoch."""
        self.epoch += 1
        self._late_s = self._next_late_s
        self.progress = self.job.profile.progress_at(self.epoch)
        self._choose_batch()

    def copy(self) -> Training:
        """Return an equal state that continues independently."""
        twin = copy.copy(self)
        twin.measured = dict(self.measured)
        return twin

    def _choose_batch(self) -> None:
        limits, replicas = self.job.profile.limits, self.replicas
        if self.batch is None and (model := self.goodput) is not None:
            choice = model.best(len(self.placement), replicas)
            self.local_batch, self.accumulation = int(choice.local_batch), int(choice.accumulation)
        else:
            batch = max(limits.initial, limits.local_min * replicas) if self.batch is None else self.batch
            self.local_batch, self.accumulation = split_batch(self.job.profile, batch, replicas)
        self.local_batch = min(self.local_batch, limits.largest // (replicas * (self.accumulation + 1)))


def split_batch(profile: TrainingProfile, batch: int, replicas: int) -> tuple[int, int]:
    """Return the local batch and the accumulation steps for a batch on ``replicas`` GPUs."""
    limits = profile.limits
    per_replica = ceil(batch / replicas - 1e-8)
    accumulation = ceil(per_replica / limits.local_max - 1e-8) - 1
    if replicas == 1 and batch > limits.initial:
        accumulation = max(1, accumulation)
    return ceil(per_replica / (accumulation + 1) - 1e-8), accumulation


def alone_s(job: ElasticJob) -> float:
    """Return the training time of the job in seconds, with the replicas and the batch that its user
    requested. The job runs alone and without restarts, and takes as few nodes with four GPUs as
    possible.

    Raises:
        ModelError: The replicas or the batch are outside the measured range.
    """
    full, rest = divmod(job.replicas, _NODE_GPUS)
    training = Training(job, job.batch)
    training.place([_NODE_GPUS] * full + [rest])
    seconds = 0.0
    while not training.done:
        rate, until, _ = training.pace()
        seconds += (until - training.progress) / rate
        training.end_epoch()
    return seconds


def seconds_alone(profile: TrainingProfile, gpus: int, batch: int) -> float:
    """Return the number of seconds that an application takes when it runs alone on a number of GPUs
    with a given batch.

    Raises:
        ModelError: The profile does not cover the GPUs or the batch.
    """
    return alone_s(ElasticJob("", profile, 0.0, gpus, batch))

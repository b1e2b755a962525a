"""The configuration of elastic tasks, which gives the jobs of any workload a range of GPUs and a
goodput model.

The shipped models are fitted to the measurements of six applications on T4s that come with Pollux
(Qiao et al., OSDI 2021, artifact, Apache-2.0) by ``scripts/fit_goodput.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from os.path import expandvars
from typing import Literal, NamedTuple

from dagsim.errors import ConfigError, ModelError
from dagsim.families.elastic.goodput import GoodputModel, GradientNoise, ThroughputModel
from dagsim.families.elastic.profiles import APPLICATIONS, TrainingProfile, read_applications
from dagsim.families.elastic.training_jobs import ElasticJob, GoodputTraining, MeasuredTraining
from dagsim.model import Cluster, Elastic, GpuType, Job, Task, TaskGraph, TrainingModel
from dagsim.model.arithmetic import whole_sum
from dagsim.spelling import nearest

SHIPPED_MODELS = {
    name: GoodputModel(ThroughputModel(*throughput), GradientNoise(1.0, noise), APPLICATIONS[name].limits)
    for name, throughput, noise in (
        ("bert", (0.171936, 0.058611, 1.38571, 0.00943142, 0.284204, 0.00962189, 1.90221), 286.805),
        ("cifar10", (0.0186594, 0.000679814, 0.0915219, 0.00252492, 0.0153994, 4.7282e-08, 1.2769), 33.4968),
        ("deepspeech2", (0.311102, 0.023844, 0.487132, 0.00981837, 0.0839367, 0.00137089, 1.4131), 37.9836),
        ("imagenet", (0.0641743, 0.00448029, 0.299479, 0.00663747, 0.0264624, 5.19265e-05, 2.47053), 77.9786),
        ("ncf", (0.00695736, 6.35416e-07, 0.0174806, 0.000555984, 0.00599873, 1.94579e-08, 1.24811), 5038.12),
        ("yolov3", (0.187108, 0.0253846, 0.749123, 0.0107143, 0.128284, 0.0174394, 1.10778), 53.9732),
    )
}
"""Goodput of each application on T4s, with its gradient noise over the whole training."""
_ALIKE = {
    "resnet18": "cifar10",
    "resnet50": "imagenet",
    "transformer": "bert",
    "lm": "deepspeech2",
    "recommendation": "ncf",
    "a3c": "ncf",
    "cyclegan": "yolov3",
}
"""Gavel's models, by the most similar application."""
_SIZES = ((1.0, "cifar10"), (10.0, "deepspeech2"), (100.0, "yolov3"), (inf, "imagenet"))
"""Largest GPU-hours of each class in Pollux's workload (section 5.1), and an application for each
class."""
_LEAST_S = 1e-6
"""Seconds assumed for a job without work."""


@dataclass(frozen=True, slots=True)
class ElasticTasks:
    """Makes the training tasks of a workload elastic, which means that the policy chooses how many
    GPUs each task gets.

    A task that requests whole GPUs runs on ``least`` to ``most`` GPUs. If the requested number is
    outside this range, the range is extended to include it. The task is rejected if its user
    requested more GPUs than the cluster has.

    Each model in the workload has an application from ``SHIPPED_MODELS``. The application only
    determines how speed changes with the number of GPUs. With the requested GPUs, a task takes as
    long on each GPU type as the runtime model states.

    ``profiles`` is a folder of measured applications in Pollux's layout (variables such as
    ``$DAGSIM_DATA`` are replaced). Tasks of these applications then train all epochs as measured.
    On GPU types other than the slowest, the rate is scaled by the runtime model.

    Raises:
        ConfigError: There is no such application, the range is empty, or the profiles cannot be
            read.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    """The application for each model in the workload. Models that are named like an application or
    like one of Gavel's models need no entry.
    """
    default: str | None = "by-size"
    """The application for all other models. ``by-size`` chooses an application according to the
    task's GPU-hours, and ``null`` leaves these tasks rigid.
    """
    least: int = 1
    """Smallest number of GPUs on which a task runs."""
    most: int = 64
    """Largest number of GPUs on which a task runs."""
    restart_s: float | None = None
    """Delay in seconds at each start of a task. Default: the application's restart time."""
    profiles: str | None = None
    batch: Literal["best", "asked"] = "best"
    """The batch size of a task: the best one at each placement (``best``), or the one that the user
    requested (``asked``).
    """

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for where, name in (*self.models.items(), ("default", self.default)):
            if name not in SHIPPED_MODELS and not (where == "default" and name in ("by-size", None)):
                hint = nearest(str(name), SHIPPED_MODELS, f"available: {', '.join(SHIPPED_MODELS)}")
                raise ConfigError(f"elastic: {where}: there is no goodput model {name!r}{hint}")
        if not 1 <= self.least <= self.most:
            raise ConfigError(
                f"elastic: least and most must satisfy 1 <= least <= most, got {self.least} and {self.most}"
            )
        if self.restart_s is not None and not 0 <= self.restart_s < inf:
            raise ConfigError(f"elastic: restart_s must be 0 or more, got {self.restart_s!r}")
        if self.batch not in ("best", "asked"):
            raise ConfigError(f"elastic: batch must be best or asked, got {self.batch!r}")
        if self.batch == "asked" and self.profiles is None:
            raise ConfigError(
                "elastic: only jobs with profiles request a batch; name the folder with profiles, or leave out batch"
            )
        if self.profiles is not None:
            _profiles(self.profiles)

    def check(self, cluster: Cluster) -> None:
        """Check the range against the cluster.

        Raises:
            ModelError: No GPU type has ``least`` GPUs.
        """
        most = max([one.all for one in _types(cluster)[1].values()], default=0)
        if self.least > most:
            raise ModelError(
                f"elastic: least is {self.least}, but no GPU type in the cluster has more than {most} GPUs"
            )

    def job(self, job: Job, seconds: SecondsOnTypes, cluster: Cluster) -> Job:
        """Return the job with its tasks made elastic. ``seconds`` is the runtime model.

        Raises:
            ModelError: A task requests more GPUs than its application has batches for, or its
                profile does not cover the requested placement or batch.
        """
        tasks = [self._task(task, job, seconds, cluster) for task in job.graph.tasks]
        if all(new is old for new, old in zip(tasks, job.graph.tasks, strict=True)):
            return job
        return replace(job, graph=TaskGraph(tuple(tasks), job.graph.edges))

    def _task(self, task: Task, job: Job, seconds: SecondsOnTypes, cluster: Cluster) -> Task:
        asked = int(task.gpus) * task.instances
        if task.elastic is not None or not task.gpus or task.gpus != int(task.gpus):
            return task
        if task.instances > 1 and not task.gang:
            return task  # independent instances do not form a training job
        types, sizes = _types(cluster)
        times_s = {gpu.name: taken for gpu, taken in zip(types, seconds(task, types), strict=True) if taken < inf}
        if not times_s or asked > max(sizes[gpu].all for gpu in times_s):
            return task  # too large for this cluster, so the kernel rejects the job
        name = self._application(task, asked, min(times_s.values()))
        if name is None:
            return task
        profile = None if self.profiles is None else _profiles(self.profiles).get(name)
        if profile is not None and task.batch is not None:
            slowest_s = max(max(times_s.values()), _LEAST_S)
            speeds = {gpu: slowest_s / max(taken, _LEAST_S) for gpu, taken in times_s.items()}
            measured = ElasticJob(job.id, profile, job.arrival_s, asked, task.batch)
            batch = task.batch if self.batch == "asked" else None
            training = MeasuredTraining(measured, batch, speeds=speeds)
            for gpu in times_s:
                _check_measured(job, training, asked, gpu, sizes[gpu].node)
            return self._elastic(task, asked, name, training)
        limits = SHIPPED_MODELS[name].limits
        if asked * limits.local_min > limits.largest:
            raise ModelError(
                f"job {job.id!r}: the job requests {asked} GPUs, but batches of {name} can be split over "
                f"at most {limits.largest // limits.local_min} GPUs; map its model to another application "
                "(elastic: models, default)"
            )
        fastest_s = max(min(times_s.values()), _LEAST_S)
        slower = tuple([(gpu, sizes[gpu].node, max(taken, _LEAST_S) / fastest_s) for gpu, taken in times_s.items()])
        models, samples_per_s = _scaled(name, asked, slower)
        return self._elastic(task, asked, name, GoodputTraining(models, samples_per_s * fastest_s))

    def _elastic(self, task: Task, asked: int, name: str, training: TrainingModel) -> Task:
        """Return the task as a gang with one GPU per instance, and with its range of GPUs."""
        limits, restart_s = APPLICATIONS[name].limits, self.restart_s
        most = min(self.most, limits.largest // limits.local_min)
        elastic = Elastic(
            min(self.least, asked),
            max(most, asked),
            training,
            APPLICATIONS[name].restart_s if restart_s is None else restart_s,
        )
        cpus, memory_gb = task.cpus / task.gpus, task.memory_gb / task.gpus
        return replace(task, instances=asked, gang=True, gpus=1.0, cpus=cpus, memory_gb=memory_gb, elastic=elastic)

    def _application(self, task: Task, asked: int, seconds: float) -> str | None:
        """Return the name of the application that a task resembles, or None if there is none."""
        if task.model is not None:
            plain = task.model.lower().replace("-", "")
            name = self.models.get(task.model) or (plain if plain in SHIPPED_MODELS else _ALIKE.get(plain))
            if name is not None:
                return name
        if self.default != "by-size":
            return self.default
        name = next(name for hours, name in _SIZES if asked * seconds < hours * 3600)
        limits = SHIPPED_MODELS[name].limits
        return name if asked * limits.local_min <= limits.largest else "imagenet"


def _check_measured(job: Job, training: MeasuredTraining, asked: int, gpu: str, size: int) -> None:
    """Reject a task if the requested GPUs, on nodes of ``size``, were not measured."""
    state, full = training.start(), min(asked, size)
    state.place([full] * (asked // full) + [asked % full] * bool(asked % full), gpu)
    try:
        state.pace()
    except ModelError as error:
        raise ModelError(
            f"job {job.id!r} on {gpu}: {error}; set elastic.profiles to a folder with suitable measurements, or to null"
        ) from None


SecondsOnTypes = Callable[[Task, tuple[GpuType, ...]], Sequence[float]]
"""The seconds of a task on each of some GPU types, ``inf`` where it cannot run."""


class _Sizes(NamedTuple):
    """The number of GPUs of one type on the largest node, and their total number."""

    node: int
    all: int


@cache
def _types(cluster: Cluster) -> tuple[tuple[GpuType, ...], dict[str, _Sizes]]:
    """Return the GPU types of a cluster, and the sizes of each type (``_Sizes``) by name."""
    types = tuple(dict.fromkeys([node.gpu for node in cluster.nodes if node.gpu is not None]))
    counts = {gpu.name: [node.gpus for node in cluster.nodes if node.gpu == gpu] for gpu in types}
    return types, {name: _Sizes(max(gpus), whole_sum(gpus)) for name, gpus in counts.items()}


@cache
def _profiles(folder: str) -> dict[str, TrainingProfile]:
    return read_applications(expandvars(folder))


@cache
def _scaled(name: str, asked: int, slower: tuple[tuple[str, int, float], ...]) -> tuple[dict[str, GoodputModel], float]:
    """Return goodput models by GPU type. Also return the goodput of the fastest type with ``asked``
    GPUs on as few nodes as possible. ``slower`` contains, for each type, the GPUs per node, and the
    factor by which ``asked`` GPUs of this type are slower than those of the fastest type."""
    model = SHIPPED_MODELS[name]
    goodputs = {gpu: float(model.best(-(-asked // size), asked).goodput) for gpu, size, _ in slower}
    fastest = next(gpu for gpu, _, factor in slower if factor == 1.0)
    if not min(goodputs.values()):
        raise ModelError(f"elastic: {name} has no batch size that can be split over {asked} GPUs")
    models = {
        gpu: replace(model, throughput=model.throughput.slower(goodputs[gpu] / goodputs[fastest] * factor))
        for gpu, _, factor in slower
    }
    return models, goodputs[fastest]

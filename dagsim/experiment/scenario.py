"""The contents of a configuration: its scenario, its seeds and their population, and its workload
in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dagsim.config.bundled import WORKLOADS
from dagsim.config.schema import Config
from dagsim.metrics.standings import Sample
from dagsim.model import Job
from dagsim.model.streams import stream
from dagsim.seeds import WINDOWS, seeds_of
from dagsim.systems.seam import Scenario
from dagsim.workload import PRESETS, Sessions, Synthetic

if TYPE_CHECKING:
    from dagsim.systems.cluster.scenario import ClusterScenario


def scenario_of(config: Config) -> Scenario:
    """Return the scenario that builds the kernels of ``config``, the same for every command.

    Raises:
        InputError: The cluster cannot be built.
    """
    return cluster_scenario_of(config) if config.system_kind == "cluster" else cast(Scenario, config.system)


def cluster_scenario_of(config: Config) -> ClusterScenario:
    """Return the scenario of a configuration of the GPU cluster.

    Raises:
        InputError: The configuration is of another system, or the cluster cannot be built.
    """
    from dagsim.systems.cluster.models.failures import Outages
    from dagsim.systems.cluster.scenario import ClusterScenario

    late = config.late_nodes()
    return ClusterScenario(
        config.build_cluster(),
        config.workload,
        runtime=config.runtime,
        setup=config.setup,
        network=config.network,
        sharing=config.sharing,
        communication=config.communication,
        elastic=config.elastic,
        preemption=config.preemption,
        disturbances=(*config.disturbances, *([Outages(late)] if late else [])),
        estimates=config.estimates,
        admission=config.admission,
        outages=config.cluster.from_trace,
        queues=config.queues,
        engine=config.engine,
        accept=config.cluster.accept,
        request=config.request,
    )


def on_its_cluster(
    config: Config, cluster: str | None = None, watch: Callable[[Iterable[Job]], Iterable[Job]] = iter
) -> Config:
    """Return ``config`` with the cluster of its trace.

    A workload that is a trace gets the first of these clusters that exists: ``cluster`` (``trace``,
    ``sized`` or a configuration), that of the configuration, the machines that the trace lists, one
    sized to the trace. A whole trace runs on one seed unless more were asked for, because most
    further runs would be identical. ``watch`` passes on the jobs that are read to size a cluster.

    Raises:
        InputError: The cluster is wrong, or the trace cannot be read.
    """
    if cluster is not None or config.trace_file is not None:
        from dagsim.experiment.sizing import trace_cluster

        source, parts = trace_cluster(config, cluster, watch)
        config = config.changed(source, parts) if parts else config
    if sample_of(config) is not Sample.TRACE or "seeds" in config.model_fields_set:
        return config
    return config.model_copy(update={"seeds": 1})


def experiment_seeds(config: Config) -> tuple[int, ...]:
    """The seeds of an experiment: those of its replicates, or the numbers of the windows of its
    trace.
    """
    trace = config.trace_file
    if trace is not None and trace.window is not None:
        return seeds_of(WINDOWS, trace.windows or config.seeds)
    return replicate_seeds(config.seed, config.seeds)


def replicate_seeds(root: int, count: int) -> tuple[int, ...]:
    """The seeds of ``count`` replicates: ``root`` itself, so that a single run uses the given seed,
    then numbers drawn from it.

    They are not ``root + 1`` and so on: the experiments with roots 0 and 1 would share all but one
    workload.
    """
    drawn = stream(root, "replicates").integers(2**32, size=count - 1)
    return (root, *map(int, drawn))


def metric_of(config: Config) -> str:
    """The metric by which policies are ranked: the merit of the experiment's system."""
    return str(getattr(config.system, "merit", "jct_s.mean"))


def sample_of(config: Config) -> Sample:
    """The kind of sample that one seed of the experiment is."""
    trace = config.trace_file
    if trace is None:
        return Sample.SEED
    return Sample.TRACE if trace.window is None else Sample.WINDOW


def workload_label(config: Config) -> str:
    """The workload in a few words: ``heterogeneous, load 0.7``, or ``jobs.csv, windows of 200 jobs``."""
    if config.system_kind != "cluster":
        return str(config.system_kind)
    if (trace := config.trace_file) is not None:
        name = Path(trace.path).name
        return name if trace.window is None else f"{name}, windows of {trace.window:,} jobs"
    workload = config.workload
    presets = PRESETS if isinstance(workload, Synthetic) else WORKLOADS  # fits are sessions, and slow to read
    like = {name: preset.workload for name, preset in presets.items()}
    changes = {name: _changes(other, workload) for name, other in like.items() if type(other) is type(workload)}
    nearest = min(changes, key=lambda name: len(changes[name]))
    plain = {key: value for key, value in changes[nearest].items() if isinstance(value, int | float | str)}
    if len(plain) < len(changes[nearest]):
        return f"{workload.kind}, {workload.count:,} jobs, load {workload.load:g}"
    return ", ".join([nearest, *(f"{key} {_short(value)}" for key, value in plain.items())])


def _changes(preset: Synthetic | Sessions, workload: Synthetic | Sessions) -> dict[str, Any]:
    """The fields in which ``workload`` differs from ``preset``, with its values."""
    mine = {field.name: getattr(workload, field.name) for field in fields(workload)}
    return {name: value for name, value in mine.items() if value != getattr(preset, name)}


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:g}"

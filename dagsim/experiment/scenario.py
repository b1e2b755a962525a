"""Derive facts from a configuration: its scenario, its seeds, the kind of sample that a seed
represents, and a description of its workload.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from dagsim.config.bundled import WORKLOADS
from dagsim.config.schema import Config
from dagsim.errors import ConfigError
from dagsim.metrics.standings import Sample
from dagsim.model import Job
from dagsim.model.streams import stream
from dagsim.seeds import WINDOWS, seeds_of
from dagsim.systems.seam import Scenario


def scenario_of(config: Config) -> Scenario:
    """Return the scenario that builds the kernels for ``config``. All policies and seeds of one
    configuration share this scenario, so that the same jobs are drawn or read only once.

    Raises:
        InputError: The scenario cannot be built.
    """
    for earlier, scenario in _recent:
        if earlier is config:
            return scenario
    scenario = config.whole_system.scenario()
    _recent.append((config, scenario))
    return scenario


_recent: deque[tuple[Config, Scenario]] = deque(maxlen=2)
"""The last two configurations with their scenarios, because some commands alternate between two
clusters.
"""


def on_its_cluster(
    config: Config,
    cluster: str | None = None,
    watch: Callable[[Iterable[Job]], Iterable[Job]] = iter,
    *,
    invented: bool = True,
) -> Config:
    """Return ``config`` with the cluster on which its trace is replayed.

    If the workload is a trace, the first of these clusters that exists is used: ``cluster``
    (``trace``, ``sized`` or a configuration), the cluster in the configuration, the machines listed
    in the trace, or a cluster sized for the trace. A whole trace runs on a single seed unless more
    seeds were requested, because runs on other seeds would usually be identical. If jobs are read
    to size a cluster, they pass through ``watch``.

    Raises:
        InputError: The cluster is wrong, the trace cannot be read, or no cluster is given and
            ``invented`` is False.
    """
    if cluster is not None or config.trace_file is not None:
        from dagsim.experiment.sizing import trace_cluster

        source, parts = trace_cluster(config, cluster, watch, invented=invented)
        config = config.changed(source, parts) if parts else config
    if sample_of(config) is not Sample.TRACE or "seeds" in config.model_fields_set:
        return config
    return config.model_copy(update={"seeds": 1})


def experiment_seeds(config: Config) -> tuple[int, ...]:
    """Return the seeds of an experiment: one per replicate, or the numbers of the trace's
    windows.
    """
    trace = config.trace_file
    if trace is not None and trace.window is not None:
        return window_seeds(config, trace.windows or config.seeds)
    return replicate_seeds(config.seed, config.seeds)


def window_seeds(config: Config, count: int) -> tuple[int, ...]:
    """Return the numbers of ``count`` windows of the experiment's trace.

    Raises:
        ConfigError: The configuration sets a seed, which would have no effect.
    """
    if config.seed:
        raise ConfigError(
            f"seed: {config.seed} would have no effect, because windows are spread evenly over the trace "
            "and numbered; workload.windows sets their number, and workload.part the part of the trace "
            "that they come from"
        )
    return seeds_of(WINDOWS, count)


def replicate_seeds(root: int, count: int) -> tuple[int, ...]:
    """Return the seeds of ``count`` replicates: ``root`` itself, so that a single run uses the
    given seed, followed by numbers drawn from it.

    The seeds are not simply ``root + 1`` and so on, because experiments with the roots 0 and 1
    would then share all but one workload.
    """
    drawn = stream(root, "replicates").integers(2**32, size=count - 1)
    return (root, *map(int, drawn))


def metric_of(config: Config) -> str:
    """Return the metric by which policies are ranked. The experiment's system defines it (``merit``)."""
    return config.whole_system.merit


def sample_of(config: Config) -> Sample:
    """Return the kind of sample that one seed of the experiment represents."""
    return config.whole_system.sample


def workload_label(config: Config) -> str:
    """Return a short description of the workload: ``heterogeneous, load 0.7``, or ``jobs.csv,
    windows of 200 jobs``."""
    return config.whole_system.label(WORKLOADS) or config.kind

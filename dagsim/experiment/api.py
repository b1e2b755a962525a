"""Functions that correspond to commands: they simulate, replay a trace, and compare run folders."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagsim.config.bundled import WORKLOADS, find_config
from dagsim.config.schema import Config, load_config
from dagsim.config.yaml import Setting, as_listed
from dagsim.errors import ConfigError, RunFolderError, UnknownName
from dagsim.experiment.compare import paired_lines
from dagsim.experiment.scenario import metric_of, on_its_cluster, sample_of
from dagsim.experiment.simulate import Outcome, facts_of, make_policy, run_policy
from dagsim.experiment.store import Store
from dagsim.metrics import summarize
from dagsim.metrics.standings import PolicyResult, standings
from dagsim.model import Cluster, Job
from dagsim.model.arithmetic import check_whole
from dagsim.spelling import call_hint, check_arguments, nearest
from dagsim.systems.cluster import ClusterPolicy
from dagsim.systems.cluster.models import check_models
from dagsim.systems.cluster.models.runtime import Recorded, Runtime, Throughput
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.workload import Sessions, Synthetic

if TYPE_CHECKING:
    from dagsim.traces.trace_file import TraceFile

DEFAULT_GPUS: Mapping[str, int] = {"A100-40": 8, "V100-16": 8, "T4": 16}
"""The GPUs of the default cluster."""


def simulate(
    workload: str | Path | Synthetic | Sessions | Iterable[Job] = "heterogeneous",
    cluster: Cluster | Mapping[str, int] = DEFAULT_GPUS,
    policy: str | ClusterPolicy = "fifo",
    seed: int = 0,
    *,
    runtime: Runtime | None = None,
    **models: Any,
) -> Outcome:
    """Run ``workload`` on ``cluster`` under ``policy``.

    ``workload`` is the name of a preset (``dagsim list workloads``), a trace file, a ``Synthetic``
    or ``Sessions`` object, or jobs in order of arrival. ``cluster`` may also be a mapping from GPU
    types to counts. By default, ``runtime`` uses measured throughputs for ``Synthetic`` workloads
    and the recorded seconds for all others. ``models`` contains further keyword arguments for
    ``ClusterKernel``, and ``engine`` (``auto``, ``simpy`` or ``compiled``). As in ``dagsim eval``,
    metrics cover only the jobs that the workload measures. The same arguments give the same
    schedule, byte for byte.

    Raises:
        InputError: A name, file or value is not valid.
        SimulationError: The policy made an impossible decision, or waits although nothing can happen.
    """
    check_whole("seed", seed)
    if not isinstance(policy, str) and (isinstance(policy, type) or not callable(getattr(policy, "decide", None))):
        raise UnknownName(
            f"policy must be a name or an object with a method decide(view), got {policy!r}{call_hint(policy)}"
        )
    machines = cluster if isinstance(cluster, Cluster) else Cluster.of(cluster)
    jobs = _workload(workload)
    model: Runtime = runtime if runtime is not None else Throughput() if isinstance(jobs, Synthetic) else Recorded()
    observers = models.pop("observers", ())
    if not isinstance(observers, Collection) or not all(map(callable, observers)):
        raise ConfigError(f"simulate: observers must be a list of functions, got {observers!r}")
    observers = list(observers)
    check_arguments("simulate", models, *[part.name for part in fields(ClusterScenario) if part.init])
    check_models("simulate", {"runtime": model, **models})
    scenario = ClusterScenario(machines, jobs, runtime=model, **models)
    if isinstance(policy, str):
        kernel = scenario.engaged(policy, seed, observers=observers).kernel
        decider: Any = make_policy(scenario, policy, seed)
    else:
        kernel, decider = scenario.kernel(seed, observers=observers), scenario.fitted(policy)
    schedule = drive(kernel, decider)
    name = policy if isinstance(policy, str) else type(policy).__name__
    measured = getattr(jobs, "measure", None)  # a plain list has no ``measure``, so all its jobs are measured
    return Outcome(schedule, summarize(schedule, measured=measured), name, seed, decider=facts_of(decider))


def _workload(
    workload: str | Path | Synthetic | Sessions | Iterable[Job],
) -> Synthetic | Sessions | TraceFile | Iterable[Job]:
    if isinstance(workload, str | Path):
        return _named_workload(str(workload))
    if isinstance(workload, Iterator):
        workload = list(workload)
    strange: list[Any] = []
    if isinstance(workload, Iterable):
        strange = [one for one in workload if not isinstance(one, Job)]
    elif isinstance(workload, type) or not hasattr(workload, "jobs"):
        strange = [workload]
    if strange:
        raise UnknownName(
            f"workload must be a name, a file, a Synthetic or jobs in a list, got {strange[0]!r}{call_hint(strange[0])}"
        )
    return workload


def _named_workload(name: str) -> Synthetic | Sessions | TraceFile:
    if name in WORKLOADS:
        return WORKLOADS[name].workload
    if not name or not Path(name).exists():
        raise UnknownName(
            f"unknown workload {name!r} (neither a preset nor a file)"
            f"{nearest(name, WORKLOADS, 'dagsim list workloads lists the presets')}"
        )
    from dagsim.traces.trace_file import TraceFile

    return TraceFile(name)


def replay(
    trace: str | Path,
    policy: str | None = None,
    cluster: str | None = None,
    *,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    seed: int | None = None,
) -> Outcome:
    """Replay a complete real trace under a scheduler, as ``dagsim replay`` does. The format of the
    trace is detected automatically.

    ``cluster`` is ``trace`` (the machines listed in the trace), ``sized`` (a cluster sized for an
    offered load of 0.9) or a configuration. By default, the cluster is the one in ``config``. If
    ``config`` has none, the machines in the trace are used, or else a cluster that is sized for the
    trace. ``config`` is a file or a name from ``dagsim list configs``, and ``settings``
    (``key=value``) modify it as ``--set`` does.

    Raises:
        InputError: The trace cannot be read, an argument is wrong, or ``settings`` request windows.
        SimulationError: The policy made an impossible decision, or waits although nothing can
            happen.
    """
    chosen = config_on_trace(trace, policy, cluster, config, settings, seed)
    if chosen.trace().window is not None:
        raise ConfigError("replay: this function runs whole traces; for windows, use dagsim replay --windows")
    return run_policy(chosen, chosen.policy, chosen.seed)


def compare(*runs: str | Path, metric: str | None = None, reference: str | None = None) -> tuple[PolicyResult, ...]:
    """Compare finished run folders, paired by seed, as ``dagsim compare`` does. Return the results
    with 95% confidence intervals, sorted from best to worst.

    ``metric`` defaults to the system's own metric. Every policy is compared with ``reference``,
    which by default is the first policy.

    Raises:
        InputError: The folders have no seed in common, differ in their workload, or lack the metric
            or reference.
        RunFolderError: A folder cannot be read, or contains fewer runs than when it was finished.
    """
    if not runs or not all(isinstance(run, str | Path) for run in runs):
        got = f"got {', '.join(map(repr, runs))}" if runs else "got none"
        raise ConfigError(f'compare() takes run folders, such as compare("results/A", "results/B"); {got}')
    stores = [Store.open(Path(run)) for run in runs]
    pairing = paired_lines(stores)
    if pairing.missing:
        raise RunFolderError("; ".join(pairing.missing))
    config = stores[0].config
    return tuple(standings(pairing.lines, metric or metric_of(config), reference, sample_of(config)))


def config_on_trace(
    trace: str | Path,
    policy: str | None,
    cluster: str | None,
    config: str | Path | None,
    settings: Iterable[str],
    seed: int | None,
    *,
    invented: bool = True,
) -> Config:
    if not isinstance(cluster, str | Path | None):
        raise ConfigError(
            f"cluster must be trace, sized, a configuration file or the name of a configuration, got {cluster!r}"
        )
    base = None if config is None else find_config(str(config))
    facts = {"workload": {"kind": "trace", "path": str(trace)}, "policy": policy, "seed": seed}
    first = [Setting(key, key, value) for key, value in facts.items() if value is not None]
    return on_its_cluster(load_config(base, [*first, *as_listed(settings)]), cluster, invented=invented)

"""One simulation from Python, without a configuration file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dagsim.config.bundled import WORKLOADS
from dagsim.errors import UnknownName
from dagsim.experiment.simulate import Outcome
from dagsim.metrics import summarize
from dagsim.model import Cluster, Job
from dagsim.model.arithmetic import check_whole
from dagsim.registry import nearest
from dagsim.systems.cluster import ClusterPolicy
from dagsim.systems.cluster.models.runtime import Recorded, Runtime, Throughput
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces.trace_file import TraceFile
from dagsim.workload import Sessions, Synthetic

__all__ = ["DEFAULT_GPUS", "simulate"]

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
    or ``Sessions`` object, or jobs in order of arrival. ``cluster`` may be GPU counts by type.
    ``runtime`` defaults to the measured throughputs for ``Synthetic`` workloads and to the recorded
    seconds for all others. The other ``models`` are those of ``ClusterKernel``, and ``engine``
    (``auto``, ``simpy`` or ``compiled``). The same arguments give the same schedule, byte for byte.

    Raises:
        InputError: A name, file or value is not valid.
        SimulationError: The policy made an impossible decision, or waits although nothing can happen.
    """
    check_whole("seed", seed)
    if not isinstance(policy, str) and (isinstance(policy, type) or not callable(getattr(policy, "decide", None))):
        hint = f"; make one: {policy.__name__}()" if isinstance(policy, type) else ""
        raise UnknownName(f"policy must be a name or an object with a method decide(view), got {policy!r}{hint}")
    machines = cluster if isinstance(cluster, Cluster) else Cluster.of(cluster)
    jobs = _workload(workload)
    model: Runtime = runtime if runtime is not None else Throughput() if isinstance(jobs, Synthetic) else Recorded()
    observers = models.pop("observers", ())
    scenario = ClusterScenario(machines, jobs, model, **models)
    if isinstance(policy, str):
        kernel = scenario.engaged(policy, seed, observers=observers).kernel
        schedule = drive(kernel, scenario.policies.create(policy))
    else:
        schedule = drive(scenario.kernel(seed, observers=observers), policy)
    name = policy if isinstance(policy, str) else type(policy).__name__
    return Outcome(schedule, summarize(schedule), name, seed)


def _workload(
    workload: str | Path | Synthetic | Sessions | Iterable[Job],
) -> Synthetic | Sessions | TraceFile | Iterable[Job]:
    if isinstance(workload, str) and workload in WORKLOADS:
        return WORKLOADS[workload].workload
    if isinstance(workload, str | Path):
        if not Path(workload).exists():
            raise UnknownName(
                f"unknown workload {str(workload)!r}{nearest(str(workload), WORKLOADS)}: neither a preset "
                "(dagsim list workloads) nor a file"
            )
        return TraceFile(str(workload))
    return workload

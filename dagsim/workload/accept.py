"""Change the jobs in a workload: allow additional GPU types (for example, after GPUs have been
replaced), and add default submission terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from dagsim.model import Request
from dagsim.model.arithmetic import numbered
from dagsim.model.gpu import GpuType, canonical, gpu_type
from dagsim.workload.arrays import JobArrays, Labels, TaskKind
from dagsim.workload.load import WorkRuntime

Accept: TypeAlias = Mapping[str, Mapping[str, float | None]]
"""For each GPU type that jobs name, the types that they may use as well, and their speeds relative
to it. ``None`` leaves the speed to the runtime model."""


def accepting(jobs: JobArrays, accept: Accept, runtime: WorkRuntime, types: Sequence[GpuType | None]) -> JobArrays:
    """Allow tasks that name some GPU types to use other types as well. ``types`` are the types in
    the cluster. Tasks that name no type are unchanged.
    """
    if not accept:
        return jobs
    own = {gpu.name: gpu for gpu in types if gpu is not None}
    place, kinds = numbered([_accepting(kind, accept, runtime, own) for kind in jobs.kinds])
    return replace(jobs, kind=place[jobs.kind], kinds=kinds)


def asking(jobs: JobArrays, request: Request | None) -> JobArrays:
    """Apply the submission terms ``request`` to jobs that state no terms."""
    if not request:
        return jobs
    stated = jobs.request or Labels(np.zeros(len(jobs), np.int32), (None,))
    return replace(jobs, request=stated.mapped(lambda own: request if own is None else own.over(request)))


def _accepting(kind: TaskKind, accept: Accept, runtime: WorkRuntime, own: Mapping[str, GpuType]) -> TaskKind:
    named = kind.demand.gpu_types
    if named is None:
        return kind
    speeds = dict(kind.speeds or ())
    allowed = [canonical(name) for name in named]
    rates = getattr(runtime, "rates", None)
    for name in tuple(allowed):
        for other, faster in accept.get(name, {}).items():
            if other in allowed:
                continue
            allowed.append(other)
            if faster is not None and rates is not None:
                gpu = own.get(name) or gpu_type(name)
                speeds[other] = faster * rates(kind.task("", 1.0, 1), (gpu,))[0]
    if len(allowed) == len(named):
        return kind
    demand = kind.demand._replace(gpu_types=tuple(allowed))
    return kind._replace(demand=demand, speeds=tuple(speeds.items()) if speeds else kind.speeds)

"""Jobs in columns from what generators draw."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dagsim.errors import ModelError
from dagsim.workload.arrays import JobArrays, bounds, kinds_of, objects, ranges
from dagsim.workload.graphs import DagArrays
from dagsim.workload.sizes import SizeColumns

__all__ = ["job_arrays"]

_FEW = 20_000
"""Names up to which they are kept for the next seed."""


def job_arrays(graphs: DagArrays, sizes: SizeColumns, priority: np.ndarray | None = None) -> JobArrays:
    """Jobs ``job-0``, ``job-1``, ... of tasks ``t0``, ``t1``, ..., which arrive at 0 s.

    ``priority`` is (J,) float64; left out, it is what the sizes of a job's first task say, if anything.

    Raises:
        ModelError: Work that is not finite, or a demand that cannot be.
    """
    jobs, first = len(graphs.tasks), bounds(graphs.tasks)
    place = ranges(np.zeros(jobs, np.int64), graphs.tasks)
    if (endless := np.flatnonzero(~np.isfinite(sizes.work))).size:
        task = endless[0]
        raise ModelError(f"task 't{place[task]}': work must be 0 or more, got {float(sizes.work[task])!r}")
    if priority is None and sizes.priority is not None:
        priority = sizes.priority[first[:-1]]
    columns = (sizes.gpus, sizes.cpus, sizes.memory_gb, sizes.gang, sizes.model)
    kind, kinds = kinds_of(*columns, sizes.models, sizes.gpu_types)
    return JobArrays(
        ids=objects(_numbered("job-", jobs)),
        arrival_s=np.zeros(jobs),
        first=first,
        name=place.astype(np.int32),
        names=objects(_numbered("t", int(graphs.tasks.max(initial=0)))),
        work=sizes.work,
        instances=sizes.instances,
        kind=kind,
        kinds=kinds,
        waits=bounds(graphs.waits),
        parent=graphs.parent.astype(np.int32),
        estimate=sizes.estimate,
        priority=priority,
    )


def _numbered(prefix: str, count: int) -> list[str]:
    return _few(prefix, count) if count <= _FEW else [f"{prefix}{number}" for number in range(count)]


@lru_cache(maxsize=4)
def _few(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]

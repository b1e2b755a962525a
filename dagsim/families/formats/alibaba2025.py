"""Alibaba ``cluster-trace-gpu-v2025`` (Prism): instances of inference services on CPU and GPU nodes.

Columns: ``instance_sn, role, app_name, cpu_request, cpu_limit, gpu_request, gpu_limit,
rdma_request, rdma_limit, memory_request, memory_limit, disk_request, disk_limit,
max_instance_per_node, creation_time, scheduled_time, deletion_time``; in cores, GPUs, percent of a
NIC, GiB, and seconds since the trace began. A time is empty if it is outside the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dagsim.model import Demand
from dagsim.traces.chunks import read_tables
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, arrivals, row_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload.arrays import JobArrays, TaskKind

_COLUMNS = (
    *("instance_sn", "role", "app_name", "cpu_request", "cpu_limit", "gpu_request", "gpu_limit", "rdma_request"),
    *("rdma_limit", "memory_request", "memory_limit", "disk_request", "disk_limit", "max_instance_per_node"),
    *("creation_time", "scheduled_time", "deletion_time"),
)
_NAME, _, _APP, _CPU, _, _GPUS, _, _RDMA, _, _MEMORY, _, _, _, _PER_NODE, _CREATED, _SCHEDULED, _DELETED = range(17)
_FORM = csv_form(
    _COLUMNS,
    (),
    numbers=(_CPU, _GPUS, _RDMA, _MEMORY, _PER_NODE, _CREATED, _SCHEDULED, _DELETED),
    texts=(_NAME, _APP),
)


class Alibaba2025(Reader):
    """Builds one single-task job per instance, which runs from scheduling (or creation) to deletion
    and demands what the instance requested.

    Instances whose creation or deletion is outside the trace are dropped, because it is unknown how
    long they ran.
    """

    name = "alibaba2025"
    summary = "Alibaba cluster-trace-gpu-v2025 (Prism): instances of inference services, one GPU or none each"
    uses = frozenset({"reference_gpu", "floor_s"})

    def recognises(self, source: Source) -> bool:
        return source.head(1)[0].lower().startswith(",".join(_COLUMNS[:8]))

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        read, times = partial(read_tables, source, _FORM), partial(arrivals, column=_CREATED)
        return row_blocks(read, times, partial(_jobs, options), report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "deletion - scheduled (or creation); the trace does not name the GPU type",
            "density": "shares of RDMA and the limit of instances of an app per node are not modelled",
            "tenant": "the app of the instance",
        }


def _jobs(options: TraceOptions, checks: Checks) -> JobArrays:
    """Build one job per instance."""
    table = checks.table
    unknown = table.blank(_CREATED) | table.blank(_DELETED)
    checks.drop(unknown, "with a creation or deletion outside the trace")
    created = np.where(unknown, 0.0, checks.number(_CREATED, "creation_time", where=~unknown))
    waited = table.blank(_SCHEDULED)
    begun = np.where(waited, created, checks.number(_SCHEDULED, "scheduled_time", where=~unknown & ~waited))
    seconds = np.where(unknown, 0.0, checks.number(_DELETED, "deletion_time", where=~unknown) - begun)
    checks.drop(
        ~unknown & ((seconds < 0) | (begun < created) | (created < 0)), ImpossibleTimes("with times out of order")
    )
    checks.note(~unknown & waited, "instances that were never scheduled (run time counted from creation)")
    checks.note(checks.number(_RDMA, "rdma_request") > 0, "instances with a share of RDMA (not modelled)")
    checks.note(
        checks.number(_PER_NODE, "max_instance_per_node") >= 0, "instances with a limit per node (not modelled)"
    )
    work = options.all_on_reference(seconds, [None], np.zeros(len(table), np.int64))
    apps = table.words(_APP)
    return single_tasks(
        checks,
        created,
        np.where(work < options.floor_s, options.floor_s, work),
        np.ones(len(table)),
        (
            checks.number(_GPUS, "gpu_request"),
            checks.number(_CPU, "cpu_request"),
            checks.number(_MEMORY, "memory_request"),
        ),
        lambda gpus, cpus, memory_gb: TaskKind(Demand(gpus, cpus, memory_gb)),
        "instance",
        tenant=np.array(apps.words, object)[apps.place],
    )

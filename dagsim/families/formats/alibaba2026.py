"""Alibaba ``cluster-trace-v2026-spot-gpu`` (GFS): high-priority and spot jobs that consist of GPU
workers.

``job_info_df.csv``: ``job_name, organization, gpu_model, cpu_request, gpu_request, worker_num,
submit_time, duration, job_type``; requests are per worker, and times are in seconds.
``node_info_df.csv``: ``node_name, gpu_model, gpu_capacity_num, cpu_num``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from dagsim.errors import ModelError, TraceError
from dagsim.model import GPU_TYPES, Cluster, Demand, GpuType, Node
from dagsim.model.gpu import canonical
from dagsim.traces.chunks import read_rows, read_tables
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, arrivals, row_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload.arrays import JobArrays, TaskKind
from dagsim.workload.records import clipped

_COLUMNS = (
    *("job_name", "organization", "gpu_model", "cpu_request", "gpu_request", "worker_num", "submit_time"),
    *("duration", "job_type"),
)
_NAME, _OWNER, _MODEL, _CPU, _GPUS, _WORKERS, _SUBMIT, _DURATION, _TYPE = range(9)
_FORM = csv_form(
    _COLUMNS, (), numbers=(_CPU, _GPUS, _WORKERS, _SUBMIT, _DURATION), texts=(_NAME, _OWNER, _MODEL, _TYPE), header=True
)
_NODES = ("node_name", "gpu_model", "gpu_capacity_num", "cpu_num")
_PRIORITY = {"HP": 1.0, "Spot": 0.0}
_UNKNOWN = "V100-16"
"""The type whose rates are used for undisclosed models."""


class Alibaba2026(Reader):
    """Builds one gang of workers per job, on the GPU model that the job requests. Spot jobs have a
    lower priority.
    """

    name = "alibaba2026"
    summary = "Alibaba cluster-trace-v2026-spot-gpu (GFS): high-priority and spot jobs on six GPU models"
    uses = frozenset({"reference_gpu", "floor_s"})

    def recognises(self, source: Source) -> bool:
        return set(_COLUMNS) <= {name.strip().lower() for name in source.head(1)[0].split(",")}

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        read, times = partial(read_tables, source, _FORM), partial(arrivals, column=_SUBMIT)
        return row_blocks(read, times, partial(_jobs, options), report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Read the nodes from ``node_info_df*`` next to the jobs, or return None if there is no
        such file."""
        lists = source.beside("node_info_df*")
        return _read_nodes(lists.files[0]) if lists.files else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "the recorded duration, which includes what spot jobs lost when they were evicted",
            "gang": "the workers of a job start together; requested GPUs and cores are per worker",
            "gpu types": f"models unknown to dagsim get the rates, memory and power of a {_UNKNOWN}",
            "priority": "1 for HP, 0 for Spot; notices and evictions are not in the trace",
        }


def _jobs(options: TraceOptions, checks: Checks) -> JobArrays:
    """Build one job per row."""
    table = checks.table
    submitted, seconds = checks.number(_SUBMIT, "submit_time"), checks.number(_DURATION, "duration")
    checks.drop((submitted < 0) | (seconds < 0), ImpossibleTimes("with a negative time"))
    workers, gpus = checks.count(_WORKERS, "worker_num"), checks.number(_GPUS, "gpu_request")
    models, kinds = table.words(_MODEL), table.words(_TYPE)
    types = [(canonical(word.strip()),) if word.strip() else None for word in models.words]
    measured_on = [None if kind is None else kind[0] for kind in types]
    has_priority = np.array([word in _PRIORITY for word in kinds.words])
    checks.note(~has_priority[kinds.place], "with an unknown job_type (taken as priority 0)")
    work = options.all_on_reference(seconds, measured_on, models.place)
    return single_tasks(
        checks,
        submitted,
        np.where(work < options.floor_s, options.floor_s, work),
        workers,
        (gpus, checks.number(_CPU, "cpu_request"), np.where(gpus > 0, models.place, -1), workers > 1),
        lambda gpus, cpus, place, gang: TaskKind(
            Demand(gpus, cpus, 0.0, types[int(place)] if place >= 0 else None), gang
        ),
        priority=np.array([_PRIORITY.get(word, 0.0) for word in kinds.words])[kinds.place],
        tenant=table.words(_OWNER),
    )


def _read_nodes(source: Source) -> Cluster:
    """Read the cluster from a node list.

    Raises:
        TraceError: A row is not a valid node. The message names ``file:line``.
    """
    nodes = []
    for place, (name, model, gpus, cpus) in read_rows(source, ReadReport(strict=True), _NODES, header=True):
        try:
            many = count(gpus or "0", "gpu_capacity_num", 0, 64)
            nodes.append(Node(name, _gpu_type(model) if many else None, many, finite_number(cpus, "cpu_num")))
        except Dirty as error:
            raise TraceError(f"{source.where(place)}: a node {clipped(error)}") from None
        except ModelError as error:
            raise TraceError(f"{source.where(place)}: {clipped(error)}") from None
    try:
        return Cluster(tuple(nodes), "alibaba2026")
    except ModelError as error:
        raise TraceError(f"{source}:1: {clipped(error)}") from None


def _gpu_type(model: str) -> GpuType:
    name = canonical(model.strip())
    if not name:
        raise Dirty("with GPUs but no model")
    return GPU_TYPES[name] if name in GPU_TYPES else replace(GPU_TYPES[_UNKNOWN], name=name, sources={})

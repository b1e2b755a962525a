"""Alibaba ``cluster-trace-gpu-v2023`` ("openb"): pod lists, with the node lists as the cluster.

Pods: ``name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time,
deletion_time, scheduled_time``, in seconds. The ``multigpu`` lists have no columns after
``gpu_milli``. ``gpu_milli`` is per GPU. ``gpu_spec`` may allow several types (``V100M16|V100M32``);
if it is empty, any type is allowed. Nodes: ``sn, cpu_milli, memory_mib, gpu, model``. Jobs are
sorted by creation, because resampled lists are not in this order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from dagsim.model import GPU_TYPES, Cluster, Demand, GpuType, Node
from dagsim.model.gpu import canonical
from dagsim.traces.chunks import read_rows, read_tables
from dagsim.traces.fields import MOST_GPUS, Dirty, FaultsAt, count, finite_number
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import Disagreement, ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, arrivals, row_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload.array_tools import optional
from dagsim.workload.arrays import JobArrays, TaskKind
from dagsim.workload.records import clipped_repr

_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_TIMES = ("gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
_NAME, _CPU, _MEMORY, _GPUS, _SHARE, _SPEC, _QOS, _, _CREATED, _DELETED, _SCHEDULED = range(11)
_FORM = csv_form(
    _COLUMNS,
    _TIMES,
    numbers=(_CPU, _MEMORY, _GPUS, _SHARE, _CREATED, _DELETED, _SCHEDULED),
    texts=(_NAME, _SPEC, _QOS),
)
_PRIORITY = {"LS": 2.0, "Guaranteed": 1.0, "Burstable": 1.0, "BE": 0.0}
_MIB_PER_GB = 1024
_UNDISCLOSED = ("G1", "G2", "G3")


class Openb2023(Reader):
    """Builds one single-task job per pod, which occupies its GPUs, or its share of one, from
    scheduling to deletion.

    A pod that was never scheduled (pending) counts from its creation. Pods in all phases are kept,
    because failed pods also held GPUs.
    """

    name = "openb2023"
    summary = "Alibaba cluster-trace-gpu-v2023 (openb): pods that share GPUs, nodes of 7 GPU types"
    uses = frozenset({"reference_gpu", "floor_s"})

    def recognises(self, source: Source) -> bool:
        return source.head(1)[0].lower().startswith(",".join(_COLUMNS))

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        read, times = partial(read_tables, source, _FORM), partial(arrivals, column=_CREATED)
        return row_blocks(read, times, partial(_jobs, options), report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Read the nodes from the first ``openb_node_list*`` next to the pods, or return None if
        there is none. To read another list, use ``read_openb_nodes``."""
        lists = source.beside("openb_node_list*")
        return read_openb_nodes(lists.files[0]) if lists.files else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        answers = {
            "work": "deletion - scheduled (or creation), on whichever GPU type the pod ran (the trace does not say)",
            "gpu types": "G1, G2 and G3 are undisclosed: they get the rates, memory and power of a V100-16",
            "priority": "2 for qos LS, 1 for Guaranteed and Burstable, 0 for BE",
        }
        if _TIMES[3] not in source.head(1)[0].lower():
            answers["times"] = (
                "this list has no times, so all pods arrive at once, in the order listed, with work 0 (or floor_s)"
            )
        return answers


def read_openb_nodes(source: Source) -> Cluster:
    """Read the cluster from a node list (``sn, cpu_milli, memory_mib, gpu, model``).

    Raises:
        TraceError: A row is not a valid node. The message names ``file:line``.
    """
    nodes = []
    for place, (name, cpu, memory, gpus, model) in read_rows(
        source, ReadReport(strict=True), ("sn", "cpu_milli", "memory_mib", "gpu", "model"), header=True
    ):
        with FaultsAt(source.where(place), "a node"):
            many = count(gpus or "0", "gpu", 0, MOST_GPUS)
            kind = _gpu_type(model) if many else None
            cpus, gigabytes = finite_number(cpu, "cpu_milli") / 1000, finite_number(memory, "memory_mib") / _MIB_PER_GB
            nodes.append(Node(name, kind, many, cpus, gigabytes))
    with FaultsAt(f"{source}:1"):
        return Cluster(tuple(nodes), "openb2023")


def _jobs(options: TraceOptions, checks: Checks) -> JobArrays:
    """Build one job per pod."""
    table = checks.table
    whole, share = checks.count(_GPUS, "num_gpu", 0), checks.number(_SHARE, "gpu_milli") / 1000
    fits = np.where(whole == 1, (share > 0) & (share <= 1), share == np.minimum(whole, 1))
    checks.drop(~fits, Disagreement("with num_gpu and gpu_milli that disagree"))
    gpus, specs, qos = whole * share, table.words(_SPEC), table.words(_QOS)
    types = [
        tuple(dict.fromkeys([canonical(text.strip()) for text in spec.split("|") if text.strip()]))
        for spec in specs.words
    ]
    checks.drop(np.array(list(map(bool, types)))[specs.place] & (gpus == 0), Disagreement("with a gpu_spec but no GPU"))
    checks.note(
        np.array([bool(word) and word not in _PRIORITY for word in qos.words])[qos.place],
        "pods with an unknown qos (taken as priority 0)",
    )
    timed = ~(table.blank(_CREATED) & table.blank(_DELETED))
    created = np.where(timed, checks.number(_CREATED, "creation_time", where=timed), 0.0)
    waited = table.blank(_SCHEDULED)
    begun = np.where(waited, created, checks.number(_SCHEDULED, "scheduled_time", where=timed & ~waited))
    seconds = np.where(timed, checks.number(_DELETED, "deletion_time", where=timed) - begun, 0.0)
    checks.drop(timed & ((seconds < 0) | (begun < created) | (created < 0)), ImpossibleTimes("with times out of order"))
    checks.note(timed & waited, "pods that were never scheduled (run time counted from creation)")
    measured_on = [kinds[0] if len(kinds) == 1 else None for kinds in types]
    work = options.all_on_reference(seconds, measured_on, specs.place)
    priority = np.array([_PRIORITY.get(word, 0.0) for word in qos.words])[qos.place]
    return single_tasks(
        checks,
        created,
        np.where(work < options.floor_s, options.floor_s, work),
        np.ones(len(table)),
        (
            *(gpus, checks.number(_CPU, "cpu_milli") / 1000, checks.number(_MEMORY, "memory_mib") / _MIB_PER_GB),
            specs.place,
        ),
        lambda gpus, cpus, memory_gb, place: TaskKind(Demand(gpus, cpus, memory_gb, types[place] or None)),
        "pod",
        priority=optional(priority, 0.0),
    )


def _gpu_type(model: str) -> GpuType:
    name = canonical(model)
    if name in GPU_TYPES:
        return GPU_TYPES[name]
    if name in _UNDISCLOSED:
        return replace(GPU_TYPES["V100-16"], name=name, sources={})
    raise Dirty(f"with the unknown GPU model {clipped_repr(model)}; known: {', '.join((*GPU_TYPES, *_UNDISCLOSED))}")

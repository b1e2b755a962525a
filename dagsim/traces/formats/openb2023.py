"""Alibaba ``cluster-trace-gpu-v2023`` ("openb"): pod lists, with the node lists as the cluster.

Pods: ``name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time,
deletion_time, scheduled_time``, in seconds; the ``multigpu`` lists end after ``gpu_milli``.
``gpu_milli`` is per GPU. ``gpu_spec`` ``V100M16|V100M32`` allows either type; an empty one allows
any. Nodes: ``sn, cpu_milli, memory_mib, gpu, model``. Resampled lists are not in order of creation:
rows are sorted by it, externally beyond 262,144 rows (see ``gather``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dagsim.errors import ModelError, TraceError
from dagsim.model import GPU_TYPES, Cluster, GpuType, Job, Node, Task
from dagsim.model.gpu import canonical
from dagsim.traces.fields import MOST_GPUS, Dirty, count, finite_number
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rowwise import RowReader
from dagsim.traces.source import Source
from dagsim.workload.records import clipped, clipped_repr

__all__ = ["Openb2023", "read_openb_nodes"]

_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_TIMES = ("gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
_PRIORITY = {"LS": 2.0, "Guaranteed": 1.0, "Burstable": 1.0, "BE": 0.0}
_MIB_PER_GB = 1024
_UNDISCLOSED = ("G1", "G2", "G3")


class Openb2023(Reader):
    """One job of one task per pod. It occupies its GPUs, or its share of one, from scheduling to
    deletion.

    A pod that was never scheduled (pending) counts from its creation. All phases are kept: failed
    pods also held GPUs.
    """

    name = "openb2023"
    summary = "Alibaba cluster-trace-gpu-v2023 (openb): pods that share GPUs, nodes of 7 GPU types"
    uses = frozenset({"reference_gpu", "floor_s"})

    def recognises(self, source: Source) -> bool:
        return source.head(1)[0].lower().startswith(",".join(_COLUMNS))

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        rows = source.rows(report, _COLUMNS, _TIMES)
        return RowReader(source, report, 0, 8, lambda row, where: _job(row, options, report, where)).jobs(rows)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """The nodes of the first ``openb_node_list*`` beside the pods; ``read_openb_nodes`` reads another."""
        lists = source.beside("openb_node_list*")
        return read_openb_nodes(lists.files[0]) if lists.files else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        answers = {
            "work": "deletion - scheduled (or creation), on whichever GPU type the pod ran (the trace does not say)",
            "gpu types": "G1, G2 and G3 are undisclosed: rates, memory and power of a V100-16 are taken for them",
            "priority": "2 for qos LS, 1 for Guaranteed and Burstable, 0 for BE",
        }
        if _TIMES[3] not in source.head(1)[0].lower():
            answers["times"] = (
                "this list has none: all pods arrive at once, in the order listed, with work 0 (or floor_s)"
            )
        return answers


def read_openb_nodes(source: Source) -> Cluster:
    """The cluster of a node list (``sn, cpu_milli, memory_mib, gpu, model``).

    Raises:
        TraceError: A row is not a valid node; the message names ``file:line``.
    """
    nodes = []
    for place, (name, cpu, memory, gpus, model) in source.rows(
        ReadReport(strict=True), ("sn", "cpu_milli", "memory_mib", "gpu", "model"), header=True
    ):
        try:
            many = count(gpus or "0", "gpu", 0, MOST_GPUS)
            kind = _gpu_type(model) if many else None
            cpus, gigabytes = finite_number(cpu, "cpu_milli") / 1000, finite_number(memory, "memory_mib") / _MIB_PER_GB
            nodes.append(Node(name, kind, many, cpus, gigabytes))
        except (Dirty, ModelError) as error:
            raise TraceError(f"{source.where(place)}: a node {clipped(error)}") from None
    try:
        return Cluster(tuple(nodes), "openb2023")
    except ModelError as error:
        raise TraceError(f"{source}:1: {clipped(error)}") from None


def _job(row: list[str], options: TraceOptions, report: ReadReport, where: str) -> Job:
    """Job of a pod.

    Raises:
        Dirty: The row is unusable.
        ModelError: Its demand is invalid.
    """
    name, cpu, memory, num_gpu, gpu_milli, gpu_spec, qos, _, creation, deletion, scheduled = row
    whole, share = count(num_gpu, "num_gpu", 0), finite_number(gpu_milli, "gpu_milli") / 1000
    if not (0 < share <= 1 if whole == 1 else share == min(whole, 1)):
        raise Dirty("whose num_gpu and gpu_milli disagree")
    gpus = whole * share
    types = tuple(dict.fromkeys([canonical(text.strip()) for text in gpu_spec.split("|") if text.strip()]))
    if types and not gpus:
        raise Dirty("with a gpu_spec but no GPU")
    if qos and qos not in _PRIORITY:
        report.note("pods of an unknown qos (priority 0)", where)
    created = finite_number(creation, "creation_time") if creation or deletion else 0.0
    seconds = 0.0
    if creation or deletion:
        begun = finite_number(scheduled, "scheduled_time") if scheduled else created
        seconds = finite_number(deletion, "deletion_time") - begun
        if seconds < 0 or begun < created or created < 0:
            raise Dirty("whose times are out of order")
        if not scheduled:
            report.note("pods that were never scheduled (work counted from creation)", where)
    work = options.on_reference(seconds, types[0] if len(types) == 1 else None)
    task = Task(
        "pod",
        max(work, options.floor_s),
        gpus=gpus,
        cpus=finite_number(cpu, "cpu_milli") / 1000,
        memory_gb=finite_number(memory, "memory_mib") / _MIB_PER_GB,
        gpu_types=types or None,
    )
    return Job.single(name, task, created, priority=_PRIORITY.get(qos, 0.0))


def _gpu_type(model: str) -> GpuType:
    name = canonical(model)
    if name in GPU_TYPES:
        return GPU_TYPES[name]
    if name in _UNDISCLOSED:
        return replace(GPU_TYPES["V100-16"], name=name, sources={})
    raise Dirty(f"of the unknown GPU model {clipped_repr(model)}; known: {', '.join((*GPU_TYPES, *_UNDISCLOSED))}")

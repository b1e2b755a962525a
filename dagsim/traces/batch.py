"""Readers for batch systems that write one accounting record per finished job. Each format converts
its records to ``BatchJob``. The checks, the notes and the columns are the same for all formats.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from math import nan
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dagsim.model import Demand
from dagsim.model.arithmetic import whole_sum
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, JobTimes, arrivals, row_blocks, single_tasks
from dagsim.traces.sites import site_gpu
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.array_tools import optional
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

ENDED = frozenset({
    "COMPLETED", "TIMEOUT", "OUT_OF_MEMORY", "FAILED", "NODE_FAIL", "PREEMPTED", "DEADLINE", "CANCELLED", "REQUEUED",
    "BOOT_FAIL", "REVOKED", "SPECIAL_EXIT", "LAUNCH_FAILED",
})  # fmt: skip
"""States of a finished attempt."""
NOT_OVER = frozenset({
    "PENDING", "RUNNING", "SUSPENDED", "RESIZING", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT",
    "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD",
})  # fmt: skip
"""States of a waiting or running attempt."""


class BatchJob(NamedTuple):
    """A finished job of a batch system. Times are epoch seconds, or NaN if unknown."""

    id: str
    arrival_s: float
    start_s: float = nan
    end_s: float = nan
    ran_s: float = nan
    """How many seconds the job ran, if this differs from the time between start and end."""
    eligible_s: float = nan
    limit_s: float = nan
    pieces: int = 1
    """The number of equal parts that start together, each on one node."""
    gpus: float = 0.0
    """The GPUs, cores and memory of each part."""
    cpus: float = 1.0
    memory_gb: float = 0.0
    gpu_type: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    nodes: str = ""
    """The names of the job's nodes, separated by blanks."""
    fault: str = ""
    """The reason for dropping the job, if there is one."""
    remark: str = ""
    """A note about the job, if there is one."""


_AT = {name: place for place, name in enumerate(BatchJob._fields)}
_NUMBERS = range(_AT["arrival_s"], _AT["memory_gb"] + 1)


class BatchReader(Reader):
    """A reader that creates a gang for each job that ran, whether or not the job succeeded. Rows
    with the same id but different submission times are different jobs.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"gpus_per_task", "reference_gpu", "floor_s", "tenant", "gpu_names"})
    demand: ClassVar[str]
    """A description of the resources that a job holds."""

    @abstractmethod
    def records(self, source: Source, report: ReadReport) -> Iterator[tuple[int, Any]]:
        """Yield each record with its position in the source (see ``Source.where``). Each record
        counts as one row.
        """

    @abstractmethod
    def job(self, record: Any) -> BatchJob:
        """Convert a record to a job.

        Raises:
            Dirty: The record cannot be used.
        """

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        def read(report: ReadReport) -> Iterator[Table]:
            return tables_of(source, len(_AT), self._rows(source, report), _NUMBERS)

        times = partial(arrivals, column=_AT["arrival_s"])
        return row_blocks(read, times, partial(_jobs, options), report, most, apart=True)

    def _rows(self, source: Source, report: ReadReport) -> Iterator[tuple[int, tuple[Any, ...]]]:
        for place, record in self.records(source, report):
            report.rows += 1
            with report.dropping(partial(source.where, place)):
                yield place, tuple(self.job(record))

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "from start to end of the run, however it ended",
            "demand": self.demand,
            "tenant": f"the {options.tenant or 'account, or else the user'} (--read tenant=)",
        }


def _jobs(options: TraceOptions, checks: Checks) -> JobArrays:
    """Return a job with a single task for each record."""
    table, named = checks.table, options.named_gpus()
    checks.drop_for(table.words(_AT["fault"]))
    numbers = {name: table.numbers(_AT[name]) for name in BatchJob._fields[1 : _AT["memory_gb"] + 1]}
    arrival_s, start_s, end_s = (numbers[name] for name in ("arrival_s", "start_s", "end_s"))
    checks.drop(~(arrival_s >= 0), "without a time of submission")
    with np.errstate(invalid="ignore"):
        ran_s = np.where(np.isnan(numbers["ran_s"]), end_s - start_s, numbers["ran_s"])
        checks.drop(np.isnan(ran_s), "that never ran")
        checks.drop(ran_s < 0, ImpossibleTimes("with an end before the start"))
    remarks = table.words(_AT["remark"])
    for place, word in enumerate(remarks.words):
        if word:
            checks.note(remarks.place == place, word)
    times = JobTimes(arrival_s, start_s, end_s, ran_s, numbers["eligible_s"]).checked(checks)
    kinds = table.words(_AT["gpu_type"])
    measured_on = [site_gpu(word, named) if word else None for word in kinds.words]
    work = options.all_on_reference(ran_s, measured_on, kinds.place)
    limit = numbers["limit_s"]
    labels: dict[str, Any] = {name: table.words(_AT[name]) for name in ("user", "account", "partition")}
    nodes = table.words(_AT["nodes"])
    eligible_s = times.eligible_s
    return single_tasks(
        checks,
        arrival_s,
        np.where(work < options.floor_s, options.floor_s, work),
        numbers["pieces"],
        (numbers["gpus"], numbers["cpus"], numbers["memory_gb"], kinds.place, numbers["pieces"] > 1),
        lambda gpus, cpus, memory, place, gang: TaskKind(
            Demand(gpus or options.gpus_per_task or 0, cpus, memory, (kind,) if (kind := measured_on[place]) else None),
            gang,
        ),
        estimate=optional(np.where(limit > 0, limit, nan)),
        observed_start_s=optional(times.start_s),
        eligible_s=None if eligible_s is None else optional(eligible_s),
        observed_nodes=nodes.mapped(lambda text: tuple(text.split())),
        observed_gpu=Labels(kinds.place, tuple([kind or "" for kind in measured_on])),
        tenant=options.tenants(labels["user"], labels["account"], labels["partition"]),
        **labels,
    )


def even_parts(slots: dict[str, int], gpus: float = 0.0) -> tuple[int, float, float]:
    """Return the number of parts of a job, and the cores and GPUs of each part. There is one part
    per node if all nodes have the same number of slots. Otherwise, there is one part per slot.
    ``gpus`` is the number of GPUs per node.
    """
    counts = list(slots.values())
    if len(set(counts)) == 1:
        return len(counts), float(counts[0]), gpus
    total = whole_sum(counts)
    if gpus:
        held = int(gpus * len(counts))
        return held, total / held, 1.0
    return total, 1.0, 0.0

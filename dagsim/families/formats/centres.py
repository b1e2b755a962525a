"""Job tables that computing centres published from 2023 to 2026: CSV or Parquet, one row per job.

Each row has dates, a number of nodes, and totals of cores, GPUs and memory over these nodes. Only
the names of the columns differ, so one reader serves all tables. A format is a ``CentreLog`` with a
table of names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dagsim.model import Demand
from dagsim.traces.chunks import read_tables
from dagsim.traces.fields import Dirty, InvalidValue, memory_gb
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, dates, row_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import Form, csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import optional
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

_JOB, _SUBMIT, _START, _END, _NODES, _STATE, _CPUS, _GPUS, _MEMORY, _LIMIT, _USER, _ACCOUNT, _PARTITION, _QOS = range(
    14
)
_REQUIRED = 6
_WAITING = ("pending", "running", "requeued", "suspended")
_MOST = 1 << 24


class _Names(NamedTuple):
    """The names of the columns. A name is empty if the table lacks the column."""

    job: str
    submit: str
    start: str
    end: str
    nodes: str
    state: str
    cpus: str = ""
    gpus: str = ""
    memory: str = ""
    limit: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""

    def form(self) -> Form:
        """Return the layout of a table with these columns, in the order of this tuple."""
        named = [name or f"\0{place}" for place, name in enumerate(self[_REQUIRED:])]
        texts = (_JOB, _SUBMIT, _START, _END, _STATE, _MEMORY, _USER, _ACCOUNT, _PARTITION, _QOS)
        numbers = (_NODES, _CPUS, _GPUS, _LIMIT)
        return csv_form(self[:_REQUIRED], named, numbers=numbers, texts=texts, header=True)


class CentreLog(Reader):
    """Builds one single-task job per row, which runs from start to end, with one instance per node. A
    job whose GPUs cannot be divided evenly among its nodes has one instance per GPU instead.

    Jobs in all end states are kept, because failed jobs also held their nodes. Jobs that never
    started, or had not ended when the table was written, are dropped.
    """

    names: ClassVar[_Names]
    known_by: ClassVar[frozenset[str]]
    """Columns that only this format has, together."""
    limit_unit_s: ClassVar[float] = 1.0
    memory_unit_gb: ClassVar[float | None] = 1.0
    """GB in a unit of memory, or ``None`` for texts like ``256G``."""
    memory_per_node: ClassVar[bool] = False
    gpus_of_node: ClassVar[float] = 0.0
    """GPUs per node, if the table does not state GPUs."""
    note: ClassVar[str] = ""
    """Facts that the table does not contain."""
    uses = frozenset({"reference_gpu", "floor_s", "tenant"})

    def recognises(self, source: Source) -> bool:
        return self.known_by <= {name.strip().strip('"').lower() for name in source.head(1)[0].split(",")}

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        read: Callable[[ReadReport], Iterator[Table]] = partial(read_tables, source, self.names.form())
        return row_blocks(read, _times, partial(self._jobs, options), report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "end - start; a job holds its nodes whatever its final state",
            "gang": "an instance per node with an equal part of cores, GPUs and memory; all start together",
            "gpu type": f"{self.note or 'the table does not name it'}; jobs may use any type",
        }

    def _jobs(self, options: TraceOptions, checks: Checks) -> JobArrays:
        table = checks.table
        states = table.words(_STATE)
        ended = np.array([word.strip().lower() not in _WAITING for word in states.words])[states.place]
        checks.drop(~ended, "that had not ended")
        begun = ended & ~table.blank(_START) & ~table.blank(_END)
        checks.drop(ended & ~begun, "that never ran")
        submitted = checks.date(_SUBMIT, self.names.submit, begun)
        start, end = checks.date(_START, self.names.start, begun), checks.date(_END, self.names.end, begun)
        with np.errstate(invalid="ignore"):
            checks.drop(begun & ((end < start) | (start < submitted)), ImpossibleTimes("with times out of order"))
        nodes = checks.count(_NODES, self.names.nodes, where=begun)
        cpus, gpus = self._total(checks, _CPUS), self._total(checks, _GPUS)
        if not table.has(_GPUS):
            gpus = nodes * self.gpus_of_node
        memory = self._memory(checks)
        with np.errstate(divide="ignore", invalid="ignore"):
            pieces = np.where((gpus > 0) & (gpus % nodes != 0), gpus, nodes)
            per_node = np.where(pieces == nodes, 1.0, nodes / pieces)
            memory = memory * per_node if self.memory_per_node else memory / pieces
            share = (gpus / pieces, cpus / pieces, memory, pieces > 1)
        checks.drop(begun & ~(pieces <= _MOST), "with an impossible number of GPUs")
        work = options.all_on_reference(end - start, [None], np.zeros(len(table), np.int64))
        limit = checks.number(_LIMIT, "time limit", 0.0) if table.has(_LIMIT) else np.zeros(len(table))
        labels: dict[str, Any] = {
            name: table.words(column) if table.has(column) else None
            for name, column in (("user", _USER), ("account", _ACCOUNT), ("partition", _PARTITION), ("qos", _QOS))
        }
        return single_tasks(
            checks,
            submitted,
            np.where(work < options.floor_s, options.floor_s, work),
            pieces,
            share,
            lambda gpus, cpus, memory, gang: TaskKind(Demand(gpus, cpus, memory), gang),
            estimate=optional(np.where(limit > 0, limit * self.limit_unit_s, np.nan)),
            observed_start_s=start,
            tenant=_tenant(options, labels),
            **labels,
        )

    def _total(self, checks: Checks, column: int) -> np.ndarray:
        """Return a total over the nodes of each job, (n,) float64, or 0 if the table lacks the
        column.
        """
        if not checks.table.has(column):
            return np.zeros(len(checks.table))
        return checks.count(column, self.names[column], 0, _MOST, blank=0.0)

    def _memory(self, checks: Checks) -> np.ndarray:
        """Return (n,) float64: memory in GB, or 0 if there is none."""
        if not checks.table.has(_MEMORY):
            return np.zeros(len(checks.table))
        words = checks.table.words(_MEMORY)
        sizes, faulty = np.zeros(len(words.words)), np.zeros(len(words.words), bool)
        for place, word in enumerate(words.words):
            try:
                if word.strip():
                    unit = self.memory_unit_gb
                    sizes[place] = memory_gb(word) if unit is None else unit * memory_gb(f"{word}G")
            except Dirty:
                faulty[place] = True
        checks.drop(faulty[words.place], InvalidValue(f"with an invalid size in {self.names.memory}"))
        values: np.ndarray = sizes[words.place]
        return values


def _tenant(options: TraceOptions, labels: dict[str, Labels | None]) -> Labels | None:
    """Return the tenant of each job. By default, it is the account or, without one, the user."""
    wanted = (options.tenant,) if options.tenant is not None else ("account", "user")
    return next((label for name in wanted if (label := labels[name]) is not None), None)


def _times(table: Table) -> np.ndarray:
    """Return (n,) float64: the arrival of each row's job, or 0 if it cannot be read."""
    seconds: np.ndarray = np.nan_to_num(dates(table, _SUBMIT), nan=0.0)
    return seconds


class Acme(CentreLog):
    """Shanghai AI Laboratory (Hu et al., NSDI 2024). In Kalos, the column ``duration`` counts from
    submission, so work is taken from the dates."""

    name = "acme"
    summary = "Acme 2023 (Shanghai AI Laboratory): trace_seren.csv and trace_kalos.csv, LLM development on A100s"
    names = _Names(
        *("job_id", "submit_time", "start_time", "end_time", "node_num", "state", "cpu_num", "gpu_num"),
        memory="mem_per_pod_GB",
        user="user",
        partition="type",
    )
    known_by = frozenset({"job_id", "node_num", "gpu_num", "cpu_num", "type", "gpu_time"})
    memory_per_node = True
    note = "A100-80 in both clusters; the table does not name it"


class Eagle(CentreLog):
    """NREL's Eagle, 2018 to 2023 (OEDI submission 5860)."""

    name = "eagle"
    summary = "Eagle 2018-2023 (NREL): eagle_data.parquet, 11 million Slurm jobs"
    names = _Names(
        *("job_id", "submit_time", "start_time", "end_time", "nodes_req", "state", "processors_req", "gpus_req"),
        *("", "wallclock_req", "user", "account", "partition", "qos"),
    )
    known_by = frozenset({"job_id", "processors_req", "nodes_req", "wallclock_req", "run_time"})
    note = (
        "V100-16 on the GPU nodes; gpus_req is taken as the total of a job, and memory is left out, "
        "because it has no unit"
    )


class Kestrel(CentreLog):
    """NLR's Kestrel, 2023 to 2025 (OEDI submission 8643)."""

    name = "kestrel"
    summary = "Kestrel 2023-2025 (NLR): kestrel_jobs_*.parquet, 10.6 million Slurm jobs"
    names = _Names(
        *("id", "submit_time", "start_time", "end_time", "nodes_req", "state_simple", "processors_req"),
        *("gpus_requested", "memory_req", "wallclock_req", "user_hash", "account_hash", "partition", "qos"),
    )
    known_by = frozenset({"id", "processors_req", "nodes_req", "wallclock_req", "wallclock_used", "user_hash"})
    memory_unit_gb = None
    note = "H100-80 on the GPU nodes; the table does not name it"


class FrontierJobs(CentreLog):
    """OLCF's Frontier, 2024 to 2025 (doi 10.13139/OLCF/3013979): whole nodes of four MI250X."""

    name = "frontier"
    summary = "Frontier 2024-2025 (OLCF): frontier-completed-job-info.parquet, 152,400 whole-node jobs"
    names = _Names(
        *("job_idx", "submit_time", "start_time", "end_time", "node_count", "completion_state"),
        user="user_id",
        account="project_id",
        partition="queue",
    )
    known_by = frozenset({"job_idx", "node_count", "completion_state"})
    gpus_of_node = 4.0
    note = "four MI250X per node, which jobs hold whole"


class Pm100(CentreLog):
    """CINECA's Marconi100, May to October 2020 (Antici et al. 2023)."""

    name = "pm100"
    summary = "PM100 2020 (CINECA Marconi100): job_table.parquet, Slurm jobs with measured power"
    names = _Names(
        *("job_id", "submit_time", "start_time", "end_time", "num_nodes_alloc", "job_state", "num_cores_alloc"),
        *("num_gpus_alloc", "mem_alloc", "time_limit", "user_id", "", "partition", "qos"),
    )
    known_by = frozenset({"job_id", "num_nodes_alloc", "num_gpus_alloc", "job_state"})
    limit_unit_s = 60.0
    note = "V100-16, four per node; the table does not name it"


class Fdata(CentreLog):
    """RIKEN's Fugaku, 2021 to 2024 (Antici et al., Scientific Data 2025)."""

    name = "fdata"
    summary = "F-DATA 2021-2024 (RIKEN Fugaku): YY_MM.parquet, 24 million jobs without GPUs"
    names = _Names(*("jid", "adt", "sdt", "edt", "nnumr", "exit state", "cnumr"), limit="elpl", user="usr")
    known_by = frozenset({"jid", "adt", "sdt", "edt", "nnumr", "cnumr"})
    note = "nodes without GPUs"

"""Slurm's queue at one moment: ``squeue --json``, ``scontrol show job``, or ``squeue`` with enough
columns.

Each job in the queue is converted to a row of ``sacct`` and read as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.families.slurm.accounting.sacct import Sacct
from dagsim.families.slurm.queue.queue_listings import QUEUE_COMMAND, is_squeue, lacking_columns
from dagsim.families.slurm.queue.slurm_queue import queue_tables, squeue_instant_s, waiting_jobs
from dagsim.traces.reader import JobBlock, WaitingJob
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table


class Squeue(Sacct):
    """The running and waiting jobs. The simulation begins at the moment when the file was printed:
    running jobs have been on their nodes since their start, and end at their time limits; waiting
    jobs take as long as their limits.

    Jobs that are held, are ending, or wait for a job that the file lacks are skipped.
    """

    name = "squeue"
    whole_folders = False
    summary = "Slurm's queue at one moment: squeue --json, scontrol show job, squeue -o"
    uses = frozenset(
        {"gpus_per_task", "reference_gpu", "floor_s", "tenant", "demand", "mig", "shards", "gpu_names", "timezone"}
    )

    def tables(self, source: Source, report: ReadReport, options: TraceOptions) -> Iterator[Table]:
        return queue_tables(source, report, options)

    def recognises(self, source: Source) -> bool:
        return is_squeue(source)

    def nearly(self, source: Source) -> str | None:
        if missing := lacking_columns(source):
            return f"it looks like the output of squeue, which lacks {missing}; use {QUEUE_COMMAND}"
        return None

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        for block in super().blocks(source, options, report, most):
            jobs = block.jobs
            assert jobs.observed_nodes is not None
            nowhere = np.array([not nodes for nodes in jobs.observed_nodes.words])[jobs.observed_nodes.place]
            start_s = np.full(len(jobs), np.nan) if jobs.observed_start_s is None else jobs.observed_start_s
            yield block._replace(jobs=replace(jobs, observed_start_s=np.where(nowhere, np.nan, start_s)))

    def waiting(self, source: Source, zone: ZoneInfo | None = None) -> Iterable[WaitingJob]:
        return waiting_jobs(source, zone)

    def begins_s(self, source: Source, options: TraceOptions) -> float | None:
        """Return the time at which the queue was printed."""
        return squeue_instant_s(source, options.zone())

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "every job runs to its time limit, or for a year without one; real jobs often end earlier",
            "tenant": f"the {options.tenant or 'account, or else the user'} (--read tenant=)",
            "demand": f"what was {options.demand or 'allocated'} (waiting jobs: requested), in equal parts on each "
            "node; any GPU type, unless the job requested one",
        }

"""Microsoft ITP 2021 (ElasticFlow, ASPLOS 2023): ``job_id, submission_time, duration, num_gpu``, in seconds.

There is one CSV file per cluster. The ``elasticflow-traces`` variant adds ``num_iteration,
model_name, deadline, batch_size``, which its authors drew at random. Jobs are sorted by submission.
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
from dagsim.workload.array_tools import optional
from dagsim.workload.arrays import JobArrays, TaskKind

_COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")
_DRAWN = ("model_name", "deadline", "batch_size")
_JOB, _SUBMITTED, _DURATION, _GPUS, _MODEL, _DEADLINE, _BATCH = range(7)
_FORM = csv_form(
    _COLUMNS, _DRAWN, numbers=(_SUBMITTED, _DURATION, _GPUS, _DEADLINE, _BATCH), texts=(_JOB, _MODEL), header=True
)


class Itp(Reader):
    """Builds one gang per job, with ``num_gpu`` instances of one GPU each, which may be on several
    nodes.
    """

    name = "itp"
    summary = "Microsoft ITP 2021 (ElasticFlow): DNN training jobs of 10 clusters"
    uses = frozenset({"floor_s"})

    def recognises(self, source: Source) -> bool:
        header = source.head(1)[0].lower().split(",")
        return set(_COLUMNS) <= {name.strip() for name in header}

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        read, times = partial(read_tables, source, _FORM), partial(arrivals, column=_SUBMITTED)
        return row_blocks(read, times, partial(_jobs, options), report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "duration, on whichever GPU type ran it (the trace does not say)",
            "gang": "the GPUs of a job start together, on any nodes",
        }


def _jobs(options: TraceOptions, checks: Checks) -> JobArrays:
    """Build one job per row."""
    table = checks.table
    submitted, seconds = checks.number(_SUBMITTED, "submission_time"), checks.number(_DURATION, "duration")
    checks.drop(submitted < 0, ImpossibleTimes("with a negative submission_time"))
    checks.drop(seconds < 0, ImpossibleTimes("with a negative duration"))
    gpus = checks.count(_GPUS, "num_gpu")
    deadline = checks.number(_DEADLINE, "deadline", where=~table.blank(_DEADLINE))
    checks.note(deadline < submitted, ImpossibleTimes("whose deadline is before their submission (left out)"))
    batch = np.where(table.blank(_BATCH), 0, checks.count(_BATCH, "batch_size", where=~table.blank(_BATCH)))
    models = table.words(_MODEL)
    return single_tasks(
        checks,
        submitted,
        np.where(seconds < options.floor_s, options.floor_s, seconds),
        gpus,
        (gpus > 1, models.place, batch),
        lambda gang, model, batch: TaskKind(Demand(), gang, models.words[model] or None, int(batch) or None),
        deadline_s=optional(np.where(deadline >= submitted, deadline, np.inf), np.inf),
    )

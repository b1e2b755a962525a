"""The reader of a snapshot of PBS's queue, as ``qstat -f`` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.families.pbs.pbs_jobs import Pbs
from dagsim.families.pbs.pbs_records import record_row
from dagsim.families.pbs.qstat_listing import (
    ENDED_STATES,
    QUEUED_STATES,
    RUNNING_STATES,
    SUSPENDED_STATE,
    epoch_text,
    is_qstat,
    is_queue,
    listed_jobs,
    printed_s,
    qstat_jobs,
)
from dagsim.model import UNLIMITED_S
from dagsim.traces.fields import finite_number
from dagsim.traces.reader import JobBlock, WaitingJob
from dagsim.traces.report import ReadReport
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.times import duration_s
from dagsim.traces.trace_options import TraceOptions


class Qstat(Pbs):
    """The running and waiting jobs in PBS. The simulation begins when the queue was printed: running
    jobs have been on their nodes since they started, and end at their time limits; waiting jobs
    take as long as their limits.
    """

    name = "qstat"
    summary = "PBS's queue at one moment: qstat -f, or qstat -f -F json"
    uses = frozenset({"gpus_per_task", "reference_gpu", "floor_s", "tenant", "gpu_names", "timezone"})

    def records(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[NumberedRow]:
        return _queued(source, options, report)

    def recognises(self, source: Source) -> bool:
        return is_qstat(source) and is_queue(source)

    def waiting(self, source: Source, zone: ZoneInfo | None = None) -> Iterable[WaitingJob]:
        for _, id, job in listed_jobs(source):
            if job.get("job_state", "") in f"{QUEUED_STATES}H" and "[]" not in id:
                name, own = id.partition(".")[0], (job.get("euser") or job.get("Job_Owner", "").partition("@")[0])
                after = _parents(job)
                reason = "Dependency" if after else _hold_of(job) or job.get("comment", "")
                yield WaitingJob(name, reason, None, own, job.get("queue", ""), after)

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        for block in super().blocks(source, options, report, most):
            jobs, nodes = block.jobs, block.jobs.observed_nodes
            assert nodes is not None
            assert jobs.observed_start_s is not None
            waits = np.array([not names for names in nodes.words])[nodes.place]
            yield block._replace(jobs=replace(jobs, observed_start_s=np.where(waits, np.nan, jobs.observed_start_s)))

    def begins_s(self, source: Source, options: TraceOptions) -> float | None:
        return printed_s(source, options)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "every job runs to its time limit, or for a year without one; real jobs often end earlier",
            "tenant": f"the {options.tenant or 'account, or else the user'} (--read tenant=)",
            "dates": f"dates of qstat are in {options.timezone or 'UTC'} (--read timezone=)",
        }


def _parents(job: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ids of the jobs that a held job waits for (``depend =
    afterok:12.server@server``)."""
    holds = job.get("job_state") == "H" and "u" not in job.get("Hold_Types", "")
    return tuple(re.findall(r"(?<=:)\d+", job.get("depend", "").partition("before")[0])) if holds else ()


def _hold_of(job: Mapping[str, str]) -> str:
    """Return Slurm's name for the reason why a job is held. The result is empty if the job is not held."""
    if job.get("job_state") != "H":
        return ""
    return "JobHeldUser" if "u" in job.get("Hold_Types", "u") else "JobHeldAdmin"


_LEAST_S = 60.0
"""Time left for a suspended job beyond its limit."""


def _queued(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[NumberedRow]:
    """Yield the rows of the running and waiting jobs, as if each job took as long as its time
    limit."""
    now_s, zone = printed_s(source, options), options.zone()
    queued_s = [float(epoch_text(job.get("qtime", ""), zone) or now_s) for _, _, job in listed_jobs(source)]
    first_s = max(min(queued_s, default=now_s) - 1, 0.0)
    for place, id, fields in qstat_jobs(source, options, report):
        state = fields.get("job_state", "")
        if state not in RUNNING_STATES + QUEUED_STATES or "[]" in id:
            reasons = {"H": "that are held", "B": "of arrays as a whole"} | dict.fromkeys(
                ENDED_STATES, "of finished jobs"
            )
            report.skip("of arrays as a whole" if "[]" in id else reasons.get(state, "in other states"))
            continue
        with report.dropping(partial(source.where, place)):
            limit_s = duration_s(fields.get("Resource_List.walltime", ""), "walltime") or UNLIMITED_S
            arrival_s = finite_number(fields.get("qtime") or fields["ctime"], "qtime")
            start_s = now_s
            if state in RUNNING_STATES:
                start_s = finite_number(fields["start"], "stime")
            elif state in SUSPENDED_STATE:
                # a suspended job resumes before any waiting job starts, and has the rest of its
                # time limit left
                ran_s = duration_s(fields.get("resources_used.walltime", ""), "walltime") or 0.0
                limit_s, arrival_s = max(limit_s - ran_s, _LEAST_S), first_s
            elif begin := epoch_text(fields.get("Execution_Time", ""), zone):  # qsub -a
                start_s = max(now_s, float(begin))
                fields["etime"] = begin
            fields |= {"start": str(start_s), "end": str(start_s + limit_s), "resources_used.walltime": ""}
            if state in QUEUED_STATES:
                fields["exec_host"] = fields["exec_gpus"] = ""
            yield place, record_row(id, arrival_s, "E", fields)

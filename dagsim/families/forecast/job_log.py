"""A log in the form that forecasts use: what each job requested, and when its outcome became
known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import TraceError
from dagsim.families.forecast.time_spans import WEEK_S
from dagsim.model import UNLIMITED_S
from dagsim.traces import TraceOptions, reader
from dagsim.traces.reader import Submissions
from dagsim.traces.source import Source
from dagsim.traces.trace import Trace
from dagsim.workload.array_tools import objects
from dagsim.workload.arrays import JobArrays, Labels

_PART = re.compile(r"^([^/]+/[^/]+)/\d+$")
"""The id of a part of a workload, ``namespace/name/0``."""
ACCOUNTING = "sacct"
"""The format of the accounting records that go with a snapshot."""


@dataclass(frozen=True, slots=True)
class JobLog(Submissions):
    """The n submissions in a log, in order, on the log's own clock (``origin_s`` is 0), with their
    limits and users.

    ``QueueState`` takes from the columns only what was known at its time.
    """

    limit_s: np.ndarray
    """(n,) float64: time limit."""
    limited: np.ndarray
    """(n,) bool: True if the log states a time limit below a year; else ``limit_s`` is an
    assumption."""
    ends_s: float
    """The end of the log."""
    user: Sequence[str] = field(default=())
    account: Sequence[str] = field(default=())
    partition: Sequence[str] = field(default=())

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def submit_s(self) -> np.ndarray:
        """(n,) float64: when each job was submitted."""
        return self.jobs.arrival_s

    @property
    def run_s(self) -> np.ndarray:
        """(n,) float64: how long each job ran, or NaN if it did not run or its end is unknown."""
        seconds: np.ndarray = self.end_s - self.start_s
        return seconds

    @classmethod
    def of(cls, jobs: JobArrays, origin_s: float = 0.0, start_s: np.ndarray | None = None) -> JobLog:
        """Build the log from jobs with observed starts. Each job runs for as long as its work
        takes. Its estimate becomes its limit, which is a week if there is no estimate. The
        components of a heterogeneous job are separate jobs in one submission.

        Raises:
            TraceError: The jobs have no starts, or tasks that wait for each other.
        """
        seen_s = jobs.observed_start_s if start_s is None else start_s
        if seen_s is None or (np.isnan(seen_s).all() and start_s is None):
            raise TraceError("the log contains no start times, so there are no waits to forecast")
        submission = jobs.ids.tolist()
        if (np.diff(jobs.first) != 1).any():
            if len(jobs.parent):
                raise TraceError("forecasts need a log in which no task waits for another")
            components = np.diff(jobs.first)
            submission, seen_s = np.repeat(jobs.ids, components).tolist(), np.repeat(seen_s, components)
            jobs = jobs.apart()
        limit_s = np.full(len(jobs), nan) if jobs.estimate is None else jobs.estimate
        limited = limit_s < UNLIMITED_S
        limit_s = np.maximum(np.where(np.isfinite(limit_s), limit_s, WEEK_S), 1.0)
        eligible_s = jobs.arrival_s if jobs.eligible_s is None else jobs.eligible_s
        asked = replace(
            jobs,
            arrival_s=jobs.arrival_s + origin_s,
            work=limit_s,
            estimate=limit_s,
            observed_start_s=None,
            eligible_s=None,
            observed_nodes=None,
        )
        begin_s = seen_s + origin_s
        end_s = begin_s + jobs.work
        return cls(
            asked,
            0.0,
            begin_s,
            end_s,
            np.where(np.isnan(eligible_s), jobs.arrival_s, eligible_s) + origin_s,
            asked.arrival_s,
            [()] * len(jobs),
            jobs.observed_nodes or Labels(np.zeros(len(jobs), np.int32), ((),)),
            objects(submission),
            np.full(len(jobs), nan),
            np.zeros(len(jobs), bool),
            limit_s,
            limited,
            float(np.nanmax(np.concatenate([end_s, asked.arrival_s]))),
            *_names(jobs),
        )

    def beside(self, history: JobLog, t: float) -> JobLog:
        """Return the jobs of this log together with those jobs of another log that had ended by
        time ``t`` and are not in this log."""
        own = set(self.jobs.ids.tolist())
        past = (history.end_s <= t) & np.array([id not in own for id in history.jobs.ids.tolist()], bool)
        return JobLog.joined([history.chosen(np.flatnonzero(past)), self], t)

    def chosen(self, jobs: np.ndarray) -> JobLog:
        """Return a log of the jobs at these indices, which must be in order of submission."""
        columns: dict[str, Any] = {name: getattr(self, name)[jobs] for name in _COLUMNS}
        columns |= {name: [getattr(self, name)[job] for job in jobs.tolist()] for name in _LISTS}
        return replace(self, jobs=self.jobs.chosen(jobs), nodes=self.nodes.chosen(jobs), **columns)

    @classmethod
    def joined(cls, several: Sequence[JobLog], ends_s: float) -> JobLog:
        """Combine several logs into one, on a common clock and in order of submission."""
        jobs = JobArrays.joined([log.jobs for log in several])
        order = np.argsort(jobs.arrival_s, kind="stable")
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(log, name) for log in several])[order] for name in _COLUMNS
        }
        for name in _LISTS:
            words = [word for log in several for word in getattr(log, name)]
            columns[name] = [words[job] for job in order.tolist()]
        nodes = [names for log in several for names in log.nodes.tolist()]
        labels = Labels.numbered([nodes[job] for job in order.tolist()])
        return cls(jobs.chosen(order), 0.0, nodes=labels, ends_s=ends_s, **columns)


_COLUMNS = [column.name for column in fields(JobLog) if column.type == "np.ndarray"]
_LISTS = [column.name for column in fields(JobLog) if str(column.type).startswith("Sequence")]


def _names(jobs: JobArrays) -> tuple[list[str], list[str], list[str]]:
    """Return the user, the account and the partition of each job. The tenant serves as the account
    if there is none.
    """
    listed = {
        name: [""] * len(jobs) if (labels := getattr(jobs, name)) is None else labels.tolist()
        for name in ("user", "account", "partition", "tenant")
    }
    account = [own or tenant for own, tenant in zip(listed["account"], listed["tenant"], strict=True)]
    user = [own or tenant for own, tenant in zip(listed["user"], account, strict=True)]
    return user, account, listed["partition"]


def read_snapshot(trace: Trace) -> tuple[JobLog, float]:
    """Read the jobs in a listing of a queue, and the time of the listing. A job that is not
    eligible yet has a begin time.

    Raises:
        TraceError: The file cannot be read, or is not a listing of a queue.
    """
    jobs, t = trace.unscaled(), trace.begins_s
    if t is None:
        raise TraceError(
            f"{trace.source}: not a snapshot of a queue; give the output of squeue --json or kubectl get pods -o json"
        )
    start_s = np.full(len(jobs), nan) if jobs.observed_start_s is None else jobs.observed_start_s
    stated_s = np.full(len(jobs.work), nan) if jobs.estimate is None else jobs.estimate
    limited = stated_s < UNLIMITED_S
    # for jobs without a stated limit, use the true run time, as the reader does
    jobs = replace(jobs, estimate=np.where(np.isfinite(stated_s), stated_s, jobs.work))
    log = JobLog.of(jobs, trace.meta["origin_s"], start_s)
    begin_s = np.where(log.eligible_s > t, log.eligible_s, log.begin_s)
    array = objects([_PART.sub(r"\1", id.partition("_")[0]) for id in log.array.tolist()])
    return replace(log, array=array, begin_s=begin_s, limited=limited, ends_s=t), t


def read_job_log(path: Path, options: TraceOptions, format: str = ACCOUNTING) -> JobLog | None:
    """Read a log in a format that states every submission, including those cancelled while waiting.
    Return None for other formats.

    Raises:
        TraceError: The log cannot be read, or nothing in it can be used.
    """
    read = getattr(reader(format), "submissions", None)  # Plug-ins may lack this method.
    told = None if read is None else read(Source(path), options)
    if told is None:
        return None
    log = JobLog.of(replace(told.jobs, observed_start_s=np.zeros(len(told.jobs))), told.origin_s)
    ends_s = float(np.nanmax(np.concatenate([told.end_s, told.start_s, log.submit_s])))
    outcome = {
        column.name: getattr(told, column.name) for column in fields(told)[2:]
    }  # all fields except ``jobs`` and ``origin_s``
    return replace(log, ends_s=ends_s, **outcome)

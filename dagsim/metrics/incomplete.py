"""Count the jobs that did not complete in a run, by reason. Jobs that were killed at their time
limits do not count, because they ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dagsim.model import Kind, RejectReason
from dagsim.model.arithmetic import whole_sum
from dagsim.model.log import Schedule
from dagsim.text import count_of, on_one_line

_FIRST = 3
"""Maximum number of jobs to name for each reason."""
_MOST_REASONS, _MOST_KEPT = 4, 50
"""Maximum number of reasons in a sentence, and in a run folder."""
_ENDED = "it was running or waiting when the simulation ended"


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The number of jobs that were rejected, or are unfinished at the end, for the same reason."""

    why: str
    rejected: bool
    count: int
    first: tuple[str, ...]
    """The ids of the first few of these jobs."""
    sizes: str = ""
    """The size of the first job and of the cluster, if these jobs are too large."""


def incomplete_jobs(schedule: Schedule, unfinished: Mapping[int, str]) -> list[Incomplete]:
    """Group the jobs that did not complete by reason, with the most frequent reason first.
    ``unfinished`` maps job numbers to the known reasons for jobs that are still in the system at
    the end.
    """
    rows = schedule.log.rows()
    rejected = rows[(rows["kind"] == Kind.REJECTED) & (rows["value"] != RejectReason.TIME_LIMIT)]
    left = np.ones(len(schedule.jobs), bool)
    left[rows["job"][np.isin(rows["kind"], (Kind.COMPLETED, Kind.REJECTED))]] = False
    numbers: dict[tuple[str, bool], list[int]] = {}
    for number, reason in zip(rejected["job"].tolist(), rejected["value"].tolist(), strict=True):
        numbers.setdefault((RejectReason(reason).words, True), []).append(number)
    for number in np.flatnonzero(left).tolist():
        numbers.setdefault((unfinished.get(number, _ENDED), False), []).append(number)
    reasons = [
        Incomplete(
            why,
            is_rejected,
            len(jobs),
            tuple([schedule.jobs[number].id for number in jobs[:_FIRST]]),
            _sizes(schedule, jobs[0]) if why == RejectReason.TOO_LARGE.words else "",
        )
        for (why, is_rejected), jobs in numbers.items()
    ]
    return sorted(reasons, key=lambda reason: -reason.count)


def _sizes(schedule: Schedule, number: int) -> str:
    """Compare the GPUs that a job requests with those of the largest node and of the cluster."""
    job, gpus = schedule.jobs[number], [node.gpus for node in schedule.cluster.nodes]
    largest, whole = max(gpus, default=0), whole_sum(gpus)
    asked = f"a task of {job.id} requests {job.gpus:,g} GPUs"
    if job.gpus <= largest:
        return (
            f"{asked} and the largest node has {largest:,}, so compare its CPUs, memory, licences, GPU types and "
            "partition with the cluster's"
        )
    return f"{asked}, the largest node has {largest:,} and the cluster {whole:,}"


def incomplete_facts(schedule: Schedule, unfinished: Mapping[int, str]) -> dict[str, Any]:
    """Return the incomplete jobs and the total number of jobs, as plain values under the key
    ``incomplete``. If all jobs completed, return an empty mapping.
    """
    reasons = incomplete_jobs(schedule, unfinished)
    if not reasons:
        return {}
    total = sum(reason.count for reason in reasons)
    listed = [{key: value for key, value in asdict(reason).items() if value != ""} for reason in reasons[:_MOST_KEPT]]
    return {"incomplete": {"jobs": len(schedule.jobs), "count": total, "reasons": listed}}


def incomplete_sentence(facts: Iterable[Mapping[str, Any]]) -> str:
    """Return one sentence about the incomplete jobs in all runs, or an empty text if there are
    none. ``facts`` contains the facts about each run. A run without the key ``incomplete`` has no
    incomplete jobs.
    """
    runs = [fact["incomplete"] for fact in facts if "incomplete" in fact]
    if not runs:
        return ""
    counts: dict[tuple[bool, str], int] = {}
    first: dict[tuple[bool, str], list[str]] = {}
    sizes: dict[tuple[bool, str], str] = {}
    for reason in (reason for run in runs for reason in run["reasons"]):
        key = reason["rejected"], reason["why"]
        counts[key] = counts.get(key, 0) + reason["count"]
        first.setdefault(key, list(reason["first"]))
        sizes.setdefault(key, f"; {reason['sizes']}" if reason.get("sizes") else "")
    sentences = [
        f"{count:,} {'rejected' if key[0] else 'unfinished'}: {key[1]} ({', '.join(first[key])}"
        f"{' ...' if count > len(first[key]) else ''}{sizes[key]})"
        for key, count in sorted(counts.items(), key=lambda pair: -pair[1])
    ]
    more = f"; and {len(sentences) - _MOST_REASONS:,} more reasons" if len(sentences) > _MOST_REASONS else ""
    total, jobs = whole_sum(run["count"] for run in runs), whole_sum(run["jobs"] for run in runs)
    of_runs = f" of {count_of(len(runs), 'run')}" if len(runs) > 1 else ""
    reasons = f"{'; '.join(sentences[:_MOST_REASONS])}{more}"
    return on_one_line(
        f"not completed: {total:,} of {count_of(jobs, 'job')}{of_runs} ({_share(total / jobs)}): {reasons}"
    )


def _share(part: float) -> str:
    return f"{part:.0%}" if part >= 0.1 else f"{100 * part:.2g}%"

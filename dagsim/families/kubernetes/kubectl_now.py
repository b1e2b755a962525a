"""The reader of the pods and workloads that run or wait at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from dagsim.families.kubernetes.api.cluster_objects import ClusterObjects, object_kind
from dagsim.families.kubernetes.api.pods import PodFate, PodRecord, pod
from dagsim.families.kubernetes.kubectl import Kubernetes
from dagsim.families.kubernetes.kueue.workload_records import kueue_workload
from dagsim.families.kubernetes.pod_jobs import (
    FoundPiece,
    PodJobs,
    bound_times_s,
    counted_pieces,
    objects_around,
)
from dagsim.model import Job
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import Dirty
from dagsim.traces.reader import WaitingJob
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions

_USUAL_S = 3600.0
"""Time in seconds that waiting jobs are assumed to take if no job is running."""


class _KeptPieces(NamedTuple):
    """The running and waiting pods and pod sets of each job, and from what they were read."""

    source: Source
    options: TraceOptions
    report: ReadReport
    groups: list[list[FoundPiece]]


class KubernetesNow(Kubernetes):
    """The jobs that are running or waiting when ``kubectl get`` is called, which is when the
    simulation begins. Running pods have occupied their nodes since their containers started.

    The remaining time of a job is derived from its time limit. Without a limit, a running job is
    assumed to take twice its current age, which is the median if the tail of the run times falls as
    1 / t. A waiting job is assumed to take the median of the running ones. Pods and pod sets with
    different demands become separate jobs.
    """

    name = "kubernetes-now"
    summary = "Kubernetes at one moment: kubectl get pods,workloads -A -o json (name it with --format)"
    uses = Kubernetes.uses - {"keep_partial", "count_pull"}

    def __init__(self) -> None:
        self._kept: _KeptPieces | None = None
        """What ``begins_s`` has read, until ``read`` uses it. A simulation needs both methods, and
        reading takes most of the time. In any other order, ``read`` reads the source itself."""

    def recognises(self, source: Source) -> bool:
        return False

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        reading, groups = self._present(source, options, report)
        now_s = _instant_s(entry.piece for entries in groups for entry in entries)
        running = [entry.piece for entries in groups for entry in counted_pieces(_with_fate(entries, PodFate.RUNS))]
        usual_s = median([piece.limit_s or 2 * piece.age_s(now_s) for piece in running] or [_USUAL_S])
        jobs = [
            job
            for entries in groups
            for fate in (PodFate.RUNS, PodFate.WAITS)
            for job in reading.jobs_now(_with_fate(entries, fate), now_s, usual_s)
        ]
        yield from sorted(jobs, key=lambda job: job.arrival_s)

    def waiting(self, source: Source, zone: ZoneInfo | None = None) -> Iterable[WaitingJob]:
        """Yield the waiting pods and workloads, each with the reason why it waits."""
        for _, object in elements(source, "items"):
            kind = object_kind(object)
            try:
                pieces = [pod(object)] if kind == "Pod" else list(kueue_workload(object)) if kind == "Workload" else []
            except Dirty:
                continue
            if any(piece.fate is PodFate.WAITS for piece in pieces):
                yield WaitingJob(pieces[0].name, _reason(object, kind))

    def begins_s(self, source: Source, options: TraceOptions) -> float | None:
        """Return the time of the last event in any object, plus one second."""
        _, groups = self._present(source, options, report := ReadReport())
        self._kept = _KeptPieces(source, options, report, groups)
        pieces = [entry.piece for entries in groups for entry in entries]
        return _instant_s(pieces) if pieces else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "instant": "a second after the last event that the objects state",
            "work": "the limit (activeDeadlineSeconds, maximumExecutionTimeSeconds); else twice the age of a running "
            "job, and for a waiting one the median of the running ones",
            "tenant": f"the {options.tenant or 'queue, or else the namespace'} (--read tenant=)",
        }

    def _present(
        self, source: Source, options: TraceOptions, report: ReadReport
    ) -> tuple[PodJobs, list[list[FoundPiece]]]:
        """Return the running and waiting pods and pod sets of each job, together with the object that
        builds jobs from them. Record the number of rows in the report.
        """
        named = options.named_gpus()
        kept, self._kept = self._kept, None
        fits = kept is not None and kept.source is source and kept.options == options
        if kept is not None and fits and not (report.strict or report.full):
            report.adopt(kept.report)
            return PodJobs(source, options, report, named, {}, ClusterObjects(), True), kept.groups
        reading = PodJobs(source, options, report, named, bound_times_s(source), objects_around(source), True)
        return reading, list(map(reading.now, reading.groups()))


def _reason(object: Any, kind: str) -> str:
    """Return the reason why a pod or workload waits: ``quota`` if a condition says that others use the
    quota. Otherwise, it is Kueue's message, or the reason in the pod's condition.
    """
    wanted = "QuotaReserved" if kind == "Workload" else "PodScheduled"
    conditions = list_in(object_in(object, "status"), "conditions")
    condition: Any = next((entry for entry in conditions if text_in(entry, "type") == wanted), {})
    message, reason = text_in(condition, "message"), text_in(condition, "reason")
    if kind == "Pod":
        return "quota" if "quota" in message else reason
    return "quota" if "quota" in message and "maximum" not in message else message or reason


def _instant_s(pieces: Iterable[PodRecord]) -> float:
    moments = [(piece.created_s, piece.bound_s, piece.started_s, piece.ended_s) for piece in pieces]
    return max([moment for times in moments for moment in times if moment is not None], default=0.0) + 1.0


def _with_fate(entries: Sequence[FoundPiece], fate: PodFate) -> list[FoundPiece]:
    return [entry for entry in entries if entry.piece.fate is fate]

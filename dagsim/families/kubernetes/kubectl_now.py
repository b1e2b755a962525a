"""Kubernetes at one moment: what ``kubectl get pods,workloads -A -o json`` prints while jobs run and wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from dagsim.families.kubernetes.api.cluster_objects import ClusterObjects, object_kind
from dagsim.families.kubernetes.api.pods import PodFate, PodRecord, pod
from dagsim.families.kubernetes.kubectl import (
    Kubernetes,
    LocatedPod,
    PodReading,
    kind_of_pod,
    nodes_of,
    objects_around,
    times_bound,
)
from dagsim.families.kubernetes.kueue.workload_records import kueue_workload
from dagsim.model import Job
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import Dirty
from dagsim.traces.reader import WaitingJob
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions

_USUAL_S = 3600.0
"""Time in seconds that waiting jobs are assumed to take if no job is running."""


class _Kept(NamedTuple):
    """The running and waiting pods and pod sets of each job, and from what they were read."""

    source: Source
    options: TraceOptions
    report: ReadReport
    groups: list[list[LocatedPod]]


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
        self._kept: _Kept | None = None
        """What ``begins_s`` has read, until ``read`` uses it. A simulation needs both methods, and
        reading takes most of the time."""

    def recognises(self, source: Source) -> bool:
        return False

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        reading, groups = self._present(source, options, report)
        now_s = _instant_s(entry.piece for entries in groups for entry in entries)
        running = [entry.piece for entries in groups for entry in _counted(_of(entries, PodFate.RUNS))]
        usual_s = median([piece.limit_s or 2 * _age_s(piece, now_s) for piece in running] or [_USUAL_S])
        jobs = [
            job
            for entries in groups
            for fate in (PodFate.RUNS, PodFate.WAITS)
            for job in reading.jobs(_of(entries, fate), now_s, usual_s)
        ]
        yield from sorted(jobs, key=lambda job: job.arrival_s)

    def waiting(self, source: Source, zone: ZoneInfo | None = None) -> Iterable[WaitingJob]:
        """Yield the waiting pods and workloads, each with the reason why it waits. The reason is
        ``quota`` if Kueue reports that others use the quota. Otherwise, it is Kueue's message or
        the reason in the pod's condition.
        """
        for _, object in elements(source, "items"):
            kind, status = object_kind(object), object_in(object, "status")
            try:
                pieces = [pod(object)] if kind == "Pod" else list(kueue_workload(object)) if kind == "Workload" else []
            except Dirty:
                continue
            wanted = "QuotaReserved" if kind == "Workload" else "PodScheduled"
            condition: Any = next(
                (entry for entry in list_in(status, "conditions") if text_in(entry, "type") == wanted), {}
            )
            message = text_in(condition, "message") if kind == "Workload" else ""
            held = "quota" in text_in(condition, "message") and "maximum" not in message
            reason = "quota" if held else message or text_in(condition, "reason")
            if any(piece.fate is PodFate.WAITS for piece in pieces):
                yield WaitingJob(pieces[0].name, reason)

    def begins_s(self, source: Source, options: TraceOptions) -> float | None:
        """Return the time of the last event in any object, plus one second."""
        _, groups = self._present(source, options, report := ReadReport())
        self._kept = _Kept(source, options, report, groups)
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
    ) -> tuple[_Present, list[list[LocatedPod]]]:
        """Return the running and waiting pods and pod sets of each job, together with the object that
        builds jobs from them. Record the number of rows in the report.
        """
        named = options.named_gpus()
        kept, self._kept = self._kept, None
        if (
            kept is not None
            and (kept.source is source and kept.options == options)
            and not (report.strict or report.full)
        ):
            report.adopt(kept.report)
            return _Present(source, options, report, named, {}, ClusterObjects(), True), kept.groups
        reading = _Present(source, options, report, named, times_bound(source), objects_around(source), True)
        return reading, list(map(reading.now, reading.groups()))


@dataclass(frozen=True, slots=True)
class _Present(PodReading):
    """Builds jobs from pods and pod sets that are running or waiting."""

    def now(self, pieces: list[LocatedPod]) -> list[LocatedPod]:
        """Return the pods or pod sets of a job that are running or waiting. A pod that is bound to
        a node counts as running, because it occupies the node."""
        bound = [
            replace(entry, piece=replace(entry.piece, fate=PodFate.RUNS))
            if entry.piece.fate is PodFate.WAITS and entry.piece.node
            else entry
            for entry in pieces
        ]
        current = [entry for entry in bound if entry.piece.fate in (PodFate.RUNS, PodFate.WAITS)]
        self.report.skip("of pods that have ended", len(bound) - len(current))
        if not any(entry.piece.is_workload for entry in current):
            return current
        named = [entry for entry in current if entry.piece.is_workload or entry.piece.fate is PodFate.RUNS]
        self.report.skip("of pods that belong to a workload", sum(not entry.piece.is_workload for entry in current))
        return named

    def jobs(self, entries: Sequence[LocatedPod], now_s: float, usual_s: float) -> Iterator[Job]:
        """Build one job for each kind of demand among these pods, which must all be running or all
        be waiting."""
        nodes = nodes_of(entry.piece for entry in entries)
        kinds: dict[object, list[LocatedPod]] = {}
        for entry in _counted(entries):
            kinds.setdefault(kind_of_pod(entry.piece), []).append(entry)
        for number, alike in enumerate(kinds.values()):
            arrival_s = min(entry.piece.created_s for entry in alike)
            expected = [replace(entry, piece=_as_expected(entry.piece, now_s, usual_s)) for entry in alike]
            with self._dropping(expected):
                job = self._made(arrival_s, expected)
                self.report.kept += len(alike)
                runs = alike[0].piece.fate is PodFate.RUNS
                yield replace(
                    job,
                    id=job.id if len(kinds) == 1 else f"{job.id}/{number}",
                    observed_start_s=job.observed_start_s if runs else None,
                    observed_nodes=(nodes if len(kinds) == 1 else job.observed_nodes) if runs else (),
                )


def _of(entries: Sequence[LocatedPod], fate: PodFate) -> list[LocatedPod]:
    return [entry for entry in entries if entry.piece.fate is fate]


def _counted(entries: Sequence[LocatedPod]) -> Sequence[LocatedPod]:
    """Return the pod sets of the workloads if there are any, because a workload represents its
    pods. Otherwise, return the pods.
    """
    return [entry for entry in entries if entry.piece.is_workload] or entries


def _instant_s(pieces: Iterable[PodRecord]) -> float:
    moments = [(piece.created_s, piece.bound_s, piece.started_s, piece.ended_s) for piece in pieces]
    return max([moment for times in moments for moment in times if moment is not None], default=0.0) + 1.0


def _age_s(piece: PodRecord, now_s: float) -> float:
    began_s = piece.bound_s if piece.started_s is None else piece.started_s
    return now_s - (piece.created_s if began_s is None else began_s)


def _as_expected(piece: PodRecord, now_s: float, usual_s: float) -> PodRecord:
    """Return the pod as it is expected to be when it ends. A waiting pod is treated as if it
    had started immediately.
    """
    if piece.fate is PodFate.WAITS:
        begin_s = piece.created_s
        return replace(piece, fate=PodFate.OVER, started_s=begin_s, ended_s=begin_s + (piece.limit_s or usual_s))
    age_s = _age_s(piece, now_s)
    lasts_s = 2 * age_s if piece.limit_s is None else max(piece.limit_s, age_s + 1.0)
    if piece.ends_s is not None:
        lasts_s = max(age_s + piece.ends_s - now_s, age_s + 1.0)
    began_s = now_s - age_s
    return replace(piece, fate=PodFate.OVER, bound_s=began_s, started_s=began_s, ended_s=began_s + lasts_s)

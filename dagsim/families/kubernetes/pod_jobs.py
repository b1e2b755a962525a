"""Jobs from pods and from Kueue's workloads. Pods with the same owner form one job. Pods are grouped
before jobs are built, so that jobs can be built one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from math import ceil, inf
from typing import Any

import numpy as np

from dagsim.families.kubernetes.api.cluster_objects import ClusterObjects, object_kind
from dagsim.families.kubernetes.api.pods import DEVICE_CLAIMS, PodDemand, PodFate, PodRecord, pod, unmodelled_of
from dagsim.families.kubernetes.kueue.workload_records import kueue_workload
from dagsim.model import Job, Request, Task, TaskGraph, canonical_json
from dagsim.model.arithmetic import ordered_sum
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import Dirty
from dagsim.traces.grouping import in_parts, rows_by_job
from dagsim.traces.report import Dropping, ImpossibleTimes, OnlyInText, ReadReport
from dagsim.traces.sites import site_gpu
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.times import moment_s
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of

_EVENTS = ("*event*.json", "*event*.json.gz", "*event*.jsonl")
_MOST_EVENTS = 1 << 20
_EPS = 1e-9


@dataclass(frozen=True, slots=True)
class FoundPiece:
    """A pod or a pod set, and its place in the source."""

    place: int
    piece: PodRecord


@dataclass(frozen=True, slots=True)
class PodJobs:
    """Builds jobs from the pods and workloads in a source."""

    source: Source
    options: TraceOptions
    report: ReadReport
    named: dict[str, str]
    scheduled: dict[str, float]
    around: ClusterObjects
    without_gpus: bool = False
    """True if pods without a GPU count, because they hold cores and memory of nodes."""

    def groups(self) -> Iterator[list[FoundPiece]]:
        """Yield the pods and pod sets of each job, in the order in which they were created."""

        def read(report: ReadReport) -> Iterator[Table]:
            return tables_of(self.source, 3, replace(self, report=report)._rows(), (1,))

        for table in in_parts(read, _keys, self.report):
            entries = list(map(FoundPiece, table.line.tolist(), table.texts(2).tolist()))
            groups = rows_by_job(*_keys(table))
            for rows in np.split(groups.row, groups.first[1:-1]):
                yield [entries[row] for row in rows.tolist()]

    def _rows(self) -> Iterator[NumberedRow]:
        """Yield each pod and pod set with its job and its creation time."""
        for place, object in elements(self.source, "items"):
            self.report.rows += 1
            with self.report.dropping(partial(self.source.where, place)):
                yield from ((place, (piece.whole, piece.created_s, piece)) for piece in self._pieces(place, object))

    def _pieces(self, place: int, object: Any) -> Iterator[PodRecord]:
        match kind := object_kind(object):
            case "Pod":
                if any(
                    text_in(owner, "kind") == "DaemonSet" for owner in list_in(object, "metadata", "ownerReferences")
                ):
                    self.report.skip("of daemon sets")
                    return
                pieces = [pod(object, self.scheduled.get(text_in(object, "metadata", "uid")), self.around)]
                for what in unmodelled_of(object_in(object, "spec")):
                    text = f"pods request {what}: not modelled"
                    if what == DEVICE_CLAIMS and not pieces[0].demand.on_gpu:
                        text = OnlyInText("whose GPUs, if any, are in device claims (DRA), which are not read")
                    self.report.note(text, self.source.where(place))
            case "Workload":
                pieces = list(kueue_workload(object, self.around, now=self.without_gpus))
                if not pieces:
                    raise Dirty("without a pod set")
                self.report.rows += len(pieces) - 1  # count one row per pod set
            case "Event":
                self.report.skip("of events")
                return
            case _ if kind in ClusterObjects.KINDS:
                self.report.skip("of objects beside the pods")
                return
            case _:
                self.report.skip("of other kinds")
                return
        for piece in pieces:
            if piece.demand.on_gpu or self.without_gpus or self.options.gpus_per_task is not None or piece.is_workload:
                yield piece
            else:
                self.report.skip("of pods without a GPU")

    def job(self, pieces: list[FoundPiece]) -> Job | None:
        """Build a job from its pods or pod sets. Return ``None`` if the job has to be dropped."""
        created_s = min(entry.piece.created_s for entry in pieces)
        # prefer a workload to its pods, because the data of the workload is more complete and more
        # exact
        if any(entry.piece.is_workload for entry in pieces):
            self.report.skip("of pods that belong to a workload", sum(not entry.piece.is_workload for entry in pieces))
            pieces = [entry for entry in pieces if entry.piece.is_workload]
        with self._dropping(pieces):
            job = self._made(created_s, pieces)
            self.report.kept += len(pieces)
            return job
        return None

    def now(self, pieces: list[FoundPiece]) -> list[FoundPiece]:
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

    def jobs_now(self, entries: Sequence[FoundPiece], now_s: float, usual_s: float) -> Iterator[Job]:
        """Build one job for each kind of demand among these pods, which must all be running or all
        be waiting."""
        nodes = _nodes_of(entry.piece for entry in entries)
        kinds: dict[object, list[FoundPiece]] = {}
        for entry in counted_pieces(entries):
            kinds.setdefault(_kind(entry.piece), []).append(entry)
        for number, alike in enumerate(kinds.values()):
            arrival_s = min(entry.piece.created_s for entry in alike)
            expected = [FoundPiece(place, _as_expected(piece, now_s, usual_s)) for place, piece in map(_parts, alike)]
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

    def _dropping(self, pieces: Sequence[FoundPiece]) -> Dropping:
        return self.report.dropping(*[partial(self.source.where, entry.place) for entry in pieces])

    def _made(self, arrival_s: float, located: Sequence[FoundPiece]) -> Job:
        """Build a job from its pods or pod sets.

        Raises:
            Dirty, ModelError: The job did not finish or has an invalid demand.
        """
        last = [attempts[-1] for attempts in _by_slot([entry.piece for entry in located])]
        if len(last) < len(located):
            self.report.note("attempts of pods were followed by another attempt", self.source.where(located[0].place),
                             len(located) - len(last))  # fmt: skip
        fates = {piece.fate for piece in last}
        if fates <= {PodFate.WAITS, PodFate.NEVER_RAN}:
            raise Dirty("that never ran")
        if not fates <= {PodFate.OVER, PodFate.FAILED} and not self.options.keep_partial:
            raise Dirty(
                "of jobs that outlive the trace" if PodFate.RUNS in fates else "of jobs that did not finish as a whole"
            )
        last = [piece for piece in last if piece.fate in (PodFate.OVER, PodFate.FAILED, PodFate.EVICTED)]
        if not last:
            raise Dirty("of jobs that outlive the trace")
        gang = any(piece.gang for piece in last)
        kinds: dict[object, list[PodRecord]] = {}
        for piece in last:
            kinds.setdefault((*_kind(piece), piece.ran_on), []).append(piece)
        if len(kinds) > 1:
            self.report.note("with several kinds of pods, which need not start together in the simulation",
                             self.source.where(located[0].place))  # fmt: skip
        tasks = [
            self._task("job" if len(kinds) == 1 else f"pods-{place}", pieces, gang)
            for place, pieces in enumerate(kinds.values())
        ]
        bound = [moment for piece in last if (moment := _bound(piece)) is not None]
        return Job(
            last[0].name,
            TaskGraph(tuple(tasks)),
            arrival_s,
            max(piece.priority for piece in last),
            self._tenant(last),
            observed_start_s=max(arrival_s, max(bound) if gang else min(bound)) if bound else None,
            eligible_s=arrival_s,
            observed_nodes=_nodes_of(last),
            account=last[0].namespace,
            partition=_queue(last),
            request=next((_terms(piece) for piece in last if piece.level), None),
        )

    def _task(self, name: str, pieces: Sequence[PodRecord], gang: bool) -> Task:
        instances = sum(piece.count for piece in pieces)
        ran = [self._ran_s(piece) for piece in pieces]
        seconds = max(ran) if gang else ordered_sum(ran) / len(ran)
        first = pieces[0]
        kinds = tuple(dict.fromkeys([site_gpu(kind, self.named) for kind in first.wanted]))
        measured_on = site_gpu(first.ran_on, self.named) if first.ran_on else kinds[0] if len(kinds) == 1 else None
        gpus = self._gpus(first.demand)
        return Task(
            name,
            max(self.options.on_reference(seconds, measured_on), self.options.floor_s),
            instances,
            gang and instances > 1,
            gpus,
            first.demand.cpus,
            first.demand.memory_gb,
            kinds or None if gpus else None,
            manifest=canonical_json(first.manifest),
        )

    def _ran_s(self, piece: PodRecord) -> float:
        begin_s = piece.bound_s if self.options.count_pull and piece.bound_s is not None else piece.started_s
        if begin_s is None or piece.ended_s is None:
            raise Dirty("without the start and the end of a container")
        if piece.ended_s < begin_s:
            raise Dirty(ImpossibleTimes("with an end before the start"))
        return piece.ended_s - begin_s

    def _gpus(self, demand: PodDemand) -> float:
        share = demand.share
        if share and not self.options.mig:
            raise Dirty("on shares of a GPU (--read mig=true keeps them)")
        if demand.shared:
            if self.options.shards is None:
                raise Dirty("on time slices of a GPU (--read shards=N keeps them)")
            share += demand.shared / self.options.shards
        if demand.gpus or share > 1:
            return demand.gpus + ceil(share - _EPS)
        return share or self.options.gpus_per_task or 0

    def _tenant(self, pieces: Sequence[PodRecord]) -> str:
        match self.options.tenant:
            case None:
                return _queue(pieces) or pieces[0].namespace
            case "partition":
                return _queue(pieces)
            case _:
                return pieces[0].namespace


def _keys(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the job and the creation time of each pod or pod set."""
    return table.texts(0), table.numbers(1)


def counted_pieces(entries: Sequence[FoundPiece]) -> Sequence[FoundPiece]:
    """Return the pod sets of the workloads if there are any, because a workload represents its
    pods. Otherwise, return the pods.
    """
    return [entry for entry in entries if entry.piece.is_workload] or entries


def _parts(entry: FoundPiece) -> tuple[int, PodRecord]:
    return entry.place, entry.piece


def _as_expected(piece: PodRecord, now_s: float, usual_s: float) -> PodRecord:
    """Return the pod as it is expected to be when it ends. A waiting pod is treated as if it
    had started immediately.
    """
    if piece.fate is PodFate.WAITS:
        begin_s = piece.created_s
        return replace(piece, fate=PodFate.OVER, started_s=begin_s, ended_s=begin_s + (piece.limit_s or usual_s))
    age_s = piece.age_s(now_s)
    lasts_s = 2 * age_s if piece.limit_s is None else max(piece.limit_s, age_s + 1.0)
    if piece.ends_s is not None:
        lasts_s = max(age_s + piece.ends_s - now_s, age_s + 1.0)
    began_s = now_s - age_s
    return replace(piece, fate=PodFate.OVER, bound_s=began_s, started_s=began_s, ended_s=began_s + lasts_s)


def _kind(piece: PodRecord) -> tuple[object, ...]:
    """Return a key that groups the pods of a job into tasks: pods with equal keys are instances of
    the same task. Labels that differ from pod to pod (such as an index) are ignored, but different
    pod sets are different tasks.
    """
    return piece.demand, piece.wanted, canonical_json(piece.manifest.get("spec")), piece.manifest.get("podSet")


def _terms(piece: PodRecord) -> Request:
    return Request(level=piece.level, level_required=piece.level_required, segment=piece.segment)


def _queue(pieces: Sequence[PodRecord]) -> str:
    return next((piece.queue for piece in pieces if piece.queue), "")


def _bound(piece: PodRecord) -> float | None:
    return piece.started_s if piece.bound_s is None else piece.bound_s


def _nodes_of(pieces: Iterable[PodRecord]) -> tuple[str, ...]:
    """Return the nodes of the pods whose node is known."""
    return tuple([node for piece in pieces for node in (*piece.nodes, piece.node) if node])


def _by_slot(pieces: list[PodRecord]) -> list[list[PodRecord]]:
    """Return the pods of a job, grouped by slot. Pods with the same completion index belong to the
    same slot. Without an index, a pod that was created after another pod failed takes the slot of
    the failed pod.
    """
    slots: dict[str, list[PodRecord]] = {}
    failed: list[tuple[float, str]] = []
    for place, piece in enumerate(sorted(pieces, key=lambda piece: piece.created_s)):
        slot = f"index {piece.index}" if piece.index else f"pod {place}"
        if not piece.index and failed and failed[0][0] <= piece.created_s:
            slot = heappop(failed)[1]
        slots.setdefault(slot, []).append(piece)
        if not piece.index and piece.fate in (PodFate.EVICTED, PodFate.FAILED):
            heappush(failed, (inf if piece.ended_s is None else piece.ended_s, slot))
    return list(slots.values())


_AROUND = re.compile(
    rb'"kind"\s*:\s*"(?:Service|PodDisruptionBudget|PriorityClass|Namespace)(?:List)?"|"(?:replicas|clusterIP)"\s*:'
)


def objects_around(source: Source) -> ClusterObjects:
    """Return the objects that affect the pods' scheduling. Only files that contain such objects are
    parsed."""
    around = ClusterObjects()
    for file in source.files:
        if file.mentions(_AROUND):
            for _, object in elements(file, "items"):
                around.add(object)
    return around


def bound_times_s(source: Source) -> dict[str, float]:
    """Return the time at which each pod (by uid) was bound, according to the events."""
    bound_s: dict[str, float] = {}
    for file in source.files:
        if not file.matches(*_EVENTS):
            continue
        for _, event in elements(file, "items"):
            uid = text_in(event, "involvedObject", "uid") or text_in(event, "regarding", "uid")
            if text_in(event, "reason") != "Scheduled" or not uid or len(bound_s) >= _MOST_EVENTS:
                continue
            moments = (object_in(event).get(name) for name in ("eventTime", "firstTimestamp", "lastTimestamp"))
            try:
                moment = moment_s(next((text for text in moments if isinstance(text, str) and text), ""), "time", None)
            except Dirty:
                continue  # the reader of pods has already reported this row
            if moment is not None:
                bound_s[uid] = moment
    return bound_s

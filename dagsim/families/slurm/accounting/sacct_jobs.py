"""Jobs from the rows of their attempts in Slurm's accounting, one job at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from sys import intern
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.errors import ModelError
from dagsim.families.slurm.accounting.accounting_rows import AccountingRow
from dagsim.families.slurm.accounting.accounting_values import (
    Resources,
    array_tasks,
    limit_s,
    resources,
    state,
    with_older_columns,
)
from dagsim.families.slurm.accounting.sacct_ids import component, job_id
from dagsim.families.slurm.accounting.sacct_times import AT, CLOCK_S, EXAMPLE, FAULTS, NOTES, SacctTimes
from dagsim.families.slurm.accounting.submission import Submission, begin_after_s, submission
from dagsim.model import Attempt, Job, Request, Task, TaskGraph
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.text import count_of
from dagsim.traces.batch import NOT_OVER
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.reader import Unstarted
from dagsim.traces.report import Disagreement, OnlyInText
from dagsim.traces.rows import Findings
from dagsim.traces.sites import listed_hosts, readable_hosts, site_gpu
from dagsim.traces.times import is_unset, moment_s
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table

_NEVER_KEPT = {"BOOT_FAIL": "whose nodes did not boot", "REVOKED": "revoked by another cluster"}
_IN_LINE = OnlyInText("with the GPUs of SubmitLine, since no list of resources has any (AccountingStorageTRES)")
_NO_LIST = "whose list of nodes cannot be read, so their nodes are unknown"
_UNFINISHED = "of requeued jobs that are not over at the end, taken to run for as long as their longest attempt"
_OTHER_CPUS = Disagreement("whose NCPUS and AllocTRES disagree; taken as AllocTRES")
_OTHER_LENGTH = Disagreement("whose list of nodes and NNodes disagree")
_OTHER_COUNT = Disagreement("whose NNodes and AllocTRES (node) disagree; taken as NNodes")
_NODES_OF_TRES = re.compile(r"(?:^|,)node=(\d{1,8})(?:,|$)")
_MIXED = Disagreement("that mix GPU types on a node, which all run on one type here")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A valid row, which describes one attempt of a job."""

    place: int
    id: str
    submitted: tuple[str, str, str, str]
    """User, account, partition and QOS."""
    state: str
    submit_s: float
    eligible_s: float
    start_s: float | None
    end_s: float | None
    ran_s: float
    limit_s: float | None
    nodes: int
    asked: Resources
    allocated: Resources
    ran: bool
    restarts: bool
    node_list: str
    terms: Submission

    @property
    def base(self) -> str:
        """The id of the attempt's job. The first component of a heterogeneous job has the id of the
        whole job."""
        return job_id(self.id)

    @property
    def is_over(self) -> bool:
        return self.state not in NOT_OVER


@dataclass(frozen=True, slots=True)
class SacctJobs:
    """Builds jobs from their rows, and reports problems in them."""

    options: TraceOptions
    findings: Findings
    zone: ZoneInfo | None
    named: Mapping[str, str]
    """GPU types that the user named."""
    times: SacctTimes = EXAMPLE
    """Times of the table's rows."""

    def job(self, time: float, rows: dict[int, list[str]]) -> tuple[Job, int] | None:
        """Build a job from its rows. Return the job and the number of its attempts, or ``None`` if
        the job has to be dropped.
        """
        attempts: list[_Attempt] = []
        seen: list[list[str]] = []
        for place, row in rows.items():
            try:
                attempt = self._attempt(place, AccountingRow._make(row))
                if row in seen:
                    raise Dirty("given twice")
                seen.append(row)
                _refuse_again(attempt, attempts)
            except Dirty as reason:
                self._drop_row(str(reason), place)
            else:
                attempts.append(attempt)
        if not (kept := self._lasting(attempts) if attempts else []):
            return None
        try:
            return self._made(time, kept), len(kept)
        except Dirty as reason:
            self._drop(str(reason), kept)
        except ModelError as error:
            self._drop("that describe an impossible job", kept, str(error))
        return None

    def unstarted(self, place: int, row: list[str]) -> Unstarted | None:
        """Build a job that never ran from its row. Return ``None`` if the job was never eligible,
        or if the row is unusable (this was reported when the jobs were read)."""
        try:
            attempt = self._attempt(place, AccountingRow._make(row))
            job = self._made(attempt.submit_s, [replace(attempt, allocated=attempt.asked)])
            if self.times.moment("Eligible", place) is None:
                return None
        except (Dirty, ModelError):
            return None
        return Unstarted(job, inf if attempt.end_s is None else attempt.end_s)

    def template(self, row: list[str]) -> tuple[Task, str | None] | None:
        """Build the task of a job that has only this row, as if the job had run for 10 s. Return
        the task and the GPU type on which it was measured. Return ``None`` if there is anything to
        report about the row.
        """
        scratch = replace(self, findings=Findings(), times=EXAMPLE)
        try:
            ran = scratch._lasting([scratch._attempt(0, AccountingRow._make(row)._replace(JobID="1"))])
            parts = scratch._by_type(ran) if ran else []
            task = scratch._task(parts[0], "job") if len(parts) == 1 else None
        except (Dirty, ModelError):
            return None
        # Leave out components of heterogeneous jobs: they share a submit line, but each uses its
        # own part of it.
        if task is None or scratch.findings or ran[0].terms.several:
            return None
        return task, self._measured_on(parts[0][-1])

    def _measured_on(self, attempt: _Attempt) -> str | None:
        kinds = [site_gpu(kind, self.named) for kind, _ in attempt.allocated.types]
        return kinds[0] if len(kinds) == 1 else None

    def _drop(self, reason: str, rows: list[_Attempt], detail: str = "") -> None:
        for attempt in rows:
            self._drop_row(reason, attempt.place, detail)

    def _drop_row(self, reason: str, place: int, detail: str = "") -> None:
        self.findings.one(place, reason, True, detail=detail)

    def _note(self, text: str, place: int, times: int = 1) -> None:
        self.findings.one(place, text, False, times)

    def _attempt(self, place: int, row: AccountingRow) -> _Attempt:
        """Build the attempt that a row describes.

        Raises:
            Dirty: The row is unusable.
        """
        word = state(row.State)
        allocated = resources(row.AllocTRES)
        start_s, end_s, submit_s = (self.times.moment(name, place) for name in ("Start", "End", "Submit"))
        nowhere = row.NodeList.lower() == "none assigned"
        ran = word != "PENDING" and start_s is not None and not nowhere
        if row.ReqTRES or row.AllocTRES:  # if the file lacks these columns, both are empty
            ran = ran and allocated.is_stated
        if ran and allocated.cpus and row.NCPUS.isdecimal() and int(row.NCPUS) != allocated.cpus:
            self._note(_OTHER_CPUS, place)
        if ran and (of_tres := _nodes_of_tres(row.AllocTRES)) and row.NNodes.isdecimal() and int(row.NNodes) != of_tres:
            self._note(_OTHER_COUNT, place)
        nodes = count(row.NNodes or row.ReqNodes or "1", "NNodes", 0) or 1
        terms = self._terms(place, row, nodes)
        asked, allocated = self._held(place, row, allocated, nodes, terms, ran)
        return _Attempt(
            place=place,
            id=row.JobID or row.JobIDRaw,
            submitted=_submitted(row),
            state=word,
            submit_s=submit_s or 0.0,
            eligible_s=self.times.moment("Eligible", place) or submit_s or 0.0,
            start_s=start_s,
            end_s=end_s,
            ran_s=self._ran_s(place) if ran else 0.0,
            limit_s=limit_s(row.TimelimitRaw, row.Timelimit),
            nodes=nodes,
            asked=asked,
            allocated=allocated,
            ran=ran,
            restarts=not is_unset(row.Restarts) and finite_number(row.Restarts, "Restarts") > 0,
            node_list=row.NodeList,
            terms=terms,
        )

    def _held(
        self, place: int, row: AccountingRow, allocated: Resources, nodes: int, terms: Submission, ran: bool
    ) -> tuple[Resources, Resources]:
        """Return the requested and the allocated resources of a row. Values that the lists of resources
        lack are taken from older columns or from the submit line.
        """
        states_request = any((row.ReqTRES, row.ReqCPUS, row.ReqMem, row.ReqGRES))
        cpus = row.ReqCPUS or (row.NCPUS if states_request and not row.ReqTRES else "")
        asked = with_older_columns(resources(row.ReqTRES), row.ReqGRES, row.ReqMem, cpus, nodes, False)
        has_total = not is_unset(row.AllocGRES)
        allocated = with_older_columns(
            allocated, row.AllocGRES if has_total else row.ReqGRES, row.ReqMem, row.NCPUS, nodes, has_total
        )
        if not allocated.has_gpus and asked.has_gpus and ran:
            self._note(
                Disagreement(
                    "whose ReqTRES and AllocTRES disagree: GPUs were requested but none allocated; taken as allocated"
                ),
                place,
            )
            allocated = allocated.with_gpus_of(asked)
        elif not (allocated.has_gpus or asked.has_gpus) and (lines := resources(terms.gpu_tres(nodes))).has_gpus:
            if ran:
                self._note(_IN_LINE, place)
            asked, allocated = asked.with_gpus_of(lines), allocated.with_gpus_of(lines)
        # The log does not state how many GPUs were requested, so use the number of allocated GPUs,
        # of any type.
        elif asked.is_stated and not row.ReqTRES and is_unset(row.ReqGRES):
            asked = asked.with_gpus_of(allocated)._replace(types=())
        if asked.gpus and nodes > 1 and not is_unset(row.ReqGRES) and not has_total:
            self._note("whose GPUs are those of ReqGRES, taken as a number per node", place)
        return asked, allocated

    def _ran_s(self, place: int) -> float:
        """Return the run time of an attempt that ran.

        Raises:
            Dirty: The run time is missing or invalid.
        """
        if fault := FAULTS[self.times.fault[place]]:
            raise Dirty(fault)
        if note := NOTES[self.times.note[place]]:
            self._note(note, place)
        return float(self.times.ran_s[place])

    def _terms(self, place: int, row: AccountingRow, nodes: int) -> Submission:
        licences = resources(row.ReqTRES).licences
        columns = (row.SubmitLine, row.Constraints, row.Reservation, row.Partition)
        terms = submission(*columns, licences, nodes, component(row.JobID))
        if terms.fault:
            raise Dirty(terms.fault)
        if terms.note:
            self._note(terms.note, place)
        return terms

    def _lasting(self, attempts: list[_Attempt]) -> list[_Attempt]:
        """Return the attempts that ran, in order. Return no attempts if the job is dropped. A
        requeued job that is still waiting when the log ends is kept, because its earlier attempts
        held nodes."""
        attempts.sort(key=lambda row: (row.submit_s, inf if row.start_s is None else row.start_s, row.place))
        ran: list[_Attempt] = []
        for attempt in attempts:
            reason = None if ran and attempt.ran and attempt.state == "RUNNING" else self._unusable(attempt)
            if reason is None:
                ran.append(attempt)
                continue
            detail = ""
            if (tasks := _array_tasks(attempt.id)) is not None:
                reason, detail = "of array tasks that never ran", f"{count_of(tasks, 'task')}"
                self._note("array tasks never ran, at least", attempt.place, tasks)
            self._drop_row(reason, attempt.place, detail)
        if ran and not attempts[-1].is_over and not self.options.keep_partial:
            self._note(_UNFINISHED, attempts[-1].place)
        if ran and ran[0].restarts:
            self._note(
                "of requeued jobs without their first attempts, which only sacct --duplicates lists", ran[0].place
            )
        return ran

    def _unusable(self, attempt: _Attempt) -> str | None:
        if attempt.state in _NEVER_KEPT:
            return _NEVER_KEPT[attempt.state]
        if not attempt.ran:
            if attempt.state == "CANCELLED":
                return "cancelled before they started"
            return "that never ran" if attempt.state in NOT_OVER else "that ended before they started"
        if not attempt.is_over and not self.options.keep_partial:
            return "that outlive the trace"
        return None

    def _made(self, time: float, attempts: list[_Attempt]) -> Job:
        """Build the job from its attempts.

        Raises:
            Dirty, ModelError: Its demand is unclear or invalid.
        """
        # Use the wait of the first attempt, because later attempts follow from preemptions and
        # failures, which the simulation produces itself.
        first = attempts[0]
        pieces = self._by_type(attempts)
        names = [f"part-{place}" for place in range(len(pieces))] if len(pieces) > 1 else ["job"]
        tasks = [self._task(piece, name) for piece, name in zip(pieces, names, strict=True)]
        request = request_of(first.terms, first.base, time, self.zone)
        return Job(
            first.base,
            TaskGraph(tuple(tasks)),
            time,
            tenant=self._tenant(*first.submitted[:3]),
            user=first.submitted[0],
            account=first.submitted[1],
            # a job that requested several partitions gets the one in which it ran
            partition=first.submitted[2],
            qos=first.submitted[3],
            priority=-first.terms.nice or 0.0,
            request=request,
            observed_start_s=None if first.start_s is None else max(time, first.start_s),
            eligible_s=max(time, first.eligible_s if first.start_s is None else min(first.eligible_s, first.start_s)),
            observed_nodes=self._nodes(first),
            observed_gpu=self._measured_on(first) or "",
            observed_attempts=self._attempts(attempts),
        )

    def _attempts(self, attempts: list[_Attempt]) -> tuple[Attempt, ...]:
        """Return the attempts of a job that was requeued or suspended. Return none if the job had
        one attempt that is fully described by its start and its work.
        """
        runs: list[Attempt] = []
        for attempt in attempts:
            if attempt.start_s is None:
                continue
            since_s = max(attempt.start_s, attempt.submit_s)
            end_s = since_s + attempt.ran_s if attempt.end_s is None else max(since_s, attempt.end_s)
            eligible_s = max(attempt.submit_s, min(attempt.eligible_s, since_s))
            runs.append(Attempt(eligible_s, since_s, end_s, readable_hosts(attempt.node_list)))
        if len(runs) == 1 and runs[0].end_s - runs[0].start_s - attempts[0].ran_s <= CLOCK_S:
            return ()
        return tuple(runs)

    def _tenant(self, user: str, account: str, partition: str) -> str:
        owners = {"user": user, "account": account, "partition": partition}
        return (account or user) if self.options.tenant is None else owners[self.options.tenant]

    def _nodes(self, attempt: _Attempt) -> tuple[str, ...]:
        """Return the nodes that the log lists for an attempt, or none if the list cannot be read."""
        if (found := _listed_nodes(attempt.node_list)) < 0:
            self._note(_NO_LIST, attempt.place)
        elif found and attempt.nodes != found:
            self._note(_OTHER_LENGTH, attempt.place)
        return readable_hosts(attempt.node_list)

    def _by_type(self, attempts: list[_Attempt]) -> list[list[_Attempt]]:
        """Group a job's attempts by GPU type, because a gang runs on a single type. Only a job that
        holds whole nodes with several types is split.
        """
        last = attempts[-1]
        allocated, nodes = last.allocated, last.nodes
        if allocated.gpus > last.asked.gpus and last.asked.is_stated:
            self._note(Disagreement("that hold GPUs that they did not request"), last.place)
        requested = self.options.demand == "requested" and last.asked.is_stated
        if requested or allocated.slices or len(allocated.types) < 2:
            return [attempts]
        if nodes < 2 or allocated.gpus % nodes:
            self._note(_MIXED, last.place)
            return [attempts]
        per_node = allocated.gpus // nodes
        if whole_sum(size for _, size in allocated.types) != allocated.gpus or any(
            size % per_node for _, size in allocated.types
        ):
            self._note(_MIXED, last.place)
            return [attempts]
        self._note("on nodes with several GPU types, whose parts need not start together in the simulation", last.place)
        parts = []
        for kind, size in sorted(allocated.types, key=lambda pair: -pair[1]):
            share = size / allocated.gpus
            part = Resources(size, ((kind, size),), (), 0, allocated.cpus * share, allocated.memory_gb * share)
            parts.append([*attempts[:-1], replace(last, nodes=size // per_node, allocated=part)])
        return parts

    def _task(self, attempts: list[_Attempt], name: str) -> Task:
        last = attempts[-1]
        if self.options.protocol == "all-attempts":
            seconds = ordered_sum(attempt.ran_s for attempt in attempts)
        else:  # the last attempt may still be running, so an earlier one may have run for longer
            begun = attempts[-1:] if last.is_over else attempts
            seconds = max(attempt.ran_s for attempt in begun)
        alone = last.terms.request is not None and last.terms.request.exclusive and last.asked.is_stated
        requested = alone or (self.options.demand == "requested" and last.asked.is_stated)
        taken = last.asked if requested else last.allocated
        instances, gpus = self._shape(taken, last)
        measured_on = self._measured_on(last)
        asked = tuple(dict.fromkeys([site_gpu(kind, self.named) for kind, _ in last.asked.types]))
        limit = last.limit_s
        return Task(
            name,
            max(self.options.on_reference(seconds, measured_on), self.options.floor_s),
            instances,
            instances > 1,
            gpus,
            taken.cpus / instances,
            taken.memory_gb / instances,
            asked or None if gpus else None,
            estimate=None if limit is None else self.options.on_reference(limit, measured_on),
        )

    def _shape(self, taken: Resources, attempt: _Attempt) -> tuple[int, float]:
        """Return the number of instances, and the GPUs per instance."""
        nodes = attempt.nodes
        if attempt.terms.tasks is not None and not (taken.gpus or taken.slices or taken.shards):
            return attempt.terms.tasks, 0
        if taken.slices:
            if not self.options.mig:
                raise Dirty("on MIG slices (--read mig=true keeps them)")
            if len(taken.slices) > 1:
                self._note("on MIG slices of several sizes (each taken as the largest)", attempt.place)
            return whole_sum(count for _, count in taken.slices), max(share for share, _ in taken.slices)
        if taken.gpus:
            if taken.gpus % nodes == 0:
                return nodes, taken.gpus // nodes
            self._note("with GPUs spread unevenly over their nodes (treated as single GPUs)", attempt.place)
            return taken.gpus, 1
        if taken.shards:
            if self.options.shards is None:
                raise Dirty("on shards of a GPU (--read shards=N keeps them)")
            whole, rest = divmod(taken.shards, self.options.shards)
            return 1, whole + (rest > 0) if whole else rest / self.options.shards
        return nodes, self.options.gpus_per_task or 0


def request_of(terms: Submission, id: str, submit_s: float, zone: ZoneInfo | None) -> Request | None:
    """Build a job's request. If the array limits how many of its tasks run at the same time,
    the request names the array. In a condition on the same task of another array
    (``aftercorr``), ``_*`` is replaced by the number of the task. A begin time is counted from
    the submission. If the terms of the submission cannot be read, the request has no
    conditions, and the job becomes eligible at the time that the log states.
    """
    request = terms.request
    array, _, task = id.partition("_")
    if terms.several:
        request = replace(request or Request(), together=id.partition("+")[0])
    if request is not None and request.array_limit is not None:
        request = replace(request, array=array)
    if request is not None and any(entry.endswith("_*") for entry in request.after):
        own = f"_{task}" if task else ""
        request = replace(request, after=tuple([entry.replace("_*", own) for entry in request.after]))
    if terms.begin:
        begin_s = begin_after_s(terms.begin, submit_s, lambda text: _moment_or_none(text, zone))
        request = request or Request()
        request = replace(request, after=()) if begin_s is None else replace(request, begin_s=begin_s)
    return request


def _moment_or_none(text: str, zone: ZoneInfo | None) -> float | None:
    try:
        return moment_s(text, "SubmitLine", zone)
    except Dirty:
        return None


def note_nodes(table: Table, rows: np.ndarray, findings: Findings) -> None:
    """Report each row whose list of nodes cannot be read, or whose list does not have as many nodes
    as the row states."""
    listed, count = table.words(AT["NodeList"]), table.words(AT["NNodes"])
    resources = table.words(AT["AllocTRES"])
    stated = np.array([int(text) if text.isdecimal() and len(text) < 9 else 0 for text in count.words])[count.place]
    nodes = np.array([_listed_nodes(text) for text in listed.words])[listed.place]
    findings.note(rows[nodes[rows] < 0], _NO_LIST)
    findings.note(rows[(nodes[rows] > 0) & (stated[rows] > 0) & (nodes != stated)[rows]], _OTHER_LENGTH)
    of_tres = np.array([_nodes_of_tres(text) for text in resources.words])[resources.place]
    findings.note(rows[(of_tres[rows] > 0) & (stated[rows] > 0) & (of_tres != stated)[rows]], _OTHER_COUNT)


def _nodes_of_tres(text: str) -> int:
    """Return the number of nodes in a list of resources, or 0 if it is not stated."""
    stated = _NODES_OF_TRES.search(text)
    return int(stated[1]) if stated else 0


def _listed_nodes(text: str) -> int:
    """Return the number of nodes in a list. Return 0 if the list is not set, and -1 if it cannot be
    read."""
    try:
        return 0 if is_unset(text) or text.lower() == "none assigned" else len(listed_hosts(text))
    except ValueError:
        return -1


def _refuse_again(attempt: _Attempt, earlier: list[_Attempt]) -> None:
    """Check that each attempt has a single row, because two listings may contain the same attempt,
    once as running and once as finished.

    Raises:
        Dirty: The attempt is already listed, and this row adds nothing.
    """
    for place, other in enumerate(earlier):
        if (other.submit_s, other.start_s) == (attempt.submit_s, attempt.start_s) and attempt.start_s is not None:
            if other.is_over or not attempt.is_over:
                raise Dirty("of an attempt that another row describes")
            earlier[place] = attempt
            raise Dirty("of an attempt that another row describes")


def _submitted(row: AccountingRow) -> tuple[str, str, str, str]:
    """Return the user, account, partition and QOS. Jobs with equal values share one tuple, which
    saves memory."""
    partition = row.Partition.partition(",")[0]
    return intern(row.User), intern(row.Account), intern(partition), intern(row.QOS)


def _array_tasks(id: str) -> int | None:
    """Return the number of tasks in an array id, or ``None`` for a single job, or if the list cannot
    be read."""
    try:
        return array_tasks(id)
    except Dirty:
        return 1

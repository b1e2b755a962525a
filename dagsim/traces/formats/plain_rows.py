"""The columns of a plain table, and the jobs or tasks that its rows describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import ModelError
from dagsim.model import Demand, Request
from dagsim.model.arithmetic import numbered
from dagsim.model.constraints import without_counts
from dagsim.model.job_fields import JOB_FIELDS
from dagsim.traces.batch import ENDED, NOT_OVER
from dagsim.traces.fields import Dirty, InvalidValue, are_counts
from dagsim.traces.report import Disagreement, ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, JobTimes, single_tasks
from dagsim.traces.sites import site_gpu
from dagsim.traces.times import (
    DAY_NUMBERS,
    UNSET_MOMENTS,
    are_day_numbers,
    duration_s,
    in_seconds,
    is_unset,
    local_seconds,
    moment_s,
    with_offsets,
)
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import objects, optional
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

NEEDED = ("id", "arrival_s")
_LABELS = tuple(field.name for field in JOB_FIELDS if field.in_tables and field.is_text)
_OF_JOBS = tuple(field.name for field in JOB_FIELDS if field.in_tables and field.is_number)
ALLOWED = (
    "gpus", "duration_s", "start_s", "end_s", "gpu_type", "instances", "gang", "cpus", "memory_gb", "estimate_s",
    "model", "batch", *_LABELS, *_OF_JOBS, "task", "parents", "nodes", "state", "constraint", "level", "level_required",
    "segment",
)  # fmt: skip
COLUMNS = (*NEEDED, *ALLOWED)
AT = {name: place for place, name in enumerate(COLUMNS)}
ID, _ARRIVAL = AT["id"], AT["arrival_s"]
NUMBERS = tuple(
    [
        AT[name]
        for name in (
            *("arrival_s", "gpus", "duration_s", "start_s", "end_s", "instances", "cpus", "memory_gb"),
            *("estimate_s", "batch", "nodes", "segment", *_OF_JOBS),
        )
    ]
)
_REQUESTS = ("constraint", "level", "level_required", "segment")
_DATES = ("arrival_s", "eligible_s", "start_s", "end_s")
_ENDLESS = ("unlimited", "infinite")
_DATED_S = 1e9
"""Times of at least this many seconds are assumed to count from 1970."""
_CANCELLED = ("CANCELLED", "CANCELED", "ABORTED", "DELETED")
_NOT_OVER = (*NOT_OVER, "QUEUED", "WAITING", "SUBMITTED", "ACTIVE", "HELD", "STARTING")
_OVER = (*ENDED, *_CANCELLED, "SUCCEEDED", "SUCCESS", "FINISHED", "DONE", "PASS", "OK", "KILLED", "ERROR", "TERMINATED",
         "STOPPED", "EXITED", "EVICTED")  # fmt: skip
_YES_OR_NO = {"": True, "yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class PlainRows:
    """The rules for interpreting the rows of a table, which depend on the options."""

    def __init__(self, options: TraceOptions, constants: Mapping[str, float]) -> None:
        self._options, self._constants = options, constants
        self._zone = options.zone()
        self._named = options.named_gpus()

    def in_order(self, table: Table, report: ReadReport) -> Table:
        """Return the table with unambiguous dates. When clocks are set back, an hour occurs twice.
        Local dates in that hour are interpreted so that they fit the durations and the order of the
        dates.
        """
        if self._zone is None or not any(AT[name] in table.words_of for name in _DATES):
            return table
        stated = table.numbers(AT["duration_s"])
        return with_offsets(table, [AT[name] for name in _DATES], lambda row: stated[row], self._zone, report)

    def arrivals(self, table: Table) -> np.ndarray:
        """Return the arrival of each row's job, or ``inf`` if it cannot be read. Shape (n,),
        float64.
        """
        seconds = self._moments(table, "arrival_s")
        seconds = np.where(np.isnan(seconds) & table.unreadable(_ARRIVAL), inf, np.fmax(seconds, 0.0))
        return np.where(table.blank(_ARRIVAL), 0.0, seconds)

    def jobs(self, checks: Checks) -> JobArrays:
        """Return one job with a single task for each row."""
        tasks = self.tasks(checks)
        if checks.table.has(AT["state"]):
            _check_states(checks, tasks.work)
        arrival_s = self.checked_arrivals(checks)
        return replace(tasks, arrival_s=arrival_s, **self.facts(checks, arrival_s, self._seconds(checks)))

    def tasks(self, checks: Checks) -> JobArrays:
        """Return the task of each row, as a separate job."""
        table, options = checks.table, self._options
        seconds = self._seconds(checks)
        instances = checks.count(AT["instances"], "instances", blank=self._constants.get("instances", 1))
        together = self._yes_or_no(checks, "gang")
        checks.drop(seconds < 0, ImpossibleTimes("with a negative duration_s"))
        estimate = self._estimates(checks)
        amounts = self._amounts(checks, instances)
        batch = np.where(table.blank(AT["batch"]), 0, checks.count(AT["batch"], "batch", 0, blank=0))
        names, model = table.words(AT["gpu_type"]), table.words(AT["model"])
        types = [self._types(text) for text in names.words]
        measured_on = [kinds[0] if len(kinds) == 1 else None for kinds in types]
        seconds, estimate = (
            options.all_on_reference(column, measured_on, names.place) for column in (seconds, estimate)
        )
        gang = together & (amounts.instances > 1)

        def kind(*values: Any) -> TaskKind:
            of = _KindColumns(*values)
            demand = Demand(of.gpus, of.cpus, of.memory_gb, types[of.types] or None)
            return TaskKind(demand, of.gang, model.words[of.model] or None, int(of.batch) or None)

        task = table.words(AT["task"]).mapped(lambda name: name or "task")
        jobs = single_tasks(
            checks,
            np.zeros(len(table)),
            np.where(seconds < options.floor_s, options.floor_s, seconds),
            amounts.instances,
            _KindColumns(amounts.gpus, amounts.cpus, amounts.memory_gb, gang, names.place, model.place, batch),
            kind,
            "task",
            estimate=optional(estimate),
        )
        return replace(jobs, name=task.place, names=objects(task.words))

    def _yes_or_no(self, checks: Checks, name: str) -> np.ndarray:
        """Return a mask of the rows with "yes" in a column, (n,) bool. Drop the rows with neither
        "yes" nor "no".
        """
        words = checks.table.words(AT[name])
        meant = [_YES_OR_NO.get(word.strip().lower()) for word in words.words]
        neither = np.array([word is None for word in meant])[words.place]
        checks.drop(neither, f"with a {name} that is neither yes nor no")
        says_yes: np.ndarray = np.array(meant, bool)[words.place]
        return says_yes

    def _estimates(self, checks: Checks) -> np.ndarray:
        """Return the requested durations in seconds, or NaN where there is none. Shape (n,),
        float64.
        """
        table = checks.table
        for name in ("duration_s", "estimate_s"):
            if (texts := table.words_of.get(AT[name])) is not None:
                short = np.array([text.count(":") == 1 for text in texts], bool)
                checks.note(short, f"with two numbers in {name}, taken as minutes and seconds")
        claimed = ~table.blank(AT["estimate_s"])
        if (texts := table.words_of.get(AT["estimate_s"])) is not None:
            claimed = claimed & np.array([text.strip().lower() not in _ENDLESS for text in texts], bool)
        estimate = np.where(claimed, self._duration(checks, "estimate_s", claimed), nan)
        with np.errstate(invalid="ignore"):
            none = estimate <= 0
        checks.note(none, "whose estimate_s is not above 0 (as if not stated)")
        return np.where(none, nan, estimate)

    def _amounts(self, checks: Checks, instances: np.ndarray) -> _Amounts:
        """Return the number of instances in each row, and the resources that each instance
        requests.
        """
        table, constants, spread = checks.table, self._constants, self._options.spread
        gpus = checks.number(AT["gpus"], "gpus", nan if table.has(AT["gpus"]) else constants.get("gpus", 0))
        cpus = checks.number(AT["cpus"], "cpus", constants.get("cpus", 0))
        memory = checks.number(AT["memory_gb"], "memory_gb", constants.get("memory_gb", 0))
        nodes = checks.count(AT["nodes"], "nodes", blank=constants.get("nodes", 1))
        if spread:
            nodes = np.maximum(nodes, np.floor(np.where(gpus >= 1, gpus, np.where(gpus > 0, 1, cpus))))
        whole = _Amounts(instances, gpus, cpus, memory)
        return _over_nodes(checks, nodes, whole) if spread or table.has(AT["nodes"]) or "nodes" in constants else whole

    def facts(self, checks: Checks, arrival_s: np.ndarray, ran_s: np.ndarray | None = None) -> dict[str, Any]:
        """Return the columns that describe jobs rather than tasks, with one row per job. ``ran_s``
        contains the durations if each job has a single task.
        """
        start_s, eligible_s = (self._moment(checks, name) for name in ("start_s", "eligible_s"))
        end_s = self._moments(checks.table, "end_s") if checks.table.has(AT["end_s"]) else None
        times = JobTimes(arrival_s, start_s, end_s, ran_s, eligible_s).checked(checks)
        return {
            "request": self._requests(checks),
            "observed_start_s": optional(times.start_s),
            "eligible_s": None if times.eligible_s is None else optional(times.eligible_s),
            **{
                field.name: self._deadlines(checks)
                if field.name == "deadline_s"
                else optional(checks.number(AT[field.name], field.name, field.absent), field.absent)
                for field in JOB_FIELDS
                if field.name in _OF_JOBS and field.name != "eligible_s"
            },
            **{name: checks.table.words(AT[name]) for name in _LABELS if checks.table.has(AT[name])},
        }

    def _requests(self, checks: Checks) -> Labels | None:
        """Return the constraints, levels and segments of the jobs, or None if the table has no such
        column."""
        if not any(checks.table.has(AT[name]) for name in _REQUESTS):
            return None
        words, levels, required = (checks.table.words(AT[name]) for name in _REQUESTS[:3])
        terms = [_constrained(word) for word in words.words]
        checks.note(np.array([not whole for _, whole in terms])[words.place], "whose constraint cannot be read")
        is_required = [_YES_OR_NO.get(word.strip().lower()) for word in required.words]
        checks.drop(
            np.array([word is None for word in is_required])[required.place],
            "with a level_required that is neither yes nor no",
        )
        segment = np.where(checks.table.blank(AT["segment"]), 0.0, checks.count(AT["segment"], "segment", 0, blank=0))
        place, distinct = numbered(
            zip(words.place.tolist(), levels.place.tolist(), required.place.tolist(), segment.tolist(), strict=True)
        )
        return Labels(
            place,
            tuple(
                [
                    replace(
                        terms[word][0],
                        level=levels.words[level].strip(),
                        level_required=is_required[needed] is not False,
                        segment=int(size) if 1 <= size < inf else None,
                    )
                    or None
                    for word, level, needed, size in distinct
                ]
            ),
        )

    def checked_arrivals(self, checks: Checks) -> np.ndarray:
        """Return the arrival of each row's job. Shape (n,), float64."""
        arrival = checks.finite(self._moments(checks.table, "arrival_s"), _ARRIVAL, "arrival_s")
        checks.drop(arrival < 0, ImpossibleTimes("with a negative arrival_s"))
        checks.drop(self._unset(checks.table, "arrival_s"), "without a time of arrival")
        fine = [in_seconds(checks.table.numbers(AT[name]))[1] for name in _DATES if checks.table.has(AT[name])]
        checks.note(np.any(fine, axis=0), "with times in milliseconds or smaller units (taken as seconds since 1970)")
        dates = [self._moments(checks.table, name) for name in _DATES if checks.table.has(AT[name])]
        if are_day_numbers(np.concatenate(dates)):
            checks.note(np.isfinite(arrival), ImpossibleTimes(DAY_NUMBERS))
        return arrival

    def _seconds(self, checks: Checks) -> np.ndarray:
        """Return the duration of each row, in seconds. Shape (n,), float64."""
        blank = checks.table.blank(AT["duration_s"])
        seconds = self._duration(checks, "duration_s", ~blank)
        if blank.any():
            for name in ("start_s", "end_s"):
                checks.drop(blank & self._unset(checks.table, name), f"that never ran (their {name} is not set)")
            stated = checks.table.has(AT["duration_s"])
            end, start = (
                checks.finite(
                    self._moments(checks.table, name), AT[name], "duration_s" if stated else name, where=blank
                )
                for name in ("end_s", "start_s")
            )
            seconds = np.where(blank, end - start, seconds)
        return seconds

    def _duration(self, checks: Checks, name: str, where: np.ndarray) -> np.ndarray:
        """Return durations, given as seconds or ``[DD-]HH:MM:SS``. Shape (n,), float64."""
        table, column = checks.table, AT[name]
        seconds = table.numbers(column)
        odd = np.flatnonzero(np.isnan(seconds) & ~table.blank(column))
        if len(odd):
            seconds, texts, wrong = seconds.copy(), table.words_of[column], np.zeros(len(table), bool)
            for row in odd.tolist():
                if ":" in texts[row]:
                    try:
                        seconds[row] = duration_s(texts[row], name) or 0.0
                    except Dirty:
                        wrong[row] = True
            checks.drop(wrong & where, InvalidValue(f"with an invalid duration in {name}"))
        return checks.finite(seconds, column, name, where=where)

    def _moments(self, table: Table, name: str) -> np.ndarray:
        """Return times as (n,) float64. Seconds are kept, dates become seconds since 1970, and any
        other text becomes NaN.
        """
        column = AT[name]
        seconds = table.numbers(column)
        odd = np.flatnonzero(np.isnan(seconds) & ~table.blank(column))
        if len(odd):
            seconds, texts = seconds.copy(), table.words_of[column]
            seconds[odd] = local_seconds(texts[odd], self._zone)
            for row in odd[np.isnan(seconds[odd])].tolist():
                text = texts[row]
                if len(text) > 9 and text[4:5] == "-" and text[:4].isdecimal():
                    with suppress(Dirty):
                        seconds[row] = moment_s(text, name, self._zone)
        return in_seconds(seconds)[0]

    def _unset(self, table: Table, name: str) -> np.ndarray:
        """Return a mask of the values that mean "not set", (n,) bool. These are the largest 32-bit
        and 64-bit numbers and, in a row with dates, 0.
        """
        seconds = self._moments(table, name)
        marked: np.ndarray = np.isin(seconds, UNSET_MOMENTS[1:])
        if (seconds == 0).any():
            for other in _DATES:
                marked = marked | ((seconds == 0) & (self._moments(table, other) >= _DATED_S))
        return marked

    def _moment(self, checks: Checks, name: str) -> np.ndarray:
        unset = self._unset(checks.table, name)
        there = ~checks.table.blank(AT[name]) & ~unset
        seconds = checks.finite(self._moments(checks.table, name), AT[name], name, where=there)
        return np.where(unset, nan, seconds)

    def _deadlines(self, checks: Checks) -> np.ndarray | None:
        column = AT["deadline_s"]
        seconds = self._moments(checks.table, "deadline_s")
        never = checks.table.blank(column)
        if column in checks.table.words_of:
            never = never | (checks.table.words_of[column] == "inf")
        else:
            never = never | (seconds == inf)
        checks.finite(seconds, column, "deadline_s", where=~never)
        return optional(np.where(never, inf, seconds), inf)

    def _types(self, text: str) -> tuple[str, ...]:
        """Return the GPU types that a field names."""
        names = [name.strip() for name in text.split("|") if name.strip()]
        return tuple(dict.fromkeys([site_gpu(name, self._named) for name in names]))


def _constrained(text: str) -> tuple[Request, bool]:
    """Convert an expression over node features to a request. Also return True if the whole
    expression could be read."""
    text = "" if is_unset(text) else text.strip()
    try:
        expression = without_counts(text, 0) if text else ""
        return Request(expression), "*" not in expression
    except ModelError:
        return Request(), False


def _check_states(checks: Checks, work: np.ndarray) -> None:
    """Drop the rows of jobs that had not ended, or that were cancelled without having run."""
    words = checks.table.words(AT["state"])
    states = [(word.split() or [""])[0].upper().rstrip("+") for word in words.words]

    def are(names: Sequence[str]) -> np.ndarray:
        rows: np.ndarray = np.array([state in names for state in states], bool)[words.place]
        return rows

    checks.drop(are(_NOT_OVER), "that outlive the trace")
    checks.drop(are(_CANCELLED) & (work <= 0), "cancelled before they started")
    checks.note(~are(("", *_NOT_OVER, *_OVER)), "whose state is unknown (taken as ended)")


class _Amounts(NamedTuple):
    """The number of instances in each row, and the resources that each instance requests, (n,)
    float64 each.
    """

    instances: np.ndarray
    gpus: np.ndarray
    cpus: np.ndarray
    memory_gb: np.ndarray


class _KindColumns(NamedTuple):
    """The columns that determine the kind of a task, or the values of one kind."""

    gpus: Any
    cpus: Any
    memory_gb: Any
    gang: Any
    types: Any
    model: Any
    batch: Any


def _over_nodes(checks: Checks, nodes: np.ndarray, whole: _Amounts) -> _Amounts:
    """Divide the amounts among nodes. If a row states ``nodes``, there is one instance per node, or
    one per GPU if the GPUs are not spread evenly over the nodes.
    """
    # replace invalid numbers with 1; their rows are dropped later
    nodes = np.where(are_counts(nodes), nodes, 1.0)
    checks.drop((nodes > 1) & (whole.instances > 1), Disagreement("with both nodes and instances"))
    uneven = (nodes > 1) & (np.where(np.isfinite(whole.gpus), whole.gpus, 0.0) % nodes > 0)
    checks.note(uneven, "with GPUs spread unevenly over their nodes (treated as single GPUs)")
    parts = np.where(uneven, np.maximum(np.floor(whole.gpus), 1.0), nodes)
    instances = np.where(nodes > 1, parts, whole.instances)
    return _Amounts(instances, whole.gpus / parts, whole.cpus / parts, whole.memory_gb / parts)

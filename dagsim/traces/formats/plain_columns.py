"""The rows of a plain CSV as jobs, all at once (see ``rowwise``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan

import numpy as np

from dagsim.model import Task
from dagsim.model.gpu import canonical
from dagsim.traces.columnar import kinds_of_rows
from dagsim.traces.fields import are_counts
from dagsim.traces.options import TraceOptions
from dagsim.traces.rowwise import PlainRows
from dagsim.traces.text_columns import TextTable, date_seconds
from dagsim.workload.arrays import JobArrays, TaskKind

__all__ = ["NUMBERS", "TEXTS", "plain_rows"]

NUMBERS = (
    *("arrival_s", "gpus", "duration_s", "start_s", "end_s", "eligible_s", "instances", "cpus", "memory_gb"),
    *("estimate_s", "priority", "deadline_s", "weight"),
)
TEXTS = ("id", "gpu_type", "gang", "model", "batch", "tenant", "user", "account", "partition", "qos")


def plain_rows(
    table: TextTable, columns: Sequence[str], yes_or_no: Mapping[str, bool], options: TraceOptions
) -> PlainRows | None:
    """The jobs of rows whose times are seconds, or dates of UTC; nothing if a row has a ``batch``."""
    at = {name: place for place, name in enumerate(columns)}
    if not table.blank(at["batch"]).all():
        return None

    def number(name: str, blank: float = nan) -> np.ndarray:
        return table.numbers(at[name], blank)

    def moment(name: str) -> np.ndarray:
        """Seconds; those of dates count from 1970."""
        found = number(name)
        odd = np.flatnonzero(np.isnan(found) & ~table.blank(at[name]))
        if len(odd) and options.zone() is None:
            found = found.copy()
            found[odd] = date_seconds(table.texts(at[name])[odd])
        return found

    def known(times: np.ndarray, name: str) -> np.ndarray:
        """(n,) bool: it is blank, or no earlier than the arrival."""
        fine: np.ndarray = table.blank(at[name]) | ((times >= arrival) & (times < inf))
        return fine

    arrival, start, end = moment("arrival_s"), moment("start_s"), moment("end_s")
    eligible, deadline = moment("eligible_s"), moment("deadline_s")
    duration = np.where(table.blank(at["duration_s"]), end - start, number("duration_s"))
    gpus, cpus, memory = number("gpus"), number("cpus", 0), number("memory_gb", 0)
    instances, priority, weight = number("instances", 1), number("priority", 0), number("weight", 1)
    gang, model, names = table.words(at["gang"]), table.words(at["model"]), table.words(at["gpu_type"])
    together = [yes_or_no.get(word.strip().lower()) for word in gang.words]
    estimate = number("estimate_s")
    plain = (arrival >= 0) & (arrival < inf) & (duration >= 0) & (duration < inf)
    plain &= (gpus >= 0) & ((gpus <= 1) | (gpus == np.floor(gpus))) & (gpus < inf) & are_counts(instances)
    for amount in (cpus, memory):
        plain &= (amount >= 0) & (amount < inf)
    plain &= np.isfinite(priority) & (weight > 0) & (weight < inf)
    plain &= table.blank(at["estimate_s"]) | np.isfinite(estimate)
    plain &= known(start, "start_s") & known(eligible, "eligible_s") & known(deadline, "deadline_s")
    plain &= np.array([each is not None for each in together])[gang.place]
    types = [_types(text, options) for text in names.words]
    measured_on = [each[0] if len(each) == 1 else None for each in types]
    duration, estimate = (options.all_on_reference(each, measured_on, names.place) for each in (duration, estimate))
    kind, kinds = kinds_of_rows(
        plain,
        (gpus, cpus, memory, np.array(together, bool)[gang.place] & (instances > 1), names.place, model.place),
        lambda gpus, cpus, memory, gang, place, model_: TaskKind(
            Task("", 0.0, 1, gang, gpus, cpus, memory, types[place] or None).demand, gang, model.words[model_] or None
        ),
    )
    jobs = JobArrays.of_single_tasks(
        table.texts(at["id"]),
        arrival,
        "task",
        work=np.where(duration < options.floor_s, options.floor_s, duration),
        instances=np.where(plain, instances, 1).astype(np.int64),
        kind=kind,
        kinds=kinds,
        estimate=_any(estimate),
        priority=priority,
        deadline_s=_any(np.where(np.isnan(deadline), inf, deadline), inf),
        weight=weight,
        observed_start_s=_any(start),
        eligible_s=_any(eligible),
        **{
            name: table.words(at[name])
            for name in ("tenant", "user", "account", "partition", "qos")
            if table.has(at[name])
        },
    )
    return PlainRows(jobs, plain)


def _types(text: str, options: TraceOptions) -> tuple[str, ...]:
    """The GPU types that a field names."""
    named = options.named_gpus()
    kinds = [each.strip() for each in text.split("|") if each.strip()]
    return tuple(dict.fromkeys([named.get(kind.lower()) or canonical(kind) for kind in kinds]))


def _any(column: np.ndarray, none: float = nan) -> np.ndarray | None:
    """The column, or nothing if all of it is ``none``."""
    missing = np.isnan(column) if none != none else column == none
    return None if missing.all() else column

"""The observations of an episode. They equal the observations of ``codecs.candidates`` with
``heads``, and of ``codecs.relative`` with its unit-free features. Columns are filled in the same
order and are equal bit for bit.

Everything is computed in float64 and stored as float32. Where ``candidates`` reads values from a
type's row, these have already been rounded to float32. Therefore, this module also reads the
rounded values.
"""

from __future__ import annotations

from math import log1p

import numpy as np

from dagsim.families.compiled.jit import inner, int64
from dagsim.families.episodes.episode_state import EpisodeState, named_places
from dagsim.families.episodes.play import below, exact_sum
from dagsim.families.episodes.proposals import work_left_s
from dagsim.families.learning.codecs.candidates import Candidates, log_ratio
from dagsim.families.learning.codecs.pool import QUEUE, SCALE_S, STATIC
from dagsim.families.learning.codecs.relative import COLUMN, Relative, log_over, log_scale

_TOKEN, _CONTEXT, _TYPE = map(
    named_places, (Candidates.token_features, Candidates.context_features, Candidates.gpu_features)
)
FIXED, SHOWN = 1 + len(STATIC), len(Candidates.gpu_features)
"""Number of columns of a row that never change, which are its first ones, and of its GPU type."""
_TOKENS = len(Candidates.token_features)
_BY_WIDTH = len(QUEUE)
"""Number of columns for each width class."""

_log_ratio, _log_over, _log_scale = inner(log_ratio), inner(log_over), inner(log_scale)


@inner
def _log_time(seconds: float) -> float:
    return log1p(seconds / 60) / 5


@inner
def freed_in_s(e: EpisodeState, gpus: float, type_: int) -> float:
    """Return the expected seconds until ``gpus`` more GPUs of the type are free, or 0 if none are
    needed."""
    if gpus <= 0:
        return 0.0
    at = e.on_type[type_].at
    for place in range(at, at + e.on_type[type_].held):
        gpus -= e.expected[place].gpus
        if gpus <= 0:
            return max(e.expected[place].end_s - e.state.clock.now_s, 0.0)
    return e.tally.never_s


@inner
def show_types(e: EpisodeState) -> None:
    """Fill the rows of the GPU types (``Candidates.gpu_features``)."""
    classes, types = len(e.widths), len(e.on_type)
    for type_ in range(types):
        idle, gpus, shown = float(e.state.types[type_].idle), e.on_type[type_].gpus, e.shown[type_]
        area, slowdowns = e.sums[classes + type_], e.sums[classes + types + type_]
        shown[_TYPE.free] = idle / gpus
        shown[_TYPE.capacity] = gpus / e.tally.gpus
        shown[_TYPE.pressure] = log1p(exact_sum(area[0], area[1]) / gpus / SCALE_S)
        shown[_TYPE.mean_slowdown] = exact_sum(slowdowns[0], slowdowns[1]) / e.tally.waiting
        for probe in range(4):  # seconds until 1, 2, 4 and 8 GPUs are free
            wait_s = freed_in_s(e, (1 << probe) - idle, type_)
            shown[_TYPE.ahead_1 + probe] = _log_time(wait_s) if wait_s else 0.0


@inner
def show_state(e: EpisodeState, context: np.ndarray) -> None:
    """Fill the state of the queue and the cluster (``Candidates.context_features``)."""
    classes, types, gpus = len(e.widths), len(e.on_type), e.tally.gpus
    high, low = int64(0), int64(0)
    for type_ in range(types):
        high += e.sums[classes + type_, 0]
        low += e.sums[classes + type_, 1]
        if low >= 1 << 60:
            low -= 1 << 60
            high += 1
    context[_CONTEXT.ready] = log1p(float(e.tally.waiting))
    context[_CONTEXT.running] = log1p(float(e.state.count.runs))
    context[_CONTEXT.jobs] = log1p(float(e.tally.jobs))
    context[_CONTEXT.work] = log1p(exact_sum(high, low) / gpus / SCALE_S)
    for width in range(classes):
        held, at = e.widths[width].held, _BY_WIDTH * width
        context[_CONTEXT.count_0 + at] = log1p(float(held))
        context[_CONTEXT.shortest_0 + at] = _log_time(e.sorted_s[e.widths[width].at]) if held else -1.0
        context[_CONTEXT.area_0 + at] = log1p(exact_sum(e.sums[width, 0], e.sums[width, 1]) / gpus / SCALE_S)
    for column in range(e.shown.shape[1]):
        total = e.shown[0, column]
        for type_ in range(1, types):
            total = np.float32(total + e.shown[type_, column])
        context[_CONTEXT.mean_free + column] = float(total) / types


@inner
def show_choices(e: EpisodeState, tokens: np.ndarray, first: int, choices: int) -> None:
    """Fill the rows of the first ``choices`` choices (``Candidates.token_features``), from row
    ``first`` on. If ``tokens`` has an additional column, that column is set to 1.
    """
    s, now = e.state, e.state.clock.now_s
    further = tokens.shape[1] > _TOKENS
    task, kind = int64(-1), int64(-1)
    age = job_age = shorter = eta_best = on_best_s = first_s = second_s = job_left = tasks_left = 0.0
    for choice in range(choices):
        type_ = e.choice[choice, 1]
        if e.choice[choice, 0] != task:  # compute the columns that all rows of a task share
            task = e.choice[choice, 0]
            job, kind = int64(s.tasks[task].job), int64(s.tasks[task].kind)
            age, job_age = _log_time(now - e.ready_s[task]), _log_time(now - s.jobs[job].arrival_s)
            job_left, tasks_left = _job_left(e, job), s.jobs[job].left / 8
            fewer = int64(0)
            for width in range(len(e.widths)):
                fewer += below(e.sorted_s, e.widths[width].at, e.widths[width].held, e.facts[task].best_s)
            shorter = fewer / e.tally.waiting
            on_best_s, first_s, second_s = _ends_s(e, kind, task)
            eta_best = _log_time(on_best_s - e.facts[task].best_s)
        here_s = s.seconds[task, type_]
        # The task would start on this type immediately, so ``here_s`` is also the time at which it
        # would end. If no other type gives an earlier end, compare with the second earliest end,
        # which is that of another type.
        elsewhere_s = second_s if here_s == first_s else first_s
        row, shown, fixed = tokens[first + choice], e.shown[type_], e.fixed[task, type_]
        for column in range(FIXED):
            row[column] = fixed[column]
        row[_TOKEN.age] = age
        row[_TOKEN.job_age] = job_age
        row[_TOKEN.eta_best] = eta_best
        row[_TOKEN.finish_on_best] = _log_ratio(on_best_s, here_s)
        row[_TOKEN.finish_elsewhere] = _log_ratio(elsewhere_s, here_s)
        row[_TOKEN.free_after] = float(shown[_TYPE.free]) - e.facts[task].wide / e.on_type[type_].gpus
        row[_TOKEN.shorter] = shorter
        row[_TOKEN.advantage] = e.slowdown[task, type_] - float(shown[_TYPE.mean_slowdown])
        row[_TOKEN.job_left] = job_left
        row[_TOKEN.job_tasks_left] = tasks_left
        for column in range(SHOWN):
            row[_TOKEN.type_free + column] = shown[column]
        if further:
            row[_TOKENS] = 1.0


@inner
def _ends_s(e: EpisodeState, kind: int, task: int) -> tuple[float, float, float]:
    """Return the seconds until a task ends if it waits: on its fastest type, and on the two types
    on which it would end first.
    """
    on_best_s, first_s, second_s = 0.0, np.inf, np.inf
    for type_ in range(len(e.on_type)):
        finish_s = eta_s(e, kind, type_) + e.state.seconds[task, type_]
        if type_ == e.facts[task].best_type:
            on_best_s = finish_s
        if finish_s < first_s:
            first_s, second_s = finish_s, first_s
        elif finish_s < second_s:
            second_s = finish_s
    return on_best_s, first_s, second_s


@inner
def eta_s(e: EpisodeState, kind: int, type_: int) -> float:
    """Return the seconds until a demand class fits on a type. They are computed once per
    observation."""
    if e.eta_s[kind, type_] < 0:
        s = e.state
        if not s.may[kind, type_]:
            e.eta_s[kind, type_] = e.tally.never_s
        elif e.room[kind] >> type_ & 1:
            e.eta_s[kind, type_] = 0.0
        else:
            gpus = s.classes[kind].gpus * max(s.classes[kind].gang, 1)
            e.eta_s[kind, type_] = freed_in_s(e, gpus - s.types[type_].idle, type_)
    return e.eta_s[kind, type_]


@inner
def _job_left(e: EpisodeState, job: int) -> float:
    """Return the logarithm of the seconds that the job's unfinished tasks take on their fastest
    types."""
    s = e.state
    if s.jobs[job].left != e.jobs[job].tasks_left:
        total = 0.0
        for task in range(s.jobs[job].first, s.jobs[job + 1].first):
            if s.todo[task].unfinished:
                total += e.facts[task].least_s
        e.jobs[job].tasks_left = s.jobs[job].left
        e.jobs[job].left = log1p(total / SCALE_S) / 3
    return e.jobs[job].left


_RELATIVE, _RELATIVE_CONTEXT, _RELATIVE_TYPE = map(
    named_places, (tuple(COLUMN), Relative.context_features, Relative.gpu_features)
)
_OF_TYPE = len(COLUMN)
"""The first of the columns of the type."""


@inner
def show_relative_state(e: EpisodeState, context: np.ndarray, gpus: np.ndarray) -> None:
    """Fill the rows of the types, the state of the queue and the cluster, and the mean over the
    types."""
    s, classes, types = e.state, len(e.widths), len(e.on_type)
    unit_s = e.all_s[e.tally.waiting // 2]
    high, low = int64(0), int64(0)
    for type_ in range(types):
        idle, count, shown = float(s.types[type_].idle), e.on_type[type_].gpus, e.exact[type_]
        area, slowdowns = e.sums[classes + type_], e.sums[classes + types + type_]
        high += area[0]
        low += area[1]
        if low >= 1 << 60:
            low -= 1 << 60
            high += 1
        shown[_RELATIVE_TYPE.free] = idle / count
        shown[_RELATIVE_TYPE.share] = count / e.tally.gpus
        shown[_RELATIVE_TYPE.pressure] = _log_scale(exact_sum(area[0], area[1]) / count, unit_s)
        shown[_RELATIVE_TYPE.mean_slowdown] = exact_sum(slowdowns[0], slowdowns[1]) / e.tally.waiting
        for probe in range(4):  # seconds until 1, 2, 4 and 8 GPUs are free
            wait_s = freed_in_s(e, (1 << probe) - idle, type_)
            shown[_RELATIVE_TYPE.ahead_1 + probe] = _log_scale(wait_s, unit_s)
    context[_RELATIVE_CONTEXT.ready] = log1p(8 * float(e.tally.waiting) / e.tally.gpus)
    context[_RELATIVE_CONTEXT.running] = s.count.runs / e.tally.gpus
    context[_RELATIVE_CONTEXT.jobs] = log1p(8 * float(e.tally.jobs) / e.tally.gpus)
    context[_RELATIVE_CONTEXT.work] = _log_scale(exact_sum(high, low) / e.tally.gpus, unit_s)
    for column in range(e.exact.shape[1]):
        total = 0.0
        for type_ in range(types):
            total += e.exact[type_, column]
        context[_RELATIVE_CONTEXT.mean_free + column] = total / types
        gpus[0, column] = context[_RELATIVE_CONTEXT.mean_free + column]


@inner
def show_relative(e: EpisodeState, tokens: np.ndarray, first: int, choices: int) -> None:
    """Fill the rows of the first ``choices`` choices, from row ``first`` on. If ``tokens`` has an
    additional column, that column is set to 1.
    """
    s, now = e.state, e.state.clock.now_s
    unit_s = e.all_s[e.tally.waiting // 2]
    shown_columns = e.exact.shape[1]
    further = tokens.shape[1] > _OF_TYPE + shown_columns
    task, job, kind = int64(-1), int64(-1), int64(-1)
    on_best_s = first_s = second_s = shorter = left_s = 0.0
    for choice in range(e.tally.choices):
        type_ = e.choice[choice, 1]
        if e.choice[choice, 0] != task:  # compute the columns that all rows of a task share
            task = e.choice[choice, 0]
            job, kind = int64(s.tasks[task].job), int64(s.tasks[task].kind)
            left_s = work_left_s(e, job)
            shorter = below(e.all_s, int64(0), e.tally.waiting, e.facts[task].best_s) / e.tally.waiting
            on_best_s, first_s, second_s = _ends_s(e, kind, task)
        here_s, best_s, wide = s.seconds[task, type_], e.facts[task].best_s, e.facts[task].wide
        work_s = left_s + wide * (here_s - e.facts[task].least_s)
        e.works[choice, 0] = work_s
        e.works[choice, 1] = here_s
        if choice >= choices:
            continue
        row, shown = tokens[first + choice], e.exact[type_]
        row[_RELATIVE.wait] = 0.0
        row[_RELATIVE.log_seconds] = _log_over(here_s, unit_s)
        row[_RELATIVE.log_best] = _log_over(best_s, unit_s)
        row[_RELATIVE.slowdown] = e.slowdown[task, type_]
        row[_RELATIVE.log_rank] = _log_over(e.facts[task].rank_s, unit_s)
        row[_RELATIVE.is_best_type] = 1.0 if type_ == e.facts[task].best_type else 0.0
        row[_RELATIVE.gpus] = log1p(wide) / 2
        row[_RELATIVE.gpus_of_type] = wide / e.on_type[type_].gpus
        row[_RELATIVE.children] = log1p(float(s.tasks[task + 1].children - s.tasks[task].children)) / 2
        row[_RELATIVE.job_tasks] = log1p(float(s.jobs[job + 1].first - s.jobs[job].first)) / 2
        row[_RELATIVE.job_tasks_left] = log1p(float(s.jobs[job].left)) / 2
        row[_RELATIVE.age] = _log_scale(now - e.ready_s[task], unit_s)
        row[_RELATIVE.job_age] = _log_scale(now - s.jobs[job].arrival_s, unit_s)
        row[_RELATIVE.eta_best] = _log_scale(on_best_s - best_s, unit_s)
        row[_RELATIVE.finish_on_best] = _log_ratio(on_best_s, here_s)
        row[_RELATIVE.finish_elsewhere] = _log_ratio(second_s if here_s == first_s else first_s, here_s)
        row[_RELATIVE.shorter] = shorter
        row[_RELATIVE.advantage] = e.slowdown[task, type_] - shown[_RELATIVE_TYPE.mean_slowdown]
        row[_RELATIVE.log_work_left] = _log_over(work_s, unit_s)
        row[_RELATIVE.proposed] = 1.0 if task == e.tally.proposed and type_ == e.tally.on else 0.0
        for column in range(shown_columns):
            row[_OF_TYPE + column] = shown[column]
        if further:
            row[_OF_TYPE + shown_columns] = 1.0
    _show_ranks(e, tokens, first, choices, int64(0), int64(_RELATIVE.work_rank))
    _show_ranks(e, tokens, first, choices, int64(1), int64(_RELATIVE.seconds_rank))


@inner
def show_wait(e: EpisodeState, tokens: np.ndarray, row: int) -> None:
    """Fill the row of the choice to wait."""
    for column in range(tokens.shape[1]):
        tokens[row, column] = 0.0
    tokens[row, _TOKEN.wait] = 1.0
    if e.tally.relative:
        tokens[row, _RELATIVE.proposed] = 1.0 if e.tally.proposed < 0 else 0.0


@inner
def _show_ranks(e: EpisodeState, tokens: np.ndarray, first: int, choices: int, value: int, column: int) -> None:
    """Fill a column with the rank of each row's value, from 0 to 1. Equal values have equal ranks."""
    distinct = int64(0)
    for choice in range(e.tally.choices):
        one = e.works[choice, value]
        place = below(e.ranked, int64(0), distinct, one)
        if place < distinct and e.ranked[place] == one:
            continue
        for later in range(distinct, place, -1):
            e.ranked[later] = e.ranked[later - 1]
        e.ranked[place] = one
        distinct += 1
    for choice in range(choices):
        place = below(e.ranked, int64(0), distinct, e.works[choice, value])
        tokens[first + choice, column] = place / max(distinct - 1, 1)

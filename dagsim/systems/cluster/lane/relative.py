"""Observations of episodes in features without units: the twin of ``codecs.relative``."""

from __future__ import annotations

from math import log, log1p

import numpy as np

from dagsim.systems.cluster.codecs.relative import TASK_FEATURES
from dagsim.systems.cluster.lane.episode import below, exact_sum
from dagsim.systems.cluster.lane.episode_state import EpisodeState
from dagsim.systems.cluster.lane.jit import inner, int64
from dagsim.systems.cluster.lane.observations import clipped_log_ratio, eta_s, freed_in_s
from dagsim.systems.cluster.lane.proposals import work_left_s

__all__ = ["PROPOSED", "show_relative", "show_relative_state"]

PROPOSED = 1 + len(TASK_FEATURES)
"""The column that marks the proposal of the reference; those of the type follow."""
_WORK_RANK, _SECONDS_RANK = PROPOSED - 2, PROPOSED - 1
_CLIP = 4.0
"""As in ``codecs.relative``."""


@inner
def _log_over(seconds: float, unit_s: float) -> float:
    """The logarithm of a time over the unit, clipped."""
    return max(-_CLIP, min(log(max(seconds, 1e-6 * unit_s) / unit_s), _CLIP)) / 2


@inner
def _log_scale(seconds: float, unit_s: float) -> float:
    """A time over the unit, 0 for 0 s, as a logarithm with a bound."""
    return min(log1p(max(seconds, 0.0) / unit_s), _CLIP) / 2


@inner
def show_relative_state(e: EpisodeState, context: np.ndarray, gpus: np.ndarray) -> None:
    """Fill the rows of the types, the state of queue and cluster, and the mean over the types."""
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
        shown[0] = idle / count
        shown[1] = count / e.tally.gpus
        shown[2] = _log_scale(exact_sum(area[0], area[1]) / count, unit_s)
        shown[3] = exact_sum(slowdowns[0], slowdowns[1]) / e.tally.waiting
        for probe in range(4):  # 1, 2, 4 and 8 GPUs
            shown[4 + probe] = _log_scale(freed_in_s(e, (1 << probe) - idle, type_), unit_s)
    context[0] = log1p(8 * float(e.tally.waiting) / e.tally.gpus)
    context[1] = s.count.runs / e.tally.gpus
    context[2] = log1p(8 * float(e.tally.jobs) / e.tally.gpus)
    context[3] = _log_scale(exact_sum(high, low) / e.tally.gpus, unit_s)
    for column in range(e.exact.shape[1]):
        total = 0.0
        for type_ in range(types):
            total += e.exact[type_, column]
        context[4 + column] = total / types
        gpus[0, column] = context[4 + column]


@inner
def show_relative(e: EpisodeState, tokens: np.ndarray, first: int, choices: int) -> None:
    """Fill the rows of the first choices, from row ``first`` on. A further column of ``tokens`` is 1."""
    s, now, types = e.state, e.state.clock.now_s, len(e.on_type)
    unit_s = e.all_s[e.tally.waiting // 2]
    shown_columns = e.exact.shape[1]
    further = tokens.shape[1] > PROPOSED + 1 + shown_columns
    task, job, kind = int64(-1), int64(-1), int64(-1)
    on_best_s = first_s = second_s = shorter = left_s = 0.0
    for choice in range(e.tally.choices):
        type_ = e.choice[choice, 1]
        if e.choice[choice, 0] != task:  # what all rows of the task share
            task = e.choice[choice, 0]
            job, kind = int64(s.tasks[task].job), int64(s.tasks[task].kind)
            left_s = work_left_s(e, job)
            shorter = below(e.all_s, int64(0), e.tally.waiting, e.facts[task].best_s) / e.tally.waiting
            first_s = second_s = np.inf
            for other in range(types):
                finish_s = eta_s(e, kind, other) + s.seconds[task, other]
                if other == e.facts[task].best_type:
                    on_best_s = finish_s
                if finish_s < first_s:
                    first_s, second_s = finish_s, first_s
                elif finish_s < second_s:
                    second_s = finish_s
        here_s, best_s, wide = s.seconds[task, type_], e.facts[task].best_s, e.facts[task].wide
        work_s = left_s + wide * (here_s - e.facts[task].least_s)
        e.works[choice, 0] = work_s
        e.works[choice, 1] = here_s
        if choice >= choices:
            continue
        row, shown = tokens[first + choice], e.exact[type_]
        row[0] = 0.0
        row[1] = _log_over(here_s, unit_s)
        row[2] = _log_over(best_s, unit_s)
        row[3] = e.slowdown[task, type_]
        row[4] = _log_over(e.facts[task].rank_s, unit_s)
        row[5] = 1.0 if type_ == e.facts[task].best_type else 0.0
        row[6] = log1p(wide) / 2
        row[7] = wide / e.on_type[type_].gpus
        row[8] = log1p(float(s.tasks[task + 1].children - s.tasks[task].children)) / 2
        row[9] = log1p(float(s.jobs[job + 1].first - s.jobs[job].first)) / 2
        row[10] = log1p(float(s.jobs[job].left)) / 2
        row[11] = _log_scale(now - e.ready_s[task], unit_s)
        row[12] = _log_scale(now - s.jobs[job].arrival_s, unit_s)
        row[13] = _log_scale(on_best_s - best_s, unit_s)
        row[14] = clipped_log_ratio(on_best_s, here_s)
        row[15] = clipped_log_ratio(second_s if here_s == first_s else first_s, here_s)
        row[16] = shorter
        row[17] = e.slowdown[task, type_] - shown[3]
        row[18] = _log_over(work_s, unit_s)
        row[PROPOSED] = 1.0 if task == e.tally.proposed and type_ == e.tally.on else 0.0
        for column in range(shown_columns):
            row[PROPOSED + 1 + column] = shown[column]
        if further:
            row[PROPOSED + 1 + shown_columns] = 1.0
    _show_ranks(e, tokens, first, choices, int64(0), int64(_WORK_RANK))
    _show_ranks(e, tokens, first, choices, int64(1), int64(_SECONDS_RANK))


@inner
def _show_ranks(e: EpisodeState, tokens: np.ndarray, first: int, choices: int, value: int, column: int) -> None:
    """Fill a column with the rank of each row's value, from 0 to 1; equal values have the same."""
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

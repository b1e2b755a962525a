"""The service that each job has had: seconds, or GPU-seconds, of ended runs and of running ones.

Sums are made in the order of the SimPy kernel's ``Service``: ended runs by number, then running ones as they were seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.jit import by_pointer, inner
from dagsim.systems.cluster.lane.state import SLOTS, STARTS, State

__all__ = ["LasService", "end_service", "grown_service", "new_service", "see_starts", "served"]


@by_pointer
class LasService(NamedTuple):
    """Running runs in a list per job, -1 at its ends."""

    now: np.ndarray  # (1,) float64: the time until which service counts
    by_gpus: np.ndarray  # (1,) bool: GPU-seconds count
    ended: np.ndarray  # (J,) float64: what ended runs have had
    first: np.ndarray  # (J,) int64: slots of runs
    last: np.ndarray  # (J,) int64
    behind: np.ndarray  # (runs,) int64
    before: np.ndarray  # (runs,) int64


def new_service(s: State, by_gpus: bool) -> LasService:
    """Nobody has had anything."""
    jobs, runs = len(s.jobs) - 1, len(s.runs)
    return LasService(
        now=np.zeros(1),
        by_gpus=np.array([by_gpus]),
        ended=np.zeros(jobs),
        first=np.full(jobs, -1, np.int64),
        last=np.full(jobs, -1, np.int64),
        behind=np.empty(runs, np.int64),
        before=np.empty(runs, np.int64),
    )


def grown_service(s: State, v: LasService) -> LasService:
    """The same with space for the runs of a state that has grown."""
    behind, before = (np.resize(each, len(s.runs)) for each in (v.behind, v.before))
    return v._replace(behind=behind, before=before)


@inner
def served(s: State, v: LasService, job: int) -> float:
    """Add up what a job has had until now."""
    total = v.ended[job]
    run = v.first[job]
    while run >= 0:
        total += _weight(s, v, run) * (v.now[0] - s.runs[run].start_s)
        run = v.behind[run]
    return total


@inner
def see_starts(s: State, v: LasService) -> None:
    """Note the runs that have started, the newest first."""
    for each in range(s.n[STARTS] - 1, -1, -1):
        run = s.starts[each] & ((1 << SLOTS) - 1)
        job = s.tasks[s.runs[run].task].job
        v.behind[run] = -1
        v.before[run] = v.last[job]
        if v.last[job] < 0:
            v.first[job] = run
        else:
            v.behind[v.last[job]] = run
        v.last[job] = run
    s.n[STARTS] = 0


@inner
def end_service(s: State, v: LasService, run: int) -> None:
    """Count a run as ended."""
    job = s.tasks[s.runs[run].task].job
    if v.by_gpus[0]:
        v.ended[job] += _weight(s, v, run) * (v.now[0] - s.runs[run].start_s)
    else:
        v.ended[job] = v.ended[job] + v.now[0] - s.runs[run].start_s
    if v.before[run] < 0:
        v.first[job] = v.behind[run]
    else:
        v.behind[v.before[run]] = v.behind[run]
    if v.behind[run] < 0:
        v.last[job] = v.before[run]
    else:
        v.before[v.behind[run]] = v.before[run]


@inner
def _weight(s: State, v: LasService, run: int) -> float:
    """The weight of a second of a run."""
    return s.classes[s.tasks[s.runs[run].task].kind].gpus * s.runs[run].count if v.by_gpus[0] else 1.0

"""Job ids in Slurm's accounting. Slurm may use an id for several jobs."""

from __future__ import annotations

import re
from math import isnan

import numpy as np

from dagsim.families.slurm.accounting.sacct_times import AT, CLOCK_S
from dagsim.model.arithmetic import DAY_S
from dagsim.traces.grouping import Grouped, repeated
from dagsim.traces.typed_table import Table

_REQUEUE_S = 300.0


def job_id(id: str) -> str:
    """Return a job's id. The first component of a heterogeneous job has the id of the whole job."""
    return id.removesuffix("+0")


def component(id: str) -> int:
    """Return the number of a component in a heterogeneous job, or 0 for other jobs."""
    number = id.partition("+")[2].partition(":")[0]
    return int(number) if number.isdecimal() and len(number) < 6 else 0


def row_ids(table: Table) -> np.ndarray:
    """Return (n,) object: the id of each row."""
    ids, raw = table.texts(AT["JobID"]), table.texts(AT["JobIDRaw"])
    return np.where(ids == "", raw, ids)


def by_time_and_id(groups: Grouped) -> Grouped:
    """Sort jobs with equal submission times by number, because text and JSON list them in different
    orders.
    """
    ids = groups.ids.tolist()
    if all(id.isascii() and id.isdecimal() and len(id) < 19 and (id[0] != "0" or id == "0") for id in ids):
        return groups.ordered(np.lexsort((np.array(ids, object).astype(np.int64), groups.time)))
    jobs, tied = np.arange(len(ids)), np.flatnonzero(np.diff(groups.time) == 0)
    begins = tied[np.diff(tied, prepend=-2) > 1]
    ends = np.searchsorted(groups.time, groups.time[begins], "right")
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        jobs[begin:end] = sorted(range(begin, end), key=lambda job: _order(ids[job]))
    return groups.ordered(jobs)


def _order(job: str) -> tuple[tuple[int, ...], str]:
    """Return a sort key that gives the order of submission: the array number, then the job
    number."""
    return tuple([int(digits) for digits in re.findall(r"\d{1,18}", job)[:3]]), job


class ReusedIds:
    """Finds job ids that Slurm has used for more than one job.

    Rows with the same id, user and cluster are attempts of one job if each attempt was submitted
    soon after the end of the previous one. Soon means within five minutes (MinJobAge) if the
    previous attempt completed, and otherwise within a day, because Slurm may have requeued the job.
    If an attempt was submitted later, Slurm has used the id again for another job.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[np.ndarray, ...]] = []
        self._numbers: dict[tuple[int, int, float], int] | None = None

    def add(self, *columns: np.ndarray) -> None:
        """Add rows. The arguments are columns: hashes of the ids without components, of the full
        ids and of the owners, times of submission and end, and whether the row's job completed.
        """
        self._rows.append(columns)

    @property
    def numbers(self) -> dict[tuple[int, int, float], int]:
        """Numbers that distinguish jobs with the same id. The first job with an id has no entry. A
        key consists of the hash of the id, the hash of the owner and the submission time.
        """
        if self._numbers is None:
            self._numbers = {}
            if self._rows:
                ids, *others = (np.concatenate(column) for column in zip(*self._rows, strict=True))
                self._rows.clear()
                places = np.flatnonzero(repeated(ids) | repeated(ids[::-1])[::-1])
                order = np.lexsort((others[3][places], others[2][places], ids[places]))
                self._number(*(column[places[order]].tolist() for column in (ids, *others)))
        return self._numbers

    def _number(
        self,
        ids: list[int],
        full: list[int],
        owners: list[int],
        submit_s: list[float],
        end_s: list[float],
        completed: list[bool],
    ) -> None:
        """Number the jobs in rows that are sorted by id and submission."""
        assert self._numbers is not None
        # One entry per job with this id: a map from full ids to the last row with that full id.
        jobs: list[dict[int, int]] = []

        def continues(row: int, last: dict[int, int]) -> bool:
            before = last.get(full[row], next(iter(last.values())))
            if owners[row] != owners[before]:
                return False
            if full[row] not in last or submit_s[row] - submit_s[before] <= CLOCK_S:
                return True
            longest_s = _REQUEUE_S if completed[before] else DAY_S
            return isnan(end_s[before]) or -CLOCK_S <= submit_s[row] - end_s[before] <= longest_s

        for row, id in enumerate(ids):
            if row and id != ids[row - 1]:
                jobs.clear()
            number = next((number for number, last in enumerate(jobs) if continues(row, last)), len(jobs))
            if number == len(jobs):
                jobs.append({})
            jobs[number][full[row]] = row
            if number:
                self._numbers[id, owners[row], submit_s[row]] = number

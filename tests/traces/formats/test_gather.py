"""Rows gathered by job, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from dagsim.traces.gather import Gathered, gather

ROWS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([0.0, 1.0, 2.5, inf]), st.text("xyz", max_size=3)))


def test_jobs_come_by_earliest_time_with_their_rows_in_order() -> None:
    rows = [("late", 9.0, "1"), ("early", 5.0, "2"), ("late", 7.0, "3"), ("early", 8.0, "4"), ("same", 5.0, "5")]
    assert list(gather(rows)) == [
        Gathered(5.0, 1, "early", ["2", "4"]),
        Gathered(5.0, 4, "same", ["5"]),
        Gathered(7.0, 0, "late", ["1", "3"]),
    ]


@given(ROWS, st.integers(1, 5))
def test_sorting_on_disk_gives_what_sorting_in_memory_gives(rows: list[tuple[str, float, str]], room: int) -> None:
    assert list(gather(rows, rows_in_memory=room)) == list(gather(rows))


def test_a_spill_to_disk_loses_and_reorders_nothing() -> None:
    def rows() -> Iterator[tuple[str, float, str]]:
        for place in range(20_000):
            yield f"job {place % 7000}", float(place * 7919 % 1000), f"{place}"

    jobs = list(gather(rows(), rows_in_memory=50))
    assert [job.time for job in jobs] == sorted(job.time for job in jobs)
    assert sorted(int(row) for job in jobs for row in job.rows) == list(range(20_000))
    assert all(job.rows == sorted(job.rows, key=int) for job in jobs)

"""Facts of jobs as columns: the same as a list of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagsim.model import Cluster, JobFacts
from dagsim.model.log import NUMBERS, FactColumns, Schedule

NUMBER = st.floats(0, 1e9)
TASKS = st.sampled_from(((("t",), ((),)), (("a", "b"), ((), (0,))), (("a", "b", "t"), ((), (), (0, 1))), (("t",), ())))


@st.composite
def a_job(draw: st.DrawFn) -> JobFacts:
    tasks, parents = draw(TASKS)
    numbers = [draw(NUMBER) for _ in range(6)]
    deadline_s = draw(st.none() | NUMBER)
    text = st.text("ab", max_size=2)
    return JobFacts(draw(text), *numbers[:2], draw(text), deadline_s, *numbers[2:], tasks, parents)


@given(st.lists(a_job(), max_size=12), st.slices(12))
def test_columns_are_like_a_list(facts: list[JobFacts], chosen: slice) -> None:
    columns = FactColumns.of(facts)
    assert list(columns) == facts == columns
    assert columns == facts
    assert len(columns) == len(facts)
    assert columns[chosen] == facts[chosen]
    assert [columns[place - len(facts)] for place in range(len(facts))] == facts
    for name in NUMBERS:
        np.testing.assert_array_equal(getattr(columns, name), np.array([getattr(job, name) for job in facts], float))
    assert columns.ids == tuple([job.id for job in facts])
    assert columns.tenant == tuple([job.tenant for job in facts])
    assert FactColumns.of(columns) is columns


@given(st.lists(a_job(), min_size=1, max_size=4), a_job())
def test_other_jobs_are_not_equal(facts: list[JobFacts], other: JobFacts) -> None:
    columns = FactColumns.of(facts)
    assert columns != [*facts, other]
    assert columns != facts[1:]
    assert (columns == [other, *facts[1:]]) == (facts[0] == other)
    with pytest.raises(IndexError):
        columns[len(facts)]


def test_a_job_can_arrive_behind_columns() -> None:
    job = JobFacts("j", 0.0, 0.0, "", None, 1.0, 1.0, 1.0, 1.0, ("t",), ((),))
    schedule = Schedule(Cluster.of({"T4": 1}), FactColumns.of([job]))
    schedule.arrived(job)
    assert schedule.jobs == [job, job]


@pytest.mark.parametrize(
    "wrong",
    [
        {"tenant": ("a", "b")},
        {"graph": np.array([-1])},
        {"name": np.array([2, 0])},
        {"first": np.array([0, 3])},
        {"first": np.array([0, 2, 2])},
        {"weight": np.zeros(2)},
    ],
)
def test_columns_that_do_not_fit_are_refused(wrong: dict[str, object]) -> None:
    columns = FactColumns.of([JobFacts("j", 0.0, 0.0, "", None, 1.0, 1.0, 1.0, 1.0, ("a", "b"), ((), (0,)))])
    with pytest.raises(ValueError, match=r"columns of|do not belong|beyond the end"):
        replace(columns, **wrong)  # type: ignore[arg-type]

from __future__ import annotations

import pytest
from support.written_schedules import ScheduleWriter

from dagsim.families.web.blocking_sections import rejected_by_beta, rejected_by_cause
from dagsim.metrics import columns
from dagsim.model import Cluster, RejectReason
from dagsim.model.log import Schedule


def schedule(*, turned_away: dict[int, RejectReason]) -> Schedule:
    """Four jobs of 10 s on one GPU, that accept 2, 4, 8 and 20 s: betas of 0.2, 0.4, 0.8 and 2."""
    writer = ScheduleWriter(Cluster.of({"T4": 1}))
    for number, accepted_s in enumerate((2.0, 4.0, 8.0, 20.0)):
        job = writer.job(1.0 * number, deadline_s=number + accepted_s, ideal_gpu_s=10.0)
        if job in turned_away:
            writer.reject(job, 1.0 * number, turned_away[job])
    return writer.schedule()


def test_rejected_jobs_are_counted_by_cause_and_by_beta() -> None:
    runs = {
        "strict": columns(schedule(turned_away={0: RejectReason.TOO_SLOW, 1: RejectReason.NO_PLACE})),
        "open": columns(schedule(turned_away={0: RejectReason.TOO_SLOW})),
    }
    (cause,), (beta,) = rejected_by_cause(runs), rejected_by_beta(runs)
    assert cause.heads == ("", "jobs", "rejected", "no place\nfree", "would take\ntoo long")
    assert list(cause.rows) == [
        ("strict", "4", "2 (50.0%)", "1 (25.0%)", "1 (25.0%)"),
        ("open", "4", "1 (25.0%)", "0 (0.0%)", "1 (25.0%)"),
    ]
    assert beta.heads == ("", "beta up\nto 0.25", "beta up\nto 0.5", "beta up\nto 1", "beta over\n1")
    assert list(beta.rows) == [
        ("strict", "100.0% of 1", "100.0% of 1", "0.0% of 1", "0.0% of 1"),
        ("open", "100.0% of 1", "0.0% of 1", "0.0% of 1", "0.0% of 1"),
    ]


def test_where_every_job_was_let_in_there_is_nothing_to_say() -> None:
    runs = {"all": columns(schedule(turned_away={}))}
    assert rejected_by_cause(runs) == rejected_by_beta(runs) == []


@pytest.mark.parametrize("reason", RejectReason)
def test_every_reason_has_words(reason: RejectReason) -> None:
    (cause,) = rejected_by_cause({"all": columns(schedule(turned_away={2: reason}))})
    assert cause.rows[0][2:] == ("1 (25.0%)", "1 (25.0%)")


def test_a_job_without_work_is_in_no_range_of_beta() -> None:
    """Beta is the time until the deadline over the time on one GPU, which such a job does not have."""
    writer = ScheduleWriter(Cluster.of({"T4": 1}))
    for work_s in (0.0, 10.0):
        writer.reject(writer.job(ideal_s=work_s, deadline_s=5.0), 0.0, RejectReason.BY_POLICY)
    (by_beta,) = rejected_by_beta({"fifo": columns(writer.schedule())})
    assert (by_beta.heads[1:], by_beta.rows) == (("beta up\nto 0.5",), [("fifo", "100.0% of 1")])

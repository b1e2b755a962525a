from __future__ import annotations

import pytest

from dagsim.families.web.blocking_sections import rejected_by_beta, rejected_by_cause
from dagsim.metrics import columns
from dagsim.model import Cluster, JobFacts, Kind, RejectReason
from dagsim.model.log import Schedule, ScheduleLog


def schedule(*, turned_away: dict[int, RejectReason]) -> Schedule:
    """Four jobs of 10 s on one GPU, that accept 2, 4, 8 and 20 s: betas of 0.2, 0.4, 0.8 and 2."""
    result = Schedule(Cluster.of({"T4": 1}), [], ScheduleLog())
    for job, accepted_s in enumerate((2.0, 4.0, 8.0, 20.0)):
        facts = JobFacts(f"j{job}", 1.0 * job, 0.0, "", job + accepted_s, 1.0, 1.0, 10.0, 1.0, ("t",))
        result.arrived(facts)
        result.log.append((Kind.ARRIVED, 1.0 * job, job, -1, -1, -1, 0, 0, 0.0))
        if job in turned_away:
            result.log.append((Kind.REJECTED, 1.0 * job, job, -1, -1, -1, 0, 0, float(turned_away[job])))
    return result


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
    schedule = Schedule(Cluster.of({"T4": 1}), [], ScheduleLog())
    for name, work_s in (("none", 0.0), ("late", 10.0)):
        schedule.arrived(JobFacts(name, 0.0, 0.0, "", 5.0, 1.0, work_s, work_s, 1.0, ("t",)))
    for number in range(2):
        schedule.log.append((Kind.ARRIVED, 0.0, number, -1, -1, -1, 0, 0, 0.0))
        schedule.log.append((Kind.REJECTED, 0.0, number, -1, -1, -1, 0, 0, float(RejectReason.BY_POLICY)))
    (by_beta,) = rejected_by_beta({"fifo": columns(schedule)})
    assert (by_beta.heads[1:], by_beta.rows) == (("beta up\nto 0.5",), [("fifo", "100.0% of 1")])

from __future__ import annotations

from dagsim.metrics import columns
from dagsim.model import Cluster, JobFacts, Kind
from dagsim.model.log import ScheduleLog
from dagsim.model.schedule import Schedule
from dagsim.report.page.waits import worst_waits


def test_the_longest_wait_comes_first_with_what_happened_meanwhile() -> None:
    # two GPUs: "long" holds both from 0 to 10; "wide" arrives at 2, "small" at 4 and overtakes it; wide starts at 20
    schedule = Schedule(Cluster.of({"T4": 2}), [], ScheduleLog())
    for name, arrival_s, gpus in (("long", 0.0, 2.0), ("wide", 2.0, 2.0), ("small", 4.0, 1.0)):
        schedule.jobs.append(JobFacts(name, arrival_s, 0.0, "", None, 1.0, 10.0, 10.0 * gpus, gpus, ("t",)))
    for row in [
        (Kind.ARRIVED, 0.0, 0, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 0.0, 0, 0, 0, 0, 1, 3, 2.0),
        (Kind.ARRIVED, 2.0, 1, -1, -1, -1, 0, 0, 0.0),
        (Kind.ARRIVED, 4.0, 2, -1, -1, -1, 0, 0, 0.0),
        (Kind.FINISHED, 10.0, 0, 0, 0, 0, 1, 3, 2.0),
        (Kind.COMPLETED, 10.0, 0, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 10.0, 2, 0, 1, 0, 1, 1, 1.0),
        (Kind.FINISHED, 20.0, 2, 0, 1, 0, 1, 1, 1.0),
        (Kind.COMPLETED, 20.0, 2, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 20.0, 1, 0, 2, 0, 1, 3, 2.0),
        (Kind.PREEMPTED, 22.0, 1, 0, 2, 0, 1, 3, 2.0),
        (Kind.STARTED, 25.0, 1, 0, 3, 0, 1, 3, 2.0),
        (Kind.FINISHED, 33.0, 1, 0, 3, 0, 1, 3, 2.0),
        (Kind.COMPLETED, 33.0, 1, -1, -1, -1, 0, 0, 0.0),
    ]:
        schedule.log.append(row)
    # wide: 18 s before its first run and 3 s after; of 36 GPU-seconds meanwhile 16 + 10 were held
    assert list(worst_waits(columns(schedule)).rows) == [
        ("wide", "-", "2", "21", "18", "1", "1", "72 %"),
        ("small", "-", "1", "6", "6", "0", "0", "100 %"),
    ]

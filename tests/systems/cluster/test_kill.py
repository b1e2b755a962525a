"""``Kill``: the end of a job before it is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dagsim.errors import IllegalDecision
from dagsim.metrics import summarize
from dagsim.model import Cluster, Decision, Edge, Job, Kill, Kind, Node, RejectReason, Share, Start, Task, TaskGraph
from dagsim.model.gpu import GpuType
from dagsim.systems.cluster import ClusterView, UniformNetwork
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing import violations

GPU = GpuType("G", 1.0, 16, 100, 100, 10)
CLUSTER = Cluster((Node("n", GPU, 4),))


class Killer:
    """Starts what fits; kills the first job at its first question from 3 s on."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if view.now >= 3 and 0 in view.jobs:
            yield Kill(0)
        for task in list(view.ready):
            if placement := view.fit(task):
                yield Start(task, placement)


def dag() -> Job:
    """Runs, a waiting instance, and a child that waits for all of them."""
    return Job("dag", TaskGraph((Task("many", 9, instances=5), Task("child", 1)), (Edge(0, 1, 1e9),)))


@pytest.mark.parametrize("models", [{}, {"network": UniformNetwork(1.0, 0.0)}])
def test_a_killed_job_leaves_with_all_that_it_holds_and_waits_for(models: dict[str, object]) -> None:
    jobs = [dag(), Job.single("other", Task("t", 2.0, gpus=4), 3.0)]
    kernel = ClusterScenario(CLUSTER, jobs, **models).kernel(0)  # type: ignore[arg-type]
    schedule = kernel.run(Killer())
    assert not violations(schedule, jobs)
    rows = [(row.kind, row.time_s) for row in schedule.log if row.job == 0 and row.time_s == 3]
    assert rows == [(Kind.PREEMPTED, 3.0), (Kind.REJECTED, 3.0)]
    assert [row.value for row in schedule.log if row.kind == Kind.REJECTED] == [RejectReason.TIME_LIMIT]
    summary = summarize(schedule)
    assert (summary.jobs_completed, summary.jobs_killed, summary.blocking_rate, summary.makespan_s) == (1, 1, 0.0, 2.0)


def test_a_job_that_has_just_started_cannot_be_killed() -> None:
    class Hasty:
        def decide(self, view: ClusterView) -> Iterator[Decision]:
            yield Start(next(iter(view.ready)), (Share(0),))
            yield Kill(0)

    with pytest.raises(IllegalDecision, match="job 0 started at this very moment"):
        ClusterScenario(CLUSTER, [dag()]).kernel(0).run(Hasty())


def test_a_fork_goes_on_without_the_killed_job() -> None:
    kernel = ClusterScenario(CLUSTER, [dag(), Job.single("other", Task("t", 20.0), 3.0)]).kernel(0)
    kernel.run(Killer(), until_s=4.0)
    assert set(kernel.fork().frontier.jobs) == {1}
    schedule = kernel.fork().run(POLICIES.create("fifo"))
    assert [row.job for row in schedule.log if row.kind == Kind.COMPLETED] == [1]

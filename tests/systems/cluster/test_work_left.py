"""The GPU-seconds that are left of a job, which policies and codecs rank jobs by."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import given
from support.cases import clusters, job_lists, models, simulation

from dagsim.model import Cluster, Decision, Job
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster import state
from dagsim.systems.cluster.api import ClusterView
from dagsim.systems.cluster.policies import POLICIES


class _Reading:
    """Another policy, which reads the work left of all jobs before and after each of its decisions."""

    def __init__(self, spec: str) -> None:
        self._policy = POLICIES.create(spec, seed=0)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        _check(view)
        for decision in self._policy.decide(view):
            yield decision
            _check(view)


def _check(view: ClusterView) -> None:
    for active in view.jobs.values():
        terms = [task.demand.width * task.unfinished * task.best_s for task in active.tasks]
        assert active.work_left_gpu_s() == ordered_sum(terms)


@given(clusters(), job_lists(), models(), st.sampled_from(["eft-wait", "srtf", "las"]), st.sampled_from([1, 64]))
def test_the_work_left_is_always_that_of_the_unfinished_instances(
    cluster: Cluster, jobs: list[Job], chosen: dict[str, object], policy: str, many: int
) -> None:
    with patch.object(state, "_MANY", many):  # jobs of so many tasks keep the terms
        simulation(cluster, jobs, chosen).run(_Reading(policy))

from __future__ import annotations

import numpy as np
import pytest
from families.spark.spark_cases import Anything, random_jobs

from dagsim.families.spark.api import SparkKernel, SparkView
from dagsim.families.spark.view import StageGraph


def by_hand(view: SparkView) -> dict[str, list[object]]:
    """The same from the objects, one by one."""
    stages = [stage for job in view.jobs for stage in job.active]
    chosen = {id(stage) for job in view.jobs for stage in view.schedulable(job)}
    place = {id(stage): number for number, stage in enumerate(stages)}
    return {
        "remaining": [stage.remaining for stage in stages],
        "seen_ms": [stage.seen_ms for stage in stages],
        "demand": [stage.demand for stage in stages],
        "executing": [stage.executing for stage in stages],
        "ready": [stage.is_ready for stage in stages],
        "schedulable": [id(stage) in chosen for stage in stages],
        "job": [list(view.jobs).index(stage.job) for stage in stages],
        "supply": [job.supply for job in view.jobs],
        "arrival_ms": [job.arrival_ms for job in view.jobs],
        "edges": [[place[id(parent)], place[id(child)]] for parent in stages for child in parent.children],
    }


@pytest.mark.parametrize("parity", [True, False], ids=["parity", "default"])
@pytest.mark.parametrize("seed", range(8))
def test_the_arrays_are_what_the_objects_say(seed: int, parity: bool) -> None:
    conversation = SparkKernel(5, random_jobs(seed), moving_delay_ms=20, parity=parity).decisions()
    policy = Anything(seed, parity)
    view = next(conversation)
    looked = 0
    while True:
        if policy.rng.random() < 0.7:  # not every time: what moved in between must be caught up with
            looked += 1
            check(view, view.graph())
        try:
            view = conversation.send(policy.decide(view))
        except StopIteration:
            break
    assert looked > 20


def check(view: SparkView, graph: StageGraph) -> None:
    for name, wanted in by_hand(view).items():
        values = getattr(graph, name).tolist()
        assert (sorted(values) if name == "edges" else values) == (sorted(wanted) if name == "edges" else wanted), name  # type: ignore[type-var]
    assert graph.stages == tuple(stage for job in view.jobs for stage in job.active)
    assert np.diff(graph.first).tolist() == [len(job.active) for job in view.jobs]
    assert graph.committable == view.committable
    assert graph.source == (list(view.jobs).index(view.source) if view.source in view.jobs else -1)
    assert (graph.height[graph.edges[:, 0]] > graph.height[graph.edges[:, 1]]).all()

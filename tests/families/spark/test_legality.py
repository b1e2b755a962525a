"""Spark decisions that must be refused: each names time, stage and reason, and changes nothing."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from families.spark.kernel_state import spark_state
from families.spark.spark_cases import Anything, random_jobs

from dagsim.errors import IllegalDecision
from dagsim.families.spark.api import Commit, RecordedDurations, SparkJob, SparkView
from dagsim.families.spark.kernel import SparkKernel
from dagsim.families.spark.state import StageState

JOB = SparkJob.of("j", [RecordedDurations((500.0,) * 3, 500.0), RecordedDurations((10.0,), 10.0)], [(0, 1)])


def first(view: SparkView) -> StageState:
    return view.jobs[0].stages[0]


CASES: dict[str, tuple[Callable[[SparkView], object], str]] = {
    "number": (lambda view: 5, "5 is not a decision; yield Commit"),
    "text": (lambda view: "x", "'x' is not a decision"),
    "three": (lambda view: (first(view), 1, 1), "is not a decision"),
    "no stage": (lambda view: Commit(None, 1), "None is not a stage; choose one from view.schedulable"),  # type: ignore[arg-type]
    "child": (lambda view: Commit(view.jobs[0].stages[1], 1), "stage 1 of job 'j' cannot be chosen now"),
    "copy": (lambda view: Commit(copy.copy(first(view)), 1), "belongs to another simulation"),  # type: ignore[arg-type]
    "other kernel": (lambda view: Commit(first(other()), 1), "belongs to another simulation"),
    "0": (lambda view: Commit(first(view), 0), "can get 1 to 2 executors, not 0"),  # type: ignore[arg-type]
    "-1": (lambda view: Commit(first(view), -1), "not -1"),  # type: ignore[arg-type]
    "3": (lambda view: Commit(first(view), 3), "not 3"),  # type: ignore[arg-type]
    "True": (lambda view: Commit(first(view), True), "not True"),  # type: ignore[arg-type]
    "1.0": (lambda view: Commit(first(view), 1.0), r"not 1\.0"),  # type: ignore[arg-type]
    "NaN": (lambda view: Commit(first(view), math.nan), "not nan"),  # type: ignore[arg-type]
    "none": (lambda view: Commit(first(view), None), "not None"),  # type: ignore[arg-type]
}


def other() -> SparkView:
    return next(SparkKernel(2, [JOB]).decisions())


@pytest.mark.parametrize("case", CASES)
def test_a_commitment_that_cannot_be_is_refused(case: str) -> None:
    decide, why = CASES[case]
    kernel = SparkKernel(2, [JOB])
    conversation = kernel.decisions()
    decision = decide(next(conversation))
    state = spark_state(kernel)
    with pytest.raises(IllegalDecision, match=f"^at 0 s: .*{why}"):
        conversation.send([decision])  # type: ignore[list-item]
    assert spark_state(kernel) == state


def test_integers_of_numpy_are_integers() -> None:
    conversation = SparkKernel(2, [JOB]).decisions()
    stage = first(next(conversation))
    conversation.send([Commit(stage, np.int64(1))])  # type: ignore[arg-type]
    assert stage.remaining < stage.tasks


class Spoilt:
    """Decides anything, and at its ``at``-th decision what is illegal."""

    def __init__(self, at: int, seed: int) -> None:
        self.at, self.asked, self.anything = at, 0, Anything(seed, parity=False)
        self.kernel: SparkKernel
        """The kernel that asks, set before it runs."""
        self.state: object = None

    def decide(self, view: SparkView) -> Iterable[Commit]:
        self.asked += 1
        if self.asked < self.at:
            return self.anything.decide(view)
        self.state = spark_state(self.kernel)
        stage = next(stage for job in view.jobs for stage in view.schedulable(job))
        return [Commit(stage, view.committable + 1)]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_refused_leaves_the_state_as_it_was(seed: int) -> None:
    policy = Spoilt(3 + 4 * seed, seed)
    policy.kernel = kernel = SparkKernel(5, random_jobs(seed), moving_delay_ms=20)
    with pytest.raises(IllegalDecision, match=r"^policy 'Spoilt': at "):
        kernel.run(policy)
    assert spark_state(kernel) == policy.state


def test_a_bare_decision_is_refused_with_the_remedy() -> None:
    class Bare:
        def decide(self, view: SparkView) -> Commit:
            return Commit(first(view), 1)

    with pytest.raises(IllegalDecision, match=r"decide\(\) returned a bare Commit, .*return \[Commit\(\.\.\.\)\]"):
        SparkKernel(2, [JOB]).run(Bare())  # type: ignore[arg-type]

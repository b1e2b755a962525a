"""Checkpoints of elastic tasks."""

from __future__ import annotations

import pytest
from systems.cluster.one_job import played

from dagsim.families.elastic.batches import EpochTraining
from dagsim.model import Elastic
from dagsim.systems.cluster import Maintenance, Preemption
from dagsim.systems.cluster.models.failures import FailureModel


@pytest.mark.parametrize(
    ("work_s", "restart_s", "failures", "ended_s"),
    [
        # Two checkpoints by 50 s hold 40 s of work. After 61 + 7 s, 60 s of work remain, with two writes.
        (100, 7, (Maintenance((0,), 60, 61),), 61 + 7 + 60 + 2 * 5),
        (100, 0, (), 100 + 4 * 5),
        (90, 0, (), 90 + 4 * 5),
        (40, 0, (Maintenance((0,), 24, 30),), 30 + 40 + 5),  # during a write
    ],
)
def test_a_batch_that_changes_in_the_middle_costs_nothing_and_checkpoints_their_writes(
    work_s: float, restart_s: float, failures: tuple[FailureModel, ...], ended_s: float
) -> None:
    rates = {"T4": {16: 5.0, 32: 5.0}}
    elastic = Elastic(1, 1, EpochTraining(work_s / 5, {0: 16, int(work_s / 10): 32}, rates))
    preemption = Preemption(checkpoint_interval_s=20, checkpoint_write_s=5, restart_s=restart_s)
    assert played(work_s, preemption, *failures, elastic=elastic).ended_s == ended_s

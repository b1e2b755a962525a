"""Schedules of large runs on disk: the same from columns and from objects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dagsim.experiment.schedule_files import packed_schedule, read_schedule
from dagsim.families.compiled.reading import read_scenario
from dagsim.model import Cluster
from dagsim.model.log import FactColumns, Schedule
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.workload.distributions import Choice, Uniform
from dagsim.workload.shapes import RandomDag
from dagsim.workload.sizes import Independent
from dagsim.workload.synthetic import Synthetic

CLUSTER, RUNTIME = Cluster.of({"T4": 8}), Recorded()
SIZES = Independent(gpus=Choice((0.5, 1.0)), models=())
WORKLOAD = Synthetic(
    shape=RandomDag(),
    sizes=SIZES,
    count=40,
    tenants=("ann", "bob", "cy"),
    slack=Uniform(1.0, 5.0),
    load_mode="expected",
)


@pytest.mark.parametrize("edges", [True, False])
def test_columns_and_objects_give_the_same_bytes(edges: bool, tmp_path: Path) -> None:
    arrays = WORKLOAD.arrays(CLUSTER, RUNTIME, 2)
    if not edges:  # several tasks that wait for nothing
        arrays = replace(arrays, waits=np.zeros_like(arrays.waits), parent=arrays.parent[:0])
    schedule = ClusterScenario(CLUSTER, list(arrays.jobs())).kernel(2).run(POLICIES.create("fifo"))
    columns = read_scenario(CLUSTER, arrays, RUNTIME, Estimates(), 2).facts
    assert isinstance(columns, FactColumns)
    packed = packed_schedule(schedule)
    assert packed == packed_schedule(Schedule(CLUSTER, columns, schedule.log, 2, ended_s=schedule.ended_s))
    (tmp_path / "0.npz").write_bytes(packed)
    again = read_schedule(tmp_path / "0", CLUSTER)
    assert again.jobs == schedule.jobs
    assert again.log == schedule.log
    assert {job.tenant for job in again.jobs} == {"ann", "bob", "cy"}

"""The compiled engine reads the same from the columns of a trace as from its jobs as objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from traces.formats.tables import FORMATS, arrays_of

from dagsim.families.compiled.reading import read_scenario
from dagsim.model import Cluster
from dagsim.systems.cluster import Estimates
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.workload.arrays import JobArrays


@pytest.fixture(params=FORMATS)
def arrays(request: pytest.FixtureRequest, tmp_path: Path) -> JobArrays:
    return arrays_of(request.param, tmp_path)


@pytest.mark.parametrize("kind", ["exact", "predicted", "hidden"])
def test_the_lane_reads_the_same_scene_from_columns(arrays: JobArrays, kind: str) -> None:
    if kind == "predicted" and (arrays.estimate is None or np.isnan(arrays.estimate).any()):
        return
    cluster, jobs, estimates = Cluster.of({"V100": 8, "T4": 4}), list(arrays.jobs()), Estimates(kind)  # type: ignore[arg-type]
    one = read_scenario(cluster, JobArrays.of(jobs), Recorded(), estimates, 3)
    other = read_scenario(cluster, arrays, Recorded(), estimates, 3)
    assert one.facts == other.facts
    for name in ("truth", "seconds", "child", "tasks"):
        assert np.array_equal(getattr(one.work, name), getattr(other.work, name)), name
    assert all(map(np.array_equal, one.work.jobs, other.work.jobs))
    assert all(map(np.array_equal, one.classes, other.classes))

"""The compiled engine reads the same from columns as from jobs as objects."""

from __future__ import annotations

import numpy as np
import pytest
from workload.generated import CLUSTER, RUNTIME, WORKLOADS_IN_COLUMNS

from dagsim.errors import ModelError
from dagsim.families.compiled.reading import read_scenario
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.workload.arrays import JobArrays
from dagsim.workload.synthetic import Synthetic


@pytest.fixture(params=WORKLOADS_IN_COLUMNS)
def arrays(request: pytest.FixtureRequest) -> JobArrays:
    return WORKLOADS_IN_COLUMNS[request.param].arrays(CLUSTER, RUNTIME, 3)


def same(one: object, other: object) -> None:
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype  # type: ignore[attr-defined]
        np.testing.assert_array_equal(one, other)  # type: ignore[arg-type]
    elif isinstance(one, tuple) and any(isinstance(part, np.ndarray | tuple) for part in one):
        for mine, theirs in zip(one, other, strict=True):  # type: ignore[call-overload]
            same(mine, theirs)
    else:
        assert one == other


@pytest.mark.parametrize("kind", ["exact", "noisy", "hidden"])
def test_the_lane_reads_the_same_scene_from_columns_and_objects(arrays: JobArrays, kind: str) -> None:
    estimates = Estimates(kind)  # type: ignore[arg-type]
    from_objects = read_scenario(CLUSTER, JobArrays.of(list(arrays.jobs())), RUNTIME, estimates, 5)
    from_columns = read_scenario(CLUSTER, arrays, RUNTIME, estimates, 5)
    assert from_columns.facts == from_objects.facts
    same(from_columns.work[:-1], from_objects.work[:-1])  # the last is any order with parents first
    same(from_columns.classes, from_objects.classes)
    same(from_columns.nodes, from_objects.nodes)


def test_claims_are_read_from_columns_and_impossible_ones_are_named() -> None:
    estimates = Estimates("predicted")
    claimed = WORKLOADS_IN_COLUMNS["everything"].arrays(CLUSTER, RUNTIME, 0)
    theirs = read_scenario(CLUSTER, JobArrays.of(list(claimed.jobs())), RUNTIME, estimates, 0).work.seconds
    np.testing.assert_array_equal(read_scenario(CLUSTER, claimed, RUNTIME, estimates, 0).work.seconds, theirs)
    silent = read_scenario(CLUSTER, Synthetic(5).arrays(CLUSTER, RUNTIME), RUNTIME, estimates, 0).work
    assert silent.seconds is silent.truth
    assert claimed.estimate is not None
    claimed.estimate[7] = np.inf
    with pytest.raises(ModelError, match="the estimate of task job-"):
        read_scenario(CLUSTER, claimed, RUNTIME, estimates, 0)

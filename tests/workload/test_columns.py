"""Generated jobs in columns: the compiled engine reads from them what it reads from the jobs as objects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from workload.generated import CLUSTER, RUNTIME, WORKLOADS_IN_COLUMNS

from dagsim.errors import ModelError
from dagsim.workload.arrays import JobArrays
from dagsim.workload.distributions import Constant, LogNormal
from dagsim.workload.load import LoadMeter, offered_load, seconds_of
from dagsim.workload.shapes import Layered, RandomDag
from dagsim.workload.sizes import Independent
from dagsim.workload.synthetic import Synthetic


@pytest.fixture(params=WORKLOADS_IN_COLUMNS)
def arrays(request: pytest.FixtureRequest) -> JobArrays:
    return WORKLOADS_IN_COLUMNS[request.param].arrays(CLUSTER, RUNTIME, 3)


def test_the_load_is_the_same_sum(arrays: JobArrays) -> None:
    meter = LoadMeter(CLUSTER, RUNTIME)
    meter.add_arrays(arrays, seconds_of(arrays, RUNTIME, CLUSTER.gpu_types))
    load = offered_load(arrays.jobs(), CLUSTER, RUNTIME)
    assert meter.load() == load


def test_a_part_is_that_part_of_the_jobs(arrays: JobArrays) -> None:
    jobs = list(arrays.jobs())
    assert list(arrays.between(40, 60).jobs()) == jobs[40:60]
    assert list(arrays.chosen(np.array([5, 2, 90])).jobs()) == [jobs[5], jobs[2], jobs[90]]


def test_a_runtime_without_rates_is_asked_task_by_task() -> None:
    class Plain:
        def seconds(self, task, gpus):  # type: ignore[no-untyped-def]
            return RUNTIME.seconds(task, gpus)

    workload = Synthetic(60, shape=RandomDag(), slack=Constant(2.0))
    assert list(workload.jobs(CLUSTER, Plain(), 1)) == list(workload.jobs(CLUSTER, RUNTIME, 1))


def test_columns_take_less_than_150_bytes_a_task() -> None:
    drawn = Synthetic(5_000).arrays(CLUSTER, RUNTIME)
    texts = sum(len(id) + 49 + 8 for id in drawn.ids)  # a Python str is 49 bytes and its letters
    assert (drawn.nbytes + texts) / drawn.tasks < 150


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (Synthetic(5, sizes=Independent(gpus=Constant(1.5))), "gpus must be 0, a fraction"),
        (Synthetic(5, sizes=Independent(work=LogNormal(1.0, 1e6))), "work must be finite, got inf"),
        (Synthetic(5, slack=Constant(-1.0)), "slack must be 0 or more, got -1.0"),
    ],
)
def test_jobs_that_cannot_be_are_refused(workload: Synthetic, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        workload.arrays(CLUSTER, RUNTIME)


def test_faults_of_columns_are_those_of_their_jobs() -> None:
    arrays = Synthetic(6, shape=Layered(), slack=Constant(2.0)).arrays(CLUSTER, RUNTIME)
    arrays = replace(
        arrays, weight=np.ones(6), observed_start_s=arrays.arrival_s + 1.0, eligible_s=arrays.arrival_s.copy()
    )
    assert list(arrays.faults(np.ones(6, bool))) == []
    bad = {
        "arrival_s": (-1.0, np.inf, np.nan),
        "deadline_s": (-1.0, 0.0),
        "weight": (0.0, -1.0, np.inf, np.nan),
        "observed_start_s": (-1.0, np.inf),
        "eligible_s": (-1.0, np.inf),
        "work": (-1.0, np.inf, np.nan),
        "instances": (0, -1),
    }
    for name, values in bad.items():
        for value in values:
            column = getattr(arrays, name).copy()
            column[arrays.first[4] if name in ("work", "instances") else 4] = value
            faulty = replace(arrays, **{name: column})
            assert [number for number, _ in faulty.faults(np.ones(6, bool))] == [4], (name, value)
            assert list(faulty.faults(np.arange(6) != 4)) == []
    fine = {"weight": 1e-300, "deadline_s": float(arrays.arrival_s[4]), "work": 0.0}
    for name, value in fine.items():
        column = getattr(arrays, name).copy()
        column[arrays.first[4] if name == "work" else 4] = value
        assert list(replace(arrays, **{name: column}).faults(np.ones(6, bool))) == []


def test_more_jobs_than_one_block_holds_come_one_by_one() -> None:
    arrays = Synthetic(2_500).arrays(CLUSTER, RUNTIME)
    jobs = list(arrays.jobs())
    assert len({job.id for job in jobs}) == 2_500
    assert [job.arrival_s for job in jobs] == sorted(arrays.arrival_s.tolist())

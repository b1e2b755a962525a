from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.errors import ModelError, WorkloadError
from dagsim.model import Cluster, Task
from dagsim.systems.cluster.models.runtime import Flops, Recorded, Throughput
from dagsim.workload.arrivals import Batch, Bursty, Diurnal, Poisson
from dagsim.workload.distributions import Choice, Constant, LogNormal, Uniform, Whole
from dagsim.workload.load import offered_load
from dagsim.workload.presets import DEFAULT_WORKLOAD, PRESETS
from dagsim.workload.shapes import Chain, Layered, RandomDag
from dagsim.workload.sizes import Correlated, Independent
from dagsim.workload.synthetic import Synthetic

CLUSTER = Cluster.of({"A100-40": 8, "V100-16": 8, "T4": 16})
RUNTIME = Throughput()


def jobs(workload, seed=0, cluster=CLUSTER, runtime=RUNTIME):
    return list(workload.jobs(cluster, runtime, seed))


@pytest.mark.parametrize("arrivals", [Poisson(), Bursty(), Diurnal()])
@pytest.mark.parametrize("shape", [Synthetic().shape, RandomDag()])
@pytest.mark.parametrize("load", [0.5, 0.9, 1.2])
def test_exact_load_is_exact_from_first_to_last_arrival(arrivals, shape, load):
    job_list = jobs(Synthetic(60, load, arrivals=arrivals, shape=shape), seed=3)
    assert job_list[0].arrival_s == 0
    assert offered_load(job_list, CLUSTER, RUNTIME, whole=True).offered == pytest.approx(load, rel=1e-9)


@pytest.mark.parametrize("runtime", [Recorded(), Flops(), Throughput()])
def test_the_load_holds_under_every_runtime_model(runtime):
    job_list = jobs(Synthetic(50), runtime=runtime)
    assert offered_load(job_list, CLUSTER, runtime, whole=True).offered == pytest.approx(0.9, rel=1e-9)


def test_expected_load_is_right_on_average():
    workload = Synthetic(3000, 0.8, "expected", arrivals=Poisson())
    # A job's work has a relative spread of 2.4: 1.1 % in the mean over 16 * 3000 jobs, 1.3 % in that of the pilot.
    loads = [offered_load(jobs(workload, seed), CLUSTER, RUNTIME).offered for seed in range(16)]
    assert np.mean(loads) == pytest.approx(0.8, rel=0.05)
    assert np.std(loads) > 0.01


def test_expected_load_sets_the_same_rate_for_every_seed():
    # The mean of 3000 exponential gaps has a standard error of 1.8 %.
    workload = Synthetic(3000, 0.8, "expected", arrivals=Poisson())
    spans = [jobs(workload, seed)[-1].arrival_s for seed in range(3)]
    assert spans == pytest.approx([np.mean(spans)] * 3, rel=0.06)


def test_a_batch_arrives_at_once():
    assert {job.arrival_s for job in jobs(Synthetic(20, arrivals=Batch()))} == {0.0}


def test_a_single_job_arrives_at_once():
    assert [job.arrival_s for job in jobs(Synthetic(1))] == [0.0]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 30),
    st.sampled_from([Poisson(), Bursty(), Diurnal(), Batch()]),
    st.sampled_from([Synthetic().shape, Chain(), Layered(), RandomDag()]),
    st.sampled_from([Independent(), Correlated()]),
    st.integers(0, 2**32),
)
def test_jobs_arrive_in_order_and_equal_seeds_make_equal_jobs(count, arrivals, shape, sizes, seed):
    workload = Synthetic(count, arrivals=arrivals, shape=shape, sizes=sizes, slack=Constant(2.0), output_gb=LogNormal())
    job_list = jobs(workload, seed)
    assert len(job_list) == count
    assert [job.arrival_s for job in job_list] == sorted(job.arrival_s for job in job_list)
    assert len({job.id for job in job_list}) == count
    assert job_list == jobs(workload, seed)


def test_another_seed_makes_other_jobs():
    assert jobs(Synthetic(5), 0) != jobs(Synthetic(5), 1)


BASE = Synthetic(40, shape=RandomDag(), priority=Whole(0, 3), tenants=("a", "b"), slack=Uniform(1, 2))


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"arrivals": Poisson()}, {"work", "shape", "priority", "tenant"}),
        ({"load": 0.3}, {"work", "shape", "priority", "tenant"}),
        ({"priority": Choice((7.0, 9.0))}, {"arrival", "work", "shape", "tenant", "deadline"}),
        ({"tenants": ("x", "y", "z")}, {"arrival", "work", "shape", "priority", "deadline"}),
        ({"slack": Constant(5.0)}, {"arrival", "work", "shape", "priority", "tenant"}),
        ({"sizes": Independent(instances=Constant(2.0))}, {"work", "shape", "priority", "tenant"}),
        ({"output_gb": LogNormal()}, {"arrival", "work", "priority", "tenant", "deadline"}),
    ],
)
def test_a_change_to_one_thing_leaves_the_others_alone(change, kept):
    before, after = facts(BASE), facts(replace(BASE, **change))
    assert {name for name in before if before[name] == after[name]} >= kept


def facts(workload):
    job_list = jobs(workload)
    return {
        "arrival": [job.arrival_s for job in job_list],
        "work": [[task.work for task in job.tasks] for job in job_list],
        "shape": [job.graph.edges for job in job_list],
        "priority": [job.priority for job in job_list],
        "tenant": [job.tenant for job in job_list],
        "deadline": [job.deadline_s for job in job_list],
    }


def test_jobs_are_made_as_they_are_asked_for():
    assert len(list(islice(Synthetic(20_000).jobs(CLUSTER, RUNTIME), 3))) == 3


def test_deadlines_are_slack_times_the_ideal_time_after_arrival():
    # V100 only, speed 1: a chain of 3 tasks of 100 s is 300 s; with slack 2 due 600 s after its arrival
    sizes = Independent(work=Constant(100.0))
    job_list = jobs(
        Synthetic(5, shape=Chain((3, 3)), sizes=sizes, slack=Constant(2.0)), cluster=Cluster.of({"V100": 8})
    )
    assert [job.deadline_s - job.arrival_s for job in job_list] == pytest.approx([600.0] * 5)


def test_a_job_that_cannot_run_has_no_deadline():
    sizes = Independent(gpu_types=("V100", "H100"), models=())
    workload = Synthetic(5, sizes=sizes, slack=Constant(2.0), arrivals=Batch())
    assert {job.deadline_s for job in jobs(workload, cluster=Cluster.of({"T4": 8}), runtime=Recorded())} == {None}


def test_priorities_come_from_sizes_unless_given():
    sizes = Correlated(work=Constant(2500.0))
    assert {job.priority for job in jobs(Synthetic(200, sizes=sizes))} <= {5.0, 6.0, 7.0, 8.0, 9.0}
    assert {job.priority for job in jobs(Synthetic(20, sizes=sizes, priority=Constant(3.0)))} == {3.0}
    assert {job.priority for job in jobs(Synthetic(20))} == {0.0}


def test_tenants_are_equally_likely():
    names = [job.tenant for job in jobs(Synthetic(3000, tenants=("a", "b", "c")))]
    assert all(names.count(name) == pytest.approx(1000, rel=0.1) for name in "abc")


def test_outputs_go_over_every_edge():
    edges = [edge for job in jobs(Synthetic(20, shape=Chain(), output_gb=Constant(1.5))) for edge in job.graph.edges]
    assert {edge.bytes for edge in edges} == {1.5e9}


def test_only_more_than_one_instance_is_a_gang():
    tasks = [task for job in jobs(Synthetic(200)) for task in job.tasks]
    assert all(task.gang == (task.instances > 1) for task in tasks)
    loose = jobs(Synthetic(50, sizes=Independent(gang=False)))
    assert not any(task.gang for job in loose for task in job.tasks)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Synthetic(0), "count"),
        (lambda: Synthetic(load=0), "load"),
        (lambda: Synthetic(load=float("inf")), "load"),
        (lambda: Synthetic(load_mode="about"), "load_mode"),
    ],
)
def test_impossible_workloads_are_refused(build, named):
    with pytest.raises(WorkloadError, match=named):
        build()


def test_work_that_the_cluster_cannot_do_is_refused():
    with pytest.raises(WorkloadError, match="cannot run any of this work"):
        jobs(Synthetic(5, sizes=Independent(gpu_types=("H100",))))


def test_demands_that_cannot_be_are_refused():
    with pytest.raises(ModelError, match="gpus"):
        jobs(Synthetic(5, sizes=Independent(gpus=Constant(1.5))))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_jobs_at_its_load(name):
    workload = PRESETS[name].workload
    exact = workload.load_mode == "exact"
    measured = offered_load(workload.jobs(CLUSTER, RUNTIME), CLUSTER, RUNTIME, whole=exact)
    assert measured.jobs == workload.count
    if not isinstance(workload.arrivals, Batch):
        rel = 1e-9 if exact else 0.1
        assert measured.offered == pytest.approx(workload.load, rel=rel)
        assert measured.warning is None


def test_the_default_is_a_preset():
    assert PRESETS[DEFAULT_WORKLOAD].workload == Synthetic()


def test_another_runtime_model_of_one_s_own():
    class Sleepy:
        def seconds(self, task: Task, gpus):
            return tuple(2 * task.work for _ in gpus)

    job_list = jobs(Synthetic(10), runtime=Sleepy())
    assert offered_load(job_list, CLUSTER, Sleepy(), whole=True).offered == pytest.approx(0.9, rel=1e-9)


def test_a_runtime_model_that_cannot_be_a_key_has_an_expected_load_too():
    class Unhashable:
        __hash__ = None

        def seconds(self, task: Task, gpus):
            return tuple(task.work for _ in gpus)

    workload = Synthetic(50, 0.9, "expected")
    assert jobs(workload, runtime=Unhashable()) == jobs(workload, runtime=Recorded())

"""Lower bounds of the sum of completion times, against optima known by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families.bounds.bound_cases import ONE, PAIR, TWO_TYPES, fast_chain, single

from dagsim import simulate
from dagsim.errors import InputError
from dagsim.families.bounds.bound import Bound, scenario_bound
from dagsim.families.bounds.lagrangian import Flows
from dagsim.families.bounds.relaxation import relaxation_of
from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph, gpu_type
from dagsim.systems.cluster import Maintenance, Preemption
from dagsim.systems.cluster.models.runtime import Fed, Recorded, Throughput
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.workload import PRESETS
from dagsim.workload.arrays import JobArrays
from dagsim.workload.synthetic import Synthetic


def bound(cluster: Cluster, jobs: list[Job], **more: bool) -> Bound:
    return scenario_bound(ClusterScenario(cluster, jobs), 0, **more)


def test_the_shortest_job_goes_first_on_one_gpu() -> None:
    # 1, then 1 + 2, then 1 + 2 + 4 seconds.
    jobs = [single("a", 4.0), single("b", 1.0), single("c", 2.0)]
    least = bound(ONE, jobs)
    assert (least.bound_s, least.kind) == (pytest.approx(11.0, rel=1e-8), "exact")
    assert least.bound_s <= 11.0


def test_waiting_for_a_short_job_that_comes_soon_can_be_best() -> None:
    # Start the long job at once: 10 + (10 + 1 - 1) = 20. Wait for the short one: 1 + (12 - 0) = 13.
    jobs = [single("long", 10.0), single("short", 1.0, 1.0)]
    assert bound(ONE, jobs).bound_s == pytest.approx(13.0, rel=1e-8)


def test_with_breaks_the_bound_allows_for_stopping_the_long_job() -> None:
    # The long job is stopped after 1 s for 1 s: 11 + 1 = 12.
    jobs = [single("long", 10.0), single("short", 1.0, 1.0)]
    stopped = bound(ONE, jobs, preemptive=True)
    assert stopped.preemptive
    assert 11.0 < stopped.bound_s <= 12.0
    assert simulate(jobs, ONE, "srtf").summary.jct_s.mean * 2 == pytest.approx(12.0)


def test_a_chain_and_types_of_different_speed() -> None:
    # The chain of 4 and 2 s runs at twice the speed on the A100: 3 s. Beside it the other job takes 3 s on the T4.
    jobs = [fast_chain(), single("other", 3.0)]
    assert bound(TWO_TYPES, jobs).bound_s == pytest.approx(6.0, rel=1e-8)


def test_paths_go_along_the_edges_whatever_their_order() -> None:
    """Tasks of 1, 2, 4 and 8 s: the third follows the first two, the last follows the third."""
    tasks = tuple(Task(f"t{seconds}", float(seconds)) for seconds in (8, 1, 4, 2))
    job = Job("j", TaskGraph(tasks, (Edge(2, 0), Edge(3, 2), Edge(1, 2))), 0.0)
    problem = relaxation_of(JobArrays.of([job]), Cluster.of({"T4": 1}), Recorded())
    assert [sorted(problem.child[edges].tolist()) for edges in problem.levels()] == [[2, 2], [0]]
    flows = Flows(problem)
    assert flows.heads().tolist() == [6.0, 0.0, 2.0, 0.0]
    assert flows.tails().tolist() == [0.0, 12.0, 8.0, 12.0]


def test_a_gang_needs_all_its_gpus_at_once() -> None:
    # Gang of 2 on two GPUs, 3 s, and two jobs of 1 s each that arrive with it: 1 + 1 + 4.
    jobs = [single("gang", 3.0, instances=2, gang=True), single("a", 1.0), single("b", 1.0)]
    assert bound(PAIR, jobs).bound_s == pytest.approx(6.0, rel=1e-8)


def test_a_task_ends_with_its_last_instance() -> None:
    # Three instances of 2 s on two GPUs end after 4 s.
    assert bound(PAIR, [single("a", 2.0, instances=3)]).bound_s == pytest.approx(4.0, rel=1e-8)


def test_jobs_that_the_cluster_cannot_run_are_left_out() -> None:
    least = bound(ONE, [single("a", 2.0), single("wide", 9.0, gpus=2.0)])
    assert (least.jobs, least.rejected, least.bound_s) == (1, 1, pytest.approx(2.0, rel=1e-8))


def test_a_workload_without_jobs_that_can_run_is_an_error() -> None:
    with pytest.raises(InputError, match=r"none of its jobs \(1\) can run on cluster"):
        bound(ONE, [single("wide", 9.0, gpus=2.0)])
    with pytest.raises(InputError, match="it has no jobs"):
        bound(ONE, [])


def test_with_admission_there_is_no_bound() -> None:
    with pytest.raises(InputError, match="may reject all jobs"):
        scenario_bound(ClusterScenario(ONE, [single("a", 2.0)], admission=True), 0)


def test_failures_that_keep_work_count_as_preemption() -> None:
    down = {"failures": (Maintenance((0,), 1.0, 2.0),)}
    scenario = ClusterScenario(ONE, [single("a", 2.0)], **down)  # type: ignore[arg-type]
    assert not scenario_bound(scenario, 0).preemptive
    assert scenario_bound(replace(scenario, preemption=Preemption(on_failure="resume")), 0).preemptive


def test_jobs_that_arrived_before_the_beginning_count_nothing() -> None:
    jobs = [single("before", 4.0), single("after", 2.0, 3.0)]
    least = scenario_bound(ClusterScenario(ONE, jobs, begins_s=1.0), 0)
    assert (least.jobs, least.bound_s) == (2, pytest.approx(2.0, rel=1e-5))


@pytest.mark.parametrize("preemptive", [False, True])
def test_jobs_without_work_have_the_bound_0(*, preemptive: bool) -> None:
    assert bound(ONE, [single("a", 0.0)], preemptive=preemptive).bound_s == 0.0


def test_only_measured_jobs_count() -> None:
    # The second job alone: it runs first and takes 2 s, although the others wait for it.
    jobs = [single("a", 4.0), single("b", 2.0), single("c", 4.0)]
    least = scenario_bound(ClusterScenario(ONE, jobs), 0, measured=(1, 2))
    assert (least.jobs, least.bound_s) == (1, pytest.approx(2.0, rel=1e-5))


@pytest.mark.parametrize(("name", "share"), [("heterogeneous", 0.7), ("heterogeneous-dag", 0.55)])
def test_prices_bring_the_bound_near_a_good_schedule(name: str, share: float) -> None:
    workload = PRESETS[name].workload
    assert isinstance(workload, Synthetic)
    burst = replace(workload, count=40)
    gpus = {"A100-40": 4, "V100-16": 4, "T4": 8}
    least = scenario_bound(ClusterScenario(Cluster.of(gpus), burst, Throughput()), 3)
    schedule = simulate(burst, gpus, "eft-wait[theta=0.7,order=work]", 3).summary
    assert least.kind == "lagrangian"
    assert share < least.mean_s / schedule.jct_s.mean <= 1.0


def test_a_bound_counts_the_cores_that_the_runtime_gives() -> None:
    # Each of 4 jobs asks for all 8 cores, but gets its share of 2, so that all run at once.
    jobs = [Job.single(str(n), Task("t", 10.0, gpus=1, cpus=8.0), 0.0) for n in range(4)]
    cluster = Cluster((Node("n", gpu_type("V100"), 4, cpus=8),))
    one_by_one = scenario_bound(ClusterScenario(cluster, jobs, runtime=Recorded()), 0)
    fed = Fed({}, Recorded(), cores="proportional")
    assert scenario_bound(ClusterScenario(cluster, jobs, runtime=fed), 0).bound_s == pytest.approx(40.0)
    assert one_by_one.bound_s == pytest.approx(100.0)

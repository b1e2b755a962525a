"""Where a task goes: small clusters on which the placements differ, and all of them on random work."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.log_reading import rows_of

from dagsim.model import Cluster, Demand, GpuType, Job, Node, Task
from dagsim.model.log import Kind
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES
from dagsim.systems.cluster.policies.orders import fifo
from dagsim.systems.cluster.policies.placement import Fgd, fragmentation
from dagsim.systems.cluster.resources.cluster_state import ClusterState

SLOW = GpuType("slow", 1.0, 16, 100, 100, 10)
FAST = GpuType("fast", 4.0, 16, 100, 100, 10)


def nodes_of(spec, cluster, jobs):
    """Per start, in order, ``{node: instances}`` of each job."""
    schedule = ClusterKernel(cluster, jobs, seed=1).run(POLICIES.create(spec))
    placed: dict[str, dict[int, int]] = {}
    for row in rows_of(schedule.log, Kind.STARTED):
        placed.setdefault(schedule.jobs[row.job].id, {})[row.node] = row.instances
    return placed


def cluster_of(*gpus, cpus=0.0):
    return Cluster(tuple(Node(f"n{at}", SLOW, count, cpus) for at, count in enumerate(gpus)))


@pytest.mark.parametrize(
    ("placement", "node"), [("first-fit", 0), ("best-fit", 1), ("worst-fit", 2), ("consolidate", 1), ("spread", 2)]
)
def test_one_gpu_on_nodes_of_3_2_and_4(placement, node):
    assert nodes_of(f"fifo[placement={placement}]", cluster_of(3, 2, 4), [Job.single("j", Task("t", 1))]) == {
        "j": {node: 1}
    }


@pytest.mark.parametrize(
    ("placement", "nodes"),
    [
        ("best-fit", {1: 4}),
        ("consolidate", {1: 4}),
        ("spread", {0: 1, 1: 2, 2: 1}),  # around: n1 (4 idle), n2 (3), n0 (2), n1
        ("worst-fit", {1: 4}),
        ("first-fit", {0: 2, 1: 2}),
    ],
)
def test_a_gang_of_4_on_nodes_of_2_4_and_3(placement, nodes):
    gang = Task("t", 1, instances=4, gang=True)
    assert nodes_of(f"fifo[placement={placement}]", cluster_of(2, 4, 3), [Job.single("j", gang)]) == {"j": nodes}


def test_best_fit_takes_the_fullest_node_of_all_types_that_are_as_fast():
    # Recorded seconds are the same on both types. n0 is slow, n1 fast; the first job leaves n1 with 1 GPU idle.
    cluster = Cluster((Node("n0", SLOW, 4), Node("n1", FAST, 4)))
    jobs = [Job.single("a", Task("t", 9, gpus=3, gpu_types=("fast",))), Job.single("b", Task("t", 9), 1.0)]
    assert nodes_of("fifo", cluster, jobs) == {"a": {1: 1}, "b": {1: 1}}
    quick = Task("t", 9, speeds={"fast": 1.0, "slow": 2.0})
    assert nodes_of("fifo", cluster, [jobs[0], Job.single("b", quick, 1.0)])["b"] == {0: 1}


def test_spread_deals_independent_instances_too():
    jobs = [Job.single("j", Task("t", 1, instances=3))]
    assert nodes_of("fifo[placement=spread]", cluster_of(2, 2), jobs) == {"j": {0: 2, 1: 1}}


def test_consolidate_prefers_one_slow_node_to_two_fast_ones():
    cluster = Cluster((Node("f0", FAST, 1), Node("f1", FAST, 1), Node("s", SLOW, 2)))
    gang = Task("t", 1, instances=2, gang=True, speeds={"fast": 4, "slow": 1})
    assert nodes_of("fifo[placement=consolidate]", cluster, [Job.single("j", gang)]) == {"j": {2: 2}}
    assert nodes_of("fifo[placement=best-fit]", cluster, [Job.single("j", gang)]) == {"j": {0: 1, 1: 1}}


def test_comparative_advantage_leaves_the_fast_gpu_to_who_needs_it():
    # Both are faster on "fast": a by 2, b by 8. Losses on slow: ln 2, ln 8, mean ln 4: a has the advantage there.
    cluster = Cluster((Node("f", FAST, 1), Node("s", SLOW, 1)))
    jobs = [
        Job.single("a", Task("t", 8, speeds={"fast": 2, "slow": 1})),
        Job.single("b", Task("t", 8, speeds={"fast": 8, "slow": 1})),
    ]
    assert nodes_of("fifo[placement=comparative-advantage]", cluster, jobs) == {"a": {1: 1}, "b": {0: 1}}
    assert nodes_of("fifo[placement=fastest]", cluster, jobs) == {"a": {0: 1}, "b": {1: 1}}


def test_dot_product_sends_cpu_hungry_tasks_to_free_cpus():
    # 1 GPU + 4 CPUs; n0: 4 of 4 GPUs, 8 of 8 CPUs: .25 + .5 = .75; n1: 1 of 1 GPU, 4 of 4 CPUs: 1 + 1 = 2
    cluster = Cluster((Node("n0", SLOW, 4, 8), Node("n1", SLOW, 1, 4)))
    jobs = [Job.single("j", Task("t", 1, cpus=4))]
    assert nodes_of("fifo[placement=dot-product]", cluster, jobs) == {"j": {1: 1}}


def test_gpu_packing_fills_shared_gpus_then_nodes_in_use():
    # a takes half a GPU of n0; b joins it; c needs a whole one: n0 is in use; d needs 2: only n1 has them
    jobs = [Job.single(name, Task("t", 9, gpus=gpus)) for name, gpus in zip("abcd", (0.5, 0.5, 1, 2), strict=True)]
    placed = nodes_of("fifo[placement=gpu-packing]", cluster_of(2, 2), jobs)
    assert placed == {"a": {0: 1}, "b": {0: 1}, "c": {0: 1}, "d": {1: 1}}


def test_gpu_clustering_keeps_equal_demands_together():
    # nodes of 4 and 5: a (1 GPU) to the fuller n0; b (2 GPUs) to n0 as well; c, again 1 GPU, beside a;
    # then n0 is full, and d (2) goes to n1, where e (1 GPU) must go too
    jobs = [Job.single(name, Task("t", 9, gpus=gpus)) for name, gpus in zip("abcde", (1, 2, 1, 2, 1), strict=True)]
    placed = nodes_of("fifo[placement=gpu-clustering]", cluster_of(4, 5), jobs)
    assert placed == {"a": {0: 1}, "b": {0: 1}, "c": {0: 1}, "d": {1: 1}, "e": {1: 1}}


def shared_node(cpus):
    """One node whose GPUs have 200, 1000, 1000 and 500 thousandths free."""
    machines = ClusterState(Cluster((Node("n", SLOW, 4, cpus),)))
    machine = machines.list[0]
    for gpu, used in ((0, 0.8), (3, 0.5)):
        machines.take(machine, machines.compile(Demand(used), 0), 1, gpu)
    return machines, machine


def test_fragmentation_of_a_node_that_fits():
    # FGD's own example: a pod of 2 x 1000 cannot use 200 and 500: 700
    machines, machine = shared_node(cpus=8)
    assert fragmentation(machine, [(machines.compile(Demand(2.0), 0), 1.0)]) == pytest.approx(0.700)


def test_fragmentation_of_a_node_that_lacks_cpus():
    # all 2700 are lost to a pod that finds no CPU there; 0.0933 x 2700 = 251.91
    machines, machine = shared_node(cpus=8)
    assert fragmentation(machine, [(machines.compile(Demand(2.0, 9.0), 0), 0.0933)]) == pytest.approx(0.25191)


def test_fgd_breaks_the_gpu_that_is_broken_already():
    # Typical is a whole GPU. a takes 0.5 of GPU 0; b (0.3) there: lost 0.5 -> 0.2, on GPU 1: 0.5 -> 1.2; c fills it up
    jobs = [Job.single(name, Task("t", 9, gpus=gpus)) for name, gpus in zip("abcd", (0.5, 0.3, 0.2, 1), strict=True)]
    schedule = ClusterKernel(cluster_of(2), jobs).run(fifo(Fgd({Demand(1.0): 1.0})))
    gpus = [row.gpus for row in rows_of(schedule.log, Kind.STARTED)]
    assert gpus == [1, 1, 1, 2]


def test_fgd_breaks_ties_by_speed_then_by_what_is_free():
    # A whole GPU loses nothing anywhere. As fast on both types, b follows a to the node of 2 rather than of 3 GPUs.
    cluster = Cluster((Node("n0", SLOW, 3), Node("n1", FAST, 2)))
    jobs = [Job.single(name, Task("t", 9)) for name in "ab"]
    assert nodes_of("fifo[placement=fgd]", cluster, jobs) == {"a": {1: 1}, "b": {1: 1}}
    slower = [Job.single(name, Task("t", 9, speeds={"slow": 4.0, "fast": 1.0})) for name in "ab"]
    assert nodes_of("fifo[placement=fgd]", cluster, slower) == {"a": {0: 1}, "b": {0: 1}}


ORDERS = ("fifo", "sjf", "srsf")


@st.composite
def work(draw):
    """A few jobs of one task each that fit a cluster of 2 + 4 slow and 2 fast GPUs."""
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        gpus = draw(st.sampled_from((0.0, 0.25, 0.5, 1, 1, 2)))
        gang = draw(st.booleans())
        instances = draw(st.integers(1, 3))
        task = Task("t", draw(st.integers(1, 9)), instances, gang, gpus, draw(st.sampled_from((0, 1))))
        jobs.append(Job.single(str(number), task, draw(st.integers(0, 9))))
    return sorted(jobs, key=lambda job: job.arrival_s)


@pytest.mark.parametrize("placement", PLACEMENT_RULES.names())
@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs=work())
def test_every_order_with_every_placement_finishes_the_work(order, placement, jobs):
    cluster = Cluster((Node("s0", SLOW, 2, 8), Node("s1", SLOW, 4, 8), Node("f", FAST, 2, 8)))
    schedule = ClusterKernel(cluster, jobs).run(POLICIES.create(f"{order}[placement={placement}]"))
    assert len(rows_of(schedule.log, Kind.COMPLETED, Kind.REJECTED)) == len(jobs)
    again = ClusterKernel(cluster, jobs).run(POLICIES.create(f"{order}[placement={placement}]"))
    assert again.log.since(0) == schedule.log.since(0)


def nodes_taken(gpus: tuple[int, ...], *tasks: Task, cpus: tuple[float, ...] | None = None) -> list[int]:
    """The node of each task on an empty cluster. They start one after the other, and none ends before the last has."""
    kinds = zip(gpus, cpus or (64.0,) * len(gpus), strict=True)
    cluster = Cluster(
        tuple(Node(f"n{at}", SLOW if count else None, count, cores) for at, (count, cores) in enumerate(kinds))
    )
    jobs = [Job.single(str(number), task, float(number)) for number, task in enumerate(tasks)]
    log = ClusterKernel(cluster, jobs).run(POLICIES.create("fifo-fit")).log
    return [row.node for row in rows_of(log, Kind.STARTED)]


def share(size: float) -> Task:
    return Task("t", 1e6, gpus=size)


def test_a_task_without_gpus_goes_where_the_fewest_whole_cores_are_free() -> None:
    cores = Task("t", 1e6, gpus=0, cpus=1.0)
    # free: 9, 7 and 8 cores
    assert nodes_taken((0, 0, 0), cores, cpus=(9.0, 7.0, 8.0)) == [1]
    # 7.5 and 7 cores are 7 whole ones each: the lower number; after it 6.5 are left there
    assert nodes_taken((0, 0), cores, cores, cpus=(7.5, 7.0)) == [0, 0]
    # 5,000 and 4,100 cores are equal
    assert nodes_taken((0, 0), cores, cpus=(5000.0, 4100.0)) == [0]


def test_a_share_goes_to_the_partly_used_gpu_with_the_least_room_that_is_enough() -> None:
    # .5 is left on n0's GPU, .3 on n1's after the second task, which is too large for the first
    assert nodes_taken((1, 1), share(0.5), share(0.7), share(0.3), share(0.5)) == [0, 1, 1, 0]


def test_a_share_prefers_a_node_with_a_partly_used_gpu_even_to_one_with_fewer_idle_gpus() -> None:
    # n1 has the fewest idle GPUs and takes the first; then n0 has 3 idle ones, n1 one idle and one with room for .2
    assert nodes_taken((3, 2), share(0.8), share(0.5)) == [1, 1]
    whole, wide = (Task("t", 1e6, gpus=gpus) for gpus in (1, 3))
    # n0: 4 GPUs, n1: 3. The share takes n1 (fewest idle), the three GPUs n0: it has 1 idle, n1 2 idle and .2 of one
    assert nodes_taken((4, 3), share(0.8), wide, share(0.5)) == [1, 0, 1]
    assert nodes_taken((4, 3), share(0.8), wide, whole) == [1, 0, 0]  # a whole GPU goes where the fewest are idle


def test_among_nodes_whose_partly_used_gpus_have_no_room_the_lowest_number_comes_first() -> None:
    # .8 on n1 (2 GPUs), then .9 on n1 too (partly used, no room); n0 gets one by a task of three GPUs' room
    tasks = share(0.8), Task("t", 1e6, gpus=1), share(0.9), share(0.5)
    # n0: 3 GPUs, n1: 2. 1: n1; 2: n1 (one idle); 3: no room at n1: n0; 4: n0, partly used, .1 left, 2 idle
    assert nodes_taken((3, 2), *tasks) == [1, 1, 0, 0]

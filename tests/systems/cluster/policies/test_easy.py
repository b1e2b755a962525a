"""EASY back-filling, worked by hand."""

from __future__ import annotations

from support.log_reading import start_times, starts_in_order

from dagsim.model import Cluster, Job, Node, Task, gpu_type
from dagsim.model.log import Kind
from dagsim.systems.cluster import ClusterKernel, Estimates
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.testing import engine_cases

FIVE = ((0, 3, 2), (0, 1, 3), (0, 1, 4), (0, 3, 1), (0, 6, 1))
"""(arrival, seconds, GPUs) on 4 GPUs."""


def test_first_come_first_served_lets_the_head_block(run, rows):
    # 1 holds 2 GPUs to 3; 2 needs 3: 3 to 4; 3 needs all: 4 to 5; then 4 and 5
    assert starts_in_order(run("fifo", rows(*FIVE), 4)) == [0, 3, 4, 5, 5]


def test_easy_delays_what_is_not_at_the_head(run, rows):
    # Head 2 is due at 3 with 4 GPUs free: 1 extra. 4 ends at 3, in time; 5 ends at 6 and takes the extra GPU.
    # At 3, 2 runs to 4. Then 3 needs all 4 and 5 holds one to 6: 3 starts at 6, not at 4. Mean wait 9 / 5 = 1.8
    assert starts_in_order(run("easy", rows(*FIVE), 4)) == [0, 3, 6, 0, 0]


def test_candidates_go_by_their_rank(run, rows):
    # 2 GPUs: 1 holds one to 9, 2 needs both. 3 (4 s) and 4 (2 s) want the other: first 3 by age, 4 by length
    jobs = ((0, 9, 1), (0, 1, 2), (0, 4, 1), (0, 2, 1))
    assert starts_in_order(run("easy", rows(*jobs), 2)) == [0, 9, 0, 4]
    assert starts_in_order(run("easy-sjf", rows(*jobs), 2)) == [0, 9, 2, 0]
    assert starts_in_order(run("easy-lxf", rows(*jobs), 2)) == [0, 9, 0, 4]  # all slowdowns are 1 at 0


def test_a_head_without_gpus_is_reserved_cores():
    # a (3 of 5 cores) and b (1) end at 10, when the head needs 4 cores: one is left over for long
    def cores(name, cores, seconds, at_s=0.0):
        return Job.single(name, Task("t", seconds, gpus=0, cpus=cores), at_s)

    cluster = Cluster((Node("n", None, 0, 5),))
    jobs = [cores("a", 3, 10), cores("b", 1, 10), cores("head", 4, 5), cores("long", 1, 20)]
    assert starts_in_order(ClusterKernel(cluster, jobs).run(POLICIES.create("easy"))) == [0, 0, 10, 0]
    jobs[1] = cores("b", 1, 11)  # ends after the reservation: long would take a core of the head
    assert starts_in_order(ClusterKernel(cluster, jobs).run(POLICIES.create("easy"))) == [0, 0, 10, 11]
    jobs[2] = cores("head", 5, 5)  # needs all cores at 11
    assert starts_in_order(ClusterKernel(cluster, jobs).run(POLICIES.create("easy"))) == [0, 0, 11, 16]
    jobs[3] = cores("short", 1, 11)  # ends in time
    assert starts_in_order(ClusterKernel(cluster, jobs).run(POLICIES.create("easy"))) == [0, 0, 11, 0]


def test_a_candidate_that_ends_in_the_instant_of_the_reservation_goes_ahead(run, rows):
    # Job 1 ends at .6. Job 3 would, too: .5 + .1 is .6 to the last bit, although .6 - .5 is less than .1.
    jobs = ((0, 0.6, 1), (0.5, 1, 2), (0.5, 0.1, 1))
    for policy in ("easy", "easy-sjf", "easy-lxf"):
        assert starts_in_order(run(policy, rows(*jobs), 2)) == [0, 0.6, 0.5]
        compiled = engine_cases.compiled_schedule(Cluster.of({"V100": 2}, per_node=2), rows(*jobs), policy)
        assert starts_in_order(compiled) == [0, 0.6, 0.5]


def test_an_end_on_a_slower_type_is_compared_to_the_last_bit(rows):
    # The T4 takes three times as long. Job 3 ends there at .4 + .1 = .5, the instant of the reservation, although a
    # third of .1 is more than a third of .5 - .4.
    cluster = Cluster((Node("t", gpu_type("T4"), 2), Node("v", gpu_type("V100-16"), 1)))
    slow, fast = {"T4": 1.0, "V100-16": 3.0}, ("V100-16",)
    jobs = [
        Job.single("0", Task("t", 9.0, gpu_types=fast)),
        Job.single("1", Task("t", 0.5, gpu_types=("T4",))),
        Job.single("2", Task("t", 1.0, gpus=2, gpu_types=("T4",)), 0.4),
        Job.single("3", Task("t", 0.1, speeds=slow), 0.4),
    ]
    kernel = ClusterKernel(cluster, jobs).run(POLICIES.create("easy"))
    assert starts_in_order(kernel)[1:] == [0, 0.5, 0.4]
    assert engine_cases.compiled_schedule(cluster, jobs, "easy").log == kernel.log


def test_a_task_of_no_work_goes_ahead_whatever_it_needs(run):
    # Of 256 GB the first job gets room for two of its five instances, so three wait though GPUs are idle. They are to
    # have .75 of the 1.5 idle GPUs; the second job needs 1, more than the .75 left, but is done at once.
    first = Task("t", 1, instances=5, gpus=0.25, memory_gb=100)
    assert start_times(run("easy", [Job.single("1", first), Job.single("2", Task("t", 0))], 2))["2"] == [0]


def test_a_pass_for_every_event_sees_what_ends_early_as_held(run):
    # 2 GPUs. 1 claims 10 s of one and takes 5; 2 wants both from 1 on, expected at 10. At 5 first 3 (4 s) comes while 1
    # still counts: it would end at 9, before 10, and goes ahead; 2 then waits for it to 9. Decided once for the whole
    # instant, 2 starts at 5 and 3 after it.
    cluster, estimates = Cluster.of({"V100": 2}), Estimates("predicted")
    one = Job.single("1", Task("t", 5, estimate=10))
    jobs = [one, Job.single("2", Task("t", 1, gpus=2, estimate=1), 1), Job.single("3", Task("t", 4, estimate=4), 5)]
    by_policy = {}
    for name in ("easy", "easy-events"):
        kernel = ClusterKernel(cluster, jobs, Models(estimates=estimates))
        by_policy[name] = starts_in_order(kernel.run(POLICIES.create(name)))
    assert by_policy == {"easy": [0, 5, 6], "easy-events": [0, 9, 5]}


def test_a_pass_for_every_event_is_easy_where_events_are_alone(run, rows):
    apart = tuple((arrival_s + number / 16, *rest) for number, (arrival_s, *rest) in enumerate(FIVE))
    assert starts_in_order(run("easy-events", rows(*apart), 4)) == starts_in_order(run("easy", rows(*apart), 4))


def test_of_two_ends_at_once_the_later_holds_until_its_turn(run):
    # 3 GPUs. At 5 first "on time" ends, as expected, then "early", which claimed 10. In the pass between them two GPUs
    # are free: too few for "wide", due at 10, but "short" (3 s) gets them. "wide" starts when that is done, at 8.
    cluster, estimates = Cluster.of({"V100": 3}), Estimates("predicted")
    jobs = [
        Job.single("on time", Task("t", 5, estimate=5)),
        Job.single("early", Task("t", 5, estimate=10)),
        Job.single("wide", Task("t", 1, gpus=3, estimate=1), 1),
        Job.single("short", Task("t", 3, gpus=2, estimate=3), 2),
    ]
    schedule = ClusterKernel(cluster, jobs, Models(estimates=estimates)).run(POLICIES.create("easy-events"))
    assert starts_in_order(schedule) == [0, 0, 8, 5]


def test_a_node_more_can_make_a_job_of_a_whole_node_wait_longer() -> None:
    """EASY reserves a number of GPUs, not nodes (as its docstring says), so it is not monotone.

    G needs both GPUs of a T4 node. With the H100 node, D leaves the T4 nodes and E starts at once, on
    node a beside A. When G has become the oldest at 10 s, three of four T4s are held: by A until 32,
    E until 12 and F until 12. G is thus expected to start at 12, with one GPU to spare. H takes it, but
    on node b, which has the only idle GPU. Each T4 node then has a job of 30 s, and G waits for A.
    """
    t4, h100 = gpu_type("T4"), gpu_type("H100")
    jobs = [
        Job.single("A", Task("t", 30.0), 2.0),
        Job.single("B", Task("t", 5.0, gpus=2, gpu_types=("T4",)), 5.0),
        Job.single("C", Task("t", 1.0), 5.0),
        Job.single("D", Task("t", 5.0), 5.0),
        Job.single("E", Task("t", 5.0), 7.0),
        Job.single("F", Task("t", 2.0), 10.0),
        Job.single("G", Task("t", 3.0, gpus=2, gpu_types=("T4",)), 10.0),
        Job.single("H", Task("t", 30.0, gpu_types=("T4",)), 11.0),
    ]
    today = (Node("a", t4, 2), Node("b", t4, 2))
    started = []
    for nodes in (today, (*today, Node("h", h100, 2))):
        schedule = ClusterKernel(Cluster(nodes), jobs).run(POLICIES.create("easy"))
        rows = [row for row in schedule.log if row.kind == Kind.STARTED]
        started.append({schedule.jobs[row.job].id: (row.time_s, nodes[row.node].name) for row in rows})
    assert [at["D"] for at in started] == [(6, "a"), (5, "h")]
    assert [at["H"] for at in started] == [(15, "a"), (11, "b")]
    assert [at["G"] for at in started] == [(15, "b"), (32, "a")]

"""Orders that change as time goes by."""

from __future__ import annotations

from statistics import mean
from time import perf_counter

import pytest

from dagsim.model import Cluster, Job, Node, Task, gpu_type
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES

STALLINGS = ((0, 3), (2, 6), (4, 4), (6, 5), (8, 2))


def test_hrrn_turnaround_of_stallings(run, rows, ends):
    # A 0-3, B 3-9; then C (5 + 4)/4 = 2.25 against D 1.6, E 1.5: C 9-13; E (5 + 2)/2 = 3.5, D 2.4: E 13-15, D 15-20
    done = ends(run("hrrn", rows(*STALLINGS)))
    assert done == [3, 9, 13, 20, 15]
    assert mean(end - job[0] for end, job in zip(done, STALLINGS, strict=True)) == pytest.approx(8.0)


def test_wfp3_and_unicef_weigh_width_the_other_way_round(run, rows, order):
    # 4 GPUs, busy until 10. 2: 4 GPUs x 2 s since 2, 3: 2 GPUs x 2 s since 1.
    # WFP3: (8/2)^3 x 4 = 256 against (9/2)^3 x 2 = 182; UNICEF: 8/(2 x 2) = 2 against 9/(1 x 2) = 4.5
    jobs = sorted(rows((0, 10, 4), (2, 2, 4), (1, 2, 2)), key=lambda job: job.arrival_s)
    assert order(run("wfp3", jobs, 4)) == ["1", "2", "3"]
    assert order(run("unicef", jobs, 4)) == ["1", "3", "2"]


def test_unicef_puts_single_gpus_first(run, rows, order):
    jobs = rows((0, 10, 2), (1, 2, 2), (9, 5, 1), (9, 4, 1))
    assert order(run("unicef", jobs, 2)) == ["1", "4", "3", "2"]


def test_priority_ages(run, order):
    # at 10: priority 5 waited 1 s, priority 0 waited 9 s: 5 + a against 0 + 9 a, the old one first from a = 5/8 on
    jobs = [
        Job.single("busy", Task("t", 10)),
        Job.single("old", Task("t", 1), 1.0),
        Job.single("urgent", Task("t", 1), 9.0, priority=5),
    ]
    assert order(run("priority", jobs)) == ["busy", "urgent", "old"]
    assert order(run("priority[ageing=0.6]", jobs)) == ["busy", "urgent", "old"]
    assert order(run("priority[ageing=0.65]", jobs)) == ["busy", "old", "urgent"]


def test_tetris_packs_the_demand_that_the_node_has_most_of(order):
    # 4 GPUs, 8 CPUs. a: 1 GPU + 1 CPU = 1/4 + 1/8 = .375; b: 1 GPU + 6 CPUs = 1/4 + 6/8 = 1
    node = Node("n", gpu_type("V100"), 4, 8)
    jobs = [Job.single("a", Task("t", 1, cpus=1)), Job.single("b", Task("t", 1, cpus=6))]
    schedule = ClusterKernel(Cluster((node,)), jobs).run(POLICIES.create("tetris[srpt=0]"))
    assert order(schedule) == ["b", "a"]


def test_tetris_weighs_work_left_against_alignment(order):
    # as above, with b 10 s of work and a 1: mean a .6875, mean p 5.5, e = .125: a .375 - .125 = .25, b 1 - 1.25 = -.25
    node = Node("n", gpu_type("V100"), 4, 8)
    jobs = [Job.single("a", Task("t", 1, cpus=1)), Job.single("b", Task("t", 10, cpus=6))]
    schedule = ClusterKernel(Cluster((node,)), jobs).run(POLICIES.create("tetris"))
    assert order(schedule) == ["a", "b"]


@pytest.mark.parametrize("spec", ["hrrn", "wfp3", "unicef"])
def test_a_decision_among_10_000_stays_cheap(spec):
    # ten times the promise of 50 microseconds, so that a slow or busy machine does not fail it; a loop over the tasks
    # takes thousands
    jobs = [Job.single(str(number), Task("t", 1 + number % 97)) for number in range(10_000)]
    simulation, policy = ClusterKernel(Cluster.of({"V100": 64}), jobs), POLICIES.create(spec)
    conversation = simulation.decisions()
    view = next(conversation)
    list(policy.decide(view))
    started = perf_counter()
    for _ in range(100):
        list(policy.decide(view))
    assert (perf_counter() - started) / 100 < 500e-6

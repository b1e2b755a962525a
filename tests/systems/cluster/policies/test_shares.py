"""Fair sharing and what is near it, worked by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from support.log_reading import rows_of

from dagsim.errors import ConfigError
from dagsim.model import Cluster, Job, Node, Task
from dagsim.model.log import Kind
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.shares import FairShares


def started_at_0(schedule):
    """The runs that started at 0."""
    return [row for row in rows_of(schedule.log, Kind.STARTED) if row.time_s == 0]


def started_first(schedule):
    """How many runs each tenant started at 0."""
    return dict(Counter(schedule.jobs[row.job].tenant for row in started_at_0(schedule)))


def test_drf_gives_three_and_two_tasks():
    # 9 CPUs and 18 GB (Ghodsi et al. 2011, figure 2): A's tasks take <1 CPU, 4 GB>, B's <3 CPUs, 1 GB>. Three of A hold
    # 12 of 18 GB, two of B 6 of 9 CPUs: both have 2/3
    tasks = {"A": Task("t", 10.0, gpus=0, cpus=1, memory_gb=4), "B": Task("t", 10.0, gpus=0, cpus=3, memory_gb=1)}
    jobs = [
        Job.single(f"{tenant}{number}", task, tenant=tenant) for tenant, task in tasks.items() for number in range(9)
    ]
    schedule = ClusterKernel(Cluster((Node("n", None, 0, 9, 18),)), jobs).run(POLICIES.create("drf"))
    assert started_first(schedule) == {"A": 3, "B": 2}


@pytest.mark.parametrize("spec", ["max-min-fair", "drf"])
def test_tenants_share_alike_however_many_jobs_they_have(run, spec):
    jobs = [Job.single(f"a{n}", Task("t", 10.0), tenant="a") for n in range(9)]
    jobs += [Job.single(f"b{n}", Task("t", 10.0), tenant="b") for n in range(3)]
    assert started_first(run(spec, jobs, 4)) == {"a": 2, "b": 2}


def test_who_wants_less_than_its_share_leaves_it_to_the_others(run):
    jobs = [Job.single(f"a{n}", Task("t", 10.0), tenant="a") for n in range(9)]
    jobs += [Job.single("b", Task("t", 10.0), tenant="b"), Job.single("c", Task("t", 10.0), tenant="c")]
    assert started_first(run("max-min-fair", jobs, 6)) == {"a": 4, "b": 1, "c": 1}


def test_weights_say_what_a_job_is_due(run):
    def jobs(weight):
        wide = Task("t", 10.0, instances=9, gang=False)
        return [Job.single("a", wide, tenant="a", weight=weight), Job.single("b", wide, tenant="b")]

    def held(schedule):
        rows = started_at_0(schedule)
        return {
            tenant: sum(row.instances for row in rows if schedule.jobs[row.job].tenant == tenant) for tenant in "ab"
        }

    # An answer starts as many instances as one node takes, so each has a node of one GPU to itself.
    def run_(weight):
        cluster = Cluster.of({"V100": 6}, per_node=1)
        return ClusterKernel(cluster, jobs(weight)).run(POLICIES.create("weighted-fair"))

    assert held(run_(1.0)) == {"a": 3, "b": 3}
    assert held(run_(2.0)) == {"a": 4, "b": 2}


def test_alpha_favours_the_large_or_the_small(order, run):
    # b has 4 times the work of a; one GPU is held by each of two others when both ask for the third and fourth.
    small, large = Task("t", 2.0, instances=2, gang=False), Task("t", 8.0, instances=2, gang=False)

    def first(alpha):
        jobs = [Job.single("small", small), Job.single("large", large)]
        cluster = Cluster.of({"V100": 3}, per_node=1)
        schedule = ClusterKernel(cluster, jobs).run(POLICIES.create(f"weighted-fair[alpha={alpha}]"))
        return Counter(schedule.jobs[row.job].id for row in started_at_0(schedule))

    assert first(-1) == {"small": 2, "large": 1}
    assert first(1) == {"small": 1, "large": 2}
    with pytest.raises(ConfigError, match="alpha must be between -4 and 4"):
        POLICIES.create("weighted-fair[alpha=5]")
    with pytest.raises(ConfigError, match="by must be tenant or job"):
        POLICIES.create("drf[by=user]")


def test_themis_serves_whom_waiting_has_hurt_most(run, order, rows):
    # At 10, b (20 s, waited 9) would have (9 + 20) / 20 = 1.45, c (2 s, waited 3) (3 + 2) / 2 = 2.5: c goes first,
    # though it is younger. First come, first served has b first.
    jobs = rows((0, 10), (1, 20), (7, 2))
    assert order(run("themis", jobs)) == ["1", "3", "2"]
    assert order(run("fifo", jobs)) == ["1", "2", "3"]


def test_themis_does_not_simply_serve_the_short(run, order, rows):
    # At 30, the long one (20 s, waited 29) has 2.45, the short one (10 s, waited 5) 1.5.
    assert order(run("themis", rows((0, 30), (1, 20), (25, 10)))) == ["1", "2", "3"]


def test_qssf_goes_by_what_alike_tasks_took(run, order):
    # While nothing has ended, first come, first served. Then long's are known to take 8 s, short's 1 s.
    jobs = [
        Job.single("l1", Task("t", 8.0), 0, tenant="long"),
        Job.single("s1", Task("t", 1.0), 1, tenant="short"),
        Job.single("l2", Task("t", 8.0), 8.5, tenant="long"),
        Job.single("l3", Task("t", 8.0), 8.6, tenant="long"),
        Job.single("s2", Task("t", 1.0), 9.5, tenant="short"),
    ]
    assert order(run("qssf", jobs)) == ["l1", "s1", "l2", "s2", "l3"]


def test_a_share_is_of_gpus_or_of_cores_without_any() -> None:
    plain = FairShares("tenant", lambda _: 2.0, False, "best-fit")
    dominant = FairShares("tenant", lambda _: 2.0, True, "best-fit")
    total = (8.0, 16.0, 0.0)
    for shares in (plain, dominant):
        shares._dues["ann"] = 2.0
    assert plain.share("ann", (3.0, 4.0, 5.0), total) == 3 / 2
    assert plain.share("ann", (0.0, 4.0, 5.0), total) == 4 / 16 / 2
    assert plain.share("ann", (0.0, 0.0, 5.0), (8.0, 0.0, 0.0)) == 0
    assert dominant.share("ann", (3.0, 4.0, 5.0), total) == 3 / 8 / 2
    assert dominant.share("ann", (1.0, 12.0, 5.0), total) == 12 / 16 / 2
    assert dominant.share("ann", (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)) == 0

"""Gavel's books, shares and rounds on small examples."""

from __future__ import annotations

import random

import pytest

from dagsim.errors import ConfigError
from dagsim.families.gavel.allocations import GivenShares, allocator
from dagsim.families.gavel.round_ledger import GavelJob, GavelLedger, Situation
from dagsim.model import Cluster, Job, Task
from dagsim.model.log import Kind
from dagsim.model.queues import NodeReservation, QueueTree
from dagsim.systems.cluster import ClusterKernel, NodeFailures, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES

GPUS = {"K80": 2, "V100-16": 1}


def situation(*jobs, gpus=GPUS):
    return Situation({job.number: job for job in jobs}, dict(sorted(gpus.items())), 0.0)


def job(number, fast, slow, gpus=1, left=1000.0, weight=1.0):
    return GavelJob(number, {"V100-16": fast, "K80": slow}, gpus, left, weight)


def rate(shares, one):
    return sum(one.rate[name] * share for name, share in shares[one.number,].items())


def test_isolated_shares_are_equal_parts_of_each_type():
    shares = allocator("isolated").allocate(situation(job(0, 4.0, 1.0), job(1, 2.0, 1.0)))
    assert shares == {(number,): {"K80": pytest.approx(2 / 3), "V100-16": pytest.approx(1 / 3)} for number in (0, 1)}


def test_max_min_fairness_raises_the_least_progress_as_far_as_possible():
    # Both jobs are alike: each gets half of the V100 and the rest of its time on a K80.
    one, other = job(0, 3.0, 1.0), job(1, 3.0, 1.0)
    shares = allocator("max_min_fairness_perf").allocate(situation(one, other))
    assert rate(shares, one) == pytest.approx(2.0, rel=1e-6)
    assert rate(shares, other) == pytest.approx(2.0, rel=1e-6)


def test_a_heavier_job_gets_more_by_its_weight():
    one, other = job(0, 1.0, 0.0, weight=1.0), job(1, 1.0, 0.0, weight=3.0)
    shares = allocator("max_min_fairness_perf").allocate(situation(one, other))
    assert rate(shares, other) == pytest.approx(3 * rate(shares, one), rel=1e-6)


def test_water_filling_raises_the_others_above_the_slowest_job():
    stuck, free = job(0, 0.0, 1.0, gpus=1), job(1, 4.0, 1.0)
    shares = allocator("max_min_fairness_water_filling_perf").allocate(situation(stuck, free))
    assert rate(shares, stuck) == pytest.approx(1.0, rel=1e-6)
    assert rate(shares, free) == pytest.approx(4.0, rel=1e-6)


def test_the_largest_throughput_goes_to_the_job_that_gains_most():
    one, other = job(0, 9.0, 1.0), job(1, 2.0, 1.0)
    shares = allocator("max_sum_throughput_perf").allocate(situation(one, other))
    assert rate(shares, one) + rate(shares, other) == pytest.approx(10.0, rel=1e-6)


def test_finish_time_fairness_levels_rho():
    one, other = job(0, 1.0, 1.0, left=100.0), job(1, 1.0, 1.0, left=900.0)
    shares = allocator("finish_time_fairness_perf").allocate(situation(one, other, gpus={"V100-16": 1}))
    assert rate(shares, one) == pytest.approx(0.5, rel=1e-5)
    assert rate(shares, other) == pytest.approx(0.5, rel=1e-5)


def test_the_total_duration_is_the_shortest_up_to_the_ratio_of_the_bisection():
    one, other = job(0, 1.0, 0.0, left=3000.0), job(1, 1.0, 0.0, left=1000.0)
    shares = allocator("min_total_duration_perf").allocate(situation(one, other))
    assert max(state.left / rate(shares, state) for state in (one, other)) <= 4000.0 * 1.05 * (1 + 1e-6)


def test_fifo_skips_a_job_that_only_free_types_without_a_rate_could_hold():
    jobs = [job(0, 4.0, 1.0), job(1, 4.0, 0.0), job(2, 4.0, 1.0)]
    shares = allocator("fifo_perf").allocate(situation(*jobs))
    assert [max(shares[number,].values()) for number in range(3)] == [1.0, 0.0, 1.0]


def test_allox_refuses_gangs():
    with pytest.raises(ConfigError, match="jobs with one GPU, but job 0 requests 2"):
        allocator("allox").allocate(situation(job(0, 4.0, 1.0, gpus=2)))


def test_an_unknown_policy_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'max_min_fairness_perf'"):
        POLICIES.create("gavel[policy=max_min_fairnes_perf]")


def test_a_micro_task_has_whole_steps_and_ends_the_round_early():
    ledger = GavelLedger({"V100-16": 1}, allocator("isolated"), order=["V100-16"])
    ledger.arrive(GavelJob(0, {"V100-16": 0.7}, 1, 1000.0))
    (task,) = ledger.next_round(0.0, more_arrive=False)
    assert task.steps == (251,)  # 0.7 x 360 is a bit less than 252 in floating point
    assert task.finish_s == 251 / 0.7


def test_a_job_that_fails_five_times_in_a_row_is_dropped():
    ledger = GavelLedger({"V100-16": 4}, allocator("isolated"), order=["V100-16"])
    ledger.arrive(GavelJob(0, {"V100-16": 1.0}, 4, 3.0))  # three steps for four workers
    now_s, ended = 0.0, []
    for _ in range(5):
        (task,) = ledger.next_round(now_s, more_arrive=False)
        now_s = task.finish_s
        ended += ledger.close_round(now_s)
    assert [number for number, _ in ended] == [0]
    assert not ledger.jobs


def test_given_shares_of_another_time_are_refused():
    table = GivenShares(allocator("isolated"), [(10.0, {})])
    with pytest.raises(ConfigError, match=r"for 10.0 s, but the simulation needs one at 0.0 s"):
        table.allocate(situation(job(0, 1.0, 1.0)))


def ends(policy, jobs, **models):
    schedule = ClusterKernel(Cluster.of({"V100": 1}), jobs, Models(**models)).run(policy)
    return [row.time_s for row in schedule.log if row.kind == Kind.COMPLETED]


def jobs_of(*seconds):
    return [Job.single(str(number), Task("t", work), 0.0) for number, work in enumerate(seconds)]


def test_two_jobs_take_turns_in_rounds():
    assert ends(POLICIES.create("gavel[round_s=10]"), jobs_of(30.0, 30.0)) == pytest.approx([50.0, 60.0])


def test_a_job_keeps_its_gpu_between_rounds_if_stopping_costs_something():
    cost = Preemption(restart_s=5.0)
    assert ends(POLICIES.create("gavel[round_s=10]"), jobs_of(35.0), preemption=cost) == pytest.approx([35.0])


def test_a_job_with_next_to_no_work_left_waits_behind_a_reservation_in_whole_rounds():
    """Both jobs take turns for 20 s; then the node is reserved, and they wait with 0.4 and 0.8 ms left."""
    cluster = Cluster.of({"V100-16": 1})
    reservation = NodeReservation("maintenance", (cluster.nodes[0].name,), 20.002, 1020.0)
    queues = QueueTree(reservations=(reservation,))
    jobs = [Job.single(f"j{at}", Task("t", work_s, gpus=1), 0.0) for at, work_s in enumerate([10.0004, 10.0008])]
    policy = POLICIES.create("gavel[round_s=10,gap_s=0]")
    log = ClusterKernel(cluster, jobs, Models(queues=queues)).run(policy).log
    assert sum(row.kind == Kind.COMPLETED for row in log) == 2
    assert max(row.time_s for row in log) < 1050


def crowd(seed):
    """Jobs of up to a few thousand rounds of 1 s, more than fit at some times and fewer at others."""
    rng, now, jobs = random.Random(seed), 0.0, []
    for number in range(8):
        now += rng.choice((0.0, rng.expovariate(1 / 300), rng.expovariate(1 / 5000)))
        work = rng.choice((rng.expovariate(1 / 3000), float(rng.randint(1, 9000)), 2.0 ** rng.randint(1, 13)))
        gpus, instances = rng.choice((1, 1, 2, 0.5, 0)), rng.choice((1, 1, 2))
        jobs.append(Job.single(f"j{number}", Task("t", work, gpus=gpus, instances=instances), now))
    return jobs


def played(policy, gpus, jobs, models):
    """The log, the ledger afterwards, and how often the policy was asked."""
    asked = 0

    class Asked:
        forgets = policy.forgets

        def decide(self, view):
            nonlocal asked
            asked += 1
            return policy.decide(view)

    schedule = ClusterKernel(Cluster.of(gpus, per_node=2), jobs, models).run(Asked())
    return list(schedule.log.since(0)), [task.finish_s for task in policy.micro_tasks], asked


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("spec", "models"),
    [
        ("gavel[round_s=0.7,gap_s=20]", Models()),
        ("gavel[policy=min_total_duration_perf,round_s=3.3]", Models(preemption=Preemption(restart_s=2.0))),
        ("gavel[policy=max_min_fairness,round_s=1]", Models(preemption=Preemption("restart", restart_s=3.0))),
        (
            "gavel[policy=fifo_perf,round_s=2.3,whole_steps=true]",
            Models(failures=(NodeFailures(5000.0, 400.0),), preemption=Preemption(on_failure="resume", restart_s=2.0)),
        ),
    ],
)
def test_rounds_in_which_all_tasks_keep_their_gpus_are_passed_over_with_the_same_log(spec, models, seed, monkeypatch):
    gpus = {"V100": 6} if seed % 2 else {"V100": 4, "T4": 4}
    passed = played(POLICIES.create(spec), gpus, crowd(seed), models)
    monkeypatch.setattr(GavelLedger, "repeats", lambda ledger: False)
    visited = played(POLICIES.create(spec), gpus, crowd(seed), models)
    assert passed[:2] == visited[:2]
    assert passed[2] <= visited[2]


@pytest.mark.parametrize("seed", range(16))
def test_sums_over_many_rounds_have_the_bits_that_they_have_round_by_round(seed):
    rng = random.Random(seed)
    ledgers = []
    for _ in range(2):
        rng.seed(seed)
        ledger = GavelLedger(
            {"V100-16": 4, "K80": 4},
            allocator("max_min_fairness_perf"),
            order=["V100-16"],
            round_s=rng.uniform(0.5, 400),
        )
        for number in range(3):
            speed, work = rng.choice((1.0, rng.uniform(0.1, 9))), rng.uniform(1e7, 1e8)
            ledger.arrive(GavelJob(number, {"V100-16": speed, "K80": 0.0}, 1, work, whole_steps=seed % 2 > 0))
        now_s = rng.choice((0.0, rng.uniform(0, 1e6)))
        ledger.close_round(now_s)
        ledgers.append((ledger, max(task.finish_s for task in ledger.next_round(now_s, more_arrive=True))))
    (passing, ends_s), (visiting, end_s) = ledgers
    assert passing.repeats()
    until_s = ends_s + 3000 * passing.round_s
    ends_s = passing.pass_rounds(ends_s, until_s)
    while end_s < until_s:
        visiting.close_round(end_s)
        end_s = max(task.finish_s for task in visiting.next_round(end_s, more_arrive=True))
    assert (ends_s, sorted(passing.round)) == (end_s, sorted(visiting.round))
    assert [job.left for job in passing.jobs.values()] == [job.left for job in visiting.jobs.values()]
    for ledger, last_s in ((passing, ends_s), (visiting, end_s)):
        ledger.close_round(last_s)
        ledger.arrive(GavelJob(9, {"V100-16": 1.0, "K80": 1.0}, 4, 1e6))
    ends = [ledger.next_round(last_s, more_arrive=True) for ledger in (passing, visiting)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("works", [(1e12,), (1e12, 2e12), (1e12, 50.0, 3.3e11)])
def test_a_task_of_1e12_s_that_keeps_its_gpu_takes_few_decisions(works):
    rows, _, asked = played(POLICIES.create("gavel"), {"V100": 4}, jobs_of(*works), Models())
    assert max(row[1] for row in rows) == pytest.approx(max(works))
    assert asked < 300


def test_a_job_that_gavel_drops_is_not_started_again():
    """Whole steps of 2 s never fit into rounds of 1 s, so each job fails five times, and is dropped."""
    jobs = [Job.single(str(number), Task("t", 50.0, speeds={"V100": 0.5})) for number in range(3)]
    schedule = ClusterKernel(Cluster.of({"V100": 1}), jobs).run(POLICIES.create("gavel[round_s=1,whole_steps=true]"))
    assert [row.kind for row in schedule.log].count(Kind.REJECTED) == 3

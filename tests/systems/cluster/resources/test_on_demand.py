"""Nodes that are powered on demand: worked examples, queueing theory, brute force, and random cases with failures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from support.log_reading import rows_of
from systems.cluster.resources.powered import jobs, nodes, run

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, DagsimError, ModelError
from dagsim.metrics import summarize, wait
from dagsim.metrics.utilization import energy, watts
from dagsim.metrics.why import wait_reasons
from dagsim.model import (
    Cluster,
    Demand,
    InFlight,
    Job,
    Kind,
    Node,
    OnDemand,
    PowerState,
    Request,
    Share,
    Start,
    Task,
    TaskGraph,
    gpu_type,
)
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.api import ClusterView
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import Maintenance, NodeFailures
from dagsim.systems.cluster.past.recall import unknown_past
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.waits.causes import binding_causes
from dagsim.testing import violations

OFF, BOOTING, UP, STOPPING = PowerState


def powers(schedule: Schedule, node: int = 0) -> list[tuple[float, PowerState]]:
    return [
        (row.time_s, PowerState(int(row.value))) for row in schedule.log if (row.kind, row.node) == (Kind.POWER, node)
    ]


def started(schedule: Schedule) -> list[tuple[float, int, int]]:
    """Start, job and node of each run."""
    return [(row.time_s, row.job, row.node) for row in rows_of(schedule.log, Kind.STARTED)]


def test_a_job_is_allocated_at_once_and_starts_when_its_node_has_booted() -> None:
    rule = OnDemand(boot_s=300, idle_s=600, shutdown_s=60)
    schedule = run(nodes(rule), jobs((100, 50, 2), (200, 50, 2), (1_070, 10, 1)))
    kinds = [(row.kind, row.time_s) for row in schedule.log if row.run == 0]
    assert kinds == [(Kind.ALLOCATED, 100), (Kind.STARTED, 400), (Kind.FINISHED, 450)]
    # the second takes the node while it is up, and the third before it is powered down at 1,100 s
    assert started(schedule) == [(400, 0, 0), (450, 1, 0), (1_070, 2, 0)]
    assert powers(schedule) == [(100, BOOTING), (400, UP)]


def test_an_idle_node_is_powered_down_and_cannot_be_used_meanwhile() -> None:
    rule = OnDemand(boot_s=300, idle_s=600, shutdown_s=60)
    schedule = run(nodes(rule), jobs((0, 100, 2), (1_010, 100, 2)))
    # up at 300 s, idle at 400 s, powered down from 1,000 s to 1,060 s, when it can be allocated and boots again
    assert powers(schedule) == [(0, BOOTING), (300, UP), (1_000, STOPPING), (1_060, OFF), (1_060, BOOTING), (1_360, UP)]
    assert started(schedule)[1] == (1_360, 1, 0)


def test_a_second_job_waits_for_the_rest_of_the_boot_and_a_gang_for_its_last_node() -> None:
    slow, fast = OnDemand(boot_s=300), OnDemand(boot_s=100)
    schedule = run(nodes(slow, fast, None), jobs((0, 10, 2), (0, 10, 2), (0, 10, 1), (50, 10, 1)))
    assert [time_s for time_s, *_ in started(schedule)] == [0, 100, 100, 300]
    gang = run(nodes(slow, fast), jobs((0, 10, 2, 2)))
    assert {time_s for time_s, *_ in started(gang)} == {300}


@pytest.mark.parametrize("policy", ["fifo-fit", "easy", "sjf", "slurm-multifactor"])
def test_nodes_that_are_up_are_used_before_nodes_that_would_have_to_boot(policy: str) -> None:
    rule = OnDemand(boot_s=1_000, idle_s=None)
    work = jobs((0, 10, 2), (0, 10, 1), (0, 10, 1))
    schedule = run(nodes(rule, None, rule, None), work, policy)
    assert {node for *_, node in started(schedule)} == {1, 3}
    assert not powers(schedule)
    gang = run(nodes(rule, None, rule, None), jobs((0, 10, 1, 3)), policy)
    assert {node for *_, node in started(gang)} == {1, 3}


def test_pending_tasks_boot_as_many_nodes_as_they_need_at_the_next_scan() -> None:
    rule = OnDemand(boot_s=100, idle_s=50, trigger="pending", scan_s=10)
    schedule = run(nodes(None, rule, rule, rule), jobs((3, 500, 2), (3, 20, 1), (3, 20, 1), (4, 20, 2)))
    # two tasks share the first node that boots, and the last takes another: the third stays off
    assert powers(schedule, 1)[:2] == [(10, BOOTING), (110, UP)]
    assert powers(schedule, 2)[:2] == [(10, BOOTING), (110, UP)]
    assert not powers(schedule, 3)
    assert sorted(started(schedule)) == [(3, 0, 0), (110, 1, 1), (110, 2, 1), (110, 3, 2)]
    assert powers(schedule, 1)[2:] == [(180, OFF)]


def test_a_pending_gang_boots_nodes_only_if_all_of_it_will_fit_and_keeps_those_that_are_up_first() -> None:
    fast, slow = (OnDemand(boot_s=boot_s, idle_s=0, trigger="pending") for boot_s in (50.0, 200.0))
    schedule = run(nodes(fast, slow), jobs((0, 10, 2, 2), (0, 10, 2, 3)))
    assert {time_s for time_s, *_ in started(schedule)} == {210}  # the scan is at 10 s
    assert {row.job for row in schedule.log if row.kind == Kind.REJECTED} == {1}


def test_a_node_that_fails_while_it_boots_returns_its_job_and_comes_back_as_it_was() -> None:
    rule = OnDemand(boot_s=300, idle_s=None)
    work = jobs((0, 50, 2))
    schedule = run(nodes(rule), work, failures=[Maintenance((0,), 100, 500)])
    kinds = [(row.kind, row.time_s) for row in schedule.log if row.job == 0 or row.kind == Kind.DOWN]
    assert kinds[1:] == [
        (Kind.ALLOCATED, 0), (Kind.DOWN, 100), (Kind.RELEASED, 100), (Kind.ALLOCATED, 500), (Kind.STARTED, 800),
        (Kind.FINISHED, 850), (Kind.COMPLETED, 850),
    ]  # fmt: skip
    assert powers(schedule) == [(0, BOOTING), (100, OFF), (500, BOOTING), (800, UP)]
    assert summarize(schedule).node_failures == 1
    always = run(nodes(replace(rule, up=True)), work, failures=[Maintenance((0,), 10, 500)])
    assert powers(always) == [(10, OFF), (500, UP)]  # it is up again, as it was at the beginning
    assert [time_s for time_s, *_ in started(always)] == [0, 500]


@pytest.mark.parametrize("rate", [1, 2, 5])
def test_nodes_boot_no_faster_than_slurm_s_rate_of_resumes(rate: int) -> None:
    # the counter of _do_power_work in power_save.c, second by second
    count, second, begins = 0.0, 0, list[int]()
    while len(begins) < 8:
        while int(count + 0.5) < rate and len(begins) < 8:
            count += 1
            begins.append(second)
        count, second = count * 59 / 60, second + 1
    rule = OnDemand(100, None, boots_a_minute=rate)
    schedule = run(nodes(*[rule] * 8), jobs(*[(0.0, 10.0, 2)] * 8))
    assert sorted(time for time, _, _ in started(schedule)) == [begin + 100 for begin in begins]


def test_idle_nodes_are_powered_down_no_faster_than_slurm_s_rate_of_suspends() -> None:
    schedule = run(nodes(*[OnDemand(10, 30, stops_a_minute=1, up=True)] * 3, None), jobs((300.0, 10.0, 2)))
    downs = sorted(row.time_s for row in schedule.log if row.kind == Kind.POWER and row.value == OFF)
    assert downs[0] == 30
    # after one stop the counter is 1; it is below a half after 42 s, and then 1.49
    assert downs[1] == 30 + 42
    assert len(downs) == 3
    assert downs[2] > downs[1] + 42


def test_a_group_keeps_its_minimum_of_nodes_up() -> None:
    rule = OnDemand(100, 20, min_nodes=1)
    schedule = run(nodes(replace(rule, up=True), rule, rule), jobs((0.0, 50.0, 2), (0.0, 10.0, 2), (400.0, 5.0, 2)))
    # the first node, idle since 50 s, stays up until the second one is up
    assert started(schedule) == [(0.0, 0, 0), (100.0, 1, 1), (400.0, 2, 1)]
    assert powers(schedule, 0) == [(100.0, OFF)]
    assert powers(schedule, 1) == [(0.0, BOOTING), (100.0, UP)]


def test_another_node_of_the_group_takes_over_the_minimum() -> None:
    rule = OnDemand(100, 20, min_nodes=1)
    schedule = run(nodes(replace(rule, up=True), rule), jobs((0.0, 500.0, 2), (0.0, 10.0, 2), (700.0, 5.0, 2)))
    # the second node is idle from 110 s on and stays up, because the first one is busy and counts; then one goes
    assert started(schedule)[:2] == [(0.0, 0, 0), (100.0, 1, 1)]
    up = {0: True, 1: False}
    for row in schedule.log:
        if row.kind == Kind.POWER:
            up[row.node] = row.value == UP
            assert any(up.values())
    assert sum(up.values()) == 1


@pytest.mark.parametrize("repair_s", [None, 30.0])
def test_a_boot_that_fails_returns_its_job_and_takes_its_node_down(repair_s: float | None) -> None:
    rule = OnDemand(20, None, failing=1.0, timeout_s=50, repair_s=repair_s)
    cluster = nodes(None, rule)
    schedule = ClusterKernel(cluster, jobs((0.0, 200.0, 2), (10.0, 30.0, 2)), seed=1).run(POLICIES.create("fifo-fit"))
    # while it is allocated to a booting node, the job does not take the one that is free at 200 s
    assert started(schedule) == [(0.0, 0, 0), (200.0 if repair_s is None else 220.0, 1, 0)]
    states = powers(schedule, 1)
    assert states[:2] == [(10.0, BOOTING), (60.0, OFF)]
    downs = [(row.time_s, row.kind) for row in schedule.log if row.kind in (Kind.DOWN, Kind.UP) and row.node == 1]
    assert downs[0] == (60.0, Kind.DOWN)
    if repair_s is None:
        assert (len(states), len(downs)) == (2, 1)
    else:  # it is tried again as soon as it is repaired, and fails again
        assert downs[1] == (90.0, Kind.UP)
        assert states[2] == (90.0, BOOTING)


def test_the_use_of_nodes_is_what_their_states_say() -> None:
    rule = OnDemand(boot_s=300, idle_s=600, shutdown_s=100, price_per_h=36.0, off_watts=5.0)
    schedule = run(nodes(rule, None, gpus=1), jobs((0, 2_000, 1), (0, 100, 1), (1_900, 300, 1)))
    # the first has the node without power saving; the other node is up from 0 s to 1,100 s and from 1,900 s to 2,500 s
    summary = summarize(schedule)
    assert summary.on_demand is not None
    assert (summary.on_demand.node_hours, summary.on_demand.boots) == pytest.approx((1_700 / 3600, 2))
    assert summary.on_demand.cost == pytest.approx(17.0)
    assert summary.to_dict()["on_demand.boots"] == 2
    assert summary.availability == pytest.approx((2_500 + 1_700) / 5_000)
    t4 = gpu_type("T4")
    busy_w = 0.8 * t4.tdp_watts
    joules = 2_400 * busy_w + (4_200 - 2_400) * t4.idle_watts + 800 * 5.0
    assert energy(schedule).total_j == pytest.approx(joules)
    assert watts(schedule).integral() == pytest.approx(joules)
    always = summarize(run(nodes(None), jobs((0, 1, 1))))
    assert always.on_demand is None
    assert not any(name.startswith("on_demand") for name in always.to_dict())


def test_the_wait_for_a_boot_is_named() -> None:
    rule = OnDemand(boot_s=300, idle_s=5, shutdown_s=100)
    work = jobs((0, 100, 2), (410, 50, 2))
    schedule = run(nodes(rule), work)
    stretches = binding_causes(schedule, work, 1, wait_reasons(schedule, 1).periods, "fifo-fit")
    assert [(one.from_s, one.until_s, [cause.what for cause in one.causes]) for one in stretches] == [
        (410.0, 505.0, ["nodes were off or booting"]), (505.0, 805.0, ["its nodes were booting"]),
    ]  # fmt: skip


def test_a_simulation_that_begins_in_the_middle_finds_the_nodes_of_its_runs_up_and_says_what_it_does_not_know() -> None:
    flight = InFlight(50.0, (Share(0, 1),), 0)
    work = [replace(jobs((20, 200, 2))[0], in_flight=(flight,)), *jobs((110, 10, 2))]
    kernel = ClusterKernel(nodes(OnDemand(boot_s=300), OnDemand(boot_s=100)), work, begins_s=100.0)
    schedule = kernel.run(POLICIES.create("fifo-fit"))
    assert started(schedule) == [(50, 0, 0), (210, 1, 1)]
    assert (powers(schedule)[0], powers(schedule, 1)[0]) == ((50, UP), (110, BOOTING))
    assert any("not show which nodes were up" in note for note in unknown_past(kernel, POLICIES.create("fifo-fit")))


# Queueing theory.


def waits_of(rule: OnDemand, gaps: np.ndarray, services: np.ndarray, seed: int = 1) -> tuple[np.ndarray, Schedule]:
    work = [
        Job.single(str(number), Task("t", service), at)
        for number, (at, service) in enumerate(zip(np.cumsum(gaps).tolist(), services.tolist(), strict=True))
    ]
    schedule = ClusterKernel(nodes(rule, gpus=1), work, seed=seed).run(POLICIES.create("fifo"))
    return wait(schedule), schedule


@pytest.mark.parametrize("boots_s", [(4.0,), (1.0, 1.0, 10.0)], ids=["fixed", "random"])
def test_a_queue_with_set_up_times_has_the_mean_wait_of_its_formula(boots_s: tuple[float, ...]) -> None:
    # M/G/1 whose server is switched off as soon as it is idle (Welch 1964; Harchol-Balter, "Performance Modeling and
    # Design of Computer Systems", chapter 27): lambda E[S^2] / (2 (1 - rho)) + (2 E[D] + lambda E[D^2]) / (2 (1 +
    # lambda E[D])). Within four standard errors by batch means, of less than 5%.
    count, batches, rate = 25_000, 25, 0.5
    rng = np.random.default_rng(6)
    services = rng.exponential(np.where(rng.random(count) < 0.8, 0.5, 3.0))  # E[S] = 1, E[S^2] = 4
    set_up, squared = np.mean(boots_s), np.mean(np.square(boots_s))
    expected = rate * 4 / (2 * (1 - rate)) + (2 * set_up + rate * squared) / (2 * (1 + rate * set_up))
    waits, _ = waits_of(OnDemand(boot_s=boots_s, idle_s=0.0), rng.exponential(1 / rate, count), services)
    means = waits[count // 10 :].reshape(batches, -1).mean(axis=1)
    error = means.std(ddof=1) / sqrt(batches)
    assert error < 0.05 * expected
    assert abs(means.mean() - expected) < 4 * error


@pytest.mark.parametrize(("idle_s", "shutdown_s"), [(0.0, 0.0), (2.0, 0.0), (2.0, 1.5), (6.0, 0.5)])
def test_every_wait_and_every_hour_with_an_idle_time_is_that_of_brute_force(idle_s: float, shutdown_s: float) -> None:
    rng = np.random.default_rng(7)
    gaps, services, boot_s = rng.exponential(2.0, 2_000), rng.exponential(1.0, 2_000), 3.0
    waits, schedule = waits_of(OnDemand(boot_s=boot_s, idle_s=idle_s, shutdown_s=shutdown_s), gaps, services)
    free_s, arrival_s, on_s, boots = -1e9, 0.0, 0.0, 0
    for gap, service, seen in zip(gaps, services, waits, strict=True):
        arrival_s += gap
        start_s = max(arrival_s, free_s)
        if arrival_s > free_s + idle_s:  # it was powered down
            boot_at_s = max(arrival_s, free_s + idle_s + shutdown_s)
            start_s, boots = boot_at_s + boot_s, boots + 1
            on_s += start_s - boot_at_s + (idle_s + shutdown_s if boots > 1 else 0.0)
        else:
            on_s += max(0.0, arrival_s - free_s)
        on_s, free_s = on_s + service, start_s + service
        assert seen == pytest.approx(start_s - arrival_s, abs=1e-6)
    use = summarize(schedule).on_demand
    assert use is not None
    assert (use.node_hours, use.boots) == pytest.approx((on_s / 3600, boots))


# Random cases.


def case(seed: int) -> tuple[Cluster, list[Job], Models]:
    rng = np.random.default_rng([11, seed])

    def rule() -> OnDemand | None:
        if rng.random() < 0.3:
            return None
        boots_s = tuple([float(rng.choice([30, 60, 90])) for _ in range(int(rng.integers(1, 3)))])
        idle_s = (0.0, 60.0, 120.0, None)[int(rng.integers(4))]
        trigger = "pending" if rng.random() < 0.4 else "placed"
        return OnDemand(boots_s, idle_s, float(rng.choice([0, 30])), trigger, up=bool(rng.random() < 0.3))  # type: ignore[arg-type]

    machines = [
        Node(f"n{at}", gpu_type(str(rng.choice(["T4", "V100-16"]))), 4, 8.0, 64.0, on_demand=rule())
        for at in range(int(rng.integers(1, 6)))
    ]
    work, arrival_s = list[Job](), 0.0
    for number in range(int(rng.integers(3, 30))):
        arrival_s += 30.0 * float(rng.integers(0, 12))
        gang, instances = bool(rng.random() < 0.4), int(rng.integers(1, 5))
        demand = Demand(float(rng.choice([0.5, 1.0, 2.0, 4.0])), 1.0, 2.0)
        tasks = [Task(f"t{at}", 30.0 * float(rng.integers(1, 9)), instances, gang, *demand) for at in range(2)]
        graph = TaskGraph.of(tasks, {"t1": ["t0"]}) if rng.random() < 0.5 else TaskGraph((tasks[0],))
        work.append(Job(f"j{number}", graph, arrival_s, priority=float(rng.integers(3))))
    failures = (NodeFailures(2_000.0, 200.0),) if rng.random() < 0.4 else ()
    return Cluster(tuple(machines)), work, Models(failures=failures)


@pytest.mark.parametrize("policy", ["fifo", "fifo-fit", "easy", "sjf", "las", "srtf", "slurm-multifactor", "rollout"])
def test_nothing_runs_on_a_node_that_is_not_up_under_any_policy(policy: str) -> None:
    played = 0
    for seed in range(3 if policy == "rollout" else 12):
        cluster, work, models = case(seed)
        try:
            schedule = ClusterKernel(cluster, work, models, seed=seed).run(POLICIES.create(policy))
        except ConfigError:
            continue
        assert violations(schedule, work) == []
        played += bool(schedule.log)
    assert played


@pytest.mark.parametrize("seed", range(6))
def test_a_fork_writes_the_same_log(seed: int) -> None:
    cluster, work, models = case(seed)
    kernel = ClusterKernel(cluster, work, models, seed=seed)
    decide, count, forks = POLICIES.create("fifo-fit"), 0, list[ClusterKernel]()
    talk = kernel.decisions()
    view = next(talk)
    try:
        while True:
            if count % 7 == 0:
                forks.append(kernel.fork())
            count += 1
            view = talk.send(list(decide.decide(view)))
    except StopIteration:
        pass
    assert forks
    for fork in forks:
        assert fork.run(POLICIES.create("fifo-fit")).log == kernel.schedule.log


# What is refused.


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"boot_s": -1.0}, "boot_s must be a number of 0 or more, got -1.0"),
        ({"boot_s": (3.0, float("nan"))}, r"boot_s\[1\] must be a number of 0 or more"),
        ({"boot_s": ()}, "boot_s must contain at least one time"),
        ({"idle_s": float("inf")}, "idle_s must be a number of 0 or more, got inf"),
        ({"scan_s": 0.0}, "scan_s must be positive"),
        ({"trigger": "always"}, "trigger must be placed or pending, got 'always'"),
    ],
)
def test_a_wrong_value_is_named(keys: dict[str, object], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        OnDemand(**keys)  # type: ignore[arg-type]


def test_the_compiled_engine_refuses_such_nodes_and_auto_uses_the_kernel() -> None:
    scenario = ClusterScenario(nodes(OnDemand()), jobs((0, 1, 1)))
    engine = scenario.engaged("fifo", 0)[1]
    assert engine is not None
    assert engine.used == "simpy"
    with pytest.raises(DagsimError, match="does not support nodes that are powered on demand"):
        replace(scenario, engine="compiled").engaged("fifo", 0)


def test_a_configuration_says_how_the_nodes_of_a_group_are_powered() -> None:
    groups = "[{name: c, count: 2, gpu: T4, gpus: 4, on_demand: {boot_s: [200, 240], price_per_h: 2.5}}]"
    cluster = load_config(None, [f"cluster.groups={groups}"]).build_cluster()
    assert [node.on_demand for node in cluster.nodes] == [OnDemand((200.0, 240.0), price_per_h=2.5)] * 2
    with pytest.raises(ConfigError, match="on_demand"):
        load_config(None, [f"cluster.groups={groups.replace('200', '-1')}"])


@pytest.mark.parametrize(
    ("features", "constraint", "booted"),
    [
        (["", "", "a", "a"], "a*2", {"n2", "n3"}),  # the first node that is off has no "a"
        (["a", "b", "b", "a"], "[a|b]", {"n3"}),  # n0 is up, and n3 alone completes its kind
        (["", "a", "a", "b"], "[a*1&b*1]", {"n1", "n3"}),
    ],
)
def test_nodes_that_boot_for_a_pending_gang_meet_its_constraint(
    features: list[str], constraint: str, booted: set[str]
) -> None:
    """Worked by hand: n0 is up, the others are off and boot for pending tasks."""
    off = OnDemand((10.0,), None, 0.0, "pending", 5.0)
    rules = (None, off, off, off)
    cluster = Cluster(
        tuple(
            [
                Node(f"n{at}", gpu_type("T4"), 1, on_demand=rule, features=tuple(feature))
                for at, (rule, feature) in enumerate(zip(rules, features, strict=True))
            ]
        )
    )
    gang = Job.single("gang", Task("t", 5.0, 2, True, 1), request=Request(constraint))
    schedule = run(cluster, [gang])
    up = {f"n{row.node}" for row in schedule.log if row.kind == Kind.POWER and row.value == PowerState.UP}
    assert up == booted
    assert [row.kind for row in schedule.log][-1] == Kind.COMPLETED


def test_a_policy_that_waits_for_a_boot_is_asked_again_when_there_is_none() -> None:
    """The second job waits from 7 s on, so that nodes are looked at at 10 s; from 9 s it fits on the first one."""

    class Patient:
        """Starts nothing after the beginning while anything else will happen by itself."""

        def decide(self, view: ClusterView) -> Iterator[Start]:
            if not (view.now and view.pending):
                for task in view.ready:
                    yield Start(task, (Share(0, 1),))

    off = OnDemand((10.0,), None, 0.0, "pending", 5.0)
    schedule = run(nodes(None, off), jobs((0, 9, 2), (7, 3, 2)), Patient())
    assert [(row.time_s, row.job) for row in schedule.log if row.kind == Kind.STARTED] == [(0.0, 0), (10.0, 1)]

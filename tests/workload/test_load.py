from __future__ import annotations

from math import inf

import numpy as np
import pytest

from dagsim import simulate
from dagsim.config.schema import load_config
from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph
from dagsim.model.streams import stream
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.workload import synthetic
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import ArrivalTimes, LoadMeter, offered_load, seconds_of

ALIKE = Cluster.of({"V100": 4}, cpus_per_gpu=10)
MIXED = Cluster.of({"A100": 2, "T4": 4}, cpus_per_gpu=10)


def load(cluster, *jobs):
    return offered_load(jobs, cluster, Recorded())


def job(arrival_s, *tasks):
    return Job(f"job-{arrival_s}", TaskGraph(tasks), arrival_s)


def test_on_one_gpu_type_it_is_gpu_seconds_over_gpus_times_period():
    # Two jobs 50 s apart stand for 100 s: (100 s * 2 instances * 1 GPU + 50 s * 1 * 4 GPUs) / (4 GPUs * 100 s)
    jobs = job(10.0, Task("a", 100.0, instances=2)), job(60.0, Task("b", 50.0, gpus=4.0))
    assert load(ALIKE, *jobs).gpu_load == pytest.approx(1.0)
    assert load(ALIKE, *jobs).offered == pytest.approx(1.0)


@pytest.mark.parametrize("jobs", [2, 3, 20, 1000])
def test_jobs_at_equal_intervals_offer_the_same_load_however_many_there_are(jobs):
    # 4 GPUs, one job of 4 GPUs for 97 s every 100 s: .97, and no job ever waits.
    regular = [job(100.0 * number, Task("a", 97.0, gpus=4.0)) for number in range(jobs)]
    measured = load(ALIKE, *regular)
    assert measured.offered == pytest.approx(0.97)
    assert measured.warning is None
    outcome = simulate(regular, ALIKE, "fifo")
    assert outcome.summary.wait_s.mean == 0


@pytest.mark.parametrize("times", [2, 5])
def test_jobs_that_arrive_together_are_one_arrival(times):
    # Every 100 s 8 jobs of 1 GPU for 45 s: 360 of 400 GPU-seconds.
    batches = [job(100.0 * number, Task("a", 45.0)) for number in range(times) for _ in range(8)]
    assert load(ALIKE, *batches).offered == pytest.approx(0.9)


@pytest.mark.parametrize("seed", range(3))
def test_the_load_of_short_poisson_logs_is_right_on_average(seed):
    rng = np.random.default_rng(seed)
    busy, period = 0.0, 0.0
    for _ in range(4000):
        times = ArrivalTimes()
        times.add_all(np.cumsum(rng.exponential(100.0, 6)))
        busy, period = busy + 6, period + times.period_s
    assert busy / period == pytest.approx(0.01, rel=0.02)  # with the span it would be 20 % too high


def test_arrivals_one_by_one_and_all_at_once_stand_for_the_same_period():
    arrival_s = np.array([3.0, 3.0, 4.0, 9.0, 9.0, 9.0, 13.0])
    one, other = ArrivalTimes(), ArrivalTimes()
    for time_s in arrival_s.tolist():
        one.add(time_s)
    for part in np.split(arrival_s, [2, 5]):
        other.add_all(part)
    for times in (one, other):
        assert (times.jobs, times.instants, times.first_s, times.last_s) == (7, 4, 3.0, 13.0)
        assert (times.span_s, times.period_s) == (10.0, pytest.approx(10.0 * 4 / 3))


def test_a_known_beginning_or_whole_arrivals_leave_no_gap_to_guess():
    since, whole = ArrivalTimes(1.0), ArrivalTimes(whole=True)
    for times in (since, whole):
        times.add_all(np.array([3.0, 5.0]))
    assert (since.span_s, since.period_s) == (4.0, 4.0)
    assert (whole.span_s, whole.period_s) == (2.0, 2.0)
    assert ArrivalTimes(1.0).period_s == 0.0


def test_a_fraction_of_a_gpu_counts_as_that_fraction():
    # 80 s * 0.25 GPU / (4 GPUs * 100 s) = 0.05
    assert load(ALIKE, job(0.0, Task("a", 80.0, gpus=0.25)), job(50.0, Task("b", 0.0))).gpu_load == pytest.approx(0.05)


def test_on_mixed_gpus_all_work_at_the_task_s_own_speed():
    # 2 A100 at speed 3 and 4 T4 at speed 0.5 do 8 units a second: 800 / 8 = 100 s of the whole cluster, over 200 s
    task = Task("a", 800.0, speeds={"A100": 3.0, "T4": 0.5})
    assert load(MIXED, job(0.0, task), job(100.0, Task("b", 0.0))).gpu_load == pytest.approx(0.5)


def test_only_allowed_gpus_count():
    # Only the 4 T4 at speed 1: 800 / 4 = 200 s, over 200 s
    task = Task("a", 800.0, gpu_types=("T4",))
    assert load(MIXED, job(0.0, task), job(100.0, Task("b", 0.0))).gpu_load == pytest.approx(1.0)


def test_cores_are_a_load_of_their_own_and_the_scarcer_counts():
    # CPU: 100 s * 8 instances * 5 cores / (40 cores * 100 s) = 1.0; GPU: 100 s / (4 * 100 s) = 0.25
    jobs = job(0.0, Task("a", 100.0, instances=8, gpus=0, cpus=5.0)), job(50.0, Task("b", 100.0))
    measured = load(ALIKE, *jobs)
    assert measured.cpu_load == pytest.approx(1.0)
    assert measured.gpu_load == pytest.approx(0.25)
    assert measured.offered == measured.cpu_load
    assert "CPU cores" in str(measured)


def test_cpu_machines_offer_cores_to_cpu_tasks_only():
    cluster = Cluster((*ALIKE.nodes, Node("cpu", cpus=60.0)))
    assert load(cluster, job(0.0, Task("a", 100.0, gpus=0, cpus=10.0)), job(5.0, Task("b", 0.0))).cpu_load == 1.0
    on_gpus = load(cluster, job(0.0, Task("a", 100.0, cpus=4.0)), job(5.0, Task("b", 0.0)))
    assert on_gpus.cpu_load == 1.0  # 400 core-seconds on the 40 cores beside GPUs


def test_what_cannot_run_offers_no_load():
    assert load(ALIKE, job(0.0, Task("a", 100.0, gpu_types=("H100",))), job(10.0, Task("b", 0.0))).offered == 0.0


def test_at_once_has_no_load_but_a_warning():
    at_once = load(ALIKE, job(0.0, Task("a", 100.0)), job(0.0, Task("b", 100.0)))
    assert at_once.offered == inf
    assert "at once" in str(at_once)
    assert at_once.warning is not None
    assert "at the same time" in at_once.warning


def test_nothing_is_no_load():
    assert load(ALIKE).offered == 0.0


@pytest.mark.parametrize(("work", "warns"), [(99.0, False), (100.0, False), (101.0, True)])
def test_warns_above_one_only(work, warns):
    # work * 4 instances / (4 GPUs * 100 s)
    warning = load(ALIKE, job(0.0, Task("a", work, instances=4)), job(50.0, Task("b", 0.0))).warning
    assert (warning is not None) == warns
    assert not warns or "1.01" in str(warning)


def test_the_pilot_for_a_load_draws_from_streams_of_its_own(monkeypatch):
    drawn = []
    monkeypatch.setattr(synthetic, "stream", lambda seed, name: drawn.append(name) or stream(seed, name))
    monkeypatch.setattr(synthetic, "_PILOT", 20)
    workload = load_config(None, ["workload.count=5"]).workload
    synthetic._expected_s.__wrapped__(workload, ALIKE, Recorded())
    assert drawn
    assert all(name.startswith("pilot/") for name in drawn)


def typed(*jobs_of: tuple[float, tuple[str, ...]]) -> list[Job]:
    """Jobs of 1 GPU, one every 100 s."""
    return [job(100.0 * n, Task("a", seconds, gpu_types=types)) for n, (seconds, types) in enumerate(jobs_of)]


TWO = Cluster.of({"V100": 1, "H100": 1}, cpus_per_gpu=10)


def test_types_that_are_half_busy_each_are_a_load_of_a_half_not_of_one():
    jobs = typed((100.0, ("V100",)), (100.0, ("H100",)))  # 100 of 200 s on either GPU
    measured = load(TWO, *jobs)
    assert measured.gpu_load == pytest.approx(0.5)
    assert [(part.types, part.demand, part.capacity) for part in measured.by_types] == [
        (("V100-16",), pytest.approx(0.5), 1.0),
        (("H100",), pytest.approx(0.5), 1.0),
        (("V100-16", "H100"), pytest.approx(1.0), 2.0),
    ]
    assert measured.warning is None


def test_the_offered_load_is_that_of_the_scarcest_type():
    # Over 400 s the V100 is wanted for 300 s, and the H100 for 100 s: .75 of it, and .5 of all GPUs.
    measured = load(TWO, *typed((100.0, ("V100",)), (100.0, ("V100",)), (100.0, ("V100",)), (100.0, ("H100",))))
    assert measured.gpu_load == pytest.approx(0.75)
    assert measured.by_types[-1].load == pytest.approx(0.5)


def test_tasks_with_a_choice_burden_the_union_of_their_types():
    # Over 300 s: V100 100 s, H100 100 s, either one 300 s. Neither type alone is above 1/3; both together 500 / 600.
    measured = load(TWO, *typed((100.0, ("V100",)), (100.0, ("H100",)), (300.0, ("V100", "H100"))))
    assert measured.gpu_load == pytest.approx(500 / 600)
    assert [part.load for part in measured.by_types] == pytest.approx([1 / 3, 1 / 3, 500 / 600])


def test_overlapping_sets_of_types_can_be_scarce_together():
    # A or B 150 s, B or C 200 s, over 200 s: {A, B} .375, {B, C} .5, {A, B, C} 350 / 600; D is idle.
    cluster = Cluster.of({"V100": 1, "H100": 1, "T4": 1, "A100": 1}, cpus_per_gpu=10)
    measured = load(cluster, *typed((150.0, ("V100", "H100")), (200.0, ("H100", "T4"))))
    assert measured.gpu_load == pytest.approx(350 / 600)


def test_a_warning_names_the_types_that_are_overloaded():
    v100, h100 = (200.0, ("V100",)), (10.0, ("H100",))
    warning = load(TWO, *typed(v100, v100, h100, v100, v100, h100, v100, v100, h100)).warning
    assert warning is not None
    assert warning.startswith("the offered load 1.33 of V100-16 is above 1, so the queue grows under any policy")


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize(
    ("jobs", "grows"),
    [
        ([(0.0, 100.0), (100.0, 100.0), (200.0, 190.0)], False),  # one after the other, and nothing waits: 390 / 300
        ([(0.0, 100.0), (100.0, 100.0), (200.0, 190.0), (300.0, 190.0), (400.0, 190.0), (500.0, 100.0)], True),
        ([(0.0, 10.0), (10.0, 900.0)], False),  # a job at the end
        ([(10.0 * number, 11.0) for number in range(100)], True),  # 1.1 of the GPU, for 100 jobs
    ],
)
def test_a_queue_is_said_to_grow_only_if_jobs_must_wait_before_the_last_arrives(jobs, grows, in_columns):
    cluster, trains = Cluster.of({"T4": 1}), [job(at, Task("a", seconds)) for at, seconds in jobs]
    meter = LoadMeter(cluster, Recorded())
    if in_columns:
        arrays = JobArrays.of(trains)
        meter.add_arrays(arrays, seconds_of(arrays, Recorded(), cluster.gpu_types))
    else:
        for each in trains:
            meter.add(each)
    measured = meter.load()
    assert measured.offered > 1.05
    assert measured.keeps_up != grows
    assert measured.warning is not None
    assert ("the queue grows" in measured.warning, "says little" in measured.warning) == (grows, not grows)
    waited = simulate(trains, cluster, "fifo").summary.wait_s.mean
    assert (waited > 0) == grows


def test_a_chain_of_tasks_counts_along_its_path():
    # Two jobs of two tasks of 60 s, 100 s apart, on one GPU: of 240 s, 140 s lie before the second one comes, if
    # the first does not wait: 100 of 100 s, so nothing must wait.
    graph = TaskGraph((Task("a", 60.0), Task("b", 60.0)), (Edge(0, 1),))
    chains = [Job(name, graph, at) for name, at in (("x", 0.0), ("y", 100.0))]
    measured = load(Cluster.of({"T4": 1}), *chains)
    assert measured.offered == pytest.approx(1.2)
    assert measured.sure == pytest.approx(1.0)
    assert measured.keeps_up


@pytest.mark.parametrize("shares", [(0.5, 0.5, 0.0), (0.8, 0.3, 0.0), (0.2, 0.1, 1.0)])
def test_the_load_of_all_types_is_the_utilization_of_a_long_run(shares):
    """One job of each kind every 100 s, of ``shares`` of 100 s: for V100, for H100, for either."""
    kinds = [("V100",), ("H100",), ("V100", "H100")]
    jobs = [
        Job(f"{n}-{kind}", TaskGraph((Task("t", 100.0 * share, gpu_types=types),)), 100.0 * n)
        for n in range(2000)
        for kind, (share, types) in enumerate(zip(shares, kinds, strict=True))
        if share
    ]
    measured = load(TWO, *jobs)
    assert measured.by_types[-1].load == pytest.approx(sum(shares) / 2, rel=1e-3)
    assert measured.gpu_load == pytest.approx(max(shares[0], shares[1], sum(shares) / 2), rel=1e-3)
    outcome = simulate(jobs, TWO, "fifo-fit")
    assert outcome.summary.utilization == pytest.approx(sum(shares) / 2, rel=2e-3)


def test_columns_give_the_same_loads_as_tasks_one_by_one():
    jobs = typed((150.0, ("V100", "H100")), (200.0, ("H100",)), (33.3, ("V100",)), (7.7, ("V100", "T4")))
    cluster = Cluster((*TWO.nodes, Node("cpu", cpus=60.0)))
    one, other = LoadMeter(cluster, Recorded()), LoadMeter(cluster, Recorded())
    for job in jobs:
        one.add(job)
    arrays = JobArrays.of(jobs)
    other.add_arrays(arrays, seconds_of(arrays, Recorded(), cluster.gpu_types))
    assert one.load() == other.load()

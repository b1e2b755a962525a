"""Workloads of sessions, and the presets that are fits to real traces."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest

from dagsim.config.bundled import FITTED, WORKLOADS
from dagsim.config.dumping import plain
from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, WorkloadError
from dagsim.model import Cluster
from dagsim.model.streams import stream
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.workload import Sessions, offered_load
from dagsim.workload.arrivals import Rates, Swing
from dagsim.workload.distributions import Choice, Constant, Quantiles
from dagsim.workload.sessions import SessionKind
from dagsim.workload.shapes import Chain

CLUSTER, RUNTIME = Cluster.of({"V100-16": 64}), Recorded()
WORK = Quantiles(((0.0, 100.0), (0.5, 400.0), (1.0, 1000.0)))
ALONE = Sessions((SessionKind(1.0, WORK),), Rates(60.0), count=4000)
CROWDS = Sessions(
    (
        SessionKind(3.0, WORK, Quantiles(((0.0, 1.0), (1.0, 9.0)), whole=True)),
        SessionKind(1.0, WORK, instances=Constant(8.0), priority=2.0),
    ),
    Rates(4.0, swings=(Swing(0.3, 3.0),)),
    tenants=5,
    zipf=1.5,
    count=2000,
)


def drawn(workload: Sessions, seed: int = 1):
    return list(workload.jobs(CLUSTER, RUNTIME, seed))


def test_a_seed_gives_the_same_jobs_and_another_gives_others():
    assert drawn(CROWDS) == drawn(CROWDS)
    assert drawn(CROWDS)[:5] != drawn(CROWDS, 2)[:5]


def test_so_many_jobs_arrive_in_order_from_0_on():
    times = [job.arrival_s for job in drawn(CROWDS)]
    assert len(times) == 2000
    assert times[0] == 0
    assert times == sorted(times)


def test_fewer_jobs_are_the_first_of_more():
    assert drawn(replace(CROWDS, count=50)) == drawn(CROWDS)[:50]


def test_lone_jobs_at_a_constant_rate_are_a_poisson_process_of_the_load():
    jobs = drawn(ALONE)
    gaps = np.diff([job.arrival_s for job in jobs])
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.06)
    assert offered_load(jobs, CLUSTER, RUNTIME).offered == pytest.approx(0.9, rel=0.05)


def test_the_expected_load_holds_over_seeds_with_sessions_and_swings():
    offered = [offered_load(drawn(CROWDS, seed), CLUSTER, RUNTIME).offered for seed in range(12)]
    assert np.mean(offered) == pytest.approx(0.9, abs=4 * np.std(offered) / 12**0.5)
    assert np.std(offered) / np.mean(offered) < 0.2  # so that the mean says something


def test_the_load_is_that_of_what_is_scarcer_over_all_kinds():
    gpus = SessionKind(1.0, WORK)
    cores = SessionKind(1.0, WORK, gpus=Constant(0.0), cpus=Constant(8.0))
    cluster = load_config(None, ["cluster.groups=[{name: n, gpu: V100-16, gpus: 4, cpus: 64}]"]).build_cluster()
    one, other, both = (Sessions(kinds).natural_load(cluster, RUNTIME) for kinds in ((gpus,), (cores,), (gpus, cores)))
    assert one == pytest.approx(2 * other)  # 1 of 4 GPUs against 8 of 64 cores
    assert both == pytest.approx(one / 2)  # half of the sessions ask for GPUs, and the cores are not the bottleneck


def test_an_exact_load_is_that_of_these_jobs():
    jobs = drawn(replace(CROWDS, load=0.7, load_mode="exact"))
    assert offered_load(jobs, CLUSTER, RUNTIME, whole=True).offered == pytest.approx(0.7, rel=1e-9)


def test_load_stretches_time_as_with_a_trace():
    fast, slow = drawn(replace(CROWDS, load=0.9)), drawn(replace(CROWDS, load=0.45))
    assert slow[-1].arrival_s == pytest.approx(2 * fast[-1].arrival_s, rel=1e-9)
    assert [job.tasks for job in slow] == [job.tasks for job in fast]


def test_jobs_of_a_session_ask_for_the_same_and_take_about_as_long():
    whole = replace(CROWDS, kinds=CROWDS.kinds[:1], alike=1.0, tenants=0, rates=Rates(0.5))
    jobs = drawn(replace(whole, count=300, load=whole.natural_load(CLUSTER, RUNTIME)))
    pairs = [(a, b) for a, b in pairwise(jobs) if b.arrival_s - a.arrival_s <= 60]
    assert len(pairs) > 100
    # Two places within 0.05 of the session's: WORK grows fourfold over half of the probabilities.
    assert max(max(a.tasks[0].work / b.tasks[0].work, b.tasks[0].work / a.tasks[0].work) for a, b in pairs) < 1.4


def test_a_constant_number_of_instances_draws_nothing_for_its_kind():
    """So that the tasks of the other kinds are the same beside any constant."""
    fan = SessionKind(1.0, WORK, instances=Choice((1.0, 2.0, 3.0, 4.0)))
    kinds = (fan, SessionKind(1.0, WORK, instances=Constant(8.0)))
    arrays = Sessions(kinds, Rates(60.0), shape=Chain((2, 3)), count=300).arrays(CLUSTER, RUNTIME, 3)
    tasks = np.diff(arrays.first)
    of_fan = np.repeat(np.maximum.reduceat(arrays.instances, arrays.first[:-1]) < 8, tasks)
    rng = stream(3, "tasks/instances")
    assert arrays.instances[of_fan].tolist() == fan.instances.draw(rng, int(of_fan.sum())).tolist()


def test_tenants_submit_by_zipf_and_kinds_by_share():
    jobs = drawn(replace(CROWDS, kinds=(replace(CROWDS.kinds[0], jobs=SessionKind(1.0, WORK).jobs), CROWDS.kinds[1])))
    tenants = [job.tenant for job in jobs]
    assert tenants.count("tenant-0") / tenants.count("tenant-1") == pytest.approx(2**1.5, rel=0.2)
    wide = [job for job in jobs if job.tasks[0].instances == 8]
    assert len(wide) / len(jobs) == pytest.approx(0.25, abs=0.04)
    assert {job.priority for job in wide} == {2.0}


def test_a_session_draws_its_demand_once():
    shared = SessionKind(1.0, WORK, gpus=Choice((0.25, 0.5)), jobs=Quantiles(((0.0, 9.0), (1.0, 9.0)), whole=True))
    jobs = drawn(Sessions((shared,), Rates(0.01), Quantiles(((0.0, 1.0), (1.0, 2.0))), count=90))
    assert all(len({job.tasks[0].gpus for job in jobs[at : at + 9]}) == 1 for at in range(0, 90, 9))
    assert {job.tasks[0].gpus for job in jobs} == {0.25, 0.5}


def test_rates_follow_day_and_week():
    day = tuple(2.0 if hour < 12 else 0.0 for hour in range(24))
    times = next(Rates(100.0, day, (1.0, 1, 1, 1, 1, 0, 0)).weeks(lambda name: stream(3, name)))
    counts = np.bincount((times // 3600).astype(int), minlength=168)
    start = int(stream(3, "rates/start").integers(168))
    hours = (np.arange(168) + start) % 168
    quiet = (hours % 24 >= 12) | (hours // 24 >= 5)
    assert counts[quiet].sum() == 0
    assert counts.sum() == pytest.approx(16_800, rel=0.05)


def test_a_swing_has_mean_1_and_forgets():
    factors, _ = Swing(0.5, 3.0).factors(np.random.default_rng(1), 40_000, None)
    logs = np.log(factors)
    assert factors.mean() == pytest.approx(1, abs=0.03)
    assert logs.std() == pytest.approx(0.5, rel=0.05)
    assert np.corrcoef(logs[3:], logs[:-3])[0, 1] == pytest.approx(np.exp(-1), abs=0.04)


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name.startswith("like-")])
def test_a_fitted_preset_runs_without_its_trace(name):
    config = load_config(None, [f"workload={name}", "workload.count=60", "workload.measure=null"])
    assert isinstance(config.workload, Sessions)
    jobs = list(islice(config.workload.jobs(config.build_cluster(), config.runtime, 1), 60))
    assert len(jobs) == 60
    assert (FITTED / f"{name}.yaml").stat().st_size < 16_000
    assert plain(load_config(None, [f"workload={name}"]).workload) == plain(WORKLOADS[name].workload)


def test_real_traces_have_a_preset_each():
    fits = {path.stem for path in FITTED.glob("*.yaml")}
    assert fits == {f"like-{name}" for name in ("alibaba", "ctc", "helios", "itp", "openb", "pai", "philly")}
    assert "like-philly" in WORKLOADS
    assert "like-nobody" not in WORKLOADS
    with pytest.raises(KeyError):
        WORKLOADS["like-nobody"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kinds": ()}, "at least one kind"),
        ({"alike": 1.5}, "alike must be between 0 and 1"),
        ({"count": 0}, "count must be"),
        ({"load": -1.0}, "load must be above 0"),
        ({"tenants": -1}, "tenants and zipf"),
        ({"measure": (3000, None)}, "contains none"),
    ],
)
def test_wrong_values_are_refused(changes, message):
    with pytest.raises(WorkloadError, match=message):
        replace(CROWDS, **changes)


def test_wrong_rates_are_refused_with_their_key():
    with pytest.raises(WorkloadError, match="day must be a list of 24"):
        Rates(1.0, day=(1.0,))
    with pytest.raises(ConfigError, match="per_hour"):
        load_config(None, ["workload=like-itp", "workload.rates.per_hour=-1"])


def test_a_cluster_that_can_do_nothing_of_it_is_refused():
    with pytest.raises(WorkloadError, match="cannot run any"):
        next(iter(ALONE.jobs(_cpu_only(), RUNTIME, 1)))


def _cpu_only() -> Cluster:
    return load_config(None, ["cluster.groups=[{name: c, count: 1, cpus: 8}]"]).build_cluster()

"""Figures of an episode."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from dagsim.families.ramp.api import (
    DDLS,
    ComputationGraph,
    Fabric,
    Memo,
    Op,
    Partition,
    Planner,
    Ramp,
    RampJob,
    RampKernel,
    Rules,
)
from dagsim.families.ramp.kpis import UNITS, job_rows, kpis
from dagsim.families.ramp.readers import read_graphs
from dagsim.metrics import summarize


def played(*decisions: tuple[float, float, int], horizon_s: float = 10.0) -> RampKernel:
    """One-second steps, four of them, of a graph of 10 bytes of output; (arrival, beta, degree) per job."""
    graph = ComputationGraph("one", [Op("1", 0.5, 0.5, 10.0, 0.0)], [])
    jobs = [RampJob(str(number), graph, at, beta, 4) for number, (at, beta, _) in enumerate(decisions)]
    rules = Rules(quantum_s=0.01, max_degree=4, joins="last")
    topology = Ramp(2, 2, 1, node_bytes_per_s=1e18, propagation_s=0.0, io_s=0.0)
    kernel = RampKernel(jobs, Planner(Fabric(topology), rules, memo=Memo()), horizon_s=horizon_s)
    conversation = kernel.decisions()
    next(conversation)
    try:
        for number, (_, _, degree) in enumerate(decisions):
            conversation.send([Partition(number, degree)])
    except StopIteration:
        pass
    return kernel


def test_every_job_is_completed_blocked_with_a_cause_or_running() -> None:
    rows = list(job_rows(played((0.0, 1.0, 2), (1.0, 1.0, 0), (2.0, 0.4, 2), (8.0, 1.0, 1), (10.0, 1.0, 1))))
    assert [(row.status, row.cause) for row in rows] == [
        ("completed", None),
        ("blocked", "declined"),
        ("blocked", "too_slow"),
        ("running", "unfinished"),
        ("undecided", None),
    ]


def test_rates_are_of_the_jobs_that_arrived() -> None:
    figures = kpis(played((0.0, 1.0, 2), (1.0, 1.0, 0), (2.0, 0.4, 2), (8.0, 1.0, 1), (10.0, 1.0, 1)))
    assert figures["num_jobs_arrived"] == 5
    assert figures["blocking_rate"] == 3 / 5
    assert figures["acceptance_rate"] == 1 / 5
    for reason in ("declined", "too_slow", "unfinished"):
        assert figures[f"blocking_rate_{reason}"] == 0.2


def test_the_summary_has_the_blocking_rate_of_the_kpis() -> None:
    kernel = played((0.0, 1.0, 2), (1.0, 1.0, 0), (2.0, 0.4, 2), (8.0, 1.0, 1), (10.0, 1.0, 1))
    summary = summarize(kernel.schedule)
    assert summary.blocking_rate == kpis(kernel)["blocking_rate"] == 3 / 5
    assert summary.jobs_unfinished == 2  # the one that runs, and the one that came at the end


def test_times_and_utilisation_have_their_units() -> None:
    figures = kpis(played((0.0, 1.0, 2), (8.0, 1.0, 1)))
    # 4 steps of 1 s on two servers: 2 s. The other runs 2 of its 4 s before the end at 10 s.
    assert figures["job_completion_time"] == pytest.approx(2.0)
    assert figures["job_completion_time_speedup"] == pytest.approx(2.0)
    assert figures["mean_mounted_worker_utilisation_frac"] == pytest.approx(1.0)
    assert figures["mean_num_jobs_running"] == pytest.approx(0.4)
    assert figures["mean_num_mounted_workers"] == pytest.approx(0.6)
    assert figures["mean_cluster_worker_utilisation_frac"] == pytest.approx(0.15)


def test_what_a_running_job_has_worked_through_counts() -> None:
    # 20 bytes of memory (both passes) of the first, half of 20 of the second
    figures = kpis(played((0.0, 1.0, 2), (8.0, 1.0, 1)))
    assert figures["compute_info_processed"] == pytest.approx(30.0)
    assert figures["mean_compute_throughput"] == pytest.approx(3.0)
    # the join of both passes carries 10 bytes, half of them between two servers; no weights are exchanged
    assert figures["dep_info_processed"] == pytest.approx(10.0 + 5.0)
    assert figures["flow_info_processed"] == pytest.approx(5.0)
    assert figures["mean_load_rate"] == pytest.approx(30.0 / 8.0)


def test_an_episode_without_jobs_has_no_rates() -> None:
    kernel = RampKernel((), Planner(Fabric(Ramp(2, 2, 1)), DDLS, memo=Memo()))
    assert list(kernel.decisions()) == []
    figures = kpis(kernel)
    assert figures["num_jobs_arrived"] == 0
    assert "blocking_rate" not in figures


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["acceptable_jct_betaA_seed0_T100000", "max_parallelism_betaA_seed0_T200000", "random_betaA_seed0_T1000000"]
)
def test_figures_are_those_of_ddls(data: Path, name: str) -> None:
    episode = json.loads(gzip.decompress((data / f"golden/ddls/episode_{name}.json.gz").read_bytes()))
    graphs = read_graphs(data / "traces/pipedream", tuple({row["model"] for row in episode["jobs"]}), "s")
    until_s = episode["config"]["sim_time"]
    jobs = [
        RampJob(str(number), graphs[row["model"]], row["time_arrived"], row["beta"])
        for number, row in enumerate(episode["jobs"])
    ]
    jobs.append(RampJob("last", graphs["gnmt"], until_s))
    kernel = RampKernel(jobs, Planner(Fabric(Ramp(ddls=True)), DDLS), horizon_s=until_s)
    conversation = kernel.decisions()
    next(conversation)
    for number, row in enumerate(episode["jobs"][:-1]):
        conversation.send([Partition(number, row["action"])])
    with pytest.raises(StopIteration):
        conversation.send([Partition(len(episode["jobs"]) - 1, episode["jobs"][-1]["action"])])
    figures = kpis(kernel)
    elsewhere = {
        *(key for key in UNITS if "utilisation" in key or "overhead_frac" in key or key.startswith("mean_num")),
        "mean_load_rate",  # it depends on the job after the last
        "job_communication_overhead_time",  # ddls breaks ties by a hash
    }
    shared = figures.keys() & episode["kpi"].keys() - elsewhere
    assert len(shared) > 30
    for key in shared:
        assert figures[key] == pytest.approx(episode["kpi"][key], rel=1e-6), key
    communication_s = episode["kpi"]["job_communication_overhead_time"]
    assert figures["job_communication_overhead_time"] == pytest.approx(communication_s, rel=1e-3)

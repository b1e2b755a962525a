"""Windows of a trace: other jobs on every seed, and none of the report's in training."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import outcomes

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, WorkloadError
from dagsim.experiment.simulate import run_policy
from dagsim.model import Cluster
from dagsim.seeds import REPORT, TRAIN, VALIDATION, WINDOWS
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of
from dagsim.traces import TraceOptions
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.load import offered_load

CLUSTER = Cluster.of({"V100": 4})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A hundred jobs, called 0 to 99, ten seconds apart."""
    path = tmp_path / "jobs.csv"
    rows = [f"{number},{10 * number},1,{5 + number % 7}" for number in range(100)]
    path.write_text("\n".join(["id,arrival_s,gpus,duration_s", *rows]) + "\n")
    return path


def window(trace: Path, seed: int, load: float | None = None) -> list[int]:
    file = TraceFile(str(trace), "plain", window=8, options=TraceOptions(load=load))
    return [int(job.id) for job in ClusterScenario(CLUSTER, file, Recorded()).jobs(seed)]


def test_a_window_is_a_row_of_jobs_and_the_same_on_the_same_seed(trace: Path) -> None:
    jobs = window(trace, 5)
    assert jobs == list(range(jobs[0], jobs[0] + 8))
    assert window(trace, 5) == jobs
    assert len({window(trace, seed)[0] for seed in range(40)}) > 20


def test_training_validation_and_report_share_no_job(trace: Path) -> None:
    counts = {TRAIN: 200, VALIDATION: 200, REPORT: 2}
    seen = {pool: {job for seed in pool[:n] for job in window(trace, seed)} for pool, n in counts.items()}
    assert seen[TRAIN] == set(range(60))
    assert seen[VALIDATION] == set(range(60, 80))
    assert seen[REPORT] <= set(range(80, 100))


@pytest.mark.parametrize(("pool", "most"), [(REPORT, 2), (WINDOWS, 12)])
def test_windows_of_reports_and_experiments_are_disjoint_or_refused(trace: Path, pool: range, most: int) -> None:
    jobs = [job for seed in pool[:most] for job in window(trace, seed)]
    assert len(jobs) == len(set(jobs)) == 8 * most
    with pytest.raises(WorkloadError, match=rf"window {most + 1} of 8 jobs would overlap .* only {most} windows fit"):
        window(trace, pool[most])


def test_so_many_windows_are_spread_evenly(trace: Path) -> None:
    file = TraceFile(str(trace), "plain", window=8, windows=4)
    firsts = [int(next(iter(file.window_of(seed, CLUSTER, Recorded()).jobs())).id) for seed in WINDOWS[:4]]
    assert firsts == [8, 33, 58, 83]  # the middles of four shares of 25 jobs, less half a window
    with pytest.raises(WorkloadError, match="13 windows of 8 jobs would overlap"):
        list(TraceFile(str(trace), "plain", window=8, windows=13).window_of(WINDOWS[0], CLUSTER, Recorded()).jobs())


def test_an_experiment_on_windows_runs_each_once(trace: Path) -> None:
    config = load_config(None, [f"workload={{kind: trace, path: {trace}, window: 8, windows: 5}}"])
    results = list(outcomes(config, ("sjf",)))
    assert [result.seed for result in results] == list(WINDOWS[:5])
    assert len({result.schedule.jobs[0].id for result in results}) == 5


def test_a_window_begins_at_0_and_has_the_load_asked_for(trace: Path) -> None:
    file = TraceFile(str(trace), "plain", window=8, options=TraceOptions(load=0.7))
    jobs = list(file.window_of(3, CLUSTER, Recorded()).jobs())
    assert jobs[0].arrival_s == 0
    assert offered_load(jobs, CLUSTER, Recorded()).offered == pytest.approx(0.7)


def test_what_does_not_fit_is_said(trace: Path) -> None:
    with pytest.raises(ConfigError, match="window must be 2 jobs or more"):
        TraceFile(str(trace), window=1)
    with pytest.raises(ConfigError, match="windows must be 1 or more and requires window"):
        TraceFile(str(trace), windows=3)
    file = TraceFile(str(trace), "plain", window=30)
    with pytest.raises(WorkloadError, match="a window of 30 jobs does not fit into jobs 60 to 80 of 100"):
        list(file.window_of(VALIDATION[0], CLUSTER, Recorded()).jobs())


def test_experiments_and_agents_play_windows(trace: Path) -> None:
    config = load_config(None, [f"workload={{kind: trace, path: {trace}, window: 8}}"])
    assert run_policy(config, "sjf", 3).summary.jobs_completed == 8
    simulation = cluster_scenario_of(config).kernel(TRAIN[0])
    assert next(simulation.decisions()) is not None

"""Runs of a part of a log, which begin with the jobs that run and wait then."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import fine

from dagsim.config.schema import load_config
from dagsim.config.yaml import Setting
from dagsim.errors import ConfigError, ModelError, TraceError
from dagsim.experiment.scenario import on_its_cluster
from dagsim.metrics.series import JobSeries
from dagsim.model import Attempt, Cluster, Job, Kind, Node, Request, Task, gpu_type
from dagsim.model.log import Schedule
from dagsim.report.tables import workload_notes
from dagsim.seeds import WINDOWS
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.past.from_log import JobsLeft, jobs_at
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces.convert import convert
from dagsim.traces.fields import instant_s
from dagsim.traces.trace_file import TraceFile
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload.arrays import JobArrays
from dagsim.workload.records import write_jobs

T4 = gpu_type("T4")
CLUSTER = Cluster(tuple(Node(f"n{number}", T4, 4) for number in range(4)))


def log_of(path: Path, seed: int = 0) -> Path:
    """The log of 300 jobs as a FIFO scheduler started them, with their nodes."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.integers(0, 40, 300)).tolist()
    jobs = [
        Job.single(f"j{number}", Task("t", float(rng.integers(1, 600)), gpus=int(rng.integers(1, 5))), float(arrival_s))
        for number, arrival_s in enumerate(arrivals)
    ]
    schedule = drive(ClusterScenario(CLUSTER, jobs).kernel(0), POLICIES.create("fifo"))
    started = {row.job: row for row in schedule.log if row.kind == Kind.STARTED}
    seen = [
        replace(job, observed_start_s=started[number].time_s, observed_nodes=(f"n{started[number].node}",))
        for number, job in enumerate(jobs)
    ]
    write_jobs(path, seen)
    return path


def recorded(trace: TraceFile, cluster: Cluster = CLUSTER) -> Schedule:
    return drive(ClusterScenario(cluster, trace).kernel(0), POLICIES.create("recorded"))


def events(schedule: Schedule, since_s: float = 0.0) -> list[tuple[int, float, str, int]]:
    rows = [row for row in schedule.log if row.time_s >= since_s]
    return [(row.kind, row.time_s, schedule.jobs[row.job].id, row.node) for row in rows]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_of(tmp_path_factory.mktemp("log") / "log.jsonl")


@pytest.mark.parametrize("since", [500, 2222.5, "40m", 5000])
def test_recorded_from_the_middle_of_a_log_reproduces_the_rest_exactly(log: Path, since: str | float) -> None:
    whole, rest = recorded(TraceFile(str(log))), recorded(TraceFile(str(log), since=since))
    assert events(rest, rest.begins_s) == events(whole, rest.begins_s)
    assert set(events(rest)) < set(events(whole))
    assert len(rest.jobs) < len(whole.jobs)


def test_a_policy_without_memory_goes_on_as_in_the_whole_log(log: Path) -> None:
    def fifo(trace: TraceFile) -> Schedule:
        return drive(ClusterScenario(CLUSTER, trace).kernel(0), POLICIES.create("fifo"))

    assert events(fifo(TraceFile(str(log), since=2000)), 2000.0) == events(fifo(TraceFile(str(log))), 2000.0)


def test_until_leaves_out_later_arrivals(log: Path) -> None:
    part = recorded(TraceFile(str(log), since=1000, until=2000))
    assert 1900 < max(job.arrival_s for job in part.jobs) < 2000
    assert part.begins_s == 1000


def test_the_facts_say_what_ran_and_waited(log: Path) -> None:
    scenario = ClusterScenario(CLUSTER, TraceFile(str(log), since=2000))
    kernel = scenario.kernel(0)
    kernel.run(POLICIES.create("recorded"))
    state = scenario.facts(kernel)["state"]
    assert state["begins_s"] == 2000
    assert state["running"] == sum(job.arrival_s < 2000 for job in kernel.schedule.jobs) - state["waiting"]
    assert state["running"] > 0 < state["waiting"]
    assert state["without_room"] == 0
    assert scenario.facts(kernel)["observed"]["total"]["difference_s"] == 0


def test_jobs_whose_nodes_are_gone_run_elsewhere_or_wait() -> None:
    jobs = [
        Job.single(f"j{n}", Task("t", 100.0, gpus=4), float(n), observed_start_s=float(n), observed_nodes=(f"n{n}",))
        for n in range(4)
    ]
    three = Cluster(CLUSTER.nodes[1:])
    state = jobs_at(JobArrays.of(jobs), 50.0, 99.0, three, Recorded())
    flights = {job.id: [share.node for run in job.in_flight for share in run.placement] for job in state.jobs()}
    assert flights == {"j0": [], "j1": [0], "j2": [1], "j3": [2]}
    with pytest.raises(ModelError, match="job 'j0' runs on node 'n0', but the cluster does not have this node"):
        jobs_at(JobArrays.of(jobs), 50.0, 99.0, three, Recorded(), exact=True)


def test_without_node_names_the_largest_jobs_get_a_place_first() -> None:
    jobs = [
        Job.single("small", Task("t", 100.0, gpus=1), 0.0, observed_start_s=0.0),
        Job.single("wide", Task("t", 100.0, instances=4, gpus=4, gang=True), 1.0, observed_start_s=1.0),
        Job.single("done", Task("t", 9.0), 1.0, observed_start_s=1.0),
        Job.single("waits", Task("t", 9.0), 2.0, observed_start_s=60.0),
    ]
    state = list(jobs_at(JobArrays.of(jobs), 50.0, 99.0, CLUSTER, Recorded()).jobs())
    assert [(job.id, len(job.in_flight)) for job in state] == [("small", 0), ("wide", 1), ("waits", 0)]


def requeued() -> Job:
    """Build a job that ran from 10 to 40 s, from 60 to 70 s and from 90 to 190 s, in three places."""
    attempts = (
        Attempt(5.0, 10.0, 40.0, ("n0",)),
        Attempt(55.0, 60.0, 70.0, ("n1",)),
        Attempt(85.0, 90.0, 190.0, ("n2",)),
    )
    seen: dict[str, Any] = {"observed_start_s": 10.0, "observed_nodes": ("n0",), "observed_attempts": attempts}
    return Job.single("again", Task("t", 100.0, gpus=4), 0.0, eligible_s=5.0, **seen)


@pytest.mark.parametrize(
    ("at_s", "eligible_s", "start_s", "node"),
    [(20.0, 5.0, 10.0, 0), (50.0, 55.0, 60.0, None), (65.0, 55.0, 60.0, 1), (150.0, 85.0, 90.0, 2)],
)
def test_a_requeued_job_is_in_the_attempt_of_that_time(
    at_s: float, eligible_s: float, start_s: float, node: int | None
) -> None:
    (job,) = jobs_at(JobArrays.of([requeued()]), at_s, 999.0, CLUSTER, Recorded()).jobs()
    assert (job.eligible_s, job.observed_start_s) == (eligible_s, start_s)
    assert [(run.since_s, run.placement[0].node) for run in job.in_flight] == (
        [] if node is None else [(start_s, node)]
    )


def test_a_requeued_job_is_over_after_its_last_attempt() -> None:
    assert not len(jobs_at(JobArrays.of([requeued()]), 200.0, 999.0, CLUSTER, Recorded()))


def test_earlier_attempts_count_as_use_of_the_past() -> None:
    (job,) = JobsLeft(JobArrays.of([requeued()]), 80.0, CLUSTER, Recorded())
    assert [(run.since_s, run.until_s, run.stopped) for run in job.in_flight] == [
        (10.0, 40.0, "preempted"),
        (60.0, 70.0, "preempted"),
    ]
    (job,) = JobsLeft(JobArrays.of([requeued()]), 200.0, CLUSTER, Recorded())
    assert [run.stopped for run in job.in_flight] == ["preempted", "preempted", ""]


@pytest.mark.parametrize("at_s", [50.0, 90.0, 149.0])
def test_a_suspended_job_runs_to_its_recorded_end(at_s: float) -> None:
    seen: dict[str, Any] = {"observed_start_s": 0.0, "observed_attempts": (Attempt(0.0, 0.0, 150.0, ("n3",)),)}
    arrays = JobArrays.of([Job.single("naps", Task("t", 40.0, gpus=4), 0.0, **seen)])
    (job,) = jobs_at(arrays, at_s, 999.0, CLUSTER, Recorded()).jobs()
    (run,) = job.in_flight
    assert run.placement[0].node == 3
    assert run.since_s == pytest.approx(min(110.0, at_s))
    assert not len(jobs_at(arrays, 150.0, 999.0, CLUSTER, Recorded()))


def test_jobs_that_started_on_the_cpus_of_a_suspended_job_are_in_flight() -> None:
    def job(name: str, start_s: float, cpus: float, nodes: tuple[str, ...] = ("n0",)) -> Job:
        task = Task("t", 100.0, gpus=0, cpus=cpus)
        return Job.single(name, task, start_s, observed_start_s=start_s, observed_nodes=nodes)

    one = Cluster((Node("n0", cpus=8.0),))
    arrays = JobArrays.of([job("naps", 0.0, 7.0), job("guest", 10.0, 5.0), job("elsewhere", 20.0, 3.0, ())])
    flights = [
        {job.id: len(job.in_flight) for job in jobs_at(arrays, 50.0, 99.0, one, Recorded(), suspended=suspended).jobs()}
        for suspended in ((), ["naps"])
    ]
    assert flights == [{"naps": 1, "guest": 0, "elsewhere": 0}, {"naps": 1, "guest": 1, "elsewhere": 0}]


def test_every_node_that_a_log_names_holds_an_instance() -> None:
    """Five instances of a batch job on three nodes, of which one is nearly full: 1, 3, 1 and not 1, 4, 0."""
    jobs = [
        Job.single("first", Task("t", 100.0, gpus=3), 0.0, observed_start_s=0.0, observed_nodes=("n0",)),
        Job.single(
            "five",
            Task("t", 100.0, instances=5, gpus=1),
            1.0,
            observed_start_s=1.0,
            observed_nodes=("n0", "n1", "n2"),
            request=Request(partitions=("batch",)),
        ),
    ]
    _, five = jobs_at(JobArrays.of(jobs), 50.0, 99.0, CLUSTER, Recorded()).jobs()
    assert [(share.node, share.instances) for share in five.in_flight[0].placement] == [(0, 1), (1, 3), (2, 1)]
    played = drive(ClusterScenario(CLUSTER, jobs, runtime=Recorded()).kernel(0), POLICIES.create("recorded"))
    starts = [(row.node, row.instances) for row in played.log if row.kind == Kind.STARTED and row.job == 1]
    assert starts == [(0, 1), (1, 3), (2, 1)]


def test_growth_scales_only_what_arrives_later(log: Path) -> None:
    trace = TraceFile(str(log), since=2000)
    faster = replace(trace, options=replace(trace.options, time_scale=0.5))
    jobs, quick = ([*ClusterScenario(CLUSTER, source).jobs(0)] for source in (trace, faster))
    assert [job.in_flight for job in quick] == [job.in_flight for job in jobs]
    assert quick[-1].arrival_s == 2000 + (jobs[-1].arrival_s - 2000) / 2


def test_instants_are_dates_of_the_log_or_times_after_its_first_job() -> None:
    origin_s = datetime(2023, 5, 1, tzinfo=UTC).timestamp()
    assert instant_s("from", "2023-05-02T12:00", origin_s, None) == 36 * 3600
    assert instant_s("from", "2023-05-02T14:00+02:00", origin_s, None) == 36 * 3600
    assert instant_s("from", "1.5d", origin_s, None) == instant_s("from", 129600.0, origin_s, None)
    with pytest.raises(ConfigError, match="expected a date such as"):
        instant_s("from", "soon", origin_s, None)
    with pytest.raises(ConfigError, match="has no dates"):
        instant_s("from", "2023-05-02", 0.0, None)


def test_impossible_periods_are_refused(log: Path) -> None:
    with pytest.raises(ConfigError, match="--until must be later than --from and later than the first job"):
        recorded(TraceFile(str(log), since="2h", until="1h"))
    with pytest.raises(TraceError, match="no job is running, waiting or arriving from '30d'"):
        recorded(TraceFile(str(log), since="30d"))
    with pytest.raises(ConfigError, match="windows come from the whole log"):
        TraceFile(str(log), window=10, since="1h")


def test_the_command_replays_a_part(log: Path, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("cluster: {groups: [{name: n, gpu: T4, gpus: 4, count: 4}]}\n")
    argv = ["replay", "--trace", str(log), "--algo", "fifo", "--from", "30m", "--until", "1h", "--json"]
    done = fine(*argv, "--cluster", tmp_path / "cluster.yaml", "--out", tmp_path)
    assert json.loads(done.output)["runs"][0]["workload"]["state"]["begins_s"] == 1800


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_saved_part_of_a_log_keeps_the_jobs_that_run_when_it_begins(log: Path, tmp_path: Path, scale: float) -> None:
    def fifo(trace: TraceFile) -> Schedule:
        return drive(ClusterScenario(CLUSTER, trace).kernel(0), POLICIES.create("fifo"))

    (tmp_path / "cluster.yaml").write_text(
        "cluster: {groups: [{name: n, hosts: 'n[0-3]', gpu: T4, gpus: 4, count: 4}]}\n"
    )
    saved = tmp_path / "saved.jsonl"
    argv = ["workload", "save", str(log), str(saved), "--config", str(tmp_path / "cluster.yaml")]
    argv += ["--set", "workload.since=2000", "--set", f"workload.options.time_scale={scale}"]
    fine(*argv)
    part = fifo(TraceFile(str(log), since=2000, options=TraceOptions(time_scale=scale)))
    again = fifo(TraceFile(str(saved)))
    assert 0 < again.begins_s == part.begins_s - part.jobs[0].arrival_s
    assert [row[:1] + row[2:] for row in events(again)] == [row[:1] + row[2:] for row in events(part)]
    copied = tmp_path / "copied.jsonl"
    convert(saved, copied)
    assert events(fifo(TraceFile(str(copied)))) == events(again)


def test_a_requested_load_is_that_of_the_part(log: Path) -> None:
    trace = TraceFile(str(log), since=2000, until=4000, options=TraceOptions(load=0.7))
    assert ClusterScenario(CLUSTER, trace).jobs(0).load.offered == pytest.approx(0.7)


def test_a_cluster_sized_to_a_part_has_room_for_the_widest_job_of_the_log(tmp_path: Path) -> None:
    jobs = [
        Job.single(
            "wide", Task("t", 900.0, instances=5, gpus=8, gang=True, gpu_types=("T4",)), 0.0, observed_start_s=0.0
        )
    ]
    jobs += [Job.single(f"j{n}", Task("t", 9.0, gpus=1, gpu_types=("T4",)), 10.0 * n) for n in range(1, 50)]
    write_jobs(tmp_path / "log.jsonl", jobs)
    config = load_config(
        settings=[Setting("--trace", "workload", {"kind": "trace", "path": str(tmp_path / "log.jsonl"), "since": 100})]
    )
    cluster = on_its_cluster(config, "sized").build_cluster()
    assert cluster.gpus == 40
    assert len(next(iter(ClusterScenario(cluster, config.trace()).jobs(0))).in_flight) == 1


def test_windows_begin_with_the_jobs_that_ran_and_waited_then(log: Path) -> None:
    """A window under the log's own scheduler has the waits of the log."""
    for seed in WINDOWS[:6]:
        scenario = ClusterScenario(CLUSTER, TraceFile(str(log), window=30, windows=6))
        kernel = scenario.kernel(seed)
        kernel.run(POLICIES.create("fifo"))
        facts = scenario.facts(kernel)
        assert facts["state"]["running"] > 0
        assert facts["observed"]["total"]["jobs"] == 30
        assert facts["observed"]["total"]["simulated_s"] == facts["observed"]["total"]["observed_s"]
        assert JobSeries.of(kernel.schedule).value("wait_s.mean") == facts["observed"]["total"]["observed_s"]["mean"]


@pytest.mark.parametrize(
    ("cluster", "options", "why"),
    [
        (Cluster(CLUSTER.nodes[1:]), TraceOptions(), "its jobs hold up to 16 GPUs at once, more than the cluster's 12"),
        (CLUSTER, TraceOptions(load=0.7), "their arrivals are scaled"),
    ],
)
def test_windows_of_another_cluster_or_load_begin_empty_and_say_so(
    log: Path, cluster: Cluster, options: TraceOptions, why: str
) -> None:
    scenario = ClusterScenario(cluster, TraceFile(str(log), window=30, windows=6, options=options))
    kernel = scenario.kernel(WINDOWS[3])
    kernel.run(POLICIES.create("fifo"))
    facts = scenario.facts(kernel)
    assert facts["jobs"] == len(kernel.schedule.jobs) == 30
    assert facts["empty"] == why
    assert f"windows begin on an empty cluster: {why}" in workload_notes([facts])

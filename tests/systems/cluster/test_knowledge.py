"""What policies know of run times: the limits of a log alone, which every result says."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import fine, invoke

from dagsim.model import UNLIMITED_S, Cluster, Job, Kind, Node, NodePartition, Qos, QueueTree, Task, gpu_type
from dagsim.systems.cluster import ClusterKernel, Estimates
from dagsim.systems.cluster.knowledge import Knowledge
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive

CLUSTER = Cluster(tuple([Node(f"n{number}", gpu_type("T4"), 4, 16, 64) for number in range(3)]))
COSTLY = {entry.name for entry in POLICIES.describe() if "costly" in entry.tags}
CLAIRVOYANT = {"recorded"}
"""Policies that know the future by definition: the starts of the log."""


def needs_nothing(name: str) -> bool:
    """Say whether the policy can be made without parameters."""
    parameters = inspect.signature(POLICIES.get(name)).parameters.values()
    return all(one.default is not one.empty or one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters)


def spec(name: str) -> str:
    """Short slices, so that short jobs meet many of them."""
    return f"{name}[quantum_s=40]" if name in ("round-robin", "las", "2d-las", "2d-gittins", "tiresias") else name


def log_of(rng: np.random.Generator, jobs: int = 60) -> list[Job]:
    """Jobs that keep their time limits, on a cluster that is too small for them: every other one is long."""
    listed = []
    arrival_s = np.sort(rng.uniform(0, 30.0 * jobs, jobs)).tolist()
    for number in range(jobs):
        is_long = number % 2 == 0
        limit_s = float(rng.choice((1_800.0, 2_700.0, 3_600.0) if is_long else (120.0, 300.0, 600.0)))
        ran_s = limit_s * float(rng.uniform(0.6 if is_long else 0.05, 1.0))
        instances = int(rng.choice((1, 1, 2, 3)))
        gpus = float(rng.choice((0.5, 1, 2, 4)))
        task = Task("t", ran_s, instances, instances > 1, gpus, float(rng.choice((1, 4))), 2.0, estimate=limit_s)
        priority, tenant = float(rng.integers(3)), f"u{rng.integers(3)}"
        listed.append(Job.single(f"j{number}", task, arrival_s[number], priority=priority, tenant=tenant))
    return listed


def other_truth(jobs: list[Job], rng: np.random.Generator) -> list[Job]:
    """The jobs, of which the long ones have exchanged their run times and keep their limits."""
    of_limit: dict[float | None, list[int]] = {}
    for number in range(0, len(jobs), 2):
        of_limit.setdefault(jobs[number].tasks[0].estimate, []).append(number)
    changed = list(jobs)
    for numbers in of_limit.values():
        for one, other in zip(numbers, rng.permutation(numbers).tolist(), strict=True):
            changed[one] = with_work(jobs[one], jobs[other].tasks[0].work)
    return changed


def with_work(job: Job, work: float) -> Job:
    """The job of one task with other work."""
    return replace(job, graph=replace(job.graph, tasks=(replace(job.tasks[0], work=work),)))


def decisions(
    jobs: list[Job], policy: str, engine: str = "simpy", **models: Any
) -> list[tuple[float, int, int, int, int]]:
    """Rows of the log without what they say of work, each with its time, kind, job, node and GPUs."""
    scenario = ClusterScenario(cluster=CLUSTER, workload=jobs, engine=engine, **models)  # type: ignore[arg-type]
    if engine == "compiled":
        kernel = scenario.engaged(policy, 1).kernel
        for _ in kernel.decisions():
            pass
        schedule = kernel.schedule
    else:
        schedule = drive(scenario.kernel(1), scenario.fitted(POLICIES.create(policy)))
    return [(row.time_s, row.kind, row.job, row.node, row.gpus) for row in schedule.log]


def until_first_difference(one: list, other: list) -> Iterator[list]:
    """Both lists until the first end of a job that differs between them."""
    ends = [{row[2]: row[0] for row in rows if row[1] == Kind.FINISHED} for rows in (one, other)]
    both = [(ends[0].get(job, inf), ends[1].get(job, inf)) for job in {**ends[0], **ends[1]}]
    first_s = min([min(pair) for pair in both if pair[0] != pair[1]], default=inf)
    for rows in (one, other):
        yield [row for row in rows if row[0] < first_s]


@pytest.mark.parametrize("name", [name for name in POLICIES.names() if needs_nothing(name) and name not in CLAIRVOYANT])
def test_no_policy_knows_more_of_jobs_with_limits_than_the_limits(name: str) -> None:
    compared = 0
    for seed in range(2, 5):
        if name in COSTLY and compared > 5:
            break
        rng = np.random.default_rng(seed)
        jobs = log_of(rng)
        mine, theirs = until_first_difference(
            decisions(jobs, spec(name)), decisions(other_truth(jobs, rng), spec(name))
        )
        assert mine == theirs
        compared += sum(row[1] == Kind.STARTED for row in mine)
    assert compared > 5


def test_true_run_times_would_show_in_the_decisions() -> None:
    rng = np.random.default_rng(2)
    jobs = log_of(rng)
    pair = [decisions(of, "srtf", estimates=Estimates("exact")) for of in (jobs, other_truth(jobs, rng))]
    mine, theirs = until_first_difference(*pair)
    assert mine != theirs


QUEUES = QueueTree(
    partitions=(NodePartition("short", max_time_s=500.0), NodePartition("long", default_time_s=900.0)),
    qos=(Qos("normal"), Qos("brief", max_time_s=700.0)),
)


def seconds_of(queues: QueueTree | None, *jobs: Job) -> list[float]:
    """The seconds that policies see of the only task of each job."""
    kernel = ClusterKernel(CLUSTER, list(jobs), Models(queues=queues))
    next(kernel.decisions())
    return [job.tasks[0].seconds[0] for job in kernel.frontier.jobs.values()]


def single(id_: str, estimate: float | None, **terms: str) -> Job:
    return Job.single(id_, Task("t", 100.0, estimate=estimate), **terms)  # type: ignore[arg-type]


def test_a_job_without_a_limit_has_that_of_its_partition_or_a_year() -> None:
    stated = single("stated", 300.0)
    unstated = [single("a", None, partition="short"), single("b", None, partition="long"), single("c", None)]
    assert seconds_of(QUEUES, stated, *unstated) == [300.0, 500.0, 900.0, 500.0]
    assert seconds_of(None, stated, *unstated) == [300.0, UNLIMITED_S, UNLIMITED_S, UNLIMITED_S]


def test_no_limit_is_above_the_longest_of_partition_and_qos() -> None:
    unlimited = [single(id_, UNLIMITED_S, partition="long", qos=qos) for id_, qos in (("a", "normal"), ("b", "brief"))]
    assert seconds_of(QUEUES, *unlimited) == [UNLIMITED_S, 700.0]


def test_true_run_times_are_known_only_if_no_job_states_a_limit() -> None:
    assert seconds_of(QUEUES, single("a", None, partition="long"), single("b", None)) == [100.0, 100.0]


@pytest.mark.family("compiled")
@pytest.mark.parametrize("policy", ["sjf", "easy", "srpt-work", "srtf", "las[quantum_s=40]", "easy-sjf"])
def test_both_engines_know_the_same(policy: str) -> None:
    rng = np.random.default_rng(5)
    jobs = [
        replace(
            with_limit(job, None) if number % 5 == 0 else job,
            partition=("short", "long")[number % 2],
            qos=("normal", "brief")[number % 3 // 2],
        )
        for number, job in enumerate(log_of(rng))
    ]
    one, other = (decisions(jobs, policy, engine, queues=QUEUES) for engine in ("simpy", "compiled"))
    assert one == other


def with_limit(job: Job, limit_s: float | None) -> Job:
    """The job of one task with another limit."""
    return replace(job, graph=replace(job.graph, tasks=(replace(job.tasks[0], estimate=limit_s),)))


@pytest.mark.parametrize(
    ("kind", "limited", "line"),
    [
        ("predicted", 100, "policies know the time limits in the log (100% of the jobs)"),
        (
            "predicted",
            97,
            "(97% of the jobs; for the others, they assume the limit of their partition, or a year)",
        ),
        ("predicted", 0, "policies know the true run times (the log has no time limits)"),
        ("exact", 0, "policies know the true run times"),
        (
            "exact",
            97,
            "hindsight: policies know the true run times instead of the time limits that 97% of the jobs in the log",
        ),
        ("noisy", 0, "policies know the true run times with log-normal noise (sigma 0.5)"),
        (
            "noisy",
            100,
            "hindsight: policies know the true run times with log-normal noise (sigma 0.5) instead of the time limits",
        ),
        ("hidden", 97, "policies know nothing about run times"),
    ],
)
def test_one_line_says_what_policies_know(kind: str, limited: int, line: str) -> None:
    assert line in str(Knowledge(kind, 0.5, 100, limited, of_log=True))


def test_only_all_is_100_percent() -> None:
    assert "(99.9% of the jobs;" in str(Knowledge("predicted", 0.5, 100_000, 99_999, of_log=True))
    assert "(0.1% of the jobs;" in str(Knowledge("predicted", 0.5, 100_000, 1, of_log=True))


def test_windows_are_counted_together() -> None:
    windows = [Knowledge("predicted", 0.5, 10, limited, of_log=True).to_dict() for limited in (10, 9)]
    joined = Knowledge.joined(windows)
    assert joined is not None
    assert (joined.jobs, joined.limited) == (20, 19)


CSV = "id,arrival_s,gpus,duration_s,estimate_s\na,0,4,100,300\nb,1,4,50,{limit}\n"


@pytest.mark.parametrize(("limit", "share"), [("300", "100%"), ("", "50%")])
def test_a_replay_says_what_policies_know(tmp_path: Path, limit: str, share: str) -> None:
    (tmp_path / "log.csv").write_text(CSV.format(limit=limit))
    (tmp_path / "c.yaml").write_text("cluster: {groups: [{name: n, gpu: T4, gpus: 4}]}\n")
    line = f"policies know the time limits in the log ({share} of the jobs"
    command = ["replay", "--trace", str(tmp_path / "log.csv"), "--config", str(tmp_path / "c.yaml"), "--algo", "easy"]
    said = invoke(*command, "--no-plots", "-o", tmp_path / "text")
    assert line in said.output.replace("\n", " ")
    told = json.loads(invoke(*command, "--json", "-o", tmp_path / "json").output)
    assert told["knowledge"].startswith(line)
    (manifest,) = (tmp_path / "json").glob("*/manifest.json")
    assert json.loads(manifest.read_text())["knowledge"][0].startswith(line)
    (folder,) = (tmp_path / "text").iterdir()
    page = tmp_path / "page.html"
    fine("report", folder, "-o", page)
    assert line in page.read_text()


def test_true_run_times_of_a_log_with_limits_are_headed_as_hindsight(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(CSV.format(limit="300"))
    command = ["replay", "--trace", str(tmp_path / "log.csv"), "--algo", "easy", "--no-plots", "-o", str(tmp_path)]
    said = invoke(*command, "--set", "estimates.kind=exact")
    assert said.output.startswith("hindsight: policies know the true run times instead of the time limits")

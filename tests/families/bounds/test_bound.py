"""``dagsim bound``, and the share of the way to the bound in comparisons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path

import pytest
from support.command_line import fine, invoke, json_of

from dagsim.experiment.store import Store
from dagsim.families.bounds.bound import Bound, shares_of_the_way
from dagsim.model import Job, Task
from dagsim.workload.records import write_jobs

FEW = ("--set", "workload.count=12")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    policies = [word for name in ("fifo", "sjf", "srtf") for word in ("--policy", name)]
    fine("baseline", *policies, "--seed", "5", "--seeds", "1", *FEW, "--no-plots", "--quiet", "--out", out)
    return next(out.iterdir())


def test_the_bound_of_a_seed_is_below_every_run_on_that_seed(folder: Path) -> None:
    least = json_of("bound", "--seed", "5", *FEW)
    any_run = json_of("bound", "--seed", "5", *FEW, "--preemptive")
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    means = {line["policy"]: line["metrics"]["jct_s.mean"] for line in lines}
    assert least["jobs"] == 12
    assert least["kind"] in ("lagrangian", "time-indexed", "exact")
    assert 0 < any_run["mean_s"] <= means["srtf"]
    assert any_run["mean_s"] <= least["mean_s"] <= min(means["fifo"], means["sjf"])
    assert least["bound_s"] == pytest.approx(12 * least["mean_s"])


def test_the_bound_by_area_is_below_every_area_weighted_mean(folder: Path) -> None:
    least = json_of("bound", "--seed", "5", *FEW, "--area")
    store = Store.open(folder)
    means = {line.policy: line.metrics["area_weighted_jct_s"] for line in store.lines()}
    assert least["area_gpu_s"] == pytest.approx(sum(job.ideal_gpu_s for job in store.schedule(0).jobs))
    assert 0.5 * min(means.values()) < least["mean_s"] <= min(means["fifo"], means["sjf"])


def test_the_bound_by_area_of_one_gpu_is_the_optimum_by_smith(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("cluster: {groups: [{name: n, gpu: T4, count: 1, gpus: 1}]}\n", encoding="utf-8")
    trace = tmp_path / "jobs.jsonl"
    write_jobs(trace, [Job.single(f"j{work}", Task("t", float(work))) for work in (4, 1, 2)])
    least = json_of("bound", "--trace", trace, "--cluster", cluster, "--area")
    # With weights equal to lengths, every order is optimal: the sum over pairs i <= j of p_i p_j.
    assert least["bound_s"] == pytest.approx(4 * 4 + 1 * 5 + 2 * 7, rel=2e-6)
    assert (least["jobs"], least["area_gpu_s"]) == (3, 7)


def test_the_bound_of_a_trace_is_on_the_cluster_of_a_file(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("cluster: {groups: [{name: n, gpu: T4, count: 1, gpus: 1}]}\n", encoding="utf-8")
    trace = tmp_path / "jobs.jsonl"
    write_jobs(trace, [Job.single(f"j{work}", Task("t", float(work))) for work in (4, 1, 2)])
    least = json_of("bound", "--trace", trace, "--cluster", cluster)
    assert (least["bound_s"], least["kind"]) == (pytest.approx(1 + 3 + 7), "exact")


def test_a_system_without_a_bound_is_an_error() -> None:
    ended = invoke("bound", "--config", "spark")
    assert ended.exit_code == 2
    assert "the system is 'spark'" in ended.output


def test_a_comparison_shows_the_share_of_the_way(folder: Path) -> None:
    assert "way to" in fine("compare", folder, "--bound").stdout
    shown = json_of("compare", folder, "--bound")
    share = shown["share_of_the_way"]
    assert share["fifo"] == 0
    assert share["sjf"] < 1
    assert share["srtf"] is None or share["srtf"] < 1  # None if it stopped a run
    wrong = invoke("compare", folder, "--bound", "--metric", "makespan_s")
    assert (wrong.exit_code, "applies only to the metric jct_s.mean" in wrong.output) == (2, True)


@dataclass
class Line:
    policy: str
    seed: int
    metrics: dict[str, float] = field(default_factory=dict)


def lines(policy: str, means: Sequence[float], **more: float) -> list[Line]:
    same = {"preemptions": 0, "jobs_completed": 10} | more
    return [Line(policy, seed, {"jct_s.mean": mean, **same}) for seed, mean in enumerate(means)]


def test_the_share_is_that_of_the_sums_and_unknown_where_the_bound_does_not_hold() -> None:
    # The bounds are 20 + 40; the reference has 40 + 80: 60 to go, of which the other has gone 10 + 20.
    bounds = {seed: Bound(mean * 10.0, "lagrangian", False, 10, 0) for seed, mean in enumerate((20, 40))}
    runs = [*lines("a", (40, 80)), *lines("b", (30, 60)), *lines("c", (44, 82))]
    runs += [*lines("stops", (30, 60), preemptions=3), *lines("drops", (30, 60), jobs_completed=9)]
    shares = shares_of_the_way(runs, bounds)
    assert [shares[name] for name in "abc"] == pytest.approx([0.0, 0.5, -0.1])
    assert isnan(shares["stops"])
    assert isnan(shares["drops"])


def test_elastic_tasks_have_no_bound(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("elastic: {least: 2}\nworkload: {count: 5}\n")
    ended = invoke("bound", "--config", tmp_path / "c.yaml")
    assert ended.exit_code == 2
    assert "bound: elastic tasks are not supported" in ended.stderr

"""Python's ``dagsim.replay``, ``compare``, ``plan`` and ``train`` do what the commands do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import fine, invoke, json_of

import dagsim
from dagsim import Job, Synthetic, Task, simulate
from dagsim.config.schema import load_config
from dagsim.config.yaml import Setting
from dagsim.errors import DagsimError, InputError, RunFolderError
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import run_policy
from dagsim.experiment.store import Store
from dagsim.systems.cluster.policies import POLICIES
from dagsim.workload.presets import PRESETS

CLUSTER = "cluster:\n  groups: [{name: t4, gpu: T4, gpus: 4, count: 2}]\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [f"j{n},{30 * n},{1 + n % 4},{100 + 37 * n % 900}" for n in range(600)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["id,arrival_s,gpus,duration_s", *rows]) + "\n")
    return path


def lines_in(root: Path) -> list[dict[str, dict[str, float]]]:
    (run,) = root.iterdir()
    return [json.loads(line) for line in (run / "runs.jsonl").read_text().splitlines()]


def test_simulate_gives_a_policy_the_seed_of_the_run() -> None:
    jobs = [Job.single(f"j{number}", Task("t", 60.0, gpus=1), float(number)) for number in range(40)]
    logs = [simulate(jobs, {"A100-40": 2, "T4": 2}, "random", seed).schedule.log for seed in (1, 1, 2)]
    assert logs[0] == logs[1] != logs[2]


def test_simulate_counts_the_jobs_that_the_command_counts() -> None:
    kept = {"preset": "steady", "count": 300, "measure": [50, -50]}
    config = load_config(None, [Setting("jobs", "workload", kept)])
    workload = replace(PRESETS["steady"].workload, count=300, measure=(50, -50))
    theirs = run_policy(config, "sjf", 3).summary
    assert theirs.jobs_completed == 200
    for policy in ("sjf", POLICIES.create("sjf")):
        mine = simulate(workload, config.build_cluster(), policy, 3).summary
        assert mine.to_dict() | {"decision_time_us": 0} == theirs.to_dict() | {"decision_time_us": 0}


def test_policies_of_one_configuration_share_its_jobs() -> None:
    config = load_config()
    assert scenario_of(config) is scenario_of(config)
    assert scenario_of(config) is not scenario_of(load_config())


def test_simulate_admits_all_jobs_under_a_policy_that_only_starts_tasks() -> None:
    jobs = [Job.single(f"j{number}", Task("t", 60.0, gpus=1), float(number)) for number in range(4)]
    assert simulate(jobs, {"T4": 2}, "fifo", admission=True).summary.jobs_completed == 4


@pytest.mark.parametrize("cluster", [None, "sized", "own.yaml"])
def test_replay_gives_the_metrics_of_the_command(log: Path, tmp_path: Path, cluster: str | None) -> None:
    if cluster == "own.yaml":
        cluster = str(tmp_path / cluster)
        Path(cluster).write_text(CLUSTER)
    outcome = dagsim.replay(log, "sjf", cluster, settings=["seed=3"])
    options = () if cluster is None else ("--cluster", cluster)
    fine("replay", "--trace", log, "--algo", "sjf", "--seed", 3, *options, "--no-plots", "-q", "-o", tmp_path / "r")
    (line,) = lines_in(tmp_path / "r")
    metrics = {name: value for name, value in outcome.summary.to_dict().items() if name != "decision_time_us"}
    assert metrics == line["metrics"]
    assert dict(outcome.workload) == line["workload"]
    (run,) = (tmp_path / "r").iterdir()
    assert outcome.schedule.log.rows().tobytes() == Store.open(run).schedule(0).log.rows().tobytes()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dagsim.compare(["A", "B"]), r"compare\(\) takes run folders, such as .*; got \['A', 'B'\]"),
        (lambda: simulate(["steady"]), "workload must be a name, a file, a Synthetic or jobs in a list, got 'steady'"),
        (lambda: simulate(None), "workload must be a name, .*, got None"),
        (lambda: simulate(Synthetic), r"workload must be a name, .*; make one: Synthetic\(\)"),
        (lambda: simulate(""), "unknown workload ''"),
        (lambda: simulate("stedy"), "unknown workload 'stedy' .neither .*; did you mean 'steady'"),
        (lambda: simulate("steady", ["T4"]), "cluster: must map GPU types to counts, such as .*; got .'T4'."),
        (lambda: simulate("steady", netwrk=None), "simulate: no argument 'netwrk'; did you mean 'network'"),
        (lambda: dagsim.replay("a.csv", settings="seed=1"), "settings: give a list of texts, .*; got 'seed=1'"),
        (lambda: dagsim.replay("a.csv", settings=[5]), r"settings: give a list of texts, .*; got \[5\]"),
        (lambda: dagsim.replay("a.csv", settings=None), "settings: give a list of texts, .*; got None"),
        (lambda: dagsim.replay("a.csv", cluster={"T4": 2}), "cluster must be trace, sized, .*, got {'T4': 2}"),
        (lambda: dagsim.train("stedy"), "did you mean the setting workload='steady'"),
    ],
)
def test_a_value_of_another_kind_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_replay_refuses_windows(log: Path) -> None:
    with pytest.raises(InputError, match="runs whole traces"):
        dagsim.replay(log, settings=["workload.window=100"])


def test_compare_gives_the_standings_of_the_command(tmp_path: Path) -> None:
    fine("baseline", "--algo", "sjf", "--seeds", 5, "--set", "workload.count=20", "--no-plots", "-q", "-o", tmp_path)
    (run,) = tmp_path.iterdir()
    answer = json_of("compare", run)
    assert [result.to_dict() for result in dagsim.compare(run)] == answer["standings"]
    (run / "runs.jsonl").write_bytes(b"".join((run / "runs.jsonl").read_bytes().splitlines(keepends=True)[:4]))
    with pytest.raises(RunFolderError, match="contains only 4 of 10 runs"):
        dagsim.compare(run)


def test_plan_gives_the_answer_of_the_command(log: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(CLUSTER)
    arguments = ("--trace", log, "--cluster", own, "--target", "wait_s.mean<900", "--types", "T4", "--most", 128)
    answer = json.loads(fine("plan", *arguments, "--json", "-o", tmp_path / "command").stdout)
    planned = dagsim.plan(log, "wait_s.mean<900", ["T4"], cluster=str(own), most_gpus=128, out=tmp_path / "python")
    best = planned.search.best
    assert best is not None
    assert (best.gpus, best.met.value.value) == (answer["best"]["gpus"], answer["best"]["value"])
    assert len(planned.search.tried) == len(answer["tried"])
    with pytest.raises(InputError, match="at most three types"):
        dagsim.plan(log, "wait_s.mean<900", ["T4", "A100-40", "V100-16", "H100"], cluster=str(own), out=tmp_path)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda log: dagsim.replay("missing.csv"), "replay --trace missing.csv"),
        (lambda log: dagsim.replay(log, "sjff"), "replay --trace LOG --algo sjff"),
        (lambda log: dagsim.replay(log, cluster="nowhere.yaml"), "replay --trace LOG --cluster nowhere.yaml"),
        (lambda log: dagsim.replay(log, settings=["seeed=1"]), "replay --trace LOG --set seeed=1"),
        (lambda log: dagsim.compare("nowhere"), "compare nowhere"),
        (lambda log: dagsim.plan(log, "wait<1", ["T4"]), "plan --trace LOG --target wait<1 --types T4"),
        (lambda log: dagsim.plan(log, "wait_s.p95<9", ["T5"]), "plan --trace LOG --target wait_s.p95<9 --types T5"),
        (lambda log: dagsim.train(settings=["train.iterations=0"]), "train --set train.iterations=0"),
        (lambda log: dagsim.train("nowhere.yaml"), "train --config nowhere.yaml"),
    ],
)
def test_bad_input_gives_the_message_of_the_command(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Path], Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DagsimError) as caught:
        call(log)
    ended = invoke(*words.replace("LOG", str(log)).split())
    assert ended.exit_code == 2, ended.output
    assert ended.stderr.strip() == f"error: {caught.value}"
    assert ended.stdout == ""

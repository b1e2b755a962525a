"""Notes below tables: agents far from their training, clairvoyant policies, and nodes that fail too often."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command_line import fine

from dagsim import simulate

AGENT = f'ppo[checkpoint="{Path(__file__).parents[2]}/dagsim/families/learning/independent-0.9.pt"]'
NODES = ("a100-40", "A100-40", 1), ("v100-16", "V100-16", 1), ("t4", "T4", 2)
BY_TRUTH = """
class ByTruth:
    clairvoyant = True

    def decide(self, view):
        from dagsim import Start
        for task in sorted(view.ready, key=lambda task: min(task.truth)):
            if (place := view.fit(task)) is not None:
                yield Start(task, place)
"""


def groups(times: int) -> str:
    entries = (
        f"{{name: {name}, gpu: {gpu}, gpus: 8, cpus: 96, memory_gb: 1024, count: {times * count}}}"
        for name, gpu, count in NODES
    )
    return f"cluster.groups=[{', '.join(entries)}]"


def run(folder: Path, command: str, *options: str) -> str:
    kept = ["--out", str(folder)] if command == "eval" else []
    ended = fine(command, *options, *kept)
    return " ".join((ended.stdout if "--json" in options else ended.output).split())


def test_an_agent_on_a_cluster_ten_times_as_large_is_warned_about(tmp_path: Path) -> None:
    home = ["--policy", AGENT, "--seeds", "2", "--no-plots"]
    assert "outside the range of its training" not in run(tmp_path / "home", "eval", *home)
    far = run(tmp_path / "far", "eval", *home, "--set", groups(10))
    assert "% of the values it saw in a run lay outside the range of its training" in far
    (folder,) = (tmp_path / "far").iterdir()
    shares = [
        json.loads(line)["workload"]["decider"]["outside_training"]
        for line in (folder / "runs.jsonl").read_text().splitlines()
    ]
    assert all(0.01 < share < 0.5 for share in shares)
    assert "outside the range of its training" in run(tmp_path, "compare", str(folder))
    (note,) = json.loads(run(tmp_path, "compare", str(folder), "--json"))["notes"]
    assert note.startswith("warning: ppo[")
    page = tmp_path / "page.html"
    run(tmp_path, "report", str(folder), "-o", str(page))
    assert "outside the range of its training" in page.read_text()


def test_an_agent_among_jobs_of_a_real_site_is_warned_about(tmp_path: Path) -> None:
    options = ["--workload", "like-philly", "--set", "workload.count=60", "--set", "workload.measure=null"]
    far = run(tmp_path, "eval", "--policy", AGENT, "--seeds", "1", "--no-plots", *options)
    assert "outside the range of its training" in far


def test_tables_name_the_users_own_clairvoyant_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(BY_TRUTH)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    small = ["--seeds", "2", "--no-plots", "--set", "workload.count=10"]
    note = "clairvoyant (reads true durations, which no scheduler knows): mine:ByTruth"
    assert note in run(tmp_path / "one", "eval", "--policy", "mine:ByTruth", *small)
    assert "clairvoyant" not in run(tmp_path / "other", "eval", "--policy", "sjf", *small)
    (folder,) = (tmp_path / "one").iterdir()
    assert note in run(tmp_path, "compare", str(folder))
    assert json.loads(run(tmp_path, "compare", str(folder), "--json"))["notes"] == [note]
    grid = tmp_path / "grid.yaml"
    grid.write_text("over: {policy: [sjf, 'mine:ByTruth']}\nseeds: 2\nset: {workload.count: 10}\n")
    assert note in run(tmp_path, "sweep", str(grid), "--out", str(tmp_path / "grid"))


def test_nodes_that_fail_faster_than_jobs_run_are_warned_about(tmp_path: Path) -> None:
    small = ["--policy", "sjf", "--seeds", "1", "--no-plots", "--set", "workload.count=10"]

    def failing(name: str, mean_up_s: float) -> str:
        failures = f"failures=[{{kind: node_failures, mean_up_s: {mean_up_s}, mean_down_s: 10}}]"
        return run(tmp_path / name, "eval", *small, "--set", failures)

    assert "nodes stay up (mean_up_s) for less time than jobs take" in failing("often", 500)
    assert "nodes stay up" not in failing("rarely", 1e6)


def test_jobs_for_gpu_types_that_the_cluster_lacks_are_warned_about(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("id,arrival_s,gpus,duration_s,gpu_type\na,0,1,10,X900\nb,1,1,10,T4\n")
    ended = fine("replay", "--trace", log, "--cluster", "sized", "--policy", "sjf", "--out", tmp_path, "--no-plots")
    output = " ".join(ended.output.split())
    assert output.startswith(
        "warning: 1 of 2 jobs (50%, 50% of the GPU-hours) ran in the log but can never run here: "
        "no node has a GPU of type X900; --read gpu_names=SITE=TYPE"
    )
    assert output.count("X900") == 1


def test_an_outcome_tells_a_clairvoyant_policy() -> None:
    names: dict[str, Any] = {}
    exec(BY_TRUTH, names)
    outcome = simulate(policy=names["ByTruth"](), seed=1)
    assert outcome.decider == {"clairvoyant": True}
    assert simulate(policy="sjf", seed=1).decider == {}

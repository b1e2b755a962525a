"""The commands ``whatif`` and ``plan`` on a log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families.capacity.capacity_cases import trial
from support.command_line import fine, invoke

from dagsim.errors import ConfigError, InputError
from dagsim.families.capacity.planning import plan
from dagsim.families.capacity.size_search import Target
from dagsim.model import Job, Request, Task
from dagsim.model.gpu import LIST_PRICES
from dagsim.workload.records import write_jobs


def log(path: Path, jobs: int) -> Path:
    """Jobs of 2 GPUs and 95 s on average, one every 30 s: a load of .8 on 8 GPUs."""
    arrival_s = np.cumsum(np.random.default_rng(7).exponential(30.0, jobs))
    rows = [f"j{n},{at_s:.3f},{1 + n % 3},{60 + 7 * (n % 11)}" for n, at_s in enumerate(arrival_s.tolist())]
    path.write_text("\n".join(["id,arrival_s,gpus,duration_s", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "log.csv", 600)
    (tmp_path / "c.yaml").write_text("cluster: {groups: [{name: t, gpu: T4, gpus: 4, count: 2}]}\n", encoding="utf-8")
    return tmp_path


def answer_of(*arguments: str, code: int = 0, trace: str = "log.csv") -> dict[str, Any]:
    common = ("--trace", trace, "--cluster", "c.yaml", "--executor", "local:1", "--json")
    result = invoke(*arguments, *common)
    assert result.exit_code == code, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_a_plan_from_python_invents_no_cluster_unless_it_is_asked_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the cluster is unknown, because the log does not list its machines"):
        plan(log(tmp_path / "log.csv", 20), "wait_s.p95<60")


def test_whatif_runs_clusters_and_policies_on_the_same_jobs(site: Path) -> None:
    answer = answer_of("whatif", "--add", "8xT4", "--policy", "fifo,sjf", "--price", "T4=0.5")
    rows = {(choice["cluster"], choice["policy"]): choice for choice in answer["choices"]}
    assert list(rows) == [("today", "fifo"), ("today", "sjf"), ("+8xT4", "fifo"), ("+8xT4", "sjf")]
    assert rows["today", "fifo"]["verdict"] == "reference"
    more = rows["+8xT4", "fifo"]
    assert more["ratio"] < 1
    assert more["n"] < 80
    assert (more["ratio_low"], more["verdict"]) == (None, "log too short")  # of 600 jobs
    assert more["wait_s"] < rows["today", "fifo"]["wait_s"]
    assert (rows["today", "fifo"]["cost_a_month"], more["cost_a_month"]) == (730 * 4.0, 730 * 8.0)
    events = [json.loads(line)["event"] for line in Path(answer["run"], "progress.jsonl").read_text().splitlines()]
    again = answer_of("whatif", "--add", "8xT4", "--policy", "fifo,sjf", "--price", "T4=0.5")
    assert again["choices"] == answer["choices"]
    more_events = Path(answer["run"], "progress.jsonl").read_text().splitlines()
    assert len(more_events) == len(events) + 2  # started, ended: nothing was run again


def test_without_the_writer_of_pages_whatif_answers_and_says_so(
    site: Path, without_families: Callable[..., None]
) -> None:
    without_families("web")
    words = ["--trace", "log.csv", "--cluster", "c.yaml", "--policy", "fifo", "--price", "none", "--out", "runs"]
    result = fine("whatif", "--add", "8xT4", *words)
    warning = "no page is written, because the writer of pages belongs to the family web, which this installation lacks"
    assert warning in " ".join(result.output.split())
    assert not list(Path("runs").rglob("report.html"))
    assert list(Path("runs").rglob("answer.json"))


def test_whatif_says_what_nodes_on_demand_would_cost_and_save(site: Path) -> None:
    spec = "8xT4,boot=120,idle=300,price=0.5"
    answer = answer_of("whatif", "--add", spec, "--add", "8xT4", "--policy", "fifo-fit", "--price", "T4=0.25")
    today, added, cloud = answer["choices"]
    assert [choice["cluster"] for choice in answer["choices"]] == ["today", "+8xT4", f"+{spec}"]
    assert "on_demand_a_month" not in today
    use = cloud["on_demand_a_month"]
    assert (use["nodes"], use["always_on_cost"]) == (2, 730 * 4.0)
    assert 0 < use["node_hours"] < 2 * 730
    assert use["cost"] == pytest.approx(use["node_hours"] * 4 * 0.5)
    assert cloud["cost_a_month"] == pytest.approx(today["cost_a_month"] + use["cost"])
    assert added["wait_s"] <= cloud["wait_s"] < today["wait_s"]  # the boots take time
    written = json.loads(Path(answer["run"], "answer.json").read_text())
    assert "on demand are up for" in " ".join(written["sentences"])
    free = answer_of("whatif", "--cloud", spec, "--policy", "fifo-fit", "--price", "none")
    assert free["choices"][1]["cost_a_month"] is None


def test_nodes_on_demand_have_a_cost_although_another_gpu_type_has_no_list_price(site: Path) -> None:
    own = "{name: a, gpu: A40, gpus: 4, on_demand: {boot_s: 60}}, {name: x, cpus: 8, on_demand: {boot_s: 60}}"
    (site / "c.yaml").write_text(f"cluster: {{groups: [{{name: t, gpu: T4, gpus: 4}}, {own}]}}\n", encoding="utf-8")
    answer = answer_of("whatif", "--add", "8xT4,boot=120,idle=300", "--policy", "fifo-fit")
    use = answer["choices"][1]["on_demand_a_month"]
    assert answer["choices"][1]["cost_a_month"] is None
    assert (use["nodes"], use["unpriced"]) == (4, 2)
    assert use["always_on_cost"] == pytest.approx(730 * 8 * LIST_PRICES["T4"].usd_per_h)
    assert 0 < use["cost"] < use["always_on_cost"]
    written = json.loads(Path(answer["run"], "answer.json").read_text())
    assert "without the 2 nodes that have no price" in " ".join(written["sentences"])
    assert "there is no list price for A40; give one (--price A40=PRICE)" in json.dumps(written)


def test_the_waits_of_whatif_are_those_of_the_jobs_of_the_log_and_begin_like_them(site: Path) -> None:
    """A job that waits for another for 900 s, and one whose start the log does not state."""
    after_a = Request(after=("a",))
    jobs = [
        Job.single("a", Task("t", 1000, gpus=1), 0, observed_start_s=0),
        Job.single("b", Task("t", 100, gpus=1), 100, observed_start_s=1000, eligible_s=1000, request=after_a),
        Job.single("c", Task("t", 100, gpus=1), 1500, observed_start_s=1550),
        Job.single("d", Task("t", 100, gpus=1), 1510),
        *[Job.single(f"e{n}", Task("t", 10, gpus=1), n, observed_start_s=n) for n in range(3000, 3900, 100)],
    ]
    write_jobs(site / "log.jsonl", jobs)
    (site / "c.yaml").write_text("cluster: {groups: [{name: n, gpu: T4, gpus: 1}]}\n")
    answer = answer_of("whatif", "--add", "1xT4", "--policy", "fifo", trace="log.jsonl")
    assert answer["fit"]["from_eligible"]
    written = json.loads(Path(answer["run"], "answer.json").read_text())
    log, today = written["grid"]["rows"][:2]
    assert (float(log[2]), float(today[2])) == (pytest.approx(50 / 12, rel=1e-3), 0)
    sentence = " ".join(written["sentences"])
    assert "from the time at which a job could start, over the jobs that start in both" in sentence


def test_plan_charges_nodes_on_demand_for_the_hours_in_which_they_are_up(site: Path) -> None:
    rule = "{boot_s: 60, idle_s: 300, price_per_h: 2}"
    groups = f"[{{name: t, gpu: T4, gpus: 4}}, {{name: c, gpu: T4, gpus: 4, on_demand: {rule}}}]"
    (site / "c.yaml").write_text(f"cluster: {{groups: {groups}}}\n", encoding="utf-8")
    asked = ("--target", "wait_s.p95<10h", "--max-gpus", "16", "--policy", "fifo-fit")
    today = answer_of("plan", *asked, "--price", "T4=0.25")["today"]
    own = 730 * 4 * 0.25
    assert own < today["cost"] < own + 730 * 2
    hours = answer_of("whatif", "--policy", "fifo-fit,sjf", "--price", "T4=0.25")["choices"][0]
    assert today["cost"] == pytest.approx(hours["cost_a_month"])


def test_plan_finds_a_size_draws_it_and_says_when_there_is_none(site: Path) -> None:
    answer = answer_of("plan", "--target", "wait_s.mean<30", "--plot", "curve.pdf")
    best, tried = answer["best"], {size["gpus"]: size for size in answer["tried"]}
    assert best["meets"]
    assert best["value"] < 30
    assert not tried[best["gpus"] - 4]["meets"]
    assert (site / "curve.pdf").read_bytes().startswith(b"%PDF")
    arguments = ("plan", "--trace", "log.csv", "--cluster", "c.yaml", "--target", "wait_s.mean<30")
    assert "drawn: curve.pdf\n" in fine(*arguments, "--plot", "curve.pdf").stdout
    none = answer_of("plan", "--target", "wait_s.mean<1e-9", "--most", "8", "--name", "none", code=1)
    assert none["best"] is None
    assert (Path(none["run"]) / "plots" / "plan.svg").exists()


def test_whatif_without_a_question_is_refused(site: Path) -> None:
    result = invoke("whatif", "--trace", "log.csv", "--cluster", "c.yaml")
    assert result.exit_code == 2
    assert "whatif: there is nothing to compare" in result.output
    result = invoke("whatif", "--trace", "log.csv", "--cluster", "c.yaml", "--add", "4xT4", "--metric", "x")
    assert result.exit_code == 2
    with pytest.raises(InputError, match="no metric"):
        Target("x", False, 1.0).of(trial({"jobs_arrived": 1, "jobs_completed": 1}))

"""``dagsim bench``: seeds, scores from the runs of a file, verification, leaderboards."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from copy import deepcopy
from importlib.util import find_spec
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
from support.command_line import invoke

from dagsim.families.benchmark import checking, entries
from dagsim.families.benchmark.checking import check_file, picked_cells
from dagsim.families.benchmark.entries import read_entry, scored
from dagsim.families.benchmark.page import entry_grid, leaderboards
from dagsim.families.benchmark.suite import BenchEntry, suite, suite_digest, task_plan
from dagsim.seeds import REPORT, TRAIN, VALIDATION, WINDOWS
from dagsim.systems import SYSTEMS

FEW = ("--task", "dags", "--task", "ramp", "--seeds", "2")


def run(*args: str, code: int = 0) -> str:
    ended = invoke("bench", *args)
    assert ended.exit_code == code, ended.output
    return ended.output


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench")
    run("run", "--policy", "sjf", "--ramp", "acceptable_jct", "--name", "mine", *FEW, "--quiet", "--out", str(out))
    return out / "bench-mine-exact-dev.json"


def test_the_suite_has_twelve_tasks_with_references_that_are_policies() -> None:
    tasks = suite()
    assert len(tasks) == 12
    assert {task.system for task in tasks} == {"cluster", "spark", "ramp"}
    for task in tasks:
        assert task.summary
        assert task_plan(task, BenchEntry("x", {task.system: task.config.policy}, "exact", None, 1)).policies


def test_a_task_whose_system_is_missing_is_left_out_and_named(
    without_families: Callable[..., None], tmp_path: Path
) -> None:
    whole = suite_digest()
    without_families("ramp", "pac_ml", registries=(SYSTEMS,))
    suite_digest.cache_clear()
    line = "task ramp left out: its system 'ramp' belongs to the family ramp, which this installation lacks"
    shown = run("tasks")
    assert line in shown
    assert len(suite()) == 11
    shown = run("run", "--policy", "sjf", "--task", "dags", "--seeds", "1", "--out", str(tmp_path))
    assert line in shown
    assert "1 of 12 tasks" in shown
    content = read_entry(next(tmp_path.glob("*.json")))
    assert len(content["missing"]) == 11
    assert "ramp" in content["missing"]
    assert content["suite_sha256"] == whole
    assert list(check_file(content)) == []
    assert "family ramp, which this installation lacks" in run("run", "--ramp", "acceptable_jct", code=2)
    shown = run("run", "--policy", "sjf", "--task", "ramp", code=2)
    assert "family ramp, which this installation lacks" in shown


def test_a_score_of_some_tasks_is_not_shown_as_one_of_all(file: Path) -> None:
    content = read_entry(file)
    grid = entry_grid(content)
    assert grid.rows[-1][0] == "2 of 12"
    assert "2 of 12 tasks" in grid.title
    [note] = [note for note in grid.notes if "not in the score" in note]
    assert "spark" in note
    assert "dags" not in note
    assert note in leaderboards([content])[0].notes
    whole = content["tasks"] | dict.fromkeys(content["missing"], content["tasks"]["dags"])
    timing = dict.fromkeys(whole, content["timing"]["dags"]) | content["timing"]
    grid = leaderboards([content | {"tasks": whole, "timing": timing}])[0]
    assert "12 tasks" in grid.title
    assert not any("not in the score" in note for note in grid.notes)


def test_test_seeds_follow_from_the_draw_and_are_in_no_pool() -> None:
    philly, pai = suite(["philly", "pai"])[::-1]
    drawn = philly.seeds(draw=7)
    assert len(set(drawn)) == 10
    assert drawn == philly.seeds(draw=7)
    assert drawn != philly.seeds(draw=8)
    assert drawn != pai.seeds(draw=7)
    assert not any(seed in pool for seed in drawn for pool in (TRAIN, VALIDATION, REPORT, WINDOWS))
    assert philly.seeds() == tuple(VALIDATION[:10])


def test_the_score_is_the_geometric_mean_of_ratios(file: Path) -> None:
    content = read_entry(file)
    ratios = []
    for task in content["tasks"].values():
        by_policy = {
            policy: [run["metrics"][task["metric"]] for run in task["runs"] if run["policy"] == policy]
            for policy in (task["policy"], task["reference"])
        }
        mine, other = by_policy[task["policy"]], by_policy[task["reference"]]
        ratios += [log(a / b) for a, b in zip(mine, other, strict=True)]
    assert len(ratios) == 4
    assert content["score"]["ratio"] == pytest.approx(exp(np.mean(ratios)))
    assert content["scores"]["ramp"]["ratio"] == 1.0
    assert content["preemption"] is False


def test_an_entry_that_leaves_jobs_undone_has_no_score(file: Path) -> None:
    content = read_entry(file)
    mine = next(line for line in content["tasks"]["dags"]["runs"] if line["policy"] == "sjf")
    mine["metrics"]["jobs_completed"] -= 1
    again = scored(content)
    assert again["score"]["ratio"] is None
    assert again["scores"]["dags"]["verdict"] == "no score: 1 job not done that the reference completes"
    assert again["score"]["verdict"] == "no score on dags"


def test_verify_repeats_runs_and_finds_every_forgery(file: Path, tmp_path: Path) -> None:
    assert "6 runs repeated (--seed 3): equal" in run("verify", str(file), "--seed", "3")
    content = read_entry(file)
    place = next(i for i, line in enumerate(content["tasks"]["dags"]["runs"]) if line["policy"] == "sjf")
    changes = (
        (lambda forged, line: line["metrics"].update(area_weighted_jct_s=1.0), "area_weighted_jct_s is"),
        (lambda forged, line: line.update(log_sha256="0" * 64), "the log has another SHA-256"),
    )
    forged, path = deepcopy(content), tmp_path / "forged.json"
    for change, _ in changes:
        change(forged, forged["tasks"]["dags"]["runs"][place])
    path.write_text(json.dumps(forged | {"code_sha256": "0"}), encoding="utf-8")
    shown = run("verify", str(path), code=1)
    for _, finding in changes:
        assert finding in shown
    assert "made by a different version of the simulation code" in shown


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (
            lambda forged, task: forged["score"].update(ratio=0.5),
            "score.ratio does not follow from the runs in the file: it is 0.5,",
        ),
        (lambda forged, task: forged.update(draw=4), "its seeds do not follow from draw 4"),
        (lambda forged, task: forged.update(suite_sha256="0"), "the tasks differ"),
        (lambda forged, task: task.update(config_sha256="0"), "its configuration differs"),
        (lambda forged, task: task.update(metric="jct_s.mean"), "another reference or metric"),
        (lambda forged, task: forged["policies"].update(cluster="fifo"), "its policy is not that of the entry"),
    ],
)
def test_a_file_that_contradicts_itself_or_the_suite_is_found_without_a_run(change, finding, file: Path) -> None:
    forged = read_entry(file)
    change(forged, forged["tasks"]["dags"])
    assert any(finding in sentence for sentence in check_file(forged))
    assert list(check_file(read_entry(file))) == []


def test_a_sample_is_spread_over_the_tasks(file: Path) -> None:
    content = read_entry(file)
    for seed in range(5):
        picked = picked_cells(content, 2, seed)
        assert {run.cell.config.kind for run in picked} == {"cluster", "ramp"}


def test_the_leaderboard_ranks_only_what_can_be_compared(file: Path, tmp_path: Path) -> None:
    content = read_entry(file)
    worse, other = deepcopy(content) | {"entry": "worse"}, deepcopy(content) | {"entry": "other"}
    for task in worse["tasks"].values():
        for line in task["runs"]:
            line["metrics"][task["metric"]] *= 1 if line["policy"] == task["reference"] else 2
    for task in other["tasks"].values():
        for line in task["runs"]:
            line["metrics"]["preemptions"] += line["policy"] != task["reference"]
    grids = leaderboards([worse, content, other])
    boards = [grid for grid in grids if grid.heads[0] == "entry"]
    assert sorted([row[0] for row in grid.rows] for grid in boards) == [["mine", "worse"], ["other"]]
    by_task = next(grid for grid in grids if grid.heads[0] == "task" and grid.title.endswith(boards[-1].title))
    assert [row[0] for row in by_task.rows] == ["dags", "ramp"]
    text = tmp_path / "board.md"
    shown = run("table", str(file), "--markdown", str(text))
    assert "exact estimates, without preemption, development seeds" in " ".join(shown.split())
    assert "| mine |" in text.read_text(encoding="utf-8")


@pytest.mark.family("web")
def test_the_leaderboard_is_written_as_a_page(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "board.html"
    run("table", str(file), "--page", str(page))
    assert "Leaderboard" in page.read_text(encoding="utf-8")


def test_without_the_writer_of_pages_a_leaderboard_is_only_printed(
    file: Path, tmp_path: Path, without_families: Callable[..., None]
) -> None:
    without_families("web")
    page = tmp_path / "board.html"
    assert "belongs to the family web, which this installation lacks" in run(
        "table", str(file), "--html", str(page), code=2
    )
    assert not page.exists()
    assert "mine" in run("table", str(file))


def test_damaged_files_and_unknown_names_are_errors(file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    for text, message in (
        ("[]", "not a benchmark entry"),
        ("{", "cannot be read as a benchmark entry"),
        (json.dumps(read_entry(file) | {"suite": "v9"}), "for suite 'v9'"),
        (json.dumps(read_entry(file) | {"tasks": {"dags": {}}}), "damaged"),
        (json.dumps(read_entry(file) | {"timing": {"dags": {}}}), "damaged"),
    ):
        broken.write_text(text, encoding="utf-8")
        assert message in " ".join(run("verify", str(broken), code=2).split())
        assert message in " ".join(run("table", str(broken), code=2).split())
    assert "did you mean 'dags'" in " ".join(run("run", "--policy", "sjf", "--task", "dag", code=2).split())
    assert "give --policy NAME" in run("run", code=2)


def test_the_leaderboard_takes_scores_from_the_runs_and_not_from_the_file(file: Path, tmp_path: Path) -> None:
    entry = read_entry(file)
    forged = entry | {"score": entry["score"] | {"ratio": 0.1, "low": 0.1, "high": 0.1}}
    (tmp_path / "forged.json").write_text(json.dumps(forged), encoding="utf-8")
    assert run("table", str(tmp_path / "forged.json")) == run("table", str(file))


OLDEST = """
import json, sys
for line in sys.stdin:
    q = json.loads(line)
    if q["ask"] == "decide":
        print(json.dumps({"decisions": [{"start": task["task"]} for task in q["ready"]]}), flush=True)
"""


@pytest.mark.family("programs")
def test_a_program_is_an_entry_that_can_be_verified_if_its_code_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OLDEST, encoding="utf-8")
    program = f"exec:{sys.executable} -SE {tmp_path / 'own.py'}"
    few = ("--task", "types", "--seeds", "1", "--quiet", "--out", str(tmp_path))
    run("run", "--policy", program, "--name", "mine", *few)
    run("run", "--policy", "fifo-fit", "--name", "ours", *few)
    content, ours = (read_entry(tmp_path / f"bench-{name}-exact-dev.json") for name in ("mine", "ours"))
    assert f"exec:{tmp_path / 'own.py'}" in content["code"]
    path = str(tmp_path / "bench-mine-exact-dev.json")
    digests = [
        [line["log_sha256"] for line in entry["tasks"]["types"]["runs"] if line["policy"] != "fifo-fit" or not own]
        for entry, own in ((content, True), (ours, False))
    ]
    assert len(digests[0]) == len(digests[1]) == 1
    assert "--allow-code" in run("verify", path, "--sample", "2", code=2)
    assert "equal" in run("verify", path, "--sample", "2", "--allow-code")
    (tmp_path / "own.py").write_text(OLDEST.replace("in q", "in list(q"), encoding="utf-8")
    assert any("own.py has another SHA-256" in difference for difference in check_file(content))


@pytest.mark.skipif(find_spec("batsim") is None, reason="pybatsim is not installed")
def test_a_scheduler_of_pybatsim_is_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tmp_path / "pai.yaml"
    short.write_text(suite(["pai"])[0].path.read_text(encoding="utf-8").replace("1000", "60"), encoding="utf-8")
    monkeypatch.setattr("dagsim.families.benchmark.suite.shipped", lambda kind: {"bench/v1/pai": short})
    for module in (checking, entries):
        monkeypatch.setattr(module, "suite_digest", lambda: "short")
    start = f"{sys.executable} -O -m batsim.cmds.launcher schedFiller -v critical -t 20000 "
    start += f"-o {shlex.quote(json.dumps({'export-prefix': str(tmp_path / 'out')}))} -s {{endpoint}}"
    algo = f"batsim[start='{start}']:tcp://127.0.0.1:*"
    few = ("--task", "pai", "--seeds", "1", "--quiet", "--out", str(tmp_path))
    run("run", "--policy", algo, "--name", "filler", *few)
    content = read_entry(tmp_path / "bench-filler-exact-dev.json")
    ours, theirs = (line["metrics"]["area_weighted_jct_s"] for line in content["tasks"]["pai"]["runs"])
    assert theirs == pytest.approx(ours, rel=1e-9), "jobs of one GPU: pybatsim's filler is fifo-fit, the reference"


def test_test_seeds_and_bounds_are_verified(tmp_path: Path) -> None:
    run(
        "run",
        "--policy",
        "sjf",
        "--task",
        "itp",
        "--seeds",
        "1",
        "--draw",
        "12345",
        "--bound",
        "-q",
        "--out",
        str(tmp_path),
    )
    path = tmp_path / "bench-sjf-exact-12345.json"
    content = read_entry(path)
    assert {line["seed"] for line in content["tasks"]["itp"]["runs"]} == set(suite(["itp"])[0].seeds(1, 12345))
    assert 0 < content["scores"]["itp"]["bound"] <= min(1.0, content["scores"]["itp"]["ratio"])
    assert "equal" in run("verify", str(path))
    content["bounds"]["itp"][0] /= 2
    path.write_text(json.dumps(content | scored(content)), encoding="utf-8")
    assert "the bound is" in run("verify", str(path), code=1)
    path.write_text(json.dumps(content | {"draw": 12346}), encoding="utf-8")
    assert "its seeds do not follow from draw 12346" in run("verify", str(path), code=1)

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.command_line import fine, invoke, json_of

from dagsim.config.schema import load_config
from dagsim.experiment.store import Store
from dagsim.model import Kind

ROOT = Path(__file__).parents[2]
SMALL = ["--set", "cluster.groups=[{name: t4, gpu: T4, gpus: 8}]", "--set", "workload.count=10"]
TRACE = ROOT / "workloads" / "samples" / "plain" / "jobs.csv"


def run_folder(root: Path) -> Store:
    (path,) = root.iterdir()
    return Store.open(path)


def test_eval_prints_a_table_and_leaves_a_run_folder(tmp_path: Path) -> None:
    result = fine("eval", "--policy", "sjf", *SMALL, "--seeds", 2, "--out", tmp_path, "--plots")
    folder = run_folder(tmp_path)
    assert "sjf: 20 of 20 jobs completed, heterogeneous, count 10, 2 seeds" in result.stdout
    assert "jct_s.mean" in result.stdout
    assert f"run folder: {folder.path}" in result.stdout
    assert (folder.state, folder.config.policy, folder.config.seeds) == ("done", "sjf", 2)
    assert {path.name for path in (folder.path / "plots").iterdir()} == {
        "gantt.png",
        "jct_cdf.png",
        "timeline.png",
    }


def test_jobs_that_were_not_done_are_shown(tmp_path: Path) -> None:
    narrow = ["--set", "cluster.groups=[{name: t4, gpu: T4, gpus: 4}]", "--seeds", 2, "--out", tmp_path, "--no-plots"]
    rejected = fine("eval", *narrow).stdout
    assert "rejected_too_large" in rejected
    assert "rejected_by_policy" not in rejected
    assert "not done" in fine("baseline", "-a", "sjf", *narrow).stdout


def test_json_is_one_object_on_standard_output(tmp_path: Path) -> None:
    result = fine("eval", *SMALL, "--seeds", 2, "--seed", 5, "--out", tmp_path, "--json", "--no-plots")
    answer = json.loads(result.stdout)
    assert (answer["state"], answer["run"]) == ("done", str(run_folder(tmp_path).path))
    assert answer["runs"][0]["seed"] == 5
    assert answer["summary"]["fifo"]["jobs_completed"] == 10
    assert result.stderr == ""


def test_compare_ranks_runs_on_the_same_jobs(tmp_path: Path) -> None:
    for algo in ("fifo", "sjf"):
        fine("eval", "-a", algo, *SMALL, "--seeds", 2, "--out", tmp_path / "runs", "-q", "--no-plots")
    runs = sorted((tmp_path / "runs").iterdir(), key=str)
    table, picture = tmp_path / "table.csv", tmp_path / "new" / "ratios.png"
    answer = json.loads(
        fine("compare", *runs, "--reference", "fifo", "--csv", table, "--plot", picture, "--json").stdout
    )
    assert {standing["policy"] for standing in answer["standings"]} == {"fifo", "sjf"}
    assert [standing["ratio"] for standing in answer["standings"] if standing["policy"] == "fifo"] == [1]
    assert json_of("compare", *runs)["reference"] == "fifo"  # the first
    assert table.read_text().startswith("policy,best,mean,mean_low,")
    assert picture.stat().st_size > 1000
    assert "ratio: relative to fifo (geometric mean" in " ".join(
        fine("compare", *runs, "--reference", "fifo").stdout.split()
    )
    assert "precision of sjf: 2 seeds; 18 more" in fine("compare", *runs, "--precision", "2%").stdout
    assert "\\begin{tabular}{lrrrrl}" in fine("compare", *runs, "--table", "latex").stdout
    unknown = invoke("compare", *runs, "--metric", "jct_s.meen")
    assert unknown.exit_code == 2
    assert "there is no metric 'jct_s.meen'; did you mean 'jct_s.mean'?" in unknown.stderr


def test_tune_keeps_the_best_as_a_configuration(tmp_path: Path) -> None:
    kept = tmp_path / "tuned.yaml"
    asked = ["tune", "-a", "eft-wait", "-p", "theta=0.5,0.9", *SMALL, "--seeds", 2, "--keep", kept]
    answer = json_of(*asked, "--out", tmp_path / "runs")
    names = {"eft-wait", "eft-wait[theta=0.5]", "eft-wait[theta=0.9]"}
    assert {standing["policy"] for standing in answer["standings"]} == names
    assert load_config(kept).policy == answer["best"]
    folder = run_folder(tmp_path / "runs")
    assert folder.manifest["seeds"] == [2_000_000, 2_000_001]
    assert (folder.path / "tuned.yaml").read_text() == kept.read_text()
    assert "eft-wait[theta=0.9]" in fine(*asked, "--out", tmp_path / "more").stdout


def test_a_comparison_is_kept_as_a_table_too(tmp_path: Path) -> None:
    result = fine("baseline", "-a", "sjf", *SMALL, "--seeds", 2, "--out", tmp_path, "--json", "--no-plots")
    assert [standing["policy"] for standing in json.loads(result.stdout)["standings"] if standing["best"]]
    rows = (run_folder(tmp_path).path / "comparison.csv").read_text().splitlines()
    assert len(rows) == 3


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    assert fine("eval", *SMALL, "--seeds", 1, "--out", tmp_path, "--quiet", "--no-plots").output == ""


def test_a_run_repeats_from_its_own_folder_to_the_same_bytes(tmp_path: Path) -> None:
    fine("eval", "-a", "eft-wait", *SMALL, "--seeds", 2, "--seed", 3, "--out", tmp_path / "one", "--no-plots")
    one = run_folder(tmp_path / "one").path
    fine("eval", "--config", one, "--out", tmp_path / "two", "--no-plots")
    two = run_folder(tmp_path / "two").path
    for name in ("config.yaml", "jobs.csv.gz", "tasks.csv.gz", "runs.jsonl", "summary.json", "schedules/001.npy"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def test_baseline_ranks_policies_on_the_same_seeds(tmp_path: Path) -> None:
    result = fine("baseline", *SMALL, "--seeds", 3, "-a", "sjf", "-a", "random", "--out", tmp_path, "--plots")
    folder = run_folder(tmp_path)
    assert "3 policies, heterogeneous, count 10, 3 seeds" in result.stdout
    assert [line.policy for line in folder.lines()] == ["fifo", "sjf", "random"] * 3
    assert [path.name for path in (folder.path / "plots").iterdir()] == ["comparison.png"]


def test_policies_have_the_names_that_the_user_gives_them(tmp_path: Path) -> None:
    options = ("baseline", *SMALL, "--seeds", 2, "--out", tmp_path, "--no-plots")
    shown = fine(*options, "-a", "Mine=eft-wait[theta=0.9]", "-a", "Random=random", "--reference", "Mine").stdout
    assert "ratio: relative to Mine" in shown
    assert "theta" not in shown
    (run,) = tmp_path.iterdir()
    store = Store.open(run)
    assert {line.policy for line in store.lines()} == {"Mine", "Random"}
    assert store.spec_of("Mine") == "eft-wait[theta=0.9]"
    runs = run / "runs.jsonl"
    before = runs.read_bytes()
    runs.write_bytes(before[: before.index(b"\n") + 1])  # stopped after the first run
    fine("baseline", "--resume", run, "--no-plots")
    assert runs.read_bytes() == before
    assert "Mine, seed" in fine("why", run, "#0").stdout
    twice = invoke(*options, "-a", "Mine=sjf", "-a", "Mine=fifo")
    assert twice.exit_code == 2
    assert "two policies have the name 'Mine'" in twice.output


def test_baseline_runs_every_policy_there_is(tmp_path: Path) -> None:
    fine("baseline", *SMALL, "--seeds", 1, "--out", tmp_path, "--no-plots")
    names = {row["policy"] for row in json_of("list", "policies")}
    assert {line.policy for line in run_folder(tmp_path).lines()} == names


def test_replay_reads_a_trace_and_says_what_it_read(tmp_path: Path) -> None:
    result = fine("replay", "--trace", TRACE, "--policy", "sjf", "--out", tmp_path, "--no-plots")
    folder = run_folder(tmp_path)
    assert "trace (plain): read" in result.stdout
    assert folder.manifest["trace"]["path"] == str(TRACE)
    assert folder.lines()[0].workload["trace"]["kept"] > 0


def test_replay_scales_to_a_load_and_takes_a_window(tmp_path: Path) -> None:
    fine("replay", "-t", TRACE, "--load", 0.5, "--max-jobs", 3, "--out", tmp_path, "--no-plots")
    workload = run_folder(tmp_path).lines()[0].workload
    assert workload["jobs"] == 3
    assert max(workload["gpu_load"], workload["cpu_load"]) == pytest.approx(0.5)


def test_replay_makes_a_cluster_for_a_trace_without_machines(tmp_path: Path) -> None:
    result = fine("replay", "-t", TRACE, "--out", tmp_path / "one", "--no-plots")
    assert "cluster: sized (" in result.stdout
    assert "assumption about run times: duration_s" in result.stdout
    folder = run_folder(tmp_path / "one")
    assert folder.lines()[0].workload["trace"]["options"]["time_scale"] == 1.0
    fine("eval", "--config", folder.path, "--out", tmp_path / "two", "--no-plots")
    assert run_folder(tmp_path / "two").schedule(0).log == folder.schedule(0).log


def test_replay_keeps_the_cluster_of_its_configuration(tmp_path: Path) -> None:
    fine("replay", "-t", TRACE, "--config", "homogeneous", "--out", tmp_path / "one", "--no-plots")
    assert run_folder(tmp_path / "one").config.build_cluster().gpus_by_type() == {"V100-16": 64}
    cluster = "cluster.groups=[{name: t4, gpu: T4, gpus: 40}]"
    fine("replay", "-t", TRACE, "--set", cluster, "--out", tmp_path / "two", "--no-plots")
    assert run_folder(tmp_path / "two").config.build_cluster().gpus_by_type() == {"T4": 40}


@pytest.mark.family("formats")
def test_replay_takes_the_machines_of_the_trace(tmp_path: Path) -> None:
    fine("replay", "-t", TRACE.parents[1] / "google2011", "--out", tmp_path / "one", "--no-plots")
    folder = run_folder(tmp_path / "one")
    assert [node.name for node in folder.config.build_cluster().nodes] == ["501", "502", "503", "504"]
    kinds = [row[0] for row in folder.schedule(0).log.since(0)]
    assert kinds.count(Kind.DOWN) == 2  # 504 is not there yet, 502 is away; 501 leaves when all is over
    fine("eval", "--config", folder.path, "--out", tmp_path / "two", "--no-plots")
    assert run_folder(tmp_path / "two").schedule(0).log == folder.schedule(0).log


def test_replay_lists_every_dropped_row(tmp_path: Path) -> None:
    report = tmp_path / "report" / "dropped.txt"
    result = fine("replay", "-t", TRACE, "--report", report, "--out", tmp_path / "out", "--no-plots")
    counted, *rows = report.read_text().splitlines()
    assert counted.startswith("# read ")
    dropped = [row for row in rows if ": dropped, " in row]  # rows that contradict others are listed as well
    assert len(dropped) == sum(run_folder(tmp_path / "out").lines()[0].workload["trace"]["dropped"].values())
    assert all(row.startswith(f"{TRACE}:") for row in rows)
    assert f"{len(rows)} rows listed in" in result.stdout


def test_replay_takes_the_cluster_of_another_configuration(tmp_path: Path) -> None:
    fine("replay", "-t", TRACE, "--cluster", "homogeneous", "--out", tmp_path, "--no-plots")
    assert run_folder(tmp_path).config.build_cluster().gpus_by_type() == {"V100-16": 64}


def test_a_users_own_policy_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_policy.py").write_text(
        "from dagsim.model import Start\n"
        "class Newest:\n"
        "    def decide(self, view):\n"
        "        for task in reversed(list(view.ready)):\n"
        "            placement = view.fit(task)\n"
        "            if placement is not None:\n"
        "                yield Start(task, placement)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    fine("eval", "--policy", "own_policy:Newest", *SMALL, "--seeds", 1, "--out", tmp_path / "out", "--no-plots")
    assert run_folder(tmp_path / "out").path.name.split("-")[2:5] == ["own", "policy", "Newest"]


def test_a_saved_workload_runs_as_the_original(tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl.gz"
    fine("workload", "save", "heterogeneous", file, *SMALL)
    for name, more in (("one", []), ("two", ["--workload", file])):
        settings = SMALL[:2] if more else SMALL
        fine("eval", *settings, *more, "--seeds", 1, "--out", tmp_path / name, "--no-plots")
    one, two = (run_folder(tmp_path / name).schedule(0) for name in ("one", "two"))
    assert one.log == two.log


def test_plot_draws_any_run_of_a_folder(tmp_path: Path) -> None:
    fine("eval", *SMALL, "--seeds", 2, "--out", tmp_path / "runs", "--no-plots")
    path = run_folder(tmp_path / "runs").path
    drawn = fine("plot", path, "--run", 1, "--out", tmp_path / "plots").stdout.split()
    assert drawn
    assert all(Path(name).stat().st_size > 1000 for name in drawn)
    refused = invoke("plot", path, "--run", 2)
    assert refused.exit_code == 2
    assert "there is no run 2; finished runs: 2" in refused.stderr


@pytest.mark.parametrize("what", ["policies", "placements", "gpus", "workloads", "configs", "readers"])
def test_every_list_has_rows(what: str) -> None:
    assert json_of("list", what)
    assert fine("list", what).stdout.count("\n") > 4


def test_workload_info_says_what_jobs_are_like() -> None:
    answer = json_of("workload", "info", "heterogeneous-dag")
    assert (answer["jobs"], answer["warning"]) == (100, None)
    assert answer["gpu_load"] == pytest.approx(0.9)
    shown = fine("workload", "info", TRACE).stdout
    assert "offered load" in shown
    assert "trace (plain)" in shown


def test_trace_info_describes_and_draws_a_trace(tmp_path: Path) -> None:
    shown = fine("trace", "info", TRACE, "--out", tmp_path).stdout
    assert "tasks_per_job" in shown
    assert "it lists no machines" in shown
    assert (tmp_path / "trace-jobs.png").is_file()
    answer = json.loads(fine("trace", "info", TRACE, "--json", "--no-plot").stdout)
    assert answer["jobs"] == answer["read"]["jobs"] > 0
    assert answer["plot"] is None


def test_the_configuration_shown_is_the_configuration_used(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(fine("config", "show", "--set", "seed=4").stdout)
    assert load_config(path) == load_config(None, ["seed=4"])


def test_shipped_configurations_hold() -> None:
    assert load_config(ROOT / "configs" / "default.yaml") == load_config()
    assert load_config(ROOT / "configs" / "large.yaml").build_cluster().gpus == 6000
    for path in (ROOT / "configs").rglob("*.yaml"):
        schema = path.read_text().splitlines()[0].removeprefix("# yaml-language-server: $schema=")
        assert (path.parent / schema).is_file(), path


@pytest.mark.whole
def test_every_shipped_configuration_is_listed_and_fine() -> None:
    names = [row["config"] for row in json_of("list", "configs")]
    assert {"default", "homogeneous", "large"} <= set(names)
    assert fine("config", "check", *names).stdout.count(": fine") == len(names)


@pytest.mark.whole
def test_the_shipped_schema_is_the_present_one() -> None:
    shipped = (ROOT / "configs" / "dagsim.schema.json").read_text()
    assert shipped == fine("config", "schema").stdout, "run: dagsim config schema > configs/dagsim.schema.json"


def test_the_schema_has_a_line_for_each_key_so_that_two_changes_can_be_merged() -> None:
    lines = fine("config", "schema").stdout.splitlines()
    assert [line for line in lines if line in ("{", '  "properties": {', "}")] == ["{", '  "properties": {', "}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "--policy", "sfj"], "error: unknown policy 'sfj'; did you mean 'sjf'? (dagsim list policies)"),
        (["eval", "--policy", "sjf[x=1]"], "error: policy 'sjf' has no parameter 'x'"),
        (["eval", "--policy", "no_module:X"], "error: policy 'no_module:X': there is no module 'no_module'"),
        (["eval", "--set", "sed=1"], "error: --set sed: there is no such key; did you mean 'seed'?"),
        (
            ["eval", "--workload", "stedy"],
            "error: --workload: no workload 'stedy'; did you mean 'steady'",
        ),
        (["eval", "--config", "defalt"], "error: defalt: no such file or configuration; did you mean 'default'?"),
        (
            ["eval", "--out", __file__],
            "error: " + __file__ + ": cannot be written, because a file has the name of a folder",
        ),
        (["eval", "--seeds", "0"], "error: --seeds: must be 1 or more, got 0"),
        (["replay", "--trace", str(TRACE), "--reference", "sjff"], "error: --reference: unknown policy 'sjff'"),
        (["replay", "--trace", "none.csv"], "error: none.csv: no such file"),
        (
            ["replay", "--trace", str(TRACE), "--max-jobs", "0"],
            "error: --max-jobs: must be 1 or more, got 0",
        ),
        (
            ["replay", "--trace", str(TRACE), "--format", "plan"],
            "error: unknown trace format 'plan'; did you mean 'plain'?",
        ),
        (["replay", "--trace", str(TRACE), "--cluster", "trace"], "jobs.csv: the trace lists no machines; describe"),
        (["eval", "--set", "cluster.from_trace=true"], "error: the workload is not a trace"),
        (["plot", "none"], "error: none: no such run folder"),
        (["config", "check", "none.yaml"], "error: none.yaml: no such file or configuration"),
        (["workload", "info", "none"], "error: NAME: no workload 'none'"),
        (
            ["train", "--algo", "pppo"],
            "error: --algo: unknown algorithm 'pppo'; did you mean 'ppo'?",
        ),
        (["list", "polices"], "there is no list 'polices'; did you mean"),
    ],
)
def test_wrong_input_ends_with_2_and_says_what_is_wrong(arguments: list[str], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_a_policy_that_errs_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "idle_policy.py").write_text("class Idle:\n    def decide(self, view):\n        return ()\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = invoke("eval", "--policy", "idle_policy:Idle", *SMALL, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    folder = run_folder(tmp_path / "out")
    assert folder.state == "failed"
    assert "Stalled" in json.loads((folder.path / "status.json").read_text())["error"]


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    command = ["eval", *SMALL, "--seeds", "100000", "--out", str(tmp_path), "--no-plots"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from dagsim.cli import main; main()", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: len(list(tmp_path.glob("*/runs.jsonl"))) == 1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    folder = run_folder(tmp_path)
    assert process.returncode == 130
    assert folder.state == "interrupted"
    assert len(folder.lines()) >= 1
    assert f"interrupted: {len(folder.lines())} finished runs are kept" in stderr


def wait_for(claim: Any) -> None:
    for _ in range(600):
        if claim():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


@pytest.mark.family("decima", "pac_ml")
def test_agents_that_come_with_dagsim_run_by_name(tmp_path: Path) -> None:
    small = ("--seeds", "1", "--json", "--out", str(tmp_path))
    of_ramp = ("--system", "ramp", "--set", "system.jobs=2")
    for algo, sizes in (
        ("ppo", ("--set", "workload.count=5")),
        ("decima", ("--set", "system.jobs=3")),
        ("ppo", of_ramp),
    ):
        result = json.loads(fine("eval", "--policy", algo, *sizes, *small).stdout)
        assert [run["policy"] for run in result["runs"]] == [algo]
        assert f"-eval-{algo}-s0-" in result["run"]


def test_one_trace_has_no_interval_and_says_why(tmp_path: Path) -> None:
    shown = fine("replay", "-t", TRACE, "--policy", "sjf", "--seeds", 3, "--out", tmp_path / "a", "--no-plots").stdout
    assert "one run, because seeds have no effect here" in shown
    assert "One log is only one sample, so there are no intervals." in shown
    table = fine("replay", "-t", TRACE, "-a", "sjf", "--reference", "fifo", "--out", tmp_path / "b", "--no-plots")
    assert "so there are no intervals and no verdicts" in " ".join(table.stdout.split())
    refused = invoke("replay", "-t", TRACE, "-a", "sjf", "--blocks", 5, "--out", tmp_path / "c", "--no-plots")
    assert "needs at least 10,000 jobs" in refused.output


def test_a_trace_is_run_once_unless_seeds_or_windows_are_asked_for(tmp_path: Path) -> None:
    fine("eval", "-w", TRACE, "--out", tmp_path / "once", "--no-plots")
    assert len(run_folder(tmp_path / "once").lines()) == 1
    windows = ("--windows", "2x2")
    shown = fine("baseline", "-w", TRACE, "-a", "sjf", *windows, "--out", tmp_path / "two", "--no-plots").stdout
    assert "jobs.csv, windows of 2 jobs, 2 windows" in " ".join(shown.split())
    assert {line.seed for line in run_folder(tmp_path / "two").lines()} == {4_000_000, 4_000_001}
    refused = invoke("eval", "-w", TRACE, "--windows", "100x2", "--out", tmp_path / "no", "--no-plots")
    assert "would overlap" in refused.output
    for text in ("0", "2x", "two"):
        assert "30x1000" in invoke("eval", "-w", TRACE, "--windows", text).output


@pytest.mark.parametrize(
    ("shell", "code", "message"),
    [
        ("dagsim list policies >&-", 0, ""),
        ("dagsim list policies >&- 2>&- <&-", 0, ""),
        ("dagsim list policies > /dev/full", 1, "error: standard output: No space left on device\n"),
        ("dagsim list policies 2> /dev/full", 0, ""),
        ("PYTHONIOENCODING=ascii dagsim list gpus", 0, ""),
        ("mkdir gone; cd gone; rmdir ../gone; dagsim list gpus", 2, "error: the working folder no longer exists"),
        ("dagsim eval --out $(printf '\\377')", 2, "error: '\\udcff': cannot be read as utf-8"),
        ("(dagsim list policies; echo $? >&2) | :", 0, "141\n"),
        (f"(dagsim trace convert {TRACE} t.csv --to-format plain; echo $? >&2) | :", 0, "141\n"),
        (f"dagsim trace convert {TRACE} t.csv --to-format plain > /dev/full", 1, "error: standard output: No space"),
    ],
)
def test_a_command_ends_well_whatever_its_surroundings(shell: str, code: int, message: str, tmp_path: Path) -> None:
    shell = shell.replace("dagsim ", f"{shlex.quote(sys.executable)} -m dagsim ")
    ended = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert ended.stderr.startswith(message)
    assert "Traceback" not in ended.stderr


def test_a_replay_in_which_no_job_can_run_ends_with_an_error_below_its_result(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("cluster: {groups: [{name: a, gpu: T4, gpus: 8, count: 2}]}\n")
    options = ["--cluster", tmp_path / "cluster.yaml", "--policy", "fifo", "--no-plots", "--out", tmp_path]
    for jobs, code in (("a,0,900,10", 2), ("a,0,900,10\nb,1,1,10", 0)):
        (tmp_path / "jobs.csv").write_text(f"id,arrival_s,gpus,duration_s\n{jobs}\n")
        result = invoke("replay", "--trace", tmp_path / "jobs.csv", *options)
        assert (result.exit_code, "no job could run" in result.stderr) == (code, code == 2)
        assert "rejected_too_large" in result.stdout


def test_rows_with_values_that_cannot_be_read_are_named_above_the_result(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("id,arrival_s,gpus,duration_s\na,0,1,10\nb,1,many,10\n")
    shown = fine("replay", "--trace", tmp_path / "jobs.csv", "--policy", "fifo", "--no-plots", "--out", tmp_path)
    first, *_ = shown.stdout.splitlines()
    assert first.startswith("warning: 1 of 2 rows (50%) was left out because a value cannot be read")
    assert "jobs.csv:3" in first


def test_seeds_are_added_until_the_interval_is_as_narrow_as_requested(tmp_path: Path) -> None:
    result = fine("eval", "--policy", "fifo", "--seeds", "2", "--precision", "30%", "--json", "--out", tmp_path)
    facts = json.loads(result.stdout)["precision"]["fifo"]
    assert facts["half_width"] <= 0.3
    assert len(run_folder(tmp_path).lines()) == facts["n"] > 2


def test_a_log_without_starts_is_not_replayed_as_recorded_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("id,arrival_s,gpus,duration_s\na,0,1,10\nb,1,1,10\n")
    shown = fine("replay", "--trace", tmp_path / "jobs.csv", "--policy", "recorded", "--no-plots", "--out", tmp_path)
    warning = "warning: recorded: the log has no start time for 2 jobs"
    assert warning in shown.stdout.replace("\n", " ").split("2 of 2 jobs completed")[0]


def test_a_check_of_a_configuration_finds_gpus_without_measured_throughputs(tmp_path: Path) -> None:
    lab = tmp_path / "lab.yaml"
    lab.write_text("cluster: {groups: [{name: h, gpu: H100, gpus: 8, count: 2}]}\nworkload: {preset: heterogeneous}\n")
    result = invoke("config", "check", lab)
    assert result.exit_code == 2
    assert "set runtime.missing=flops" in result.output.replace("\n", " ")
    lab.write_text(lab.read_text() + "runtime: {kind: throughput, missing: flops}\n")
    assert "fine" in fine("config", "check", lab).stdout

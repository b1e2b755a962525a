"""The command line as a whole: groups of commands, names of options, and faults in one voice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command_line import commands, invoke

from dagsim.cli.app import ALIASES, GROUPS, SPELLINGS

COMMANDS = dict(commands())


def options(command: Any) -> dict[str, Any]:
    return {name: param for param in command.params for name in (*param.opts, *getattr(param, "secondary_opts", ()))}


def said(*args: str, code: int = 2, width: int = 200) -> str:
    ended = invoke(*args, columns=width)
    assert ended.exit_code == code, ended.output
    return ended.output


def test_every_command_is_in_one_group_of_the_help() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted({path.partition(" ")[0] for path in COMMANDS})
    text = said("--help", code=0)
    places = [text.index(title) for title in GROUPS]
    assert places == sorted(places)


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_shows_no_type_of_a_switch(path: str) -> None:
    text = said(*path.split(), "--help", code=0)
    assert "<bool>" not in text
    assert "<bool>" not in said(*path.split()[:-1], "--help", code=0)
    assert "<int range>" not in text


def test_a_scheduler_is_a_policy_wherever_it_is_named() -> None:
    assert {path for path, command in COMMANDS.items() if "--algo" in options(command)} == {"train"}
    assert "-a" in options(COMMANDS["eval"])
    assert all(("-a" in options(command)) == ("--policy" in options(command)) for command in COMMANDS.values())


def test_no_command_has_an_old_spelling_beside_the_new_one() -> None:
    for path, command in COMMANDS.items():
        for old, news in SPELLINGS.items():
            if old not in ("--from", "--until", "--format", "--report", "--show", "--plot"):  # these are others' names
                assert not (old in options(command) and set(news) & options(command).keys()), (path, old)


@pytest.mark.parametrize("old", ["--algo", "--policy", "-a"])
def test_old_spellings_are_accepted(old: str, tmp_path: Path) -> None:
    said("eval", old, "sjf", "--seeds", "1", "--workers", "1", "-q", "--out", str(tmp_path), code=0)
    said("eval", f"{old}=sjf" if len(old) > 2 else f"{old}sjf", "--seeds", "1", "-q", "-o", str(tmp_path), code=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("eta", "--backtest", "--trace", "a.csv"),
            "follows it (if it is the value, write --backtest=--trace)",
        ),
        (("eval", "--policy", "--seeds", "2"), "--policy needs a value, but --seeds follows it"),
        (("replay", "--trace", "--policy=sjf"), "--trace needs a value, but --policy=sjf follows it"),
    ],
)
def test_an_option_does_not_take_the_next_option_for_its_value(arguments: tuple[str, ...], message: str) -> None:
    assert message in " ".join(said(*arguments).split())


def test_a_value_may_begin_with_a_dash_if_it_is_no_option() -> None:
    assert "-2" in said("eval", "--seeds", "-2")
    assert "write --set=--odd=3" in said("eval", "--set", "--odd=3")
    assert "needs a value" not in said("eval", "--set=--odd=3")


def test_processes_and_an_executor_exclude_each_other() -> None:
    for option in ("--executor", "--on"):
        assert "leave out --executor" in said("eval", "--workers", "2", option, "ray")
    assert "must be a number of processes, 1 or more, got '0'" in said("eval", "--workers", "0")


@pytest.mark.parametrize(("other", "name"), ALIASES.items())
def test_a_command_has_its_plain_name_too(other: str, name: str) -> None:
    assert f"Alias: dagsim {other}" in said(other, "--help", code=0)
    assert f"Alias: dagsim {other}" in said(name, "--help", code=0)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("evl",), "error: dagsim: there is no command 'evl'; did you mean 'eval'? (dagsim --help)"),
        (("config", "chek"), "error: dagsim config: there is no command 'chek'; did you mean 'check'?"),
        (("eval", "--sedes", "3"), "error: dagsim eval has no option --sedes; did you mean '--seeds'?"),
        (("eval", "sjf"), "error: dagsim eval takes no argument 'sjf'; to choose a scheduler, use --policy sjf"),
        (("eval", "--seeds", "0"), "error: --seeds: must be 1 or more, got 0"),
        (("eval", "--seeds", "three"), "error: --seeds: must be a whole number, got 'three'"),
        (("eval", "--set", "seed=-1"), "error: --set seed: must be 0 or more, got -1"),
        (("eval", "--policy", "SJF"), "error: unknown policy 'SJF'; did you mean 'sjf'?"),
        (("eval", "--policy", "eft-wait[theta=-3]"), "error: eft-wait: theta must be 0 or more, got -3"),
        (("eval", "--policy"), "--policy needs a value"),
        (
            ("eval", "--policy", "sjf", "-afifo"),
            "error: --policy: eval runs a single scheduler, got sjf and fifo; to compare them: dagsim baseline "
            "--policy sjf --policy fifo",
        ),
        (
            ("replay", "--policy", "fifo,easy[delay=0]"),
            "error: --policy: replay runs a single scheduler, got fifo and easy[delay=0]; to compare them: dagsim "
            "whatif --policy fifo,easy[delay=0]",
        ),
        (("eval", "--precision", "200%"), "error: --precision: must be above 0% and below 100%, got 200%"),
        (("eval", "--set", "workload.count=-5"), "error: --set workload.count: must be at least 1, got -5"),
        (("replay", "--trace", "x.csv", "--load", "0"), "error: --load: must be positive, got 0"),
        (("replay", "--trace", "x.csv", "--max-jobs", "0"), "error: --max-jobs: must be 1 or more, got 0"),
        (
            ("replay", "--trace", "x.csv", "--map", "duration_s"),
            "error: --map: must be pairs like arrival_s=submitted_at, separated by commas, got 'duration_s'",
        ),
        (
            ("replay", "--trace", "x.csv", "--read", "tz=UTC"),
            "error: --read: there is no key 'tz'; did you mean 'timezone'?",
        ),
        (("replay",), "error: dagsim replay: give --trace FILE, or --resume RUN to continue a run"),
        (("workload", "info", "like-phily"), "error: NAME: no workload 'like-phily'; did you mean 'like-philly'?"),
        (("sweep",), "needs YAML|FOLDER (the sweep file, or the folder of an earlier sweep); example: "),
        (("eval", "--policy", "zzz"), "unknown policy 'zzz'; none of the "),
        (("tune", "--policy", "zzz"), "unknown policy 'zzz'; none of the "),
        (("bench", "--policy", "sjf"), "dagsim bench has no option --policy; it is an option of dagsim bench run"),
        (("eval", "--gpus", "8"), "--gpus; change the configuration, as in --set cluster.groups.0.count=4"),
        (("eval", "--name", "../../x"), "error: --name '../../x': expected a line of text of at most"),
        (("report", ".", "-o", "x.pdf"), "error: --out: x.pdf: the name of a page must end in .html"),
        (("eta", "--html", "x.txt"), "error: --html: x.txt: the name of a page must end in .html"),
        (("plot", ".", "--file-type", "bmp"), "error: --file-type: expected one of png, pdf, svg, got 'bmp'"),
        (("list", "policies", "sjf"), "error: dagsim list takes only WHAT, but also got 'sjf'\n"),
        (("eval", "--set", "train.lr=1"), "no such key here; did you mean train.algorithm.lr or train.warm_start.lr?"),
        (("serve", ".", "--every", "5"), "error: --every: can only be used with --watch"),
        (("list", "polices"), "error: there is no list 'polices'; did you mean 'policies'?"),
        (("list", "Policies"), "error: there is no list 'Policies'; did you mean 'policies'?"),
        (("compare", "."), "not a run folder, because it has no manifest.json"),
        (("tune", "--policy", "eft-wait", "--metric", "wait"), "no metric 'wait'; did you mean 'wait_s.mean'?"),
    ],
)  # fmt: skip
def test_a_fault_is_one_plain_sentence(args: tuple[str, ...], sentence: str) -> None:
    text = said(*args)
    assert sentence in text
    assert "╭" not in text


def test_a_file_with_a_mistake_in_its_name_or_of_another_kind_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(LOG.format(gpus=1), encoding="utf-8")
    Path("grid.yaml").write_text("base: first.yaml\nover: {policy: [fifo, sjf]}\n", encoding="utf-8")
    Path("first.yaml").write_text("seed: 3\n", encoding="utf-8")
    Path("rest.yaml").write_text("base: first.yaml\n", encoding="utf-8")
    Path("empty.yaml").touch()
    assert "--reference: there is no 'lifo' in the comparison" in said("sweep", "grid.yaml", "--reference", "lifo")
    Path("gpus.yaml").write_text("cluster: {groups: [{name: n, gpu: A100, gpus: 8}]}", encoding="utf-8")
    Path("tab.yaml").write_text("workload:\n\tcount: 3\n", encoding="utf-8")
    assert "--workload: jobs.cvs: no such file; did you mean 'jobs.csv'?" in said("eval", "--workload", "jobs.cvs")
    sweep = said("eval", "--config", "grid.yaml")
    assert "grid.yaml: this is a sweep (it has base and over); run it with: dagsim sweep grid.yaml" in sweep
    assert "run it with: dagsim eval --config first.yaml" in said("sweep", "first.yaml")
    assert "rest.yaml: over is missing" in said("sweep", "rest.yaml")
    assert "did you mean 'sacct'" in said("replay", "--trace", "jobs.csv", "--format", "slurm")
    Path("shadow").write_text("root:*:1:\nbin:*:1:\n", encoding="utf-8")
    for file in ("shadow", "jobs.csv"):
        assert f"error: {file}: not a configuration: it has none of the expected keys" in said("eval", "--config", file)
    assert "this is a configuration, not a log of jobs" in said("replay", "--trace", "first.yaml")
    assert "empty.yaml: fine (empty: every value is the default)" in said("config", "check", "empty.yaml", code=0)
    assert "gpus.yaml: fine (A100 means A100-40)" in said("config", "check", "gpus.yaml", code=0)
    assert "tab.yaml:2:1: invalid YAML: YAML cannot be indented with tabs" in said("config", "check", "tab.yaml")


def test_a_quote_that_is_not_closed_and_an_endless_job_are_named(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text('id,arrival_s,gpus,duration_s\n"a,0,1,100\nb,5,1,60\n', encoding="utf-8")
    assert "dropped 1 with a quote that is not closed" in said("replay", "--trace", str(log), "--out", str(tmp_path))
    log.write_text(LOG.format(gpus=1) + "d,30,1,1e308\n", encoding="utf-8")
    text = said("replay", "--trace", str(log), "--out", str(tmp_path), "--no-plots", code=0)
    assert "has impossible times: that take more than 100 years (1 row" in text
    assert "3 of 3 jobs completed" in text


def test_an_option_whose_value_is_replaced_causes_a_warning(tmp_path: Path) -> None:
    text = said("eval", "--seeds", "2", "--seeds=1", "--plots", "--no-plots", "-o", str(tmp_path), code=0)
    assert "warning: --seeds is given several times: 1 replaces 2" in text
    assert "warning: --plots and --no-plots: only the last one counts" in text


@pytest.mark.family("capacity")
def test_a_price_without_a_number_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG.format(gpus=1), encoding="utf-8")
    text = said("whatif", "--trace", str(log), "--cluster", "sized", "--policy", "fifo,easy", "--price", "H200")
    assert "error: --price: 'H200': expected TYPE=PRICE (H200=3.5), a file, or none" in text


@pytest.mark.family("capacity")
def test_plan_suggests_a_gpu_type_and_runs_one_scheduler(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    rows = "".join(f"j{place},{600 * place},1,300\n" for place in range(60))
    log.write_text(f"id,arrival_s,gpus,duration_s\n{rows}", encoding="utf-8")
    plan = ("plan", "--trace", str(log), "--cluster", "sized", "--target", "wait_s.mean<9")
    assert "error: --types: unknown GPU type 'A300'; did you mean 'A30'?" in said(*plan, "--types", "A300")
    assert "--policy: plan runs a single scheduler, got fifo and easy" in said(*plan, "--policy", "fifo,easy")


def test_the_sample_is_not_written_among_other_files(tmp_path: Path) -> None:
    said("trace", "sample", "-q", "--out", str(tmp_path), code=0)
    said("trace", "sample", "-q", "--out", str(tmp_path), code=0)
    (tmp_path / "mine.txt").touch()
    assert "already contains other files, such as mine.txt" in said("trace", "sample", "--out", str(tmp_path))


@pytest.mark.parametrize("text", ["2%", "2", "0.02"])
def test_a_precision_is_a_percentage_or_a_fraction(text: str) -> None:
    from dagsim.cli.options import fraction

    assert fraction(text) == 0.02


def test_lists_are_lines_in_a_pipe_and_never_cut_a_name(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from dagsim.metrics import glossary
    from dagsim.report.listings import listing
    from dagsim.report.terminal import show

    monkeypatch.delenv("COLUMNS", raising=False)
    for width in (None, "40", "160"):
        if width is not None:
            monkeypatch.setenv("COLUMNS", width)
        show(*listing("metrics"), as_json=False)
        text = capsys.readouterr().out
        lines = text.splitlines()
        assert all(any(line.split()[:1] == [term.name] for line in lines) for term in glossary())
        if width is None:
            assert len(lines) == 1 + len(listing("metrics").rows)
        elif width == "160":
            assert max(map(len, lines)) > 100


LOG = "id,arrival_s,gpus,duration_s\nwide,0,{gpus},3600\nb,10,1,100\nc,20,1,100\n"


@pytest.mark.family("capacity")
@pytest.mark.parametrize("command", [("whatif", "--add", "8xT4"), ("plan", "--target", "wait_s.mean<9")])
def test_a_question_about_a_cluster_needs_one(command: tuple[str, ...], tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG.format(gpus=1), encoding="utf-8")
    assert "the cluster is unknown" in said(*command, "--trace", str(log), "--out", str(tmp_path))


def test_a_job_that_no_node_could_hold_invents_no_cluster(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG.format(gpus=900), encoding="utf-8")
    text = said("replay", "--trace", str(log), "--out", str(tmp_path))
    assert "a job requests 900 GPUs on one node" in text


def test_a_job_that_decides_the_size_of_an_invented_cluster_is_named_first(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG.format(gpus=96), encoding="utf-8")
    text = said("replay", "--trace", str(log), "--out", str(tmp_path), "--no-plots", code=0)
    assert "warning: the cluster is invented, and one job decides its size: 'wide' requests 96 GPUs" in text
    assert text.index("warning: the cluster") < text.index("jct_s.mean")


@pytest.mark.parametrize(
    "policy",
    ["tetris[srpt=-1]", "qssf[memory=1.5]", "allox[window=0]", "slurm-multifactor[age=-1]", "gavel-events[window=0]"],
)
def test_a_parameter_out_of_its_range_is_refused(policy: str) -> None:
    assert "must be" in said("eval", "--policy", policy, "--seeds", "1")


@pytest.mark.family("capacity")
def test_errors_name_the_program_under_python_m_too() -> None:
    ended = subprocess.run([sys.executable, "-m", "dagsim", "whatif", "--no-such"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "dagsim whatif has no option --no-such (dagsim whatif --help)" in ended.stderr


def test_an_option_of_other_commands_is_named_although_only_one_command_is_built(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dagsim", "eval", "--trace", "x.csv"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, "it is an option of dagsim replay" in done.stderr) == (2, True), done.stderr

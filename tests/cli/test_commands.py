"""The command line as a whole: examples that run, a limit of options, and the successors of removed ones."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.command_line import commands, fine, invoke

from dagsim.cli.app import ORDER
from dagsim.cli.options import READ_KEYS

ROOT = Path(__file__).parents[2]

SMALL = "--set workload.count=8"
TINY = (
    f"{SMALL} --set train.algorithm.sequences=2 --set train.algorithm.replicas=2 --set train.validation_seeds=2 "
    "--set train.report_seeds=2 --set train.net.hidden=8 --set train.linear_iterations=0 --iterations 1 "
    "--set train.reference=sjf --set train.rivals=[fifo]"
)
SHORTER = {
    "eval": f"{SMALL} --set workload.measure=null --seeds 2 --no-plots",
    "baseline": f"{SMALL} --seeds 2 --no-plots --policy sjf --policy ljf",
    "train": TINY,
    "tune": f"{SMALL} --seeds 2",
    "replay": "--no-plots",
    "whatif": "--executor local",
    "plan": "--max-gpus 2000 --executor local",
    "eta": "--samples 3",
    "record": "--frames 2 --width 160",
    "sweep": "--executor local",
}
"""Options that make the run of an example short."""
PARSED = {"trace fetch", "serve", "warm"}
"""Examples that download, serve for ever, or compile for minutes: their options are parsed, and nothing is run."""


READING = {
    "batch_task": ("formats",),
    "bench": ("ramp", "spark"),
    "cluster.yaml": ("site", "slurm"),
    "nodes.txt": ("slurm",),
    "sacct": ("slurm",),
}
"""Families that read the files of an example, by a word in its line."""


def examples() -> list[Any]:
    """The examples of all commands, which are skipped without the families that read their files."""
    return [
        pytest.param(
            name,
            line,
            marks=[pytest.mark.family(*names) for word, names in READING.items() if word in line],
            id=name,
        )
        for name, command in commands()
        for line in re.findall(r"Example: dagsim (.*)", command.help or "")
    ]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    options = [*shlex.split(SHORTER["eval"]), "--quiet", "--out", str(out)]
    fine("eval", "--policy", "sjf", *options)
    return next(out.iterdir())


def with_files(line: str, run: Path) -> list[str]:
    """The words of an example in the current folder, which gets the files and runs that it names."""
    samples = ROOT / "workloads" / "samples"
    copies = {
        "batch_task.csv.gz": samples / "alibaba2018" / "batch_task.csv",
        "sacct.txt": ROOT / "workloads" / "site" / "sacct.txt.gz",
        "nodes.txt": ROOT / "workloads" / "site" / "nodes.txt",
        "bench-mine-exact-dev.json": ROOT / "results" / "bench" / "bench-easy-exact-dev.json",
        "scontrol-show-nodes.txt": ROOT / "workloads" / "site" / "nodes.txt",
    }
    texts = {
        "my.yaml": "policy: sjf\n",
        "sweep.yaml": "set: {workload.count: 8, seeds: 2}\nover: {policy: [sjf, fifo]}\n",
    }
    words = []
    for word in shlex.split(line.partition(" > ")[0]):
        name = word
        if name in copies:
            data = copies[name].read_bytes()
            data = gzip.decompress(data) if copies[name].suffix == ".gz" else data
            Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        elif name in texts:
            Path(name).write_text(texts[name], encoding="utf-8")
        elif name == "cluster.yaml" and "import" not in line:
            shutil.copy(copies["nodes.txt"], "nodes.txt")
            fine("site", "import", "nodes.txt", "-o", name)
        elif re.fullmatch(r"results/(20\w+-.*|RUN\w*)", name):
            shutil.copytree(run, name)
        words.append("#0" if name == "1042" else name)
    return words


@pytest.mark.parametrize(("name", "line"), examples())
def test_the_example_of_every_command_runs(
    name: str, line: str, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert line.startswith(name)
    words = [*with_files(line, run_folder), *shlex.split(SHORTER.get(name, ""))]
    if name in PARSED:
        command = dict(commands())[name]
        assert command.make_context(name, words[len(name.split()) :])
        return
    ended = invoke(*words)
    no_size = name == "plan" and "No size up to the cap" in ended.output  # an answer, which ends with 1
    assert ended.exit_code == int(no_size), ended.output


def test_every_command_has_an_example() -> None:
    assert [name for name, command in commands() if "Example: dagsim" not in (command.help or "")] == []


def test_no_command_has_more_than_28_options() -> None:
    counts = {
        name: sum(param.param_type_name == "option" and not param.hidden for param in command.params)
        for name, command in commands()
    }
    assert {name: count for name, count in counts.items() if count > 28} == {}


def test_help_describes_the_options_that_its_list_leaves_out() -> None:
    left_out = {
        (name, param.opts[0]): (param.help or "", command.help or "")
        for name, command in commands()
        for param in command.params
        if getattr(param, "hidden", False)
    }
    assert {("eval", "--price"), ("replay", "--carbon"), ("plan", "--carbon")} <= set(left_out)
    assert [at for at, (own, whole) in left_out.items() if own not in whole and "Earlier spelling" not in own] == []


def test_a_short_option_stands_for_the_same_option_in_every_command() -> None:
    meanings: dict[str, set[str]] = {}
    for _, command in commands():
        for param in command.params:
            names = (*param.opts, *getattr(param, "secondary_opts", ()))
            for short in (name for name in names if len(name) == 2):
                meanings.setdefault(short, set()).add(max(names, key=len))
    assert {short: names for short, names in meanings.items() if len(names) > 1} == {}


def test_help_lists_the_commands_in_the_order_of_use() -> None:
    assert sorted(ORDER) == sorted({name.partition(" ")[0] for name, _ in commands()})
    help_ = invoke("--help").output
    places = [re.search(rf"^\W*{name} ", help_, re.MULTILINE) for name in ORDER]
    assert [place.start() for place in places if place] == sorted(place.start() for place in places if place)
    assert None not in places


@pytest.mark.parametrize(("option", "key"), [("--mig", "mig"), ("--count-pull", "count_pull")])
def test_a_readers_key_given_as_an_option_is_told_where_it_belongs(option: str, key: str) -> None:
    ended = invoke("replay", option, columns=200)
    assert ended.exit_code == 2
    assert f"dagsim replay has no option {option}; a reader takes it as --read {key}=VALUE" in ended.output


def test_an_option_of_another_command_names_that_command() -> None:
    ended = invoke("eval", "--trace", "log.swf", columns=200)
    assert ended.exit_code == 2
    assert re.search(
        r"has no option --trace; it is an option of dagsim replay, .*dagsim whatif, dagsim plan", ended.output
    )


@pytest.mark.parametrize("algo", [["--algo", "rainbow"], ["--set", "train.algorithm.kind=rainbow"]])
def test_train_keeps_the_settings_of_the_algorithm_or_refuses_them(algo: list[str], tmp_path: Path) -> None:
    setting = ["--set", "train.algorithm.updates=-1"]
    ended = invoke("train", *setting, *algo, "--out", tmp_path)
    lost = "would undo --set train.algorithm.updates=-1" in ended.output
    kept = "--set train.algorithm.updates: " in ended.output
    assert (ended.exit_code, lost, kept) == (2, algo[0] == "--set", algo[0] == "--algo"), ended.output


@pytest.mark.family("formats")
def test_replay_keeps_what_set_says_of_the_trace(tmp_path: Path) -> None:
    args = ["replay", "--trace", SWF, "--set", "workload.options.limit=1", "--out", str(tmp_path), "--quiet"]
    fine(*args)
    (run,) = tmp_path.iterdir()
    assert "limit: 1\n" in (run / "config.yaml").read_text(encoding="utf-8")
    ended = invoke(*args, "--set", "workload=sessions")
    assert "--set workload=sessions: would undo --trace" in ended.output


SWF = str(ROOT / "workloads" / "samples" / "swf" / "sample.swf")


@pytest.mark.family("formats")
def test_read_takes_every_option_of_reading(tmp_path: Path) -> None:
    ended = invoke("replay", "--help", columns=200)
    assert all(key in ended.output for key in READ_KEYS)
    wrong = invoke("replay", "--trace", SWF, "--read", "time_zone=Mars")
    assert wrong.exit_code == 2
    assert "--read: there is no key 'time_zone'; did you mean 'timezone'?" in wrong.output
    for text, what in (("time_scale=x", "a number"), ("=3", "expected KEY=VALUE"), ("mig=7", "true or false")):
        wrong = invoke("replay", "--trace", SWF, "--read", text)
        assert (wrong.exit_code, what in wrong.output) == (2, True), wrong.output


@pytest.mark.family("slurm")
def test_a_key_of_read_may_have_dashes_and_a_flag_no_value(tmp_path: Path) -> None:
    log = str(ROOT / "workloads" / "site" / "sacct.txt.gz")
    args = ["replay", "--trace", log, "--policy", "sjf", "--max-jobs", "3", "--out", str(tmp_path), "--quiet"]
    fine(*args, "--read", "time-scale=0.5", "--read", "mig")
    (run,) = tmp_path.iterdir()
    config = (run / "config.yaml").read_text(encoding="utf-8")
    assert "time_scale: 0.5" in config
    assert "mig: true" in config


def test_jobs_to_measure_are_set_as_text(tmp_path: Path) -> None:
    args = ["eval", *shlex.split(SHORTER["eval"]), "--out", str(tmp_path), "--quiet"]
    fine(*args, "--set", "workload.measure=2:-2")
    (run,) = tmp_path.iterdir()
    assert "measure:\n    - 2\n    - -2\n" in (run / "config.yaml").read_text(encoding="utf-8")
    wrong = invoke(*args, "--set", "workload.measure=2")
    assert wrong.exit_code == 2


def test_configurations_are_listed_without_long_paths() -> None:
    before = os.getcwd()
    assert before not in invoke("list", "configs", "--json").output
    assert before not in invoke("list", "workloads", "--json").output


def test_the_last_word_of_a_name_finds_a_configuration() -> None:
    wrong = invoke("train", "--config", "ppo")
    assert wrong.exit_code == 2
    assert "ppo: no such file or configuration; did you mean 'train/ppo'? (dagsim list configs)" in wrong.output

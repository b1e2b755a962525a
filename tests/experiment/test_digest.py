"""The digest of the simulating code covers every file that a cell imports or opens, and old run folders are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import fine, invoke

import dagsim
from dagsim.config.schema import load_config
from dagsim.experiment import provenance
from dagsim.experiment.cell import Cell
from dagsim.experiment.provenance import digested_files

PACKAGE = Path(dagsim.__file__).parent
RUNS_A_CELL = """
import sys
from pathlib import Path

opened = set()
sys.addaudithook(lambda event, args: opened.add(args[0]) if event == "open" and isinstance(args[0], str) else None)

from dagsim.config.schema import load_config
from dagsim.experiment.executors import CellWork
from dagsim.experiment.plan import Plan

for path, policy in zip(sys.argv[1::2], sys.argv[2::2]):
    (cell,) = Plan.of("eval", load_config(Path(path)), [policy]).cells
    cell.id
    CellWork(keep="log", raises=True)(cell, lambda count: None)
imported = {module.__file__ for module in sys.modules.values() if getattr(module, "__file__", None)}
print("\\n".join(sorted({str(Path(name).resolve()) for name in opened | imported})))
"""
CELLS = {
    "cluster": [
        ("workload: {count: 8}", "sjf"),
        ("workload: {count: 8}\nengine: compiled", "easy"),
        (
            "cluster: {groups: [{name: v, gpu: V100-16, gpus: 8}]}\nelastic: {most: 8, default: by-size}",
            "pollux",
        ),
        ("workload: {count: 8}\nnetwork: {kind: uniform, bandwidth_gb_s: 12.5}", "slurm-multifactor"),
        ("workload: {count: 8}", "ppo"),
        ("workload: {count: 4}", "search[budget=20,futures=2,ahead=2]"),
        ("workload: {count: 8, load: 0.8}", "gavel"),
    ],
    "mixture": [("system: {kind: mixture}", "sjf")],
    "spark": [("system: {kind: spark, jobs: 3}", "fair"), ("system: {kind: spark, jobs: 3}", "decima")],
    "ramp": [("system: {kind: ramp, jobs: 5}", "acceptable_jct")],
}


@pytest.mark.parametrize("system", CELLS)
def test_every_file_that_a_cell_imports_or_opens_is_in_the_digest(system: str, tmp_path: Path) -> None:
    arguments = []
    for number, (text, policy) in enumerate(CELLS[system]):
        path = tmp_path / f"{number}.yaml"
        path.write_text(f"{text}\nseeds: 1\n", encoding="utf-8")
        arguments += [str(path), policy]
    done = subprocess.run([sys.executable, "-c", RUNS_A_CELL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    used = {path for line in done.stdout.splitlines() if (path := Path(line)).is_relative_to(PACKAGE)}
    sources = {path for path in used if path.suffix != ".pyc" and "__pycache__" not in path.parts and path.is_file()}
    assert len(sources) > 50
    assert sources <= set(digested_files(PACKAGE))


def test_data_files_and_every_folder_but_the_listed_ones_are_in_the_digest() -> None:
    names = {path.relative_to(PACKAGE).as_posix() for path in digested_files(PACKAGE)}
    assert {"registry.py", "seeds.py"} <= names
    assert any(name.endswith("throughputs.csv") for name in names)
    assert {name.partition("/")[0] for name in names} >= {"config", "experiment", "families", "metrics"}
    assert {"families/elastic/goodput.py", "families/learning/ppo.pt"} <= names
    assert not any(name.startswith(("cli/", "report/", "testing/", "families/web/s")) for name in names)
    assert not any(name.endswith("names.json") for name in names)


@pytest.mark.parametrize(
    "name", ["systems/cluster/models/throughputs.csv", "families/elastic/goodput.py", "registry.py"]
)
def test_a_changed_file_changes_the_digest(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree(PACKAGE, tmp_path / "dagsim", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(dagsim, "__file__", str(copy / "__init__.py"))
    before = provenance.code_digest.__wrapped__()
    (copy / "report" / "tables.py").write_text("# cannot matter\n")
    assert provenance.code_digest.__wrapped__() == before
    (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
    assert provenance.code_digest.__wrapped__() != before


@pytest.mark.parametrize("recorded", ["0" * 64, None], ids=["other code", "no record"])
@pytest.mark.parametrize("command", ["baseline", "sweep", "train"])
def test_run_folders_of_other_code_cannot_be_continued(command: str, recorded: str | None, tmp_path: Path) -> None:
    sweep = tmp_path / "s.yaml"
    sweep.write_text("seeds: 1\nset: {workload.count: 5}\nover: {policy: [fifo, sjf]}\n")
    small = ["--set", "workload.count=5"]
    first = {
        "baseline": ["baseline", "--algo", "fifo", "--algo", "sjf", "--seeds", "1", "--no-plots", *small],
        "sweep": ["sweep", str(sweep)],
        "train": [
            "train",
            "--algo",
            "ppo",
            "--iterations",
            "1",
            "--no-report",
            *small,
            "--set",
            "train.warm_start=null",
        ],
    }[command]
    fine(*first, "-o", tmp_path / "runs")
    (folder,) = [path for path in (tmp_path / "runs").iterdir() if (path / "manifest.json").exists()]
    facts = json.loads((folder / "manifest.json").read_text())
    facts.pop("code_sha256")
    (folder / "manifest.json").write_text(json.dumps(facts | ({"code_sha256": recorded} if recorded else {})))
    again = [*first, "-o", str(tmp_path / "runs")] if command == "sweep" else [command, "--resume", str(folder)]
    refused = invoke(*again)
    assert refused.exit_code == 2
    assert "code" in refused.stderr


def test_a_changed_file_that_the_configuration_names_changes_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLES", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fifo").mkdir()  # has the name of a policy
    ids, shas = set(), set()
    for text in ("model,gpu\n", "model,gpu\nbert,T4\n"):
        (tmp_path / "rates.csv").write_text(text)
        for named in ("rates.csv", "$TABLES/rates.csv"):
            config = load_config(None, [f"runtime={{kind: throughput, table: {named}}}", "policy=fifo"])
            found = provenance.provenance(config, ["fifo"])["inputs"]
            assert list(found) == [named]
            shas.add(found[named]["sha256"])
        ids.add(Cell(config, "fifo", 0, "fifo").id)
    assert (len(shas), len(ids)) == (2, 2)


def test_a_changed_module_of_a_users_own_system_changes_its_cells(tmp_path: Path) -> None:
    own, ids = tmp_path / "own_server.py", set()
    text = (Path(__file__).parents[2] / "docs/examples/model_server.py").read_text(encoding="utf-8")
    for end in ("", "# changed\n"):
        own.write_text(text + end, encoding="utf-8")
        ids.add(Cell(load_config(None, [f"system.kind={own}:ModelServer"]), "in-order", 0, "in-order").id)
    assert len(ids) == 2

"""``scripts/validate_all.py`` and the statistics of the readers that it takes in."""

from __future__ import annotations

import gzip
import json
from inspect import isfunction
from pathlib import Path

import pytest
import validate_all
from support.scripting import run_script


@pytest.mark.data
def test_a_miss_ends_with_1(data: Path, tmp_path: Path) -> None:
    name = "traces/alibaba-v2018/batch_task_random6600.csv.gz"
    rows = gzip.decompress((data / name).read_bytes()).splitlines(keepends=True)
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(gzip.compress(b"".join(rows[:-100]), 1))
    done = run_script("validate_all", "--data", tmp_path, "--only", "span", "--json")
    verdicts = {row["name"]: row["holds"] for row in json.loads(done.stdout)}
    assert done.returncode == 1
    assert not verdicts["random6600: jobs"]


@pytest.mark.data
def test_what_holds_ends_with_0_and_is_shown(data: Path) -> None:
    done = run_script("validate_all", "--data", data, "--only", "sia")
    assert done.returncode == 0, done.stderr
    assert "1 figures, 0 missed" in done.stdout


def test_missing_data_is_said_without_a_traceback(tmp_path: Path) -> None:
    done = run_script("validate_all", "--data", tmp_path, "--only", "span")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "no such file" in done.stderr


def test_every_function_that_yields_figures_is_run() -> None:
    functions = {name for name, value in vars(validate_all).items() if isfunction(value) and not name.startswith("_")}
    ours = {name for name in functions if getattr(validate_all, name).__module__ == "validate_all"}
    named = {function.__name__ for function in validate_all.PAPERS.values()}
    assert ours - {"figures", "main"} == set(validate_all.VALIDATIONS) | named


@pytest.mark.data
def test_readers_count_what_was_published(data: Path) -> None:
    # ``validate_all.py`` reads all. The figures of SWF logs are held in tests/families/formats/test_swf.py, those of
    # ITP in tests/traces/test_info.py.
    large = ("swf/", "microsoft-itp")
    done = run_script("validate_readers", "--data", data / "traces", "--without", *large, "--json")
    rows = json.loads(done.stdout)
    assert [row for row in rows if not row["holds"]] == []
    assert len({row["file"] for row in rows}) == 5
    assert done.returncode == 0

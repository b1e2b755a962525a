"""``scripts/validate_all.py`` and the statistics of the readers that it takes in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


def validate(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / script), *map(str, args)], capture_output=True, text=True, check=False
    )


@pytest.mark.data
def test_a_miss_ends_with_1(data: Path, tmp_path: Path) -> None:
    (tmp_path / "golden" / "swf").mkdir(parents=True)
    (tmp_path / "traces").symlink_to(data / "traces")
    expected = json.loads((data / "golden/swf/rlscheduler_lublin1.json").read_text())
    expected["Lublin-1"]["bsld"]["bf0"]["mean"]["SJF"] += 0.001
    (tmp_path / "golden" / "swf" / "rlscheduler_lublin1.json").write_text(json.dumps(expected))
    done = validate("validate_all.py", "--data", tmp_path, "--only", "rlscheduler", "--json")
    found = {each["name"]: each["holds"] for each in json.loads(done.stdout)}
    assert done.returncode == 1
    assert [name for name, holds in found.items() if not holds] == ["bf0, SJF: bounded slowdown"]


@pytest.mark.data
def test_what_holds_ends_with_0_and_is_shown(data: Path) -> None:
    done = validate("validate_all.py", "--data", data, "--only", "span", "wfcommons")
    assert done.returncode == 0, done.stderr
    assert "4 figures, 0 missed" in done.stdout


def test_missing_data_is_said_without_a_traceback(tmp_path: Path) -> None:
    done = validate("validate_all.py", "--data", tmp_path, "--only", "span")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "no such file" in done.stderr


@pytest.mark.data
def test_readers_count_what_was_published(data: Path) -> None:
    done = validate("validate_readers.py", "--data", data / "traces", "--json")
    assert [row for row in json.loads(done.stdout) if not row["holds"]] == []
    assert done.returncode == 0

"""The commands of ``docs/pages.md`` run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.command_line import fine

PAGE = (Path(__file__).parents[3] / "docs" / "pages.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ dagsim (.+)$", PAGE, re.MULTILINE)
HEADED = re.findall(r"^## .*`dagsim (.+)`", PAGE, re.MULTILINE)
SMALL = ["--set", "workload.count=8", "--no-plots", "--quiet", "--workers", "1"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pages")
    (first,) = [command for command in COMMANDS if command.startswith("baseline")]
    fine(*shlex.split(first), *SMALL, "-o", root / "results")
    return root / "results"


@pytest.mark.parametrize(
    "command", [command for command in (*COMMANDS, *HEADED) if "RUN" in command and "RUN..." not in command]
)
def test_every_command_about_a_run_runs(
    command: str, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (run,) = results.iterdir()
    words = [word.replace("results/RUN", str(run)).replace("RUN", str(run)) for word in shlex.split(command)]
    done = fine(*words)
    assert Path(done.stdout.strip()).stat().st_size > 1000


def test_the_server_is_started_as_written(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvicorn")
    begun = []
    monkeypatch.setattr("dagsim.families.web.server.serve_folders", lambda *arguments: begun.append(arguments[:3]))
    monkeypatch.chdir(results.parent)
    (command,) = [line for line in COMMANDS if line.startswith("serve")]
    fine(*shlex.split(command))
    assert begun == [(Path("results"), "127.0.0.1", 8765)]

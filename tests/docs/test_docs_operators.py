"""The commands on the pages for operators run, one after the other, from nothing."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import invoke

ROOT = Path(__file__).parents[2]


def commands(page: str, fence: str = "console") -> Iterator[str]:
    blocks = re.findall(rf"```{fence}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    for line in (line for block in blocks for line in block.splitlines() if line.startswith("$ ")):
        yield re.sub(r"  +#.*", "", line.removeprefix("$ ")).strip()


def sentences(page: str) -> Iterator[tuple[str, str]]:
    """Each sentence that a page shows below a command, with the command; rows of tables depend on the width."""
    for block in re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL):
        command = ""
        for line in block.splitlines():
            if line.startswith("$ "):
                command = re.sub(r"  +#.*", "", line.removeprefix("$ ")).strip()
            elif line != "..." and "  " not in line and "─" not in line:
                yield command, line


def run(command: str, code: int = 0) -> str:
    """The output of a command; words with a star are expanded as a shell does."""
    words = [
        word
        for pattern in shlex.split(command)[1:]
        for word in (sorted(map(str, Path().glob(pattern))) if "*" in pattern else [pattern])
    ]
    result = invoke(*words)
    assert result.exit_code == code, f"{command}\n{result.output}{result.exception!r}"
    return result.output


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dagsim.experiment.executors.cores", lambda: 1)
    return tmp_path


@pytest.mark.family("capacity", "site", "slurm")
def test_the_operators_pages_run_from_an_empty_directory(empty: Path) -> None:
    outputs = {command: run(command) for command in commands("docs/operators.md")}
    shown = [(command, line) for command, line in sentences("docs/operators.md") if command in outputs]
    assert len(shown) > 10
    assert [(command, line) for command, line in shown if line not in outputs[command]] == []
    assert any("easy: observed and simulated waits" in text for text in outputs.values())
    exact = next(text for line, text in outputs.items() if "recorded" in line)
    assert re.search(r"all +10,000 +1,501 +0 +9,554 +1,501 +0 +9,554 +0", exact)
    assert any(re.search(r"all +10,000 +1,501 .* 1,498 ", text) for text in outputs.values())
    whatif = [text for line, text in outputs.items() if "--add 16xV100-16" in line]
    assert all("+16xV100-16" in text for text in whatif)
    assert any("47,012" in text and "(--price)" in text for text in whatif)
    assert "best" in next(text for line, text in outputs.items() if line.startswith("dagsim plan"))
    why = next(text for line, text in outputs.items() if line.startswith("dagsim why"))
    assert "job 8516 of vision" in why
    assert re.search(r"\d% of the wait \([\d,]+ s\): too few GPUs were free", why)
    assert all(len(line) <= 80 for text in outputs.values() for line in text.splitlines() if "─" in line)


@pytest.mark.family("capacity", "site", "slurm")
def test_the_page_on_a_slurm_site_runs(empty: Path) -> None:
    outputs = {command: run(command) for command in commands("docs/slurm-site.md")}
    shown = list(sentences("docs/slurm-site.md"))
    assert len(shown) > 4
    assert [(command, line) for command, line in shown if line not in outputs[command]] == []


def test_answers_that_pages_quote_stand_on_the_page_of_the_long_log() -> None:
    quoted = []
    for page, fence in (("docs/operators.md", "text"), ("docs/costs.md", "console")):
        blocks = re.findall(rf"```{fence}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
        quoted += [line for block in blocks for line in block.splitlines() if line != "..."]
    shown = (ROOT / "docs" / "operators-sample.md").read_text(encoding="utf-8").splitlines()
    assert quoted
    assert [line for line in quoted if line not in shown] == []


def test_the_page_on_sweeps_runs(empty: Path) -> None:
    (empty / "docs").symlink_to(ROOT / "docs")
    outputs = [run(command.replace("local:2", "local:1")) for command in commands("docs/sweeps.md")]
    assert "60 cells" in outputs[0]
    assert "12 combinations, 5 seeds each" in outputs[1]
    block = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    kept = (ROOT / "docs" / "examples" / "sweep.yaml").read_text(encoding="utf-8")
    assert block.split() == re.sub(r"#.*", "", kept).split()


@pytest.mark.family("programs")
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_the_page_on_the_protocol_runs(empty: Path) -> None:
    (empty / "docs").symlink_to(ROOT / "docs")
    for command in commands("docs/reference/protocol.md"):
        assert "backfill.js" in run(f"{command} --set workload.count=20").replace("\n", "")


def test_the_sample_is_not_written_over_other_files(empty: Path) -> None:
    (empty / "site").mkdir()
    (empty / "site" / "nodes.txt").write_text("mine", encoding="utf-8")
    assert "a different file" in run("dagsim trace sample", code=2)
    assert (empty / "site" / "nodes.txt").read_text() == "mine"

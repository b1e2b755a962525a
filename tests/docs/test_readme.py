"""Every command and every piece of Python in the README runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(block: str) -> dict[str, list[str]]:
    """The lines of output that a block shows of each command; ``...`` stands for lines that it leaves out."""
    shown: dict[str, list[str]] = {}
    for line in block.splitlines():
        if line.startswith("$ "):
            output = shown[line.removeprefix("$ ").partition("   #")[0].strip()] = []
        elif line != "...":
            output.append(line.strip())
    return shown


@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: block.splitlines()[0])
def test_commands_print_what_is_shown_from_an_empty_directory(block: str, tmp_path: Path) -> None:
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    for command, output in commands(block).items():
        argv = [sys.executable, "-m", "dagsim", *shlex.split(command)[1:]]
        process = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        printed = [line.strip() for line in process.stdout.splitlines()]
        assert output or " -q " in command
        assert [line for line in output if line not in printed] == []


@pytest.mark.parametrize("code", blocks("python"), ids=["own_policy"])
def test_python_runs_as_printed(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_a_policy_of_the_readme_runs_by_its_module(tmp_path: Path) -> None:
    code = next(code for code in blocks("python") if "ShortestFirst" in code)
    (tmp_path / "my_module.py").write_text(code.partition("\n\nprint(")[0], encoding="utf-8")
    argv = [sys.executable, "-m", "dagsim", "eval", "--algo", "my_module:ShortestFirst", "--seeds", "1"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_first_command_is_what_ci_runs() -> None:
    install, test = blocks("bash")[0].strip().splitlines()
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert install in script
    assert test in script

"""The page in a real browser; skipped where there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from typer.testing import CliRunner

from dagsim.cli import app

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_page.py"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium")
def test_a_page_works_in_a_browser_without_a_network(tmp_path: Path) -> None:
    out = tmp_path / "results"
    told = ["baseline", "-w", "deadlines", "--seeds", "1", "--no-plots", "--quiet", "--workers", "1"]
    ran = CliRunner().invoke(app, [*told, "--algo", "fifo", "--algo", "sjf", "-o", str(out)])
    assert ran.exit_code == 0, ran.output
    made = CliRunner().invoke(app, ["report", *map(str, out.iterdir()), "-o", str(tmp_path / "page.html")])
    assert made.exit_code == 0, made.output
    done = subprocess.run([sys.executable, SCRIPT, tmp_path / "page.html"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "400 px, dark: drawn" in done.stdout

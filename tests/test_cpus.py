"""What a run writes does not depend on the instructions of the CPU: logs to the byte, figures to 1e-9."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import isclose
from pathlib import Path

import pytest

OLD_CPU = {
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR AVX2 FMA3",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-AVX",
    "ATEN_CPU_CAPABILITY": "default",
}
"""A CPU without vectors of 256 bits and without fused multiplication, for NumPy, the C library and torch."""


def written(folder: Path, *words: str, **env: str) -> Path:
    """Run a command; the folder of its run."""
    out = folder / "out"
    command = [sys.executable, "-m", "dagsim", *words, "--seeds", "3", "--no-plots", "--quiet", "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, cwd=folder, check=False)
    assert ended.returncode == 0, ended.stderr
    return max(out.iterdir(), key=lambda path: path.stat().st_mtime)


@pytest.mark.parametrize("policy", ["2d-gittins", "ppo", "qssf"])
def test_a_run_is_repeated_on_a_cpu_with_fewer_instructions(policy: str, tmp_path: Path) -> None:
    first = written(tmp_path, "eval", "--algo", policy, "--workload", "heterogeneous-dag")
    again = written(tmp_path, "eval", "--config", str(first), "--algo", policy, **OLD_CPU)
    assert first != again
    logs = sorted(path.name for path in first.rglob("*.npy"))
    assert logs == sorted(path.name for path in again.rglob("*.npy")) != []
    for path in first.rglob("*.npy"):
        assert path.read_bytes() == (again / path.relative_to(first)).read_bytes()
    for one, other in zip(
        *(run.read_text().splitlines() for run in (first / "runs.jsonl", again / "runs.jsonl")), strict=True
    ):
        ours, theirs = json.loads(one)["metrics"], json.loads(other)["metrics"]
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            same = isclose(value, theirs[name], rel_tol=1e-9) if isinstance(value, float) else value == theirs[name]
            assert same, (name, value, theirs[name])

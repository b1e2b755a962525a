"""What a run writes does not depend on the instructions of the CPU: logs to the byte, figures to 1e-9."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import isclose
from pathlib import Path
from platform import libc_ver
from typing import Any

import numpy._core._multiarray_umath as multiarray
import pytest

OLD_CPU = {
    "NPY_DISABLE_CPU_FEATURES": " ".join(multiarray.__cpu_dispatch__),  # each release has names of its own
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-AVX",
    "ATEN_CPU_CAPABILITY": "default",
    "OPENBLAS_CORETYPE": "Prescott",
}
"""A CPU without vectors of 256 bits and without fused multiplication, for NumPy, the C library and torch."""
SHOWN = """
import json, math, numpy, torch
import numpy._core._multiarray_umath as multiarray
used = [name for name in multiarray.__cpu_dispatch__ if multiarray.__cpu_features__[name]]
numbers = numpy.random.default_rng(1).random(20_000) * 100
libm = [math.exp(-x).hex() + math.sin(x).hex() + math.pow(x, 0.3).hex() for x in numbers]
print(json.dumps([used, torch.backends.cpu.get_cpu_capability(), numpy.log(numbers).tobytes().hex(), libm]))
"""


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


def test_the_variables_make_it_an_old_cpu() -> None:
    """The names that the variables take change with the releases, and one that is unknown does nothing."""

    def shown(**env: str) -> list[Any]:
        command = [sys.executable, "-c", SHOWN]
        others = {name: value for name, value in os.environ.items() if name not in OLD_CPU}
        said = subprocess.run(command, capture_output=True, env={**others, **env}, check=True).stdout
        return list(json.loads(said))

    (used, capability, logarithms, libm), here = shown(**OLD_CPU), shown()
    assert (used, capability) == ([], "DEFAULT")
    assert not here[0] or logarithms != here[2]  # this CPU has more, and its results show it
    assert not (multiarray.__cpu_features__.get("FMA3") and libc_ver()[0] == "glibc") or libm != here[3]

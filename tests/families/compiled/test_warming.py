"""A run that would gain from the compiled engine has it compiled beside it, once, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dagsim.families.compiled import jit

pytestmark = pytest.mark.skipif(not jit.jitted(), reason="numba is not installed")

EVAL = (
    *("-m", "dagsim", "eval", "--policy", "srpt-work", "--seeds", "1", "--no-plots", "--workers", "1"),
    *("--set", "workload={preset: steady, measure: null, count: %d}"),
)


def begun(folder: Path, jobs: int, first: str = "") -> subprocess.Popen[str]:
    """An evaluation whose compiled functions would be kept in ``folder``, with modules ``first`` before all others."""
    words = [word % jobs if "%d" in word else word for word in EVAL]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "DAGSIM_WARM": "1", "PYTHONPATH": first}
    return subprocess.Popen(
        [sys.executable, *words, "--out", str(folder / "results")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def compilations(folder: Path) -> list[int]:
    """The processes that compile for ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, variables = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if b"compiled.warming" in words and str(folder).encode() in variables:
            found.append(int(process.name))
    return found


def eventually(holds, within_s: float = 90.0) -> bool:
    """True as soon as something holds."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_next_run_is_compiled(tmp_path: Path) -> None:
    eager = tmp_path / "eager"  # a compilation that gives way to others might never run on a busy machine
    eager.mkdir()
    (eager / "sitecustomize.py").write_text("import os\nos.nice = os.sched_setscheduler = lambda *_: None\n")
    first, _ = begun(tmp_path, 8000, str(eager)).communicate(timeout=300)
    assert "the compiled engine for srpt-work is being compiled in the background" in " ".join(first.split())
    assert eventually(lambda: not compilations(tmp_path), within_s=300)
    assert list(tmp_path.rglob("advance_jobs-*.o"))
    second, _ = begun(tmp_path, 8000).communicate(timeout=300)
    assert "in the background" not in second
    manifests = sorted(tmp_path.glob("results/*/manifest.json"), key=os.path.getmtime)
    assert ['"used": "compiled"' in path.read_text() for path in manifests] == [False, True]
    # compiled code is loaded without numba, which takes longer to import than a small run
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "numba.py").write_text("raise ImportError('imported')")
    begun(tmp_path, 8000, str(broken)).communicate(timeout=300)
    third = max(tmp_path.glob("results/*/manifest.json"), key=os.path.getmtime)
    assert '"used": "compiled"' in third.read_text()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_numba_that_cannot_be_imported_is_found_beside_the_run(tmp_path: Path) -> None:
    """As with a NumPy that is newer than an old numba allows. The runs themselves do not import numba."""
    broken, why = tmp_path / "broken", "Numba needs NumPy 2.3 or less"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text("import os\nos.nice = os.sched_setscheduler = lambda *_: None\n")
    (broken / "numba.py").write_text(f"raise ImportError({why!r})")
    begun(tmp_path, 8000, str(broken)).communicate(timeout=300)
    assert eventually(lambda: not compilations(tmp_path))
    begun(tmp_path, 8000, str(broken)).communicate(timeout=300)
    first, second = sorted(tmp_path.glob("results/*/manifest.json"), key=os.path.getmtime)
    assert why not in first.read_text()
    assert why in second.read_text()
    assert not compilations(tmp_path)
    # once numba works again, it compiles
    (broken / "numba.py").unlink()
    begun(tmp_path, 8000, str(broken)).communicate(timeout=300)
    assert eventually(lambda: list(tmp_path.rglob("advance_jobs-*.o")), within_s=300)
    assert not list(tmp_path.rglob("failure"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_a_run_that_is_stopped(number: int, tmp_path: Path) -> None:
    run = begun(tmp_path, 400_000)
    assert eventually(lambda: compilations(tmp_path))
    assert len(compilations(tmp_path)) == 1
    run.send_signal(number)
    run.communicate(timeout=60)
    assert eventually(lambda: not compilations(tmp_path), within_s=10)


def test_a_small_run_and_one_that_is_told_not_to_start_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path, 100).communicate(timeout=300)
    assert not list(tmp_path.rglob("cache"))

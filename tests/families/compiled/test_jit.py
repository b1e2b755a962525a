"""Functions are compiled once, and loaded as object code without numba; what does not fit is never read."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support.command_line import invoke

from dagsim.families.compiled import jit

pytestmark = pytest.mark.skipif(not jit.jitted(), reason="numba is not installed")

COUNTER = np.dtype([("calls", np.int64), ("total", np.float64)])
CODE = """
import sys
import numpy as np
from dagsim.families.compiled.drive import compile_loop
from dagsim.families.compiled.choice import plan_for
from dagsim.systems.cluster.models.kept_work import Preemption
compiled = compile_loop(plan_for("srpt-work", Preemption()))
print(compiled, "numba" in sys.modules)
"""


@jit.by_pointer
class Inside(NamedTuple):
    counter: np.ndarray
    weights: np.ndarray


@jit.by_pointer
class Outside(NamedTuple):
    inside: Inside
    table: np.ndarray


@jit.inner
def weighted(o: Outside, row: int) -> float:
    return o.inside.weights[row] * o.table[row, 1]


def add(o: Outside, shown: np.ndarray) -> int:
    """Add up rows, and count the calls."""
    o.inside.counter.calls += 1
    for row in range(len(o.table)):
        o.inside.counter.total += weighted(o, row)
    shown[0] = o.inside.counter.total
    return len(o.table)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of kept functions."""
    monkeypatch.setattr(jit, "folder", lambda: tmp_path)
    return tmp_path


def example(rows: int) -> Outside:
    counter = np.zeros(1, COUNTER).view(np.recarray)[0]
    return Outside(Inside(counter, np.arange(rows) + 1.0), np.ones((rows, 2)))


def test_nested_tuples_records_and_arrays_are_read_and_written(folder: Path) -> None:
    function, o, shown = jit.outer(add), example(4), np.zeros(1)
    assert function(o, shown) == 4
    assert function(o, shown) == 4
    assert (shown[0], o.inside.counter.calls, o.inside.counter.total) == (20.0, 2, 20.0)


def test_arrays_that_have_moved_since_the_last_call_are_read_where_they_are(folder: Path) -> None:
    function, shown, calls = jit.outer(add), np.zeros(1), 0
    for rows in (2, 20_000, 3, 100_000):  # other buffers, of other sizes
        o = example(rows)
        o.table.resize((rows + 1, 2), refcheck=False)
        grown = o._replace(inside=o.inside._replace(weights=np.append(o.inside.weights, 5.0)))
        grown.table[rows, 1] = 2.0
        assert function(grown, shown) == rows + 1
        assert shown[0] == rows * (rows + 1) / 2 + 10.0
        calls += 1
    assert calls == 4
    assert len(list(folder.glob("add-*.o"))) == 1


def scale(factors: np.ndarray, total: np.ndarray, values: np.ndarray) -> None:
    """Add up products."""
    total[0] = 0.0
    for place in range(len(factors)):
        total[0] += factors[place] * values[place]


def test_bound_arrays_are_shared_with_the_caller_and_cannot_move(folder: Path) -> None:
    total, values = np.zeros(1), np.arange(4.0)
    bound = jit.BoundCall(jit.outer(scale), total, values)
    for factors, expected in ((np.ones(4), 6.0), (np.ones(2), 1.0), (np.array([0, 3, 0, 1]), 6.0)):
        bound(factors)
        assert total[0] == expected
    values[1] = 10.0
    bound(np.ones(4))
    assert total[0] == 15.0
    with pytest.raises(ValueError, match="cannot resize"):
        values.resize(100_000)
    assert len(list(folder.glob("scale-*.o"))) == 2  # the factors were whole numbers once


def test_other_types_are_compiled_again_and_strided_arrays_refused(folder: Path) -> None:
    function, o, shown = jit.outer(add), example(3), np.zeros(1)
    function(o, shown)
    other = o._replace(table=o.table.astype(np.float32))
    assert function(other, shown) == 3
    assert len(list(folder.glob("add-*.o"))) == 2
    with pytest.raises(TypeError, match="contiguous arrays and records, got a strided array"):
        function(o._replace(table=np.ones((3, 4))[:, ::2]), shown)
    with pytest.raises(TypeError, match="got a float"):
        function(o, 1.0)


RANDOM = np.random.default_rng(1).bytes(5000)


@pytest.mark.parametrize("damage", [b"", b"text", RANDOM, None], ids=["empty", "text", "random", "truncated"])
def test_a_damaged_file_is_compiled_again(damage: bytes | None, folder: Path) -> None:
    o, shown = example(3), np.zeros(1)
    jit.outer(add)(o, shown)
    (path,) = folder.glob("add-*.o")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] if damage is None else damage)
    assert not jit.is_kept("add")  # so that no run waits for the compilation that it did not expect
    assert jit.outer(add)(o, shown) == 3
    mended = path.read_bytes()
    assert mended not in (damage, whole[:-9])
    assert jit.outer(add)(o, shown) == 3
    assert path.read_bytes() == mended


def test_a_process_that_finds_its_functions_compiled_does_not_load_numba(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    outputs = [
        subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert outputs == [["True", "True"], ["False", "False"]]


@pytest.mark.parametrize("damage", [b"", RANDOM, None], ids=["empty", "random", "truncated"])
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_damaged_file_of_numba_is_compiled_again(damage: bytes | None, ending: str, folder: Path) -> None:
    assert jit.dispatched(plus_one)(1) == 2
    (path,) = folder.rglob(f"*.{ending}")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] if damage is None else damage)
    assert jit.dispatched(plus_one)(2) == 3
    again = jit.dispatched(plus_one)
    assert again(3) == 4
    assert again.stats.cache_hits


def plus_one(number: int) -> int:
    return number + 1


def twice_plus_one(number: int) -> int:
    return 2 * plus_one(number)


def test_a_function_takes_those_that_it_calls_along(folder: Path) -> None:
    for _ in range(2):
        function = jit.dispatched(twice_plus_one, plus_one)
        assert function(3) == 8
    assert function.stats.cache_hits


def test_functions_of_another_version_or_processor_are_in_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    from llvmlite import binding

    def fresh() -> str:
        jit.folder.cache_clear()
        return jit.folder().name

    names, known = [fresh()], jit.version
    for package in ("numba", "llvmlite", "numpy"):
        with monkeypatch.context() as changed:
            changed.setattr(jit, "version", lambda name, package=package: known(name) + "1" * (name == package))
            names.append(fresh())
    with monkeypatch.context() as changed:
        changed.setattr(sys, "version", "3.99.0 (main)")
        names.append(fresh())
    with monkeypatch.context() as changed:
        changed.setattr(binding, "get_host_cpu_name", lambda: "other")
        names.append(fresh())
    with monkeypatch.context() as changed:
        features = type("Features", (), {"flatten": lambda self: "-avx512f"})
        changed.setattr(binding, "get_host_cpu_features", features)
        names.append(fresh())
    with monkeypatch.context() as changed:
        changed.setattr(jit, "sources", lambda: [Path(__file__)])
        names.append(fresh())
    assert len(set(names)) == len(names) == 8
    assert fresh() == names[0]


OTHER_USER = """
import os, sys
from pathlib import Path
import numpy as np
from dagsim.families.compiled import jit
kept, spare, modes = Path(sys.argv[1]), Path(sys.argv[2]), [int(word, 8) for word in sys.argv[3:5]]
home = Path(sys.argv[5])
sys.path.insert(0, str(home))
import kernels
shown = np.zeros(1)
def results(folder):
    jit.folder = lambda: folder
    return jit.outer(kernels.total)(np.ones(4), shown), jit.dispatched(kernels.plus_one)(1)
assert results(spare) == (4, 2)  # all modules are loaded now: the other user may not see them
assert results(kept) == (4, 2)
before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
for path in (kept, *kept.rglob("*")):
    path.chmod(modes[0] if path.is_dir() else modes[1])
os.seteuid(65534)
is_kept = jit.is_kept("total")
assert results(kept) == (4, 2)
os.seteuid(0)
print(is_kept, before == {path: path.read_bytes() for path in before})
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="becomes another user, as only root may")
@pytest.mark.parametrize(
    ("folders", "files", "kept"),
    [("755", "644", "True"), ("755", "600", "False"), ("700", "600", "False"), ("777", "600", "False")],
    ids=["readable", "files unreadable", "folder unreadable", "folder writable, files unreadable"],
)
def test_two_users_share_a_folder_as_far_as_they_may(folders: str, files: str, kept: str, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    for name in ("kept", "spare"):
        (tmp_path / name).mkdir()
    for path in (tmp_path, *tmp_path.parents[:3]):  # the folders of pytest are the user's own
        path.chmod(0o755)
    words = [tmp_path / "kept", tmp_path / "spare", folders, files, tmp_path]
    ended = subprocess.run([sys.executable, "-c", OTHER_USER, *map(str, words)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    unchanged = folders != "777"  # where the other user may write, it keeps its own
    assert ended.stdout.split() == [kept, str(unchanged)]


KERNELS = """
def total(values, shown) -> int:
    for value in values:
        shown[0] += value
    return len(values)

def plus_one(number) -> int:
    return number + 1
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives a file away, as only root may")
def test_object_code_of_a_stranger_is_not_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    o, shown = example(3), np.zeros(1)
    jit.outer(add)(o, shown)
    jit.dispatched(plus_one)(1)
    assert jit.is_kept("add")
    for path in folder.rglob("*"):
        os.chown(path, 1234, -1)
    assert not jit.is_kept("add")
    assert jit.outer(add)(o, shown) == 3
    again = jit.dispatched(plus_one)
    assert again(1) == 2
    assert not again.stats.cache_hits


def test_warming_says_where_nothing_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file, where even root makes no folder")
    monkeypatch.setattr(jit, "folder", lambda: tmp_path / "cache" / "compiled")
    monkeypatch.setattr("dagsim.families.compiled.drive.compile_loop", lambda plan: False)
    result = invoke("warm", "--policy", "fifo")
    assert result.exit_code == 2
    assert "cannot be cached there; set NUMBA_CACHE_DIR to a writable folder" in " ".join(result.output.split())


def test_a_run_without_a_folder_for_compiled_functions_runs(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    words = [
        "-m",
        "dagsim",
        "eval",
        "--policy",
        "slurm-multifactor",
        "--seeds",
        "1",
        "--no-plots",
        "--out",
        tmp_path / "r",
    ]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "DAGSIM_WARM": "1"}
    ended = subprocess.run([sys.executable, *map(str, words)], env=environment, capture_output=True, text=True)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr


def test_without_numba_everything_runs_in_simpy(tmp_path: Path) -> None:
    code = "import sys; sys.modules.update(numba=None, llvmlite=None); from dagsim.cli import main; main()"
    words = ["eval", "--policy", "sjf", "--seeds", "1", "--no-plots", "--out", tmp_path / "r"]
    ended = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    refused = subprocess.run([sys.executable, "-c", code, "warm"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "numba" in refused.stderr
    asked = [*map(str, words), "--set", "engine=compiled"]
    refused = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "numba" in refused.stderr

"""Functions are compiled once, and loaded as object code without numba; what does not fit is never read."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dagsim.families.compiled import jit

pytestmark = pytest.mark.skipif(not jit.jitted(), reason="numba is not installed")

COUNTER = np.dtype([("calls", np.int64), ("total", np.float64)])
CODE = """
import sys
import numpy as np
from dagsim.families.compiled.drive import compile_loop
from dagsim.families.compiled.choice import plan_for
from dagsim.systems.cluster.models.failures import Preemption
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


@pytest.mark.parametrize("damage", [b"", b"text", None])
def test_a_damaged_file_is_compiled_again(damage: bytes | None, folder: Path) -> None:
    o, shown = example(3), np.zeros(1)
    jit.outer(add)(o, shown)
    (path,) = folder.glob("add-*.o")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] if damage is None else damage)
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

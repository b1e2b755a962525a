"""How many instructions the kernel executes per task, in this work tree and in others. Clocks of shared machines differ
by a third from run to run; these counts repeat to a thousandth.

    python scripts/bench_instructions.py [--tree DIR ...] [--tasks 1000] [--case NAME ...] [--json]

A ``--tree`` is another checkout of dagsim, for example a ``git worktree`` of an earlier commit, whose counts are
printed beside those of this one. The cases are those of its own ``scripts/bench_kernel.py``. Each runs once to fill
caches, and then once under valgrind's callgrind, which has to be installed. Imports and the drawing of jobs are not
counted.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import command

from dagsim.errors import InputError

HERE = Path(__file__).resolve().parent.parent
DAGS, PENDING = ("fifo", "fifo-fit", "sjf", "srtf", "eft-wait"), ("fifo", "sjf", "srtf")
CASES = (*(f"dag {name}" for name in DAGS), *(f"pending {name}" for name in PENDING))
CASES += ("instances20", "set-up", "network", "failures")


def cases(tasks: int) -> dict[str, Callable[[], object]]:
    """The cases of the ``bench_kernel.py`` that comes first on the path."""
    bench: Any = import_module("bench_kernel")
    jobs, pending, wide = bench.dag_jobs(tasks), bench.single_jobs(tasks), bench.dag_jobs(tasks // 10, instances=20)
    heavy, four = bench.dag_jobs(tasks, bytes_=1e9), bench.Cluster.of({"V100": bench.GPUS})
    named: dict[str, tuple[Any, str, dict[str, Any]]] = {f"dag {name}": (jobs, name, {}) for name in DAGS}
    named |= {f"pending {name}": (pending, name, {}) for name in PENDING}
    named["instances20"] = wide, "fifo", {}
    named["set-up"] = jobs, "fifo", {"setup": bench.MovingDelay(2.0), "cluster": four}
    named["network"] = heavy, "fifo", {"network": bench.UniformNetwork(), "cluster": four}
    named["failures"] = jobs, "fifo", {"failures": (bench.NodeFailures(1e5, 1e3),), "cluster": four}
    return {name: partial(bench.simulate, listed, policy, **models) for name, (listed, policy, models) in named.items()}


def inside(tasks: int, names: list[str]) -> None:
    """Run the cases in this process, which runs under callgrind, and let it write the count of each to a file."""

    def tell(*words: str) -> None:
        subprocess.run(["callgrind_control", *words, str(os.getpid())], check=True, stdout=subprocess.DEVNULL)

    for name, run in cases(tasks).items():
        if name in names:
            try:
                run()
            except (AttributeError, TypeError):  # an earlier tree states this model in another way
                continue
            gc.collect()
            gc.disable()
            tell("--zero")
            run()
            tell(f"--dump={name}")
            gc.enable()


def counted(tree: Path, tasks: int, names: list[str]) -> dict[str, int]:
    """Instructions of each case in a tree."""
    paths = os.pathsep.join([str(tree), str(tree / "scripts")])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", sys.executable, "-P", __file__]
        more = ["--inside", "--tasks", str(tasks), *(word for name in names for word in ("--case", name))]
        try:
            subprocess.run([*words, *more], check=True, env=env, capture_output=True, text=True)
        except FileNotFoundError:
            raise InputError("valgrind is not installed") from None
        except subprocess.CalledProcessError as error:
            raise InputError(f"{tree}: valgrind ended with {error.returncode}: {error.stderr[-2000:]}") from None
        texts = [path.read_text(encoding="utf-8") for path in Path(folder).glob("out.*")]
    found = [re.search(r"Trigger: dump (.*)\n", text) for text in texts]
    sums = [re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE) for text in texts]
    return {one[1].strip(): int(total[1]) for one, total in zip(found, sums, strict=True) if one and total}


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    names = options.case or list(CASES)
    if options.inside:
        inside(options.tasks, names)
        return {}
    trees = [*map(Path, options.tree or []), HERE]
    counts = [counted(tree.resolve(), options.tasks, names) for tree in trees]
    for name in names:
        per_task = [found[name] / options.tasks if name in found else 0.0 for found in counts]
        ratios = "".join(f"  {per_task[-1] / one:6.3f} times" for one in per_task[:-1] if one)
        say(f"{name:14}" + "".join(f"{one:12,.0f}" if one else f"{'-':>12}" for one in per_task) + ratios)
    return {
        "tasks": options.tasks,
        "instructions": {str(tree): found for tree, found in zip(trees, counts, strict=True)},
    }


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--tree", action="append", help="another checkout; may be given more than once")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be given more than once")
    parser.add_argument("--inside", action="store_true", help="run the cases in this process")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

"""What the same jobs cost on other simulators: CPU microseconds per job, completion times checked to be equal.

    python scripts/bench_peers.py [--jobs 10000] [--repeats 3] [--python PATH] [--simgrid-python PATH] [--simgrid DIR]
                                  [--json] [--out FILE]

Independent jobs of one GPU on 32 GPUs, first come, first served, random arrivals at a load of .9. In turn: a bare
``heapq`` loop, dagsim's kernel and its compiled engine (full records both), a model in plain SimPy as its documentation
would have it, and those of ciw, salabim and SimGrid (C++ and Python) that are there: ``pip install ciw salabim`` for
``--python`` (salabim needs greenlet), ``apt install libsimgrid-dev python3-simgrid`` for SimGrid (``--simgrid DIR``: it
was unpacked there). The script skips peers that are not installed, and says so. Each peer is a program of its own in
``scripts/peers/``; only its simulation is measured, neither start nor reading. The figures are medians. README's table
comes from ``--out results/peers/peers.json``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from array import array
from collections.abc import Callable, Generator
from heapq import heapreplace
from math import isclose
from pathlib import Path
from shutil import which
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import command
import numpy as np
import simpy
from bench_kernel import compiled, one_node, scene_of, simulate
from clock import timed
from simpy.events import Event

from dagsim.families.compiled.jit import jitted
from dagsim.model import Job, Kind, Task

PEERS = Path(__file__).parent / "peers"
GPUS, MEAN_S, LOAD = 32, 100.0, 0.9

Ends = list[float]
"""Completion time of each job."""


class Missing(Exception):
    """A peer is missing. The message says what to install."""


class Jobs(NamedTuple):
    """The same jobs in every representation."""

    arrivals: list[float]
    works: list[float]
    jobs: list[Job]


def jobs(count: int) -> Jobs:
    rng = random.Random(7)
    now, arrivals, works = 0.0, [], []
    for _ in range(count):
        now += rng.expovariate(LOAD * GPUS / MEAN_S)
        arrivals.append(now)
        works.append(rng.expovariate(1 / MEAN_S))
    listed = [Job.single(f"j{at}", Task("t", works[at]), arrivals[at]) for at in range(count)]
    return Jobs(arrivals, works, listed)


def bare(load: Jobs) -> Ends:
    """Simulate first come, first served on equal GPUs with one heap of the times at which GPUs
    become free.
    """
    free, ends = [0.0] * GPUS, []
    for arrival_s, work in zip(load.arrivals, load.works, strict=True):
        end_s = max(arrival_s, free[0]) + work
        heapreplace(free, end_s)
        ends.append(end_s)
    return ends


def plain_simpy(load: Jobs) -> Ends:
    """Simulate with a process per job and a resource."""
    env = simpy.Environment()
    gpus = simpy.Resource(env, GPUS)
    ends = [0.0] * len(load.works)

    def execute(number: int) -> Generator[Event]:
        with gpus.request() as turn:
            yield turn
            yield env.timeout(load.works[number])
            ends[number] = env.now

    def arrive() -> Generator[Event]:
        for number, arrival_s in enumerate(load.arrivals):
            yield env.timeout(arrival_s - env.now)
            env.process(execute(number))

    env.process(arrive())
    env.run()
    return ends


def kernel(load: Jobs) -> tuple[Ends, float]:
    """Simulate with the SimPy kernel under ``fifo``, with full records."""
    simulate(load.jobs[:10], "fifo")  # imports
    schedule, spent_s = timed(lambda: simulate(load.jobs, "fifo"))
    return _ends(schedule.log.rows()), spent_s


def by_engine(load: Jobs) -> tuple[Ends, float]:
    """Simulate with the compiled engine under ``fifo``, with full records. Its columns are built
    beforehand.
    """
    if not jitted():
        raise Missing("pip install -e '.[fast]'")
    scene = scene_of(one_node(), load.jobs)
    compiled(scene_of(one_node(), load.jobs[:10]))  # compiles, where that was not done before
    rows, spent_s = timed(lambda: compiled(scene))
    return _ends(rows), spent_s


def _ends(rows: np.ndarray) -> Ends:
    finished = rows[rows["kind"] == int(Kind.FINISHED)]
    ends: Ends = finished["time_s"][np.argsort(finished["job"])].tolist()
    return ends


class Outside:
    """Run a peer in its own process. It reads jobs from a file and prints completion times and CPU
    seconds.
    """

    def __init__(self, command: Callable[[Path], list[str]], environment: dict[str, str] | None = None) -> None:
        self._command = command
        self._environment = {**os.environ, **(environment or {})}

    def __call__(self, load: Jobs) -> tuple[Ends, float]:
        with TemporaryDirectory() as name:
            folder = Path(name)
            numbers = array("d", [float(GPUS), *load.arrivals, *load.works])
            (folder / "jobs").write_bytes(numbers.tobytes())
            command = [*self._command(folder), str(folder / "jobs"), str(folder / "answer")]
            done = subprocess.run(command, env=self._environment, capture_output=True, text=True)
            if "ModuleNotFoundError" in done.stderr or "ImportError" in done.stderr:
                raise Missing(done.stderr.strip().splitlines()[-1])
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
            answer = json.loads((folder / "answer").read_text(encoding="utf-8"))
        return answer["ends"], answer["cpu_s"]


def python_peer(interpreter: str, program: str, environment: dict[str, str] | None = None) -> Outside:
    """A peer in Python."""
    return Outside(lambda folder: [interpreter, str(PEERS / program)], environment)


def simgrid_cpp(root: Path) -> Outside:
    """Compile the model in C++ and return it."""
    libraries = root / "usr" / "lib" / "x86_64-linux-gnu"

    def command(folder: Path) -> list[str]:
        if which("g++") is None or not (root / "usr" / "include" / "simgrid" / "s4u.hpp").is_file():
            raise Missing("apt install g++ libsimgrid-dev")
        flags = ["-O2", "-std=c++17", f"-I{root / 'usr' / 'include'}", f"-L{libraries}", f"-Wl,-rpath-link,{libraries}"]
        program = folder / "simgrid_fifo"
        source = str(PEERS / "simgrid_fifo.cpp")
        subprocess.run(["g++", *flags, source, "-o", str(program), "-lsimgrid"], check=True, capture_output=True)
        return [str(program), "--log=root.threshold:error"]

    return Outside(command, _found_in(root))


def _found_in(root: Path) -> dict[str, str]:
    """Search paths of programs for SimGrid unpacked below ``root``."""
    if root == Path("/"):
        return {}
    return {
        "LD_LIBRARY_PATH": str(root / "usr" / "lib" / "x86_64-linux-gnu"),
        "PYTHONPATH": str(root / "usr" / "lib" / "python3" / "dist-packages"),
    }


def peers(options: command.Options) -> dict[str, Callable[[Jobs], tuple[Ends, float]]]:
    """Return all simulators of the jobs by name."""
    return {
        "bare heapq loop": lambda load: timed(lambda: bare(load)),
        "dagsim, compiled engine": by_engine,
        "dagsim, SimPy kernel": kernel,
        "SimPy, a process per job": lambda load: timed(lambda: plain_simpy(load)),
        "SimGrid 3.32, C++ actors": simgrid_cpp(options.simgrid),
        "SimGrid 3.32, Python actors": python_peer(
            options.simgrid_python, "simgrid_fifo.py", _found_in(options.simgrid)
        ),
        "ciw": python_peer(options.python, "ciw_fifo.py"),
        "salabim": python_peer(options.python, "salabim_fifo.py"),
    }


def compare(options: command.Options) -> dict[str, float | str]:
    """CPU microseconds per job by name, or the reason why they are missing."""
    everybody, same = peers(options), jobs(options.jobs)
    expected = bare(same)
    spent: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    for _ in range(options.repeats):
        for name, run in everybody.items():
            if name in missing:
                continue
            try:
                ends, cpu_s = run(same)
            except Missing as error:
                missing[name] = f"skipped: {error}"
                continue
            wrong = [at for at, (one, other) in enumerate(zip(ends, expected, strict=True)) if not _equal(one, other)]
            if wrong:
                raise SystemExit(f"{name}: job {wrong[0]} ends at {ends[wrong[0]]!r}, not {expected[wrong[0]]!r}")
            spent.setdefault(name, []).append(1e6 * cpu_s / options.jobs)
    return {name: missing[name] if name in missing else round(median(spent[name]), 3) for name in everybody}


def _equal(one: float, other: float) -> bool:
    """True if the times are equal up to rounding of summed delays. SimGrid treats times within a
    nanosecond as equal.
    """
    return isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    costs = compare(options)
    say({f"{name}, µs per job": cost for name, cost in costs.items()})
    return {"jobs": options.jobs, "us_per_job": costs}


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has ciw and salabim")
    parser.add_argument("--simgrid-python", default="/usr/bin/python3", help="an interpreter with SimGrid's bindings")
    parser.add_argument("--simgrid", type=Path, default=Path("/"), help="where Debian's SimGrid was unpacked")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

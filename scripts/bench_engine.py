"""From which number of tasks the compiled engine is faster: processor seconds of whole commands in both engines.

    python scripts/bench_engine.py [--policy NAME ...] [--jobs 500,4000,16000] [--repeats 5] [--json] [--out FILE]
    python scripts/bench_engine.py --command eval --command baseline [--jobs 100,1000,5000,20000,100000] [--repeats 3]

Every loop of the compiled engine plays under one of its policies, in the command ``dagsim eval`` on one seed of the
workload ``steady`` with so many single-task jobs, in a process of its own. The engines run in turn, and the least of
the repeats counts. A line through the sizes gives microseconds for each task; the difference of the two lines at no
tasks is what it costs to load the engine, and where they meet it begins to pay. ``--out
dagsim/families/compiled/costs.json`` is what ``engine: auto`` goes by; with ``--policy``, other loops keep their costs.

``--command`` measures whole commands instead, on the same workload with ``engine: auto``: processor and wall seconds in
SimPy, with an empty cache (so that the run starts a compilation beside itself) and with compiled code in the cache.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from math import ceil
from time import perf_counter

import command
import numpy as np

from dagsim.families.compiled.choice import EXAMPLES, costs, plan_for
from dagsim.systems.cluster.models.kept_work import Preemption

MARGIN = 1.25
"""How much longer a run must be than where the lines meet, since both are measured."""
LEAST = 1000
"""Tasks below which nothing is compiled: in SimPy, such a run takes at most 0.3 s longer, and compiling takes 20 s."""


def whole(name: str, jobs: int, cache: str | None, engine: str) -> tuple[float, float]:
    """Processor and wall seconds of one command, with its compiled code in the folder ``cache``."""
    settings = [f"workload={{preset: steady, count: {jobs}, measure: null}}", f"engine={engine}"]
    words = [name, *(["--policy", "easy"] if name == "eval" else []), "--seeds", "1", "--quiet", "--no-plots"]
    words += [word for text in settings for word in ("--set", text)]
    environment = {**os.environ} if cache is None else {**os.environ, "NUMBA_CACHE_DIR": cache}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    with tempfile.TemporaryDirectory() as out:
        argv = [sys.executable, "-m", "dagsim", *words, "--out", out]
        subprocess.run(argv, check=True, env=environment, stdout=subprocess.DEVNULL)
        wall_s = perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def commands(options: command.Options, say: command.Say) -> dict[str, object]:
    """Measure whole commands in SimPy, with an empty cache and with compiled code, in turn."""
    results: dict[str, object] = {}
    subprocess.run([sys.executable, "-m", "dagsim", "warm", "--quiet"], check=True)
    say("CPU seconds (wall seconds), least of the runs: SimPy, auto with an empty cache, auto with compiled code")
    for name in options.command:
        for jobs in options.jobs:
            runs: dict[str, list[tuple[float, float]]] = {"simpy": [], "cold": [], "warm": []}
            for _ in range(options.repeats):
                runs["simpy"].append(whole(name, jobs, None, "simpy"))
                with tempfile.TemporaryDirectory() as cache:
                    runs["cold"].append(whole(name, jobs, cache, "auto"))
                runs["warm"].append(whole(name, jobs, None, "auto"))
            least = {way: min(measured) for way, measured in runs.items()}
            results[f"{name} {jobs}"] = least
            row = "".join(f"{cpu_s:12.2f} ({wall_s:.1f})" for cpu_s, wall_s in least.values())
            say(f"{name:9}{jobs:8,}{row}   {least['simpy'][0] / least['warm'][0]:.2f} times")
    return results


def spent_s(policy: str, engine: str, jobs: int, out: str) -> float:
    """Processor seconds of one command."""
    settings = [f"workload={{preset: steady, count: {jobs}, measure: null}}", f"engine={engine}"]
    words = ["eval", "--policy", policy, "--seeds", "1", "--quiet", "--no-plots", "--out", out]
    argv = [sys.executable, "-m", "dagsim", *words, *(word for text in settings for word in ("--set", text))]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, env={**os.environ, "DAGSIM_WARM": "0"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def costs_of(policy: str, sizes: list[int], repeats: int) -> dict[str, object]:
    """The costs of a policy in both engines."""
    spent: dict[str, list[float]] = {"simpy": [], "compiled": []}
    with tempfile.TemporaryDirectory() as out:
        for jobs in sizes:
            rounds = [{engine: spent_s(policy, engine, jobs, out) for engine in spent} for _ in range(repeats)]
            for engine in spent:
                spent[engine].append(min(one[engine] for one in rounds))
    slopes, starts = {}, {}
    for engine, seconds in spent.items():
        slopes[engine], starts[engine] = np.polyfit(sizes, seconds, 1)
    load_s = max(starts["compiled"] - starts["simpy"], 0.0)
    meet = load_s / (slopes["simpy"] - slopes["compiled"])
    return {
        "policy": policy,
        "simpy_us": round(1e6 * slopes["simpy"], 1),
        "compiled_us": round(1e6 * slopes["compiled"], 1),
        "load_s": round(load_s, 3),
        "pays": max(100 * ceil(MARGIN * meet / 100), LEAST),
        "cpu_s": {str(jobs): [round(spent[engine][place], 2) for engine in spent] for place, jobs in enumerate(sizes)},
    }


def work(options: command.Options, say: command.Say) -> dict[str, object]:
    """Measure all loops, or whole commands."""
    if options.command:
        return commands(options, say)
    results: dict[str, object] = dict(costs()) if options.policy else {}
    for policy in options.policy or EXAMPLES:
        subprocess.run([sys.executable, "-m", "dagsim", "warm", "--policy", policy, "--quiet"], check=True)
        loop = plan_for(policy, Preemption()).loop
        results[loop] = costs_of(policy, options.jobs, options.repeats)
        say({loop: results[loop]})
    return results


if __name__ == "__main__":
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--policy", action="append", choices=EXAMPLES, help="only its loop; repeatable")
    parser.add_argument("--command", action="append", choices=["eval", "baseline"], help="measure it as a whole")
    parser.add_argument("--jobs", type=command.numbers, default=[500, 4000, 16000], help="numbers of jobs")
    parser.add_argument("--repeats", type=command.at_least_one, default=5, help="commands for each number and engine")
    sys.exit(command.run(parser, work))

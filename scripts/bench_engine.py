"""From which number of tasks the compiled engine is faster: processor seconds of whole commands in both engines.

    python scripts/bench_engine.py [--policy NAME ...] [--jobs 500,4000,16000] [--repeats 5] [--json] [--out FILE]

Every loop of the compiled engine plays under one of its policies, in the command ``dagsim eval`` on one seed of the
workload ``steady`` with so many single-task jobs, in a process of its own. The engines run in turn, and the least of
the repeats counts. A line through the sizes gives microseconds for each task; the difference of the two lines at no
tasks is what it costs to load the engine, and where they meet it begins to pay. ``--out
dagsim/families/compiled/costs.json`` is what ``engine: auto`` goes by; with ``--policy``, other loops keep their costs.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from math import ceil

import command
import numpy as np

from dagsim.families.compiled.choice import EXAMPLES, costs, plan_for
from dagsim.systems.cluster.models.failures import Preemption

MARGIN = 1.25
"""How much longer a run must be than where the lines meet, since both are measured."""


def spent_s(policy: str, engine: str, jobs: int, out: str) -> float:
    """Processor seconds of one command."""
    settings = [f"workload={{preset: steady, count: {jobs}, measure: null}}", f"engine={engine}"]
    words = ["eval", "--algo", policy, "--seeds", "1", "--quiet", "--no-plots", "--out", out]
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
        "pays": max(100 * ceil(MARGIN * meet / 100), 500),
        "cpu_s": {str(jobs): [round(spent[engine][place], 2) for engine in spent] for place, jobs in enumerate(sizes)},
    }


def work(options: command.Options, say: command.Say) -> dict[str, object]:
    """Measure all loops."""
    results: dict[str, object] = dict(costs()) if options.policy else {}
    for policy in options.policy or EXAMPLES:
        subprocess.run([sys.executable, "-m", "dagsim", "warm", "--algo", policy, "--quiet"], check=True)
        loop = plan_for(policy, Preemption()).loop
        results[loop] = costs_of(policy, options.jobs, options.repeats)
        say({loop: results[loop]})
    return results


if __name__ == "__main__":
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--policy", action="append", choices=EXAMPLES, help="only its loop; repeatable")
    parser.add_argument("--jobs", type=command.numbers, default=[500, 4000, 16000], help="numbers of jobs")
    parser.add_argument("--repeats", type=command.at_least_one, default=5, help="commands for each number and engine")
    sys.exit(command.run(parser, work))

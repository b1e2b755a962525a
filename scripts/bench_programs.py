"""What a moment of a simulation costs with a scheduler of Kubernetes in another program.

    python scripts/bench_programs.py [--binary kube-scheduler] [--jobs 400] [--nodes 5] [--still]

The jobs arrive one a second, each is a pod that takes a core for 80 s, and nodes have 16 cores. For each moment, at
which pods arrive or end and the simulated clock stands still until the program has decided, the script prints the mean
real and processor milliseconds of dagsim (which serves the API) and of the program, and the real milliseconds that the
fastest tenth of the moments stay below, which hardly depend on what else the machine does. Without ``--binary``,
the program is the small scheduler of the tests, which serves kube-scheduler's metrics (this needs ``openssl``). With
``--still`` it serves none, so that dagsim waits until it has been idle for a while.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import command

from dagsim.families.kubernetes.kube.kube_scheduler import KubeScheduler
from dagsim.model import Cluster, Decision, Job, Node, Task
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.view import ClusterView

FIRST_FIT = Path(__file__).parent.parent / "tests" / "families" / "kubernetes" / "first_fit_scheduler.py"
_WARM = 20
"""Moments at the beginning that are left out, in which the program starts."""


class Stopwatch:
    """A policy whose decisions are timed."""

    def __init__(self, policy: KubeScheduler) -> None:
        self.policy, self.moments, self.now = policy, 0, -1.0
        self.spent = [0.0, 0.0, 0.0]
        """Seconds of real time, of dagsim's processor time and of the program's."""
        self._program_s = 0.0
        self.real_s: list[float] = []
        """Real time of each moment."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if view.now != self.now:
            self.moments += 1
            self.now = view.now
            self.real_s.append(0.0)
        if self.moments <= _WARM:
            self._program_s = program_s()
        before = perf_counter(), process_time()
        for decision in self.policy.decide(view):
            self._add(before)
            yield decision
            before = perf_counter(), process_time()
        self._add(before)
        self.spent[2] = program_s() - self._program_s

    def _add(self, before: tuple[float, float]) -> None:
        self.real_s[-1] += perf_counter() - before[0]
        if self.moments > _WARM:
            for place, clock in enumerate((perf_counter, process_time)):
                self.spent[place] += clock() - before[place]


def program_s() -> float:
    """Processor seconds of the programs that this process has started."""
    pids = [pid for tasks in Path("/proc/self/task").glob("*/children") for pid in tasks.read_text().split()]
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in fields) / os.sysconf("SC_CLK_TCK")


def small_scheduler(folder: Path, *, metrics: bool) -> str:
    """Write the command of the tests' scheduler, and the certificate for its metrics."""
    command_ = folder / "scheduler"
    certificate = folder / "certificate.pem"
    if metrics:
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-subj", "/CN=localhost", "-keyout", str(certificate), "-out", str(folder / "public.pem")]  # fmt: skip
        subprocess.run(words, check=True, capture_output=True)
        certificate.write_text(certificate.read_text() + (folder / "public.pem").read_text())
    set_ = f"METRICS={certificate} " if metrics else ""
    command_.write_text(f'#!/bin/sh\n{set_}exec {sys.executable} -SE {FIRST_FIT} "$@"\n')
    command_.chmod(0o755)
    return str(command_)


def _work(options: command.Options, say: command.Say) -> dict[str, float]:
    cluster = Cluster(tuple([Node(f"n{number}", cpus=16, memory_gb=64) for number in range(options.nodes)]))
    pod = Task("t", 80.0, cpus=1, memory_gb=1, gpus=0)
    jobs = [Job.single(f"j{number}", pod, float(number)) for number in range(options.jobs)]
    with TemporaryDirectory() as folder:
        binary = options.binary or small_scheduler(Path(folder), metrics=not options.still)
        watch = Stopwatch(KubeScheduler(binary))
        ClusterScenario(cluster, jobs).kernel(0).run(watch)
    moments = watch.moments - _WARM
    names = ("real_ms", "dagsim_cpu_ms", "program_cpu_ms")
    figures = dict(zip(names, [round(1000 * spent / moments, 2) for spent in watch.spent], strict=True))
    figures["real_ms, fastest tenth"] = round(1000 * quantiles(watch.real_s[_WARM:], n=10)[0], 2)
    say({"moments": moments, **figures})
    return {"moments": moments, **figures}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--binary", default="", help="a kube-scheduler")
    parser.add_argument("--jobs", type=command.at_least_one, default=400)
    parser.add_argument("--nodes", type=command.at_least_one, default=5)
    parser.add_argument("--still", action="store_true", help="a program without metrics")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())

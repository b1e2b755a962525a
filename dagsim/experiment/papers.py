"""Published tables, repeated: the figures of a paper beside ours (``dagsim paper``)."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import NamedTuple, TypedDict

import numpy as np

from dagsim.errors import InputError, TraceError, UnknownName
from dagsim.metrics import bounded_slowdown_hpc, makespan
from dagsim.model import Cluster, Job, Node
from dagsim.model.log import Schedule
from dagsim.registry import nearest
from dagsim.systems.cluster import Estimates
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces import Trace, TraceOptions, open_trace

__all__ = [
    "PAPERS",
    "OptimaReached",
    "Paper",
    "PaperFigure",
    "graph_tasks",
    "opened",
    "optima_reached",
    "paper",
    "sequence_slowdowns",
    "simulated",
]


class PaperFigure(NamedTuple):
    """One figure of a paper, and ours."""

    name: str
    published: float
    here: float
    tolerance: float
    """Half a unit of the last published digit."""

    @property
    def difference(self) -> float:
        """Ours minus the published value."""
        return self.here - self.published

    @property
    def holds(self) -> bool:
        """True if both are equal to the published digits."""
        return abs(self.difference) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper whose tables can be repeated."""

    title: str
    files: tuple[str, ...]
    """Names of the files that it needs."""
    source: str
    """Where to get them."""
    figures: Callable[[dict[str, Path]], Iterator[PaperFigure]]

    def located(self, folder: Path) -> dict[str, Path]:
        """The files, looked for below ``folder``.

        Raises:
            InputError: One is missing; the message says where to get it.
        """
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; it should hold {', '.join(self.files)} ({self.source})")
        paths: dict[str, Path] = {}
        for name in self.files:
            path = next(iter(sorted(folder.rglob(name))), None)
            if path is None:
                raise InputError(f"{folder}: {name} is not below it; {self.source}")
            paths[name] = path
        return paths


def paper(name: str) -> Paper:
    """The paper called ``name``.

    Raises:
        UnknownName: There is no such paper.
    """
    if name not in PAPERS:
        raise UnknownName(f"no paper {name!r}{nearest(name, PAPERS)}; allowed: {', '.join(PAPERS)}")
    return PAPERS[name]


# RLScheduler (Zhang et al., SC 2020, tables V and VI)


def simulated(jobs: list[Job], processors: int, policy: str) -> Schedule:
    """Run the jobs with their requested times on one machine of ``processors`` cores."""
    cluster = Cluster((Node("machine", None, 0, processors),))
    scenario = ClusterScenario(cluster, jobs, estimates=Estimates("predicted"))
    return drive(scenario.kernel(0), POLICIES.create(policy))


def opened(log: Path, processors: int, protocol: str = "pyss") -> Trace:
    """Read the log by the rules of a protocol."""
    return open_trace(log, "swf", TraceOptions(protocol=protocol, processors=processors))


_SCORES = {"FCFS": "fcfs", "SJF": "sjf", "F1": "f1"}
_LENGTH = 1024


def _starts(jobs: int, count: int = 10, seed: int = 1) -> list[int]:
    """Starts of the sequences: NumPy's old generator, seeded with a hash of the seed like Gym 0.15."""
    digest = hashlib.sha512(str(seed).encode()).digest()[:8]
    words = np.frombuffer(digest, "<u4").tolist()
    while len(words) > 1 and not words[-1]:
        words.pop()
    rng = np.random.RandomState()
    rng.seed(words)
    return [int(rng.randint(_LENGTH, jobs - _LENGTH - 1)) for _ in range(count)]


def _slowdowns(jobs: list[Job], processors: int) -> dict[str, dict[str, float]]:
    """Mean bounded slowdowns, without (``bf0``) and with backfilling (``bf1``)."""

    def mean(score: str, backfill: str) -> float:
        policy = f"committed[score={score},backfill={backfill}]"
        parts = (jobs[start : start + _LENGTH] for start in _starts(len(jobs)))
        schedules = (simulated(part, processors, policy) for part in parts)
        return float(np.mean([float(bounded_slowdown_hpc(schedule).mean()) for schedule in schedules]))

    return {
        name: {title: mean(score, backfill) for title, score in _SCORES.items()}
        for name, backfill in (("bf0", "false"), ("bf1", "true"))
    }


def _first_submit_s(trace: Path) -> float:
    """Smallest submit time of a log (its second field)."""
    opener = gzip.open if trace.suffix == ".gz" else open
    with opener(trace, "rt", encoding="utf-8", errors="replace") as lines:
        return min(float(line.split()[1]) for line in lines if line.strip() and not line.lstrip().startswith(";"))


def sequence_slowdowns(
    trace: Trace, log: Path, processors: int, first: int | None = None
) -> dict[str, dict[str, float]]:
    """Return the means over the first jobs of the log.

    Raises:
        InputError: The log has too few jobs.
    """
    first_s = _first_submit_s(log)  # F1 goes by absolute times, readers count from the first job
    jobs = sorted(trace.jobs(), key=lambda job: int(job.id))[:first]
    if len(jobs) < 2 * _LENGTH + 2:
        raise InputError(f"{log}: {len(jobs)} jobs are too few for sequences of {_LENGTH}")
    return _slowdowns([replace(job, arrival_s=job.arrival_s + first_s) for job in jobs], processors)


_HPC2N = "HPC2N-2002-2.2-cln.swf.gz"
_SLOWDOWNS = {
    "without backfilling": ("bf0", {"FCFS": 297.18, "SJF": 157.71, "F1": 118.01}),
    "with backfilling": ("bf1", {"FCFS": 127.38, "SJF": 122.04, "F1": 71.95}),
}
"""The published bounded slowdowns on HPC2N. The other logs of the tables are not pinned to a version."""


def _rlscheduler(files: dict[str, Path]) -> Iterator[PaperFigure]:
    log = files[_HPC2N]
    ours = sequence_slowdowns(opened(log, 240, "rlscheduler"), log, 240, 10_000)
    for title, (key, published) in _SLOWDOWNS.items():
        for score, value in published.items():
            yield PaperFigure(f"HPC2N, {title}, {score}: bounded slowdown", value, ours[key][score], 0.005 + 1e-6)


# Standard Task Graph set (Tobita and Kasahara 2002)


class OptimaReached(TypedDict):
    """Graphs on one number of cores."""

    graphs: int
    mean_ratio: float
    hits: int
    below_optimum: int


def against_optimum(jobs: list[Job], cores: int, optimum: dict[str, float]) -> OptimaReached:
    """Run each graph that has an optimum alone on ``cores`` cores."""
    cluster = Cluster((Node("cores", None, 0, cores),))
    ratios = []
    for job in jobs:
        if job.id in optimum:
            schedule = drive(ClusterScenario(cluster, [job]).kernel(0), POLICIES.create("critical-path"))
            ratios.append(makespan(schedule) / optimum[job.id])
    if not ratios:
        raise TraceError(f"no optimum for any of the {len(jobs)} graphs on {cores} cores")
    return {
        "graphs": len(ratios),
        "mean_ratio": mean(ratios),
        "hits": sum(abs(ratio - 1) < 1e-9 for ratio in ratios),
        "below_optimum": sum(ratio < 1 - 1e-9 for ratio in ratios),
    }


def optima(folder: Path, tasks: int) -> dict[int, dict[str, float]]:
    """For each number of cores, the optimum of each graph of ``tasks`` tasks, by the graph's name."""
    by_cores = {}
    for path in sorted(folder.glob(f"Case{tasks}_*_OPT.csv")):
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        by_cores[int(path.stem.split("_")[1])] = {Path(row[0]).stem: float(row[2]) for row in rows}
    if not by_cores:
        raise TraceError(f"{folder}: no Case{tasks}_<cores>_OPT.csv")
    return dict(sorted(by_cores.items()))


def optima_reached(jobs: list[Job], optimal: Path) -> dict[int, OptimaReached]:
    """For each number of cores, the graphs compared with their optima."""
    best = optima(optimal, graph_tasks(jobs))
    return {cores: against_optimum(jobs, cores, by_graph) for cores, by_graph in best.items()}


def graph_tasks(jobs: list[Job]) -> int:
    """Number of tasks of each graph, without the two dummies."""
    return len(jobs[0].tasks) - 2


_STG = {2: (1.0073, 98), 4: (1.0115, 97), 8: (1.0125, 141), 16: (1.0, 180)}
"""Highest level first of another program on 180 graphs of 50 tasks: mean ratio to the optimum, optima reached."""


def _stg(files: dict[str, Path]) -> Iterator[PaperFigure]:
    graphs = list(open_trace(files["stg-50.tar.gz"], "stg").jobs())
    ours = optima_reached(graphs, files["Case50_2_OPT.csv"].parent)
    for cores, (ratio, hits) in _STG.items():
        yield PaperFigure(f"50 tasks, {cores} cores: ratio to the optimum", ratio, ours[cores]["mean_ratio"], 5e-5)
        yield PaperFigure(f"50 tasks, {cores} cores: optima reached", hits, ours[cores]["hits"], 0)
        yield PaperFigure(f"50 tasks, {cores} cores: below the optimum", 0, ours[cores]["below_optimum"], 0)


PAPERS: dict[str, Paper] = {
    "rlscheduler": Paper(
        "RLScheduler (Zhang et al., SC 2020), tables V and VI: FCFS, SJF and F1 on HPC2N",
        (_HPC2N,),
        "dagsim trace fetch hpc2n",
        _rlscheduler,
    ),
    "stg": Paper(
        "Standard Task Graph set (Tobita and Kasahara 2002): highest level first against the optima",
        ("stg-50.tar.gz", *(f"Case50_{cores}_OPT.csv" for cores in _STG)),
        "graphs and optima: http://www.kasahara.cs.waseda.ac.jp/schedule/",
        _stg,
    ),
}
"""Every paper by name."""

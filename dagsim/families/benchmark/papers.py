"""Reproduce published tables, and compare the values in a paper with dagsim's own (``dagsim
paper``)."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryFile
from typing import NamedTuple, TypedDict

import numpy as np

import dagsim
from dagsim.errors import InputError, TraceError, UnknownName
from dagsim.metrics import bounded_slowdown, makespan
from dagsim.model import Cluster, Job, Kind, Node
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.log import Schedule
from dagsim.spelling import choices
from dagsim.systems.cluster import Estimates
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces import Trace, TraceOptions, open_trace


class PaperFigure(NamedTuple):
    """A value that was published in a paper or computed by another program, and the same value as
    computed by dagsim.
    """

    name: str
    published: float
    here: float
    tolerance: float = 1e-9
    """The largest difference that is allowed: half a unit of the last published digit, or what the
    check of the paper allows. 1e-9 of the published value is always allowed for rounding."""

    @property
    def difference(self) -> float:
        """The value of dagsim minus the published value."""
        return self.here - self.published

    @property
    def holds(self) -> bool:
        """True if the difference is allowed."""
        return abs(self.difference) <= self.tolerance + 1e-9 * abs(self.published)


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper whose tables can be reproduced."""

    title: str
    files: tuple[str, ...]
    """Names of the files that it needs, or paths below the folder."""
    source: str
    """Where to get the files."""
    figures: Callable[[dict[str, Path]], Iterator[PaperFigure]]
    whole: bool = True
    """True if every value needs all files; otherwise each file has its own values."""

    def located(self, folder: Path) -> dict[str, Path]:
        """Return those of the paper's files that are below ``folder``.

        Raises:
            InputError: None of the files is there, or a file that every value needs is missing.
                The message states where to get it.
        """
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; it should contain {', '.join(self.files)} ({self.source})")
        places_of = {name: [folder / name] if "/" in name else sorted(folder.rglob(name)) for name in self.files}
        paths = {name: path for name, places in places_of.items() for path in places[:1] if path.exists()}
        missing = [name for name in self.files if name not in paths]
        if missing and (self.whole or not paths):
            raise InputError(f"{folder}: does not contain {missing[0]}; where to get it: {self.source}")
        return paths


def paper(name: str) -> Paper:
    """Return the paper called ``name``.

    Raises:
        UnknownName: There is no such paper.
    """
    if name not in PAPERS:
        raise UnknownName(f"no paper {name!r}{choices(name, PAPERS, both=True)}")
    return PAPERS[name]


# RLScheduler (Zhang et al., SC 2020, tables V and VI)


def simulated(jobs: list[Job], processors: int, policy: str) -> Schedule:
    """Simulate the jobs on one machine with ``processors`` cores. Estimates are the requested
    times.
    """
    cluster = Cluster((Node("machine", None, 0, processors),))
    scenario = ClusterScenario(cluster, jobs, estimates=Estimates("predicted"))
    return drive(scenario.kernel(0), POLICIES.create(policy))


def opened(log: Path, processors: int, protocol: str = "pyss") -> Trace:
    """Open the log with the rules of a protocol."""
    return open_trace(log, "swf", TraceOptions(protocol=protocol, processors=processors))


_SCORES = {"FCFS": "fcfs", "WFP3": "wfp3", "UNI": "uni", "SJF": "sjf", "F1": "f1"}
SCORES = tuple(_SCORES)
"""The policies of RLScheduler's tables, by their titles there."""
_LENGTH = 1024


class SequenceMeans(NamedTuple):
    """Means over the sequences of a log, under one policy."""

    slowdown: float
    """Mean bounded slowdown."""
    utilization: float
    """Work / (processors x time from the first submission to the last start)."""


def sequence_starts(jobs: int, count: int = 10, seed: int = 1) -> list[int]:
    """Draw the starts of the sequences. As in Gym 0.15, they come from NumPy's old generator, which
    is seeded with a hash of the seed."""
    digest = hashlib.sha512(str(seed).encode()).digest()[:8]
    words = np.frombuffer(digest, "<u4").tolist()
    while len(words) > 1 and not words[-1]:
        words.pop()
    rng = np.random.RandomState()
    rng.seed(words)
    return [int(rng.randint(_LENGTH, jobs - _LENGTH - 1)) for _ in range(count)]


def _first_submit_s(trace: Path) -> float:
    """Return the smallest submit time of a log (its second field)."""
    opener = gzip.open if trace.suffix == ".gz" else open
    with opener(trace, "rt", encoding="utf-8", errors="replace") as lines:
        return min(float(line.split()[1]) for line in lines if line.strip() and not line.lstrip().startswith(";"))


def sequence_jobs(trace: Trace, log: Path) -> list[Job]:
    """Return the jobs in a log, sorted by number. Their times are absolute, because the policy F1
    needs absolute times.
    """
    first_s = _first_submit_s(log)
    return [
        replace(job, arrival_s=job.arrival_s + first_s) for job in sorted(trace.jobs(), key=lambda job: int(job.id))
    ]


def sequence_means(
    trace: Trace, log: Path, processors: int, first: int | None = None, titles: Collection[str] = SCORES
) -> dict[str, dict[str, SequenceMeans]]:
    """Return the means over the first jobs of the log for the policies with these ``titles``,
    without (``bf0``) and with backfilling (``bf1``).

    Raises:
        InputError: The log has too few jobs.
    """
    jobs = sequence_jobs(trace, log)[:first]
    if len(jobs) < 2 * _LENGTH + 2:
        raise InputError(f"{log}: the log has {len(jobs)} jobs, which are too few for sequences of {_LENGTH}")

    def means(score: str, backfill: str) -> SequenceMeans:
        policy = f"committed[score={score},backfill={backfill}]"
        slowdowns, shares = [], []
        for start in sequence_starts(len(jobs)):
            part = jobs[start : start + _LENGTH]
            schedule = simulated(part, processors, policy)
            slowdowns.append(float(bounded_slowdown(schedule).mean()))
            rows = schedule.log.rows()
            span_s = float(rows["time_s"][rows["kind"] == Kind.STARTED].max()) - part[0].arrival_s
            work = ordered_sum([job.tasks[0].work * job.tasks[0].instances for job in part])
            shares.append(work / (span_s * processors))
        return SequenceMeans(float(np.mean(slowdowns)), float(np.mean(shares)))

    return {
        name: {title: means(score, backfill) for title, score in _SCORES.items() if title in titles}
        for name, backfill in (("bf0", "false"), ("bf1", "true"))
    }


def sequence_slowdowns(
    trace: Trace, log: Path, processors: int, first: int | None = None, titles: Collection[str] = SCORES
) -> dict[str, dict[str, float]]:
    """Return the mean bounded slowdowns of ``sequence_means``."""
    means = sequence_means(trace, log, processors, first, titles)
    return {name: {title: mean.slowdown for title, mean in row.items()} for name, row in means.items()}


class _Log(NamedTuple):
    """A log in the tables of RLScheduler, with its published values in the order of ``_SCORES``.
    They are bounded slowdowns (table V) and utilisations (table VI), without and with backfilling.
    """

    title: str
    processors: int
    first: int | None
    slowdowns: tuple[tuple[float, ...], tuple[float, ...]]
    utilizations: tuple[tuple[float, ...], tuple[float, ...]]


_LOGS = {
    "lublin_256.swf.gz": _Log(
        "Lublin-1",
        256,
        None,
        ((7273.77, 19753.53, 22274.74, 277.35, 258.37), (235.82, 133.87, 307.23, 73.31, 75.07)),
        ((0.657, 0.747, 0.691, 0.762, 0.816), (0.868, 0.864, 0.883, 0.778, 0.840)),
    ),
    "SDSC-SP2-1998-4.2-cln.swf.gz": _Log(
        "SDSC-SP2",
        128,
        None,
        ((1727.54, 3000.88, 1848.45, 2680.55, 1232.06), (1595.12, 1083.12, 548.01, 2167.84, 1098.22)),
        ((0.670, 0.658, 0.688, 0.645, 0.674), (0.682, 0.681, 0.706, 0.661, 0.677)),
    ),
    "HPC2N-2002-2.2-cln.swf.gz": _Log(
        "HPC2N",
        240,
        10_000,
        ((297.18, 426.99, 609.77, 157.71, 118.01), (127.38, 97.39, 175.12, 122.04, 71.95)),
        ((0.638, 0.636, 0.636, 0.640, 0.637), (0.639, 0.637, 0.638, 0.641, 0.638)),
    ),
    "lublin_256_new2.swf.gz": _Log(
        "Lublin-2",
        256,
        None,
        ((7842.47, 9523.18, 11265.31, 787.89, 698.34), (247.61, 318.35, 379.59, 91.99, 148.25)),
        ((0.404, 0.543, 0.510, 0.562, 0.478), (0.587, 0.583, 0.587, 0.593, 0.552)),
    ),
}


def _rlscheduler(files: dict[str, Path]) -> Iterator[PaperFigure]:
    for name, path in files.items():
        log = _LOGS[name]
        ours = sequence_means(opened(path, log.processors, "rlscheduler"), path, log.processors, log.first)
        for place, (key, title) in enumerate((("bf0", "without backfilling"), ("bf1", "with backfilling"))):
            for at, score in enumerate(_SCORES):
                means, where = ours[key][score], f"{log.title}, {title}, {score}"
                yield PaperFigure(f"{where}: bounded slowdown", log.slowdowns[place][at], means.slowdown, 0.005 + 1e-6)
                yield PaperFigure(
                    f"{where}: utilisation", log.utilizations[place][at], means.utilization, 0.0005 + 1e-6
                )


# Standard Task Graph set (Tobita and Kasahara 2002)


class OptimaReached(TypedDict):
    """The makespans of all graphs on one number of cores, compared with the optima."""

    graphs: int
    mean_ratio: float
    hits: int
    below_optimum: int


def against_optimum(jobs: list[Job], cores: int, optimum: dict[str, float]) -> OptimaReached:
    """Run each graph with a known optimum alone on ``cores`` cores."""
    cluster = Cluster((Node("cores", None, 0, cores),))
    ratios = []
    for job in jobs:
        if job.id in optimum:
            schedule = drive(ClusterScenario(cluster, [job]).kernel(0), POLICIES.create("critical-path"))
            ratios.append(makespan(schedule) / optimum[job.id])
    if not ratios:
        raise TraceError(f"the folder contains no optimum for any of the {len(jobs)} graphs on {cores} cores")
    return {
        "graphs": len(ratios),
        "mean_ratio": mean(ratios),
        "hits": sum(abs(ratio - 1) < 1e-9 for ratio in ratios),
        "below_optimum": sum(ratio < 1 - 1e-9 for ratio in ratios),
    }


def optima(folder: Path, tasks: int) -> dict[int, dict[str, float]]:
    """Return, for each number of cores, the optimum of each graph with ``tasks`` tasks, by the name
    of the graph."""
    by_cores = {}
    for path in sorted(folder.glob(f"Case{tasks}_*_OPT.csv")):
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        by_cores[int(path.stem.split("_")[1])] = {Path(row[0]).stem: float(row[2]) for row in rows}
    if not by_cores:
        raise TraceError(f"{folder}: there is no Case{tasks}_<cores>_OPT.csv")
    return dict(sorted(by_cores.items()))


def optima_reached(jobs: list[Job], optimal: Path) -> dict[int, OptimaReached]:
    """Compare the results on the graphs with the optima, for each number of cores."""
    best = optima(optimal, graph_tasks(jobs))
    return {cores: against_optimum(jobs, cores, by_graph) for cores, by_graph in best.items()}


def graph_tasks(jobs: list[Job]) -> int:
    """Return the number of tasks in each graph, without the two dummy tasks."""
    return len(jobs[0].tasks) - 2


_STG = {2: (1.0073, 98), 4: (1.0115, 97), 8: (1.0125, 141), 16: (1.0, 180)}
"""Results of another program (highest level first) on 180 graphs of 50 tasks: mean ratio to the
optimum, number of optima reached."""


def _stg(files: dict[str, Path]) -> Iterator[PaperFigure]:
    graphs = list(open_trace(files["stg-50.tar.gz"], "stg").jobs())
    ours = optima_reached(graphs, files["Case50_2_OPT.csv"].parent)
    for cores, (ratio, hits) in _STG.items():
        yield PaperFigure(f"50 tasks, {cores} cores: ratio to the optimum", ratio, ours[cores]["mean_ratio"], 5e-5)
        yield PaperFigure(f"50 tasks, {cores} cores: optima reached", hits, ours[cores]["hits"], 0)
        yield PaperFigure(f"50 tasks, {cores} cores: below the optimum", 0, ours[cores]["below_optimum"], 0)


# Papers whose results are reproduced by a program in a checkout


def _by_program(name: str) -> Callable[[dict[str, Path]], Iterator[PaperFigure]]:
    """Yield the values that ``scripts/validate_all.py --paper NAME`` prints, one JSON list per line."""

    def figures(files: dict[str, Path]) -> Iterator[PaperFigure]:
        script = Path(dagsim.__file__).parents[1] / "scripts" / "validate_all.py"
        if not script.is_file():
            raise InputError(
                f"paper {name}: the scripts for it are not installed; run the command in a checkout of dagsim"
            )
        place, path = next(iter(files.items()))
        data = path.parents[len(Path(place).parts) - 1]
        words = [sys.executable, str(script), "--data", str(data), "--paper", name]
        # Use a file instead of a second pipe, because the program would block once that pipe is full.
        with TemporaryFile("w+", encoding="utf-8") as errors:
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8") as program:
                assert program.stdout
                for line in program.stdout:
                    yield PaperFigure(*json.loads(line))
            if program.returncode:
                errors.seek(0)
                raise InputError(errors.read().rstrip("\n"))

    return figures


def _scripted(name: str, title: str, source: str, *files: str) -> Paper:
    return Paper(title, files, source, _by_program(name))


def _rltune(files: dict[str, Path]) -> Iterator[PaperFigure]:
    from dagsim.families.benchmark.rltune import figures

    yield from figures(files)


_ELASTIC = "golden/elastic"

PAPERS: dict[str, Paper] = {
    "decima": _scripted(
        "decima",
        "Decima (Mao et al., SIGCOMM 2019): fair and FIFO on TPC-H, as simulated by spark-sched-sim",
        "results of https://github.com/ArchieGertsman/spark-sched-sim; profiles: dagsim trace fetch tpch",
        *("golden/decima", "traces/tpch-decima"),
    ),
    "fgd": _scripted(
        "fgd",
        "FGD (Weng et al., ATC 2023): GPUs allocated, 17 workloads x 6 policies",
        "dagsim trace fetch openb2023; the variants are in the same repository",
        *("traces/alibaba-gpu-v2023",),
    ),
    "gavel": _scripted(
        "gavel",
        "Gavel (Narayanan et al., OSDI 2020): jobs of its simulator",
        "results of https://github.com/stanford-futuredata/gavel at c4fa4009",
        *(f"{_ELASTIC}/gavel", f"{_ELASTIC}/inputs/gavel"),
    ),
    "pac-ml": _scripted(
        "pac-ml",
        "PAC-ML (Parsonson et al., 2023): look-aheads, episodes and blocking rates of ddls",
        "results of https://github.com/cwfparsonson/ddls; graphs: dagsim trace fetch pipedream",
        *("golden/ddls", "traces/pipedream"),
    ),
    "pollux": _scripted(
        "pollux",
        "Pollux (Qiao et al., OSDI 2021): Tiresias and Optimus in its simulator, job by job",
        "https://github.com/petuum/adaptdl, branch osdi21-artifact",
        *(f"{_ELASTIC}/pollux", f"{_ELASTIC}/inputs/pollux"),
    ),
    "shockwave": _scripted(
        "shockwave",
        "Shockwave (Zheng et al., NSDI 2023): 120 jobs on 32 GPUs, measured on hardware",
        "https://github.com/uw-mad-dash/shockwave",
        *(f"{_ELASTIC}/shockwave", f"{_ELASTIC}/inputs/shockwave"),
    ),
    "sia": _scripted(
        "sia",
        "Sia (Jayaram Subramanya et al., SOSP 2023): optima of its integer program",
        "https://github.com/siasosp23/artifacts",
        *(f"{_ELASTIC}/sia",),
    ),
    "tiresias": _scripted(
        "tiresias",
        "Tiresias (Gu et al., NSDI 2019): jobs of its simulator, run by run",
        "results of https://github.com/SymbioticLab/Tiresias at 959f9b08",
        *(f"{_ELASTIC}/tiresias", f"{_ELASTIC}/inputs/tiresias"),
    ),
    "rlscheduler": Paper(
        "RLScheduler (Zhang et al., SC 2020), tables V and VI: five heuristics on four logs",
        tuple(_LOGS),
        "HPC2N: dagsim trace fetch hpc2n; SDSC-SP2: https://www.cs.huji.ac.il/labs/parallel/workload/l_sdsc_sp2/; "
        "Lublin: data/ in https://github.com/DIR-LAB/deep-batch-scheduler (gzip them)",
        _rlscheduler,
        whole=False,
    ),
    "rltune": Paper(
        "RLTune (Dongare et al., SoCC 2025): its largest gains, and those of heuristics on Philly",
        ("philly_pollux.csv.gz",),
        "sia-simulator/traces/philly.csv in https://github.com/siasosp23/artifacts (gzip it under this name)",
        _rltune,
    ),
    "stg": Paper(
        "Standard Task Graph set (Tobita and Kasahara 2002): highest level first against the optima",
        ("stg-50.tar.gz", *(f"Case50_{cores}_OPT.csv" for cores in _STG)),
        "graphs and optima: http://www.kasahara.cs.waseda.ac.jp/schedule/",
        _stg,
    ),
}
"""Every paper by name."""

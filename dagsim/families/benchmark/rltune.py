"""RLTune (Dongare et al., SoCC 2025, arXiv 2512.10271): its claims, and the gains of heuristics in
its setting on Philly.

The paper describes the setting as follows. The cluster has 16 nodes with 2 GPUs and 20 nodes with 8
GPUs, and no job uses both kinds. A sequence consists of 256 consecutive jobs from a random place in
the trace, and starts on an empty cluster. The baseline is first come, first served, where the first
job blocks all others. The agent sees true durations. The paper uses a selection of the Philly jobs,
which is not published (the repository stores only a pointer to the file). Therefore, this module
uses all Philly jobs that fit, as recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dagsim.families.benchmark.papers import PaperFigure
from dagsim.metrics import summarize
from dagsim.model import Cluster, Job, Node, gpu_type
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster import Estimates
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces import open_trace

FILE = "philly_pollux.csv.gz"
LENGTH, SEQUENCES = 256, 10
TUNING, COMPARED = 1, 2
"""Seeds of the sequences on which heuristics are chosen, and of those on which they are compared."""
_NODES = ((16, 2), (20, 8))
_BASELINE = "committed"
EXACT = ("committed[score=sjf]", "committed[score=fcfs,backfill=true]", "easy", "sjf", "saf", "srpt-work", "fifo-fit")
"""Heuristics that do not stop running jobs. They know the true durations, as RLTune's agent does."""
HIDDEN = ("fifo-fit", "qssf", "las", "2d-las", "2d-gittins", "tiresias[thresholds=600.0]", "tiresias")
"""Heuristics that know no durations. Returning to a stopped job costs ``RESTART_S``."""
RESTART_S = 60.0


class Gains(NamedTuple):
    """Savings of a policy compared with the baseline on one sequence, as fractions."""

    jct: float
    wait: float
    gpus: float
    """Growth of the utilisation, up to the end of the last job."""


def cluster() -> Cluster:
    """Return the cluster, whose two kinds of node count as two GPU types of equal speed."""
    nodes = []
    for count, gpus in _NODES:
        kind = replace(gpu_type("P100"), name=f"P100-{gpus}")
        nodes += [Node(f"p{gpus}-{number}", kind, gpus) for number in range(count)]
    return Cluster(tuple(nodes), "rltune-philly")


def sequences(path: Path, seed: int, count: int = SEQUENCES) -> list[list[Job]]:
    """Return ``count`` sequences of consecutive jobs from random places in the trace, with the
    recorded times between arrivals.
    """
    most = max(nodes * gpus for nodes, gpus in _NODES)
    jobs = [
        job for job in open_trace(path).jobs() if ordered_sum(t.gpus * t.instances for t in job.graph.tasks) <= most
    ]
    starts = np.random.default_rng(seed).integers(len(jobs) - LENGTH, size=count).tolist()
    return [
        [replace(job, arrival_s=job.arrival_s - jobs[start].arrival_s) for job in jobs[start : start + LENGTH]]
        for start in starts
    ]


def run_sequence(jobs: list[Job], policy: str, estimates: str) -> tuple[float, float, float]:
    """Return the mean completion time, the mean wait and the utilisation under a policy."""
    preemption = Preemption(restart_s=RESTART_S)
    scenario = ClusterScenario(cluster(), jobs, estimates=Estimates(estimates), preemption=preemption)  # type: ignore[arg-type]
    summary = summarize(drive(scenario.kernel(0), POLICIES.create(policy)))
    return summary.jct_s.mean, summary.wait_s.mean, summary.utilization


def gains(sequence: list[Job], policies: Sequence[str], estimates: str) -> dict[str, Gains]:
    """Return how much each policy gains over the baseline on a sequence."""
    base = run_sequence(sequence, _BASELINE, "exact")
    saved = {}
    for policy in policies:
        jct_s, wait_s, utilization = run_sequence(sequence, policy, estimates)
        saved[policy] = Gains(1 - jct_s / base[0], 1 - wait_s / base[1] if base[1] else 0.0, utilization / base[2] - 1)
    return saved


PUBLISHED = Gains(0.70, 0.81, 0.20)
"""From the abstract: each is the largest gain over all traces and baselines (up to)."""
_NEAR = 0.05


def figures(files: dict[str, Path]) -> Iterator[PaperFigure]:
    """Yield the largest gains of the best heuristic, for comparison with the largest published
    gains. The best heuristic is chosen by its mean completion time on other sequences.
    """
    (path,) = files.values()
    for estimates, policies in (("exact", EXACT), ("hidden", HIDDEN)):
        tried = [gains(sequence, policies, estimates) for sequence in sequences(path, TUNING)]
        best = max(policies, key=lambda policy: ordered_sum([saved[policy].jct for saved in tried]))
        on = [gains(sequence, (best,), estimates)[best] for sequence in sequences(path, COMPARED)]
        titles = ("mean completion time saved", "mean wait saved", "utilisation gained")
        for title, published, values in zip(titles, PUBLISHED, zip(*on, strict=True), strict=True):
            mean = ordered_sum(values) / len(values)
            name = f"{title}, most of {len(on)} (mean {mean:.3f}): {best}, durations {estimates}"
            yield PaperFigure(name, published, max(values), _NEAR)

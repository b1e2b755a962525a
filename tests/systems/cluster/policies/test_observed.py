"""The recorded policy gives back the schedule that a log shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dagsim.metrics import columns
from dagsim.model import Cluster, Job, Node, Task, gpu_type
from dagsim.model.schedule import Schedule
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.traces import open_trace


def replayed(cluster: Cluster, jobs: list[Job]) -> Schedule:
    return ClusterKernel(cluster, jobs, runtime=Recorded()).run(POLICIES.create("recorded"))


def starts(schedule: Schedule) -> dict[str, list[tuple[float, float, str]]]:
    """Per job: start, end and node of its runs."""
    made = columns(schedule)
    runs, found = made.runs, {}
    for job, start, end, node in zip(runs.job, runs.start_s, runs.end_s, runs.node, strict=True):
        found.setdefault(made.jobs.ids[job], []).append((start, end, schedule.cluster.nodes[node].name))
    return found


def test_jobs_start_when_and_where_they_were_seen_to() -> None:
    nodes = tuple(Node(name, gpu_type(gpu), 2) for name, gpu in (("fast", "A100-40"), ("slow", "T4")))
    jobs = [
        Job.single("a", Task("t", 10), observed_start_s=7, observed_nodes=("slow",)),
        Job.single("b", Task("t", 10), observed_start_s=3, observed_nodes=("elsewhere",)),
        Job.single("c", Task("t", 10), arrival_s=5),
    ]
    assert starts(replayed(Cluster(nodes), jobs)) == {
        "a": [(7, 17, "slow")],
        "b": [(3, 13, "fast")],  # on no node of the cluster: by best fit
        "c": [(5, 15, "fast")],  # nothing was observed
    }


def test_a_gang_is_spread_as_it_was() -> None:
    cluster = Cluster(tuple(Node(f"n{n}", gpu_type("T4"), 4) for n in range(3)))
    job = Job.single("a", Task("t", 10, instances=4, gang=True), observed_start_s=1, observed_nodes=("n1", "n2"))
    assert starts(replayed(cluster, [job])) == {"a": [(1, 11, "n1"), (1, 11, "n2")]}


def test_what_finds_no_room_starts_late_and_oldest_first() -> None:
    jobs = [Job.single(f"j{n}", Task("t", 10), observed_start_s=n) for n in range(3)]
    found = starts(replayed(Cluster.of({"T4": 1}, per_node=1), jobs))
    assert [found[f"j{n}"][0][0] for n in range(3)] == [0, 10, 20]


@pytest.mark.data
@pytest.mark.parametrize("run", ["multifactor-fairtree-24.11", "multifactor-classic-22.05", "arrays-24.11"])
def test_a_real_run_of_slurm_is_given_back_to_the_second(data: Path, run: str) -> None:
    # nodes as scontrol-show-nodes.txt has them
    a100, v100 = ([Node(f"{kind}00{n}", gpu_type(name), 8, 64, 500) for n in (1, 2)] for kind, name in
                  (("a", "A100-40"), ("v", "V100-16")))  # fmt: skip
    jobs = list(open_trace(data / "golden" / "slurm" / run / "sacct-aDX.txt").jobs())
    schedule = replayed(Cluster((*a100, *v100)), jobs)
    first = {id: min(start for start, _, _ in runs) for id, runs in starts(schedule).items()}
    last = {id: max(end for _, end, _ in runs) for id, runs in starts(schedule).items()}
    assert np.array([first[job.id] - (job.observed_start_s or 0) for job in jobs]) == pytest.approx(0, abs=1e-6)
    assert [last[job.id] - first[job.id] for job in jobs] == pytest.approx([job.tasks[0].work for job in jobs])

"""The recorded policy gives back the schedule that a log shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagsim.config.schema import load_config
from dagsim.families.site.cluster_file import cluster_yaml
from dagsim.families.site.node_lists import grouped, read_nodes
from dagsim.metrics import columns
from dagsim.model import Cluster, Job, Kind, Node, Task, gpu_type
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.traces import open_trace
from dagsim.traces.source import Source


def replayed(cluster: Cluster, jobs: list[Job]) -> Schedule:
    return ClusterKernel(cluster, jobs, Models(runtime=Recorded())).run(POLICIES.create("recorded"))


def starts(schedule: Schedule) -> dict[str, list[tuple[float, float, str]]]:
    """Per job: start, end and node of its runs."""
    cols = columns(schedule)
    runs, spans = cols.runs, {}
    for job, start, end, node in zip(runs.job, runs.start_s, runs.end_s, runs.node, strict=True):
        spans.setdefault(cols.jobs.ids[job], []).append((start, end, schedule.cluster.nodes[node].name))
    return spans


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
    spans = starts(replayed(Cluster.of({"T4": 1}, per_node=1), jobs))
    assert [spans[f"j{n}"][0][0] for n in range(3)] == [0, 10, 20]


@pytest.mark.data
@pytest.mark.parametrize(
    "run",
    [
        "arrays-24.11",
        "backfill-nodes-24.11",
        "backfill-nodes-again-24.11",
        "multifactor-classic-22.05",
        "multifactor-fairtree-24.11",
        "preempt-24.11",
        "states-22.05",
        "states-24.11",
    ],
)
def test_a_real_run_of_slurm_is_given_back_to_the_second_on_its_own_nodes(data: Path, tmp_path: Path, run: str) -> None:
    folder = data / "golden" / "slurm" / run
    imported = grouped(read_nodes(Source(folder / "scontrol-show-nodes.txt")), {"gpu": "T4"}, keep_all=True)
    (tmp_path / "cluster.yaml").write_text(cluster_yaml(imported, "own", run))
    jobs = list(open_trace(folder / "sacct-aDX.txt").jobs())
    schedule = replayed(load_config(tmp_path / "cluster.yaml").build_cluster(), jobs)
    spans = starts(schedule)
    first = [min(start for start, _, _ in spans[job.id]) for job in jobs]
    last = [max(end for _, end, _ in spans[job.id]) for job in jobs]
    late = sum(start != job.observed_start_s for start, job in zip(first, jobs, strict=True))
    # Waits are those of first attempts, run times those of last ones: where jobs were requeued, others start later.
    assert late == (6 if run == "preempt-24.11" else 0)
    worked = [max(task.work for task in job.tasks) for job in jobs]
    assert [end - start for start, end in zip(first, last, strict=True)] == worked


def test_a_gang_that_does_not_spread_evenly_fills_one_node_after_the_other() -> None:
    # n0 has one GPU free when "a" starts, n1 has three: two each do not fit
    nodes = tuple(Node(name, gpu_type("T4"), gpus) for name, gpus in (("n0", 2), ("n1", 3)))
    jobs = [
        Job.single("first", Task("t", 10), observed_start_s=0, observed_nodes=("n0",)),
        Job.single("a", Task("t", 10, instances=4, gang=True), observed_start_s=1, observed_nodes=("n0", "n1")),
    ]
    schedule = replayed(Cluster(nodes), jobs)
    held = [(row.node, row.instances) for row in schedule.log if row.kind == Kind.STARTED and row.job == 1]
    assert held == [(0, 1), (1, 3)]

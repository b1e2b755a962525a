"""The recorded policy gives back real runs of Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest
from systems.cluster.policies.observed import replayed, spans_of

from dagsim.config.schema import load_config
from dagsim.families.site.cluster_file import cluster_yaml
from dagsim.families.site.node_lists import grouped, read_nodes
from dagsim.traces import open_trace
from dagsim.traces.source import Source


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
    spans = spans_of(schedule)
    first = [min(start for start, _, _ in spans[job.id]) for job in jobs]
    last = [max(end for _, end, _ in spans[job.id]) for job in jobs]
    late = sum(start != job.observed_start_s for start, job in zip(first, jobs, strict=True))
    # Waits are those of first attempts, run times those of last ones: where jobs were requeued, others start later.
    assert late == (6 if run == "preempt-24.11" else 0)
    worked = [max(task.work for task in job.tasks) for job in jobs]
    assert [end - start for start, end in zip(first, last, strict=True)] == worked

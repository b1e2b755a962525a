"""The machines of ``configs/systems`` against the numbers of their sites, which each file names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagsim.config.bundled import find_config, shipped
from dagsim.config.schema import load_config
from dagsim.experiment.simulate import run_policy

MACHINES = {
    "daint": (1_022, {"GH200": 4_088}, 86_400),
    "delta": (132 + 100 + 100 + 6 + 8 + 1, {"A100-40": 448, "A40": 400, "H200": 64, "MI100": 9}, 172_800),
    "frontier": (9_856, {"MI250X-GCD": 78_848}, 43_200),
    "leonardo": (3_456 + 1_536, {"A100-64": 13_824}, 86_400),
    "lumi": (2_978, {"MI250X-GCD": 23_824}, 172_800),
    "perlmutter": (1_792 + 3_072, {"A100-40": 6_144, "A100-80": 1_024}, 172_800),
    "polaris": (560, {"A100-40": 2_240}, 86_400),
    "vista": (856, {"GH200": 600}, 172_800),
}
"""Nodes, GPUs by type, and the time limit in s of the first partition, as the sites' pages give them."""


LARGEST = {
    "daint": {"debug": 2},
    "delta": {"gpuA100x4-interactive": 4, "gpuA100x8-interactive": 2, "gpuH200x8": 1, "cpu-interactive": 4},
    "frontier": {"batch": 9_472, "extended": 64},
    "leonardo": {"dcgp_usr_prod": 16},
    "lumi": {"standard-g": 1_024, "small-g": 4, "dev-g": 32},
    "polaris": {"small": 24, "medium": 99, "large": 496, "demand": 56, "debug-scaling": 10, "capacity": 4},
    "vista": {"gh": 64, "gh-dev": 8, "gg": 32},
}
"""Nodes of the largest job in some partitions, as the sites' pages give them."""


def test_every_shipped_machine_has_its_numbers_here() -> None:
    assert {name for name in shipped("configs") if name.startswith("systems/")} == {
        f"systems/{name}" for name in MACHINES
    }


@pytest.mark.parametrize("name", MACHINES)
def test_a_shipped_machine_has_the_nodes_gpus_and_limit_of_its_site(name: str) -> None:
    nodes, gpus, limit_s = MACHINES[name]
    config = load_config(find_config(f"systems/{name}"))
    cluster = config.build_cluster()
    counts: dict[str, int] = {}
    for node in cluster.nodes:
        if node.gpu is not None:
            counts[node.gpu.name] = counts.get(node.gpu.name, 0) + node.gpus
    assert (len(cluster.nodes), counts) == (nodes, gpus)
    partitions = () if config.queues is None else config.queues.partitions
    assert (partitions[0].max_time_s if partitions else None) == limit_s


@pytest.mark.parametrize("name", LARGEST)
def test_a_shipped_machine_limits_the_nodes_of_a_job_as_its_site_does(name: str) -> None:
    queues = load_config(find_config(f"systems/{name}")).queues
    assert queues is not None
    limits = {part.name: part.job_limits.nodes for part in queues.partitions}
    assert {part: limits[part] for part in LARGEST[name]} == LARGEST[name]


@pytest.mark.parametrize("name", MACHINES)
def test_a_shipped_machine_names_its_sources_with_a_date(name: str) -> None:
    head = Path(find_config(f"systems/{name}")).read_text(encoding="utf-8").partition("\ncluster:")[0]
    assert re.search(r"Source: https://", head)
    assert re.search(r"20\d\d-\d\d-\d\d", head)


@pytest.mark.parametrize("name", MACHINES)
def test_a_shipped_machine_runs_its_jobs_to_the_end(name: str) -> None:
    config = load_config(find_config(f"systems/{name}"), ["workload.count=12"])
    summary = run_policy(config, "easy", seed=0).summary
    assert (summary.jobs_completed, summary.jobs_unfinished) == (12, 0)

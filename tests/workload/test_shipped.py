from __future__ import annotations

from pathlib import Path

import make_workloads
import pytest

from dagsim.model import Cluster
from dagsim.systems.cluster.models.runtime import Throughput
from dagsim.workload import offered_load
from dagsim.workload.records import read_jobs, read_meta

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "count"), [("heterogeneous-100.jsonl", 100), ("dag-50.jsonl", 50)])
def test_shipped_workloads_offer_what_they_say(name, count):
    jobs = list(read_jobs(ROOT / "workloads" / name))
    load = offered_load(jobs, Cluster.of({"A100-40": 8, "V100-16": 8, "T4": 16}), Throughput(), whole=True)
    assert len(jobs) == count
    assert load.offered == pytest.approx(0.9, rel=1e-9)
    assert read_meta(ROOT / "workloads" / name)["assumptions"]["load"].startswith("0.9 on")


def test_the_script_makes_the_shipped_workloads_again_to_the_byte(tmp_path):
    make_workloads.main(tmp_path)
    for name in ("heterogeneous-100.jsonl", "dag-50.jsonl"):
        assert (tmp_path / name).read_bytes() == (ROOT / "workloads" / name).read_bytes()

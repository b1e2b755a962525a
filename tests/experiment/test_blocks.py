"""One long run compared over blocks of its jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.runs import kept

from dagsim.config.schema import load_config
from dagsim.errors import InputError
from dagsim.experiment.compare import block_ratios
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.store import Store
from dagsim.metrics import columns, jct


def folder_of(tmp_path: Path, jobs: int) -> Store:
    """``jobs`` jobs of 1 to 17 s, ten seconds apart on one GPU, under two policies."""
    path = tmp_path / "jobs.csv"
    rows = [f"{number},{10 * number},1,{1 + 7 * number % 17}" for number in range(jobs)]
    path.write_text("\n".join(["id,arrival_s,gpus,duration_s", *rows]) + "\n")
    groups = "cluster.groups=[{name: t4, gpu: T4, gpus: 1}]"
    config = load_config(None, [f"workload={{kind: trace, path: {path}}}", groups, "seeds=1"])
    folder = RunStore.create(tmp_path / "runs", "replay", config, argv=[])
    kept(folder, config, ("fifo", "sjf"))
    return folder


def test_blocks_compare_jobs_in_order_of_arrival(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 10_000)
    ratios = block_ratios(folder, "sjf", "fifo", 5)
    fifo, sjf = (jct(columns(folder.schedule(number))).reshape(5, 2000).mean(axis=1) for number in (0, 1))
    assert ratios.pieces == pytest.approx(tuple(sjf / fifo))
    assert ratios.ratio == pytest.approx(float(np.exp(np.log(sjf / fifo).mean())))


def test_short_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs at least 10,000 jobs, .* but this one has 100"):
        block_ratios(folder_of(tmp_path, 100), "sjf", "fifo", 5)

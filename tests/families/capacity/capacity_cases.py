"""A cluster and trials for tests of several modules."""

from __future__ import annotations

from typing import Any

import numpy as np

from dagsim.experiment.cell_run import CellRun
from dagsim.families.capacity.trials import Trial
from dagsim.metrics.series import JobSeries
from dagsim.systems.cluster.section import ClusterSection, NodeGroup
from dagsim.workload.load import Load

CLUSTER = ClusterSection(
    name="c",
    groups=(
        NodeGroup(name="a", hosts="ant[01-02]", count=2, gpu="A100-40", gpus=8, cpus=64, memory_gb=512),
        NodeGroup(name="t", count=3, gpu="T4", gpus=4, cpus=32, memory_gb=128),
    ),
)


NOTHING = Load(0.0, 0.0, 1.0, 10)


def trial(metrics: dict[str, Any]) -> Trial:
    return Trial(CellRun("p", 0, {}, metrics), JobSeries({"wait_s": np.zeros(0)}, np.zeros(0, np.int64), ()), NOTHING)

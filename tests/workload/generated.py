"""Generated jobs of every kind, in columns."""

from __future__ import annotations

from dataclasses import replace

from dagsim.config.bundled import WORKLOADS
from dagsim.model import Cluster
from dagsim.systems.cluster.models.runtime import Throughput
from dagsim.workload.distributions import Choice, Constant, LogNormal, Uniform
from dagsim.workload.shapes import Layered, RandomDag
from dagsim.workload.sizes import Correlated, Independent
from dagsim.workload.synthetic import Synthetic

CLUSTER = Cluster.of({"A100-40": 8, "V100-16": 8})


RUNTIME = Throughput(missing="flops")


ODD = Independent(gpus=Choice((0.5, 1.0, 2.0, 32.0)), cpus=Uniform(0.0, 4.0), memory_gb=Choice((0.0, 8.0)), gang=False)


WORKLOADS_IN_COLUMNS = {
    "gangs of five models": Synthetic(300),
    "everything": Synthetic(
        300,
        shape=RandomDag(),
        sizes=Independent(requested_factor=Uniform(1.0, 3.0)),
        priority=Choice((1.0, 2.0)),
        tenants=("a", "b"),
        slack=Uniform(1.0, 4.0),
        output_gb=LogNormal(),
    ),
    "some are turned away": Synthetic(300, sizes=ODD, shape=Layered()),
    "correlated": Synthetic(300, sizes=Correlated()),
    "V100 only": Synthetic(300, sizes=Independent(gpu_types=("V100-16",)), slack=Constant(2.0)),
    "sessions": replace(WORKLOADS["like-philly"].workload, count=300, measure=None),
    "sessions of DAGs": replace(WORKLOADS["like-alibaba"].workload, count=300, measure=None, shape=RandomDag()),
}

"""Synthetic workloads by name (``dagsim list workloads``), as starting points for your own
configurations.

In a short workload, the cluster is empty at the start and at the end, so the results describe a
burst and not a steady state. The ``steady`` workloads measure a steady state: arrivals continue at
a constant rate to the end, and the jobs at both ends are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from dagsim.workload.arrivals import Batch, Diurnal, Poisson
from dagsim.workload.distributions import Choice, Constant, LogNormal, LogUniform, Mixture, Pareto, Part, Uniform, Whole
from dagsim.workload.sessions import Sessions
from dagsim.workload.shapes import CPUS, DURATION_S, INSTANCES, Alibaba, MapReduce, RandomDag
from dagsim.workload.sizes import Correlated, Independent
from dagsim.workload.synthetic import Synthetic


class Preset(NamedTuple):
    """A workload with a one-line description."""

    summary: str
    workload: Synthetic | Sessions


DEFAULT_WORKLOAD = "heterogeneous"

_ALIBABA = Independent(
    work=DURATION_S, instances=INSTANCES, gang=False, gpus=Constant(0.0), cpus=CPUS, memory_gb=Constant(0.0), models=()
)
_MOSTLY_SHORT = Mixture((Part(0.8, LogUniform(90.0, 1900.0)), Part(0.2, Pareto(1900.0, 1.2, 600_000.0))))
_SHARDS = Independent(work=LogNormal(20.0, 1.0, 1.0, 600.0), instances=Whole(4, 64), gang=False)
_SHARED = Independent(gpus=Choice((0.25, 0.5, 1.0), (0.4, 0.3, 0.3)), instances=Constant(1.0))
_URGENCY = Choice((0.0, 1.0, 2.0), (0.6, 0.3, 0.1))

_STEADY = Synthetic(20_000, load_mode="expected", arrivals=Poisson(), measure=(1000, -1000))

PRESETS: Mapping[str, Preset] = {
    "heterogeneous": Preset(
        "a burst of 100 training jobs, gangs of 1 to 8, five measured models, load 0.9", Synthetic()
    ),
    "heterogeneous-dag": Preset(
        "the same as DAGs: 15% single tasks, otherwise 3 to 8 tasks with 1 or 2 parents each",
        Synthetic(shape=RandomDag()),
    ),
    "steady": Preset(
        "20,000 training jobs that arrive as a Poisson process; 1,000 at each end are not counted", _STEADY
    ),
    "steady-dag": Preset("the same as DAGs of 3 to 8 tasks; 15% are single tasks", replace(_STEADY, shape=RandomDag())),
    "steady-heavy-tailed": Preset(
        "the same with Pareto-tailed work for 20% of the jobs, load 0.8",
        replace(_STEADY, load=0.8, sizes=Independent(work=_MOSTLY_SHORT)),
    ),
    "diurnal": Preset(
        "2,000 training jobs over several days; afternoons are three times as busy as nights",
        Synthetic(2000, 0.7, arrivals=Diurnal()),
    ),
    "batch": Preset("100 training jobs that all arrive at the start", Synthetic(arrivals=Batch())),
    "heavy-tailed": Preset(
        "1,000 jobs, 20% of them with Pareto-tailed work (alpha 1.2, up to a week)",
        Synthetic(1000, 0.8, arrivals=Poisson(), sizes=Independent(work=_MOSTLY_SHORT)),
    ),
    "correlated": Preset(
        "a burst of 400 jobs; longer jobs take more GPUs and have lower priority", Synthetic(400, sizes=Correlated())
    ),
    "deadlines": Preset(
        "300 training jobs of three tenants and three priorities, due after 1.5 to 5 times their ideal time",
        Synthetic(
            300,
            0.8,
            arrivals=Poisson(),
            priority=_URGENCY,
            tenants=("vision", "speech", "language"),
            slack=Uniform(1.5, 5.0),
        ),
    ),
    "shared-gpus": Preset(
        "500 jobs, most of which ask for a quarter or half of a GPU", Synthetic(500, arrivals=Poisson(), sizes=_SHARED)
    ),
    "map-reduce": Preset(
        "200 jobs with one or two rounds of maps and reduces, independent instances, and outputs to transfer",
        Synthetic(
            200,
            0.8,
            arrivals=Poisson(),
            shape=MapReduce(rounds=(1, 2)),
            sizes=_SHARDS,
            output_gb=LogNormal(0.1, 1.0),
        ),
    ),
    "alibaba": Preset(
        "1,000 CPU-only DAG jobs with the published sizes, depths, instances and durations of Alibaba 2018",
        Synthetic(1000, 0.7, arrivals=Poisson(), shape=Alibaba(), sizes=_ALIBABA),
    ),
}
"""Every preset by name."""

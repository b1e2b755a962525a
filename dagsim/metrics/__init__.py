"""Metrics: functions of a schedule, each defined once.

They take a ``Schedule`` or its ``columns``. To compute several metrics, unroll the columns once and
pass them.
"""

from dagsim.metrics.columns import ScheduleColumns, columns
from dagsim.metrics.compare import Paired, Verdict, compared, holm, paired, paired_by_seed
from dagsim.metrics.energy import Energy, PowerModel, Watts, energy, job_energy_j, watts
from dagsim.metrics.fairness import finish_time_fairness, isolated_s, jain, tenant_gpu_seconds, unfair_share
from dagsim.metrics.intervals import OverTime, over_time
from dagsim.metrics.jct import (
    bounded_slowdown,
    bounded_slowdown_hpc,
    failures,
    jct,
    makespan,
    node_failures,
    preemptions,
    restarts,
    running,
    slo_attainment,
    slowdown,
    tardiness,
    throughput,
    wait,
)
from dagsim.metrics.precision import Precision
from dagsim.metrics.steps import Steps, jobs_in_system, jobs_running, jobs_waiting, littles_law
from dagsim.metrics.summary import Distribution, GpuGroup, JobGroup, Summary, glossary, summarize
from dagsim.metrics.tables import jobs_table, runs_table, to_csv, to_pandas
from dagsim.metrics.utilization import (
    GpuSeconds,
    availability,
    flops_utilization,
    gpu_seconds,
    gpu_utilization,
    gpus_held,
    gpus_up,
    utilization_by_type,
)

__all__ = [
    "Distribution",
    "Energy",
    "GpuGroup",
    "GpuSeconds",
    "JobGroup",
    "OverTime",
    "Paired",
    "PowerModel",
    "Precision",
    "ScheduleColumns",
    "Steps",
    "Summary",
    "Verdict",
    "Watts",
    "availability",
    "bounded_slowdown",
    "bounded_slowdown_hpc",
    "columns",
    "compared",
    "energy",
    "failures",
    "finish_time_fairness",
    "flops_utilization",
    "glossary",
    "gpu_seconds",
    "gpu_utilization",
    "gpus_held",
    "gpus_up",
    "holm",
    "isolated_s",
    "jain",
    "jct",
    "job_energy_j",
    "jobs_in_system",
    "jobs_running",
    "jobs_table",
    "jobs_waiting",
    "littles_law",
    "makespan",
    "node_failures",
    "over_time",
    "paired",
    "paired_by_seed",
    "preemptions",
    "restarts",
    "running",
    "runs_table",
    "slo_attainment",
    "slowdown",
    "summarize",
    "tardiness",
    "tenant_gpu_seconds",
    "throughput",
    "to_csv",
    "to_pandas",
    "unfair_share",
    "utilization_by_type",
    "wait",
    "watts",
]

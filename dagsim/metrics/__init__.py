"""Metrics: functions of a schedule, each defined once.

They accept a ``Schedule`` or the result of ``columns``. To compute several metrics, build the
columns once and pass them to each function.
"""

from dagsim.metrics.columns import ScheduleColumns, columns
from dagsim.metrics.jct import (
    bounded_slowdown,
    bounded_stretch,
    deadline_hit_rate,
    exclusive_fairness,
    failures,
    finish_time_fairness,
    isolated_s,
    jain_fairness_index,
    jct,
    jobs_table,
    makespan,
    node_failures,
    preemptions,
    queueing,
    restarts,
    running,
    runs_table,
    stretch,
    tardiness,
    tenant_gpu_seconds,
    throughput,
    unfair_job_fraction,
    wait,
)
from dagsim.metrics.metric_tables import to_csv, to_pandas
from dagsim.metrics.paired import Paired, Precision, Verdict, compared, holm, paired
from dagsim.metrics.ratio_over_time import OverTime, over_time
from dagsim.metrics.summary import Distribution, GpuGroup, JobGroup, Summary, glossary, summarize
from dagsim.metrics.utilization import (
    Energy,
    GpuSeconds,
    PowerModel,
    Steps,
    Watts,
    availability,
    energy,
    goodput,
    gpu_allocation_ratio,
    gpu_node_fragmentation_ratio,
    gpu_seconds,
    gpu_utilization,
    gpus_held,
    gpus_up,
    job_energy_j,
    jobs_in_system,
    jobs_running,
    jobs_waiting,
    littles_law,
    peak_weighted_utilization,
    scheduling_occupancy_rate,
    utilization_by_type,
    watts,
)

__all__ = [
    "Distribution", "Energy", "GpuGroup", "GpuSeconds", "JobGroup", "OverTime", "Paired", "PowerModel", "Precision",
    "ScheduleColumns", "Steps", "Summary", "Verdict", "Watts", "availability", "bounded_slowdown", "bounded_stretch",
    "columns", "compared", "deadline_hit_rate", "energy", "exclusive_fairness", "failures", "finish_time_fairness",
    "glossary", "goodput", "gpu_allocation_ratio", "gpu_node_fragmentation_ratio", "gpu_seconds", "gpu_utilization",
    "gpus_held", "gpus_up", "holm", "isolated_s", "jain_fairness_index", "jct", "job_energy_j", "jobs_in_system",
    "jobs_running", "jobs_table", "jobs_waiting", "littles_law", "makespan", "node_failures", "over_time", "paired",
    "peak_weighted_utilization", "preemptions", "queueing", "restarts", "running", "runs_table",
    "scheduling_occupancy_rate", "stretch", "summarize", "tardiness", "tenant_gpu_seconds", "throughput", "to_csv",
    "to_pandas", "unfair_job_fraction", "utilization_by_type", "wait", "watts",
]  # fmt: skip

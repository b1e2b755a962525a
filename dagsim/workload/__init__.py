"""Workloads: jobs drawn from distributions, read from files, or taken from real traces."""

from dagsim.workload.info import WorkloadInfo, workload_info
from dagsim.workload.load import Load, offered_load
from dagsim.workload.presets import DEFAULT_WORKLOAD, PRESETS, Preset
from dagsim.workload.sessions import Sessions
from dagsim.workload.synthetic import Synthetic

__all__ = [
    "DEFAULT_WORKLOAD",
    "PRESETS",
    "Load",
    "Preset",
    "Sessions",
    "Synthetic",
    "WorkloadInfo",
    "offered_load",
    "workload_info",
]

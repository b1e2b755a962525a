"""The scheduling policies of the GPU cluster, one idea per file, and the registry of all of them."""

from __future__ import annotations

from dagsim.registry import Entry, Registry
from dagsim.systems.cluster.api import ClusterPolicy
from dagsim.systems.cluster.policies.placement import PLACEMENT_RULES, PlacementRule

__all__ = ["PLACEMENT_RULES", "POLICIES", "PlacementRule"]

_KNOWS = ("estimates",)
"""Tag of policies that use estimates. None is ``clairvoyant``, the tag of policies that read true durations."""
_STOPS = ("preemptive",)
_COSTLY = ("estimates", "costly")

POLICIES: Registry[ClusterPolicy] = Registry(
    "policy",
    [
        Entry("fifo", ".orders:fifo", "oldest first; it blocks all behind it until it fits"),
        Entry("fifo-fit", ".orders:fifo_fit", "oldest first among those that fit"),
        Entry("easy", ".backfilling:easy", "oldest first; others may fill in behind its reservation", _KNOWS),
        Entry("easy-sjf", ".backfilling:easy_sjf", "EASY, filling in the shortest first", _KNOWS),
        Entry("easy-lxf", ".backfilling:easy_lxf", "EASY, filling in the most slowed down first", _KNOWS),
        Entry("conservative", ".backfilling:Conservative", "everybody has a reservation", _COSTLY),
        Entry("easy-events", ".backfilling:EasyEvents", "EASY, decided at every event as PYSS does", _COSTLY),
        Entry("committed", ".backfilling:Committed", "RLScheduler's: one at a time, waited for", _COSTLY),
        Entry("recorded", ".history:AsObserved", "when and where the trace says that it started"),
        Entry("random", ".orders:RandomFeasible", "anything that fits, uniformly"),
        Entry("sjf", ".orders:sjf", "shortest pair of task and GPU type first", _KNOWS),
        Entry("srtf", ".preemption:srtf", "shortest remaining time first", ("estimates", "preemptive")),
        Entry("srsf", ".preemption:srsf", "least GPUs x remaining time first", ("estimates", "preemptive")),
        Entry("round-robin", ".rounds:RoundRobin", "everyone in turn for a slice", _STOPS),
        Entry("las", ".attained:las", "least seconds of service first, in rounds", _STOPS),
        Entry("2d-las", ".attained:las_2d", "least GPU-seconds of service first, in rounds", _STOPS),
        Entry("2d-gittins", ".attained:gittins_2d", "likeliest to be done soonest, by past sizes", _STOPS),
        Entry("tiresias", ".attained:tiresias", "2D-LAS in levels, with promotion", _STOPS),
        Entry("ljf", ".orders:ljf", "longest task first", _KNOWS),
        Entry("saf", ".orders:saf", "smallest GPUs x time first", _KNOWS),
        Entry("wspt", ".orders:wspt", "shortest per weight first", _KNOWS),
        Entry("edf", ".orders:edf", "earliest deadline first"),
        Entry("llf", ".orders:llf", "least slack to the deadline first", _KNOWS),
        Entry("priority", ".orders:priority", "highest priority first, ageing if asked"),
        Entry("hrrn", ".orders:hrrn", "highest response ratio next", _KNOWS),
        Entry("wfp3", ".orders:wfp3", "most (wait / r)^3 n first", _KNOWS),
        Entry("unicef", ".orders:unicef", "most wait / (log2(n) r) first", _KNOWS),
        Entry("tetris", ".job_orders:Tetris", "best aligned with what is free, less the work left", _KNOWS),
        Entry("f1", ".orders:f1", "fitted order of batch systems, log10(r) n + 870 log10(s)", _KNOWS),
        Entry("f2", ".orders:f2", "fitted, sqrt(r) n + 25600 log10(s)", _KNOWS),
        Entry("f3", ".orders:f3", "fitted, r n + 6860000 log10(s)", _KNOWS),
        Entry("f4", ".orders:f4", "fitted, r sqrt(n) + 530000 log10(s)", _KNOWS),
        Entry("graham", ".orders:graham", "list scheduling: the first ready task of a given list"),
        Entry("sjf-cp", ".job_orders:sjf_cp", "job with least work, its critical path first", _KNOWS),
        Entry("scpt", ".job_orders:scpt", "job with the shortest path left first", _KNOWS),
        Entry("srpt-work", ".job_orders:srpt_work", "job with the least work left first", _KNOWS),
        Entry("critical-path", ".orders:critical_path", "longest path to the end first", _KNOWS),
        Entry("max-min-fair", ".shares:max_min_fair", "who holds the fewest GPUs is next"),
        Entry("weighted-fair", ".shares:weighted_fair", "GPUs by weight x work^alpha", _KNOWS),
        Entry("drf", ".shares:drf", "who has the smallest dominant share is next"),
        Entry("themis", ".orders:themis", "who would end latest for its size is next", _KNOWS),
        Entry("qssf", ".history:Qssf", "short by what alike tasks took before"),
        Entry("heft", ".planned:heft", "each job planned: upward rank, earliest finish", _KNOWS),
        Entry("cpop", ".planned:cpop", "each job planned: critical path on one node", _KNOWS),
        Entry("peft", ".planned:peft", "each job planned: HEFT with a look ahead", _KNOWS),
        Entry("dls", ".planned:dls", "each job planned: highest dynamic level first", _KNOWS),
        Entry("min-min", ".batch_mode:min_min", "the task that can complete first", _COSTLY),
        Entry("max-min", ".batch_mode:max_min", "the task that completes last at best", _COSTLY),
        Entry("sufferage", ".batch_mode:sufferage", "who would lose most elsewhere", _COSTLY),
        Entry("allox", ".look_ahead:AlloX", "least sum of completion times, by assignment", _COSTLY),
        Entry(
            "gavel",
            ".gavel:Gavel",
            "time on each type by a linear program, in rounds",
            ("estimates", "preemptive", "costly"),
        ),
        Entry("rollout", ".look_ahead:Rollout", "the best candidate of a few, tried in forks", _COSTLY),
        Entry("plan-ahead", ".look_ahead:PlanAhead", "starts now and later, by a program", _COSTLY),
        Entry("energy-saver", ".power:EnergySaver", "least energy within a bounded slowdown", _KNOWS),
        Entry("power-cap", ".power:PowerCap", "SJF under a cap on the watts drawn", _KNOWS),
        Entry(
            "slurm-multifactor",
            ".slurm:SlurmMultifactor",
            "Slurm: multifactor priority, main loop and backfill",
            ("estimates", "preemptive", "costly"),
        ),
        Entry("kueue", ".kueue:Kueue", "Kueue: quotas, borrowing and reclaim in cohorts", _STOPS),
        Entry("kube-default", ".kube:KubeDefault", "Kubernetes: by priority, on the best node", _STOPS),
        Entry(
            "eft-wait",
            ".look_ahead:EftWait",
            "shortest first, unless waiting for a faster type ends sooner",
            _KNOWS,
        ),
    ],
    group="dagsim.policies",
    home="dagsim.systems.cluster.policies",
    listing="dagsim list policies",
    method="decide",
)
"""Every policy by name; other packages add theirs by an entry point in the group ``dagsim.policies``."""
